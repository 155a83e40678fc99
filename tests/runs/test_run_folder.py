"""A run's folder: its names, its numbering, and what is left of it after kills and full disks."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as pq
import pytest
import yaml

import spyrl
import spyrl.runs.folder as folder_module
from spyrl.errors import SpyRLError, UsageError
from spyrl.runs.folder import RunFolder, find_run, new_run
from spyrl.runs.games import SCHEMA, read_games
from spyrl.runs.settings import RunSettings

REPLAY = dict.fromkeys(SCHEMA.names) | {"iteration": 0, "game": 0, "document": "One two.", "spy": 1, "votes": [2, 1]}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "runs" / "mine")
    made.create()
    return made


def full_disk(*args: object, **options: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def started(parent: Path, *names: str) -> None:
    for name in names:
        (parent / name).mkdir(parents=True)
        (parent / name / "config.yaml").write_text("preset: x\n")


# Names


def test_names_are_those_promised(run: RunFolder) -> None:
    run.write_config({"task": "math"}, "recipe")
    run.record(0, {"stage": "detection"}, [REPLAY])
    run.record(12345, {"stage": "detection"}, [])
    names = {path.relative_to(run.path).as_posix() for path in run.path.rglob("*") if path.is_file()}
    assert names == {
        "config.yaml",
        "metrics.jsonl",
        "games/iteration-00000.parquet",
        "games/iteration-12345.parquet",
    }
    assert (run.checkpoints, run.model) == (run.path / "checkpoints", run.path / "model")


def test_a_run_without_a_name_is_called_as_its_preset_and_numbered(tmp_path: Path) -> None:
    settings = RunSettings(folder=str(tmp_path / "deep" / "runs"))
    made = []
    for _ in range(3):
        run = new_run(settings, "recipes/stories.yaml")
        assert not run.path.exists()
        run.create()
        made.append(run.path)
    assert made == [tmp_path / "deep" / "runs" / name for name in ("stories", "stories-2", "stories-3")]


def test_a_number_is_not_given_again(tmp_path: Path) -> None:
    settings = RunSettings(folder=str(tmp_path))
    started(tmp_path, "stories", "stories-2", "stories-10", "stories-x", "stories-1", "other-12", "stories-3-4")
    shutil.rmtree(tmp_path / "stories")
    assert new_run(settings, "stories").path.name == "stories-11"
    assert find_run(None, str(tmp_path), "stories").path.name == "stories-10"


def test_a_name_that_exists_is_refused(tmp_path: Path) -> None:
    settings = RunSettings(name="mine", folder=str(tmp_path))
    assert new_run(settings, "stories").path == tmp_path / "mine"
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match=r"mine exists already.*--resume.*run\.name"):
        new_run(settings, "stories")


def test_a_run_made_in_the_meantime_is_not_written_over(tmp_path: Path) -> None:
    settings = RunSettings(folder=str(tmp_path))
    mine, theirs = new_run(settings, "stories"), new_run(settings, "stories")
    theirs.create()
    with pytest.raises(SpyRLError, match=r"cannot make the run folder .*stories: File exists"):
        mine.create()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "/abs", "a\0"])
def test_names_that_would_leave_the_folder_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="plain folder name"):
        RunSettings(name=name)


def test_find_run_by_name(tmp_path: Path) -> None:
    started(tmp_path, "mine")
    assert find_run("mine", str(tmp_path), "stories").path == tmp_path / "mine"
    with pytest.raises(UsageError, match=f"no run to resume at {tmp_path}/yours"):
        find_run("yours", str(tmp_path), "stories")
    (tmp_path / "yours").mkdir()  # a folder that is no run
    with pytest.raises(UsageError, match="no run to resume"):
        find_run("yours", str(tmp_path), "stories")


def test_find_run_takes_the_newest_of_the_preset(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no run of stories to resume in .*run\.name=NAME"):
        find_run(None, str(tmp_path / "nowhere"), "stories")
    started(tmp_path, "stories", "stories-2", "story")
    assert find_run(None, str(tmp_path), "some/stories.yaml").path.name == "stories-2"
    (tmp_path / "stories-3").mkdir()  # killed before it had begun
    assert find_run(None, str(tmp_path), "stories").path.name == "stories-2"


def test_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert new_run(RunSettings(folder="~/runs"), "stories").path == tmp_path / "runs" / "stories"
    started(tmp_path / "runs", "stories")
    assert find_run(None, "~/runs", "stories").path == tmp_path / "runs" / "stories"


def test_free_bytes_of_a_run_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = RunFolder(tmp_path).free_bytes()
    assert RunFolder(tmp_path / "a" / "b").free_bytes() == pytest.approx(there, rel=0.05)
    monkeypatch.chdir(tmp_path)
    assert RunFolder(Path("a/b")).free_bytes() == pytest.approx(there, rel=0.05)


# Configuration


def test_config_holds_settings_versions_and_seed(run: RunFolder) -> None:
    settings = {"task": "writing", "model": {"path": "Zoë/模型", "server": None}, "run": {"seed": 17}}
    run.write_config(settings, "stories")
    data = yaml.safe_load(run.config_path.read_text(encoding="utf-8"))
    assert data["preset"] == "stories"
    assert data["run"]["seed"] == 17
    assert data["versions"]["spyrl"] == spyrl.__version__
    assert set(data["versions"]) >= {"python", "torch", "transformers"}
    assert "模型" in run.config_path.read_text(encoding="utf-8")
    assert run.read_config() == (settings, "stories")
    assert run.made_with() == (data["versions"], {})
    run.write_config(settings, "stories", {"gpu": "X", "gpus": 1})
    assert run.made_with() == (data["versions"], {"gpu": "X", "gpus": 1})
    assert run.read_config() == (settings, "stories")


def test_a_run_of_an_earlier_version_has_no_hardware(run: RunFolder) -> None:
    run.config_path.write_text("preset: stories\ntask: math\n")
    assert run.made_with() == ({}, {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot read .*: No such file or directory"),
        ("", "it names no preset"),
        ("task: writing\n", "it names no preset"),
        ("task: writing\nmodel: [\n", "line 3: not valid YAML"),
        ("- 1", "expected keys and values, found list"),
    ],
)
def test_a_config_that_is_none_is_named(run: RunFolder, text: str | None, says: str) -> None:
    if text is not None:
        run.config_path.write_text(text)
    with pytest.raises(UsageError, match=says) as raised:
        run.read_config()
    assert str(run.config_path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_config_is_replaced_whole_or_not_at_all(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run.write_config({"task": "writing"}, "stories")
    before = run.config_path.read_bytes()
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(SpyRLError, match=r"cannot write .*mine/config\.yaml: No space left on device"):
        run.write_config({"task": "math"}, "stories")
    assert run.config_path.read_bytes() == before


# Records


def test_what_is_recorded_is_read_back(run: RunFolder) -> None:
    assert run.read_metrics() == []
    run.record(0, {"stage": "detection", "kl": 0.25}, [REPLAY])
    run.record(1, {"stage": "performing", "kl": float("nan")}, [REPLAY | {"iteration": 1}] * 2)
    first, second = run.read_metrics()
    assert first == {"iteration": 0, "stage": "detection", "kl": 0.25}
    assert (second["iteration"], second["stage"]) == (1, "performing")
    assert read_games(run.games_path(0)) == [REPLAY]
    assert [row["iteration"] for row in read_games(run.games_path(1))] == [1, 1]


def test_a_torn_last_line_is_left_out(run: RunFolder) -> None:
    run.record(0, {"stage": "detection"}, [])
    run.record(1, {"stage": "detection"}, [])
    whole = run.metrics_path.read_bytes()
    for cut in (1, 2, 10, len(whole) // 2 - 1):
        run.metrics_path.write_bytes(whole[:-cut])
        assert [line["iteration"] for line in run.read_metrics()] == ([0, 1] if cut == 1 else [0])
    run.metrics_path.write_bytes(whole + b"\0" * 30)  # as a power cut may leave it
    assert [line["iteration"] for line in run.read_metrics()] == [0, 1]


def test_what_is_forgotten_is_recorded_again(run: RunFolder) -> None:
    for iteration in range(4):
        run.record(iteration, {"kl": iteration}, [REPLAY | {"iteration": iteration}])
    with run.metrics_path.open("a") as file:
        file.write('{"iteration": 4, "k')
    kept = run.games_path(1).read_bytes()
    run.forget_from(2)
    assert [line["iteration"] for line in run.read_metrics()] == [0, 1]
    assert sorted(path.name for path in run.games.iterdir()) == ["iteration-00000.parquet", "iteration-00001.parquet"]
    assert run.games_path(1).read_bytes() == kept
    run.record(2, {"kl": 20}, [REPLAY])
    assert [line["kl"] for line in run.read_metrics()] == [0, 1, 20]
    run.forget_from(0)
    assert run.read_metrics() == []
    assert list(run.games.iterdir()) == []


def test_forgetting_where_nothing_was_recorded(run: RunFolder) -> None:
    run.forget_from(0)
    assert run.read_metrics() == []


def broken_games(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pq.ParquetWriter, "write_table", full_disk)


def broken_replacing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "replace", full_disk)


def broken_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Path.open

    def opened(self: Path, *args: Any, **options: Any) -> Any:
        return full_disk() if self.name == "metrics.jsonl" and args == ("a",) else plain(self, *args, **options)

    monkeypatch.setattr(Path, "open", opened)


@pytest.mark.parametrize("broken", [broken_games, broken_replacing, broken_metrics])
def test_a_full_disk_leaves_earlier_records_whole(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    run.record(0, {"kl": 1.5}, [REPLAY])
    before = (run.metrics_path.read_bytes(), run.games_path(0).read_bytes())
    with monkeypatch.context() as patch:
        broken(patch)
        with pytest.raises(
            SpyRLError, match=r"cannot record iteration 1 in .*mine: No space left on device.*--resume"
        ) as raised:
            run.record(1, {"kl": 2.5}, [REPLAY])
    assert raised.value.exit_code == 1
    assert (run.metrics_path.read_bytes(), run.games_path(0).read_bytes()) == before
    assert not list(run.games.glob(".*"))  # nothing half-written is left lying about
    run.forget_from(1)
    run.record(1, {"kl": 3.5}, [REPLAY])
    assert [line["kl"] for line in run.read_metrics()] == [1.5, 3.5]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    run = RunFolder(tmp_path / "file" / "mine")
    assert run.free_bytes() > 0
    with pytest.raises(SpyRLError, match=r"cannot make the run folder .*file/mine: Not a directory"):
        run.create()


# One process at a time


def test_a_run_is_held_once(run: RunFolder) -> None:
    with run.locked(), pytest.raises(SpyRLError, match="mine is being trained by another process"), run.locked():
        pytest.fail("held twice")
    with run.locked():  # let go of, also after the refusal
        pass


def test_another_process_is_kept_out_until_the_holder_is_gone(run: RunFolder) -> None:
    holder = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX)"
    holder += "; print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", holder, str(run.path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(SpyRLError, match="being trained by another process"), run.locked():
            pytest.fail("held twice")
        process.kill()  # as a crash would: no lock is left behind
        process.wait()
    with run.locked():
        pass


def test_where_files_cannot_be_locked_a_run_still_goes_on(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with run.locked():
        pass
    assert not (run.path / ".lock").exists()


def test_versions_leave_out_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "peft":
            raise folder_module.metadata.PackageNotFoundError(package)
        return "1.2.3"

    monkeypatch.setattr(folder_module.metadata, "version", version)
    assert "peft" not in folder_module.versions()
    assert folder_module.versions()["torch"] == "1.2.3"
