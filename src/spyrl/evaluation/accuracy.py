"""Accuracy on benchmarks: answers checked, means and pass@k by question, a trained model beside its base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spyrl.evaluation.answers import Answer
from spyrl.evaluation.benchmarks import BENCHMARKS, Benchmark, Item
from spyrl.evaluation.equality import same
from spyrl.evaluation.final_answers import LETTERS, Found, chosen, final_answer
from spyrl.evaluation.results import Evaluation, Score
from spyrl.evaluation.sheets import Sheet
from spyrl.evaluation.statistics import (
    Interval,
    Paired,
    average,
    average_paired,
    paired,
    pass_at_k,
    share,
    standard_error,
)


@dataclass(frozen=True)
class Verdict:
    """One answer, checked: what was read as its final answer, where, and whether it is right.

    ``finished`` is false where math-verify gave up on it; it counts as wrong.
    """

    id: str
    sample: int
    right: bool
    read: str
    found: Found
    finished: bool


@dataclass(frozen=True)
class Checked:
    """A model's answers to a benchmark: one tuple a question, in their order; failed answers have no verdict."""

    benchmark: Benchmark
    answers: tuple[tuple[Answer, ...], ...]
    verdicts: tuple[tuple[Verdict, ...], ...]

    @property
    def shares(self) -> dict[int, float]:
        """By question (from 0), the share of its samples that are right; a question without a verdict has none."""
        return {
            number: sum(verdict.right for verdict in verdicts) / len(verdicts)
            for number, verdicts in enumerate(self.verdicts)
            if verdicts
        }

    def passes(self, k: int) -> list[float]:
        """pass@k of every question that has at least ``k`` verdicts."""
        return [
            pass_at_k(len(verdicts), sum(verdict.right for verdict in verdicts), k)
            for verdicts in self.verdicts
            if len(verdicts) >= k
        ]


def check(item: Item, answer: Answer) -> Verdict:
    """Whether ``answer`` answers ``item``."""
    if item.options:
        option, found = chosen(answer.text, item.options)
        read = "" if option is None else LETTERS[option]
        return Verdict(answer.id, answer.sample, option == item.right, read, found, True)
    final = final_answer(answer.text)
    found_same = [same(truth, final.text) for truth in item.answers]
    right = any(found_same)
    return Verdict(answer.id, answer.sample, right, final.text, final.found, right or None not in found_same)


def check_all(benchmark: Benchmark, items: Sequence[Item], given: Sequence[tuple[Answer, ...]]) -> Checked:
    """Check the answers to each of ``items``. What failed is left out."""
    verdicts = tuple(
        tuple(check(item, answer) for answer in answers if answer.finish_reason != "failed")
        for item, answers in zip(items, given, strict=True)
    )
    return Checked(benchmark, tuple(given), verdicts)


def accuracy_evaluation(
    names: Sequence[str], checked: Sequence[Sequence[Checked]], *, samples: int, settings: Mapping[str, Any]
) -> Evaluation:
    """The tables of one model or, with a second, of a model and its base.

    ``names`` are theirs, and ``checked`` their answers, a benchmark each in the same order; every benchmark has a
    verdict of every model.
    """
    model, *others = checked
    base = others[0] if others else None
    means = [[share(list(each.shares.values())) for each in one] for one in checked]
    sheets = [_accuracies(names, checked, means)]
    if base:
        sheets.append(_differences(names, model, base))
    if samples > 1:
        sheets.append(_passes(names, checked, samples))
    sheets.append(_answers(names, checked))
    scores = _scores(model, means, samples)
    title = f"Accuracy of {names[0]}" + (f" and {names[1]}" if base else "")
    return Evaluation(
        "math",
        title,
        names[0],
        names[1] if base else None,
        dict(settings),
        tuple(sheets),
        tuple(scores),
        tuple(_notes(checked, samples)),
    )


def verdict_rows(items: Sequence[Item], checked: Checked) -> list[dict[str, Any]]:
    """Every verdict with what was right, for a file."""
    rows = []
    for item, verdicts in zip(items, checked.verdicts, strict=True):
        rows += [{**asdict(verdict), "answers": item.answers} for verdict in verdicts]
    return rows


def _accuracies(names: Sequence[str], checked: Sequence[Sequence[Checked]], means: Sequence[list[Interval]]) -> Sheet:
    rows = []
    for number, first in enumerate(checked[0]):
        for who, one in enumerate(checked):
            error = standard_error(list(one[number].shares.values()))
            rows.append(_row(first.benchmark.title if who == 0 else "", names[who], means[who][number], error))
    if len(checked[0]) > 1:
        for who, one in enumerate(checked):
            errors = [standard_error(list(each.shares.values())) for each in one]
            known = [error for error in errors if error is not None]
            error = sum(each**2 for each in known) ** 0.5 / len(errors) if len(known) == len(errors) else None
            rows.append(_row(_average_name(one) if who == 0 else "", names[who], average(means[who]), error))
    return Sheet("Accuracy, %", ("benchmark", "model", "questions", "mean", "± SE", "95 % interval"), tuple(rows))


def _row(title: str, name: str, mean: Interval, error: float | None) -> tuple[str, ...]:
    return (
        title,
        name,
        f"{mean.count:,}",
        f"{100 * mean.mean:.1f}",
        "–" if error is None else f"{100 * error:.1f}",
        _ends(mean, ".1f"),
    )


