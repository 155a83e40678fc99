"""A model whose weights, gradients and optimiser state are divided among the processes: PyTorch's FSDP2.

Each layer's weights are brought together for its forward and its backward pass and let go again (Zhao et al. 2023,
"PyTorch FSDP", arXiv 2304.11277). So every process must make the same forward and backward passes in the same order,
or be `whole` while it makes its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from spyrl.training.processes import count


def shard(model: Any, device: torch.device, dtype: torch.dtype, *, offload: bool = False) -> None:
    """Divide the weights of a transformers model, in place, layer by layer.

    Layers are gathered and compute in ``dtype``; gradients are added up in float32. With ``offload`` the weights wait
    in main memory.
    """
    options: dict[str, Any] = {
        "mesh": init_device_mesh(device.type, (count(),)),
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=None if dtype == torch.float32 else dtype, reduce_dtype=torch.float32, cast_forward_inputs=False
        ),
        "offload_policy": CPUOffloadPolicy(pin_memory=device.type == "cuda") if offload else OffloadPolicy(),
        "reshard_after_forward": True,
    }
    layers = set(getattr(model, "_no_split_modules", None) or ())
    for module in list(model.modules()):
        if type(module).__name__ in layers:
            fully_shard(module, **options)
    fully_shard(model, **options)


def is_sharded(model: Any) -> bool:
    """Whether `shard` divided it."""
    return isinstance(model, FSDPModule)


@contextmanager
def whole(model: Any | None) -> Iterator[None]:
    """All of a sharded model's weights on every process while this lasts, for forward passes of any number.

    All processes must enter it. Weights are in the type that the model computes in.
    """
    modules = model.modules() if model is not None and is_sharded(model) else []
    parts = [module for module in modules if isinstance(module, FSDPModule)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    yield  # after an error the run ends
    for part in parts:
        part.reshard()
        part.set_reshard_after_forward(True, recurse=False)
