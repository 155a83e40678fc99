"""What a scoring by WritingBench's criteria found, as tables and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spyrl.evaluation.answers import Answer
from spyrl.evaluation.judge import Judge, tokens_told
from spyrl.evaluation.results import Evaluation, Score
from spyrl.evaluation.sheets import Sheet
from spyrl.evaluation.statistics import Interval, interval, paired
from spyrl.evaluation.writingbench import Query, Scored


@dataclass(frozen=True)
class Written:
    """What one model wrote and what was said of it, a row a query; ``verdicts`` are the judge's answers."""

    name: str
    answers: Sequence[Answer]
    scored: Sequence[Scored]
    verdicts: Sequence[Answer]


def writingbench_evaluation(
    queries: Sequence[Query],
    model: Written,
    base: Written | None,
    *,
    judge: Judge,
    dataset: str,
    settings: Mapping[str, Any],
) -> Evaluation:
    """The tables, scores and notes: overall, by domain and by language."""
    groups = [("overall", list(range(len(queries))))]
    for kind in ("domain", "language"):
        values = dict.fromkeys(str(getattr(query, kind)) for query in queries)
        if len(values) > 1:
            groups += [
                (value, [row for row, query in enumerate(queries) if getattr(query, kind) == value]) for value in values
            ]
    both = (model, base) if base else (model,)
    compared = ("base", "difference", "p") if base else ()
    columns = ("group", "queries", "score" if base is None else "model", *compared)
    title = f"WritingBench scores (1–10), judged by {judge.name}"
    sheets = [
        Sheet(title, columns, tuple(_row(name, rows, model, base) for name, rows in groups)),
        Sheet(
            "what was written, and what could not be scored",
            ("who", "tokens", "cut off", "failed", "unreadable scores", "failed scores"),
            tuple(_counts(each) for each in both),
        ),
    ]
    notes = ["A query's score is the mean over its criteria, a row the mean over queries with its 95 % t interval."]
    if base:
        notes.append("Difference: of the queries that both have a score for; p by a paired t test.")
    verdicts = [verdict for each in both for verdict in each.verdicts]
    failed = [each for part in both for each in (*part.answers, *part.verdicts) if each.finish_reason == "failed"]
    if failed:
        notes.append(f"{len(failed)} answers failed ({failed[0].error}); the same command asks again.")
    notes.append(tokens_told(judge, verdicts))
    scores = []
    for name, rows in groups:
        found, other = _interval(model, rows), _interval(base, rows) if base else None
        if found:
            metric = "WritingBench score (1-10)" if name == "overall" else f"WritingBench score (1-10), {name}"
            scores.append(
                Score(dataset, metric, found.mean, found.low, found.high, found.count, other.mean if other else None)
            )
    return Evaluation(
        "writingbench",
        f"WritingBench: {model.name}" + (f" and {base.name}" if base else ""),
        model.name,
        base.name if base else None,
        settings,
        tuple(sheets),
        tuple(scores),
        tuple(notes),
    )


def _row(name: str, rows: Sequence[int], model: Written, base: Written | None) -> tuple[str, ...]:
    found = _interval(model, rows)
    row = (name, str(found.count if found else 0), _told(found))
    if base is None:
        return row
    pairs = [(mine, theirs) for at in rows if (mine := model.scored[at].mean) and (theirs := base.scored[at].mean)]
    if not pairs:
        return (*row, _told(_interval(base, rows)), "–", "–")
    test = paired([mine for mine, _ in pairs], [theirs for _, theirs in pairs])
    p = "–" if test.p is None else f"{test.p:.3f}" if test.p >= 0.001 else "<0.001"
    return (*row, _told(_interval(base, rows)), _told(test.difference, "+"), p)


def _interval(written: Written, rows: Sequence[int]) -> Interval | None:
    known = [mean for at in rows if (mean := written.scored[at].mean) is not None]
    return interval(known) if known else None


def _told(found: Interval | None, sign: str = "") -> str:
    if found is None:
        return "–"
    return f"{found.mean:{sign}.2f}" + ("" if found.half is None else f" ±{found.half:.2f}")


def _counts(written: Written) -> tuple[str, ...]:
    there = [answer for answer in written.answers if answer.finish_reason != "failed"]
    failed_scores = sum(verdict.finish_reason == "failed" for verdict in written.verdicts)
    unknown = sum(
        score is None
        for answer, scored in zip(written.answers, written.scored, strict=True)
        if answer.finish_reason != "failed"
        for score in scored.scores
    )
    return (
        written.name,
        f"{sum(answer.tokens for answer in there) / len(there):.0f}" if there else "–",
        f"{sum(answer.finish_reason == 'length' for answer in there) / len(there):.0%}" if there else "–",
        str(len(written.answers) - len(there)),
        f"{unknown - failed_scores} of {len(written.verdicts)}",
        str(failed_scores),
    )
