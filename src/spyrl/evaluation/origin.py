"""Where a run's result comes from, as far as it may be published: base model, licence, data set, settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import HfApi, ModelCard

from spyrl.config import Config, load_config, preset_names
from spyrl.corpus import hub_data_set
from spyrl.errors import UsageError
from spyrl.policy.models import BUNDLED_PREFIX, EMBEDDED, EMBEDDED_HUB_ID
from spyrl.runs.settings import RunSettings
from spyrl.settings import flat, plain

# A local path up to its last part, at the beginning of a word.
_LOCAL_FOLDERS = re.compile(r"(?<![^\s(\"'`=,])(?:~|\.{1,2})?/(?!/)(?:[^\s/\"'`]+/)*(?=[^\s/])")
_HOST = re.compile(r"(?<=://)[^/\s]+")

Changes = Sequence[tuple[str, Any, Any]]
"""Settings that differ: dotted key, value before, value now."""


@dataclass(frozen=True)
class Base:
    """The model that a run began with. What is not known is empty: nothing here is guessed."""

    name: str
    """Its Hub id, or what a local folder is called."""
    hub_id: str | None
    license: Mapping[str, Any]
    """``license``, and where that is ``other``, ``license_name`` and ``license_link``."""
    language: list[str] | None = None


def base_of(path: str, hub_id: str | None = None, license: str | None = None) -> Base:
    """The base model of a run with ``model.path=path``; ``hub_id`` and ``license`` are what a user knows better.

    Licence and language are read from the model's card, in its folder or on the Hub where that answers.
    """
    if path == EMBEDDED:
        path = EMBEDDED_HUB_ID
    folder = Path(path).expanduser()
    local = folder.is_dir() or path.startswith((".", "/", "~"))
    bundled = path.startswith(BUNDLED_PREFIX)
    known = hub_id or (None if local or bundled else path)
    if bundled:
        data = {"license": "apache-2.0"}  # as this package
    elif known == EMBEDDED_HUB_ID:
        data = {"license": "apache-2.0", "language": "en"}  # its card on the Hub
    else:
        data = (_local_card(folder) if local else {}) or (_hub_card(known) if known else {})
    terms = {key: data[key] for key in ("license", "license_name", "license_link") if data.get(key)}
    language = data.get("language")
    return Base(
        name=known or (path if bundled else folder.resolve().name),
        hub_id=known,
        license={"license": license} if license else terms,
        language=[language] if isinstance(language, str) else language,
    )


def _local_card(folder: Path) -> dict[str, Any]:
    """The metadata of a model's card; nothing where there is none that can be read."""
    try:
        data: dict[str, Any] = ModelCard.load(folder / "README.md", ignore_metadata_errors=True).data.to_dict()
    except Exception:  # no file, or metadata that is no YAML
        return {}
    return data


def _hub_card(repo: str) -> dict[str, Any]:
    try:
        card = HfApi().model_info(repo, timeout=10).card_data
    except Exception:  # no network, no such model, no access: the library's errors are of many kinds
        return {}
    return dict(card.to_dict()) if card else {}  # type: ignore[no-untyped-call]


def data_sets(config: Config) -> list[str]:
    """Hub ids of the data sets that a run's documents come from."""
    name = hub_data_set(config.corpus.path)
    return [name] if name else []


def public(text: str) -> str:
    """A text without the folders of this machine: of local paths only the last part is left."""
    return _LOCAL_FOLDERS.sub("", text)


def public_settings(config: Config) -> dict[str, Any]:
    """All settings without what concerns this machine only: folders, hosts, the run's place."""
    own = RunSettings(seed=config.run.seed, checkpoint_every=config.run.checkpoint_every, keep=config.run.keep)
    settings: dict[str, Any] = _without_places(plain(replace(config, run=own)))
    return settings


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_places(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_places(item) for item in value]
    if isinstance(value, str):
        return value if value.startswith("hf://") else _HOST.sub("HOST", public(value))
    return value


def changed_settings(config: Config, preset: str) -> Changes | None:
    """The settings that differ from the preset's (with this task): dotted key, the preset's value, the run's.

    How often checkpoints are made and kept is left out. ``None`` where ``preset`` is a file of the user's own.
    """
    if preset not in preset_names():
        return None
    try:
        published = load_config(preset, [f"task={config.task}"])
    except UsageError:  # a task of the user's own that is not there any more
        return None
    before, after = flat(public_settings(published)), flat(public_settings(config))
    return [
        (key, before.get(key), value)
        for key, value in after.items()
        if before.get(key) != value and key not in ("run.checkpoint_every", "run.keep")
    ]


def command(config: Config, preset: str, changed: Changes) -> str:
    """What trains this again: the preset with its task, if it is another one, and the settings that were changed."""
    words = [f"{key}={_word(value)}" for key, _, value in changed]
    if load_config(preset).task != config.task:
        words = [f"task={public(config.task)}", *words]
    return " ".join(["spyrl", "train", preset, *map(shlex.quote, words)])


def _word(value: Any) -> str:
    """A value as it is written on the command line."""
    written: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return written.strip().removesuffix("\n...")
