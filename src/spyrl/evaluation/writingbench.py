"""WritingBench's way (Wu et al. 2025, arXiv 2503.05244): every query has criteria of its own, each scored 1 to 10."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from spyrl.errors import UsageError
from spyrl.evaluation.answers import Answer, Question
from spyrl.evaluation.judge import Judge
from spyrl.policy import Message

_SYSTEM = (
    "You score one criterion of a text that answers a request, from 1 (fails it) to 10 (cannot be bettered). Look at "
    "nothing but this criterion, and use the whole scale."
)
_ASKED = (
    "Request:\n\n{query}\n\n=== Text ===\n\n{text}\n\n=== End of the text ===\n\n"
    "Criterion: {name}\n{description}\n{bands}\n"
)
_WRITTEN = 'Answer with one line: "score:" and a whole number from 1 to 10.'
_DIRECT = "Answer with the score alone, a whole number from 1 to 10."
_SCORES = tuple(str(score) for score in range(1, 11))
_BAND = re.compile(r"\d+(?:\s*[-–]\s*\d+)?")
# "score: 7", "**Score**: 7/10", '"score": 7', or nothing but the number.
_SCORE = re.compile(r"\bscore\b[^\w\n-]*(\d+)(?![\w.]*\d)|\A\W*(?<!-)(\d+)(?:\s*/\s*10)?\W*\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Criterion:
    """What is scored; ``bands`` say what a score in each part of the scale takes, as in ``("1-2", "…")``."""

    name: str
    description: str
    bands: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Query:
    """A request with its criteria."""

    id: str
    domain: str
    language: str
    text: str
    criteria: tuple[Criterion, ...]


@dataclass(frozen=True)
class Scored:
    """One answer's scores by criterion; ``None`` where a verdict could not be read or had."""

    scores: tuple[int | None, ...]

    @property
    def mean(self) -> float | None:
        """Mean of the scores that are known, 1 to 10; ``None`` without any."""
        known = [score for score in self.scores if score is not None]
        return statistics.fmean(known) if known else None


def read_queries(path: Path, limit: int | None) -> list[Query]:
    """The first ``limit`` queries of a file of JSON lines as WritingBench publishes it.

    A line has ``query`` and ``checklist`` (a list of criteria: ``name``, ``criteria_description``, and what a score
    takes under each of ``1-2`` to ``9-10``), and may have ``index``, ``domain1`` and ``lang``. Raises `UsageError` with
    the line for what cannot be read.
    """
    queries = list(islice(_queries(path), limit))
    if not queries:
        raise UsageError(f"{path} is empty: it holds no query")
    seen: set[str] = set()
    for query in queries:
        if query.id in seen:
            raise UsageError(f"{path}: two queries have the index {query.id}; indices must differ")
        seen.add(query.id)
    return queries


def score_answers(
    judge: Judge,
    queries: Sequence[Query],
    answers: Sequence[Answer],
    who: str,
    path: Path,
    seed: int,
    on_answers: Callable[[int, int], None],
) -> tuple[list[Scored], list[Answer]]:
    """Let ``judge`` score each answer by its query's criteria, and what it said; ``path`` keeps that under ``who``.

    An answer that failed has no scores. Raises what `spyrl.evaluation.answers.answers` does.
    """
    asked = [
        _question(judge, query, number, answer, who)
        for query, answer in zip(queries, answers, strict=True)
        if answer.finish_reason != "failed"
        for number in range(len(query.criteria))
    ]
    said = judge.judge(asked, path, seed, on_answers)
    scores = {each.id: None if each.finish_reason == "failed" else read_score(each.text) for each in said}
    return [
        Scored(tuple(scores.get(_id(query, number, who)) for number in range(len(query.criteria)))) for query in queries
    ], said


def read_score(text: str) -> int | None:
    """The score a judge gave, 1 to 10; ``None`` where it gave none, several, or one off the scale.

    >>> read_score("**Score**: 7/10"), read_score("7"), read_score("score: 11")
    (7, 7, None)
    """
    found = {int(match[1] or match[2]) for match in _SCORE.finditer(text.strip())}
    score = found.pop() if len(found) == 1 else 0
    return score if 1 <= score <= 10 else None


def _question(judge: Judge, query: Query, number: int, answer: Answer, who: str) -> Question:
    criterion = query.criteria[number]
    asked = _ASKED.format(
        query=query.text,
        text=answer.text.strip() or "(nothing was written)",
        name=criterion.name,
        description=criterion.description,
        bands="".join(f"{band}: {what}\n" for band, what in criterion.bands),
    )
    messages: tuple[Message, ...] = (
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": asked + (_DIRECT if judge.direct else _WRITTEN)},
    )
    if judge.direct:  # what closes a choice tells 1 from the beginning of 10
        return Question(_id(query, number, who), messages, _SCORES, "\n")
    return Question(_id(query, number, who), messages)


def _id(query: Query, number: int, who: str) -> str:
    return f"{query.id}/{who}/{number + 1}"


def _queries(path: Path) -> Iterator[Query]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {reason}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _query(line, number, f"{path}:{number}")


def _query(line: str, number: int, place: str) -> Query:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UsageError(
            f"{place}: not valid JSON: {error}; WritingBench's queries are one JSON object a line"
        ) from None
    if not isinstance(row, dict):
        raise UsageError(f"{place}: not an object with query and checklist")
    text, checklist = row.get("query"), row.get("checklist")
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{place}: no query in it; the columns there are {', '.join(row)}")
    if isinstance(checklist, str):  # some copies hold it as a string
        try:
            checklist = json.loads(checklist)
        except ValueError:
            raise UsageError(f"{place}: checklist is a string, and no JSON") from None
    if not isinstance(checklist, list) or not checklist:
        raise UsageError(
            f"{place}: no checklist in it, so there is nothing to score by; queries without criteria can be compared "
            "with spyrl eval ab"
        )
    index = row.get("index")
    return Query(
        str(number if index is None else index),
        str(row.get("domain1") or "–"),
        str(row.get("lang") or "–"),
        text,
        tuple(_criterion(each, place) for each in checklist),
    )


def _criterion(each: object, place: str) -> Criterion:
    if not isinstance(each, Mapping) or not str(each.get("name") or "").strip():
        raise UsageError(f"{place}: a criterion of the checklist has no name")
    bands: dict[str, Any] = {key: value for key, value in each.items() if _BAND.fullmatch(str(key)) and value}
    in_order = sorted(bands.items(), key=lambda band: int(re.match(r"\d+", band[0])[0]))  # type: ignore[index]
    return Criterion(
        str(each["name"]).strip(),
        str(each.get("criteria_description") or "").strip(),
        tuple((band, str(what).strip()) for band, what in in_order),
    )