def _differences(names: Sequence[str], model: Sequence[Checked], base: Sequence[Checked]) -> Sheet:
    rows, all_differences = [], []
    for one, other in zip(model, base, strict=True):
        pairs = _pairs(one, other)
        if not pairs:
            continue
        differences = [first - second for first, second in pairs]
        all_differences.append(differences)
        found = paired([first for first, _ in pairs], [second for _, second in pairs])
        better, worse = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
        rows.append(_difference(one.benchmark.title, found, f"{better} / {worse}"))
    if len(all_differences) > 1:
        rows.append(_difference(_average_name(model), average_paired(all_differences), ""))
    return Sheet(
        f"{names[0]} less {names[1]}, points",
        ("benchmark", "questions", "difference", "95 % interval", "p", "better / worse"),
        tuple(rows),
    )


def _pairs(one: Checked, other: Checked) -> list[tuple[float, float]]:
    first, second = one.shares, other.shares
    return [(first[number], second[number]) for number in first if number in second]


def _difference(title: str, found: Paired, questions: str) -> tuple[str, ...]:
    change = found.difference
    return (
        title,
        f"{change.count:,}",
        f"{100 * change.mean:+.1f}",
        _ends(change, "+.1f") if found.p is not None else "–",  # without spread there is nothing to go by
        p_value(found.p),
        questions,
    )


def _passes(names: Sequence[str], checked: Sequence[Sequence[Checked]], samples: int) -> Sheet:
    ks = _ks(samples)
    rows = []
    for number, first in enumerate(checked[0]):
        for who, one in enumerate(checked):
            cells = []
            for k in ks:
                values = one[number].passes(k)
                error = standard_error(values) if values else None
                told = f"{100 * sum(values) / len(values):.1f}" if values else "–"
                cells.append(told + (f" ±{100 * error:.1f}" if error is not None else ""))
            rows.append((first.benchmark.title if who == 0 else "", names[who], *cells))
    return Sheet("pass@k ± SE, %", ("benchmark", "model", *(f"k = {k}" for k in ks)), tuple(rows))


def _ks(samples: int) -> list[int]:
    """1, 2, 4, …, and the number of samples; at most five of them."""
    powers = [2**power for power in range(samples.bit_length()) if 2**power < samples]
    return [*powers[-4:], samples]


def _answers(names: Sequence[str], checked: Sequence[Sequence[Checked]]) -> Sheet:
    rows = []
    for number, first in enumerate(checked[0]):
        for who, one in enumerate(checked):
            given = [
                answer for answers in one[number].answers for answer in answers if answer.finish_reason != "failed"
            ]
            verdicts = [verdict for each in one[number].verdicts for verdict in each]
            count = len(given)

            def part(part: int, count: int = count) -> str:
                return f"{100 * part / count:.0f} %"

            rows.append(
                (
                    first.benchmark.title if who == 0 else "",
                    names[who],
                    f"{count:,}",
                    f"{sum(answer.tokens for answer in given) / count:.0f}",
                    part(sum(answer.finish_reason == "length" for answer in given)),
                    part(sum(verdict.found == "boxed" for verdict in verdicts)),
                    part(sum(verdict.found == "nothing" for verdict in verdicts)),
                )
            )
    return Sheet("Answers", ("benchmark", "model", "answers", "tokens", "cut off", "boxed", "none"), tuple(rows))


def _scores(model: Sequence[Checked], means: Sequence[list[Interval]], samples: int) -> list[Score]:
    scores = []
    for number, one in enumerate(model):
        mean = means[0][number]
        other = 100 * means[1][number].mean if len(means) > 1 else None
        scores.append(_score(one.benchmark.title, "accuracy", mean, other))
        values = one.passes(samples)
        if samples > 1 and values:
            scores.append(_score(one.benchmark.title, f"pass@{samples}", share(values), None))
    if len(model) > 1:
        other = 100 * average(means[1]).mean if len(means) > 1 else None
        scores.append(_score(_average_name(model), "accuracy", average(means[0]), other))
    return scores


def _score(dataset: str, metric: str, mean: Interval, base: float | None) -> Score:
    low, high = (None if end is None else 100 * end for end in (mean.low, mean.high))
    return Score(dataset, metric, 100 * mean.mean, low, high, mean.count, base)


def _notes(checked: Sequence[Sequence[Checked]], samples: int) -> list[str]:
    notes = [
        f"{samples} answers a question; standard errors and intervals are by question."
        if samples > 1
        else "One answer a question."
    ]
    if len(checked) > 1:
        notes.append("Differences are paired by question (t test); better / worse: questions that changed.")
    failed = sum(
        answer.finish_reason == "failed" for one in checked for each in one for row in each.answers for answer in row
    )
    if failed:
        error = next(
            answer.error for one in checked for each in one for row in each.answers for answer in row if answer.error
        )
        notes.append(f"{failed:,} answers failed and are left out ({error}); the same command asks for them again.")
    unfinished = sum(
        not verdict.finished for one in checked for each in one for row in each.verdicts for verdict in row
    )
    if unfinished:
        notes.append(f"{unfinished:,} answers took too long to be checked and count as wrong.")
    return notes


def _average_name(checked: Sequence[Checked]) -> str:
    return "average of all 7" if len(checked) == len(BENCHMARKS) else f"average of {len(checked)}"


def _ends(found: Interval, form: str) -> str:
    if found.low is None or found.high is None:
        return "–"
    return f"{100 * found.low:{form}} to {100 * found.high:{form}}"


def p_value(p: float | None) -> str:
    """A p value in three decimals; – where there is none."""
    return "–" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"
