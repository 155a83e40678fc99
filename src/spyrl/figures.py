"""A measured run as a curve: for the terminal, and as a picture."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

Points = list[tuple[int, float]]

_DETECTION, _PERFORMING = "#c2571a", "#1f5fa8"
_SHADES = {"detection": "#fbf0e8", "performing": "#e8f0f9", "joint": "#f2f2f2"}


def series(metrics: Sequence[Mapping[str, Any]], key: str) -> Points:
    """What is known of a held-out metric: (iterations done, value), the starting model's at 0."""
    start = [(0, line[f"start/{key}"]) for line in metrics if line.get(f"start/{key}") is not None]
    return start + [(line["iteration"] + 1, line[key]) for line in metrics if line.get(key) is not None]


def has_curve(metrics: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the run was measured on held-out documents by a number that makes a curve."""
    return any(series(metrics, key) for key in ("quality/greedy", "frozen/detection"))


def plot(lines: Mapping[str, Points], end: int, width: int) -> list[str]:
    """Draw values in [0, 1] against iterations 0 to ``end`` in characters, each series with the mark that names it.

    Dots join a series' marks; where marks fall together, the first series' is seen.
    """
    low = min(0.5, *(math.floor(value * 10 + 1e-9) / 10 for points in lines.values() for _, value in points))
    step = 0.05 if low >= 0.4 else 0.1
    columns = max(width - 5, 20)
    grid = [[" "] * columns for _ in range(round((1 - low) / step) + 1)]

    def draw(mark: str, done: float, value: float) -> None:
        grid[round((1 - value) / step)][round(done / end * (columns - 1))] = mark

    for points in lines.values():
        for (before, first), (after, second) in pairwise(points):
            for share in (each / columns for each in range(columns)):
                draw("·", before + (after - before) * share, first + (second - first) * share)
    for mark, points in reversed(list(lines.items())):
        for done, value in points:
            draw(mark, done, value)
    labels = [f"{1 - row * step:.1f}" if step == 0.1 or row % 2 == 0 else "" for row in range(len(grid))]
    drawn = [f"{label:>3} │{''.join(cells)}".rstrip() for label, cells in zip(labels, grid, strict=True)]
    last = str(end)
    return [*drawn, "    └" + "─" * columns, f"     0{'iterations':^{columns - 1 - len(last)}}{last}"]


def curve_figure(metrics: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write a run's curve as a PNG: held-out quality and detection over the stages that were trained.

    What has to do with performing is blue, with detection orange, the background too. Raises `OSError` where it cannot
    be written.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its font cache
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    sampled: dict[str, Any] = {
        "color": _PERFORMING,
        "marker": "o",
        "markerfacecolor": "white",
        "linestyle": "--",
        "linewidth": 1.3,
    }
    for label, points, style in (
        ("quality, most likely output", series(metrics, "quality/greedy"), {"color": _PERFORMING, "marker": "o"}),
        ("quality, sampled outputs", series(metrics, "quality/sampled"), sampled),
        (
            "spy found, frozen games",
            series(metrics, "frozen/detection"),
            {"color": _DETECTION, "marker": "s"},
        ),
        (
            "ballots right, training's games",
            _live(metrics, "detection/accuracy"),
            {"color": _DETECTION, "linewidth": 0.8, "alpha": 0.8},
        ),
    ):
        if points:
            axes.plot(
                *zip(*points, strict=True), label=label, clip_on=False, **{"linewidth": 2.0, "markersize": 4.5, **style}
            )
    axes.set_title("On unseen documents, never trained on", loc="left", fontsize=9)
    _finish(figure, axes, metrics, "share, or quality")
    figure.savefig(path)


def training_figure(metrics: Sequence[Mapping[str, Any]], levels: Mapping[str, float], paths: Sequence[Path]) -> None:
    """Draw how well a run's own games were detected over the stages that were trained, to each path (.png, .svg).

    ``levels`` are shares to compare with, such as chance. Raises `OSError` where it cannot be written.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "spyrl"}):  # else its ids are drawn anew each time
        figure = Figure(figsize=(7, 4.2), dpi=150, layout="constrained")
        axes = figure.add_subplot()
        mark: dict[str, Any] = {"marker": "o", "markersize": 3.5} if len(metrics) <= 30 else {}
        for label, key, style in (
            ("games whose spy was found", "detection/plurality", {"linewidth": 1.0, "alpha": 0.45}),
            ("the gate's moving average", "gate/accuracy", {"linewidth": 2.2}),
            ("ballots that name the spy", "detection/accuracy", {"linewidth": 1.2, "linestyle": "--"}),
        ):
            if points := _live(metrics, key):
                axes.plot(*zip(*points, strict=True), label=label, color=_DETECTION, clip_on=False, **{**mark, **style})
        for level in levels.values():
            axes.axhline(level, color="#666666", linewidth=0.8, linestyle=(0, (4, 3)))
        right = axes.secondary_yaxis("right")
        right.set_yticks([*levels.values()], [*levels], fontsize=8)
        right.spines["right"].set_visible(False)
        axes.set_title("Detection in training's own games", loc="left", fontsize=9)
        _finish(figure, axes, metrics, "share")
        for path in paths:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _live(metrics: Sequence[Mapping[str, Any]], key: str) -> Points:
    """A metric of training's own games, at the iteration (from 0) whose games they are."""
    return [(line["iteration"], line[key]) for line in metrics if line.get(key) is not None]


def _finish(figure: Any, axes: Any, metrics: Sequence[Mapping[str, Any]], unit: str) -> None:
    """Shade the stages that were trained; axes over all iterations and shares; a legend of lines and stages."""
    from matplotlib.patches import Patch

    for stage, group in groupby(metrics, key=lambda line: str(line["stage"])):
        iterations = [int(line["iteration"]) for line in group]
        axes.axvspan(iterations[0], iterations[-1] + 1, color=_SHADES[stage], linewidth=0)
        axes.axvline(iterations[0], color="#9a9a9a", linewidth=0.8, linestyle=":")
    axes.set(xlim=(0, metrics[-1]["iteration"] + 1), ylim=(0, 1.03), xlabel="iterations", ylabel=unit)
    axes.grid(axis="y", color="#00000018", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    handles, _ = axes.get_legend_handles_labels()
    stages = {str(line["stage"]) for line in metrics}
    handles += [
        Patch(facecolor=_SHADES[stage], edgecolor="#bbbbbb", label=f"{stage} trained") for stage in sorted(stages)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
