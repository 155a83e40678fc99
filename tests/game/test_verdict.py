"""The tally of a game's ballots, and what the gate is told of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.game import Ballot, Tally, Verdict, count_ballots, direct_ballot, read_ballot, verdict


def ballots_of(*answers: str, players: int = 5) -> list[Ballot]:
    return [read_ballot(rf"\boxed{{{answer}}}", players=players) for answer in answers]


def judged(*answers: str, spy: int = 2) -> Verdict:
    ballots = ballots_of(*answers)
    return verdict(ballots, count_ballots(ballots, 5), spy)


def test_votes_abstentions_and_invalid_ballots_are_counted() -> None:
    ballots = ballots_of("2", "2", "5", "N/A", "who knows", "9", "1 or 2")
    assert count_ballots(ballots, 5) == Tally(votes=(0, 2, 0, 0, 1), abstained=1, invalid=3)
    assert count_ballots([], 3) == Tally((0, 0, 0), 0, 0)


@pytest.mark.parametrize(
    ("votes", "leaders"),
    [((0, 3, 1), (2,)), ((2, 0, 2), (1, 3)), ((1, 1, 1), (1, 2, 3)), ((0, 0, 0), ())],
)
def test_leaders(votes: tuple[int, ...], leaders: tuple[int, ...]) -> None:
    assert Tally(votes, 0, 0).leaders == leaders


@pytest.mark.parametrize(
    ("answers", "accuracy", "abstained"),
    [
        (["2", "2", "1", "3"], 1.0, 0.0),  # a plurality is enough, no majority is needed
        (["1", "1", "2", "3"], 0.0, 0.0),
        (["2", "2", "1", "1"], 1 / 2, 0.0),  # two tie and share the credit
        (["1", "2", "3"], 1 / 3, 0.0),
        (["1", "2", "3", "4", "5"], 1 / 5, 0.0),
        (["1", "1", "3", "3"], 0.0, 0.0),  # a tie the spy has no part in
        (["2", "N/A", "N/A", "N/A"], 1.0, 3 / 4),  # abstentions are no votes
        (["N/A", "N/A"], 0.0, 1.0),
        (["N/A", "nonsense"], 0.0, 1 / 2),  # what cannot be read is neither a vote nor an abstention
        (["nonsense", "9"], 0.0, 0.0),
        (["2", "nonsense", "nonsense"], 1.0, 0.0),
    ],
)
def test_reasoned_ballots_by_plurality(answers: list[str], accuracy: float, abstained: float) -> None:
    assert judged(*answers) == Verdict(pytest.approx(accuracy), pytest.approx(abstained))  # type: ignore[arg-type]


def test_no_ballots_found_nobody() -> None:
    assert verdict([], Tally((0, 0, 0), 0, 0), 1) == Verdict(0.0, 1.0)


def directly(*distributions: tuple[float, ...], chosen: str, spy: int) -> Verdict:
    """The verdict of direct ballots that all drew ``chosen`` whatever its probability."""
    players = len(distributions[0]) - 1
    ballots = [direct_ballot(chosen, q, players=players) for q in distributions]
    return verdict(ballots, count_ballots(ballots, players), spy)


@pytest.mark.parametrize(
    ("distributions", "spy", "accuracy", "abstained"),
    [
        # One detector: argmax over the players is 2.
        ([(0.2, 0.5, 0.2, 0.1)], 2, 1.0, 0.1),
        ([(0.2, 0.5, 0.2, 0.1)], 1, 0.0, 0.1),
        # Means (0.35, 0.4, 0.05) and 0.2 N/A, although player 1 leads the first of them.
        ([(0.6, 0.1, 0.0, 0.3), (0.1, 0.7, 0.1, 0.1)], 2, 1.0, 0.2),
        # N/A is likelier than any player; the gate sees that in the N/A rate, the argmax is over players.
        ([(0.1, 0.2, 0.0, 0.7)], 2, 1.0, 0.7),
        # Players 1 and 2 tie: half the credit each, none for 3.
        ([(0.25, 0.25, 0.0, 0.5)], 1, 0.5, 0.5),
        ([(0.25, 0.25, 0.0, 0.5)], 3, 0.0, 0.5),
        # Nobody was given any chance.
        ([(0.0, 0.0, 0.0, 1.0)], 1, 0.0, 1.0),
    ],
)
def test_direct_ballots_by_their_exact_probabilities(
    distributions: list[tuple[float, ...]], spy: int, accuracy: float, abstained: float
) -> None:
    expected = Verdict(pytest.approx(accuracy), pytest.approx(abstained))  # type: ignore[arg-type]
    for chosen in ("1", "2", "3", "N/A"):  # what was drawn does not matter
        assert directly(*distributions, chosen=chosen, spy=spy) == expected


def test_mixed_ballots_are_judged_by_the_tally() -> None:
    ballots = [direct_ballot("1", (0.1, 0.9, 0.0, 0.0), players=3), read_ballot(r"\boxed{1}", players=3)]
    assert verdict(ballots, count_ballots(ballots, 3), 1).accuracy == 1.0


@given(st.integers(3, 26).flatmap(lambda n: st.lists(st.integers(0, n), min_size=1, max_size=12).map(lambda c: (n, c))))
def test_the_credit_of_all_possible_spies_is_one_or_nothing(game: tuple[int, list[int]]) -> None:
    players, choices = game
    ballots = ballots_of(*(str(choice) if choice else "N/A" for choice in choices), players=players)
    tally = count_ballots(ballots, players)
    assert sum(tally.votes) + tally.abstained == len(ballots)
    verdicts = [verdict(ballots, tally, spy) for spy in range(1, players + 1)]
    assert sum(v.accuracy for v in verdicts) == pytest.approx(1.0 if any(choices) else 0.0)
    assert {v.abstained for v in verdicts} == {choices.count(0) / len(choices)}
    assert tuple(spy for spy, v in enumerate(verdicts, 1) if v.accuracy) == tally.leaders
