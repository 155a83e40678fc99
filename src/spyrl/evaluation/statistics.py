"""Means over seeds with their 95 % t intervals, and paired t tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from spyrl.errors import UsageError

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
    if count < 2:
        return Interval(mean, None, None, count)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = float(t.ppf(0.975, count - 1)) * deviation / math.sqrt(count)
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


def check_installed() -> None:
    """Raise `UsageError` where the package that this needs is not installed."""
    if find_spec("scipy") is None:
        raise UsageError("spyrl ablate needs scipy: pip install 'spyrl[evaluation]'")
