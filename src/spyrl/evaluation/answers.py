"""A model's answers to questions, kept as they come: an evaluation that was killed goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spyrl.errors import SpyRLError, UsageError
from spyrl.game import named_seed
from spyrl.policy import Completion, Message, Policy, Request, Sampling

_AT_A_TIME = 16  # questions a call: what a kill can cost


@dataclass(frozen=True)
class Question:
    """What is asked, under an id that is its own among the questions of an evaluation.

    With ``choices`` the model only chooses one of them, each followed by ``closing`` (see `spyrl.policy.Request`).
    """

    id: str
    messages: tuple[Message, ...]
    choices: tuple[str, ...] = ()
    closing: str = ""


@dataclass(frozen=True)
class Answer:
    """One answer: its question's id, its number among the samples (from 0), and how it ended.

    ``tokens`` is what was written and ``prompt_tokens`` what was read for it, estimates where a server does not tell.
    An answer that ``failed`` says why in ``error``; it is never scored, and asked for again the next time.
    """

    id: str
    sample: int
    text: str
    tokens: int
    finish_reason: str
    error: str = ""
    prompt_tokens: int = 0


def answers(
    policy: Policy,
    questions: Sequence[Question],
    path: Path,
    *,
    sampling: Sampling,
    samples: int = 1,
    seed: int = 0,
    on_answers: Callable[[int, int], None] = lambda done, total: None,
) -> list[tuple[Answer, ...]]:
    """``samples`` answers to each question; those that ``path`` (JSON lines) holds are not asked for again.

    The file's first line says who answered and how. Raises `UsageError` where that differs, and `SpyRLError` where
    the file cannot be written. ``on_answers`` is told the answers that there are and how many there will be.
    """
    made_with = {"model": policy.name, "sampling": asdict(sampling), "seed": seed}
    asked = {question.id: _digest(question) for question in questions}
    if len(asked) < len(questions):
        raise UsageError("two questions have the same id")
    found = {key: answer for key, answer in _kept(path, made_with, asked).items() if key[1] < samples}
    total = len(questions) * samples
    on_answers(len(found), total)
    missing = [
        (question, [sample for sample in range(samples) if (question.id, sample) not in found])
        for question in questions
    ]
    missing = [(question, wanted) for question, wanted in missing if wanted]
    for begin in range(0, len(missing), _AT_A_TIME):
        part = missing[begin : begin + _AT_A_TIME]
        requests = [
            Request(
                question.messages,
                tuple(named_seed(seed, "answer", question.id, sample) for sample in wanted),
                sampling,
                choices=question.choices,
                closing=question.closing,
            )
            for question, wanted in part
        ]
        new = [
            _answer(policy, request, question.id, sample, completion)
            for (question, wanted), request, completions in zip(part, requests, policy.generate(requests), strict=True)
            for sample, completion in zip(wanted, completions, strict=True)
        ]
        append_lines(
            path, [{"asked": asked[each.id], **asdict(each)} for each in new if each.finish_reason != "failed"]
        )
        found |= {(each.id, each.sample): each for each in new}
        on_answers(len(found), total)
    return [tuple(found[question.id, sample] for sample in range(samples)) for question in questions]


def read_lines(path: Path, made_with: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines whose first says what it was ``made_with``; it is begun where it is not there.

    A last line that a kill cut off is taken away. Raises `UsageError` where the file was made with something else.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            append_lines(path, [{"made_with": made_with}])
            return []
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]  # as bytes: a kill can cut a character, too
        if whole != data:
            path.write_bytes(whole)
        # Not splitlines(), which also splits at characters that a text may hold, such as U+2028.
        rows: list[dict[str, Any]] = [json.loads(line) for line in whole.decode("utf-8").split("\n")[:-1]]
        before = rows[0].pop("made_with") if rows else None
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path} was not written by spyrl, or is damaged; move it away, or choose another --to"
        ) from None
    except OSError as error:
        raise SpyRLError(f"cannot use {path}: {error.strerror or error}") from error
    if before is None:
        append_lines(path, [{"made_with": made_with}])
        return []
    wanted = json.loads(json.dumps(made_with))
    if before != wanted:
        differing = [key for key in {**before, **wanted} if before.get(key) != wanted.get(key)]
        told = "; ".join(f"{key} was {before.get(key)!r} and is {wanted.get(key)!r}" for key in differing)
        raise UsageError(f"{path} was made with other settings ({told}); choose another --to, or move it away")
    return rows[1:]


def append_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to such a file. Raises `SpyRLError` where they cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    except OSError as error:
        raise SpyRLError(
            f"cannot write {path}: {error.strerror or error}; make room and run the command again"
        ) from error


def _kept(path: Path, made_with: Mapping[str, Any], asked: Mapping[str, str]) -> dict[tuple[str, int], Answer]:
    found = {}
    for row in read_lines(path, made_with):
        if asked.get(row["id"], row["asked"]) != row["asked"]:
            raise UsageError(f"{path} answers another question {row['id']!r}; choose another --to, or move it away")
        answer = Answer(**{key: value for key, value in row.items() if key != "asked"})
        found[answer.id, answer.sample] = answer
    return {key: answer for key, answer in found.items() if key[0] in asked}


def _answer(policy: Policy, request: Request, name: str, sample: int, completion: Completion) -> Answer:
    read, written = completion.usage
    return Answer(
        name,
        sample,
        completion.text,
        len(completion.token_ids) or written or policy.count_tokens(completion.text),
        completion.finish_reason,
        completion.error,
        len(completion.prompt_ids) or read or policy.prompt_tokens(request),
    )


def _digest(question: Question) -> str:
    asked = [question.messages, question.choices, question.closing] if question.choices else question.messages
    return hashlib.sha256(json.dumps(asked, ensure_ascii=False).encode()).hexdigest()[:16]
