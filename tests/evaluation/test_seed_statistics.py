"""Means, intervals and tests over seeds, against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from spyrl.errors import UsageError
from spyrl.evaluation.commands import common
from spyrl.evaluation.statistics import interval, paired


def test_the_interval_of_two_values() -> None:
    # Mean 2, deviation √2, standard error 1; with one degree of freedom t is tan(0.475 π).
    found = interval([1.0, 3.0])
    t = math.tan(0.475 * math.pi)
    assert (found.mean, found.count) == (2.0, 2)
    assert (found.low, found.high, found.half) == pytest.approx((2 - t, 2 + t, t))


def test_the_interval_of_five_values() -> None:
    # Mean 3, deviation √2.5, standard error √0.5; the table's t for four degrees of freedom is 2.776.
    assert interval([1, 2, 3, 4, 5]).half == pytest.approx(2.776 * math.sqrt(0.5), abs=1e-3)


def test_a_single_value_has_no_interval() -> None:
    found = interval([0.25])
    assert (found.mean, found.low, found.high, found.half, found.direction) == (0.25, None, None, None, "undecided")


@pytest.mark.parametrize(
    ("values", "direction"),
    [([1, 1.1, 0.9], "above"), ([-1, -1.1, -0.9], "below"), ([-1, 1, 0.5], "undecided"), ([0, 0, 0], "undecided")],
)
def test_direction(values: list[float], direction: str) -> None:
    assert interval(values).direction == direction


def test_the_paired_test() -> None:
    # Differences 1, 2, 3: mean 2, standard error 1/√3, t = 2√3; with two degrees of freedom
    # p = 1 - t/√(2 + t²) = 1 - √12/√14.
    found = paired([2, 4, 6], [1, 2, 3])
    assert found.difference.mean == pytest.approx(2)
    assert found.p == pytest.approx(1 - math.sqrt(12 / 14))


def test_the_paired_test_of_two_pairs() -> None:
    # Differences 1 and 3, t = 2: with one degree of freedom p = 1 - 2 atan(t)/π.
    assert paired([1, 3], [0, 0]).p == pytest.approx(1 - 2 * math.atan(2) / math.pi)


@pytest.mark.parametrize("pairs", [([0.5], [0.1]), ([0.3, 0.4], [0.1, 0.2]), ([1, 1], [1, 1])])
def test_without_spread_there_is_no_p(pairs: tuple[list[float], list[float]]) -> None:
    assert paired(*pairs).p is None


def test_pairs_must_be_pairs() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired([1, 2], [1])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"scipy: pip install 'spyrl\[evaluation\]'"):
        common.need("scipy", "spyrl ablate")
