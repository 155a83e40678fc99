"""Where a run is kept and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tracker = Literal["tensorboard", "wandb", "trackio"]


@dataclass(frozen=True)
class RunSettings:
    """One run's folder."""

    name: str | None = None
    """Folder name below ``folder``; by default the preset's name, with a number where that is taken."""
    folder: str = "runs"
    """Where runs are kept."""
    seed: int = 0
    """Everything random in the run follows from it."""
    checkpoint_every: int = 10
    """Iterations between checkpoints; the last iteration and an interrupt make one, too."""
    keep: int = 2
    """How many of the newest checkpoints are kept; 0 keeps all."""
    log: list[Tracker] | None = None
    """Where metrics go besides metrics.jsonl: any of tensorboard, wandb, trackio."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.checkpoint_every < 1 or self.keep < 0:
            raise ValueError("checkpoint_every must be at least 1 and keep at least 0")
        if self.name is not None and (not self.name or self.name in (".", "..") or set(self.name) & set("/\\\0")):
            raise ValueError(f"name must be a plain folder name, not {self.name!r}")
