"""A run's result as a folder to publish: a plain Hugging Face model with its card."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spyrl.config import Config, config_of
from spyrl.errors import SpyRLError, UsageError, first_line
from spyrl.evaluation.card import SETTINGS_FILE, Published, model_card, settings_text
from spyrl.evaluation.example_game import choose_game
from spyrl.evaluation.origin import Base
from spyrl.evaluation.results import Evaluation, evaluations_of
from spyrl.figures import curve_figure, has_curve, training_figure
from spyrl.policy.models import load_model, save_model
from spyrl.policy.settings import ModelSettings
from spyrl.runs.folder import RunFolder

_CARD = "README.md"
_MANIFEST = ".spyrl-export.json"
_FIGURES = ("training.png", "training.svg")
_CURVE = "held_out.png"


@dataclass(frozen=True)
class FinishedRun:
    """A run that has a result, and what is known of it."""

    folder: RunFolder
    config: Config
    preset: str
    metrics: list[dict[str, Any]]
    evaluations: list[Evaluation]
    older: list[str]
    """Names of evaluations that were made before the result was written."""

    @property
    def adapters(self) -> bool:
        """Whether the result is LoRA adapters rather than a whole model."""
        return not (self.folder.model / "config.json").is_file()


def finished_run(path: Path) -> FinishedRun:
    """The run in ``path``. Raises `UsageError` where there is none, or it has no result yet, saying what to do."""
    run = RunFolder(path)
    if not run.config_path.is_file():
        raise UsageError(f"{path} is no run: it has no config.yaml; give the folder of one, for example runs/ledger")
    saved, preset = run.read_config()
    config = config_of(saved, str(run.config_path))
    metrics = run.read_metrics()
    there = [name for name in ("config.json", "adapter_config.json") if (run.model / name).is_file()]
    if not there or len(metrics) < config.training.iterations:
        raise UsageError(_unfinished(run, config, len(metrics), bool(there)))
    written = (run.model / there[0]).stat().st_mtime
    results = sorted(run.evaluations.rglob("results.json"))
    return FinishedRun(
        folder=run,
        config=config,
        preset=preset,
        metrics=metrics,
        evaluations=evaluations_of(run.evaluations),
        older=[
            each.parent.relative_to(run.evaluations).as_posix() for each in results if each.stat().st_mtime < written
        ],
    )


def _unfinished(run: RunFolder, config: Config, done: int, earlier: bool) -> str:
    resume = f"spyrl train --resume run.name={run.path.name}"
    resume += "" if run.path.parent == Path("runs") else f" run.folder={run.path.parent}"
    checkpoints = [int(path.name.removeprefix("iteration-")) for path in run.checkpoints.glob("iteration-*")]
    said = f"run {run.path} has no result yet: {done} of {config.training.iterations} iterations are done"
    said += f" ({run.model} is of an earlier, shorter one)" if earlier else ""
    said += f". To go on: {resume}"
    if checkpoints:
        said += f"; to end it where its newest checkpoint is: {resume} training.iterations={max(checkpoints)}"
    return said


def check_target(folder: Path) -> bool:
    """Whether ``folder`` holds an earlier export, which a new one replaces.

    Raises `UsageError` where anything else is there, or where the export was changed by hand: that would be lost.
    """
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file; choose another --to")
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    if not names:
        return False
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        written, card = set(manifest["files"]), manifest["card"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{folder} is not empty and is no earlier export; choose another --to") from None
    if foreign := sorted(names - written - {_MANIFEST}):
        raise UsageError(
            f"{folder} is an earlier export with other files in it ({', '.join(foreign[:3])}); move them away, or "
            "choose another --to"
        )
    if _CARD in names and _digest(folder / _CARD) != card:
        raise UsageError(
            f"{folder / _CARD} was changed since it was exported and would be lost; move it away, or choose "
            "another --to"
        )
    return True


def export(
    run: FinishedRun,
    folder: Path,
    name: str,
    base: Base,
    *,
    merge: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> list[Path]:
    """Write the run's result with its card to ``folder``; returns the files.

    The card loads the model as ``name``. The folder appears whole or not at all; an earlier export is replaced
    (`check_target` first). Raises `SpyRLError` where it cannot be written, `UsageError` for adapters to ``merge`` whose
    base is not there.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        adapters = run.adapters and not merge
        if run.adapters and merge:
            _merge(run, partial, say)
        else:
            shutil.copytree(run.folder.model, partial, ignore=shutil.ignore_patterns(_CARD, ".*"))
        loads_base = _name_base(partial, base) if adapters else None
        _describe(run, partial, name, base, loads_base)
        files = sorted(path.relative_to(partial) for path in partial.rglob("*") if path.is_file())
        manifest = {"files": [path.as_posix() for path in files], "card": _digest(partial / _CARD)}
        (partial / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        _swap(partial, folder)
    except OSError as error:
        raise SpyRLError(
            f"cannot write {folder}: {error.strerror or error}; make room, or choose another --to"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return [folder / path for path in files]


def _merge(run: FinishedRun, target: Path, say: Callable[[str], None]) -> None:
    """Write the base with the run's adapters added to its weights; the sum is made in float32."""
    model = run.folder.model
    loaded = load_model(ModelSettings(str(model), device="cpu", dtype="float32"), trainable=False, say=say)
    say("merging")
    merged = replace(loaded, model=loaded.model.merge_and_unload())
    save_model(merged, target, then="run the command again")


def _name_base(folder: Path, base: Base) -> str:
    """Let adapters name their base as others can load it; returns that name."""
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    if base.hub_id:
        settings["base_model_name_or_path"] = base.hub_id
        path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return str(settings["base_model_name_or_path"])


def _describe(run: FinishedRun, folder: Path, name: str, base: Base, loads_base: str | None) -> None:
    """Write pictures, settings and card."""
    metrics, config = run.metrics, run.config
    detected = any(line.get("detection/accuracy") is not None for line in metrics)
    if detected:
        training_figure(metrics, _levels(config), [folder / each for each in _FIGURES])
    measured = has_curve(metrics)
    if measured:
        curve_figure(metrics, folder / _CURVE)
    versions, hardware = run.folder.made_with()
    published = Published(
        name=name,
        config=config,
        preset=run.preset,
        metrics=metrics,
        versions=versions,
        hardware=hardware,
        base=base,
        adapters=loads_base,
        evaluations=run.evaluations,
        game=choose_game(run.folder),
        figure=_FIGURES[0] if detected else None,
        vector=_FIGURES[1] if detected else None,
        curve=_CURVE if measured else None,
    )
    (folder / SETTINGS_FILE).write_text(settings_text(config), encoding="utf-8")
    model_card(published).save(folder / _CARD)


def _levels(config: Config) -> dict[str, float]:
    """Shares to compare a run's detection with: chance, and what turns the gate."""
    levels = {"chance": 1 / config.game.players}
    if config.training.stages == "alternate":
        gate = config.game.gate
        levels |= {"performing above": gate.accuracy, "detection below": 1 - gate.error}
    return levels


def _swap(partial: Path, folder: Path) -> None:
    """Put the new folder in the place of the old one, which goes only when the new one is there."""
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    try:
        partial.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def push(files: list[Path], folder: Path, repo: str, *, private: bool) -> str:
    """Upload an exported folder to the Hub's model ``repo``; returns its address.

    Weights and adapters of an earlier upload that are not among ``files`` are deleted there, since they would be
    loaded in place of these. Raises `SpyRLError` where the Hub does not answer or refuses.
    """
    import huggingface_hub

    api = huggingface_hub.HfApi()
    hint = (
        f"The folder {folder} is whole; to upload it later: hf upload {repo} {folder}{' --private' if private else ''}"
    )
    try:
        made = api.create_repo(repo, private=private, exist_ok=True)
        if private and not api.model_info(made.repo_id).private:
            raise SpyRLError(f"nothing was uploaded: {made.repo_id} exists and is public; choose another --push")
        api.upload_folder(
            repo_id=made.repo_id,
            folder_path=folder,
            commit_message="Exported by spyrl",
            allow_patterns=[path.relative_to(folder).as_posix() for path in files],
            delete_patterns=["*.safetensors", "*.safetensors.index.json", "adapter_config.json", "config.json"],
        )
    except SpyRLError:
        raise
    except Exception as error:  # no network, no login, no permission: the library's errors are of many kinds
        raise SpyRLError(f"nothing was uploaded, the Hub cannot be used: {first_line(error)}. {hint}") from error
    return str(made)
