"""Shapes: parameters are counted exactly, and models that cannot be planned are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from spyrl.errors import UsageError
from spyrl.planning.shape import KNOWN, shape_of
from spyrl.policy.models import with_adapters
from spyrl.policy.settings import LoraSettings, ModelSettings
from tiny import make_tiny_model


@pytest.mark.parametrize(
    ("path", "parameters"),
    # as the model cards' files sum up to
    [("Qwen/Qwen3-4B-Instruct-2507", 4_022_468_096), ("Qwen/Qwen3-8B", 8_190_735_360), ("smollm2", 134_515_008)],
)
def test_the_presets_models_are_known_without_a_network(path: str, parameters: int) -> None:
    shape = shape_of(ModelSettings(path))
    assert shape.parameters == parameters
    assert shape.linear + shape.head + (0 if shape.tied else shape.head) <= parameters
    assert shape.packs


def test_lora_is_counted_by_hand() -> None:
    shape = shape_of(ModelSettings("Qwen/Qwen3-4B-Instruct-2507", lora=LoraSettings(rank=16)))
    widths = [(2560, 4096), (2560, 1024), (2560, 1024), (4096, 2560), (2560, 9728), (2560, 9728), (9728, 2560)]
    assert shape.adapters == shape.trained == 36 * 16 * sum(one + other for one, other in widths)
    assert shape.parameters == 4_022_468_096


@pytest.mark.parametrize("architecture", ["qwen3", "llama", "gemma"])
@pytest.mark.parametrize("rank", [0, 4])
def test_a_local_model_is_counted_as_it_is_loaded(tmp_path: Path, architecture: str, rank: int) -> None:
    folder = make_tiny_model(tmp_path / "model", architecture)
    lora = LoraSettings(rank=rank)
    shape = shape_of(ModelSettings(str(folder), lora=lora))
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())
    if rank:
        model = with_adapters(model, lora, 0)
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert shape.trained == trained
    assert shape.tied == (architecture == "gemma")
    assert shape.qk_norm == (architecture == "qwen3")


def test_what_is_no_dense_decoder_is_refused(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model", "llama")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    mixture = {**config, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4}
    (folder / "config.json").write_text(json.dumps(mixture), encoding="utf-8")
    with pytest.raises(UsageError, match="mixture of experts"):
        shape_of(ModelSettings(str(folder)))


def test_a_model_that_is_nowhere_says_where_it_was_looked_for() -> None:
    with pytest.raises(UsageError, match="no such folder"):
        shape_of(ModelSettings("./nowhere"))
    with pytest.raises(UsageError, match=r"the Hub"):
        shape_of(ModelSettings("nobody/has-this-model"))


def test_every_known_shape_can_hold_the_published_prompts() -> None:
    assert all(config.max_position_embeddings >= 8192 for config in KNOWN.values())
