"""How an iteration grows: seconds and peak memory against games, players, detectors and prompt length.

Each size runs in a process of its own; the exponent is the slope of log seconds over log size (1: twice the size
takes twice as long). A model of SmolLM2-135M's shape with few layers and random weights.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measuring import Row, apart, peak_memory
from benchmarks.playing import model_folder, play, setup, words_for

SIZES = {
    "games": [2, 4, 8, 16],
    "players": [3, 5, 8, 12],
    "detectors": [4, 8, 16, 32],
    "words": [100, 200, 400, 800],
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--layers", type=int, default=4, metavar="N", help="layers of the model (default 4)")
    parser.add_argument("--only", nargs="+", choices=list(SIZES), default=list(SIZES), help="what to vary")
    parser.add_argument("--most", type=int, metavar="N", help="leave out sizes above this")


def run(options: argparse.Namespace) -> list[Row]:
    """Measure every size, and fit the exponents."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        model = str(model_folder(Path(scratch) / "model", options.layers))
        for what in options.only:
            found: list[Row] = []
            for size in SIZES[what]:
                if options.most and size > options.most:
                    continue
                folder = str(Path(scratch) / f"{what}-{size}")
                seconds, memory = apart(_measure, folder, model, {what: size}, options.repeats)
                found.append({"varied": what, "size": size, "seconds": seconds, "peak_mb": memory})
            sizes, times = ([float(row[key]) for row in found] for key in ("size", "seconds"))
            exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0]) if len(found) > 1 else float("nan")
            rows += [row | {"exponent": exponent} for row in found]
    return rows


def _measure(folder: str, model: str, sizes: dict[str, int], repeats: int) -> tuple[float, float]:
    chosen = {"games": 4, "players": 5, "detectors": 8, "words": 100} | sizes
    words = [
        *words_for("performing", 40, ballot=16),
        f"game.players={chosen['players']}",
        f"game.detectors.count={chosen['detectors']}",
    ]
    made = setup(Path(folder), model, words, games=chosen["games"], length=chosen["words"])
    play(made)
    spent = []
    for _ in range(repeats):
        begun = time.perf_counter()
        play(made)
        spent.append(time.perf_counter() - begun)
    return statistics.median(spent), peak_memory()
