"""Checkpoints: all that resuming needs, written whole or not at all.

A checkpoint is made in a hidden folder beside its place, flushed to the disk and renamed, so a kill at any moment
leaves the older ones and nothing half-made that could be taken for one.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from spyrl.errors import SpyRLError, first_line
from spyrl.runs.folder import write_atomically
from spyrl.training.learner import Learner
from spyrl.training.state import State

_WEIGHTS, _OPTIMIZERS, _STATE = "weights.safetensors", "optimizers.pt", "state.json"


def save_checkpoint(folder: Path, learner: Learner, state: State, keep: int) -> Path:
    """Write ``folder/iteration-NNNNN`` and remove all but the ``keep`` newest (0 keeps all).

    Raises `SpyRLError` where it cannot be written, for instance on a full disk; older checkpoints stay.
    """
    target = folder / f"iteration-{state.iteration:05d}"
    partial = folder / f".{target.name}.partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_file(_trained_weights(learner), partial / _WEIGHTS)
        optimizers = {name: optimizer.state_dict() for name, optimizer in learner.optimizers.items()}
        torch.save(optimizers, partial / _OPTIMIZERS)
        sizes = {name: (partial / name).stat().st_size for name in (_WEIGHTS, _OPTIMIZERS)}
        for name in sizes:
            _flush(partial / name)
        write_atomically(partial / _STATE, json.dumps({"state": state.as_dict(), "sizes": sizes}, indent=1))
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
        _flush(folder)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise SpyRLError(
            f"cannot write the checkpoint {target}: {_reason(error)}; "
            "earlier checkpoints are untouched: make room and go on with --resume"
        ) from error
    for old in _whole(folder)[:-keep] if keep else []:
        shutil.rmtree(old, ignore_errors=True)
    return target


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint, or ``None``."""
    found = _whole(folder)
    return found[-1] if found else None


def load_checkpoint(path: Path, learner: Learner) -> State:
    """Put a checkpoint's weights and optimiser state into ``learner``; returns the state to go on from.

    Raises `SpyRLError` where it does not fit the learner's model.
    """
    device = learner.loaded.device
    try:
        saved = load_file(path / _WEIGHTS)
        own = dict(_named_parameters(learner))
        if saved.keys() != own.keys():
            raise SpyRLError(f"checkpoint {path} is of another model (its weights have other names)")
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(saved[name])
        optimizers = torch.load(path / _OPTIMIZERS, map_location=device, weights_only=True)
        for name, optimizer in learner.optimizers.items():
            optimizer.load_state_dict(optimizers[name])
        return State.from_dict(json.loads((path / _STATE).read_text(encoding="utf-8"))["state"])
    except (OSError, RuntimeError, KeyError, ValueError, UnpicklingError, SafetensorError) as error:
        raise SpyRLError(f"checkpoint {path} cannot be read: {_reason(error)}") from error


def checkpoint_bytes(learner: Learner) -> int:
    """About how large a checkpoint is: the trained weights and two moments each in every optimiser."""
    weights = sum(parameter.numel() * parameter.element_size() for parameter in learner.parameters)
    return weights * (1 + 2 * len(learner.optimizers))


def _whole(folder: Path) -> list[Path]:
    """Whole checkpoints, oldest first."""
    return [path for path in sorted(folder.glob("iteration-*")) if _is_whole(path)]


def _is_whole(path: Path) -> bool:
    try:
        sizes: dict[str, int] = json.loads((path / _STATE).read_text(encoding="utf-8"))["sizes"]
        return all((path / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


def _named_parameters(learner: Learner) -> list[tuple[str, torch.nn.Parameter]]:
    return [(name, value) for name, value in learner.loaded.model.named_parameters() if value.requires_grad]


def _trained_weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: value.detach().contiguous() for name, value in _named_parameters(learner)}


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or first_line(error)
