"""How the policy is updated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class EvaluationSettings:
    """How a run is measured on documents that it never learns from."""

    every: int = 0
    """Iterations between measurements, with one before the first and one after the last; 0: none."""
    documents: int = 200
    """How many held-out documents."""
    split: str = "test"
    """Their split of a Hub data set or of the ledgers."""
    path: str | None = None
    """Their corpus; by default the run's own, which then must have splits."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.every < 0 or self.documents < 1:
            raise ValueError("every must be at least 0 and documents at least 1")


@dataclass(frozen=True)
class TrainingSettings:
    """The iteration and its update; the defaults are the published recipe's values."""

    iterations: int = 100
    """Iterations of deal, perform, detect, settle, update, record (published: 100)."""
    games: int = 128
    """Games an iteration (published: 128)."""
    stages: Literal["alternate", "detection", "performing", "joint"] = "alternate"
    """What is trained: by the gate (paper), one stage only, or both at once (Table 16)."""
    lr: float = 1e-6
    """Learning rate of AdamW (published: 1e-6)."""
    lr_detection: float | None = None
    """Learning rate where detection alone is trained; by default ``lr``."""
    warmup: int = 0
    """Iterations over which the learning rate rises from lr/warmup to lr."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate goes on from there: constant, or down towards 0 at the last iteration."""
    weight_decay: float = 0.0
    """Decoupled weight decay of AdamW."""
    adam_betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of AdamW's two moments, each in [0, 1)."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm."""
    optimizer: Literal["shared", "per_stage"] = "shared"
    """One optimiser state, or one a stage: detection's gradients can be 30 times larger than performing's."""
    clip: float = 0.2
    """PPO's clip range ε of the probability ratio (published: 0.2)."""
    kl: float = 0.001
    """Weight β_KL of the k3 estimate of KL(π‖π_ref) (published: 0.001); at 0 no reference model is held."""
    entropy: float = 0.0
    """Weight of an entropy bonus (published: 0)."""
    importance_cap: float | None = None
    """Truncated importance sampling: cap C of a token's weight π_trainer/π_engine (2 is usual); unset: no weights."""
    average: Literal["sequence", "token"] = "sequence"
    """Mean over each trajectory's tokens first (GRPO), or over all tokens alike."""
    epochs: int = 1
    """Passes over an iteration's trajectories (published: 1)."""
    minibatches: int = 1
    """Optimiser steps a pass (published: 1); whole games stay together."""
    batch_tokens: int = 16384
    """Most tokens, padding included, of one forward and backward pass; gradients are accumulated over passes."""
    packed: bool = True
    """Score each game's trajectories as a prefix tree, common beginnings once; models that cannot are padded."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
    sharding: Literal["none", "full"] = "none"
    """With several processes (torchrun): the whole model on each, or weights, gradients and optimiser state divided
    among them (FSDP2). With one process they are the same."""
    reference: Literal["device", "cpu"] = "device"
    """Where a sharded reference model waits: on the GPUs, or in main memory, from where its layers are fetched."""
    evaluation: EvaluationSettings = EvaluationSettings()

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.reference == "cpu" and self.sharding == "none":
            raise ValueError("reference=cpu needs sharding=full: a reference that is not divided stays on the device")
        for key in ("iterations", "games", "epochs", "minibatches", "batch_tokens"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, not {getattr(self, key)}")
        for key in ("lr", "warmup", "weight_decay", "kl", "entropy"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} must be at least 0, not {getattr(self, key)}")
        if self.lr_detection is not None and self.lr_detection < 0:
            raise ValueError(f"lr_detection must be at least 0, not {self.lr_detection}")
        for key in ("clip", "max_grad_norm"):
            if getattr(self, key) <= 0:
                raise ValueError(f"{key} must be above 0, not {getattr(self, key)}")
        if self.importance_cap is not None and self.importance_cap <= 0:
            raise ValueError(f"importance_cap must be above 0, not {self.importance_cap}")
        if not all(0 <= beta < 1 for beta in self.adam_betas):
            raise ValueError(f"adam_betas must be in [0, 1), not {list(self.adam_betas)}")
