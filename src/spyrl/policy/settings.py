"""Which models answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dtype = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class LoraSettings:
    """Low-rank adapters instead of training all weights."""

    rank: int = 0
    """Rank of the adapters; 0 trains the whole model."""
    alpha: int | None = None
    """Scale; by default twice the rank."""
    dropout: float = 0.0
    """Dropout of the adapters, in [0, 1). Above 0, old and new log-probabilities differ by chance."""
    targets: str | list[str] = "all-linear"
    """Module names, or ``all-linear``."""
    merge: bool = False
    """Merge the adapters into the result, which then needs no PEFT to load."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.rank < 0 or not 0 <= self.dropout < 1:
            raise ValueError(f"rank must be at least 0 and dropout in [0, 1), not {self.rank} and {self.dropout}")


@dataclass(frozen=True)
class VllmSettings:
    """How vLLM generates for the model that is trained."""

    server: str | None = None
    """Base URL of a vLLM server with GPUs of its own, usually ending in /v1; unset: vLLM runs in this process."""
    folder: str | None = None
    """Folder that this process and the server see, to hand weights over in; unset: over NCCL, from GPU to GPU."""
    memory: float = 0.45
    """Share of the GPU's memory for vLLM in this process (published: 0.45)."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 < self.memory < 1:
            raise ValueError(f"memory must be in (0, 1), not {self.memory}")
        if self.folder and not self.server:
            raise ValueError("folder is for a server; set vllm.server, or leave it out")


@dataclass(frozen=True)
class OtherModel:
    """A fixed model that takes a part instead of the learner."""

    path: str
    """Folder, Hub id or ``smollm2``; with ``server``, the name the server knows it by."""
    server: str | None = None
    """Base URL of an OpenAI-compatible server, usually ending in /v1."""


@dataclass(frozen=True)
class ModelSettings:
    """The model that plays and learns."""

    path: str = "smollm2"
    """Folder, Hub id, ``smollm2`` (SmolLM2-135M-Instruct, fetched once) or ``bundled:ledger-0`` to ``-2`` (the ledger
    task's own); with ``server``, its name there."""
    server: str | None = None
    """Base URL of an OpenAI-compatible server, usually ending in /v1: to play and evaluate, not to train. The key
    is read from OPENAI_API_KEY."""
    dtype: Dtype = "auto"
    """What the model computes in; ``auto``: bfloat16 on a GPU, float32 on a CPU. Trained weights stay float32."""
    device: str = "auto"
    """``cpu``, ``cuda``, ``cuda:1``, …; ``auto``: a GPU if there is one."""
    attention: Literal["sdpa", "eager"] = "sdpa"
    """Attention implementation of transformers."""
    batch_tokens: int = 32768
    """Most tokens (prompt and answer, padding included) that are generated side by side; the samples of one prompt
    always are."""
    template: dict[str, str | int | float | bool] | None = None
    """Extra variables of the model's chat template, for example ``{enable_thinking: false}``."""
    engine: Literal["transformers", "vllm"] = "transformers"
    """What generates in training: the trained model itself, or vLLM, which is handed its weights each iteration."""
    vllm: VllmSettings = VllmSettings()
    lora: LoraSettings = LoraSettings()
    detector: OtherModel | None = None
    """A fixed model that detects instead of the learner; then only performing can be trained."""
    performer: OtherModel | None = None
    """A fixed model that performs instead of the learner; then only detection can be trained."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.batch_tokens < 1:
            raise ValueError(f"batch_tokens must be at least 1, not {self.batch_tokens}")
