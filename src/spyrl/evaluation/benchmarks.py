"""The seven benchmarks of the published runs: where they are, and how their rows are read.

Files in any published layout are read: the question under `QUESTION`, the answer under `ANSWER` as a number after
``####``, as LaTeX (in a box in a solution, too), as a list written as a string (each item is right), or as a letter or
an index among options. GPQA's options are shuffled.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spyrl.errors import UsageError
from spyrl.evaluation.answers import Question
from spyrl.evaluation.equality import tidy
from spyrl.evaluation.final_answers import LETTERS, boxes
from spyrl.evaluation.rows import Row, rows_of
from spyrl.game import generator
from spyrl.policy import Message

QUESTION = ("question", "problem", "prompt", "input")
ANSWER = ("answer", "correct_answer", "final_answer", "expected_answer", "target", "solution", "answer_index")
OPTIONS = ("options", "choices")
INDEX = ("answer_index", "answer_idx", "label")
WRONG = tuple(f"incorrect_answer_{number}" for number in range(1, 10))

REASON = "Reason step by step. Then write the final answer, and nothing else, in \\boxed{...}."
CHOOSE = "Reason step by step. Then write the letter of the right option in \\boxed{...}."


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its name on the command line and in tables, and its Hub data set's id, configuration and split."""

    name: str
    title: str
    hub: str
    subset: str | None
    split: str
    choice: bool = False
    """Whether its questions have options."""


BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("gsm8k", "GSM8K", "openai/gsm8k", "main", "test"),
    Benchmark("math500", "MATH-500", "HuggingFaceH4/MATH-500", None, "test"),
    Benchmark("aime24", "AIME 24", "HuggingFaceH4/aime_2024", None, "train"),
    Benchmark("aime25", "AIME 25", "math-ai/aime25", None, "test"),
    Benchmark("minerva", "Minerva", "math-ai/minervamath", None, "test"),
    Benchmark("mmlu-pro", "MMLU-Pro", "TIGER-Lab/MMLU-Pro", None, "test", choice=True),
    Benchmark("gpqa-diamond", "GPQA-Diamond", "Idavidrein/gpqa", "gpqa_diamond", "train", choice=True),
)


@dataclass(frozen=True)
class Item:
    """A question and what is right: one of ``answers`` or, among ``options``, the one numbered ``right`` from 0."""

    id: str
    question: str
    answers: tuple[str, ...]
    options: tuple[str, ...] = ()
    right: int | None = None


def chosen_benchmarks(names: Sequence[str]) -> list[Benchmark]:
    """The benchmarks that are named, in the order of `BENCHMARKS`; ``all`` are the seven.

    Names may be joined by commas; case, spaces and dashes do not count. Raises `UsageError` for an unknown one.
    """
    known = {_key(spelling): benchmark for benchmark in BENCHMARKS for spelling in (benchmark.name, benchmark.title)}
    known["gpqa"] = known["gpqadiamond"]
    known["aime2024"], known["aime2025"], known["minervamath"] = known["aime24"], known["aime25"], known["minerva"]
    wanted = set()
    for name in (part for each in names for part in each.split(",") if part.strip()):
        if _key(name) == "all":
            wanted |= set(BENCHMARKS)
        elif _key(name) in known:
            wanted.add(known[_key(name)])
        else:
            there = ", ".join(benchmark.name for benchmark in BENCHMARKS)
            raise UsageError(f"--benchmark {name.strip()}: there are {there}, or all")
    if not wanted:
        raise UsageError("--benchmark names no benchmark")
    return [benchmark for benchmark in BENCHMARKS if benchmark in wanted]


def items_of(benchmark: Benchmark, source: str | None, limit: int | None, seed: int) -> list[Item]:
    """The first ``limit`` questions of a benchmark, from the Hub or from ``source``, a file or another Hub data set.

    Raises `UsageError` for what cannot be read: a missing file, a row without a question or an answer.
    """
    try:
        rows = rows_of(
            source or benchmark.hub,
            subset=None if source else benchmark.subset,
            split="test" if source else benchmark.split,
            limit=limit,
        )
    except UsageError as error:
        if source is None:
            raise UsageError(
                f"{str(error).rstrip('.')}; or give the rows of {benchmark.title} with --data FILE"
            ) from None
        raise
    return [item_of(row, f"{benchmark.name}-{number:05d}", seed) for number, row in enumerate(rows, 1)]


