"""One game, played with the answers there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spyrl.game import Deal, RoleBaselines
from spyrl.play import Dropped, Played, Settled, detect, perform, performing_seed, settle
from spyrl.policy import Completion, Request
from spyrl_environment.answers import Answers, UnansweredError
from spyrl_environment.table import Table


@dataclass(frozen=True)
class Question:
    """One sample that is to be asked for: whose it is (``civilian``, ``spy`` or ``detector``), and its seed."""

    seat: str
    seed: int
    request: Request


def play(table: Table, deal: Deal, known: Mapping[int, Completion]) -> Played | Dropped | list[Question]:
    """The game with these answers by seed: played, dropped for one that failed, or what is to be asked next."""
    game, seed, policy = table.config.game, table.config.run.seed, Answers(known, table.counts)
    try:
        performances, dropped = perform([deal], table.task, policy, game, seed)
        played, undetected = detect(performances, table.task, policy, game, seed)
    except UnansweredError as error:
        turns = {
            performing_seed(seed, deal, round_, player): deal.role(player)
            for round_ in range(1, game.rounds + 1)
            for player in deal.numbers
        }
        return [Question(turns.get(of, "detector"), of, request) for of, request in error.missing]
    return (played or dropped or undetected)[0]


def settle_one(table: Table, played: Played) -> Settled:
    """The game settled for itself: its role baselines are still zero, for to fold games into them is the engine's."""
    (settled,), _ = settle([played], table.config.game, RoleBaselines(), table.config.run.seed)
    return settled
