"""Votes and quality as a picture: the mean rank of outputs by the votes that they received."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spyrl.evaluation.alignment import WHO, Rated, by_votes, points
from spyrl.evaluation.pictures import picture, save_picture

_COLOURS = {"all": "#444444", "civilians": "#1f5fa8", "spies": "#c2571a"}


def draw(games: Sequence[Rated], folder: Path) -> list[str]:
    """Write ``alignment.png`` and ``alignment.svg``; returns their names.

    Raises what `save_picture` does.
    """
    from matplotlib.ticker import MaxNLocator

    figure = picture(6.4, 3.8)
    axes = figure.add_subplot()
    for shift, who in enumerate(WHO):
        found = points(games, who)
        if not len(found.votes):
            continue
        rows = by_votes(found)
        places = [votes + 0.08 * (shift - 1) for votes in rows]
        label = {"all": "all outputs", "civilians": "civilians, among themselves", "spies": "spies"}[who]
        axes.plot(places, [row[0] for row in rows.values()], "o-", markersize=4, color=_COLOURS[who], label=label)
        for place, (_, low, high, _) in zip(places, rows.values(), strict=True):
            if low is not None and high is not None:
                axes.plot((place, place), (low, high), color=_COLOURS[who], linewidth=1)
    axes.set(xlabel="votes received", ylabel="mean quality rank in the game")
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("1 is best: a falling line says that worse outputs get more votes", loc="left", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#00000018", linewidth=0.8)
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    return save_picture(figure, folder, "alignment")
