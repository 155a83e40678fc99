"""A run's configuration: layers, presets, and what several groups decide together."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from spyrl.config import (
    DEFAULT_PRESET,
    Config,
    as_yaml,
    config_of,
    default_preset,
    load_config,
    preset_names,
    preset_text,
)
from spyrl.errors import UsageError
from spyrl.settings import plain
from spyrl.tasks import TASKS

MINE = """\
task: summarization
model: {path: folder/model}
corpus: {path: mine.jsonl, column: report, max_words: 500}
game:
  players: 4
  degradation: {fraction: 0.3, unit: sentences}
  gate: {dwell: 2}
training: {lr: 1.0e-5, games: 8}
run: {seed: 7}
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    return str(path)


def problem_of(source: str | None = None, *words: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_config(source, words)
    return str(caught.value)


# Layers.


def test_defaults_then_task_then_file_then_command_line(mine: str) -> None:
    config = load_config(mine, ["game.players=6", "corpus.limit=3", "game.gate.patience=9"])
    # The command line.
    assert (config.game.players, config.corpus.limit, config.game.gate.patience) == (6, 3, 9)
    # The file, where the command line is silent, also in the groups that it touches.
    assert (config.corpus.path, config.corpus.column, config.corpus.max_words) == ("mine.jsonl", "report", 500)
    assert (config.game.degradation.fraction, config.game.degradation.unit) == (0.3, "sentences")
    assert (config.game.gate.dwell, config.training.lr, config.run.seed) == (2, 1e-5, 7)
    # The defaults of the code.
    assert (config.game.gate.accuracy, config.training.kl, config.corpus.min_words) == (0.9, 0.001, 8)


def test_the_tasks_own_defaults_lie_below_the_file(tmp_path: Path) -> None:
    path = tmp_path / "short.yaml"
    path.write_text("task: math\ncorpus: {max_words: 50}\n", encoding="utf-8")
    config = load_config(str(path))
    assert (config.corpus.path, config.corpus.max_words) == ("bundled:math", 50)
    assert config.game.degradation.fraction == 0.4


def test_a_file_may_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "empty.yml"
    path.write_text("", encoding="utf-8")
    config = load_config(str(path))
    assert config.task == "writing"
    assert (config.corpus.path, config.corpus.max_words) == ("bundled:writing", 128)
    assert config.training == Config().training


@pytest.mark.parametrize("task", ["writing", "math"])
def test_another_task_replaces_the_files_corpus_and_degradation_and_nothing_else(mine: str, task: str) -> None:
    before, after = plain(load_config(mine)), plain(load_config(mine, [f"task={task}"]))
    own = plain(load_config(overrides=[f"task={task}"]))
    assert after["task"] == task
    assert after["corpus"] == own["corpus"] != before["corpus"]
    assert after["game"].pop("degradation") == own["game"]["degradation"] != before["game"].pop("degradation")
    for data in (before, after):
        del data["task"], data["corpus"]
    assert after == before


def test_another_task_on_the_command_line_takes_corpus_and_degradation_from_there_too(mine: str) -> None:
    config = load_config(mine, ["task=math", "corpus.column=theorem", "game.degradation.unit=characters"])
    assert (config.corpus.path, config.corpus.column, config.corpus.max_words) == ("bundled:math", "theorem", 1000)
    assert (config.game.degradation.fraction, config.game.degradation.unit) == (0.4, "characters")


def test_the_same_task_on_the_command_line_changes_nothing(mine: str) -> None:
    assert load_config(mine, ["task=summarization"]) == load_config(mine)
    assert load_config("writing-smollm2", ["task=writing"]) == load_config("writing-smollm2")
    assert load_config(overrides=["task=ledger"]) == load_config()


def test_a_file_without_a_task_is_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "notask.yaml"
    path.write_text("corpus: {path: mine.txt}\n", encoding="utf-8")
    assert load_config(str(path)).corpus.path == "mine.txt"
    assert load_config(str(path), ["task=writing"]).corpus.path == "mine.txt"
    assert load_config(str(path), ["task=math"]).corpus.path == "bundled:math"


# Errors say where.


def test_errors_name_the_layer_and_the_key(mine: str, tmp_path: Path) -> None:
    assert problem_of(mine, "game.plyers=3") == "command line: unknown key 'game.plyers'; did you mean 'players'?"
    assert problem_of(mine, "game.players=2").endswith(": game: players must be in 3..26, not 2")
    path = tmp_path / "wrong.yaml"
    path.write_text("trainig: {lr: 1}\n", encoding="utf-8")
    assert problem_of(str(path)) == f"{path}: unknown key 'trainig'; did you mean 'training'?"
    path.write_text("game:\n  players: [\n", encoding="utf-8")
    assert problem_of(str(path)).startswith(f"{path}, line ")
    assert problem_of(str(tmp_path / "gone.yaml")).startswith("cannot read ")


@pytest.mark.parametrize("value", ["5", "null", "[a]", "{name: math}"])
def test_a_task_that_is_no_name(value: str) -> None:
    assert "task" in problem_of(DEFAULT_PRESET, f"task={value}")


def test_an_unknown_task_or_preset_names_the_nearest() -> None:
    assert problem_of(DEFAULT_PRESET, "task=maht").startswith("unknown task 'maht'; did you mean 'math'?")
    assert problem_of("writing-smollm") == "unknown preset 'writing-smollm'; did you mean 'writing-smollm2'?"
    assert "unknown preset 'qqqqqqq'; there is" in problem_of("qqqqqqq")
    with pytest.raises(UsageError, match=r"unknown preset '\.\./config'"):
        preset_text("../config")


# Presets.


def test_the_default_preset_is_there() -> None:
    assert DEFAULT_PRESET in preset_names()
    assert load_config() == load_config(DEFAULT_PRESET)


@pytest.mark.parametrize(
    ("words", "preset"),
    [
        ([], "ledger"),
        (["training.iterations=3", "task=ledger"], "ledger"),
        (["model.path=bundled:ledger-2", "corpus.split=test"], "ledger"),
        (["task=math"], "writing-smollm2"),
        (["corpus.path=notes.jsonl"], "writing-smollm2"),
        (["model.path=some/model"], "writing-smollm2"),
        (["model.server=http://localhost/v1"], "writing-smollm2"),
    ],
)
def test_the_preset_where_none_is_named(words: list[str], preset: str) -> None:
    assert default_preset(words) == preset


def test_the_ledgers_models_can_name_eight_players() -> None:
    assert load_config("ledger", ["game.players=8"]).game.players == 8
    assert "can name 8 players" in problem_of("ledger", "game.players=9")


def test_held_out_documents_are_never_trainings_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("", encoding="utf-8")
    on = "training.evaluation.every=5"
    assert "training.evaluation needs documents of its own" in problem_of("writing-smollm2", on)
    assert "training.evaluation needs documents of its own" in problem_of("writing-smollm2", on, f"corpus.path={file}")
    assert load_config("writing-smollm2", [on, f"corpus.path={file}", "training.evaluation.path=other.jsonl"])
    assert load_config("writing-smollm2", [on, "corpus.path=euclaise/writingprompts"])
    assert preset_names() == sorted(set(preset_names()))


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_says_what_it_is_for(name: str) -> None:
    config = load_config(name)
    given = yaml.safe_load(preset_text(name))

    def assert_kept(given: dict[str, object], found: dict[str, object]) -> None:
        for key, value in given.items():
            if isinstance(value, dict) and isinstance(found[key], dict):
                assert_kept(value, found[key])  # type: ignore[arg-type]
            else:
                assert found[key] == (float(value) if isinstance(found[key], float) else value), (
                    key
                )  # 1e-6 is YAML text

    assert_kept(given, plain(config))
    assert config.task in TASKS
    assert preset_text(name).startswith("#")


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_written_out_whole_is_the_same_configuration(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    assert config_of(plain(config), "again") == config
    assert config_of(yaml.safe_load(as_yaml(config)), "again") == config
    path = tmp_path / "config.yaml"
    path.write_text(as_yaml(config), encoding="utf-8")
    assert load_config(str(path)) == config


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("task", TASKS)
def test_every_preset_plays_every_task(name: str, task: str) -> None:
    if name == "ledger" and task != "ledger":
        assert "knows the words of task ledger only" in problem_of(name, f"task={task}")
        language_model = ["model.path=smollm2"]
    else:
        language_model = []
    config = load_config(name, [f"task={task}", *language_model])
    assert config.task == task
    if load_config(name).task != task:
        assert config.corpus.path == ("generated:ledger" if task == "ledger" else f"bundled:{task}")
        assert config.game.degradation.fraction == TASKS[task].defaults["game"]["degradation"]["fraction"]


def test_any_configuration_survives_being_written(mine: str) -> None:
    words = [
        "game.rewards.lambda=0.25",
        "training={adam_betas: [0.5, 0.75], stages: performing}",
        "model={detector: {path: 判, server: 'http://localhost/v1'}, template: {enable_thinking: false, n: 1, x: 0.5}}",
        "model.lora={rank: 4, targets: [q_proj, v_proj]}",
        "run={name: 'no', log: [tensorboard]}",
        "corpus.max_words=null",
    ]
    config = load_config(mine, words)
    assert config.game.rewards.lambda_ == 0.25
    assert config.run.name == "no"
    assert config.model.template == {"enable_thinking": False, "n": 1, "x": 0.5}
    again = config_of(yaml.safe_load(as_yaml(config)), "again")
    assert again == config
    assert plain(again) == plain(config)
    assert "判" in as_yaml(config)


# What several groups decide together.


def fixed(part: str, stages: str) -> list[str]:
    """A server takes this part, the other stage is trained, and ballots are direct."""
    other = f"model.{part}={{path: x, server: 'http://localhost/v1'}}"
    return [other, f"training.stages={stages}", "game.detectors.answer=direct"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["game.degradation.kind=nothing", "training.stages=detection"], "needs a spy"),
        (["game.degradation.kind=nothing", "training.stages=joint"], "needs a spy"),
        (["model.detector.path=x"], "model.detector is fixed and cannot be trained; set training.stages=performing"),
        (["model.detector.path=x", "training.stages=detection"], "model.detector is fixed"),
        (["model.detector.path=x", "training.stages=joint"], "model.detector is fixed"),
        (["model.performer.path=x"], "model.performer is fixed and cannot be trained; set training.stages=detection"),
        (["model.performer.path=x", "training.stages=performing"], "model.performer is fixed"),
        (
            ["model.engine=vllm", "training.importance_cap=2", "game.top_p=0.9"],
            "training.importance_cap needs game.top_p=1",
        ),
        (["training.stages=joint", "training.optimizer=per_stage"], "set training.optimizer=shared"),
        (["model.server=http://localhost/v1", "game.detectors.answer=direct"], "set game.detectors.answer=reasoned"),
        (
            fixed("detector", "performing"),
            "direct ballots need the model in this process",
        ),
    ],
)
def test_settings_that_contradict_each_other(words: list[str], says: str) -> None:
    problem = problem_of(DEFAULT_PRESET, *words)
    assert problem.startswith("settings: ")
    assert says in problem


@pytest.mark.parametrize(
    "words",
    [
        ["game.degradation.kind=nothing", "training.stages=performing"],
        ["game.degradation.kind=nothing"],
        ["model.detector.path=x", "training.stages=performing"],
        ["model.performer.path=x", "training.stages=detection"],
        ["training.stages=joint"],
        ["training.optimizer=per_stage"],
        ["training.importance_cap=2", "game.top_p=0.9"],
        ["model.engine=vllm", "training.importance_cap=2"],
        ["model.server=http://localhost/v1", "game.detectors.answer=reasoned"],
        fixed("performer", "detection"),
    ],
)
def test_settings_that_go_together(words: list[str]) -> None:
    assert load_config("writing-smollm2", words) != load_config("writing-smollm2")