def item_of(row: Row, name: str, seed: int) -> Item:
    """Read one row; ``seed`` and ``name`` name the draw that shuffles options without an order of their own."""
    question = _text(row, QUESTION, "question")
    wrong = [column for each in WRONG if (column := row.find((each,))) and str(row.columns[column] or "").strip()]
    if wrong:
        options = [_text(row, ("correct_answer", "answer"), "right answer")]
        options += [str(row.columns[column]).strip() for column in wrong]
        order = list(range(len(options)))
        generator(seed, "options", name).shuffle(order)
        right = order.index(0)
        return Item(name, question, (LETTERS[right],), tuple(options[each] for each in order), right)
    column = row.find(OPTIONS)
    listed = _options(row, column) if column else ()
    if listed:
        right = _right(row, listed)
        return Item(name, question, (LETTERS[right],), listed, right)
    return Item(name, question, _answers(row))


def question_of(item: Item) -> Question:
    """What a model is asked: the question, its options by letter, and one sentence of instruction."""
    options = "\n".join(f"{LETTERS[number]}. {option}" for number, option in enumerate(item.options))
    parts = [item.question, options, CHOOSE if options else REASON]
    return Question(item.id, (Message(role="user", content="\n\n".join(part for part in parts if part)),))


def _answers(row: Row) -> tuple[str, ...]:
    column = row.find(ANSWER)
    if column is None:
        raise UsageError(_no_column(row, ANSWER, "answer"))
    value = row.columns[column]
    found = [each for each in (_answer(each) for each in _listed(value)) if tidy(each)]
    if not found:
        raise UsageError(f"{row.place}: column {column!r} holds no answer ({str(value)[:60]!r})")
    return tuple(dict.fromkeys(found))


def _answer(text: str) -> str:
    r"""The answer that a cell holds: what follows ``####``, what is in the last box, or all of it."""
    if "####" in text:
        return text.rsplit("####", 1)[1].strip()
    boxed = boxes(text)
    return (boxed[-1][2] if boxed else text).strip()


def _listed(value: object) -> list[str]:
    """The strings that a cell holds: a list, also one that is written as a string, or one text."""
    if isinstance(value, str) and re.match(r"\s*\[\s*['\"]", value):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            value = ast.literal_eval(value.strip())
    if isinstance(value, list | tuple):
        return [str(each) for each in value if each is not None]
    if isinstance(value, float) and value.is_integer():
        return [str(int(value))]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def _options(row: Row, column: str) -> tuple[str, ...]:
    value = row.columns[column]
    if isinstance(value, str) and value.strip():
        try:
            value = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise UsageError(f"{row.place}: column {column!r} holds no list of options ({value[:60]!r})") from None
    if isinstance(value, Mapping):
        texts = value.get("text")
        value = texts if isinstance(texts, list) else [value[key] for key in sorted(value)]
    if not value:
        return ()
    if not isinstance(value, list | tuple) or not 2 <= len(value) <= len(LETTERS):
        raise UsageError(f"{row.place}: column {column!r} holds no list of 2 to 26 options ({str(value)[:60]!r})")
    return tuple(str(each).strip() for each in value)


def _right(row: Row, options: Sequence[str]) -> int:
    """Which option is right, by letter, number or text; where a row has both a letter and a number, they must agree."""
    column = row.find(ANSWER)
    if column is None:
        raise UsageError(_no_column(row, ANSWER, "answer"))
    value = row.columns[column]
    text = str(value).strip()
    found: int | None = None
    if re.fullmatch(r"\(?[A-Za-z]\)?\.?", text) and text not in options:
        found = LETTERS.index(text.strip("().").upper())
    elif isinstance(value, int) and not isinstance(value, bool):
        found = value
    elif text in options:
        found = options.index(text)
    elif text.isdigit():
        found = int(text)
    if found is None or not 0 <= found < len(options):
        raise UsageError(f"{row.place}: answer {text[:60]!r} is none of the {len(options)} options")
    index = row.find(INDEX)
    number = row.columns[index] if index else None
    if isinstance(number, int) and not isinstance(number, bool) and number != found:
        raise UsageError(f"{row.place}: column {column!r} says option {LETTERS[found]}, column {index!r} says {number}")
    return found


def _text(row: Row, names: Sequence[str], what: str) -> str:
    column = row.find(names)
    if column is None:
        raise UsageError(_no_column(row, names, what))
    text = str(row.columns[column] or "").strip()
    if not text:
        raise UsageError(f"{row.place}: column {column!r} is empty, it should hold the {what}")
    return text


def _no_column(row: Row, names: Sequence[str], what: str) -> str:
    there = ", ".join(map(str, row.columns)) or "none"
    return f"{row.place}: no column with the {what}: it may be called {', '.join(names)}; the columns there are {there}"


def _key(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())
