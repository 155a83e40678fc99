"""An audit as a picture: what the spy is told by, and how that went over the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spyrl.evaluation.audit import Audit
from spyrl.evaluation.audit_games import FEATURES
from spyrl.evaluation.pictures import picture, save_picture

_LOOK, _DETECTORS, _GAP, _CHANCE = "#c2571a", "#1f5fa8", "#2e8b57", "#8a8a8a"


def draw(found: Audit, folder: Path) -> list[str]:
    """Write ``audit.png`` and ``audit.svg``; returns their names, none where there is nothing to draw.

    Raises what `save_picture` does.
    """
    if found.games is None or not found.guesses:
        return []

    figure = picture(9.5, 3.8)
    bars, lines = figure.subplots(1, 2, width_ratios=(1, 1.25))
    chance = found.guesses["surface"].chance

    names = {"surface": "all but copied", "surface + copied": "all"}
    shown = [*FEATURES, "position", *names]
    for place, name in enumerate(reversed(shown)):
        guess = found.guesses[name]
        bars.barh(place, guess.accuracy, color=_LOOK if guess.told else "#d9b7a1", height=0.7)
        if guess.low is not None and guess.high is not None:
            bars.plot((guess.low, guess.high), (place, place), color="#444444", linewidth=1)
    bars.set_yticks(range(len(shown)), [names.get(name, name) for name in reversed(shown)])
    bars.axvline(chance, color=_CHANCE, linestyle="--", linewidth=1.2, label="chance")
    bars.axvline(found.games.found.mean(), color=_DETECTORS, linewidth=1.6, label="detectors")
    bars.set(xlim=(0, 1), xlabel="spies found")
    bars.set_title("The spy is told by", loc="left", fontsize=10)

    centres, detectors, look, gaps = [], [], [], []
    hits = found.guesses["surface"].hits
    for window in found.windows:
        here = np.isin(found.games.batch, window)
        if not here.any():
            continue
        centres.append((found.numbers[window[0]] + found.numbers[window[-1]]) / 2)
        detectors.append(found.games.found[here].mean())
        look.append(hits[here].mean())
        known = found.games.gaps[here]
        gaps.append(np.nan if np.isnan(known).all() else np.nanmean(known))
    lines.plot(centres, detectors, color=_DETECTORS, marker="o", markersize=4, label="detectors find the spy")
    lines.plot(centres, look, color=_LOOK, marker="s", markersize=4, label="the look of outputs finds it")
    lines.axhline(chance, color=_CHANCE, linestyle="--", linewidth=1.2)
    lines.plot(centres, gaps, color=_GAP, marker="^", markersize=4, label="spies' length against civilians'")
    lines.axhline(0, color="#cccccc", linewidth=0.8, zorder=0)
    lines.set(ylim=(min(-0.5, np.nanmin([*gaps, 0.0]) - 0.05), max(1.02, np.nanmax([*gaps, 0.0]) + 0.05)))
    lines.set(xlabel="iteration", ylabel="share")
    lines.set_title("Over the run", loc="left", fontsize=10)
    for axes in (bars, lines):
        axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
        axes.spines[["top", "right"]].set_visible(False)
    return save_picture(figure, folder, "audit")
