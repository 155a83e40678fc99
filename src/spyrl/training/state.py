"""What carries over from one iteration to the next, besides the model and its optimiser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from spyrl.corpus import Cursor
from spyrl.game import Ema, Gate, RoleBaselines


@dataclass(frozen=True)
class State:
    """``iteration`` is the next to be run. Generators need no entry: each is made anew from its names."""

    iteration: int = 0
    gate: Gate = Gate()
    baselines: RoleBaselines = RoleBaselines()
    cursor: Cursor = Cursor()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> State:
        """The state that `as_dict` made ``data`` of."""
        gate, baselines = data["gate"], data["baselines"]
        return State(
            data["iteration"],
            Gate(gate["stage"], gate["iterations"], Ema(**gate["accuracy"]), Ema(**gate["abstained"])),
            RoleBaselines(Ema(**baselines["spy"]), Ema(**baselines["civilian"])),
            Cursor(**data["cursor"]),
        )
