"""A tokenizer and texts made up for the benchmarks, so that lengths are exact and nothing is downloaded."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

_WORDS = [
    "the",
    "a",
    "of",
    "and",
    "to",
    "in",
    "it",
    "was",
    "that",
    "he",
    "she",
    "they",
    "river",
    "stone",
    "night",
    "letter",
    "garden",
    "house",
    "road",
    "winter",
    "child",
    "old",
    "new",
    "small",
    "bright",
    "never",
    "always",
    "found",
    "lost",
    "kept",
    "told",
    "walked",
    "waited",
    "turned",
    "opened",
    "because",
    "while",
    "until",
    "after",
    "before",
    "under",
    "over",
    "through",
    "without",
    "their",
    "her",
    "his",
    "own",
    "last",
    "first",
    "morning",
    "answer",
    "window",
    "voice",
    "story",
]


def byte_tokenizer() -> Any:
    """One token a byte, and an end-of-turn token; its chat template adds nothing but that."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, "<end>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")
    wrapped.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return wrapped


def words(name: str, count: int) -> str:
    """Text of ``count`` words in sentences, always the same for a name."""
    dice = random.Random(name)
    text = []
    for at in range(count):
        word = dice.choice(_WORDS)
        text.append(word.capitalize() if at % 12 == 0 else word + "." * (at % 12 == 11))
    return " ".join(text)


def write_documents(path: Path, count: int, length: int) -> Path:
    """A corpus of ``count`` documents of ``length`` words."""
    lines = [json.dumps({"text": words(f"document {number}", length)}) for number in range(count)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
