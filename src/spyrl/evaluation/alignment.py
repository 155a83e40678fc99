"""Do votes track quality? Outputs' quality ranks within their games, by the votes that they received.

The paper's Figure 4 shows it for 100 games ranked by GPT-4o, without a coefficient. Here quality is the task's own
where it is known, or a judge's ranking (`spyrl.evaluation.ranking`), and the coefficient is Spearman's, over outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spyrl.evaluation.bootstrap import bootstrapped
from spyrl.evaluation.played import Batch, Row
from spyrl.evaluation.results import Score
from spyrl.evaluation.sheets import Sheet
from spyrl.play import KnownQuality

Who = Literal["all", "civilians", "spies"]
WHO: tuple[Who, ...] = ("all", "civilians", "spies")


@dataclass(frozen=True)
class Rated:
    """A game's votes and qualities by player 1..n, qualities on any scale where more is better."""

    votes: tuple[int, ...]
    quality: tuple[float, ...]
    spy: int | None


@dataclass(frozen=True)
class Points:
    """Outputs: the votes each received, its quality rank (1 is best, ties share), and its game, from 0."""

    votes: NDArray[np.float64]
    ranks: NDArray[np.float64]
    game: NDArray[np.intp]
    games: int


@dataclass(frozen=True)
class Correlation:
    """Spearman's coefficient of votes and quality ranks, above 0 where worse outputs get more votes.

    Its 95 % interval is a bootstrap over games. All are ``None`` where votes or ranks do not vary.
    """

    value: float | None
    low: float | None
    high: float | None
    outputs: int


def rated_by_task(games: Iterable[Row], task: KnownQuality) -> list[Rated]:
    """The games with the task's own quality of each output, its mean over rounds."""
    found = []
    for row in games:
        scores: list[list[float]] = [[] for _ in range(row["players"])]
        for output in row["outputs"]:
            scores[output["player"] - 1].append(task.quality(row["document"], output["text"])["f1"])
        quality = tuple(sum(each) / len(each) for each in scores)
        found.append(Rated(tuple(row["votes"]), quality, row["spy"]))
    return found


def all_games(batches: Iterable[Batch]) -> list[tuple[str, Row]]:
    """Every game with a name of its own."""
    return [(f"{batch.number}/{row['game']}", row) for batch in batches for row in batch.games]


def points(games: Sequence[Rated], who: Who) -> Points:
    """All outputs with their ranks in the game; ``civilians`` are ranked among each other, spies among all."""
    from scipy.stats import rankdata

    votes: list[float] = []
    ranks: list[float] = []
    belongs: list[int] = []
    for number, game in enumerate(games):
        players = [player for player in range(1, len(game.votes) + 1) if who != "civilians" or player != game.spy]
        placed = rankdata([-game.quality[player - 1] for player in players])
        for player, rank in zip(players, placed, strict=True):
            if who != "spies" or player == game.spy:
                votes.append(game.votes[player - 1])
                ranks.append(float(rank))
                belongs.append(number)
    return Points(np.array(votes, dtype=float), np.array(ranks), np.array(belongs, dtype=np.intp), len(games))


def spearman(found: Points, name: str) -> Correlation:
    """The correlation of votes and quality ranks; ``name`` names the draws of its interval.

    Where games are drawn anew, values keep the places that they have among all outputs.
    """
    from scipy.stats import rankdata

    count = len(found.votes)
    if count < 3:
        return Correlation(None, None, None, count)
    x, y = rankdata(found.votes), rankdata(found.ranks)
    x, y = x - x.mean(), y - y.mean()
    sums = np.array(
        [
            np.bincount(found.game, weights=each, minlength=found.games)
            for each in (np.ones(count), x, y, x * x, y * y, x * y)
        ]
    )

    def coefficient(drawn: NDArray[np.intp]) -> float:
        n, sx, sy, sxx, syy, sxy = sums[:, drawn].sum(axis=1)
        spread = (sxx - sx * sx / n) * (syy - sy * sy / n) if n else 0.0
        return float((sxy - sx * sy / n) / np.sqrt(spread)) if spread > 1e-9 else float("nan")

    value = coefficient(np.arange(found.games))
    if np.isnan(value):
        return Correlation(None, None, None, count)
    low, high = bootstrapped(coefficient, found.games, "alignment", name)
    return Correlation(value, low, high, count)


def by_votes(found: Points) -> dict[int, tuple[float, float | None, float | None, int]]:
    """Mean rank of the outputs that received so many votes, its 95 % interval (bootstrap over games), and how many."""
    rows = {}
    for votes in sorted(set(found.votes.tolist())):
        here = found.votes == votes
        counts = np.bincount(found.game[here], minlength=found.games)
        sums = np.bincount(found.game[here], weights=found.ranks[here], minlength=found.games)

        def mean(drawn: NDArray[np.intp], counts: Any = counts, sums: Any = sums) -> float:
            total = counts[drawn].sum()
            return float(sums[drawn].sum() / total) if total else float("nan")

        low, high = bootstrapped(mean, found.games, "alignment", int(votes), draws=1000)
        rows[int(votes)] = (float(found.ranks[here].mean()), low, high, int(here.sum()))
    return rows


def sheets(games: Sequence[Rated], *, known: bool) -> tuple[tuple[Sheet, ...], tuple[Score, ...]]:
    """The tables of an alignment, and the coefficients as scores; ``known`` tells that qualities have a meaning."""
    sets = {who: points(games, who) for who in WHO}
    sets = {who: each for who, each in sets.items() if len(each.votes)}
    rows, scores = [], []
    for who, each in sets.items():
        rho = spearman(each, who)
        cell = "–" if rho.value is None else f"{rho.value:+.2f} {_ends(rho.low, rho.high)}"
        rows.append((who, cell, str(rho.outputs)))
        if rho.value is not None:
            metric = f"Spearman correlation of votes and quality rank, {who}"
            scores.append(Score("played games", metric, rho.value, rho.low, rho.high, rho.outputs))
    correlation = Sheet("Correlation of votes received and quality rank", ("outputs", "Spearman", "count"), tuple(rows))
    tables = {who: by_votes(each) for who, each in sets.items()}
    means = mean_quality(games) if known else {}
    lines = []
    for votes in sorted(tables["all"]):
        cells = [_cell(tables[who].get(votes)) if who in tables else "–" for who in WHO]
        lines.append((str(votes), str(tables["all"][votes][3]), *cells, *([f"{means[votes]:.3f}"] if known else [])))
    columns = ("votes", "outputs", "mean rank", "of civilians", "of spies", *(("quality",) if known else ()))
    return (correlation, Sheet("Mean quality rank by votes received", columns, tuple(lines))), tuple(scores)


def mean_quality(games: Sequence[Rated]) -> Mapping[int, float]:
    """Mean quality of the outputs that received so many votes."""
    found: dict[int, list[float]] = {}
    for game in games:
        for votes, quality in zip(game.votes, game.quality, strict=True):
            found.setdefault(votes, []).append(quality)
    return {votes: sum(values) / len(values) for votes, values in found.items()}


def _cell(row: tuple[float, float | None, float | None, int] | None) -> str:
    if row is None:
        return "–"
    mean, low, high, _ = row
    return f"{mean:.2f}" + ("" if low is None or high is None else f" [{low:.2f}–{high:.2f}]")


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{low:.2f} to {high:.2f}]"
