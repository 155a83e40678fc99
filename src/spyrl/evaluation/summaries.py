"""Corpora with references: which columns hold the document and the summary, and what a model is asked.

The layouts of GovReport, Multi-News, QMSum, VCSum and SAMSum are known, and those of their collections (SCROLLS,
LongBench); any other corpus is read by the names of two columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spyrl.corpus import fit
from spyrl.errors import UsageError
from spyrl.evaluation.rows import Row
from spyrl.policy import Message
from spyrl.tasks.summarization import TASK

LAYOUTS: tuple[tuple[str, str, str], ...] = (
    ("report", "summary", "report"),  # GovReport: ccdv/govreport-summarization
    ("dialogue", "summary", "dialogue"),  # SAMSum: knkarthick/samsum
    ("document", "summary", "document"),  # Multi-News: alexfabbri/multi_news
    ("article", "highlights", "article"),  # CNN/DailyMail
    ("article", "abstract", "article"),  # arXiv, PubMed
    ("article", "summary", "article"),
    ("meeting_transcripts", "answer", "meeting"),  # QMSum, a query a row
    ("transcript", "summary", "meeting"),
    ("context", "answers", "text"),  # LongBench: also has input, the query
    ("context", "summary", "meeting"),  # VCSum: utterances in a list
    ("input", "output", "text"),  # SCROLLS: a query before the text
    ("text", "summary", "text"),
    ("source", "target", "text"),
)
"""Columns with the document and its reference, and what such a document is called; the first that fits counts."""

_QUERIES = ("general_query_list", "specific_query_list")
_SPOKEN = ("content", "text", "utterance", "sentence")
_MANY = re.compile(r"\s*\|{5}\s*")  # between the articles of Multi-News


@dataclass(frozen=True)
class Sample:
    """A document, what about it is asked (``""``: a summary of all), and one or more references."""

    id: str
    document: str
    references: tuple[str, ...]
    kind: str
    query: str = ""


def samples_of(
    rows: Sequence[Row], *, document: str | None = None, reference: str | None = None, limit: int | None = None
) -> list[Sample]:
    """The first ``limit`` samples that rows hold; ``document`` and ``reference`` are columns to read instead.

    Raises `UsageError` where there is no such column, or a row has no text or no reference.
    """
    samples: list[Sample] = []
    for number, row in enumerate(rows, 1):
        samples += _samples(row, f"row-{number:05d}", document, reference)
        if limit is not None and len(samples) >= limit:
            return samples[:limit]
    return samples


def messages_of(sample: Sample, document: str, instructions: str | None) -> tuple[Message, ...]:
    """What a model is asked: the document, then the summarization task's own instructions, or ``instructions``.

    A query takes the place of the summary of all. Where the reference is not in Latin letters, the answer is to be
    in the document's language.
    """
    asked = instructions
    if asked is None:
        asked = TASK.instructions.replace("report", sample.kind)
    if sample.query:
        asked = f"{sample.query}\n\nAnswer this about the {sample.kind} above. {asked if instructions else ''}".strip()
        if instructions is None:
            asked += f" Add nothing that the {sample.kind} does not say."
    if instructions is None and not re.search("[A-Za-z]{2}", sample.references[0][:200]):
        asked += f" Write in the language of the {sample.kind}."
    return (Message(role="user", content=f"<document>\n{document}\n</document>\n\n{asked}"),)


def fitted(
    sample: Sample, instructions: str | None, limit: int | None, prompt_tokens: Callable[[tuple[Message, ...]], int]
) -> tuple[tuple[Message, ...], bool]:
    """The messages with as many sentences of the document as ``limit`` tokens of prompt hold, and whether it was cut.

    Raises `UsageError` where not even a word fits.
    """
    if limit is None:
        return messages_of(sample, sample.document, instructions), False
    document = fit(sample.document, limit, lambda part: prompt_tokens(messages_of(sample, part, instructions)))
    if not document:
        raise UsageError(
            f"a prompt of {limit} tokens holds nothing of document {sample.id}; lower --max-new-tokens, or raise "
            "--max-prompt-tokens"
        )
    return messages_of(sample, document, instructions), document != sample.document


def _samples(row: Row, name: str, document: str | None, reference: str | None) -> list[Sample]:
    queries = [query for each in _QUERIES for query in _queries(row, each)]
    if queries and document is None and reference is None:
        text = _text(row, "meeting_transcripts")
        return [
            Sample(f"{name}-{number}", text, (answer,), "meeting", query)
            for number, (query, answer) in enumerate(queries, 1)
        ]
    kind = "text"
    if document is None or reference is None:
        layout = next((each for each in LAYOUTS if row.find(each[:1]) and row.find(each[1:2])), None)
        if document is None and reference is None and layout is None:
            known = ", ".join(f"{one}/{other}" for one, other, _ in LAYOUTS)
            raise UsageError(
                f"{row.place}: no columns of a known layout ({known}); the columns there are {', '.join(row.columns)}: "
                "name two with --document and --reference"
            )
        one, other, kind = layout or ("text", "summary", "text")
        document, reference = document or row.find((one,)) or one, reference or row.find((other,)) or other
    texts = _references(row, reference)
    column = row.find(("query", "question", *(("input",) if document != row.find(("input",)) else ())))
    query = row.columns[column] if column and column not in (document, reference) else ""
    return [Sample(name, _text(row, document), texts, kind, query.strip() if isinstance(query, str) else "")]


def _queries(row: Row, name: str) -> list[tuple[str, str]]:
    column = row.find((name,))
    found = row.columns[column] if column else None
    if not isinstance(found, list):
        return []
    pairs = [(each.get("query"), each.get("answer")) for each in found if isinstance(each, Mapping)]
    return [(str(query).strip(), str(answer).strip()) for query, answer in pairs if query and answer]


def _text(row: Row, column: str) -> str:
    if column not in row.columns:
        raise UsageError(f"{row.place}: no column {column!r}; the columns there are {', '.join(row.columns)}")
    speakers = row.columns.get("speaker")
    text = _flat(row.columns[column], speakers if isinstance(speakers, list) else [])
    if not text.strip():
        raise UsageError(f"{row.place}: column {column!r} holds no text")
    return _MANY.sub("\n\n", text).strip()


def _flat(value: object, speakers: Sequence[object] = ()) -> str:
    """A text, or utterances in a list: a line each, after who said it where that is known."""
    if isinstance(value, Mapping):
        said = next((value[key] for key in _SPOKEN if isinstance(value.get(key), str)), "")
        return f"{value['speaker']}: {said}" if value.get("speaker") else str(said)
    if isinstance(value, list | tuple):
        known = [f"{speaker}: " for speaker in speakers] if len(speakers) == len(value) else [""] * len(value)
        parts = [
            "".join(map(str, each)) if isinstance(each, list) and all(isinstance(one, str) for one in each) else each
            for each in value
        ]
        return "\n".join(who + _flat(part) for who, part in zip(known, parts, strict=True))
    return "" if value is None else str(value)


def _references(row: Row, column: str) -> tuple[str, ...]:
    if column not in row.columns:
        raise UsageError(f"{row.place}: no column {column!r}; the columns there are {', '.join(row.columns)}")
    value = row.columns[column]
    texts = tuple(_flat(each).strip() for each in (value if isinstance(value, list) else [value]))
    if not texts or not all(texts):
        raise UsageError(f"{row.place}: column {column!r} holds no reference")
    return texts
