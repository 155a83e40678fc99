"""A trained model's weights as an engine that generates takes them: whole, one parameter at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spyrl.errors import UsageError

_ADAPTERS = (".lora_A.", ".lora_B.")


def check_weights(model: Any) -> None:
    """Raises `UsageError` for adapters that `Weights` cannot merge."""
    others = sorted({name.split(".lora_")[0] for name, _ in model.named_parameters() if _is_other_adapter(name)})
    if others:
        raise UsageError(
            f"model.lora.targets: the adapters of {others[0]} cannot be merged for vLLM; target linear layers only"
        )


@dataclass(frozen=True)
class Weights:
    """The weights of ``model`` as they are when they are asked for, named as in the model's folder.

    LoRA adapters are merged into what is yielded, not into the model; tied weights come once. Weights that FSDP2
    shards are gathered one parameter at a time, so every process must go through all of them.
    """

    model: Any
    dtype: torch.dtype
    """What they are handed over in."""

    @torch.no_grad()
    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        base = _base(self.model)
        for name, parameter in _own_parameters(base):
            whole = _gathered(parameter)
            layer, adapted, last = name.partition(".base_layer.")
            if adapted and last == "weight":
                whole = whole + _adapters_product(base.get_submodule(layer)).to(whole)
            yield _plain_name(name), whole.to(self.dtype)

    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and whole shapes in the order of iteration, without gathering anything."""
        return [(_plain_name(name), tuple(each.shape)) for name, each in _own_parameters(_base(self.model))]


def _base(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "peft_config") else model


def _own_parameters(base: Any) -> Iterator[tuple[str, Tensor]]:
    """The parameters but for the adapters."""
    return ((name, each) for name, each in base.named_parameters() if not any(part in name for part in _ADAPTERS))


def _plain_name(name: str) -> str:
    return name.replace(".base_layer.", ".")


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
