"""The checkpoints in a run's folder: which are whole, and the tensors they hold.

A checkpoint ``iteration-NNNNN`` holds ``state.json`` and safetensors files as PyTorch's distributed checkpoints write
them: each process its part. Whatever the number of processes that wrote them, any number can
read them. Tensors are called ``weights/PARAMETER`` and ``optimizers/OPTIMIZER/MOMENT/PARAMETER``; only parameters that
were trained are there.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spyrl.errors import SpyRLError, first_line

if TYPE_CHECKING:
    from torch import Tensor

STATE = "state.json"
"""What is no tensor: the state to go on from, the optimisers' names, and the sizes of the other files in bytes."""


def whole_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in ``folder`` whose files are all there and as long as they should be, oldest first."""
    numbered = (path for path in sorted(folder.glob("iteration-*")) if path.name.removeprefix("iteration-").isdigit())
    return [path for path in numbered if _is_whole(path)]


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint, or ``None``."""
    found = whole_checkpoints(folder)
    return found[-1] if found else None


def trained_weights(model: Any) -> dict[str, Tensor]:
    """What a checkpoint keeps of a model: its trained parameters, by the names they have in it."""
    return {
        f"weights/{name}": parameter.detach() for name, parameter in model.named_parameters() if parameter.requires_grad
    }


def load_weights(path: Path, model: Any) -> None:
    """Put a checkpoint's weights into ``model``, whose trained weights they are; of a divided one into its part.

    Raises `SpyRLError` where they cannot be read or are another model's.
    """
    with readable(path):
        read_tensors(path, fitting_weights(path, saved_shapes(path), model))


def fitting_weights(path: Path, saved: Mapping[str, tuple[int, ...]], model: Any) -> dict[str, Tensor]:
    """`trained_weights`, if they are those of the checkpoint ``path``, whose tensors have the shapes ``saved``.

    Raises `SpyRLError` where they are another model's.
    """
    own = trained_weights(model)
    if {name for name in saved if name.startswith("weights/")} != own.keys():
        raise SpyRLError(f"checkpoint {path} is of another model (its weights have other names)")
    for name, value in own.items():
        shape, wanted = list(saved[name]), list(value.shape)
        if shape != wanted:
            name = name.removeprefix("weights/")
            raise SpyRLError(f"checkpoint {path} is of another model ({name} is of shape {shape}, not {wanted})")
    return own


def saved_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a checkpoint. Raises what the libraries raise where it cannot be read."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    found: Mapping[str, Any] = HuggingFaceStorageReader(str(path)).read_metadata().state_dict_metadata
    return {name: tuple(tensor.size) for name, tensor in found.items()}


def read_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill ``tensors`` with what a checkpoint holds under their names; of a divided one this process's part.

    Processes need not wait for one another. Raises what the libraries raise where it cannot be read.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    with plain_errors():
        load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(path)), no_dist=True)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise a `SpyRLError` for whatever keeps the checkpoint ``path`` from being read in here."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, RuntimeError, LookupError, ValueError, AssertionError, SafetensorError) as error:
        raise SpyRLError(f"checkpoint {path} cannot be read: {reason(error)}") from error


@contextmanager
def plain_errors() -> Iterator[None]:
    """For calls of PyTorch's distributed checkpoints: raise what went wrong itself, and do not warn of one process."""
    from torch.distributed.checkpoint.api import CheckpointException

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        try:
            yield
        except CheckpointException as error:
            cause, _ = next(iter(error.failures.values()))
            raise cause from error


def reason(error: Exception) -> str:
    """An error in a few words."""
    return getattr(error, "strerror", None) or first_line(error)


def _is_whole(path: Path) -> bool:
    try:
        sizes: dict[str, int] = json.loads((path / STATE).read_text(encoding="utf-8"))["sizes"]
        return all((path / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False
