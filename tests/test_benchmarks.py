"""The benchmarks run, and what they count is right."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmarks import __main__ as command
from benchmarks import update
from benchmarks.measuring import in_turn, speedup
from benchmarks.update import detection, distinct_tokens, performing


def found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    monkeypatch.setattr("sys.argv", ["benchmarks", *arguments, "--json"])
    assert command.main() == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert {"processor", "cores", "torch", "transformers"} <= told["machine"].keys()
    return told


def test_the_builder(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = found(capsys, monkeypatch, "builder", "--prompt", "20", "--repeats", "1")["rows"]
    assert row["trajectories"] == 1000
    assert row["tokens"] == 1000 * (20 + 32)
    # 125 prompts and, of each answer, what is read to write it; answers rarely begin alike.
    assert 125 * 20 + 1000 * 31 - 5 <= row["tokens_in_trees"] <= 125 * 20 + 1000 * 31


def test_the_update(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "VOCABULARY", 300)
    arguments = ("update", "--layers", "1", "--prompts", "30", "--repeats", "1", "--no-memory")
    rows = found(capsys, monkeypatch, *arguments)["rows"]
    assert [(row["stage"], row["prompt_tokens"], row["against"]) for row in rows] == [
        ("detection", 30, "padded"),
        ("performing", 30, "padded"),
    ]
    assert all(row["lowest"] <= row["speedup"] <= row["highest"] for row in rows)
    assert all(row["computed_over_distinct"] == 1 for row in rows)


def test_distinct_tokens() -> None:
    assert distinct_tokens(detection(100, answers=8, written=32)) == 100 + 8 * 31
    # The civilians share the prompt; the spy shares its first 40 % with them.
    assert distinct_tokens(performing(100, players=5, written=50)) == 100 + 60 + 5 * 49


def test_ratios_are_of_pairs() -> None:
    row = speedup([1.0, 2.0, 4.0], [2.0, 8.0, 12.0])
    assert (row["speedup"], row["lowest"], row["highest"], row["seconds"]) == (3.0, 2.0, 4.0, 2.0)


def test_pairs_are_run_in_turn() -> None:
    order: list[str] = []
    ours, theirs = in_turn(lambda: order.append("a"), lambda: order.append("b"), 2)
    assert "".join(order) == "ab" + "abab"
    assert len(ours) == len(theirs) == 2
