"""A policy whose work is divided among the processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spyrl.policy import Completion, Policy, Request
from spyrl.training.processes import count, gathered, rank
from spyrl.training.sharding import whole


class DividedPolicy:
    """Answers with ``policy``: every process its part of the requests, and all of them get all answers.

    All processes must ask the same. ``model`` is what ``policy`` answers with where that may be sharded.
    """

    def __init__(self, policy: Policy, model: Any | None = None) -> None:
        self.name = policy.name
        self._policy = policy
        self._model = model

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """See `Policy.generate`."""
        own = [
            request
            for request, part in zip(requests, parts([request.samples for request in requests], count()), strict=True)
            if part == rank()
        ]
        with whole(self._model):
            answers = self._policy.generate(own)
        return [completions for part in gathered(answers) for completions in part]

    def count_tokens(self, text: str) -> int:
        """See `Policy.count_tokens`."""
        return self._policy.count_tokens(text)

    def prompt_tokens(self, request: Request) -> int:
        """See `Policy.prompt_tokens`."""
        return self._policy.prompt_tokens(request)


def divided(policy: Policy, model: Any | None = None) -> Policy:
    """The policy itself where there is one process."""
    return DividedPolicy(policy, model) if count() > 1 else policy


def parts(sizes: Sequence[int], number: int) -> list[int]:
    """Which of ``number`` parts each item belongs to, so that neighbours stay together and parts are of like size.

    Requests come in order of game, and those of one game share most of their prompts, which are then read once.

    >>> parts([1, 1, 1, 1, 1], 2)
    [0, 0, 1, 1, 1]
    >>> parts([4, 1, 4, 1], 2)
    [0, 0, 1, 1]
    """
    total, before, found = sum(sizes), 0, []
    for size in sizes:
        found.append((2 * before + size) * number // (2 * total))  # by where its middle lies
        before += size
    return found
