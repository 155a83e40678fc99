"""Intervals of shares by question, averages over benchmarks and pass@k, against values worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.evaluation.statistics import (
    Interval,
    average,
    average_paired,
    interval,
    paired,
    pass_at_k,
    share,
    standard_error,
)


def test_the_standard_error_of_half_right() -> None:
    assert standard_error([0, 1]) == pytest.approx(0.5)
    assert standard_error([1, 1, 0, 0]) == pytest.approx(math.sqrt(0.25 / 3))
    assert standard_error([1]) is None


def test_wilsons_interval_where_all_are_wrong() -> None:
    # At p = 0 its upper end is z²/(n + z²); the table's t for nine degrees of freedom is 2.262.
    found = share([0.0] * 10)
    assert (found.mean, found.low) == (0, 0)
    assert found.high == pytest.approx(2.262**2 / (10 + 2.262**2), abs=1e-3)


def test_many_questions_give_the_textbook_interval() -> None:
    # 600 of 1,000: the normal interval is 0.6 ± 1.96 √(0.24/1000), about ±0.0304.
    found = share([1.0] * 600 + [0.0] * 400)
    assert found.low == pytest.approx(0.5696, abs=2e-3)
    assert found.high == pytest.approx(0.6304, abs=2e-3)


def test_samples_of_a_question_are_no_new_questions() -> None:
    # The same ten questions, each sampled four times with one result, know as much as sampled once.
    once = [1.0] * 5 + [0.0] * 5
    assert share(once) == share([sum([value] * 4) / 4 for value in once])


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_the_interval_holds_the_mean_and_stays_a_share(values: list[float]) -> None:
    found = share(values)
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.mean <= found.high <= 1


def test_the_average_of_two_benchmarks() -> None:
    # Half widths 0.3 and 0.4 on either side: √(0.09 + 0.16)/2.
    found = average([Interval(0.5, 0.2, 0.8, 10), Interval(0.7, 0.3, 1.1, 20)])
    assert (found.mean, found.low, found.high, found.count) == pytest.approx((0.6, 0.35, 0.85, 30))
    assert average([Interval(0.5, None, None, 1), Interval(0.5, 0.4, 0.6, 9)]).low is None


def test_the_average_difference_of_one_benchmark_is_its_paired_test() -> None:
    differences = [1.0, 0.0, 0.0, -1.0, 1.0, 1.0]
    one, other = average_paired([differences]), paired(differences, [0.0] * 6)
    assert one.difference.mean == pytest.approx(interval(differences).mean)
    assert one.difference.low == pytest.approx(other.difference.low)
    assert one.p == pytest.approx(other.p)


def test_without_spread_the_average_has_no_p() -> None:
    assert average_paired([[0.0, 0.0], [0.0, 0.0, 0.0]]).p is None
    assert average_paired([[1.0], [0.0, 1.0]]).difference.low is None


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(numbers: tuple[int, int, int]) -> None:
    samples, right, k = numbers
    draws = list(itertools.combinations([1] * right + [0] * (samples - right), k))
    assert pass_at_k(samples, right, k) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))
