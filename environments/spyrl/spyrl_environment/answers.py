"""A policy whose answers come in later.

`spyrl.play` plays its stages with a policy whose one method returns all answers, and an engine's agents answer when
they are awaited. But a stage is a function of the deal and the answers alone, and each answer has a name, its seed: so
a stage is played again and again with the answers there are, and the first to lack some says what is to be asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spyrl.policy import Completion, Request


class Counts(Protocol):
    """How long texts and prompts are, in tokens; see `spyrl.policy.Policy`."""

    def count_tokens(self, text: str) -> int:
        """Length of a text."""
        ...

    def prompt_tokens(self, request: Request) -> int:
        """Length of a whole prompt."""
        ...


class UnansweredError(Exception):
    """Some of the samples that a stage asks for are not there yet."""

    def __init__(self, missing: Sequence[tuple[int, Request]]) -> None:
        super().__init__(f"{len(missing)} answers are missing")
        self.missing = missing


@dataclass
class Answers:
    """A `spyrl.policy.Policy` that knows its answers by their seeds, and raises `UnansweredError` for others."""

    known: Mapping[int, Completion]
    counts: Counts
    name: str = "verifiers"

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """See `spyrl.policy.Policy.generate`."""
        missing = [(seed, request) for request in requests for seed in request.seeds if seed not in self.known]
        if missing:
            raise UnansweredError(missing)
        return [[self.known[seed] for seed in request.seeds] for request in requests]

    def count_tokens(self, text: str) -> int:
        """See `spyrl.policy.Policy.count_tokens`."""
        return self.counts.count_tokens(text)

    def prompt_tokens(self, request: Request) -> int:
        """See `spyrl.policy.Policy.prompt_tokens`."""
        return self.counts.prompt_tokens(request)
