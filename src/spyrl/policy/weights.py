"""A trained model's weights as an engine that generates takes them: whole, one parameter at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from spyrl.errors import UsageError

_ADAPTERS = (".lora_A.", ".lora_B.")


def check_weights(model: Any) -> None:
    """Raises `UsageError` for adapters that `whole_weights` cannot merge."""
    others = sorted({name.split(".lora_")[0] for name, _ in model.named_parameters() if _is_other_adapter(name)})
    if others:
        raise UsageError(
            f"model.lora.targets: the adapters of {others[0]} cannot be merged for vLLM; target linear layers only"
        )


@torch.no_grad()
def whole_weights(model: Any, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Names as in the model's folder, and tensors in ``dtype`` on the model's device.

    LoRA adapters are merged into what is yielded, not into the model; tied weights come once. Weights that FSDP2
    shards are gathered here, one parameter at a time, so every process must go through all of them.
    """
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    for name, parameter in base.named_parameters():
        if any(part in name for part in _ADAPTERS):
            continue
        whole = _gathered(parameter)
        layer, adapted, last = name.partition(".base_layer.")
        if adapted and last == "weight":
            whole = whole + _adapters_product(base.get_submodule(layer)).to(whole)
        yield f"{layer}.{last}" if adapted else name, whole.to(dtype)


def _adapters_product(layer: Any) -> Tensor:
    """What a layer's adapters add to its weight: B·A times their scale."""
    total: Any = 0
    for adapter in layer.active_adapters:
        up, down = (_gathered(part[adapter].weight).float() for part in (layer.lora_B, layer.lora_A))
        total = total + layer.scaling[adapter] * (up @ down)
    product: Tensor = total.T if layer.fan_in_fan_out else total
    return product


def _gathered(parameter: Tensor) -> Tensor:
    whole: Tensor = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter.detach()
    return whole


def _is_other_adapter(name: str) -> bool:
    return ".lora_" in name and not any(part in name for part in _ADAPTERS)
