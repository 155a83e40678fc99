"""Who judges texts: a model behind an OpenAI-compatible server, or one in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spyrl.errors import UsageError
from spyrl.evaluation.answers import Answer, Question, answers
from spyrl.evaluation.models import Contestant, checked_contestant
from spyrl.policy import Policy, Sampling

DEFAULT_JUDGE = "gpt-4o"
DEFAULT_SERVER = "https://api.openai.com/v1"


@dataclass(frozen=True)
class Judge:
    """A model that judges.

    One behind a server writes its verdicts. One in this process chooses them (``direct``) in one forward pass each, as
    direct ballots are: small models cannot keep a format, and a choice is always readable.
    """

    policy: Policy
    direct: bool
    max_tokens: int
    """Most tokens of a written verdict, a judge's private reasoning included."""

    @property
    def name(self) -> str:
        """As tables and files know it."""
        return self.policy.name

    def judge(
        self, questions: Sequence[Question], path: Path, seed: int, on_answers: Callable[[int, int], None]
    ) -> list[Answer]:
        """The most likely answer to each question, kept in ``path``; see `spyrl.evaluation.answers.answers`."""
        sampling = Sampling(temperature=0.0, max_tokens=1 if self.direct else self.max_tokens)
        found = answers(self.policy, questions, path, sampling=sampling, seed=seed, on_answers=on_answers)
        return [answer for (answer,) in found]


def open_judge(
    name: str, server: str, local: str | None, *, max_tokens: int, device: str = "auto", batch_tokens: int = 32768
) -> Judge:
    """The model ``local`` in this process, else the model ``name`` behind ``server``, which must be there.

    Raises `UsageError` where the key or the model is missing, and `SpyRLError` where the server does not answer.
    """
    if local:
        policy = checked_contestant(Contestant(local, local), device=device, batch_tokens=batch_tokens)
        return Judge(policy, True, max_tokens)
    if server.rstrip("/") == DEFAULT_SERVER and not os.environ.get("OPENAI_API_KEY", "").strip():
        raise UsageError(
            f"{name} judges at {server}, which needs a key: set OPENAI_API_KEY; or name another OpenAI-compatible "
            "server (--judge-server URL --judge NAME), or a model on this machine (--judge-local PATH)"
        )
    return Judge(checked_contestant(Contestant(name, name, server)), False, max_tokens)


def tokens_told(judge: Judge, verdicts: Sequence[Answer]) -> str:
    """What the verdicts cost, in words."""
    read = sum(verdict.prompt_tokens for verdict in verdicts)
    written = sum(verdict.tokens for verdict in verdicts)
    how = "" if judge.direct else " (as the server counts them; estimated where it does not tell)"
    return f"The judge {judge.name} read {read:,} tokens and wrote {written:,} for {len(verdicts):,} questions{how}."
