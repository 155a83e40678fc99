"""Which games are dealt, and which settings are refused before any."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import verifiers.v1 as vf
from pydantic import ValidationError

from spyrl.config import load_config
from spyrl.corpus import Cursor
from spyrl.play import corpus_for, deal_games
from spyrl.policy.opening import open_policy
from spyrl.policy.settings import ModelSettings
from spyrl.tasks import load_task
from spyrl_environment.replays import main as write_replays
from spyrl_environment.table import open_table
from spyrl_environment.taskset import DealData

CONFIGS = Path(__file__).parents[1] / "configs"
REASONED = "game.detectors.answer=reasoned"


def test_with_its_tokenizer_deals_are_those_of_training_this_model() -> None:
    settings = ["task=summarization", REASONED, "game.max_prompt_tokens=900", "game.max_tokens=50", "training.games=3"]
    dealt = list(open_table("writing-smollm2", settings, "bundled:ledger-0").deals(7))
    config = load_config("writing-smollm2", settings)
    corpus = corpus_for(config, load_task(config.task), open_policy(ModelSettings("bundled:ledger-0")))
    documents, cursor = corpus.take(Cursor(), 3)
    second, cursor = corpus.take(cursor, 3)
    third, _ = corpus.take(cursor, 1)
    expected = [
        deal
        for iteration, batch in enumerate((documents, second, third))
        for deal in deal_games(batch, config.game, config.run.seed, iteration)[0]
    ]
    assert dealt == expected
    assert dealt != list(open_table("writing-smollm2", settings, None).deals(7))  # they are cut elsewhere


def test_a_deal_survives_the_wire() -> None:
    for kind in ("mask", "nothing"):
        settings = [REASONED, f"game.degradation.kind={kind}", "training.stages=performing"]
        [deal] = open_table("writing-smollm2", settings, None).deals(1)
        data = DealData(preset="writing-smollm2", settings=settings, deal=deal)
        for exclude_none in (True, False):
            assert DealData.model_validate(data.model_dump(mode="json", exclude_none=exclude_none)) == data


def test_tasks_are_as_many_as_a_run_has_games_unless_told() -> None:
    taskset = {"id": "spyrl-environment", "preset": "writing-smollm2", "settings": [REASONED]}
    for games, expected in ((None, 12), (5, 5)):
        env = vf.load_environment(vf.resolve_env_config({"taskset": {**taskset, "games": games}}))
        tasks = list(env.taskset)
        assert len(tasks) == expected
        assert [task.data.name for task in tasks][2:4] == ["0/2", "1/0"]
        assert len({task.key for task in tasks}) == expected


@pytest.mark.parametrize(
    ("preset", "settings", "message"),
    [
        ("writing-smollm2", [], "game.detectors.answer=reasoned"),
        ("writing-smolm2", [REASONED], "did you mean 'writing-smollm2'"),
        ("writing-smollm2", [REASONED, "game.player=3"], "did you mean 'players'"),
        ("writing-smollm2", [REASONED, "game.min_tokens=2"], "game.min_tokens"),
        ("writing-smollm2", [REASONED, "game.rewards.control=shuffled"], "shuffled"),
        ("writing-smollm2", [REASONED, "model.detector.path=x", "training.stages=performing"], "env.detector"),
    ],
)
def test_settings_that_cannot_be_kept_are_refused_with_the_way_out(
    preset: str, settings: list[str], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        vf.resolve_env_config({"taskset": {"id": "spyrl-environment", "preset": preset, "settings": settings}})


def test_without_a_spy_there_is_no_detection_to_train() -> None:
    settings = [REASONED, "game.degradation.kind=nothing", "training.stages=performing"]
    taskset = {"id": "spyrl-environment", "preset": "writing-smollm2", "settings": settings}
    with pytest.raises(ValidationError, match="needs a spy"):
        vf.resolve_env_config({"taskset": taskset, "stage": "detection"})


def test_records_of_something_else_are_no_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write_replays([str(tmp_path)]) == 2
    assert "cannot read" in capsys.readouterr().err
    (tmp_path / "traces.jsonl").write_text('{"a": 1}\n', encoding="utf-8")
    assert write_replays([str(tmp_path)]) == 2
    assert "line 1: no episode" in capsys.readouterr().err


@pytest.mark.parametrize("stage", ["detection", "performing"])
def test_the_configurations_for_prime_rl_play_the_published_game(stage: str) -> None:
    whole = tomllib.loads((CONFIGS / f"prime-rl-{stage}.toml").read_text(encoding="utf-8"))
    [source] = whole["orchestrator"]["train"]["source"]
    config = vf.resolve_env_config(source["env"])
    published = load_config("writing-qwen3-4b")
    assert config.stage == stage
    assert config.taskset.configuration() == published
    assert config.taskset.tokenizer == whole["model"]["name"] == published.model.path
    assert whole["orchestrator"]["batch_size"] == published.training.games
    assert whole["max_steps"] <= published.game.gate.patience
    assert whole["orchestrator"]["train"]["sampling"] == {
        "temperature": published.game.temperature,
        "max_tokens": published.game.max_tokens,
    }
