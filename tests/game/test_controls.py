"""Controls: rewards that tell nothing of the outputs, and else are as before."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spyrl.game import Ballot, Role, generator, random_ballots, shuffled_rewards

CAST = (
    Ballot(1, "vote", 2, "2", (0.1, 0.8, 0.0, 0.0, 0.1)),
    Ballot(None, "abstained", None, "N/A"),
    Ballot(3, "no_box", None, "?"),
)
GAMES = st.lists(
    st.lists(st.tuples(st.floats(-1, 1), st.sampled_from(["spy", "civilian"])), min_size=1, max_size=6), max_size=6
)


# Random ballots


@given(st.lists(st.sampled_from(CAST), max_size=20), st.integers(3, 26), st.integers(0, 999))
def test_each_ballot_becomes_a_vote_for_some_player(cast: list[Ballot], players: int, seed: int) -> None:
    drawn = random_ballots(cast, players, random.Random(seed))
    assert [ballot.voter for ballot in drawn] == [ballot.voter for ballot in cast]
    assert all(ballot.outcome == "vote" for ballot in drawn)
    assert all(ballot.choice in range(1, players + 1) for ballot in drawn)
    assert random_ballots(cast, players, random.Random(seed)) == drawn


def test_random_ballots_name_every_player_alike_whatever_was_cast() -> None:
    draw = generator(0, "uniform")
    drawn = random_ballots([CAST[0]] * 5000, 5, draw)
    counts = Counter(ballot.choice for ballot in drawn)
    assert set(counts) == {1, 2, 3, 4, 5}
    chi_square = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    assert chi_square < 18.5  # four degrees of freedom: exceeded by one draw in a thousand
    pairs = Counter(zip(drawn[::2], drawn[1::2], strict=True))
    assert len(pairs) == 25  # and each ballot is drawn by itself
    assert sum((count - 100) ** 2 / 100 for count in pairs.values()) < 51.2  # 24 degrees of freedom, likewise


# Shuffled rewards


def of_role(role: Role, rewards: list[tuple[float, ...]], roles: list[list[Role]]) -> list[float]:
    return [
        reward
        for earned, own in zip(rewards, roles, strict=True)
        for reward, its in zip(earned, own, strict=True)
        if its == role
    ]


@given(GAMES, st.integers(0, 999))
def test_shuffling_deals_the_same_rewards_to_the_same_role(games: list[list[tuple[float, Role]]], seed: int) -> None:
    rewards = [tuple(reward for reward, _ in game) for game in games]
    roles = [[role for _, role in game] for game in games]
    shuffled = shuffled_rewards(rewards, roles, random.Random(seed))
    assert [len(game) for game in shuffled] == [len(game) for game in rewards]
    for role in ("spy", "civilian"):
        assert sorted(of_role(role, shuffled, roles)) == sorted(of_role(role, rewards, roles))
    assert shuffled_rewards(rewards, roles, random.Random(seed)) == shuffled


def test_shuffling_takes_rewards_from_any_game_to_any_other() -> None:
    rewards = [(-1.0, 0.1, 0.2), (0.3, -2.0, 0.4), (0.5, 0.6, -3.0)]
    roles: list[list[Role]] = [
        ["spy", "civilian", "civilian"],
        ["civilian", "spy", "civilian"],
        ["civilian", "civilian", "spy"],
    ]
    draws = [shuffled_rewards(rewards, roles, random.Random(seed)) for seed in range(600)]
    spies = Counter(draw[0][0] for draw in draws)
    assert set(spies) == {-1.0, -2.0, -3.0}
    assert all(140 < count < 260 for count in spies.values())  # 200 expected, ± 5 standard deviations
    civilians = Counter(draw[1][2] for draw in draws)
    assert set(civilians) == {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}
    assert all(55 < count < 150 for count in civilians.values())  # 100 expected, likewise
