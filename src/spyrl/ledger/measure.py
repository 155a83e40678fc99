"""How good a ledger model is, before any training by the game."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from spyrl.config import load_config
from spyrl.play import document_budget, hold_out
from spyrl.policy.opening import open_policy
from spyrl.tasks import load_task


def start_quality(folder: Path) -> dict[str, float]:
    """What the ledger preset measures of the model in ``folder`` before its first iteration."""
    config = load_config("ledger", [f"model.path={folder}"])
    task, policy = load_task(config.task), open_policy(config.model)
    budget = document_budget(task, policy, config.game)
    return hold_out(config, task, policy, policy, budget).begun.metrics


def same_weights(one: Path, other: Path) -> bool:
    """Whether two model folders hold the same weights, to the bit."""
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (one, other))
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
