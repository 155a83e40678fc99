"""What players are asked to do. A task is one small file: built in here, or yours, in Python or YAML."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import typing
from pathlib import Path

from spyrl.errors import UsageError
from spyrl.game import Deal, Document, Output
from spyrl.game.settings import AnswerForm, OutputForm
from spyrl.settings import build, nearest, read_yaml
from spyrl.tasks import ledger, math, summarization, writing
from spyrl.tasks.base import DetectionTurn, PerformingTurn, Task, read_output
from spyrl.tasks.text import TextTask

TASKS: dict[str, Task] = {task.name: task for task in (writing.TASK, math.TASK, summarization.TASK, ledger.TASK)}

__all__ = ["TASKS", "DetectionTurn", "PerformingTurn", "Task", "TextTask", "load_task", "read_output"]


def load_task(name: str) -> Task:
    """The task called ``name``, or the one in a ``.yaml`` file (keys of `TextTask`) or ``.py`` file (``TASK``).

    Raises `UsageError` for an unknown name, a missing file or one that does not hold a task.
    """
    if name in TASKS:
        return TASKS[name]
    path = Path(name).expanduser()
    if path.suffix not in (".yaml", ".yml", ".py"):
        raise UsageError(f"unknown task {name!r}; {nearest(name, TASKS)} (or a .yaml or .py file of your own)")
    if not path.is_file():
        raise UsageError(f"task file {path} does not exist (looked in {path.absolute().parent})")
    return _from_python(path) if path.suffix == ".py" else _from_yaml(path)


def _from_yaml(path: Path) -> Task:
    """The task in a YAML file, its templates tried out for every role and form."""
    task = build(TextTask, read_yaml(path), str(path))
    deal = Deal(0, 0, Document("try-out", "a document"), 3, 1, "a ________", ((2, 10),))
    outputs = tuple(Output(player, 1, "an output") for player in deal.numbers)
    for player, form in itertools.product((1, 2), typing.get_args(OutputForm)):
        task.performing(PerformingTurn(deal, player, 1, outputs, form))
    for voter, answer in itertools.product((None, 1, 2), typing.get_args(AnswerForm)):
        task.detecting(DetectionTurn(deal, "a document", outputs, voter, answer, False))
    return task


def _from_python(path: Path) -> Task:
    spec = importlib.util.spec_from_file_location(f"spyrl_task_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"task file {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises is the user's to read
        raise UsageError(f"task file {path} cannot be imported: {type(error).__name__}: {error}") from error
    task = getattr(module, "TASK", None)
    parts = ("name", "defaults", "ballot_opening", "ballot_closing", "performing", "detecting", "read")
    missing = [part for part in parts if not hasattr(task, part)]
    if task is None or missing:
        what = f"its TASK has no {', '.join(missing)}" if task is not None else "it defines no TASK"
        raise UsageError(f"task file {path} does not hold a task: {what} (see docs/tasks.md)")
    checked: Task = task
    return checked
