"""Small models for tests: ordinary Hugging Face folders, made in a moment."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GemmaConfig, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config
from transformers import GemmaForCausalLM, LlamaForCausalLM, Qwen3ForCausalLM

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_SHAPE = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=16384,
)
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
) -> Path:
    """Write a model of about 30k random parameters; ``scale`` sharpens its distributions. Returns ``folder``."""
    tokenizer = byte_tokenizer(chat_template)
    make_config, make_model = _ARCHITECTURES[architecture]
    config = make_config(
        vocab_size=len(tokenizer),
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=architecture == "gemma",
        **_SHAPE,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make_model(config)
        if architecture != "gemma":
            model.lm_head.weight.data.mul_(scale)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
