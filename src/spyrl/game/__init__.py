"""The rules of Who is the Spy? Standard library only: no torch, no files, no clock, no global random state."""

from spyrl.game.advantages import (
    Ema,
    RoleBaselines,
    RoleSettings,
    group_advantages,
    role_advantages,
    scaled,
)
from spyrl.game.ballot import INVALID, Ballot, direct_ballot, direct_choices, last_boxed, read_ballot
from spyrl.game.controls import random_ballots, shuffled_rewards
from spyrl.game.deal import MAX_PLAYERS, MIN_PLAYERS, Deal, Document, Role, deal
from spyrl.game.degradation import Degradation, DegradationSettings, Degraded, DocumentTooShortError
from spyrl.game.game import Game, Output
from spyrl.game.gate import Gate, GateSettings, Stage
from spyrl.game.randomness import generator, named_seed
from spyrl.game.rewards import RewardSettings, detection_reward, performing_rewards
from spyrl.game.tally import Tally, Verdict, count_ballots, verdict

__all__ = [
    "INVALID",
    "MAX_PLAYERS",
    "MIN_PLAYERS",
    "Ballot",
    "Deal",
    "Degradation",
    "DegradationSettings",
    "Degraded",
    "Document",
    "DocumentTooShortError",
    "Ema",
    "Game",
    "Gate",
    "GateSettings",
    "Output",
    "RewardSettings",
    "Role",
    "RoleBaselines",
    "RoleSettings",
    "Stage",
    "Tally",
    "Verdict",
    "count_ballots",
    "deal",
    "detection_reward",
    "direct_ballot",
    "direct_choices",
    "generator",
    "group_advantages",
    "last_boxed",
    "named_seed",
    "performing_rewards",
    "random_ballots",
    "read_ballot",
    "role_advantages",
    "scaled",
    "shuffled_rewards",
    "verdict",
]
