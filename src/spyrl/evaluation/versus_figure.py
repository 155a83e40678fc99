"""Two models in one game, as pictures: every cell, and what changes over a run's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spyrl.evaluation import statistics
from spyrl.evaluation.pictures import picture, save_picture
from spyrl.evaluation.versus import SIDES, Cell, Match, Part, Side, effect

_COLOURS = {"A": "#1f5fa8", "B": "#c2571a"}


def draw_cells(match: Match, names: Mapping[Side, str], folder: Path) -> list[str]:
    """Write ``cells.png`` and ``cells.svg``; returns their names. Raises what `save_picture` does."""
    figure = picture(6.4, 3.8)
    axes = figure.add_subplot()
    pairs = [(civilians, spy) for civilians in SIDES for spy in SIDES]
    for shift, detectors in ((-0.09, SIDES[0]), (0.09, SIDES[1])):
        for place, (civilians, spy) in enumerate(pairs):
            games = match.outcomes[Cell(civilians, spy, detectors)].values()
            found = statistics.share([each.found for each in games])
            label = f"detectors: {names[detectors]}" if place == 0 else None
            axes.plot(place + shift, found.mean, "o", color=_COLOURS[detectors], label=label)
            axes.plot((place + shift,) * 2, (found.low, found.high), color=_COLOURS[detectors], linewidth=1.5)
    axes.set_xticks(range(len(pairs)), [f"civilians {civilians}\nspy {spy}" for civilians, spy in pairs])
    axes.set(ylim=(0, 1.02), ylabel="spies found by plurality")
    axes.set_title(f"A: {names['A']}   B: {names['B']}", loc="left", fontsize=10)
    return _saved(figure, axes, folder, "cells")


def draw_curve(matches: Mapping[int, Match], reference: str, folder: Path) -> list[str]:
    """Write ``curve.png`` and ``curve.svg``; returns their names. Raises what `save_picture` does."""
    from matplotlib.ticker import MaxNLocator

    figure = picture(6.4, 3.8)
    axes = figure.add_subplot()
    iterations = list(matches)
    parts: tuple[tuple[Part, int, str, str], ...] = (
        ("civilians", 1, "as civilians: spies found", "#1f5fa8"),
        ("spy", -1, "as the spy: not found", "#c2571a"),
        ("detectors", 1, "as detectors: spies found", "#2e8b57"),
    )
    for part, sign, name, colour in parts:
        gains = [effect(match, part, sign).difference for match in matches.values()]
        axes.plot(iterations, [100 * gain.mean for gain in gains], color=colour, marker="o", markersize=4, label=name)
        ends = [(gain.low, gain.high) for gain in gains]
        lows, highs = ([None if end is None else 100 * end for end in side] for side in zip(*ends, strict=True))
        if None not in (*lows, *highs):
            axes.fill_between(iterations, lows, highs, color=colour, alpha=0.12, linewidth=0)
    axes.axhline(0, color="#8a8a8a", linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="iterations", ylabel=f"points more than {reference}")
    return _saved(figure, axes, folder, "curve")


def _saved(figure: Any, axes: Any, folder: Path, name: str) -> list[str]:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#00000018", linewidth=0.8)
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    return save_picture(figure, folder, name)
