"""The metrics of a small made-up batch, every number of them worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.game import INVALID, Ballot, Deal, Document, Output, RoleBaselines
from spyrl.game.settings import GameSettings
from spyrl.play import Detected, Dropped, Performed, Played, Settled, settle, summarize
from spyrl.play.summary import position_bias
from spyrl.policy import Completion


def vote(player: int, *probabilities: float) -> Ballot:
    return Ballot(None, "vote", player, str(player), probabilities)


def game(
    number: int, spy: int | None, outputs: list[tuple[str | None, str, int]], ballots: list[tuple[Ballot, int]]
) -> Settled:
    """A settled game of one player an output (text, finish reason, tokens) and one detector a ballot (tokens)."""
    deal = Deal(0, number, Document(f"d{number}", "a b c"), len(outputs), spy, "a _ c", ((2, 3),))
    performing = tuple(
        Performed(
            Output(player, 1, text),
            "asked",
            Completion(text or "", "length" if reason == "length" else "stop", "", (1,) * 10, (5,) * tokens),
        )
        for player, (text, reason, tokens) in enumerate(outputs, 1)
    )
    detection = tuple(
        Detected(ballot, "asked", Completion(ballot.text, "stop", "", (1,) * 20, (5,) * tokens))
        for ballot, tokens in ballots
    )
    [settled], _ = settle([Played(deal, performing, detection)], GameSettings(players=3), RoleBaselines())
    return settled


def dropped(reason: str) -> Dropped:
    return Dropped(Deal(0, 9, Document("d9", "a b"), 3, 1, "_ b", ((0, 1),)), reason, "why")


def test_every_number_of_a_small_batch() -> None:
    batch = [
        # Votes (1, 2, 0), one abstention. Spy 2: gap 2 - 1/2, so -0.15; civilians 0.075 - 0.1 (m - 1/2).
        game(
            0,
            2,
            [(None, "length", 4), ("a story", "stop", 6), ("a story", "length", 8)],
            [(vote(2), 10), (vote(1), 10), (vote(2), 10), (Ballot(None, "abstained", None, "N/A"), 10)],
        ),
        # Votes (1, 0, 1), every way to be invalid once. Spy 3 ties: gap 1/2, so -0.05; civilians 0.025 - 0.1 (m - 1/2).
        game(
            1,
            3,
            [("from a server, which tells no tokens", "stop", 0), ("a story", "stop", 12), ("a story", "stop", 2)],
            [(vote(1), 1), (vote(3), 0), *((Ballot(None, outcome, None, "?"), 0) for outcome in INVALID)],
        ),
    ]
    drops = [dropped("performing_failed"), dropped("prompt_too_long"), dropped("performing_failed")]
    assert summarize(batch, drops) == pytest.approx(
        {
            "games/played": 2,
            "games/dropped": 3,
            "games/dropped/performing_failed": 2,
            "games/dropped/prompt_too_long": 1,
            "detection/accuracy": 3 / 13,
            "detection/plurality": (1 + 1 / 2) / 2,
            "detection/abstained": 1 / 13,
            "detection/invalid": 7 / 13,
            "detection/invalid/empty": 1 / 13,
            "detection/invalid/no_box": 1 / 13,
            "detection/invalid/unclosed": 1 / 13,
            "detection/invalid/unreadable": 1 / 13,
            "detection/invalid/ambiguous": 1 / 13,
            "detection/invalid/out_of_range": 1 / 13,
            "detection/invalid/self_vote": 1 / 13,
            "detection/votes/player_1": 2 / 5,
            "detection/votes/player_2": 2 / 5,
            "detection/votes/player_3": 1 / 5,
            "detection/position_bias": 2 / 15,  # (1/15 + 1/15 + 2/15) / 2
            "reward/spy": -0.1,
            "reward/civilian": (0.025 + 0.125 - 0.025 + 0.075) / 4,
            "reward/detector": 3 / 13,
            "length/spy": (6 + 2) / 2,
            "length/civilian": (4 + 8 + 12) / 3,  # the server's is not known
            "length/detector": (4 * 10 + 1) / 5,
            "outputs/missing": 1 / 6,
            "outputs/truncated": 2 / 6,
            "tokens/written": 32 + 41,
            "tokens/prompt": 6 * 10 + 13 * 20,
        }
    )


def test_direct_ballots_are_judged_by_their_distributions() -> None:
    outputs = [("a story", "stop", 1)] * 3
    batch = [
        # The mean over the detectors is (0.3, 0.4, 0.1, 0.2): right, whatever was drawn.
        game(0, 2, outputs, [(vote(1, 0.4, 0.3, 0.1, 0.2), 1), (vote(1, 0.2, 0.5, 0.1, 0.2), 1)]),
        game(1, 3, outputs, [(vote(3, 0.3, 0.1, 0.2, 0.4), 1), (vote(3, 0.3, 0.1, 0.2, 0.4), 1)]),
    ]
    metrics = summarize(batch, [])
    assert metrics["detection/accuracy"] == 1 / 2
    assert metrics["detection/plurality"] == 1 / 2
    assert metrics["detection/probability_spy"] == pytest.approx((0.3 + 0.5 + 0.2 + 0.2) / 4)
    assert metrics["detection/probability_abstained"] == pytest.approx((0.2 + 0.2 + 0.4 + 0.4) / 4)


def test_without_a_spy_what_there_is_not_is_left_out() -> None:
    metrics = summarize([game(0, None, [("a story", "stop", 5)] * 3, [(vote(2), 1), (vote(1), 1), (vote(2), 1)])], [])
    absent = {"detection/accuracy", "detection/plurality", "reward/spy", "reward/detector", "length/spy"}
    assert not absent & metrics.keys()
    assert metrics["length/civilian"] == 5
    assert metrics["detection/votes/player_2"] == pytest.approx(2 / 3)
    assert metrics["reward/civilian"] == pytest.approx(0)


def test_without_a_game_only_the_counts_are_told() -> None:
    assert summarize([], [dropped("detection_failed")]) == {
        "games/played": 0,
        "games/dropped": 1,
        "games/dropped/detection_failed": 1,
    }


def test_without_a_vote_there_is_no_share_of_votes() -> None:
    abstention = Ballot(None, "abstained", None, "N/A")
    metrics = summarize([game(0, 1, [("a story", "stop", 5)] * 3, [(abstention, 1)])], [])
    assert not [key for key in metrics if key.startswith(("detection/votes", "detection/position_bias"))]
    assert metrics["detection/abstained"] == 1
    assert metrics["detection/plurality"] == 0


@pytest.mark.parametrize(
    ("votes", "bias"), [([3, 3, 3, 3], 0), ([8, 0, 0, 0], 3 / 4), ([2, 2, 0, 0], 1 / 2), ([0, 0, 0], 0)]
)
def test_position_bias(votes: list[int], bias: float) -> None:
    assert position_bias(votes) == pytest.approx(bias)


@given(st.lists(st.integers(0, 50), min_size=3, max_size=26))
def test_position_bias_is_a_distance(votes: list[int]) -> None:
    bias = position_bias(votes)
    assert 0 <= bias <= 1 - 1 / len(votes) + 1e-12
    assert position_bias(votes[::-1]) == pytest.approx(bias)
    assert position_bias([7 * received for received in votes]) == pytest.approx(bias)
