"""From mappings and ``key=value`` words to checked dataclasses, with errors that name the key."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.config import Config
from spyrl.errors import UsageError
from spyrl.game import RewardSettings
from spyrl.game.settings import GameSettings
from spyrl.settings import build, check_keys, flat, merged, nearest, options, plain, read_overrides, read_yaml

OPTIONS = list(options(Config))
KEYS = [key for key, _, _ in OPTIONS]


def problem_of(*words: str) -> str:
    with pytest.raises(UsageError) as caught:
        build(Config, read_overrides(words), "here")
    assert caught.value.exit_code == 2
    return str(caught.value)


# Keys.


@pytest.mark.parametrize("key", KEYS)
def test_a_misspelt_key_names_the_nearest_at_every_depth(key: str) -> None:
    name = key.rpartition(".")[2]
    assert problem_of(f"{key}s_=1") == f"here: unknown key '{key}s_'; did you mean '{name}'?"


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("gmae.players", "unknown key 'gmae'; did you mean 'game'?"),
        ("game.degradation.fractoin", "unknown key 'game.degradation.fractoin'; did you mean 'fraction'?"),
        ("game.rewards.lambda_", "unknown key 'game.rewards.lambda_'; did you mean 'lambda'?"),
        ("model.lora.rnak", "unknown key 'model.lora.rnak'; did you mean 'rank'?"),
        ("model.detector.sever", "unknown key 'model.detector.sever'; did you mean 'server'?"),
        ("model.performer.qqq", "unknown key 'model.performer.qqq'; there is path, server"),
        ("zzzzzzz", "unknown key 'zzzzzzz'; there is corpus, game, model, run, task, training"),
    ],
)
def test_an_unknown_key(key: str, says: str) -> None:
    assert problem_of(f"{key}=1") == f"here: {says}"
    with pytest.raises(UsageError, match="unknown key"):
        check_keys(Config, read_overrides([f"{key}=1"]), "here")


@pytest.mark.parametrize("group", ["game", "game.gate", "model.lora", "model.detector"])
def test_a_value_where_settings_belong(group: str) -> None:
    assert problem_of(f"{group}=5") == f"here: {group} takes settings below it ({group}.KEY=...), not 5"


def test_settings_where_a_value_belongs() -> None:
    assert problem_of("game.players.count=5") == "here: game.players should be a valid integer, not {'count': 5}"


def test_checking_keys_leaves_values_alone() -> None:
    check_keys(Config, {"game": {"players": "many", "gate": None}}, "here")


def test_lambda_is_written_without_the_underscore() -> None:
    config = build(Config, {"game": {"rewards": {"lambda": 0.3}}}, "here")
    assert config.game.rewards == RewardSettings(lambda_=0.3)
    assert plain(config)["game"]["rewards"]["lambda"] == 0.3
    assert "game.rewards.lambda" in KEYS


def test_a_missing_key_is_named() -> None:
    assert problem_of("model.detector.server=http://localhost/v1") == "here: model.detector.path is missing"


# Types.


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("game.players=many", "game.players should be a valid integer, not 'many'"),
        ("game.players=4.5", "game.players should be a valid integer, got a number with a fractional part, not 4.5"),
        ("game.players=null", "game.players should be a valid integer, not None"),
        ("game.players=[4]", "game.players should be a valid integer, not [4]"),
        ("training.lr=fast", "training.lr should be a valid number"),
        ("training.gradient_checkpointing=maybe", "training.gradient_checkpointing should be a valid boolean"),
        ("game.detectors.view=both", "game.detectors.view should be 'own' or 'full', not 'both'"),
        ("game.output=Whole", "game.output should be 'whole', 'marked' or 'boxed', not 'Whole'"),
        ("game.degradation.kind=masks", "game.degradation.kind should be 'mask', "),
        ("game.rewards.lambda=x", "game.rewards.lambda should be a valid number"),
        ("corpus.max_words=long", "corpus.max_words should be a valid integer"),
        ("model.path=[a]", "model.path should be a valid string, not ['a']"),
        ("model.detector={path: [5]}", "model.detector.path should be a valid string, not [5]"),
        ("model.template=thinking", "model.template should be a valid dictionary, not 'thinking'"),
        ("run.name=yes", "run.name should be a valid string, not True"),
        ("training.iterations=yes", "training.iterations should be a number, not True"),
        ("training.lr=.nan", "training.lr should be a finite number, not nan"),
        ("training.lr=nan", "training.lr should be a finite number, not nan"),
        ("training.kl=.inf", "training.kl should be a finite number, not inf"),
        ("run.log=nobody", "run.log.0 should be 'tensorboard', 'wandb' or 'trackio', not 'nobody'"),
        ("run.log=[wandb, nobody]", "run.log.1 should be 'tensorboard', 'wandb' or 'trackio', not 'nobody'"),
        ("training.adam_betas=[0.9]", "training.adam_betas.1 is missing"),
        ("training.adam_betas=[0.9, b]", "training.adam_betas.1 should be a valid number"),
        ("game=null", "game should be a dictionary"),
        ("task=null", "task should be a valid string, not None"),
    ],
)
def test_a_wrong_type(word: str, says: str) -> None:
    assert problem_of(word).startswith(f"here: {says}")


def test_every_wrong_type_is_told_at_once() -> None:
    lines = problem_of("game.players=many", "training.lr=fast").splitlines()
    assert [line.partition(" should")[0] for line in lines] == ["here: game.players", "here: training.lr"]


# Ranges.


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("game.players=2", "game: players must be in 3..26, not 2"),
        ("game.players=27", "game: players must be in 3..26, not 27"),
        ("game.rounds=0", "game: rounds must be at least 1, not 0"),
        ("game.max_tokens=0", "game: max_tokens must be at least 1, not 0"),
        ("game.max_prompt_tokens=-1", "game: max_prompt_tokens must be at least 1, not -1"),
        ("game.temperature=-0.1", "game: temperature must be at least 0, not -0.1"),
        ("game.top_p=0", "game: top_p must be in (0, 1], not 0.0"),
        ("game.top_p=1.1", "game: top_p must be in (0, 1], not 1.1"),
        ("game.detectors.count=0", "game.detectors: count must be at least 1, not 0"),
        ("game.detectors.max_tokens=0", "game.detectors: max_tokens must be at least 1, not 0"),
        ("game.degradation.fraction=0", "game.degradation: fraction must be in (0, 1), not 0.0"),
        ("game.degradation.fraction=1", "game.degradation: fraction must be in (0, 1), not 1.0"),
        ("game.degradation.character=__", "game.degradation: character must be one visible character, not '__'"),
        ("game.roles.decay=1", "game.roles: decay must be in [0, 1), not 1.0"),
        ("game.roles.decay=-0.5", "game.roles: decay must be in [0, 1), not -0.5"),
        ("game.gate.decay=1", "game.gate: decay must be in [0, 1), not 1.0"),
        ("game.gate.accuracy=90", "game.gate: accuracy must be in [0, 1], not 90.0"),
        ("game.gate.dwell=0", "game.gate: dwell must be in 1..patience (20), not 0"),
        ("game.gate.patience=4", "game.gate: dwell must be in 1..patience (4), not 5"),
        ("training.iterations=0", "training: iterations must be at least 1, not 0"),
        ("training.games=0", "training: games must be at least 1, not 0"),
        ("training.epochs=0", "training: epochs must be at least 1, not 0"),
        ("training.minibatches=0", "training: minibatches must be at least 1, not 0"),
        ("training.batch_tokens=0", "training: batch_tokens must be at least 1, not 0"),
        ("training.lr=-1", "training: lr must be at least 0, not -1.0"),
        ("training.warmup=-1", "training: warmup must be at least 0, not -1"),
        ("training.kl=-0.1", "training: kl must be at least 0, not -0.1"),
        ("training.clip=0", "training: clip must be above 0, not 0.0"),
        ("training.max_grad_norm=0", "training: max_grad_norm must be above 0, not 0.0"),
        ("training.adam_betas=[0.9, 1]", "training: adam_betas must be in [0, 1), not [0.9, 1.0]"),
        ("training.importance_cap=0", "training: importance_cap must be above 0, not 0.0"),
        ("model.vllm.memory=1", "model.vllm: memory must be in (0, 1), not 1.0"),
        ("model.vllm.folder=x", "model.vllm: folder is for a server; set vllm.server"),
        ("model.batch_tokens=0", "model: batch_tokens must be at least 1, not 0"),
        ("model.lora.rank=-1", "model.lora: rank must be at least 0"),
        ("model.lora.dropout=1", "model.lora: rank must be at least 0 and dropout in [0, 1)"),
        ("corpus.path=''", "corpus: path must not be empty"),
        ("corpus.min_words=0", "corpus: min_words must be at least 1, not 0"),
        ("corpus.max_words=7", "corpus: max_words must be at least min_words, which is 8, not 7"),
        ("corpus.limit=0", "corpus: limit must be at least 1, not 0"),
        ("run.checkpoint_every=0", "run: checkpoint_every must be at least 1"),
        ("run.keep=-1", "run: checkpoint_every must be at least 1 and keep at least 0"),
        ("run.name=a/b", "run: name must be a plain folder name, not 'a/b'"),
        ("run.name='..'", "run: name must be a plain folder name, not '..'"),
    ],
)
def test_a_value_out_of_range(word: str, says: str) -> None:
    assert problem_of(word).startswith(f"here: {says}")


@pytest.mark.parametrize(
    "word",
    [
        "game.players=3",
        "game.players=26",
        "game.temperature=0",
        "game.top_p=0.001",
        "game.gate={dwell: 7, patience: 7}",
        "game.gate={accuracy: 0, error: 1}",
        "game.roles.decay=0",
        "game.degradation={kind: drop_sentences, fraction: 1}",
        "training.lr=0",
        "training.kl=0",
        "corpus.max_words=8",
        "run.keep=0",
    ],
)
def test_a_value_at_the_edge_of_its_range(word: str) -> None:
    assert build(Config, read_overrides([word]), "here") != Config()


# Words.


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["task=math"], {"task": "math"}),
        (["game.players=4"], {"game": {"players": 4}}),
        (["game.gate.dwell=2", "game.gate.patience=9"], {"game": {"gate": {"dwell": 2, "patience": 9}}}),
        (["run.name=a", "run.name=b"], {"run": {"name": "b"}}),  # the last one counts
        (["game={players: 4, gate: {dwell: 2}}"], {"game": {"players": 4, "gate": {"dwell": 2}}}),
        (["game.players=4", "game={rounds: 2}"], {"game": {"players": 4, "rounds": 2}}),
        (["game.players=4", "game.players=null"], {"game": {"players": None}}),
        (["corpus.max_words=null"], {"corpus": {"max_words": None}}),
        (["corpus.max_words="], {"corpus": {"max_words": None}}),
        (["run.log=[wandb, tensorboard]"], {"run": {"log": ["wandb", "tensorboard"]}}),
        (["run.log=[]"], {"run": {"log": []}}),
        (["model.lora.merge=true"], {"model": {"lora": {"merge": True}}}),
        (["model.template={enable_thinking: false}"], {"model": {"template": {"enable_thinking": False}}}),
        (["corpus.path=a=b"], {"corpus": {"path": "a=b"}}),
        (["model.server=http://localhost:8000/v1"], {"model": {"server": "http://localhost:8000/v1"}}),
        (["model.device=cuda:1"], {"model": {"device": "cuda:1"}}),
        ([r"corpus.path=C:\texts"], {"corpus": {"path": r"C:\texts"}}),
        (["corpus.path=: x"], {"corpus": {"path": ": x"}}),  # from here on no YAML, so a string
        (["corpus.path=[unclosed"], {"corpus": {"path": "[unclosed"}}),
        (["corpus.path=@file"], {"corpus": {"path": "@file"}}),
        (["run.name=2026-13-45"], {"run": {"name": "2026-13-45"}}),  # looks like a date and is none
        (["run.name='42'"], {"run": {"name": "42"}}),
        (["game.degradation.character='#'"], {"game": {"degradation": {"character": "#"}}}),
    ],
)
def test_reading_words(words: list[str], expected: dict[str, Any]) -> None:
    assert read_overrides(words) == expected


@pytest.mark.parametrize("word", ["game.players", "", "=4", ".players=4", "game.=4", "game..players=4", "--help"])
def test_a_word_that_is_no_setting(word: str) -> None:
    with pytest.raises(UsageError, match="write a setting as key=value, for example") as caught:
        read_overrides([word])
    assert repr(word) in str(caught.value)


@pytest.mark.parametrize("text", ["1e-6", "1E-6", "1.0e-6", "0.000001", "+1e-6"])
def test_a_learning_rate_is_a_number_however_it_is_written(text: str) -> None:
    assert build(Config, read_overrides([f"training.lr={text}"]), "here").training.lr == 1e-6


# Layers and round trips.


def test_a_flat_mapping_has_dotted_keys() -> None:
    nested = {"a": 1, "b": {"c": {"d": [1, {"e": 2}]}, "f": None}, "g": {}}
    assert flat(nested) == {"a": 1, "b.c.d": [1, {"e": 2}], "b.f": None}


def test_later_layers_win_and_groups_are_merged() -> None:
    one = {"task": "math", "game": {"players": 4, "gate": {"dwell": 2}}}
    other = {"game": {"gate": {"patience": 3}, "rounds": 2}, "run": {"seed": 1}}
    last = {"game": {"players": None, "gate": {"dwell": 1}}}
    assert merged(one, other, last) == {
        "task": "math",
        "game": {"players": None, "gate": {"dwell": 1, "patience": 3}, "rounds": 2},
        "run": {"seed": 1},
    }
    assert one["game"] == {"players": 4, "gate": {"dwell": 2}}  # no layer is changed


TREES = st.recursive(
    st.integers() | st.none() | st.lists(st.integers(), max_size=2),
    lambda below: st.dictionaries(st.sampled_from("abc"), below, max_size=3),
    max_leaves=5,
)
LAYERS = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


@given(LAYERS, LAYERS, LAYERS)
def test_layers_are_laid_one_after_the_other(one: dict[str, Any], other: dict[str, Any], last: dict[str, Any]) -> None:
    assert merged(one, {}) == merged({}, one) == merged(one, one) == one
    assert merged(merged(one, other), last) == merged(one, other, last)
    assert_laid_over(last, merged(one, other, last), merged(one, other))


def assert_laid_over(layer: Any, found: Any, below: Any) -> None:
    if not isinstance(layer, dict):
        assert found == layer
        return
    below = below if isinstance(below, dict) else {}
    assert set(found) == set(layer) | set(below)
    for key in found:
        if key in layer:
            assert_laid_over(layer[key], found[key], below.get(key))
        else:
            assert found[key] == below[key]


def test_plain_holds_only_dicts_lists_and_scalars_and_builds_the_same_again() -> None:
    words = ["training.adam_betas=[0.8, 0.9]", "model.detector.path=other", "run.log=[wandb]", "game.rewards.beta=1"]
    config = build(Config, read_overrides(words), "here")
    data = plain(config)

    def kinds(value: Any) -> set[type]:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return {type(value)}.union(*map(kinds, inner))

    assert kinds(data) <= {dict, list, str, int, float, bool, type(None)}
    assert data["training"]["adam_betas"] == [0.8, 0.9]
    assert build(Config, data, "here") == config


# YAML files.


def test_reading_yaml(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("game:\n  players: 4  # four\ntask: 灯\n", encoding="utf-8")
    assert read_yaml(path) == {"game": {"players": 4}, "task": "灯"}
    path.write_text("# nothing but a comment\n", encoding="utf-8")
    assert read_yaml(path) == {}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"game:\n  players: [4\n", r"settings\.yaml, line 3: not valid YAML: "),
        (b"game: a: b\n", r"settings\.yaml, line 1: not valid YAML: "),
        (b"a: 1\nb: !!python/object:os.system x\n", r"settings\.yaml, line 2: not valid YAML: "),
        (b"- a\n- b\n", r"settings\.yaml: expected keys and values, found list"),
        (b"just words\n", r"settings\.yaml: expected keys and values, found str"),
        (b"name: caf\xe9\n", r"settings\.yaml: it is not UTF-8 text \(byte 9\)"),
        (b"name: \x00\n", r"settings\.yaml: not valid YAML: "),
        (b"name: 2026-13-45\n", r"settings\.yaml: not valid YAML: month must be in 1\.\.12"),
    ],
)
def test_a_file_that_is_no_settings(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        read_yaml(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*missing\.yaml: No such file"):
        read_yaml(tmp_path / "missing.yaml")
    with pytest.raises(UsageError, match=r"cannot read .*: Is a directory"):
        read_yaml(tmp_path)


def test_the_nearest_name_or_all_of_them() -> None:
    assert nearest("plyers", ["rounds", "players"]) == "did you mean 'players'?"
    assert nearest("zzz", ["rounds", "players"]) == "there is players, rounds"


# The list of options.


def leaves(kind: type, prefix: str = "") -> list[str]:
    """Every key of the default configuration that is no group."""
    found = []
    for field in dataclasses.fields(kind):
        key = prefix + field.name.rstrip("_")
        inside = dataclasses.is_dataclass(field.default)
        found += leaves(type(field.default), key + ".") if inside else [key]
    return found


def test_every_setting_is_listed_once_in_order() -> None:
    optional = ("model.detector.", "model.performer.")
    assert [key for key in KEYS if not key.startswith(optional)] == leaves(Config)
    assert [key for key in KEYS if key.startswith(optional)] == [
        "model.detector.path",
        "model.detector.server",
        "model.performer.path",
        "model.performer.server",
    ]
    assert len(set(KEYS)) == len(KEYS) > 70


@pytest.mark.parametrize(("key", "description"), [(key, description) for key, _, description in OPTIONS], ids=KEYS)
def test_every_setting_is_described_in_one_line(key: str, description: str) -> None:
    assert len(description) > 10, key
    assert "\n" not in description
    assert "  " not in description


@pytest.mark.parametrize(("key", "default"), [(key, default) for key, default, _ in OPTIONS], ids=KEYS)
def test_every_default_can_be_written_as_it_is_shown(key: str, default: str) -> None:
    if key.startswith(("model.detector.", "model.performer.")):
        below = {"model.detector.path": "x", "model.performer.path": "x"} | {key: default or "x"}
        config = build(Config, read_overrides([f"{k}={v}" for k, v in below.items()]), "here")
        assert config.model.detector == config.model.performer
    else:
        assert build(Config, read_overrides([f"{key}={default}"]), "here") == Config()


def test_defaults_are_shown_as_yaml_writes_them() -> None:
    shown = {key: default for key, default, _ in OPTIONS}
    assert shown["game.players"] == "5"
    assert shown["game.rewards.lambda"] == "0.1"
    assert shown["model.lora.merge"] == "false"
    assert shown["corpus.shuffle"] == "true"
    assert shown["corpus.max_words"] == "null"
    assert shown["training.adam_betas"] == "[0.9, 0.999]"
    assert shown["model.detector"] == "null"
    assert shown["model.detector.path"] == ""


def test_options_below_a_prefix() -> None:
    assert next(iter(options(GameSettings, "game."))) == (
        "game.players",
        "5",
        "Players, 3 to 26 (paper: 5; 4 for GovReport).",
    )


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("run.name=42", ("run", "name"), "42"),
        ("run.name=2026-07-30", ("run", "name"), "2026-07-30"),
        ("corpus.subset=3", ("corpus", "subset"), "3"),
        ("model.path=7", ("model", "path"), "7"),
    ],
)
def test_a_name_that_yaml_takes_for_a_number_or_a_date_is_a_name(word: str, key: tuple[str, str], value: str) -> None:
    config = build(Config, read_overrides([word]), "here")
    assert getattr(getattr(config, key[0]), key[1]) == value
