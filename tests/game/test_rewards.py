"""Both stages' rewards: hand-computed examples of paper Eq. 5 and Eq. 8, and the laws they keep."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.game import Ballot, RewardSettings, Tally, detection_reward, performing_rewards, read_ballot

PAPER = RewardSettings()
VISION_ZERO = RewardSettings(right=1.0, abstained=-0.5, wrong=-1.0)


def rewards_of(votes: tuple[int, ...], spy: int | None, settings: RewardSettings = PAPER) -> tuple[float, ...]:
    return performing_rewards(Tally(votes, 0, 0), spy, settings)


@pytest.mark.parametrize(
    ("votes", "spy", "beta", "lambda_", "expected"),
    [
        # Civilians' mean (1+2+0+1)/4 = 1, gap 4-1 = 3. Spy: -0.1·3 = -0.3. Civilians share 0.1/4·3 = 0.075 and lose
        # 0.1 for each vote above 1: 0.075-0, 0.075-0.1, 0.075+0.1, 0.075-0.
        ((4, 1, 2, 0, 1), 1, 0.1, 0.1, (-0.3, 0.075, -0.025, 0.175, 0.075)),
        # The spy got away: mean (0+3+1+4)/4 = 2, gap 0-2 = -2. Spy: +0.2. Share 0.025·(-2) = -0.05; civilians
        # -0.05+0.2, -0.05-0.1, -0.05+0.1 and -0.05-0.2.
        ((0, 3, 1, 0, 4), 4, 0.1, 0.1, (0.15, -0.15, 0.05, 0.2, -0.25)),
        # A mean that is no whole number: (2+2+1+1)/4 = 1.5, gap 1-1.5 = -0.5. Spy +0.05; share 0.025·(-0.5) = -0.0125;
        # civilians with 2 votes -0.0125-0.05, with 1 vote -0.0125+0.05.
        ((2, 2, 1, 1, 1), 3, 0.1, 0.1, (-0.0625, -0.0625, 0.05, 0.0375, 0.0375)),
        # n = 3: mean (0+1)/2 = 0.5, gap 1.5. Spy -0.15; share 0.1/2·1.5 = 0.075; civilians 0.075+0.05, 0.075-0.05.
        ((0, 2, 1), 2, 0.1, 0.1, (0.125, -0.15, 0.025)),
        # β = 0.5, λ = 0.2: mean 1.5, gap 2.5. Spy -1.25; share 0.25·2.5 = 0.625; civilians 0.625+0.1, 0.625-0.1.
        ((1, 4, 2), 2, 0.5, 0.2, (0.725, -1.25, 0.525)),
        # λ = 0: civilians' own votes do not matter. Mean 0.5, gap 1.5, spy -0.4·1.5 = -0.6, each other 0.1·1.5 = 0.15.
        ((2, 0, 0, 0, 2), 5, 0.4, 0.0, (0.15, 0.15, 0.15, 0.15, -0.6)),
        # β = 0: only how the civilians' votes are spread. Mean (3+0+0+1)/4 = 1: -0.1·2, +0.1, +0.1, 0.
        ((3, 0, 0, 7, 1), 4, 0.0, 0.1, (-0.2, 0.1, 0.1, 0.0, 0.0)),
        # Nobody voted for anyone: nothing is won or lost.
        ((0, 0, 0, 0, 0), 2, 0.1, 0.1, (0.0, 0.0, 0.0, 0.0, 0.0)),
        # All alike: the gap is 0 and so is every deviation.
        ((2, 2, 2), 1, 0.1, 0.1, (0.0, 0.0, 0.0)),
    ],
)
def test_performing_rewards_equation_5(
    votes: tuple[int, ...], spy: int, beta: float, lambda_: float, expected: tuple[float, ...]
) -> None:
    found = rewards_of(votes, spy, RewardSettings(beta=beta, lambda_=lambda_))
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        # Player 1 leads and stands where a spy would: mean 0.5, gap 2.5: -0.25; share 0.05·2.5 = 0.125;
        # 0.125-0.1·0.5 and 0.125+0.1·0.5.
        ((3, 1, 0), (-0.25, 0.075, 0.175)),
        # Players 1 and 2 tie. With 1 as the spy: mean and gap 1: (-0.1, 0.05-0.1, 0.05+0.1); with 2: -0.05, -0.1, 0.15.
        # Everybody gets the mean of both.
        ((2, 2, 0), (-0.075, -0.075, 0.15)),
        # All tie: each stands there once, and every gap is 0.
        ((1, 1, 1), (0.0, 0.0, 0.0)),
        ((0, 0, 0), (0.0, 0.0, 0.0)),
    ],
)
def test_without_a_spy_the_tally_elects(votes: tuple[int, ...], expected: tuple[float, ...]) -> None:
    assert rewards_of(votes, None) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("answer", "paper", "vision_zero"),
    [
        (r"\boxed{2}", 1.0, 1.0),  # names the spy
        (r"\boxed{1}", 0.0, -1.0),
        (r"\boxed{N/A}", 0.0, -0.5),
        ("", 0.0, -1.0),  # from here on, whatever cannot be read is wrong
        ("no box", 0.0, -1.0),
        (r"\boxed{2", 0.0, -1.0),
        (r"\boxed{2 or 3}", 0.0, -1.0),
        (r"\boxed{somebody}", 0.0, -1.0),
        (r"\boxed{9}", 0.0, -1.0),
    ],
)
def test_detection_reward_equation_8(answer: str, paper: float, vision_zero: float) -> None:
    ballot = read_ballot(answer, players=5)
    assert detection_reward(ballot, 2, PAPER) == paper
    assert detection_reward(ballot, 2, VISION_ZERO) == vision_zero


def test_a_ballot_for_oneself_where_that_is_ruled_out_earns_as_a_wrong_one_even_for_the_spy() -> None:
    ballot = read_ballot(r"\boxed{2}", players=5, voter=2, self_vote=False)
    assert detection_reward(ballot, 2, VISION_ZERO) == -1.0
    assert detection_reward(Ballot(2, "vote", 2), 2, VISION_ZERO) == 1.0


VOTES = st.integers(3, 26).flatmap(lambda n: st.lists(st.integers(0, 30), min_size=n, max_size=n).map(tuple))
WEIGHTS = st.floats(0, 10)


@given(VOTES, WEIGHTS, WEIGHTS)
def test_performing_rewards_sum_to_zero_for_every_tally_and_every_spy_and_without_one(
    votes: tuple[int, ...], beta: float, lambda_: float
) -> None:
    settings = RewardSettings(beta=beta, lambda_=lambda_)
    for spy in (None, *range(1, len(votes) + 1)):
        assert math.fsum(rewards_of(votes, spy, settings)) == pytest.approx(0, abs=1e-9)


@given(VOTES, st.randoms(use_true_random=False))
def test_performing_rewards_follow_the_players_when_they_are_renumbered(votes: tuple[int, ...], random: object) -> None:
    order = list(range(len(votes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    renumbered = tuple(votes[old] for old in order)
    for spy in (None, *range(1, len(votes) + 1)):
        before = rewards_of(votes, spy)
        after = rewards_of(renumbered, None if spy is None else order.index(spy - 1) + 1)
        assert after == pytest.approx([before[old] for old in order], abs=1e-12)


@given(VOTES, st.data())
def test_the_spy_earns_less_the_more_votes_it_receives(votes: tuple[int, ...], data: st.DataObject) -> None:
    spy = data.draw(st.integers(1, len(votes)))
    more = tuple(v + (number == spy) for number, v in enumerate(votes, 1))
    other = data.draw(st.integers(1, len(votes)).filter(lambda number: number != spy))
    elsewhere = tuple(v + (number == other) for number, v in enumerate(votes, 1))
    before = rewards_of(votes, spy)[spy - 1]
    assert rewards_of(more, spy)[spy - 1] == pytest.approx(before - 0.1)  # one vote more widens the gap by one
    assert rewards_of(elsewhere, spy)[spy - 1] > before


@given(VOTES, st.data())
def test_of_two_civilians_the_one_with_more_votes_earns_less(votes: tuple[int, ...], data: st.DataObject) -> None:
    spy = data.draw(st.integers(1, len(votes)))
    civilians = sorted(
        (v, reward) for i, (v, reward) in enumerate(zip(votes, rewards_of(votes, spy), strict=True), 1) if i != spy
    )
    for (fewer, well), (more, badly) in itertools.pairwise(civilians):
        assert well - badly == pytest.approx(0.1 * (more - fewer), abs=1e-9)
