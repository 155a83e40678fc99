"""What an evaluation found: its tables and scores, kept as JSON, Markdown and CSV in a folder of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from spyrl.errors import SpyRLError, UsageError
from spyrl.evaluation.models import Contestant
from spyrl.evaluation.sheets import Sheet, comma_separated, markdown, show
from spyrl.runs.folder import versions, write_atomically

Kind = Literal["ab", "writingbench", "rouge", "math", "game", "alignment", "audit"]


@dataclass(frozen=True)
class Score:
    """One number that a model card can state, in the unit of the literature (percent where it is a share)."""

    dataset: str
    metric: str
    value: float
    low: float | None
    """Lower end of its 95 % interval; ``None`` where there is none, as for a single row."""
    high: float | None
    count: int
    """Rows it is a mean over."""
    base: float | None = None
    """The same of the model that it is compared with."""


@dataclass(frozen=True)
class Evaluation:
    """A finished evaluation."""

    kind: Kind
    title: str
    model: str
    against: str | None
    settings: Mapping[str, Any]
    """What it was made with: the data, the sampling, the judge, the seed."""
    sheets: tuple[Sheet, ...]
    scores: tuple[Score, ...]
    notes: tuple[str, ...]
    """What a reader of the tables must know, a sentence each."""


def folder_for(model: Contestant, name: str, to: str | None) -> Path:
    """Where an evaluation is kept: ``to``, else in the run it is of, else under ``evaluations``."""
    if to is not None:
        return Path(to).expanduser()
    return (model.run.evaluations if model.run else Path("evaluations") / slug(model.name)) / slug(name)


def slug(text: str) -> str:
    """A name for a file or folder: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.") or "unnamed"


def report(console: Console, evaluation: Evaluation, folder: Path, command: str) -> None:
    """Show an evaluation and write ``results.json``, ``results.md`` and ``results.csv``.

    Raises `SpyRLError` where they cannot be written.
    """
    show(console, evaluation.sheets, evaluation.notes)
    data = {**asdict(evaluation), "command": command, "versions": versions()}
    page = markdown(evaluation.title, evaluation.sheets, evaluation.notes, command)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "results.json", json.dumps(data, indent=1, ensure_ascii=False) + "\n")
        write_atomically(folder / "results.md", page)
        write_atomically(folder / "results.csv", comma_separated(evaluation.sheets))
    except OSError as error:
        raise SpyRLError(f"cannot write the results to {folder}: {error.strerror or error}") from error
    console.out(f"\n{folder}: results.json, results.md, results.csv")


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write what an evaluation found row by row, as JSON lines. Raises `SpyRLError` where it cannot be written."""
    try:
        write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    except OSError as error:
        raise SpyRLError(f"cannot write {path}: {error.strerror or error}") from error


def read_evaluation(folder: Path) -> Evaluation:
    """The evaluation kept in ``folder``. Raises `UsageError` where there is none that can be read."""
    path = folder / "results.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Evaluation(
            data["kind"],
            data["title"],
            data["model"],
            data["against"],
            data["settings"],
            tuple(
                Sheet(each["title"], tuple(each["columns"]), tuple(map(tuple, each["rows"]))) for each in data["sheets"]
            ),
            tuple(Score(**each) for each in data["scores"]),
            tuple(data["notes"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no evaluation of spyrl: {error}") from error


def evaluations_of(folder: Path) -> list[Evaluation]:
    """All finished evaluations in the folders below ``folder``, by name."""
    return [read_evaluation(path.parent) for path in sorted(folder.rglob("results.json"))]
