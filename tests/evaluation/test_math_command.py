"""``spyrl eval math`` from end to end: planted answers, kept answers, a real small model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripted_policy import Scripted, play
from spyrl.cli import main
from spyrl.evaluation.results import read_evaluation


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "gsm8k.jsonl"
    rows = [{"question": f"Question number {n}: what is it?", "answer": f"It is.\n#### {n}"} for n in range(1, 41)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def number_in(prompt: str) -> int:
    return int(re.findall(r"number (\d+)", prompt)[0])


def right_up_to(last: int) -> Any:
    return lambda prompt, sample: f"So \\boxed{{{number_in(prompt) if number_in(prompt) <= last else -1}}}."


def evaluate(questions: Path, folder: Path, *words: str, benchmark: str = "gsm8k") -> int:
    data = ["--benchmark", benchmark, "--data", str(questions), "--to", str(folder)]
    return main(["eval", "math", "trained", *data, *words])


def cells(folder: Path, title: str) -> list[tuple[str, ...]]:
    sheets = read_evaluation(folder).sheets
    return list(next(sheet.rows for sheet in sheets if sheet.title.startswith(title)))


def test_planted_answers(questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, trained=Scripted("trained", right_up_to(24)), base=Scripted("base", right_up_to(16)))
    assert evaluate(questions, tmp_path / "out", "--against", "base") == 0
    evaluation = read_evaluation(tmp_path / "out")
    (score,) = evaluation.scores
    assert (score.dataset, score.metric, score.value, score.base, score.count) == ("GSM8K", "accuracy", 60.0, 40.0, 40)
    assert score.low is not None
    assert score.high is not None
    assert score.low < 45 < 60 < 74 < score.high
    (difference,) = cells(tmp_path / "out", "trained less base")
    assert (difference[0], difference[1], difference[2], difference[5]) == ("GSM8K", "40", "+20.0", "8 / 0")
    verdicts = [json.loads(line) for line in (tmp_path / "out" / "verdicts-gsm8k.jsonl").read_text().splitlines()]
    assert [verdict["right"] for verdict in verdicts] == [True] * 24 + [False] * 16
    assert verdicts[0] == {
        "id": "gsm8k-00001",
        "sample": 0,
        "right": True,
        "read": "1",
        "found": "boxed",
        "finished": True,
        "answers": ["1"],
    }
    for suffix in ("json", "md", "csv"):
        assert (tmp_path / "out" / f"results.{suffix}").is_file()


def test_stopped_and_resumed_it_says_the_same(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch, trained=Scripted("trained", right_up_to(24)), base=Scripted("base", right_up_to(16)))
    assert evaluate(questions, tmp_path / "whole", "--against", "base") == 0
    play(monkeypatch, trained=Scripted("trained", right_up_to(24), stop_at=2), base=Scripted("base", right_up_to(16)))
    assert evaluate(questions, tmp_path / "parts", "--against", "base") == 130
    assert "the same command goes on" in capsys.readouterr().err
    kept = (tmp_path / "parts" / "answers-gsm8k.jsonl").read_text().splitlines()
    assert 1 < len(kept) < 41
    with (tmp_path / "parts" / "answers-gsm8k.jsonl").open("a") as file:
        file.write('{"asked": "cut off by a ki')
    again = Scripted("trained", right_up_to(24))
    play(monkeypatch, trained=again, base=Scripted("base", right_up_to(16)))
    assert evaluate(questions, tmp_path / "parts", "--against", "base") == 0
    assert len(again.asked) == 41 - len(kept)
    for name in ("results.csv", "verdicts-gsm8k.jsonl", "answers-gsm8k.jsonl", "answers-gsm8k-base.jsonl"):
        assert (tmp_path / "parts" / name).read_text() == (tmp_path / "whole" / name).read_text()


def test_samples_and_pass_at_k(questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Question n is right in n of 4 samples for n < 4, else never: means 1/4, 2/4, 3/4, 0 of the first four.
    play(monkeypatch, trained=Scripted("trained", lambda prompt, sample: _sampled(number_in(prompt), sample)))
    assert evaluate(questions, tmp_path / "out", "--samples", "4", "--limit", "4") == 0
    (accuracy,) = cells(tmp_path / "out", "Accuracy")
    assert accuracy[2:4] == ("4", "37.5")
    (passes,) = cells(tmp_path / "out", "pass@k")
    # pass@2: 1 - C(3,2)/C(4,2) = 1/2, 1 - 1/6 = 5/6, 1, 0; pass@4: 1, 1, 1, 0.
    assert [cell.split()[0] for cell in passes[2:]] == ["37.5", f"{100 * (0.5 + 5 / 6 + 1) / 4:.1f}", "75.0"]


def _sampled(number: int, sample: int) -> str:
    return f"\\boxed{{{number if number < 4 and sample < number else 0}}}"


def test_failed_answers_are_left_out_and_asked_for_again(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(prompt: str, sample: int) -> str | None:
        return None if number_in(prompt) <= 20 else str(right_up_to(30)(prompt, sample))

    play(monkeypatch, trained=Scripted("trained", say))
    assert evaluate(questions, tmp_path / "out") == 0
    evaluation = read_evaluation(tmp_path / "out")
    assert (evaluation.scores[0].value, evaluation.scores[0].count) == (50.0, 20)
    assert any("20 answers failed" in note and "on fire" in note for note in evaluation.notes)
    again = Scripted("trained", right_up_to(30))
    play(monkeypatch, trained=again)
    assert evaluate(questions, tmp_path / "out") == 0
    assert len(again.asked) == 20
    assert read_evaluation(tmp_path / "out").scores[0].value == 75.0
    play(monkeypatch, trained=Scripted("trained", lambda prompt, sample: None))
    assert evaluate(questions, tmp_path / "none") == 1


def test_the_average_over_the_seven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spyrl.evaluation import benchmarks
    from spyrl.evaluation.rows import Row

    def rows_of(source: str, **options: Any) -> list[Row]:
        return [Row(source, {"question": f"number {n}", "answer": str(n)}) for n in range(1, 11)]

    monkeypatch.setattr(benchmarks, "rows_of", rows_of)
    play(monkeypatch, trained=Scripted("trained", right_up_to(5)), base=Scripted("base", right_up_to(4)))
    words = ["--benchmark", "all", "--to", str(tmp_path), "--against", "base"]
    assert main(["eval", "math", "trained", *words]) == 0
    scores = read_evaluation(tmp_path).scores
    assert len(scores) == 8
    assert (scores[-1].dataset, scores[-1].value, scores[-1].base) == ("average of all 7", 50.0, 40.0)
    # Seven times the same: its interval is narrower by √7.
    widths = [(score.value - score.low) if score.low is not None else 0 for score in (scores[0], scores[-1])]
    assert widths[0] / widths[1] == pytest.approx(7**0.5)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--benchmark", "gsm9k"], "there are gsm8k"),
        (["--benchmark", "gsm8k,aime24", "--data", "x.jsonl"], "one benchmark"),
        (["--benchmark", "gsm8k", "--data", "no.jsonl"], "no file"),
        (["--benchmark", "gsm8k", "--samples", "2", "--temperature", "0"], "same answer"),
        (["--benchmark", "gsm8k", "--temperature", "-1"], "0 or more"),
    ],
)
def test_bad_input_is_refused_before_any_work(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "math", "trained", *words]) == 2
    assert error in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_not_there(questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate(questions, tmp_path / "out") == 2
    assert "'trained' was not found" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_other_settings_do_not_mix(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch, trained=Scripted("trained", right_up_to(5)))
    assert evaluate(questions, tmp_path / "out", "--limit", "5") == 0
    assert evaluate(questions, tmp_path / "out", "--limit", "10") == 0
    assert evaluate(questions, tmp_path / "out", "--max-new-tokens", "7") == 2
    assert "made with other settings" in capsys.readouterr().err


def test_a_real_model(questions: Path, tmp_path: Path, tiny_model: Path) -> None:
    words = [
        "--benchmark",
        "gsm8k",
        "--data",
        str(questions),
        "--limit",
        "5",
        "--samples",
        "2",
        "--max-new-tokens",
        "6",
    ]
    found = []
    for name in ("one", "two"):
        assert main(["eval", "math", str(tiny_model), *words, "--device", "cpu", "--to", str(tmp_path / name)]) == 0
        found.append((tmp_path / name / "answers-gsm8k.jsonl").read_text())
    assert found[0] == found[1]
    assert len(found[0].splitlines()) == 11
