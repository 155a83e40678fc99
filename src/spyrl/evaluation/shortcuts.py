"""How far surface features alone find the spy, and how much of the detectors' success that could explain.

Each output is described by how it looks, relative to its game's others. A logistic regression learns on some games
what a spy looks like and points at one player in each of the others; where it points right more often than chance,
there is a shortcut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spyrl.evaluation import statistics
from spyrl.evaluation.bootstrap import bootstrapped
from spyrl.game import generator, named_seed
from spyrl.play.summary import position_bias

Floats = NDArray[np.float64]

FOLDS = 5
SURE = 0.001
"""Highest probability of so good a guess by chance, for a shortcut to be called one.

(Cross-validated guesses share what they learnt from, so chance is a little luckier than reckoned.)"""
MATERIAL = 0.05
"""Least share of games, above chance, for it to be worth a word."""
_DRAWS = 4000


@dataclass(frozen=True)
class Guess:
    """What features find of the spies: a share of games and its 95 % interval.

    ``suspicion[g, k]`` is 1 for the player that is pointed at in game g, shared where players tie, and ``hits[g]`` what
    of that the spy gets. ``p`` is the probability to be so good by chance, whoever the spies are.
    """

    accuracy: float
    low: float | None
    high: float | None
    chance: float
    p: float
    suspicion: Floats
    hits: Floats

    @property
    def told(self) -> bool:
        """Whether the features tell the spy: above chance, surely and by an amount that matters."""
        return self.p < SURE and self.accuracy >= self.chance + MATERIAL


@dataclass(frozen=True)
class Share:
    """A ratio or share and its 95 % interval; all are ``None`` where it cannot be known."""

    value: float | None
    low: float | None = None
    high: float | None = None


def relative(values: Floats) -> Floats:
    """Each feature standardised within its game: (games, players, features), mean 0 and spread 1, or all 0."""
    centred = values - values.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    scaled: Floats = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 1e-12)
    return scaled


def guess(features: Floats, spies: NDArray[np.intp], name: str) -> Guess:
    """Point at a player in every game, having learnt from the other folds' games.

    ``features`` are (games, players, features), ``spies`` the spies' places from 0; at least two games. ``name`` names
    the draws.
    """
    from sklearn.linear_model import LogisticRegression

    games, players, _ = features.shape
    order = list(range(games))
    generator("audit", "folds").shuffle(order)
    fold = np.empty(games, dtype=int)
    fold[order] = np.arange(games) % min(FOLDS, games)
    is_spy = np.zeros((games, players), dtype=bool)
    is_spy[np.arange(games), spies] = True
    scores = np.zeros((games, players))
    for number in range(fold.max() + 1):
        here = fold == number
        learnt, labels = features[~here].reshape(-1, features.shape[2]), is_spy[~here].ravel()
        model = LogisticRegression(max_iter=1000).fit(learnt, labels)
        scores[here] = (features[here] @ model.coef_[0]).round(9)  # rounding, so that equal outputs tie
    best = scores == scores.max(axis=1, keepdims=True)
    suspicion = best / best.sum(axis=1, keepdims=True)
    hits = suspicion[np.arange(games), spies]
    draw = np.random.default_rng(named_seed("audit", "chance", name))
    lucky = np.zeros(_DRAWS)
    for row in suspicion:
        lucky += row[draw.integers(players, size=_DRAWS)]
    p = (1 + int((lucky >= hits.sum() - 1e-9).sum())) / (1 + _DRAWS)
    found = statistics.share(hits.tolist())
    return Guess(found.mean, found.low, found.high, 1 / players, p, suspicion, hits)


def explained(hits: Floats, found: Floats, chance: float) -> Share:
    """What share of the detectors' success above chance the features would have had: (a - 1/n) / (d - 1/n).

    ``found`` are the detectors' verdicts. Not known where the detectors are not clearly above chance.
    """

    def ratio(drawn: NDArray[np.intp]) -> float:
        above = float(found[drawn].mean()) - chance
        return (float(hits[drawn].mean()) - chance) / above if above > 0.01 else float("nan")

    whole = ratio(np.arange(len(hits)))
    low, high = bootstrapped(ratio, len(hits), "audit", "explained")
    return Share(None) if np.isnan(whole) or low is None else Share(whole, low, high)


def followed(suspicion: Floats, votes: Floats, spies: NDArray[np.intp]) -> Share:
    """Whether votes follow the features where these are wrong: of votes for civilians, those for the one pointed at.

    A share over games where one civilian alone is pointed at and civilians got votes. Detectors that do not go by the
    features give it 1 / (n - 1).
    """
    games = np.arange(len(votes))
    wrong = (suspicion.max(axis=1) == 1) & (suspicion.argmax(axis=1) != spies)
    civil = votes.copy()
    civil[games, spies] = 0
    kept = wrong & (civil.sum(axis=1) > 0)
    if kept.sum() < 2:
        return Share(None)
    shares = (civil[games, suspicion.argmax(axis=1)] / np.maximum(civil.sum(axis=1), 1))[kept]
    low, high = bootstrapped(lambda drawn: float(shares[drawn].mean()), len(shares), "audit", "followed")
    return Share(float(shares.mean()), low, high)


def position_bias_by_chance(votes: Floats, draws: int = 2000) -> tuple[float, float]:
    """The `position_bias` of these games' votes (games, players), and what chance alone exceeds once in 1000 times.

    By chance: the numbers of each game's players are dealt out anew.
    """
    draw = np.random.default_rng(named_seed("audit", "positions"))
    by_chance = [position_bias(draw.permuted(votes, axis=1).sum(axis=0).tolist()) for _ in range(draws)]
    return position_bias(votes.sum(axis=0).tolist()), float(np.quantile(by_chance, 1 - SURE))
