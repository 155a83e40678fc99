"""Controls: the same training on rewards that tell nothing of the outputs. What it learns, votes did not teach."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from spyrl.game.ballot import Ballot
from spyrl.game.deal import Role

Control = Literal["none", "random_votes", "shuffled"]


def random_ballots(ballots: Sequence[Ballot], players: int, draw: random.Random) -> tuple[Ballot, ...]:
    """As many ballots, each a vote for a player drawn uniformly from 1..players."""
    return tuple(Ballot(ballot.voter, "vote", draw.randint(1, players)) for ballot in ballots)


def shuffled_rewards(
    rewards: Sequence[Sequence[float]], roles: Sequence[Sequence[Role]], draw: random.Random
) -> list[tuple[float, ...]]:
    """The rewards of all games, dealt out anew among the players of the same role."""
    pools: dict[Role, list[float]] = {"spy": [], "civilian": []}
    for earned, own in zip(rewards, roles, strict=True):
        for reward, role in zip(earned, own, strict=True):
            pools[role].append(reward)
    for role in ("spy", "civilian"):
        draw.shuffle(pools[role])
    return [tuple(pools[role].pop() for role in own) for own in roles]
