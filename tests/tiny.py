"""Small models for tests: ordinary Hugging Face folders, made in a moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from spyrl.config import Config, load_config

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 16384,
}
_ARCHITECTURES = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
    "gemma": (GemmaConfig, GemmaForCausalLM),
}


def byte_tokenizer(chat_template: str | None = CHAT_TEMPLATE) -> PreTrainedTokenizerFast:
    """One token a byte, so that any text can be written and a digit is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={symbol: index for index, symbol in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in ("<|im_start|>", "<|im_end|>")])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>")
    if chat_template:
        fast.chat_template = chat_template
    return fast


def make_tiny_model(
    folder: Path,
    architecture: str = "qwen3",
    *,
    seed: int = 0,
    scale: float = 4.0,
    chat_template: str | None = CHAT_TEMPLATE,
    dtype: torch.dtype = torch.float32,
    head_dim: int = 8,
) -> Path:
    """Write a model of about 30k random parameters; ``scale`` sharpens its distributions. Returns ``folder``.

    Some engines need a larger ``head_dim``.
    """
    tokenizer = byte_tokenizer(chat_template)
    make_config, make_model = _ARCHITECTURES[architecture]
    config = make_config(
        vocab_size=len(tokenizer),
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=architecture == "gemma",
        **{**_SHAPE, "head_dim": head_dim},
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make_model(config)
        if architecture != "gemma":
            model.lm_head.weight.data.mul_(scale)
    model.to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


TINY_TASK = """
name: tiny
source: text
product: line
instructions: Go on.
criteria: Any.
performing_template: "{{ observation }} {{ said }} {{ role }} {{ player if said }}"
detecting_template: "{{ observation }} {{ outputs }} {{ voter }} {{ form }}"
"""

TINY_SETTINGS = """
model: {device: cpu, dtype: float32}
corpus: {min_words: 2}
game:
  players: 3
  output: whole
  max_tokens: 6
  max_prompt_tokens: 1000
  detectors: {view: full, count: 3, answer: direct, max_tokens: 6}
  gate: {dwell: 1, patience: 2}
training: {iterations: 6, games: 4, lr: 1.0e-3, kl: 0.01, minibatches: 2, batch_tokens: 600}
run: {checkpoint_every: 2, keep: 2}
"""


def tiny_config(folder: Path, model: Path, *words: str) -> Config:
    """A run below ``folder/runs`` with prompts of about 100 tokens; ``words`` are settings as ``key=value``."""
    folder.mkdir(parents=True, exist_ok=True)
    task, settings, corpus = folder / "tiny-task.yaml", folder / "tiny.yaml", folder / "corpus.jsonl"
    task.write_text(TINY_TASK, encoding="utf-8")
    settings.write_text(f"task: {task}{TINY_SETTINGS}", encoding="utf-8")
    documents = [{"id": f"d{number}", "text": f"doc{number} has {number} red apples"} for number in range(7)]
    corpus.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    places = (f"corpus.path={corpus}", f"model.path={model}", f"run.folder={folder / 'runs'}")
    return load_config(str(settings), [*places, "run.name=tiny", *words])


class Onlooker:
    """A watcher that only remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.phases: list[str] = []
        self.counted = 0
        self.metrics: list[dict[str, Any]] = []

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def tokens(self, count: int) -> None:
        self.counted += count

    def say(self, text: str) -> None:
        self.said.append(text)

    def iteration(self, metrics: dict[str, Any]) -> None:
        self.metrics.append(metrics)
