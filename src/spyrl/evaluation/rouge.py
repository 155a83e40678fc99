"""ROUGE of summaries against references (Lin 2004), with ``rouge-score``, and how long both are.

Tokens are ``rouge-score``'s own, with its Porter stemming; scripts without spaces, as Chinese, are split into
characters, and words of other scripts, which it would drop, are kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spyrl.evaluation.accuracy import p_value
from spyrl.evaluation.answers import Answer
from spyrl.evaluation.results import Evaluation, Score
from spyrl.evaluation.sheets import Sheet
from spyrl.evaluation.statistics import Interval, interval, paired
from spyrl.evaluation.summaries import Sample
from spyrl.game.text import sentences, words

METRICS = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_TITLES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}

_LATIN = re.compile(r"[a-z0-9]+")
_LATIN_BLOCKS = r"\x00-\u036f\u1d00-\u1dbf\u1e00-\u1eff\u2c60-\u2c7f\ua720-\ua7ff\uab30-\uab6f"
_OTHER = re.compile(rf"[^\W\d_{_LATIN_BLOCKS}]+")


class Tokens:
    """What ``rouge-score`` takes as a tokenizer; on English it gives what its own does, with stemming."""

    def __init__(self) -> None:
        from rouge_score.tokenizers import DefaultTokenizer

        self._latin = DefaultTokenizer(use_stemmer=True)

    def tokenize(self, text: str) -> list[str]:
        """The tokens of ``text``, lowercase."""
        found: list[str] = []
        for run in re.finditer(r"[a-z0-9]+|[^\Wa-z0-9_]+", text.lower()):
            if _LATIN.fullmatch(run[0]):
                found += self._latin.tokenize(run[0])
            else:
                other = " ".join(_OTHER.findall(run[0]))
                found += [other[start:end] for start, end in words(other)]
        return found


@dataclass(frozen=True)
class Overlap:
    """One answer against its references: by metric (precision, recall, F1) of the best reference, and lengths.

    ``words`` are the answer's and ``reference_words`` the first reference's; in scripts without spaces a character is
    a word.
    """

    id: str
    scores: Mapping[str, tuple[float, float, float]]
    words: int
    reference_words: int
    tokens: int
    cut_off: bool


def overlaps(samples: Sequence[Sample], answers: Sequence[Answer]) -> list[Overlap | None]:
    """ROUGE of each answer; ``None`` for one that failed."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(METRICS, tokenizer=Tokens())
    found: list[Overlap | None] = []
    for sample, answer in zip(samples, answers, strict=True):
        if answer.finish_reason == "failed":
            found.append(None)
            continue
        best = scorer.score_multi([_lines(each) for each in sample.references], _lines(answer.text))
        found.append(
            Overlap(
                sample.id,
                {
                    metric: (float(best[metric][0]), float(best[metric][1]), float(best[metric][2]))
                    for metric in METRICS
                },
                len(words(answer.text)),
                len(words(sample.references[0])),
                answer.tokens,
                answer.finish_reason == "length",
            )
        )
    return found


def rouge_evaluation(
    names: Sequence[str],
    dataset: str,
    found: Sequence[Sequence[Overlap | None]],
    *,
    cut: Sequence[int],
    settings: Mapping[str, Any],
) -> Evaluation:
    """The tables of one model or, with a second, of a model and its base; ``cut`` documents were cut for each."""
    scored = [[each for each in one if each is not None] for one in found]
    means = [{metric: interval([each.scores[metric][2] for each in one]) for metric in METRICS} for one in scored]
    base = names[1] if len(names) > 1 else None
    sheets = [
        _f1(names, means),
        *([_differences(names, found)] if base else []),
        _parts(names, scored),
        _lengths(names, scored),
    ]
    scores = [_score(dataset, metric, [one[metric] for one in means]) for metric in METRICS]
    title = f"ROUGE of {names[0]}" + (f" and {base}" if base else "") + f" on {dataset}"
    return Evaluation(
        "rouge", title, names[0], base, dict(settings), tuple(sheets), tuple(scores), _notes(names, found, cut)
    )


