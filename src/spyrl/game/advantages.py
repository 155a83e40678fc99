"""From rewards to advantages: group-normalised for detectors, role baselines for players (paper Eq. 9 and 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from spyrl.game.deal import Role

EPSILON = 1e-6

EmaKind = Literal["literal", "corrected"]


@dataclass(frozen=True)
class Ema:
    """An exponential moving average ``value ← decay · value + (1 - decay) · x`` from zero.

    ``weight`` is the share of ``value`` that comes from data, 1 - decay^t after t values; dividing by it takes
    the bias of the start at zero away.
    """

    value: float = 0.0
    weight: float = 0.0

    def updated(self, x: float, decay: float) -> Ema:
        """The average after one more value."""
        return Ema(decay * self.value + (1 - decay) * x, decay * self.weight + (1 - decay))

    def read(self, kind: EmaKind) -> float:
        """The average: as the paper writes it, or corrected for its start (0 before the first value)."""
        if kind == "literal" or self.weight == 0:
            return self.value
        return self.value / self.weight


@dataclass(frozen=True)
class RoleSettings:
    """How performing rewards become advantages."""

    baseline: Literal["role", "group", "none"] = "role"
    """``role``: one moving baseline a role (RAE, paper); ``group``: normalised within the game (GRPO);
    ``none``: the rewards as they are."""
    decay: float = 0.95
    """α of the role baselines, in [0, 1): 0.95 in Vision-Zero's table."""
    ema: EmaKind = "literal"
    """``literal``: the baseline starts at 0 as in the paper; ``corrected``: without that start's bias."""
    scale: Literal["none", "batch"] = "none"
    """``batch``: divide by the spread of all performing advantages of the iteration, after the baseline."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be in [0, 1), not {self.decay}")


@dataclass(frozen=True)
class RoleBaselines:
    """The moving average of each role's rewards (paper Eq. 6: b_spy and b_civ)."""

    spy: Ema = Ema()
    civilian: Ema = Ema()

    def of(self, role: Role) -> Ema:
        """The baseline of ``role``."""
        return self.spy if role == "spy" else self.civilian


def group_advantages(rewards: Sequence[float]) -> tuple[float, ...]:
    """Advantages within one game's group: (r_i - mean) / (std + ε), std over the group (paper Eq. 9; GRPO).

    >>> [round(a, 3) for a in group_advantages([1.0, 0.0, 0.0, 0.0])]
    [1.732, -0.577, -0.577, -0.577]
    """
    if not rewards:
        return ()
    mean = math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return tuple((reward - mean) / (deviation + EPSILON) for reward in rewards)


def role_advantages(
    rewards: Sequence[float], roles: Sequence[Role], baselines: RoleBaselines, settings: RoleSettings
) -> tuple[tuple[float, ...], RoleBaselines]:
    """Advantages of one game's players, and the baselines after it (RAE, paper Eq. 6).

    Each reward is scored against its role's baseline from *before* this game, and not divided by any spread;
    then each role's mean reward of the game is folded in: b ← α b + (1 - α) r̄. Games are given one by one in
    their global order, so the result is the same on any number of processes.
    """
    if settings.baseline == "group":
        return group_advantages(rewards), baselines
    if settings.baseline == "none":
        return tuple(rewards), baselines
    advantages = tuple(
        reward - baselines.of(role).read(settings.ema) for reward, role in zip(rewards, roles, strict=True)
    )
    for role in ("spy", "civilian"):
        own = [reward for reward, of in zip(rewards, roles, strict=True) if of == role]
        if own:
            after = baselines.of(role).updated(math.fsum(own) / len(own), settings.decay)
            baselines = replace(baselines, spy=after) if role == "spy" else replace(baselines, civilian=after)
    return advantages, baselines


def scaled(advantages: Sequence[Sequence[float]], settings: RoleSettings) -> list[tuple[float, ...]]:
    """Divide all games' performing advantages by their common spread (root mean square), if asked to."""
    flat = [advantage for game in advantages for advantage in game]
    if settings.scale == "none" or not flat:
        return [tuple(game) for game in advantages]
    spread = math.sqrt(math.fsum(advantage**2 for advantage in flat) / len(flat)) + EPSILON
    return [tuple(advantage / spread for advantage in game) for game in advantages]
