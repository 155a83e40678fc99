"""What a policy is: one method that answers all requests of a stage at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict

FinishReason = Literal["stop", "length", "choice", "failed"]


class Message(TypedDict):
    """One turn of a conversation, as chat templates and chat servers take it."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. ``temperature`` 0 is greedy; ``top_p`` is in (0, 1]; ``max_tokens`` is at least 1.

    An answer does not end before ``min_tokens`` (at least 0, its end-of-turn token not counted).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 4096
    min_tokens: int = 0


@dataclass(frozen=True)
class Request:
    """One prompt and how many times to answer it.

    ``begin`` is text with which the assistant's turn is begun for the model; it is prompt, never scored. With
    ``choices`` the model only chooses one of these strings as what comes next, each followed by ``closing``: its
    probabilities are renormalised over the choices. ``seeds`` names one random number a sample (see
    `spyrl.game.randomness.named_seed`), so that a sample does not depend on what it was batched with.
    """

    messages: tuple[Message, ...]
    seeds: tuple[int, ...]
    sampling: Sampling = Sampling()
    begin: str = ""
    choices: tuple[str, ...] = ()
    closing: str = ""

    @property
    def samples(self) -> int:
        """Number of completions asked for: one a seed."""
        return len(self.seeds)


@dataclass(frozen=True)
class Completion:
    """One answer to a request.

    ``text`` is the answer without the model's private reasoning, which is kept in ``reasoning``; reasoning that
    never ends leaves an empty text. ``prompt_ids`` and ``token_ids`` are what the model read and wrote;
    ``logprobs`` (natural log, one a written token) are those of the distribution at the sampling temperature, before
    ``top_p`` cuts it. All three are empty where an engine does not tell. For a choice, ``probabilities`` holds the
    exact distribution over the request's choices and ``allowed`` the token ids that could be written at each step;
    ``held_back`` are the ids that could not be written among the first ``min_tokens``.
    ``usage`` are the tokens read and written as a server counts them (private reasoning included), zeros where it does
    not tell. ``error`` says why a ``failed`` completion failed; such a completion is never scored.
    """

    text: str
    finish_reason: FinishReason
    reasoning: str = ""
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    probabilities: tuple[float, ...] = ()
    allowed: tuple[tuple[int, ...], ...] = ()
    held_back: tuple[int, ...] = ()
    min_tokens: int = 0
    usage: tuple[int, int] = (0, 0)
    error: str = ""


class Policy(Protocol):
    """Who answers: a model in this process, or a server."""

    name: str

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """Answer every request, ``samples`` times each, in the order of ``requests`` and of their seeds.

        A request that could not be answered gives ``failed`` completions; it raises
        `SpyRLError` only where no request could be, for a reason a person must mend.
        """
        ...

    def count_tokens(self, text: str) -> int:
        """Length of ``text`` in the policy's tokens, without special tokens (an estimate for a server)."""
        ...

    def prompt_tokens(self, request: Request) -> int:
        """Length of the request's whole prompt in tokens, template included (an estimate for a server)."""
        ...


def split_reasoning(text: str, *, opened: bool = False) -> tuple[str, str]:
    """Split a completion into ``(answer, reasoning)`` at the ``<think> … </think>`` of thinking models.

    ``opened`` says that the prompt itself ended inside ``<think>``, as some chat templates make it. Reasoning
    that was never closed leaves an empty answer.

    >>> split_reasoning("<think>hm</think>Three.")
    ('Three.', 'hm')
    >>> split_reasoning("never ends", opened=True)
    ('', 'never ends')
    """
    if "</think>" in text:
        reasoning, answer = text.rsplit("</think>", 1)
        return answer.lstrip("\n"), reasoning.removeprefix("<think>").strip()
    if opened or text.lstrip().startswith("<think>"):
        return "", text.lstrip().removeprefix("<think>").strip()
    return text, ""
