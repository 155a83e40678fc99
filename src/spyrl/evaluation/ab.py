"""A judge compares what two models wrote, by five criteria, with either text in the first place."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spyrl.evaluation.answers import Answer, Question
from spyrl.evaluation.judge import Judge
from spyrl.evaluation.prompts import request
from spyrl.evaluation.win_rates import Judged, Verdict
from spyrl.game import Document
from spyrl.game.text import words
from spyrl.policy import Message

CRITERIA = {
    "novelty": "fresh ideas, images and turns where the expected ones would have done",
    "emotion": "how strongly, and how credibly, it moves a reader",
    "coherence": "whether sentences, paragraphs and events follow from one another",
    "consistency": "whether it does what the request asks and never contradicts its own facts, people and tone",
    "overall": "which one, everything considered, answers the request better",
}
"""The published criteria, and what each asks for in our words."""

_SYSTEM = (
    "You compare two texts that answer the same request. Judge only what a criterion asks for. Which text stands first "
    "says nothing about it, and neither does being longer."
)
_SEEN = "Request:\n\n{request}\n\n=== Text A ===\n\n{a}\n\n=== Text B ===\n\n{b}\n\n=== End of the texts ===\n\n"
_ALL = (
    "Compare the texts by each criterion:\n{criteria}\n\nAnswer in {count} lines and nothing else. A line is the "
    "criterion, a colon, and A, B or tie:\n{lines}"
)
_ONE = "Criterion: {name} ({what}).\nWhich text is better by this criterion? Answer with A, B or tie."
_CHOICES: dict[str, Verdict] = {"A": "first", "B": "second", "tie": "tie"}
_ORDERS = ("ours-first", "ours-second")
_NOTHING = "(nothing was written)"

# "novelty: A", "**Novelty:** Text B (fresher)", "1. novelty - tie", '"novelty": "A"', "| novelty | B |"; but not
# "A or B", "A/B", "A = B", and not the article in "a fresh idea".
_LINE = (
    r"\b{name}\b[^\w\n]*(?:(?:text|answer|story|response|option)\b[^\w\n]*)?(a|b|tie|tied|draw|equal)\b"
    r"(?=[ \t]*(?:$|[.,;:!()\[\]{{}}|*_\"'`–—-]))(?![^\w\n]*[ab]\b)"
)


@dataclass(frozen=True)
class Pair:
    """Ours and another text for one request, under an id of their own."""

    id: str
    request: str
    ours: str
    other: str


@dataclass(frozen=True)
class Judging:
    """All verdicts on some pairs: by criterion, one `Judged` a pair, in their order."""

    judged: dict[str, list[Judged]]
    answers: tuple[Answer, ...]
    """What the judge said, as it came."""


def pairs_of(
    kind: str, prompts: Sequence[Document], instructions: str, ours: Sequence[Answer], others: Sequence[Answer]
) -> list[Pair]:
    """The pairs of answers to the same prompts; those of which one failed are left out. ``kind`` tells their ids
    from other pairs' of the same prompts."""
    return [
        Pair(f"{prompt.id}/{kind}", request(prompt, instructions), mine.text, theirs.text)
        for prompt, mine, theirs in zip(prompts, ours, others, strict=True)
        if "failed" not in (mine.finish_reason, theirs.finish_reason)
    ]


def judge_pairs(
    judge: Judge, pairs: Sequence[Pair], path: Path, seed: int, on_answers: Callable[[int, int], None]
) -> Judging:
    """Let ``judge`` compare each pair by all criteria in both orders; what ``path`` holds is not asked for again.

    Raises what `spyrl.evaluation.answers.answers` does.
    """
    asked = [question for pair in pairs for question in questions(pair, judge.direct)]
    said = judge.judge(asked, path, seed, on_answers)
    verdicts = {name: verdict for answer in said for name, verdict in _named_verdicts(answer, judge.direct).items()}
    judged: dict[str, list[Judged]] = {criterion: [] for criterion in CRITERIA}
    for pair in pairs:
        lengths = len(words(pair.ours)), len(words(pair.other))
        for criterion, found in judged.items():
            ours_first, ours_second = (verdicts[f"{pair.id}/{order}/{criterion}"] for order in _ORDERS)
            found.append(Judged(ours_first, ours_second, *lengths))
    return Judging(judged, tuple(said))


def questions(pair: Pair, direct: bool) -> list[Question]:
    """What a judge is asked about a pair: one question an order, or (``direct``) an order and criterion."""
    asked = []
    for order, a, b in zip(_ORDERS, (pair.ours, pair.other), (pair.other, pair.ours), strict=True):
        seen = _SEEN.format(request=pair.request, a=a.strip() or _NOTHING, b=b.strip() or _NOTHING)
        if direct:
            asked += [
                Question(
                    f"{pair.id}/{order}/{name}", _messages(seen + _ONE.format(name=name, what=what)), tuple(_CHOICES)
                )
                for name, what in CRITERIA.items()
            ]
        else:
            listed = "\n".join(f"- {name}: {what}" for name, what in CRITERIA.items())
            lines = "\n".join(f"{name}: ..." for name in CRITERIA)
            whole = seen + _ALL.format(criteria=listed, count=len(CRITERIA), lines=lines)
            asked.append(Question(f"{pair.id}/{order}", _messages(whole)))
    return asked


def read_verdicts(text: str) -> dict[str, Verdict]:
    """By criterion, which place a judge's lines name; unreadable where none does, or two lines differ.

    >>> read_verdicts("**Novelty**: B (fresher)\\nemotion: tie\\ncoherence: A or B")["novelty"]
    'second'
    """
    found: dict[str, Verdict] = {}
    for criterion in CRITERIA:
        named = {
            match[1].lower() for match in re.finditer(_LINE.format(name=criterion), text, re.IGNORECASE | re.MULTILINE)
        }
        places: set[Verdict] = {"first" if each == "a" else "second" if each == "b" else "tie" for each in named}
        found[criterion] = places.pop() if len(places) == 1 else "unreadable"
    return found


def _named_verdicts(answer: Answer, direct: bool) -> dict[str, Verdict]:
    """The verdicts in an answer, by the question's id and the criterion."""
    failed = answer.finish_reason == "failed"
    if direct:
        return {answer.id: "failed" if failed else _CHOICES[answer.text]}
    found = read_verdicts(answer.text)
    return {f"{answer.id}/{criterion}": "failed" if failed else verdict for criterion, verdict in found.items()}


def _messages(text: str) -> tuple[Message, ...]:
    return {"role": "system", "content": _SYSTEM}, {"role": "user", "content": text}
