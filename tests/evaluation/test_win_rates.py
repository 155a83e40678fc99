"""Win rates of planted verdicts: against values worked out by hand, and against scikit-learn's fit."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from spyrl.evaluation import bootstrap
from spyrl.evaluation.bootstrap import mean_interval, resamples
from spyrl.evaluation.win_rates import Judged, Verdict, length_controlled, win_rate

PLACES: list[Verdict] = ["first", "second", "tie"]
VERDICTS = st.sampled_from([*PLACES, "unreadable", "failed"])
JUDGED = st.builds(Judged, VERDICTS, VERDICTS, st.integers(0, 300), st.integers(0, 300))


def wins(count: int, length: int = 10, other: int = 10) -> list[Judged]:
    return [Judged("first", "second", length, other)] * count


def losses(count: int, length: int = 10, other: int = 10) -> list[Judged]:
    return [Judged("second", "first", length, other)] * count


def test_by_hand() -> None:
    judged = [
        Judged("first", "second", 30, 20),  # won twice, longer
        Judged("first", "first", 10, 20),  # once each: whatever stood first
        Judged("tie", "first", 10, 20),  # a tie and a loss; the longer one won
        Judged("tie", "tie", 20, 20),
        Judged("first", "unreadable", 99, 20),  # left out whole
        Judged("failed", "second", 99, 20),
    ]
    found = win_rate(judged, 0)
    assert found is not None
    assert found.raw.mean == pytest.approx((1 + 0.5 + 0.25 + 0.5) / 4)
    assert found.raw.count == 4
    assert found.flips == 2 / 4
    assert found.first.mean == pytest.approx((1 / 2 + 1 + 3 / 4 + 1 / 2) / 4)
    assert found.ties == 3 / 8
    # Named a winner of unequal texts: 2 of the first, 2 of the second, 1 of the third; longer won 2 + 1 + 1.
    assert found.longer == 4 / 5


@pytest.mark.parametrize("prompts", [20, 100])
def test_planted_wins_come_out_and_the_interval_covers_them(prompts: int) -> None:
    found = win_rate([*wins(prompts * 6 // 10), *losses(prompts * 4 // 10)], 0)
    assert found is not None
    assert found.raw.mean == pytest.approx(0.6)
    # All lengths are equal: then there is nothing to control.
    assert found.length_controlled is not None
    assert found.length_controlled.mean == pytest.approx(0.6, abs=1e-6)
    assert found.raw.low is not None
    assert found.raw.high is not None
    assert found.raw.low < 0.6 < found.raw.high
    # Wins and losses of whole prompts: the standard error of a share.
    assert found.raw.high - found.raw.low == pytest.approx(2 * 1.96 * (0.24 / prompts) ** 0.5, rel=0.15)


def test_the_interval_covers_what_was_planted_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(100):
        draw = random.Random(seed)
        values = np.array([float(draw.random() < 0.6) for _ in range(50)])
        found = mean_interval(values, resamples(50, seed))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.6 <= found.high
    assert 89 <= covered <= 99


def test_a_judge_that_always_says_a_comes_out_as_one_half() -> None:
    found = win_rate([Judged("first", "first", n, 10) for n in range(20)], 0)
    assert found is not None
    assert (found.raw.mean, found.raw.low, found.raw.high) == (0.5, 0.5, 0.5)
    assert (found.flips, found.first.mean, found.ties) == (1.0, 1.0, 0.0)
    assert found.length_controlled is not None
    assert found.length_controlled.mean == pytest.approx(0.5, abs=1e-6)


def test_a_judge_of_length_alone_comes_out_as_one_half_once_length_is_controlled() -> None:
    draw = random.Random(0)
    judged = []
    for _ in range(400):
        difference = draw.randint(-100, 300)  # ours are mostly longer, and the longer one is mostly preferred
        longer: list[Verdict] = ["first", "second"] if difference > 0 else ["second", "first"]
        ours_first, ours_second = longer if draw.random() < 0.8 else longer[::-1]
        judged.append(Judged(ours_first, ours_second, 400 + difference, 400))
    found = win_rate(judged, 0)
    assert found is not None
    assert found.length_controlled is not None
    assert found.raw.low is not None
    assert found.raw.low > 0.55
    assert found.longer == pytest.approx(0.8, abs=0.05)
    assert found.length_controlled.low is not None
    assert found.length_controlled.high is not None
    assert found.length_controlled.low < 0.5 < found.length_controlled.high


def test_the_fit_is_that_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    differences = draw.normal(40, 100, 60)
    points = draw.choice([0, 0.25, 0.5, 0.75, 1], 60, p=[0.1, 0.1, 0.2, 0.2, 0.4])
    counts = draw.multinomial(60, np.full(60, 1 / 60), 5).astype(float)
    x = np.tanh(differences / np.sqrt((differences**2).mean()))[:, None]
    expected = []
    for weights in counts:
        fit = LogisticRegression(C=10, tol=1e-10, max_iter=1000)  # C: the ridge's inverse
        fit.fit(
            np.vstack([x, x]),
            np.repeat([1, 0], 60),
            sample_weight=np.concatenate([2 * weights * points, 2 * weights * (1 - points)]),
        )
        expected.append(1 / (1 + np.exp(-fit.intercept_[0])))
    found = length_controlled(points, differences, counts)
    assert found is not None
    assert found == pytest.approx(np.array(expected), abs=1e-4)


def test_where_ours_is_always_longer_by_the_same_nothing_can_be_controlled() -> None:
    found = win_rate([*wins(6, 20, 10), *losses(4, 20, 10)], 0)
    assert found is not None
    assert found.length_controlled is None


@settings(max_examples=25)
@given(st.lists(JUDGED, max_size=12))
def test_seen_from_the_other_side(judged: list[Judged]) -> None:
    # The other text's verdicts: what stood first with ours in the second place.
    mirrored = [Judged(each.ours_second, each.ours_first, each.other_length, each.length) for each in judged]
    found, other = win_rate(judged, 0), win_rate(mirrored, 0)
    complete = sum(each.complete for each in judged)
    if found is None or other is None:
        assert (found, other, complete) == (None, None, 0)
        return
    assert found.raw.count == complete
    assert found.raw.mean == pytest.approx(1 - other.raw.mean)
    assert (found.flips, found.ties, found.longer) == (other.flips, other.ties, other.longer)
    assert found.first.mean == pytest.approx(other.first.mean)
    if found.length_controlled is None or other.length_controlled is None:
        assert found.length_controlled is other.length_controlled
    else:
        assert found.length_controlled.mean == pytest.approx(1 - other.length_controlled.mean, abs=1e-5)
        low, high = found.length_controlled.low, found.length_controlled.high
        assert (low is None) == (complete == 1)
        assert low is None or high is None or 0 <= low <= high <= 1


def test_the_same_names_draw_the_same_resamples() -> None:
    assert (resamples(7, 0, "a") == resamples(7, 0, "a")).all()
    assert (resamples(7, 0, "a") != resamples(7, 0, "b")).any()
    assert resamples(7, 0).shape == (bootstrap.RESAMPLES, 7)
    assert (resamples(7, 0).sum(1) == 7).all()
