"""A whole iteration, against the published schedule.

The published schedule asks the players one after another, then the spy, then the detectors one after another, each
for all games in one padded batch, and learns in padded rows. Model (random weights of SmolLM2-135M's shape,
``--model`` for another), deals, sampling, samples and trajectories are the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import Row, in_turn, speedup
from benchmarks.playing import add_sizes, model_folder, play, setup, words_for
from spyrl.policy import Completion, Request
from spyrl.policy.local import LocalPolicy


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    add_sizes(parser)


def run(options: argparse.Namespace) -> list[Row]:
    """Measure iterations that train either stage, with reasoned ballots."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        model = options.model or str(model_folder(Path(scratch) / "model", options.layers))
        for stage in ("detection", "performing"):
            words = words_for(stage, options.written)
            ours = setup(Path(scratch) / stage, model, words, games=options.games, length=options.length)
            theirs = setup(
                Path(scratch) / f"{stage}-published",
                model,
                [*words, "training.packed=false"],
                games=options.games,
                length=options.length,
            )
            theirs = dataclasses.replace(
                theirs, performer=OneAfterAnother(theirs.performer), detector=OneAfterAnother(theirs.detector)
            )
            found: dict[str, Any] = {}

            def ours_once(made: Any = ours, found: dict[str, Any] = found) -> None:
                found["ours"] = play(made)

            def theirs_once(made: Any = theirs, found: dict[str, Any] = found) -> None:
                found["theirs"] = play(made)

            times = in_turn(ours_once, theirs_once, options.repeats)
            assert found["ours"]["tokens/trained"] == found["theirs"]["tokens/trained"]
            row: Row = {"stage": stage, "games": options.games, "document_words": options.length}
            row |= {"against": "published schedule"} | speedup(*times)
            for phase in ("perform", "detect", "update"):
                row[f"{phase}_speedup"] = found["theirs"][f"seconds/{phase}"] / found["ours"][f"seconds/{phase}"]
            rows.append(row)
    return rows


class OneAfterAnother:
    """A policy that answers with one sample of every request at a time, each prompt read anew."""

    def __init__(self, inner: Any) -> None:
        assert isinstance(inner, LocalPolicy)
        inner._trees = False
        self.inner = inner
        self.name = inner.name
        self.count_tokens = inner.count_tokens
        self.prompt_tokens = inner.prompt_tokens

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """Answer all requests, sample after sample."""
        answers: list[list[Completion]] = [[] for _ in requests]
        for sample in range(max((request.samples for request in requests), default=0)):
            asked = [index for index, request in enumerate(requests) if sample < request.samples]
            part = [dataclasses.replace(requests[index], seeds=(requests[index].seeds[sample],)) for index in asked]
            for index, completions in zip(asked, self.inner.generate(part), strict=True):
                answers[index] += completions
        return answers
