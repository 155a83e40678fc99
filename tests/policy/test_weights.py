"""Weights as they are handed to an engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM

from spyrl.errors import UsageError
from spyrl.policy.models import load_model, save_model
from spyrl.policy.settings import LoraSettings, ModelSettings
from spyrl.policy.weights import Weights, check_weights
from tiny import make_tiny_model


@pytest.mark.parametrize("architecture", ["qwen3", "llama", "gemma"])
def test_names_and_values_are_those_of_the_models_folder(tmp_path: Path, architecture: str) -> None:
    folder = make_tiny_model(tmp_path / "model", architecture)
    loaded = load_model(ModelSettings(path=str(folder), device="cpu"), trainable=True)
    handed = dict(Weights(loaded.model, torch.float32))
    stored = load_file(folder / "model.safetensors")
    assert set(handed) == set(stored)  # gemma's tied output layer is in neither
    assert all(torch.equal(handed[name], stored[name]) for name in stored)
    assert not any(tensor.requires_grad for tensor in handed.values())


def test_weights_come_in_the_engines_type(tiny_model: Path) -> None:
    loaded = load_model(ModelSettings(path=str(tiny_model), device="cpu"), trainable=True)
    assert {tensor.dtype for _, tensor in Weights(loaded.model, torch.bfloat16)} == {torch.bfloat16}


@pytest.mark.parametrize("architecture", ["qwen3", "gemma"])
def test_adapters_are_merged_into_what_is_handed_over_only(tmp_path: Path, architecture: str) -> None:
    folder = make_tiny_model(tmp_path / "model", architecture)
    lora = LoraSettings(rank=3, alpha=5)
    loaded = load_model(ModelSettings(path=str(folder), device="cpu", lora=lora), trainable=True)
    with torch.no_grad():
        for name, parameter in loaded.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    before = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    handed = dict(Weights(loaded.model, torch.float32))
    assert all(torch.equal(tensor, before[name]) for name, tensor in loaded.model.state_dict().items())
    save_model(loaded, tmp_path / "merged", merge=True)
    merged = dict(AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32).named_parameters())
    assert set(handed) == set(merged)
    for name, tensor in merged.items():
        assert torch.allclose(handed[name], tensor, atol=1e-5), name


def test_adapters_that_are_no_product_of_two_are_refused(tiny_model: Path) -> None:
    lora = LoraSettings(rank=2, targets=["embed_tokens", "q_proj"])
    loaded = load_model(ModelSettings(path=str(tiny_model), device="cpu", lora=lora), trainable=True)
    with pytest.raises(UsageError, match=r"model\.lora\.targets: the adapters of .*embed_tokens cannot be merged"):
        check_weights(loaded.model)


@pytest.fixture
def _one_process_of_many(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("_one_process_of_many")
@pytest.mark.parametrize("rank", [0, 3])
def test_sharded_weights_are_handed_over_whole(tiny_model: Path, rank: int) -> None:
    lora = LoraSettings(rank=rank)
    loaded = load_model(ModelSettings(path=str(tiny_model), device="cpu", lora=lora), trainable=True)
    whole = {name: tensor.clone() for name, tensor in Weights(loaded.model, torch.float32)}
    fully_shard(loaded.model, mesh=init_device_mesh("cpu", (1,)))
    assert all(isinstance(parameter, DTensor) for parameter in loaded.model.parameters())
    weights = Weights(loaded.model, torch.float32)
    handed = dict(weights)
    assert not any(isinstance(tensor, DTensor) for tensor in handed.values())
    assert all(torch.equal(handed[name], whole[name]) for name in whole)
    assert weights.shapes() == [(name, tuple(tensor.shape)) for name, tensor in handed.items()]
