"""WritingBench's queries, its scores read from what judges say, and the tables made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spyrl.cli import main
from spyrl.errors import UsageError
from spyrl.evaluation import answers as keeping
from spyrl.evaluation import models
from spyrl.evaluation.results import read_evaluation
from spyrl.evaluation.writingbench import Criterion, read_queries, read_score
from standin import StandIn, serving

BANDS = {"9-10": "All.", "1-2": "None.", "3-4": "Little.", "5-6": "Half.", "7-8": "Much."}
# By query: what the tuned model and the base get by two criteria.
PLANTED = {
    "0": {"tuned": (8, 6), "base": (5, 5)},
    "1": {"tuned": (9, 10), "base": (7, 6)},
    "2": {"tuned": (4, 4), "base": (4, 5)},
}


def row(index: int, **changes: Any) -> dict[str, Any]:
    checklist = [
        {"name": f"criterion {number}", "criteria_description": f"What {number} asks.", **BANDS} for number in (1, 2)
    ]
    return {
        "index": index,
        "domain1": "Advertising & Marketing" if index < 2 else "Reports",
        "domain2": "Any",
        "lang": "en",
        "query": f"Write of number {index}",
        "checklist": checklist,
        **changes,
    }


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in rows), encoding="utf-8")
    return path


def answer(model: str, text: str) -> str | int:
    if model != "judge":
        return f"{model} writes of {text.split()[-1]}"
    (who, index), number = re.findall(r"(\w+) writes of (\d+)", text)[0], re.findall(r"Criterion: criterion (\d)", text)
    return f"score: {PLANTED[index][who][int(number[0]) - 1]}"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "benchmark.jsonl", *(row(index) for index in range(3)))


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving(answer) as standin:
        yield standin


def command(server: StandIn, data: Path, *more: str) -> list[str]:
    where = ["--server", server.url, "--judge-server", server.url, "--judge", "judge"]
    return ["eval", "writingbench", "tuned", "--data", str(data), *where, *more]


def against(server: StandIn) -> list[str]:
    return ["--against", "base", "--against-server", server.url]


def test_means_by_domain_and_the_paired_difference(
    server: StandIn, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(server, data, *against(server))) == 0
    found = read_evaluation(Path("evaluations/tuned/writingbench-benchmark-base/judge"))
    # Queries: tuned 7, 9.5, 4; base 5, 6.5, 4.5.
    assert [(score.metric, score.value, score.base, score.count) for score in found.scores] == [
        ("WritingBench score (1-10)", pytest.approx(20.5 / 3), pytest.approx(16 / 3), 3),
        ("WritingBench score (1-10), Advertising & Marketing", 8.25, 5.75, 2),
        ("WritingBench score (1-10), Reports", 4.0, 4.5, 1),
    ]
    overall, _, reports = found.sheets[0].rows
    assert overall[:2] == ("overall", "3")
    # Differences 2, 3 and -0.5: deviation 1.803; the table's t for two degrees of freedom is 4.303.
    assert overall[4] == "+1.50 ±4.48"
    # t = 1.5 / (1.803 / √3) = 1.441; with two degrees of freedom p = 1 - t / √(2 + t²).
    assert overall[5] == "0.286"
    assert reports == ("Reports", "1", "4.00", "4.50", "-0.50", "–")
    assert server.asked_of("judge") == 12
    asked = next(text for model, text in server.asked if model == "judge")
    assert asked.index("1-2: None.") < asked.index("3-4: Little.") < asked.index("9-10: All.")
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines() if "results.json" not in line) <= 80


def test_one_model_alone(server: StandIn, data: Path) -> None:
    assert main(command(server, data, "--limit", "2")) == 0
    found = read_evaluation(Path("evaluations/tuned/writingbench-benchmark/judge"))
    assert found.against is None
    assert found.sheets[0].rows[0][:2] == ("overall", "2")
    assert [(score.value, score.base) for score in found.scores] == [(8.25, None)]  # one domain: no row of its own


def test_killed_and_resumed_it_gives_the_same_table(
    server: StandIn, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_AT_A_TIME", 1)
    assert main(command(server, data, *against(server), "--to", "whole")) == 0
    server.asked.clear()
    server.answer = lambda model, text: answer(model, text) if len(server.asked) <= 10 else 401
    assert main(command(server, data, *against(server), "--to", "killed")) == 2
    server.asked.clear()
    server.answer = answer
    assert main(command(server, data, *against(server), "--to", "killed")) == 0
    assert len(server.asked) == 6 + 12 - 10
    whole, killed = (
        {**json.loads(Path(folder, "judge/results.json").read_text(encoding="utf-8")), "command": ""}
        for folder in ("whole", "killed")
    )
    assert killed == whole


def test_what_cannot_be_read_or_had_is_not_scored(server: StandIn, data: Path) -> None:
    def unclear(model: str, text: str) -> str | int:
        if model == "judge" and "writes of 0" in text:
            return "I like it." if "criterion 1" in text else "score: 6"
        if model == "judge" and "writes of 2" in text:
            return 400
        return answer(model, text)

    server.answer = unclear
    assert main(command(server, data)) == 0
    found = read_evaluation(Path("evaluations/tuned/writingbench-benchmark/judge"))
    assert found.scores[0].value == pytest.approx((6 + 9.5) / 2)
    assert found.sheets[1].rows == (("tuned", "2", "0%", "0", "1 of 6", "2"),)
    assert any(note.startswith("2 answers failed (the server answered 400") for note in found.notes)
    server.answer = lambda model, text: "No." if model == "judge" else answer(model, text)
    assert main([*command(server, data), "--judge", "judge", "--to", "other"]) == 1


def test_a_model_in_this_process_scores_by_choosing(
    tiny_model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--max-new-tokens", "6", "--limit", "2", "--judge-local", str(tiny_model), "--to", "kept"]
    words = ["eval", "writingbench", str(tiny_model), "--data", str(data), *small]
    assert main(words) == 0
    (folder,) = [path.parent for path in Path("kept").rglob("results.json")]
    lines = (folder / "scores.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    assert len(lines) == 4
    assert all(1 <= int(json.loads(line)["text"]) <= 10 for line in lines)
    monkeypatch.setattr(models, "open_policy", lambda *_: pytest.fail("a model was loaded"))
    assert main(words) == 0


# Reading


def test_a_query_as_it_is_published(tmp_path: Path) -> None:
    text = "Line\u2028break and \u0085"  # characters at which str.splitlines() would break
    (query,) = read_queries(write(tmp_path / "q.jsonl", row(7, query=text)), None)
    assert (query.id, query.domain, query.language, query.text) == ("7", "Reports", "en", text)
    bands = (("1-2", "None."), ("3-4", "Little."), ("5-6", "Half."), ("7-8", "Much."), ("9-10", "All."))
    assert query.criteria[0] == Criterion("criterion 1", "What 1 asks.", bands)


def test_what_may_be_missing(tmp_path: Path) -> None:
    bare = {"query": "Write.", "checklist": [{"name": "any"}]}
    as_text = {"query": "Write.", "checklist": json.dumps([{"name": "any", "1-2": None, "3-4": "some"}])}
    first, second = read_queries(write(tmp_path / "q.jsonl", bare, as_text), None)
    assert (first.id, first.domain, first.language) == ("1", "–", "–")
    assert first.criteria == (Criterion("any", "", ()),)
    assert (second.id, second.criteria) == ("2", (Criterion("any", "", (("3-4", "some"),)),))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", ":2: not valid JSON"),
        ("[]", ":2: not an object"),
        ('{"checklist": [{"name": "a"}]}', ":2: no query in it; the columns there are checklist"),
        ('{"query": "Write."}', ":2: no checklist in it.*spyrl eval ab"),
        ('{"query": "Write.", "checklist": []}', ":2: no checklist"),
        ('{"query": "Write.", "checklist": "a"}', ":2: checklist is a string, and no JSON"),
        ('{"query": "Write.", "checklist": [{"1-2": "a"}]}', ":2: a criterion of the checklist has no name"),
        (json.dumps(row(0)), "two queries have the index 0"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps(row(0)) + f"\n{line}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        read_queries(path, None)


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", "writingbench", "bundled:ledger-0", "--judge-local", "bundled:ledger-0"]
    assert main([*words, "--data", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl: No such file" in capsys.readouterr().err
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    assert main([*words, "--data", str(tmp_path / "empty.jsonl")]) == 2
    assert "holds no query" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ("score: 7", 7),
        ("**Score**: 10", 10),
        ("Score: 7/10", 7),
        ('{"score": 3, "reason": "Two of 10 parts."}', 3),
        ("The text is fine.\nscore: 8", 8),
        ("score = 1.", 1),
        ("7", 7),
        (" 7/10\n", 7),
        ("分数\nscore：9", 9),
        ("score: 0", None),
        ("score: 11", None),
        ("score: 110", None),
        ("score: 7.5", None),
        ("score: -3", None),
        ("score: 7\nscore: 8", None),
        ("I give it 7 points", None),
        ("seven", None),
        ("", None),
    ],
)
def test_reading_a_score(said: str, score: int | None) -> None:
    assert read_score(said) == score
