"""The update: prefix trees against padded rows and against TRL's GRPO loss, on the same trajectories.

A Llama of SmolLM2-135M's shape with random weights (``--layers`` for fewer of its 30 layers, alike for all), float32.
One game: detection is 8 reasoned answers to one prompt, performing 5 players with the spy's copy differing from 40 %
of the prompt on for 20 % of it. Padded rows run in one pass; TRL's (``pip install trl``) in micro-batches of no more
tokens than the tree has.
"""

from __future__ import annotations

import argparse
import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.measuring import Row, apart, in_turn, matrix_speed, peak_above, speedup
from benchmarks.trl_loss import trl_update
from spyrl.planning.shape import KNOWN, shape_of
from spyrl.planning.work import backward_flops, forward_flops
from spyrl.policy.attention import NAME
from spyrl.policy.models import EMBEDDED
from spyrl.policy.settings import ModelSettings
from spyrl.training.scoring import batches, score
from spyrl.training.trajectory import Trajectory

CPU = torch.device("cpu")
VOCABULARY = 49152


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--layers", type=int, default=30, metavar="N", help="layers of the model (default 30)")
    parser.add_argument(
        "--prompts", type=int, nargs="+", default=[250, 600, 1000, 4000], metavar="TOKENS", help="prompt lengths"
    )
    parser.add_argument(
        "--against", nargs="+", choices=["padded", "trl"], default=["padded", "trl"], help="what to measure against"
    )
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES), help="default: both")
    parser.add_argument("--no-memory", action="store_true", help="leave out memory, which takes longer")


def run(options: argparse.Namespace) -> list[Row]:
    """Measure all stages and prompt lengths."""
    rows: list[Row] = []
    for length in options.prompts:
        for stage in options.stages:
            trajectories = STAGES[stage](length)
            ours = None if options.no_memory else peak_above(_prepared, options.layers, trajectories, "packed")
            for against in options.against:
                row: Row = {"stage": stage, "prompt_tokens": length, "against": against}
                before = matrix_speed()
                row |= speedup(*apart(_times, options.layers, trajectories, against, options.repeats))
                if ours is not None:
                    other = peak_above(_prepared, options.layers, trajectories, against)
                    row |= {"memory_mb": ours, "against_mb": other, "memory_ratio": ours / other}
                computed = sum(batch.ids.numel() for batch in batches(trajectories, 10**9, CPU))
                row["computed_over_distinct"] = computed / distinct_tokens(trajectories)
                speed = max(before, matrix_speed())  # a machine that others use, too, has better and worse moments
                row["of_bound"] = flops(trajectories, options.layers) / speed / float(row["seconds"])
                rows.append(row)
    return rows


def smollm2(layers: int) -> Any:
    """A model of SmolLM2-135M's shape."""
    torch.manual_seed(0)
    shape = {**KNOWN[EMBEDDED].to_dict(), "num_hidden_layers": layers, "vocab_size": VOCABULARY}
    config = LlamaConfig(**shape)
    model = LlamaForCausalLM(config)
    model.set_attn_implementation(NAME)
    return model


def detection(prompt: int, answers: int = 8, written: int = 32) -> list[Trajectory]:
    """Answers to one prompt."""
    dice = random.Random(0)
    asked = _tokens(dice, prompt)
    return [
        Trajectory(0, "detection", "detector", asked, _tokens(dice, written), (), (), dice.gauss(0, 1))
        for _ in range(answers)
    ]


def performing(prompt: int, players: int = 5, written: int = 150) -> list[Trajectory]:
    """Outputs of players, the first of which is the spy."""
    dice = random.Random(1)
    asked = _tokens(dice, prompt)
    begin, end = int(0.4 * prompt), int(0.6 * prompt)
    spied = asked[:begin] + _tokens(dice, end - begin) + asked[end:]
    return [
        Trajectory(
            0, "performing", "civilian", asked if player else spied, _tokens(dice, written), (), (), dice.gauss(0, 1)
        )
        for player in range(players)
    ]


def distinct_tokens(trajectories: Sequence[Trajectory]) -> int:
    """Tokens that any way to compute this must read: each distinct beginning's last one."""
    return len(_distinct(trajectories))


def _distinct(trajectories: Sequence[Trajectory]) -> dict[bytes, int]:
    """The depths of all distinct beginnings, by a digest of each."""
    found: dict[bytes, int] = {}
    for each in trajectories:
        digest = hashlib.sha256()
        for depth, token in enumerate(each.prompt_ids + each.token_ids[:-1], 1):
            digest.update(token.to_bytes(4, "big"))
            found[digest.digest()] = depth
    return found


def flops(trajectories: Sequence[Trajectory], layers: int) -> float:
    """FLOPs of a forward and backward pass over the distinct tokens alone: no way to compute the update needs fewer."""
    depths = _distinct(trajectories).values()
    scored = sum(len(each.token_ids) for each in trajectories)
    whole = shape_of(ModelSettings(path=EMBEDDED))
    shape = replace(whole, layers=layers, linear=whole.linear // whole.layers * layers, head=whole.hidden * VOCABULARY)
    work = (shape, len(depths), sum(depths), scored)
    return forward_flops(*work) + backward_flops(*work)


def _times(
    layers: int, trajectories: Sequence[Trajectory], against: str, repeats: int
) -> tuple[list[float], list[float]]:
    model = smollm2(layers)
    return in_turn(_work(model, trajectories, "packed"), _work(model, trajectories, against), repeats)


def _prepared(layers: int, trajectories: Sequence[Trajectory], how: str) -> Callable[[], None]:
    return _work(smollm2(layers), trajectories, how)


def _work(model: Any, trajectories: Sequence[Trajectory], how: str) -> Callable[[], None]:
    """One forward and backward pass over all trajectories, into gradients that are there already."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    if how == "trl":
        tokens = sum(batch.ids.numel() for batch in batches(trajectories, 10**9, CPU))
        return trl_update(model, trajectories, tokens)

    def work() -> None:
        for batch in batches(trajectories, 10**9, CPU, packed=how == "packed"):
            lengths = [len(trajectories[index].token_ids) for index in batch.members]
            weights = torch.tensor([trajectories[index].advantage for index in batch.members])
            scores = score(model, trajectories, batch, 1.0, entropy_gradient=False)
            (scores.logprobs * weights.repeat_interleave(torch.tensor(lengths))).sum().backward()

    return work


def _tokens(dice: random.Random, count: int) -> tuple[int, ...]:
    return tuple(dice.choices(range(VOCABULARY), k=count))


STAGES = {"detection": detection, "performing": performing}
