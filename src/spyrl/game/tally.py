"""The tally: how many votes m_k each player received (the votes of paper Eq. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spyrl.game.ballot import Ballot


@dataclass(frozen=True)
class Tally:
    """Votes received by players 1..n (``votes[k-1]`` is m_k), abstentions and invalid ballots."""

    votes: tuple[int, ...]
    abstained: int
    invalid: int

    @property
    def leaders(self) -> tuple[int, ...]:
        """Players with the most votes; empty when nobody received one."""
        most = max(self.votes, default=0)
        return tuple(number for number, votes in enumerate(self.votes, 1) if votes == most) if most else ()


def count_ballots(ballots: Sequence[Ballot], players: int) -> Tally:
    """Count the ballots of one game."""
    votes = [0] * players
    for ballot in ballots:
        if ballot.choice is not None:
            votes[ballot.choice - 1] += 1
    abstained = sum(ballot.outcome == "abstained" for ballot in ballots)
    return Tally(tuple(votes), abstained, sum(not ballot.valid for ballot in ballots))


@dataclass(frozen=True)
class Verdict:
    """What the gate is told of one game: was the spy found, and how unsure were the detectors; both in [0, 1]."""

    accuracy: float
    abstained: float


def verdict(ballots: Sequence[Ballot], tally: Tally, spy: int) -> Verdict:
    """Judge one game's detectors for the gate (the acc and na of paper Eq. 11).

    Reasoned ballots: is the plurality right (players that tie for the most votes share the credit), and what
    share abstained. Direct ballots give the exact distribution q instead: is argmax q over the players right, and
    q(N/A), q being the mean of the detectors' distributions.
    """
    if ballots and all(ballot.probabilities for ballot in ballots):
        q = [sum(column) / len(ballots) for column in zip(*(b.probabilities for b in ballots), strict=True)]
        return Verdict(_credit(q[:-1], spy), q[-1])
    share = tally.abstained / len(ballots) if ballots else 1.0
    return Verdict(_credit(tally.votes, spy), share)


def _credit(scores: Sequence[float], spy: int) -> float:
    most = max(scores)
    if most <= 0 or scores[spy - 1] < most:
        return 0.0
    return 1.0 / sum(score == most for score in scores)
