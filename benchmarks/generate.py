"""Generating a stage: all requests in one call, against transformers' ``model.generate`` on the same requests.

``one game at a time`` generates for each game by itself; ``one batch`` pads all prompts into one, with
``num_return_sequences`` where all prompts have as many samples. A Llama of SmolLM2-135M's shape with random weights
(``--layers`` for fewer), float32; every sample is written to its full length by all. Detection is 8 answers of 32
tokens to a prompt a game, performing 4 civilians' outputs to one prompt and the spy's to one that differs from 40 %
on, 100 tokens.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.measuring import Row, in_turn, speedup
from benchmarks.texts import byte_tokenizer
from benchmarks.update import smollm2
from spyrl.game import generator
from spyrl.policy import Message, Request, Sampling
from spyrl.policy.attention import NAME
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import LoadedModel
from spyrl.policy.prefill import left_padded

_LETTERS = "abcdefghijklmnopqrstuvwxyz     "


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--layers", type=int, default=30, metavar="N", help="layers of the model (default 30)")
    parser.add_argument("--games", type=int, default=4, metavar="N", help="games (default 4)")
    parser.add_argument(
        "--prompts", type=int, nargs="+", default=[250, 1000], metavar="TOKENS", help="prompt lengths (250 and 1000)"
    )
    parser.add_argument("--written", type=int, metavar="TOKENS", help="tokens a sample (32 and 100)")


def run(options: argparse.Namespace) -> list[Row]:
    """Measure both stages at all prompt lengths."""
    loaded = LoadedModel(
        smollm2(options.layers), byte_tokenizer(), Path(), "random", torch.device("cpu"), torch.float32
    )
    loaded.model.generation_config.eos_token_id = loaded.tokenizer.eos_token_id
    rows: list[Row] = []
    for length in options.prompts:
        for stage in ("detection", "performing"):
            games = [_game(stage, number, length, options.written) for number in range(options.games)]
            ours = _ours(loaded, games)
            for against, theirs in (
                ("one game at a time", _theirs(loaded, games)),
                ("one batch", _theirs(loaded, [[request for game in games for request in game]])),
            ):
                row: Row = {"stage": stage, "prompt_tokens": length, "against": against}
                rows.append(row | speedup(*in_turn(ours, theirs, options.repeats)))
    return rows


def _game(stage: str, number: int, length: int, written: int | None) -> list[Request]:
    tokens = written or (32 if stage == "detection" else 100)
    sampling = Sampling(1.0, 1.0, tokens, tokens)
    text = "".join(generator(number, stage).choices(_LETTERS, k=length))
    if stage == "detection":
        return [Request(_asked(text), tuple(range(8)), sampling)]
    hidden = "".join(generator(number, "hidden").choices(_LETTERS, k=length // 5))
    begin = int(0.4 * length)
    spied = text[:begin] + hidden + text[begin + len(hidden) :]
    return [Request(_asked(text), (0, 1, 2, 3), sampling), Request(_asked(spied), (4,), sampling)]


def _asked(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


def _ours(loaded: LoadedModel, games: Sequence[Sequence[Request]]) -> Callable[[], Any]:
    policy = LocalPolicy(loaded, batch_tokens=10**9)
    return lambda: policy.generate([request for game in games for request in game])


def _theirs(loaded: LoadedModel, calls: Sequence[Sequence[Request]]) -> Callable[[], None]:
    """transformers, one call after another."""
    batches = []
    for requests in calls:
        counts = {request.samples for request in requests}
        alike = len(counts) == 1
        prompts = [
            loaded.tokenizer(request.messages[0]["content"])["input_ids"]
            for request in requests
            for _ in range(1 if alike else request.samples)
        ]
        batches.append((*left_padded(prompts, loaded.device), counts.pop() if alike else 1))
    tokens = calls[0][0].sampling.max_tokens

    def work() -> None:
        loaded.model.set_attn_implementation("sdpa")
        torch.manual_seed(0)
        with torch.inference_mode():
            for ids, mask, count in batches:
                written = loaded.model.generate(
                    ids,
                    attention_mask=mask,
                    do_sample=True,
                    num_return_sequences=count,
                    min_new_tokens=tokens,
                    max_new_tokens=tokens,
                    pad_token_id=loaded.tokenizer.eos_token_id,
                )
                assert written.shape == (len(ids) * count, ids.shape[1] + tokens)
        loaded.model.set_attn_implementation(NAME)

    return work
