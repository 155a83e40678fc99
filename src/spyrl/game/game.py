"""A whole game, played and scored."""

from __future__ import annotations

from dataclasses import dataclass

from spyrl.game.ballot import Ballot
from spyrl.game.deal import Deal
from spyrl.game.tally import Tally, Verdict


@dataclass(frozen=True)
class Output:
    """What one player gave the others in one round (counted from 1); ``text`` is ``None`` where it is missing."""

    player: int
    round: int
    text: str | None


@dataclass(frozen=True)
class Game:
    """A settled game.

    ``performing_rewards`` and ``performing_advantages`` are per player 1..n; ``detection_rewards`` and
    ``detection_advantages`` per ballot, and empty without a spy. ``verdict`` is what the gate is told of it.
    """

    deal: Deal
    outputs: tuple[Output, ...]
    ballots: tuple[Ballot, ...]
    tally: Tally
    performing_rewards: tuple[float, ...]
    performing_advantages: tuple[float, ...]
    detection_rewards: tuple[float, ...]
    detection_advantages: tuple[float, ...]
    verdict: Verdict | None
