"""Checkpoints: all that resuming needs, written whole or not at all.

A checkpoint is made in a hidden folder beside its place, flushed to the disk and renamed, so a kill at any moment
leaves the older ones and nothing half-made that could be taken for one. Its files are `spyrl.runs.checkpoints`'.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_saver import save

from spyrl.errors import SpyRLError
from spyrl.runs.checkpoints import (
    STATE,
    fitting_weights,
    plain_errors,
    read_tensors,
    readable,
    reason,
    saved_shapes,
    trained_weights,
    whole_checkpoints,
)
from spyrl.runs.folder import write_atomically
from spyrl.training.learner import Learner
from spyrl.training.processes import count, from_main
from spyrl.training.state import State

_FILE_BYTES = 2**28  # each file is put together in main memory before it is written


def save_checkpoint(folder: Path, learner: Learner, state: State, keep: int) -> Path:
    """Write ``folder/iteration-NNNNN`` and remove all but the ``keep`` newest (0 keeps all); all processes call it.

    Each process writes its part. Raises `SpyRLError` where it cannot be written, for instance on a full disk; older
    checkpoints stay.
    """
    target = folder / f"iteration-{state.iteration:05d}"
    partial = folder / f".{target.name}.partial"
    from_main(lambda: _begin(partial, target))
    try:
        with plain_errors():
            tensors = _tensors(learner)
            save(tensors, storage_writer=_writer(partial, tensors))
    except (OSError, SafetensorError) as error:
        from_main(lambda: shutil.rmtree(partial, ignore_errors=True))
        raise _unwritten(target, error) from error
    return from_main(lambda: _finish(partial, target, learner, state, keep))


def load_checkpoint(path: Path, learner: Learner) -> State:
    """Put a checkpoint's weights and optimiser state into ``learner``; returns the state to go on from.

    All processes call it, and each reads its part. Raises `SpyRLError` where it does not fit the learner's model.
    """
    with readable(path):
        saved = saved_shapes(path)
        weights = fitting_weights(path, saved, learner.loaded.model)
        kept = json.loads((path / STATE).read_text(encoding="utf-8"))
        state = State.from_dict(kept["state"])
        if kept["optimizers"] != list(learner.optimizers):
            raise SpyRLError(
                f"checkpoint {path} has the optimisers {', '.join(kept['optimizers'])}, and training.optimizer="
                f"{learner.settings.optimizer} wants {', '.join(learner.optimizers)}: leave it as it was"
            )
        read_tensors(path, weights | _empty_moments(saved, learner))
    return state


def checkpoint_bytes(learner: Learner) -> int:
    """About how large a checkpoint is: the trained weights and two moments each in every optimiser."""
    weights = sum(parameter.numel() * parameter.element_size() for parameter in learner.parameters)
    return weights * (1 + 2 * len(learner.optimizers))


def _tensors(learner: Learner) -> dict[str, Tensor]:
    """All tensors of a checkpoint by their names. An optimiser that has taken no step yet has none."""
    model = learner.loaded.model
    return trained_weights(model) | {
        f"optimizers/{optimizer}/{moment}/{name}": value
        for optimizer, adam in learner.optimizers.items()
        for name, parameter in model.named_parameters()
        for moment, value in adam.state.get(parameter, {}).items()
    }


def _empty_moments(saved: Mapping[str, tuple[int, ...]], learner: Learner) -> dict[str, Tensor]:
    """The optimisers' tensors of a checkpoint with tensors of the shapes ``saved``: in their places, to be filled."""
    tensors: dict[str, Tensor] = {}
    parameters = dict(learner.loaded.model.named_parameters())
    for full, shape in saved.items():
        if full.startswith("optimizers/"):
            _, optimizer, moment, name = full.split("/", 3)
            parameter = parameters[name]
            # A moment is divided as its parameter is; the number of steps is not.
            tensors[full] = torch.zeros_like(parameter.detach()) if shape else torch.zeros(())
            learner.optimizers[optimizer].state[parameter][moment] = tensors[full]
    return tensors


def _writer(partial: Path, tensors: dict[str, Tensor]) -> HuggingFaceStorageWriter:
    """Writes files of about `_FILE_BYTES` a process."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors.values()]
    before = accumulate(sizes[:-1], initial=0)
    numbers = {name: 1 + size // (_FILE_BYTES * count()) for name, size in zip(tensors, before, strict=True)}
    return HuggingFaceStorageWriter(str(partial), numbers, save_distributed=True)


def _begin(partial: Path, target: Path) -> None:
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    except OSError as error:
        raise _unwritten(target, error) from error


def _finish(partial: Path, target: Path, learner: Learner, state: State, keep: int) -> Path:
    """Once the tensors are on the disk."""
    try:
        kept = {
            "state": state.as_dict(),
            "optimizers": list(learner.optimizers),
            "sizes": {path.name: path.stat().st_size for path in sorted(partial.iterdir())},
        }
        write_atomically(partial / STATE, json.dumps(kept, indent=1))
        _flush(partial)
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
        _flush(folder := target.parent)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise _unwritten(target, error) from error
    for old in whole_checkpoints(folder)[:-keep] if keep else []:
        shutil.rmtree(old, ignore_errors=True)
    return target


def _unwritten(target: Path, error: Exception) -> SpyRLError:
    return SpyRLError(
        f"cannot write the checkpoint {target}: {reason(error)}; "
        "earlier checkpoints are untouched: make room and go on with --resume"
    )


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
