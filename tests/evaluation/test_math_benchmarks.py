"""Benchmarks' published layouts, row by row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from spyrl.errors import UsageError
from spyrl.evaluation.benchmarks import BENCHMARKS, Item, chosen_benchmarks, item_of, items_of, question_of
from spyrl.evaluation.rows import Row


def read(**columns: Any) -> Item:
    return item_of(Row("file.jsonl:1", columns), "row-1", 0)


@pytest.mark.parametrize(
    ("columns", "answers"),
    [
        ({"question": "Q", "answer": "2*9=<<2*9=18>>18\n#### 18"}, ("18",)),
        ({"problem": "Q", "solution": r"So \boxed{\frac{1}{2}}.", "answer": r"\frac{1}{2}"}, (r"\frac{1}{2}",)),
        ({"problem": "Q", "solution": r"First \boxed{1}, then \boxed{\frac{1}{2}}."}, (r"\frac{1}{2}",)),
        ({"Problem": "Q", "Answer": 204}, ("204",)),
        ({"ID": "1", "problem": "Q", "answer": "025"}, ("025",)),
        ({"problem": "Q", "answer": 3.0}, ("3",)),
        ({"problem": "Q", "answer": r"['8.7 \\times 10^{8}\n']"}, (r"8.7 \times 10^{8}",)),
        ({"problem": "Q", "answer": "['0.01', \"0.02\"]"}, ("0.01", "0.02")),
        ({"problem": "Q", "answer": ["4", "4\n"]}, ("4",)),
        ({"problem": "Q", "answer": "[0,1]"}, ("[0,1]",)),
        ({"problem": "Q", "answer": "$70,000$"}, ("$70,000$",)),
    ],
)
def test_answers_without_options(columns: dict[str, Any], answers: tuple[str, ...]) -> None:
    assert read(**columns) == Item("row-1", "Q", answers)


@pytest.mark.parametrize(
    "columns",
    [
        {"options": ["5", "7", "9"], "answer": "B", "answer_index": 1},
        {"options": "['5', '7', '9']", "answer": "(B)"},
        {"choices": ["5", "7", "9"], "answer": 1},
        {"choices": {"text": ["5", "7", "9"], "label": ["A", "B", "C"]}, "answer": "B"},
        {"options": {"A": "5", "B": "7", "C": "9"}, "answer": "b"},
        {"options": ["5", "7", "9"], "answer": "7"},
        {"options": ["5", "7", "9"], "answer_index": 1},
    ],
)
def test_options_with_the_right_one(columns: dict[str, Any]) -> None:
    assert read(question="Q", **columns) == Item("row-1", "Q", ("B",), ("5", "7", "9"), 1)


GPQA = {
    "Question": "Q",
    "Correct Answer": "right\n",
    **{f"Incorrect Answer {number}": f"wrong {number}" for number in (1, 2, 3)},
}


def test_gpqas_options_are_shuffled_the_same_way_every_time() -> None:
    items = [item_of(Row("x", GPQA), f"row-{number}", 0) for number in range(200)]
    assert items == [item_of(Row("x", GPQA), f"row-{number}", 0) for number in range(200)]
    assert all(sorted(item.options) == ["right", "wrong 1", "wrong 2", "wrong 3"] for item in items)
    places = [item.options.index("right") for item in items]
    assert places == [item.right for item in items]
    assert all(30 <= places.count(place) <= 70 for place in range(4))
    assert [item_of(Row("x", GPQA), f"row-{number}", 1).right for number in range(200)] != places


def test_what_is_asked() -> None:
    (message,) = question_of(read(question="How much?", options=["5", "7"], answer="A")).messages
    assert message["content"].startswith("How much?\n\nA. 5\nB. 7\n\n")
    assert "letter" in message["content"]
    (message,) = question_of(read(question="How much?", answer="#### 5")).messages
    assert r"\boxed{" in message["content"]
    assert "letter" not in message["content"]


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"text": "Q"}, "no column with the question: .* the columns there are text"),
        ({"question": "Q"}, "no column with the answer"),
        ({"question": " ", "answer": "1"}, "'question' is empty"),
        ({"question": "Q", "answer": ""}, "holds no answer"),
        ({"question": "Q", "answer": None}, "holds no answer"),
        ({"question": "Q", "answer": "#### "}, "holds no answer"),
        ({"question": "Q", "options": ["1", "2"], "answer": "C"}, "none of the 2 options"),
        ({"question": "Q", "options": ["1", "2"], "answer": "A", "answer_index": 1}, "says option A, .* says 1"),
        ({"question": "Q", "options": "1, 2 or", "answer": "A"}, "no list of options"),
        ({"question": "Q", "options": ["1"], "answer": "A"}, "2 to 26"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(columns: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=f"file.jsonl:1: .*{error}"):
        read(**columns)


def test_every_file_format(tmp_path: Path) -> None:
    rows = [{"problem": f"Q{number}", "answer": str(number)} for number in range(5)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "a.csv").write_text("problem,answer\n" + "".join(f"Q{n},{n}\n" for n in range(5)), encoding="utf-8")
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (benchmark,) = chosen_benchmarks(["math500"])
    found = [items_of(benchmark, str(tmp_path / f"a.{suffix}"), 3, 0) for suffix in ("jsonl", "json", "csv", "parquet")]
    assert all(each == found[0] for each in found)
    assert [item.id for item in found[0]] == ["math500-00001", "math500-00002", "math500-00003"]
    (tmp_path / "b.txt").write_text("no rows", encoding="utf-8")
    (tmp_path / "c.jsonl").write_text('"a string"\n', encoding="utf-8")
    (tmp_path / "d.jsonl").write_text("", encoding="utf-8")
    for name, error in (("b.txt", "plain text"), ("c.jsonl", "c.jsonl:1 holds a string"), ("d.jsonl", "is empty")):
        with pytest.raises(UsageError, match=error):
            items_of(benchmark, str(tmp_path / name), None, 0)
    with pytest.raises(UsageError, match="there is no file"):
        items_of(benchmark, str(tmp_path / "e.jsonl"), None, 0)


def test_names_of_benchmarks() -> None:
    assert chosen_benchmarks(["all"]) == list(BENCHMARKS)
    assert [each.name for each in chosen_benchmarks(["AIME 25,gsm8k", "MATH-500"])] == ["gsm8k", "math500", "aime25"]
    with pytest.raises(UsageError, match="there are gsm8k, math500"):
        chosen_benchmarks(["gsm9k"])


def test_where_the_hub_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[tuple[str, str | None, str]] = []

    def load_dataset(path: str, name: str | None, split: str, **options: Any) -> list[dict[str, str]]:
        asked.append((path, name, split))
        return [{"question": f"Q{number}", "answer": f"#### {number}"} for number in range(9)]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert [item.answers for item in items_of(BENCHMARKS[0], None, 2, 0)] == [("0",), ("1",)]
    assert asked == [("openai/gsm8k", "main", "test")]

    def refuse(*arguments: Any, **options: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(UsageError, match=r"did not answer .* give the rows of GSM8K with --data FILE"):
        items_of(BENCHMARKS[0], None, 2, 0)
