"""Means with their 95 % intervals, paired t tests, and what benchmarks with several samples a question need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Direction = Literal["above", "below", "undecided"]


@dataclass(frozen=True)
class Interval:
    """A mean of ``count`` values and its 95 % t interval, whose ends are ``None`` for a single value."""

    mean: float
    low: float | None
    high: float | None
    count: int

    @property
    def half(self) -> float | None:
        """Half the interval's width: the number after ±."""
        return None if self.high is None else self.high - self.mean

    @property
    def direction(self) -> Direction:
        """Whether the interval is above zero, below zero, or holds it."""
        if self.low is not None and self.low > 0:
            return "above"
        if self.high is not None and self.high < 0:
            return "below"
        return "undecided"


@dataclass(frozen=True)
class Paired:
    """The differences of pairs: their mean and interval, and the two-sided p value of a paired t test.

    ``p`` is ``None`` where there is no spread to test against: for a single pair, and where all differences are equal.
    """

    difference: Interval
    p: float | None


def interval(values: Sequence[float]) -> Interval:
    """Mean of the values, at least one, with the 95 % t interval of their number less one degrees of freedom."""
    from scipy.stats import t

    count = len(values)
    mean = math.fsum(values) / count
    error = standard_error(values)
    if error is None:
        return Interval(mean, None, None, count)
    half = float(t.ppf(0.975, count - 1)) * error
    return Interval(mean, mean - half, mean + half, count)


def paired(values: Sequence[float], others: Sequence[float]) -> Paired:
    """``values`` minus ``others``, pair by pair, at least one pair. Raises `ValueError` for unequal lengths."""
    from scipy.stats import t

    difference = interval([value - other for value, other in zip(values, others, strict=True)])
    half = difference.half
    if not half or half < 1e-12:  # a rounding error is no spread
        return Paired(difference, None)
    freedom = difference.count - 1
    error = half / float(t.ppf(0.975, freedom))
    return Paired(difference, 2 * float(t.sf(abs(difference.mean) / error, freedom)))


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean; ``None`` for a single value."""
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)


def share(values: Sequence[float]) -> Interval:
    """Mean of values in [0, 1], one a question, with a 95 % interval that stays in [0, 1] and is never empty.

    A value is the share of a question's samples that are right, so the interval is clustered by question (Miller
    2024, arXiv 2411.00640). It is Wilson's score interval (1927) at the effective number of draws p(1 - p)/SE², as
    Korn and Graubard (1998) do for clustered samples; where the values do not vary, that is the number of questions.
    """
    from scipy.stats import t

    count = len(values)
    mean = min(math.fsum(values) / count, 1.0)
    error = standard_error(values)
    if error is None:
        return Interval(mean, None, None, count)
    draws = mean * (1 - mean) / error**2 if error > 1e-12 else float(count)
    z = float(t.ppf(0.975, count - 1))
    centre = (mean + z**2 / (2 * draws)) / (1 + z**2 / draws)
    half = z * math.sqrt(mean * (1 - mean) / draws + z**2 / (4 * draws**2)) / (1 + z**2 / draws)
    return Interval(mean, max(min(centre - half, mean), 0.0), min(max(centre + half, mean), 1.0), count)


def average(parts: Sequence[Interval]) -> Interval:
    """The unweighted mean of independent means, with the interval that theirs give (MOVER, Zou and Donner 2008).

    ``count`` is the sum of theirs; where one has no interval, there is none.
    """
    mean = math.fsum(part.mean for part in parts) / len(parts)
    count = sum(part.count for part in parts)
    below = [part.mean - part.low for part in parts if part.low is not None]
    above = [part.high - part.mean for part in parts if part.high is not None]
    if len(below) < len(parts) or len(above) < len(parts):
        return Interval(mean, None, None, count)
    return Interval(mean, mean - math.hypot(*below) / len(parts), mean + math.hypot(*above) / len(parts), count)


def average_paired(parts: Sequence[Sequence[float]]) -> Paired:
    """The unweighted mean over benchmarks of their mean differences, a difference a question.

    Its standard error is √(Σ SE²)/B, its t test has Welch and Satterthwaite's degrees of freedom. Without spread there
    is no p; where a benchmark has a single question, no interval either.
    """
    from scipy.stats import t

    means = [math.fsum(part) / len(part) for part in parts]
    errors = [standard_error(part) for part in parts]
    mean, count = math.fsum(means) / len(parts), sum(map(len, parts))
    known = [error for error in errors if error is not None]
    if len(known) < len(parts):
        return Paired(Interval(mean, None, None, count), None)
    variance = math.fsum(error**2 for error in known)
    if variance < 1e-24:
        return Paired(Interval(mean, mean, mean, count), None)
    freedom = variance**2 / math.fsum(error**4 / (len(part) - 1) for error, part in zip(known, parts, strict=True))
    error = math.sqrt(variance) / len(parts)
    half = float(t.ppf(0.975, freedom)) * error
    return Paired(Interval(mean, mean - half, mean + half, count), 2 * float(t.sf(abs(mean) / error, freedom)))


def pass_at_k(samples: int, right: int, k: int) -> float:
    """The probability that one of ``k`` samples is right, unbiased from ``right`` of ``samples`` (at least ``k``).

    1 - C(n - c, k)/C(n, k): Chen et al. 2021 (arXiv 2107.03374), Eq. 1.

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    return 1 - math.comb(samples - right, k) / math.comb(samples, k)
