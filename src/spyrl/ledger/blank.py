"""A blank model for the ledger: a word-level tokenizer with a chat template, and a Qwen3 of 172 thousand weights."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import Sequence as Steps
from tokenizers.pre_tokenizers import Split, WhitespaceSplit
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from spyrl.corpus.ledger import MOST_PLAYERS, NAMES, OBJECTS, UNKNOWN

_SPECIAL = ("<pad>", "<unk>", "<user>", "<end>", "<assistant>")
_WORDS = ("_", UNKNOWN, "civilian", "spy", "detector", "\\boxed{", "}", "N/A")
_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}> {{ message.content }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def blank_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, names with their colon; a run of underscores is one token, and line breaks are none."""
    numbers = [str(number) for number in range(1, MOST_PLAYERS + 1)]
    vocabulary = [*_SPECIAL, *_WORDS, *numbers, *(name + ":" for name in NAMES), *OBJECTS]
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.normalizer = Replace(Regex("_+"), "_")
    tokenizer.pre_tokenizer = Steps([WhitespaceSplit(), Split(Regex(r"\\boxed\{|\}"), "isolated")])
    wrapped = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<end>",
        additional_special_tokens=["<user>", "<assistant>"],
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = _TEMPLATE
    return wrapped


def blank_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A model with weights drawn from torch's global generator."""
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config.eos_token_id = end
    model.generation_config.pad_token_id = pad
    return model