def _score(dataset: str, metric: str, means: Sequence[Interval]) -> Score:
    low, high = (None if end is None else 100 * end for end in (means[0].low, means[0].high))
    base = 100 * means[1].mean if len(means) > 1 else None
    return Score(dataset, metric, 100 * means[0].mean, low, high, means[0].count, base)


def _f1(names: Sequence[str], means: Sequence[Mapping[str, Interval]]) -> Sheet:
    rows = [
        (
            _TITLES[metric] if who == 0 else "",
            name,
            f"{means[who][metric].count:,}",
            f"{100 * means[who][metric].mean:.2f}",
            _ends(means[who][metric], ".2f"),
        )
        for metric in METRICS
        for who, name in enumerate(names)
    ]
    return Sheet("ROUGE F1, %", ("metric", "model", "documents", "mean", "95 % interval"), tuple(rows))


def _differences(names: Sequence[str], found: Sequence[Sequence[Overlap | None]]) -> Sheet:
    pairs = [(one, other) for one, other in zip(*found, strict=True) if one is not None and other is not None]
    rows = []
    for metric in METRICS if pairs else ():
        both = paired([one.scores[metric][2] for one, _ in pairs], [other.scores[metric][2] for _, other in pairs])
        change = both.difference
        rows.append(
            (
                _TITLES[metric],
                f"{change.count:,}",
                f"{100 * change.mean:+.2f}",
                _ends(change, "+.2f") if both.p is not None else "–",
                p_value(both.p),
            )
        )
    columns = ("metric", "documents", "difference", "95 % interval", "p")
    return Sheet(f"{names[0]} less {names[1]}, points", columns, tuple(rows))


def _parts(names: Sequence[str], scored: Sequence[Sequence[Overlap]]) -> Sheet:
    rows = [
        (
            _TITLES[metric] if who == 0 else "",
            name,
            *(
                f"{100 * sum(each.scores[metric][part] for each in scored[who]) / len(scored[who]):.2f}"
                for part in (0, 1)
            ),
        )
        for metric in METRICS
        for who, name in enumerate(names)
    ]
    return Sheet("Precision and recall, %", ("metric", "model", "precision", "recall"), tuple(rows))


def _lengths(names: Sequence[str], scored: Sequence[Sequence[Overlap]]) -> Sheet:
    rows = []
    for name, one in zip(names, scored, strict=True):
        written = interval([float(each.words) for each in one])
        asked = sum(each.reference_words for each in one)
        rows.append(
            (
                name,
                f"{written.mean:.1f}",
                _ends(written, ".1f", 1),
                f"{sum(each.words for each in one) / asked:.2f}",
                f"{sum(each.tokens for each in one) / len(one):.1f}",
                f"{100 * sum(each.cut_off for each in one) / len(one):.0f} %",
            )
        )
    reference = interval([float(each.reference_words) for each in scored[0]])
    rows.append(("references", f"{reference.mean:.1f}", _ends(reference, ".1f", 1), "1.00", "", ""))
    columns = ("", "words", "95 % interval", "per reference word", "tokens", "cut off")
    return Sheet("Length", columns, tuple(rows))


def _notes(names: Sequence[str], found: Sequence[Sequence[Overlap | None]], cut: Sequence[int]) -> tuple[str, ...]:
    notes = ["A longer answer has a higher recall: compare lengths before scores."]
    if len(names) > 1:
        notes.append("Differences are paired by document (t test).")
    for name, one, shortened in zip(names, found, cut, strict=True):
        if shortened:
            notes.append(f"{shortened:,} of {len(one):,} documents were cut at a sentence for {name}.")
        failed = sum(each is None for each in one)
        if failed:
            notes.append(f"{failed:,} answers of {name} failed and are left out; the same command asks for them again.")
    return tuple(notes)


def _ends(found: Interval, form: str, unit: float = 100) -> str:
    if found.low is None or found.high is None:
        return "–"
    return f"{unit * found.low:{form}} to {unit * found.high:{form}}"


def _lines(text: str) -> str:
    """A sentence a line, as ROUGE-Lsum takes it; the others do not see the difference."""
    return "\n".join(text[start:end] for start, end in sentences(text))
