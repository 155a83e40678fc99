"""A policy that says what a script has for a question, for tests of what is done with answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from spyrl.evaluation import models
from spyrl.evaluation.models import Contestant
from spyrl.policy import Completion, Policy, Request


class Scripted:
    """Answers a prompt with ``say(prompt, sample)``; ``None`` is an answer that failed.

    It is interrupted, as by Ctrl-C, at its call number ``stop_at`` (from 1).
    """

    context = None

    def __init__(self, name: str, say: Callable[[str, int], str | None], stop_at: int | None = None) -> None:
        self.name = name
        self.say = say
        self.stop_at = stop_at
        self.calls = 0
        self.asked: list[str] = []

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        self.calls += 1
        if self.calls == self.stop_at:
            raise KeyboardInterrupt
        self.asked += [request.messages[-1]["content"] for request in requests]
        return [
            [self._completion(request.messages[-1]["content"], sample) for sample in range(request.samples)]
            for request in requests
        ]

    def _completion(self, prompt: str, sample: int) -> Completion:
        text = self.say(prompt, sample)
        return Completion("", "failed", error="the server is on fire") if text is None else Completion(text, "stop")

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def prompt_tokens(self, request: Request) -> int:
        return len(request.messages[-1]["content"].split())


def play(monkeypatch: pytest.MonkeyPatch, **policies: Policy) -> None:
    """Let these policies be the models of their names."""

    def checked_contestant(who: Contestant, **options: object) -> Policy:
        return policies[who.name]

    monkeypatch.setattr(models, "checked_contestant", checked_contestant)
