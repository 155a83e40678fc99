"""A run's folder. Its names are a promise to other tools:

``config.yaml``, ``metrics.jsonl``, ``games/iteration-00000.parquet``, ``checkpoints/iteration-00010/``, ``model/``;
where the run is measured, ``held_out/iteration-00010.jsonl`` and ``curve.png``, where its result is evaluated,
``evaluations/NAME/``, too.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

import spyrl
from spyrl.errors import SpyRLError, UsageError
from spyrl.runs.games import write_games
from spyrl.runs.settings import RunSettings
from spyrl.settings import read_yaml

_NOT_SETTINGS = ("preset", "versions", "hardware")  # what config.yaml holds besides


@dataclass(frozen=True)
class RunFolder:
    """Paths and files of one run."""

    path: Path

    @property
    def config_path(self) -> Path:
        """Resolved configuration, versions, hardware and seed."""
        return self.path / "config.yaml"

    @property
    def metrics_path(self) -> Path:
        """One JSON object an iteration."""
        return self.path / "metrics.jsonl"

    @property
    def games(self) -> Path:
        """One Parquet file an iteration."""
        return self.path / "games"

    @property
    def checkpoints(self) -> Path:
        """What resuming needs."""
        return self.path / "checkpoints"

    @property
    def held_out(self) -> Path:
        """The most likely output for every held-out document: one file a measurement."""
        return self.path / "held_out"

    @property
    def curve(self) -> Path:
        """A picture of the held-out measurements."""
        return self.path / "curve.png"

    @property
    def model(self) -> Path:
        """The result, a plain Hugging Face folder."""
        return self.path / "model"

    @property
    def evaluations(self) -> Path:
        """What its result was found to do: one folder an evaluation."""
        return self.path / "evaluations"

    def create(self) -> None:
        """Make the folder. Raises `SpyRLError` where it exists by now or cannot be made."""
        try:
            self.path.mkdir(parents=True)
        except OSError as error:
            raise SpyRLError(f"cannot make the run folder {self.path}: {error.strerror}") from None

    def free_bytes(self) -> int:
        """Room on the disk that the run is, or will be, on."""
        existing = next(path for path in (self.path, *self.path.absolute().parents) if path.exists())
        return shutil.disk_usage(existing).free

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for this process. Raises `SpyRLError` where another one is training it."""
        try:
            import fcntl
        except ImportError:  # no advisory locks on this system
            yield
            return
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SpyRLError(f"run {self.path} is being trained by another process") from None
            yield

    def games_path(self, iteration: int) -> Path:
        """The games of ``iteration`` (from 0)."""
        return self.games / f"iteration-{iteration:05d}.parquet"

    def write_config(self, config: Mapping[str, Any], preset: str, hardware: Mapping[str, Any] | None = None) -> None:
        """Write the resolved configuration with what it was resolved from and with, and what it runs on.

        Raises `SpyRLError` where it cannot be written.
        """
        data = {"preset": preset, **config, "versions": versions(), "hardware": dict(hardware or {})}
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
        try:
            write_atomically(self.config_path, text)
        except OSError as error:
            raise SpyRLError(f"cannot write {self.config_path}: {error.strerror or error}") from error

    def read_config(self) -> tuple[dict[str, Any], str]:
        """The configuration's settings, and the preset's name. Raises `UsageError` where it cannot be read."""
        data = read_yaml(self.config_path)
        if "preset" not in data:
            raise UsageError(f"{self.config_path} is not a run's configuration: it names no preset")
        return {key: value for key, value in data.items() if key not in _NOT_SETTINGS}, str(data["preset"])

    def made_with(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Versions, and the hardware where it is known (earlier versions did not record it).

        Raises `UsageError` where the configuration cannot be read.
        """
        data = read_yaml(self.config_path)
        return dict(data.get("versions") or {}), dict(data.get("hardware") or {})

    def record(self, iteration: int, metrics: Mapping[str, Any], replays: list[dict[str, Any]]) -> None:
        """Keep one iteration: its games, then its line of metrics.

        Raises `SpyRLError` where they cannot be written, for instance on a full disk.
        """
        try:
            self.games.mkdir(exist_ok=True)
            write_games(self.games_path(iteration), replays)
            with self.metrics_path.open("a", encoding="utf-8") as file:
                file.write(_line({"iteration": iteration, **metrics}))
        except OSError as error:
            raise SpyRLError(
                f"cannot record iteration {iteration} in {self.path}: {error.strerror or error}; what was recorded "
                "before is untouched: make room and go on with --resume"
            ) from error

    def read_metrics(self) -> list[dict[str, Any]]:
        """All whole lines of ``metrics.jsonl``; one that was cut off by a kill is left out."""
        if not self.metrics_path.exists():
            return []
        found = []
        for line in self.metrics_path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return found

    def write_held_out(self, iteration: int | None, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep the outputs for held-out documents after ``iteration``, or (``None``) of the starting model.

        Raises `SpyRLError` where they cannot be written.
        """
        path = self.held_out / ("start.jsonl" if iteration is None else f"iteration-{iteration:05d}.jsonl")
        try:
            self.held_out.mkdir(exist_ok=True)
            write_atomically(path, "".join(_line(row) for row in rows))
        except OSError as error:
            raise SpyRLError(
                f"cannot write {path}: {error.strerror or error}; make room and go on with --resume"
            ) from error

    def read_held_out(self) -> list[list[dict[str, Any]]]:
        """All measurements' rows, the starting model's first."""
        paths = [self.held_out / "start.jsonl", *sorted(self.held_out.glob("iteration-*.jsonl"))]
        return [
            # Not splitlines(), which also splits at characters that an output may hold, such as U+2028.
            [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
            for path in paths
            if path.exists()
        ]

    def forget_from(self, iteration: int) -> None:
        """Take back what was recorded from ``iteration`` on: a resumed run plays it again."""
        kept = [_line(metrics) for metrics in self.read_metrics() if metrics["iteration"] < iteration]
        if self.metrics_path.exists():
            write_atomically(self.metrics_path, "".join(kept))
        for path in (*self.games.glob("iteration-*.parquet"), *self.held_out.glob("iteration-*.jsonl")):
            if int(path.stem.removeprefix("iteration-")) >= iteration:
                path.unlink()


def new_run(settings: RunSettings, preset: str) -> RunFolder:
    """The folder that a new run will have; it is not made yet. Raises `UsageError` where its name is taken."""
    parent = Path(settings.folder).expanduser()
    if settings.name is not None:
        path = parent / settings.name
        if path.exists():
            raise UsageError(
                f"run {path} exists already; go on with it (--resume), choose another run.name, or remove the folder"
            )
    else:
        stem = Path(preset).stem
        path = _numbered(parent, stem, max(_numbers(parent, stem), default=0) + 1)
    return RunFolder(path)


def find_run(name: str | None, folder: str, preset: str) -> RunFolder:
    """The run to go on with: the one called ``name``, else the newest of this preset.

    Raises `UsageError` where there is none.
    """
    parent = Path(folder).expanduser()
    if name is not None:
        if not (parent / name / "config.yaml").is_file():
            raise UsageError(f"there is no run to resume at {parent / name}")
        return RunFolder(parent / name)
    stem = Path(preset).stem
    found = [_numbered(parent, stem, number) for number in sorted(_numbers(parent, stem))]
    whole = [path for path in found if (path / "config.yaml").is_file()]
    if not whole:
        raise UsageError(f"there is no run of {preset} to resume in {parent}; name one with run.name=NAME")
    return RunFolder(whole[-1])


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    found = {"spyrl": spyrl.__version__, "python": platform.python_version()}
    for package in ("torch", "transformers", "tokenizers", "peft"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def write_atomically(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all, also after a power cut."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _line(metrics: Mapping[str, Any]) -> str:
    """A line of ``metrics.jsonl``; what is no number is null, since JSON knows no NaN."""
    known = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in metrics.items()}
    return json.dumps(known, ensure_ascii=False, allow_nan=False) + "\n"


def _numbered(parent: Path, stem: str, number: int) -> Path:
    return parent / (stem if number == 1 else f"{stem}-{number}")


def _numbers(parent: Path, stem: str) -> list[int]:
    """The numbers of what is in ``parent`` under ``stem`` (1), ``stem-2``, ``stem-3``, …"""
    pattern = re.compile(rf"{re.escape(stem)}(?:-([2-9]|[1-9]\d+))?")
    names = [path.name for path in parent.iterdir()] if parent.is_dir() else []
    return [int(match[1] or 1) for match in map(pattern.fullmatch, names) if match]
