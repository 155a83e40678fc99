"""The benchmarks run, and what they count is right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from benchmarks import __main__ as command
from benchmarks import playing, scaling, update
from benchmarks.iteration import OneAfterAnother
from benchmarks.measuring import in_turn, speedup
from benchmarks.update import detection, distinct_tokens, flops, performing
from transformers import LlamaConfig, LlamaForCausalLM

from spyrl.policy import Completion, Request
from spyrl.policy.local import LocalPolicy


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
    arguments = ("update", "--layers", "1", "--prompts", "30", "--repeats", "1", "--no-memory", "--against", "padded")
    monkeypatch.setattr(update, "apart", lambda work, *arguments: work(*arguments))
    monkeypatch.setattr(update, "VOCABULARY", 300)
    rows = found(capsys, monkeypatch, *arguments)["rows"]
    assert [(row["stage"], row["prompt_tokens"], row["against"]) for row in rows] == [
        ("detection", 30, "padded"),
        ("performing", 30, "padded"),
    ]
    assert all(row["lowest"] <= row["speedup"] <= row["highest"] for row in rows)
    assert all(row["computed_over_distinct"] == 1 for row in rows)
    assert all(row["of_bound"] > 0 for row in rows)


def test_what_is_too_wide_for_a_table_is_written_in_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    narrow: dict[str, str | int | float] = {"varied": "games", "size": 2, "seconds": 0.5}
    command.show("scaling", [narrow])
    assert "varied  size  seconds" in capsys.readouterr().out
    command.show("scaling", [narrow | {f"figure_number_{at}": at / 3 for at in range(6)}])
    told = capsys.readouterr().out
    assert "games · size 2\n  seconds 0.5 · figure number 0 0 · figure number 1 0.333" in told
    assert "…" not in told
    assert max(map(len, told.splitlines())) <= 80


def test_generating(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "VOCABULARY", 300)
    arguments = ("generate", "--layers", "1", "--prompts", "60", "--games", "2", "--written", "3", "--repeats", "1")
    rows = found(capsys, monkeypatch, *arguments)["rows"]
    assert [(row["stage"], row["against"]) for row in rows] == [
        (stage, against) for stage in ("detection", "performing") for against in ("one game at a time", "one batch")
    ]


@pytest.fixture
def tiny_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """Games by a model that costs next to nothing: prompts have two thousand tokens, rules included."""
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8192,
    )
    monkeypatch.setattr(playing, "smollm2", lambda layers: LlamaForCausalLM(config))


SMALL = ("--layers", "1", "--games", "2", "--length", "40", "--written", "4", "--repeats", "1")


@pytest.mark.usefixtures("tiny_games")
def test_a_whole_iteration_against_the_published_schedule(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = found(capsys, monkeypatch, "iteration", *SMALL)["rows"]
    assert [row["stage"] for row in rows] == ["detection", "performing"]
    assert all(row["speedup"] > 0 and row["detect_speedup"] > 0 for row in rows)


def test_one_after_another_asks_for_one_sample_of_each_request_at_a_time() -> None:
    asked: list[list[tuple[int, ...]]] = []

    class Watched(LocalPolicy):
        def __init__(self) -> None:
            self.name = "watched"

        def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
            asked.append([request.seeds for request in requests])
            return [[Completion(str(seed), "stop") for seed in request.seeds] for request in requests]

    policy = OneAfterAnother(Watched())
    answers = policy.generate([Request((), (1, 2, 3)), Request((), (4,))])
    assert asked == [[(1,), (4,)], [(2,)], [(3,)]]
    assert [[each.text for each in completions] for completions in answers] == [["1", "2", "3"], ["4"]]


@pytest.mark.usefixtures("tiny_games")
def test_the_overhead_is_what_is_not_the_models(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = found(capsys, monkeypatch, "overhead", *SMALL)["rows"]
    for row in rows:
        assert 0 < row["in_the_model"] < row["seconds"]
        assert row["outside"] == pytest.approx(1 - row["in_the_model"] / row["seconds"])


def test_growth(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    times = {2: (3.0, 100.0), 4: (6.0, 110.0), 8: (12.0, 130.0), 16: (24.0, 150.0)}
    monkeypatch.setattr(scaling, "apart", lambda work, folder, model, sizes, repeats: times[sizes["games"]])
    monkeypatch.setattr(scaling, "model_folder", lambda folder, layers: folder)
    rows = found(capsys, monkeypatch, "scaling", "--only", "games")["rows"]
    assert [row["size"] for row in rows] == [2, 4, 8, 16]
    assert [row["exponent"] for row in rows] == pytest.approx([1.0] * 4)


def test_distinct_tokens() -> None:
    assert distinct_tokens(detection(100, answers=8, written=32)) == 100 + 8 * 31
    # The civilians share the prompt; the spy shares its first 40 % with them.
    assert distinct_tokens(performing(100, players=5, written=50)) == 100 + 60 + 5 * 49


def test_flops_are_those_of_the_distinct_tokens() -> None:
    """Two answers of two tokens to a prompt of one: three tokens are read, four are scored."""
    trajectories = detection(1, answers=2, written=2)
    weights = 2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536
    attended = 1 + 2 + 2
    assert flops(trajectories, 1) == 3 * (2 * weights * 3 + 2 * 576 * update.VOCABULARY * 4 + 4 * 576 * attended)


def test_ratios_are_of_pairs() -> None:
    row = speedup([1.0, 2.0, 4.0], [2.0, 8.0, 12.0])
    assert (row["speedup"], row["lowest"], row["highest"], row["seconds"]) == (3.0, 2.0, 4.0, 2.0)


def test_pairs_are_run_in_turn() -> None:
    order: list[str] = []
    ours, theirs = in_turn(lambda: order.append("a"), lambda: order.append("b"), 2)
    assert "".join(order) == "ab" + "abab"
    assert len(ours) == len(theirs) == 2
