"""Whole iterations for the benchmarks: real settings, made-up documents, a model of SmolLM2-135M's shape."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.texts import byte_tokenizer, write_documents
from benchmarks.update import smollm2
from spyrl.config import load_config
from spyrl.runs.folder import RunFolder
from spyrl.training.iteration import Setup, run_iteration
from spyrl.training.state import State
from spyrl.training.train import prepare

PRESET = "writing-smollm2"


class Silent:
    """Watches without a word, and counts tokens."""

    def phase(self, name: str) -> None:
        """Nothing."""

    def tokens(self, count: int) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def iteration(self, metrics: dict[str, Any]) -> None:
        """Nothing."""


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Options for the model and the sizes of an iteration."""
    parser.add_argument("--model", metavar="FOLDER", help="a model (default: random weights)")
    parser.add_argument("--layers", type=int, default=30, metavar="N", help="layers of the random model (default 30)")
    parser.add_argument("--games", type=int, default=2, metavar="N", help="games an iteration (default 2)")
    parser.add_argument("--length", type=int, default=128, metavar="WORDS", help="words a document (default 128)")
    parser.add_argument("--written", type=int, default=60, metavar="TOKENS", help="tokens an output (default 60)")


def words_for(stage: str, written: int, ballot: int = 32) -> list[str]:
    """Settings of an iteration that trains ``stage``, with reasoned ballots; most tokens of an output and a ballot."""
    return [
        f"training.stages={stage}",
        "game.detectors.answer=reasoned",
        f"game.detectors.max_tokens={ballot}",
        f"game.max_tokens={written}",
        "game.max_prompt_tokens=8000",
        "training.batch_tokens=8192",
    ]


def model_folder(folder: Path, layers: int) -> Path:
    """A model of SmolLM2-135M's shape with random weights, of which every answer is as long as it may be."""
    model = smollm2(layers)
    tokenizer = byte_tokenizer()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def setup(folder: Path, model: str, words: list[str], *, games: int, length: int) -> Setup:
    """An iteration's setup: ``games`` games on documents of ``length`` words, with the settings ``words``.

    A learning rate of next to nothing keeps the model, so that every repetition is the same work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    documents = write_documents(folder / "documents.jsonl", games, length)
    config = load_config(
        PRESET,
        [
            f"model.path={model}",
            f"corpus.path={documents}",
            "corpus.column=text",
            "corpus.max_words=null",
            f"training.games={games}",
            "training.lr=1e-12",
            "game.min_tokens=1",
            *words,
        ],
    )
    run = RunFolder(folder / "run")
    if not run.path.exists():
        run.create()
    return prepare(config, run, Silent())


def play(made: Setup) -> dict[str, Any]:
    """One iteration from the beginning; all its games must be played."""
    _, metrics = run_iteration(made, State())
    assert metrics["games/played"] == made.config.training.games, metrics
    return metrics
