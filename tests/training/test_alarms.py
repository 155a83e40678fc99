"""Alarms are raised where a threshold is crossed, once, and not by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from made_games import made_up
from spyrl.play.indicators import indicators
from spyrl.runs.folder import RunFolder
from spyrl.training.alarms import alarms
from spyrl.training.train import train
from tiny import Onlooker, tiny_config


def test_a_shortcut_is_told_of_once() -> None:
    warned: set[str] = set()
    now = {"games/played": 128, "shortcut/words": 0.2, "shortcut/characters": 0.1, "shortcut/digits": 0.51}
    (said,) = alarms({}, now, warned)
    assert said.startswith("shortcut: the spy has fewer characters than 90% of the civilians")
    assert alarms({}, now, warned) == []
    (said,) = alarms({}, {**now, "shortcut/mask": 0.9}, warned)
    assert "more mask characters than 90%" in said


@pytest.mark.parametrize(("games", "share", "count"), [(128, 0.66, 1), (128, 0.64, 0), (3, 1.0, 0), (0, 1.0, 0)])
def test_chance_in_small_batches_raises_none(games: int, share: float, count: int) -> None:
    assert len(alarms({}, {"games/played": games, "shortcut/lines": share}, set())) == count


def test_made_up_runs() -> None:
    for seed in range(15):
        clean = {"games/played": 64, **indicators(made_up(seed, 64))}
        assert alarms(clean, clean, set()) == []
    planted = {"games/played": 64, **indicators(made_up(0, 64, shorter=0.3))}
    assert [text for text in alarms(planted, planted, set()) if text.startswith("shortcut: the spy has fewer ")]


@pytest.mark.parametrize(
    ("first", "now", "begins"),
    [
        ({}, {"detection/position_bias": 0.35, "detection/votes/player_2": 0.6}, "position bias: player 2 gets 60%"),
        ({}, {"detection/position_bias": 0.25, "detection/votes/player_2": 0.4}, None),
        ({}, {"detection/abstained": 0.5}, "format: 50% of the ballots abstain"),
        ({}, {"detection/invalid": 0.2}, "format: 20% of the ballots cannot be read"),
        ({}, {"outputs/missing": 0.3}, "format: 30% of the outputs are missing"),
        ({"diversity/distinct_2": 0.8}, {"diversity/distinct_2": 0.47}, "diversity: pairs of words are less varied"),
        ({"diversity/distinct_2": 0.8}, {"diversity/distinct_2": 0.5}, None),
        ({"diversity/between": 0.1}, {"diversity/between": 0.31}, "diversity: outputs for different documents"),
        ({"diversity/repetition": 0.1}, {"diversity/repetition": 0.31}, "diversity: outputs repeat themselves"),
        ({}, {"diversity/repetition": 0.9}, None),
        ({}, {"logprob_gap/mean": 0.12}, "engine: what generates samples with other probabilities"),
        ({}, {"logprob_gap/mean": 0.05, "logprob_gap/max": 0.7}, None),
    ],
)
def test_thresholds(first: dict[str, float], now: dict[str, float], begins: str | None) -> None:
    said = alarms(first, {"games/played": 128, **now}, set())
    assert [text.startswith(begins or "") for text in said] == ([True] if begins else [])


def test_a_run_logs_indicators_and_says_an_alarm_once(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spyrl.training import train as module

    real = module.run_iteration

    def short_spies(setup: Any, state: Any) -> Any:
        after, metrics = real(setup, state)
        return after, metrics | {"games/played": 128, "shortcut/words": 0.1}

    monkeypatch.setattr(module, "run_iteration", short_spies)
    watcher = Onlooker()
    config = tiny_config(tmp_path, tiny_model, "training.iterations=3", "training.games=2")
    run = RunFolder(tmp_path / "told")
    train(config, run, watcher, preset="writing-smollm2")
    assert len([text for text in watcher.said if text.startswith("shortcut: the spy has fewer words")]) == 1
    assert all({"shortcut/words", "shortcut/length_gap"} <= set(line) for line in run.read_metrics())
