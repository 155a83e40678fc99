"""Win rates by criterion, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spyrl.evaluation.ab_results import Rates
from spyrl.evaluation.pictures import picture, save_picture
from spyrl.evaluation.statistics import Interval


def draw_win_rates(found: Rates, title: str, folder: Path) -> list[str]:
    """Write the win rates with their intervals; returns the files' names. Raises what `save_picture` does."""
    names = list(found.model)
    lines: list[tuple[str, dict[str, Interval | None], dict[str, Any]]] = [
        (
            "win rate",
            {name: rate.raw if rate else None for name, rate in found.model.items()},
            {"color": "#1f5fa8", "fmt": "o"},
        ),
        (
            "length-controlled",
            {name: rate.length_controlled if rate else None for name, rate in found.model.items()},
            {"color": "#2e8b57", "fmt": "s"},
        ),
    ]
    if found.control:
        control = {name: rate.raw if rate else None for name, rate in found.control.items()}
        lines.append(("base against itself", control, {"color": "#8a8a8a", "fmt": "D"}))
    figure = picture(6.6, 1.4 + 0.55 * len(names))
    axes = figure.add_subplot()
    axes.axvline(50, color="#9a9a9a", linewidth=0.8, linestyle=":")
    for number, (label, shares, style) in enumerate(lines):
        known = [(place, share) for place, name in enumerate(names) if (share := shares[name])]
        axes.errorbar(
            [100 * share.mean for _, share in known],
            [place + 0.22 * (number - (len(lines) - 1) / 2) for place, _ in known],
            xerr=[
                [100 * (share.mean - (share.mean if share.low is None else share.low)) for _, share in known],
                [100 * ((share.mean if share.high is None else share.high) - share.mean) for _, share in known],
            ],
            label=label,
            markersize=4.5,
            linewidth=1.4,
            **style,
        )
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(-2, 102), ylim=(len(names) - 0.4, -0.6), xlabel="win rate, % (95 % intervals)")
    axes.set_title(title, loc="left", fontsize=9)
    axes.grid(axis="x", color="#00000018", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return save_picture(figure, folder, "win-rates")
