"""Where an iteration's time goes: the share spent outside the model's forward and backward passes and its optimizer.

By phase; sampling, tokenizing, templates, trees, masks, losses, metrics and files are all outside. A model of
SmolLM2-135M's shape with random weights (``--model`` for another).
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.measuring import Row
from benchmarks.playing import add_sizes, model_folder, play, setup, words_for


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    add_sizes(parser)


def run(options: argparse.Namespace) -> list[Row]:
    """Measure iterations that train either stage."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        model = options.model or str(model_folder(Path(scratch) / "model", options.layers))
        for stage in ("detection", "performing"):
            words = words_for(stage, options.written)
            made = setup(Path(scratch) / stage, model, words, games=options.games, length=options.length)
            shares, within = [], 0.0
            play(made)
            for _ in range(options.repeats):
                with _timed(made) as spent:
                    begun = time.perf_counter()
                    metrics = play(made)
                    total = time.perf_counter() - begun
                within = spent[0]
                shares.append(1 - within / total)
            row: Row = {"stage": stage, "games": options.games, "seconds": total, "in_the_model": within}
            row |= {"outside": statistics.median(shares), "lowest": min(shares), "highest": max(shares)}
            rows.append(row | {name: metrics[f"seconds/{name}"] for name in ("deal", "settle", "record")})
    return rows


@contextmanager
def _timed(made: Any) -> Iterator[list[float]]:
    """Adds up the seconds inside forward passes, backward passes and optimizer steps."""
    spent = [0.0]

    def timing(work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)  # whose arguments are asked for
        def timed(*arguments: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            try:
                return work(*arguments, **options)
            finally:
                spent[0] += time.perf_counter() - begun

        return timed

    learner = made.learner
    models = [learner.loaded.model] + ([learner.reference] if learner.reference is not None else [])
    backward = torch.Tensor.backward
    steps = [(optimizer, optimizer.step) for optimizer in learner.optimizers.values()]
    torch.Tensor.backward = timing(backward)  # type: ignore[method-assign]
    for model in models:
        model.forward = timing(model.forward)
    for optimizer, step in steps:
        optimizer.step = timing(step)
    try:
        yield spent
    finally:
        torch.Tensor.backward = backward  # type: ignore[method-assign]
        for model in models:
            del model.forward
        for optimizer, step in steps:
            optimizer.step = step
