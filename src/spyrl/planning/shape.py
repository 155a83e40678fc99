"""A model's shape: its numbers, from ``config.json`` alone; no weight is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, Qwen3Config

from spyrl.errors import UsageError, first_line
from spyrl.policy.models import BUNDLED_PREFIX, EMBEDDED, EMBEDDED_HUB_ID, cache_folder, resolve, with_adapters
from spyrl.policy.settings import ModelSettings

_QWEN3_4B = Qwen3Config(
    vocab_size=151936,
    hidden_size=2560,
    intermediate_size=9728,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=262144,
    tie_word_embeddings=True,
)
_QWEN3_8B = Qwen3Config(
    vocab_size=151936,
    hidden_size=4096,
    intermediate_size=12288,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=40960,
    tie_word_embeddings=False,
)
_SMOLLM2_135M = LlamaConfig(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    head_dim=64,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
)
KNOWN: dict[str, Any] = {
    "Qwen/Qwen3-4B-Instruct-2507": _QWEN3_4B,
    "Qwen/Qwen3-8B": _QWEN3_8B,
    EMBEDDED: _SMOLLM2_135M,
    EMBEDDED_HUB_ID: _SMOLLM2_135M,
}
"""The presets' models, so that their runs are planned without a network: as their config.json on the Hub says."""


@dataclass(frozen=True)
class Shape:
    """A decoder's numbers. ``parameters`` are the model's own, ``adapters`` those that LoRA adds (0: none).

    ``linear`` are the weights that every token is multiplied with in the layers, ``head`` those of the output layer
    (``tied``: the embedding's), ``largest`` those of the largest tensor. ``packs`` says whether its layers can read
    prefix trees, ``qk_norm`` whether it normalises queries and keys.
    """

    name: str
    parameters: int
    adapters: int
    lora_rank: int
    linear: int
    head: int
    largest: int
    layers: int
    hidden: int
    mlp: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    tied: bool
    qk_norm: bool
    packs: bool
    context: int | None

    @property
    def queries(self) -> int:
        """Width of a token's queries."""
        return self.heads * self.head_size

    @property
    def keys(self) -> int:
        """Width of a token's keys, and of its values."""
        return self.kv_heads * self.head_size

    @property
    def trained(self) -> int:
        """Parameters that are trained."""
        return self.adapters or self.parameters


def local_folder(path: str) -> Path | None:
    """The folder of a model that is on this machine, or ``None`` for one that would have to be fetched."""
    if path == EMBEDDED:
        folder = cache_folder() / "models" / EMBEDDED
        return folder if (folder / "config.json").is_file() else None
    if path.startswith(BUNDLED_PREFIX) or Path(path).expanduser().is_dir():
        return resolve(path)
    return None


def shape_of(settings: ModelSettings) -> Shape:
    """The shape of ``settings.path`` with its adapters, every parameter counted on torch's meta device.

    A local folder, bundled or known model needs no network; of another on the Hub only ``config.json`` is fetched.
    Raises `UsageError` where there is no such model, or one that is no dense decoder (experts, recurrent layers).
    """
    config = _config(settings.path)
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ("full_attention",))
    recurrent = kinds - {"full_attention", "sliding_attention", "chunked_attention"}
    if recurrent:
        raise UsageError(f"{settings.path} has layers that are no attention ({', '.join(sorted(recurrent))}); {_ONLY}")
    with torch.device("meta"):
        try:
            model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        except ValueError as error:
            raise UsageError(f"{settings.path} is no causal language model: {first_line(error)}") from None
        own = list(model.parameters())
        if any(parameter.ndim > 2 for parameter in own) or getattr(text, "num_local_experts", None):
            raise UsageError(f"{settings.path} is a mixture of experts; {_ONLY}")
        parameters = sum(parameter.numel() for parameter in own)
        head = model.get_output_embeddings()
        embeddings = {id(each.weight) for each in model.modules() if isinstance(each, torch.nn.Embedding)}
        skipped = embeddings | {id(head.weight)}
        linear = sum(each.numel() for each in own if each.ndim == 2 and id(each) not in skipped)
        tied = bool(id(head.weight) in embeddings or text.tie_word_embeddings)
        largest = max(parameter.numel() for parameter in own)
        qk_norm = any(name.endswith("q_norm.weight") for name, _ in model.named_parameters())
        adapters = 0
        if settings.lora.rank:
            model = with_adapters(model, settings.lora, 0)
            adapters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    heads = text.num_attention_heads
    return Shape(
        name=settings.path,
        parameters=parameters,
        adapters=adapters,
        lora_rank=settings.lora.rank,
        linear=linear,
        head=head.weight.numel(),
        largest=largest,
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        mlp=text.intermediate_size,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_size=getattr(text, "head_dim", None) or text.hidden_size // heads,
        vocabulary=text.vocab_size,
        tied=tied,
        qk_norm=qk_norm,
        packs=kinds == {"full_attention"},
        context=getattr(text, "max_position_embeddings", None),
    )


_ONLY = "plans are for dense decoders with attention in every layer"


def _config(path: str) -> Any:
    folder = local_folder(path)
    if folder is None and path in KNOWN:
        return KNOWN[path]
    if folder is None:
        resolve_name = path.count("/") == 1 and not path.startswith((".", "/", "~"))
        if not resolve_name:
            raise UsageError(f"model {path!r} was not found: there is no such folder, and it is no Hub id (owner/name)")
    try:
        return AutoConfig.from_pretrained(folder or path)
    except Exception as error:  # files that are no model's make loaders raise what they like
        where = folder or "the Hub"
        raise UsageError(f"the config.json of {path!r} could not be read from {where}: {first_line(error)}") from None
