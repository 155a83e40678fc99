"""The gate: which stage is trained (paper Eq. 11 and 12).

Detection is trained until the detectors find the spy, then performing until they no longer do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spyrl.game.advantages import Ema, EmaKind
from spyrl.game.tally import Verdict

Stage = Literal["detection", "performing"]
Reason = Literal["", "threshold", "patience"]


@dataclass(frozen=True)
class GateSettings:
    """When the trained stage changes. All thresholds are in [0, 1]."""

    accuracy: float = 0.9
    """Detection → performing when the detectors' accuracy is at least this …"""
    abstained: float = 0.1
    """… and their N/A rate at most this."""
    error: float = 0.4
    """Performing → detection when 1 - accuracy is at least this …"""
    lost: float = 0.5
    """… or the N/A rate at least this."""
    dwell: int = 5
    """At least so many iterations in a stage (K_min)."""
    patience: int = 20
    """At most so many, then it switches anyway (P, Vision-Zero). With ``patience = dwell`` the cycle is fixed."""
    decay: float = 0.95
    """ρ of both moving averages, in [0, 1)."""
    ema: EmaKind = "corrected"
    """``literal``: as the paper writes it, from 0, so that 0.9 is out of reach before the 45th iteration."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 1 <= self.dwell <= self.patience:
            raise ValueError(f"dwell must be in 1..patience ({self.patience}), not {self.dwell}")
        for key in ("accuracy", "abstained", "error", "lost"):
            if not 0 <= getattr(self, key) <= 1:
                raise ValueError(f"{key} must be in [0, 1], not {getattr(self, key)}")
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be in [0, 1), not {self.decay}")


@dataclass(frozen=True)
class Gate:
    """The gate's state: the stage now trained, for how many iterations, and the two averages."""

    stage: Stage = "detection"
    iterations: int = 0
    accuracy: Ema = Ema()
    abstained: Ema = Ema()

    def step(self, verdicts: Sequence[Verdict], settings: GateSettings) -> tuple[Gate, Reason]:
        """The gate after an iteration of these games, and why it switched (empty where it did not).

        The averages move by the batch's mean accuracy and N/A rate (Eq. 11), whichever stage was trained,
        then the switch is decided (Eq. 12). Without any game the averages stay.
        """
        accuracy, abstained = self.accuracy, self.abstained
        if verdicts:
            accuracy = accuracy.updated(sum(v.accuracy for v in verdicts) / len(verdicts), settings.decay)
            abstained = abstained.updated(sum(v.abstained for v in verdicts) / len(verdicts), settings.decay)
        iterations = self.iterations + 1
        after = Gate(self.stage, iterations, accuracy, abstained)
        reason: Reason = ""
        if iterations >= settings.dwell and after._due(settings):
            reason = "threshold"
        elif iterations >= settings.patience:
            reason = "patience"
        if not reason:
            return after, ""
        other: Stage = "performing" if self.stage == "detection" else "detection"
        return Gate(other, 0, accuracy, abstained), reason

    def _due(self, settings: GateSettings) -> bool:
        accuracy, abstained = self.accuracy.read(settings.ema), self.abstained.read(settings.ema)
        slack = 1e-9  # an average of equal values may fall a rounding error short of them
        if self.stage == "detection":
            return accuracy >= settings.accuracy - slack and abstained <= settings.abstained + slack
        return 1 - accuracy >= settings.error - slack or abstained >= settings.lost - slack
