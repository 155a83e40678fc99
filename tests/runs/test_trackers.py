"""Metrics to TensorBoard, Weights & Biases and Trackio; the latter two are played by a module of our own."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from spyrl.errors import UsageError
from spyrl.runs.folder import RunFolder
from spyrl.runs.trackers import check_trackers, open_trackers

METRICS = [
    {"stage": "detection", "detection/accuracy": 0.25, "games/played": 4, "gate/switched": ""},
    {"stage": "performing", "detection/accuracy": 0.5, "games/played": 3, "gate/switched": "accuracy"},
]


class Library(ModuleType):
    """A stand-in for wandb or trackio that notes its calls."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self.calls: list[tuple[Any, ...]] = []

    def init(self, **options: Any) -> None:
        self.calls.append(("init", options))

    def log(self, metrics: dict[str, Any], step: int) -> None:
        self.calls.append(("log", metrics, step))

    def finish(self) -> None:
        self.calls.append(("finish",))


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_wandb_and_trackio(name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(name)
    monkeypatch.setitem(sys.modules, name, library)
    check_trackers([name])
    [tracker] = open_trackers([name], RunFolder(tmp_path / "mine"), {"task": "math"}, 5)
    for iteration, metrics in enumerate(METRICS, 5):
        tracker.log(metrics, iteration)
    tracker.close()
    (_, options), *rest = library.calls
    assert options["project"] == "spyrl"
    assert options["name"] == "mine"
    assert options["config"] == {"task": "math"}
    assert options["resume"] == "allow"  # a run that goes on is one run there, too
    if name == "wandb":
        assert (options["dir"], options["id"]) == (str(tmp_path / "mine"), "mine")
    assert rest == [
        ("log", {"detection/accuracy": 0.25, "games/played": 4}, 5),
        ("log", {"detection/accuracy": 0.5, "games/played": 3}, 6),
        ("finish",),
    ]


def test_several_trackers_are_told_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = [Library("wandb"), Library("trackio")]
    for library in libraries:
        monkeypatch.setitem(sys.modules, library.__name__, library)
    for tracker in open_trackers(["wandb", "trackio"], RunFolder(tmp_path), {}, 0):
        tracker.log(METRICS[0], 0)
    assert [library.calls[1] for library in libraries] == [
        ("log", {"detection/accuracy": 0.25, "games/played": 4}, 0)
    ] * 2


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_a_package_that_is_not_installed_is_named(name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spyrl.runs.trackers.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=rf"{name}.*pip install 'spyrl\[{name}\]'"):
        check_trackers([name])
    with pytest.raises(UsageError, match=rf"spyrl\[{name}\]"):
        open_trackers([name], RunFolder(tmp_path), {}, 0)
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_reads_back_every_number(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = RunFolder(tmp_path)
    [tracker] = open_trackers(["tensorboard"], run, {}, 0)
    for iteration, metrics in enumerate(METRICS):
        tracker.log(metrics, iteration)
    tracker.close()
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"detection/accuracy", "games/played"}
    read = {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert read == {"detection/accuracy": [(0, 0.25), (1, 0.5)], "games/played": [(0, 4), (1, 3)]}


def test_a_run_that_goes_on_takes_back_what_it_plays_again(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.compat.proto.event_pb2 import SessionLog

    [tracker] = open_trackers(["tensorboard"], RunFolder(tmp_path), {}, 7)
    tracker.log(METRICS[0], 7)
    tracker.close()
    [file] = (tmp_path / "tensorboard").iterdir()
    starts = [event.step for event in EventFileLoader(str(file)).Load() if event.session_log.status == SessionLog.START]
    assert starts == [7]  # TensorBoard forgets what earlier files hold from this step on
