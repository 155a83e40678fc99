"""Checkpoints: all that resuming needs, written whole or not at all.

A checkpoint is made in a hidden folder beside its place, flushed to the disk and renamed, so a kill at any moment
leaves the older ones and nothing half-made that could be taken for one.

Its files are the same whatever the number of processes: what is divided among them is brought together on the main
one, tensor by tensor, and divided anew when it is loaded.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from spyrl.errors import SpyRLError, first_line
from spyrl.runs.folder import write_atomically
from spyrl.training.learner import Learner
from spyrl.training.processes import from_main
from spyrl.training.sharding import divided_as, is_sharded, whole_tensor
from spyrl.training.state import State

_WEIGHTS, _OPTIMIZERS, _STATE = "weights.safetensors", "optimizers.pt", "state.json"


def save_checkpoint(folder: Path, learner: Learner, state: State, keep: int) -> Path:
    """Write ``folder/iteration-NNNNN`` and remove all but the ``keep`` newest (0 keeps all); all processes call it.

    Raises `SpyRLError` where it cannot be written, for instance on a full disk; older checkpoints stay.
    """
    weights = {
        name: whole_tensor(value.detach()).contiguous() for name, value in _named_parameters(learner.loaded.model)
    }
    optimizers = {
        name: _each_value(optimizer.state_dict(), lambda index, value: whole_tensor(value))
        for name, optimizer in learner.optimizers.items()
    }
    return from_main(lambda: _write(folder, weights, optimizers, state, keep))


def _write(
    folder: Path, weights: Mapping[str, torch.Tensor], optimizers: Mapping[str, Any], state: State, keep: int
) -> Path:
    target = folder / f"iteration-{state.iteration:05d}"
    partial = folder / f".{target.name}.partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_file(dict(weights), partial / _WEIGHTS)
        torch.save(dict(optimizers), partial / _OPTIMIZERS)
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

    All processes call it, and all read the files. Raises `SpyRLError` where it does not fit the learner's model.
    """
    sharded = is_sharded(learner.loaded.model)
    try:
        load_weights(path, learner.loaded.model)
        optimizers = torch.load(
            path / _OPTIMIZERS,
            map_location="cpu" if sharded else learner.loaded.device,
            weights_only=True,
            mmap=sharded,  # of which each process keeps its part
        )
        parameters = learner.parameters
        for name, optimizer in learner.optimizers.items():
            optimizer.load_state_dict(
                _each_value(optimizers[name], lambda index, value: _divided_moment(parameters[index], value))
            )
        return State.from_dict(json.loads((path / _STATE).read_text(encoding="utf-8"))["state"])
    except (OSError, RuntimeError, KeyError, ValueError, UnpicklingError, SafetensorError) as error:
        raise SpyRLError(f"checkpoint {path} cannot be read: {_reason(error)}") from error


def load_weights(path: Path, model: Any) -> None:
    """Put a checkpoint's weights into ``model``, whose trained weights they are.

    Raises `SpyRLError` where it is another model's, and what its libraries raise where it cannot be read.
    """
    own = dict(_named_parameters(model))
    with safe_open(path / _WEIGHTS, framework="pt") as saved, torch.no_grad():
        if set(saved.keys()) != own.keys():
            raise SpyRLError(f"checkpoint {path} is of another model (its weights have other names)")
        for name, parameter in own.items():
            shape, wanted = saved.get_slice(name).get_shape(), list(parameter.shape)
            if shape != wanted:
                raise SpyRLError(f"checkpoint {path} is of another model ({name} is of shape {shape}, not {wanted})")
            parameter.copy_(divided_as(parameter, saved.get_tensor(name)))


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


def _named_parameters(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    return [(name, value) for name, value in model.named_parameters() if value.requires_grad]


def _each_value(optimizer: Mapping[str, Any], change: Callable[[int, torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    """An optimiser's state with every tensor changed; ``change`` is given the number of its parameter, too."""
    state = {
        index: {key: change(index, value) for key, value in values.items()}
        for index, values in optimizer["state"].items()
    }
    return {**optimizer, "state": state}


def _divided_moment(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A moment is divided as its parameter is; the number of steps is not."""
    return divided_as(parameter, value) if value.shape == parameter.shape else value


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or first_line(error)
