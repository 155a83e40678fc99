"""The game's settings: who plays, how they answer, and the rules' own numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spyrl.game.advantages import RoleSettings
from spyrl.game.deal import MAX_PLAYERS, MIN_PLAYERS
from spyrl.game.degradation import DegradationSettings
from spyrl.game.gate import GateSettings
from spyrl.game.rewards import RewardSettings

OutputForm = Literal["whole", "marked", "boxed"]
AnswerForm = Literal["reasoned", "direct"]


@dataclass(frozen=True)
class DetectorSettings:
    """Who votes, on what, and in which form."""

    view: Literal["own", "full"] = "own"
    """``own``: each player votes from its own observation (paper); ``full``: detectors that are no players read
    the complete document (reference code)."""
    count: int | None = None
    """Ballots: in the full view of the game (default 8), in the own view of each voting player (default 1)."""
    answer: AnswerForm = "reasoned"
    r"""``reasoned``: free text, then ``\boxed{}``; ``direct``: the box is begun for the model, which only chooses
    among the players and N/A."""
    spy_votes: bool = False
    """Own view: whether the spy casts ballots, too (Vision-Zero: no)."""
    self_vote: bool = False
    """Own view: whether a player may name itself; if not, such a ballot is invalid."""
    max_tokens: int = 4096
    """Longest reasoned answer, in tokens (published: 4,096)."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.count is not None and self.count < 1:
            raise ValueError(f"count must be at least 1, not {self.count}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")

    @property
    def ballots(self) -> int:
        """Ballots a prompt: ``count`` with the view's default."""
        return self.count or (8 if self.view == "full" else 1)


@dataclass(frozen=True)
class GameSettings:
    """One game of Who is the Spy?"""

    players: int = 5
    """Players, 3 to 26 (paper: 5; 4 for GovReport)."""
    rounds: int = 1
    """How often every player performs before the detectors vote (paper: 1)."""
    turns: Literal["parallel", "sequential"] = "parallel"
    """``sequential``: one player after another sees what was said before, the spy last."""
    output: OutputForm = "marked"
    r"""What of a completion the others see: all of it, what follows the marker, or the last ``\boxed{}``."""
    max_tokens: int = 4096
    """Longest completion of a player, in tokens (published: 4,096)."""
    min_tokens: int = 0
    """A player's completion does not end before so many tokens: holds off the silence collapse (published: 0)."""
    max_prompt_tokens: int = 12288
    """Longest prompt, in tokens (published: 12,288). Documents are cut at a sentence to fit, rules never."""
    temperature: float = 1.0
    """Of both stages' sampling; 0 is greedy."""
    top_p: float = 1.0
    """Nucleus of the performing stage's and reasoned ballots' sampling, in (0, 1]."""
    detectors: DetectorSettings = DetectorSettings()
    degradation: DegradationSettings = DegradationSettings()
    rewards: RewardSettings = RewardSettings()
    roles: RoleSettings = RoleSettings()
    gate: GateSettings = GateSettings()

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not MIN_PLAYERS <= self.players <= MAX_PLAYERS:
            raise ValueError(f"players must be in {MIN_PLAYERS}..{MAX_PLAYERS}, not {self.players}")
        for key in ("rounds", "max_tokens", "max_prompt_tokens"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, not {getattr(self, key)}")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise ValueError(f"min_tokens must be in 0..max_tokens ({self.max_tokens}), not {self.min_tokens}")
        if self.temperature < 0:
            raise ValueError(f"temperature must be at least 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")

    @property
    def has_spy(self) -> bool:
        """Whether there is a spy at all (not in the ablation that hides nothing)."""
        return self.degradation.kind != "nothing"
