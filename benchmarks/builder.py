"""The builder of prefix trees: seconds for 1,000 trajectories of 12,000-token prompts, on one core.

As in the published sizes: 125 games of 8 detectors, answers of 32 tokens.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import torch

from benchmarks.measuring import Row
from spyrl.policy.trees import grow
from spyrl.training.scoring import inputs_by_game
from spyrl.training.trajectory import Trajectory


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--prompt", type=int, default=12000, metavar="TOKENS", help="prompt length (default 12000)")


def run(options: argparse.Namespace) -> list[Row]:
    """Build the trees of 125 games."""
    torch.set_num_threads(1)
    dice = random.Random(0)
    trajectories = []
    for game in range(125):
        prompt = tuple(dice.choices(range(150000), k=options.prompt))
        for _ in range(8):
            answer = tuple(dice.choices(range(150000), k=32))
            trajectories.append(Trajectory(game, "detection", "detector", prompt, answer, (), (), 0.0))
    wanted = {index: len(each.token_ids) for index, each in enumerate(trajectories)}
    spent = []
    for _ in range(options.repeats):
        begun = time.perf_counter()
        trees = [tree for inputs in inputs_by_game(trajectories) for tree in grow(inputs, 10**9, wanted)]
        spent.append(time.perf_counter() - begun)
    read = sum(len(each.prompt_ids) + len(each.token_ids) for each in trajectories)
    return [
        {
            "trajectories": len(trajectories),
            "prompt_tokens": options.prompt,
            "seconds": statistics.median(spent),
            "lowest": min(spent),
            "highest": max(spent),
            "tokens": read,
            "tokens_in_trees": sum(tree.size for tree in trees),
        }
    ]
