"""An ablation's curves: one panel a group of variants, each with what the group is compared with."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spyrl.ablation.results import MEASURES, Compared, Results, Seed
from spyrl.ablation.variants import FULL
from spyrl.evaluation.statistics import Interval, interval

_COLOURS = ("#1f5fa8", "#c2571a", "#2e8b57", "#8a4fbf", "#b8860b", "#c0392b")
_MOST_COLUMNS = 3


def draw_curves(results: Results, path: Path) -> None:
    """Write the curves of what variants are compared by as a PNG: means over seeds with their 95 % intervals.

    Raises `OSError` where it cannot be written.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its font cache
    from matplotlib.figure import Figure

    panels = _panels(results)
    columns = min(len(panels), _MOST_COLUMNS)
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * rows), dpi=150, layout="constrained")
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes, (title, lines) in zip(grid, panels.items(), strict=False):
        _draw(axes, title, lines)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.supxlabel("iterations", fontsize=10)
    figure.supylabel(MEASURES[results.measure], fontsize=10)
    partial = path.with_name(f".{path.name}.partial")
    try:
        figure.savefig(partial, format="png")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def means(seeds: Sequence[Seed]) -> list[tuple[int, Interval]]:
    """A curve over seeds: the interval at every number of iterations that all seeds were measured at."""
    curves = [dict(seed.curve) for seed in seeds]
    shared = sorted(set(curves[0]).intersection(*curves))
    return [(done, interval([curve[done] for curve in curves])) for done in shared]


def _panels(results: Results) -> dict[str, list[Compared]]:
    """By group, its variants after the one that they are compared with."""
    by_name = {each.variant.name: each for each in results.compared}
    groups: dict[str, list[Compared]] = {}
    for each in results.compared:
        if each.variant.name != FULL:
            groups.setdefault(each.variant.group, []).append(each)
    if not groups:
        return {FULL: list(results.compared)}
    for group in groups.values():
        against = by_name.get(group[-1].variant.against)  # of a regime's: the regime alone
        if against and against not in group:
            group.insert(0, against)
    return groups


def _draw(axes: Any, title: str, lines: Sequence[Compared]) -> None:
    against = lines[-1].variant.against
    colours = iter(_COLOURS)
    for each in lines:
        points = means(each.seeds)
        if not points:
            continue
        reference = each.variant.name == against
        colour = "black" if reference else next(colours)
        done = [at for at, _ in points]
        label = each.variant.name.partition("+")[2] or each.variant.name
        axes.plot(done, [found.mean for _, found in points], color=colour, label=label, linewidth=1.6, marker=".")
        low = [found.mean if found.low is None else max(found.low, 0) for _, found in points]  # all are shares
        high = [found.mean if found.high is None else min(found.high, 1) for _, found in points]
        axes.fill_between(done, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_title(title, fontsize=10, loc="left")
    axes.grid(axis="y", color="#00000014", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False)
