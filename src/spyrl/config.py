"""A run's configuration: five groups and the task, from a preset or a file and ``key=value`` words.

Layers, later ones winning: the defaults of the code, the task's own, the preset or file, the command line. When the
command line names another task than the preset, the preset's corpus, degradation and evaluation give way to that
task's own.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from spyrl.corpus import CorpusSettings
from spyrl.corpus.ledger import MOST_PLAYERS
from spyrl.errors import UsageError
from spyrl.game.settings import GameSettings
from spyrl.policy.settings import ModelSettings
from spyrl.runs.settings import RunSettings
from spyrl.settings import build, check_keys, merged, nearest, plain, read_overrides, read_yaml
from spyrl.tasks import load_task
from spyrl.training.settings import TrainingSettings

DEFAULT_PRESET = "ledger"
_TEXT_PRESET = "writing-smollm2"  # what a task, corpus or model of one's own is tried with
LEDGER_MODELS = "bundled:ledger"
"""How the paths of the ledger's own models begin."""


@dataclass(frozen=True)
class Config:
    """Everything that can be set."""

    task: str = "writing"
    """Built-in task (writing, math, summarization, ledger), or a .yaml or .py file of your own."""
    model: ModelSettings = ModelSettings()
    corpus: CorpusSettings = CorpusSettings()
    game: GameSettings = GameSettings()
    training: TrainingSettings = TrainingSettings()
    run: RunSettings = RunSettings()


def default_preset(overrides: Sequence[str]) -> str:
    """The preset where none is named: the ledger, or where a task, corpus or model is named, that for texts."""
    words = read_overrides(overrides)

    def named(group: str, key: str) -> Any:
        settings = words.get(group)
        return settings.get(key) if isinstance(settings, dict) else None

    model = named("model", "path")
    own_model = bool(model) and not str(model).startswith(LEDGER_MODELS)
    own = words.get("task", "ledger") != "ledger" or named("corpus", "path") or named("model", "server") or own_model
    return _TEXT_PRESET if own else DEFAULT_PRESET


def preset_names() -> list[str]:
    """Names of the presets that come with the package."""
    folder = importlib.resources.files("spyrl.presets")
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def preset_text(name: str) -> str:
    """The YAML of a preset, comments included. Raises `UsageError` for an unknown name."""
    if name not in preset_names():
        raise UsageError(f"unknown preset {name!r}; {nearest(name, preset_names())}")
    return importlib.resources.files("spyrl.presets").joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def file_layer(source: str) -> dict[str, Any] | None:
    """The settings in a YAML file, their keys checked; ``None`` where ``source`` is a preset's name, not a file."""
    if not source.endswith((".yaml", ".yml")):
        return None
    layer = read_yaml(Path(source).expanduser())
    check_keys(Config, layer, source)
    return layer


def load_config(source: str | None = None, overrides: Sequence[str] = ()) -> Config:
    """Configuration of a preset's name or a YAML file (or `default_preset`), with ``key=value`` words laid over it.

    Raises `UsageError` for an unknown preset or key, naming the nearest, and for wrong types and values.
    """
    source = source or default_preset(overrides)
    layer = file_layer(source)
    if layer is None:
        layer = yaml.safe_load(preset_text(source)) or {}
        check_keys(Config, layer, f"preset {source}")
    words = read_overrides(overrides)
    check_keys(Config, words, "command line")
    task = words.get("task", layer.get("task", Config.task))
    if not isinstance(task, str):
        raise UsageError(f"task should be a name or a file, not {task!r}")
    if "task" in words and words["task"] != layer.get("task", Config.task):
        layer = _without_task_settings(layer)
    return config_of(merged(_task_defaults(task), layer, words), "settings")


def config_of(data: Mapping[str, Any], where: str) -> Config:
    """A configuration from the mapping that `as_yaml` writes, with what several groups decide together checked."""
    config = build(Config, data, where)
    stages, model = config.training.stages, config.model
    problem = ""
    if not config.game.has_spy and stages in ("detection", "joint"):
        problem = f"training.stages={stages} needs a spy, and game.degradation.kind=nothing has none; use performing"
    elif model.detector and stages != "performing" and config.game.has_spy:
        problem = "model.detector is fixed and cannot be trained; set training.stages=performing"
    elif model.performer and stages != "detection":
        problem = "model.performer is fixed and cannot be trained; set training.stages=detection"
    elif stages == "joint" and config.training.optimizer == "per_stage":
        problem = "training.stages=joint makes one step for both stages; set training.optimizer=shared"
    elif config.game.detectors.answer == "direct" and (model.server or (model.detector and model.detector.server)):
        problem = "direct ballots need the model in this process; set game.detectors.answer=reasoned"
    elif model.path.startswith(LEDGER_MODELS) and config.task != "ledger":
        problem = f"{model.path} knows the words of task ledger only; set model.path to a language model"
    elif model.path.startswith(LEDGER_MODELS) and config.game.players > MOST_PLAYERS:
        problem = f"{model.path} can name {MOST_PLAYERS} players; lower game.players={config.game.players}"
    elif config.training.evaluation.every and not has_splits(config):
        problem = "training.evaluation needs documents of its own: set training.evaluation.path, or its every to 0"
    elif config.game.min_tokens and (model.server or (model.performer and model.performer.server)):
        problem = "game.min_tokens needs the model in this process; a server cannot be asked for it"
    elif config.training.importance_cap and model.engine == "vllm" and config.game.top_p < 1:
        problem = "training.importance_cap needs game.top_p=1: vLLM tells the probabilities of what top_p leaves"
    if problem:
        raise UsageError(f"{where}: {problem}")
    return config


def as_yaml(config: Config) -> str:
    """The whole configuration as YAML."""
    return str(yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True))


def has_splits(config: Config) -> bool:
    """Whether held-out documents can come from the corpus; where it has no splits, they would be training's own."""
    if config.training.evaluation.path:
        return True
    path = config.corpus.path
    local = path.startswith("bundled:") or Path(path).expanduser().exists()
    return path.startswith(("generated:", "hf://")) or not local


def _task_defaults(task: str) -> dict[str, Any]:
    defaults = load_task(task).defaults
    check_keys(Config, defaults, f"task {task}")
    return merged(defaults, {"task": task})


def _without_task_settings(layer: Mapping[str, Any]) -> dict[str, Any]:
    game = {key: value for key, value in (layer.get("game") or {}).items() if key != "degradation"}
    training = {key: value for key, value in (layer.get("training") or {}).items() if key != "evaluation"}
    return {**{key: value for key, value in layer.items() if key != "corpus"}, "game": game, "training": training}
