"""From a judge's verdicts to win rates: both orders, ties, position and length bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from spyrl.evaluation.bootstrap import Floats, mean_interval, percentile_interval, resamples
from spyrl.evaluation.statistics import Interval

Verdict = Literal["first", "second", "tie", "unreadable", "failed"]
"""Which of two texts is the better one, by its place; or why that is not known."""

_POINTS: dict[Verdict, float] = {"first": 1.0, "tie": 0.5, "second": 0.0}
_RIDGE = 0.1  # on the slope: a normal prior of deviation √10, against slopes without end in small samples
_FAINT = 1e-6  # on the intercept: only so that a resample of nothing but wins has an end
_STEPS = 60


@dataclass(frozen=True)
class Judged:
    """What a judge said of ours and another text for one prompt, by one criterion, in both orders; lengths in words."""

    ours_first: Verdict
    ours_second: Verdict
    length: int
    other_length: int

    @property
    def complete(self) -> bool:
        """Whether both verdicts are known."""
        return self.ours_first in _POINTS and self.ours_second in _POINTS

    @property
    def points(self) -> tuple[float, float]:
        """Ours' points in either order: 1 for a win, ½ for a tie."""
        return _POINTS[self.ours_first], 1 - _POINTS[self.ours_second]


@dataclass(frozen=True)
class WinRate:
    """How often ours won, and how much of that may be the judge's habits. All shares are in [0, 1]."""

    raw: Interval
    """Wins + half the ties over both orders, with a bootstrap interval by prompt."""
    length_controlled: Interval | None
    """The same at equal lengths, see `length_controlled`; ``None`` where the lengths do not allow it."""
    flips: float
    """Pairs of which the judge says something else (win, tie, loss) when their order is turned."""
    first: Interval
    """Wins + half the ties of whatever stood first: ½ for a judge without a position bias."""
    longer: float | None
    """Of the verdicts that name a winner between texts of unequal length: those that name the longer one."""
    ties: float
    """Verdicts that are ties."""


def win_rate(judged: Sequence[Judged], seed: int, *names: int | str) -> WinRate | None:
    """The win rate over all complete pairs; ``None`` without one.

    A pair of which one verdict is missing is left out whole: one order alone carries the judge's position bias.
    ``seed`` and ``names`` name the bootstrap's generator.
    """
    pairs = [each for each in judged if each.complete]
    if not pairs:
        return None
    counts = resamples(len(pairs), seed, *names)
    points = np.array([each.points for each in pairs])
    differences = np.array([each.length - each.other_length for each in pairs], dtype=np.float64)
    firsts = (points[:, 0] + 1 - points[:, 1]) / 2
    ours_longer = np.sign(differences)[:, None]
    named = (points != 0.5) & (ours_longer != 0)
    longer_won = (points == 1) == (ours_longer > 0)
    return WinRate(
        raw=mean_interval(points.mean(1), counts),
        length_controlled=_controlled(points.mean(1), differences, counts),
        flips=float((points[:, 0] != points[:, 1]).mean()),
        first=mean_interval(firsts, counts),
        longer=float(longer_won[named].mean()) if named.any() else None,
        ties=float((points == 0.5).mean()),
    )


def length_controlled(points: Floats, differences: Floats, counts: Floats) -> Floats | None:
    """Win rates at equal lengths, the idea of AlpacaEval 2 (Dubois et al. 2024, arXiv 2404.04475): shape (resamples,).

    The verdicts y (1, ½, 0; a tie is half a win and half a loss) on two texts whose lengths differ by d words are fit
    by P(win) = σ(θ + φ · tanh(d / s)), s being the root mean square of d, and the rate is read at d = 0: σ(θ). The fit
    minimises Σ −y log P − (1 − y) log(1 − P) + φ²/20 over θ and φ; the last term is a weak prior. ``points`` are the
    mean of a prompt's two verdicts, ``differences`` its d, both of shape (prompts,), and ``counts`` (resamples,
    prompts) how often a fit takes each prompt. ``None`` where all d are the same and not 0, so that nothing tells θ
    and φ apart.
    """
    scale = np.sqrt((differences**2).mean())
    x = np.tanh(differences / scale) if scale else differences
    if scale and np.ptp(x) < 1e-9:
        return None
    weights = 2 * counts  # two verdicts a prompt
    theta = np.zeros(len(counts))
    phi = np.zeros(len(counts))
    for _ in range(_STEPS):  # Newton's; convex, and all resamples at once
        p = 1 / (1 + np.exp(-(theta[:, None] + phi[:, None] * x)))
        error = weights * (p - points)
        curvature = weights * p * (1 - p)
        slope_theta = error.sum(1) + _FAINT * theta
        slope_phi = error @ x + _RIDGE * phi
        a, b, c = curvature.sum(1) + _FAINT, curvature @ x, curvature @ x**2 + _RIDGE
        determinant = a * c - b * b
        # Bounded steps: a pure Newton step can overshoot where nearly all verdicts are the same.
        step_theta = np.clip((c * slope_theta - b * slope_phi) / determinant, -2, 2)
        step_phi = np.clip((a * slope_phi - b * slope_theta) / determinant, -2, 2)
        theta, phi = theta - step_theta, phi - step_phi
        if max(np.abs(step_theta).max(), np.abs(step_phi).max()) < 1e-10:
            break
    rates: Floats = 1 / (1 + np.exp(-theta))
    return rates


def _controlled(points: Floats, differences: Floats, counts: Floats) -> Interval | None:
    whole = length_controlled(points, differences, np.ones((1, len(points))))
    replicates = length_controlled(points, differences, counts)
    if whole is None or replicates is None:
        return None
    return percentile_interval(float(whole[0]), replicates, len(points))
