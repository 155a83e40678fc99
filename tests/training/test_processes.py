"""Two processes do what one does: for real, over gloo."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from spyrl.cli import main
from spyrl.config import Config
from spyrl.errors import UsageError
from spyrl.runs.checkpoints import newest_checkpoint
from spyrl.runs.folder import RunFolder
from spyrl.runs.games import read_games
from spyrl.training import processes
from spyrl.training.dividing import parts
from spyrl.training.settings import TrainingSettings
from spyrl.training.train import train
from tiny import Onlooker, make_tiny_model, tiny_config

TESTS = Path(__file__).parent.parent
LIMIT = 100  # seconds; processes that wait for one another for ever are a failure


def on_two(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python script on two processes."""
    file = folder / "script.py"
    file.write_text(script, encoding="utf-8")
    paths = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(file), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )


def run_of(config: Config) -> RunFolder:
    return RunFolder(Path(config.run.folder) / str(config.run.name))


def alone(folder: Path, model: Path, *words: str, resume: bool = False) -> RunFolder:
    config = tiny_config(folder, model, *words)
    assert train(config, run_of(config), Onlooker(), preset="tiny", resume=resume).finished
    return run_of(config)


def untimed(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if not key.startswith(("seconds/", "tokens/per_second"))}


def close(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two results are equal but for the last bits of their numbers."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(close(a, b, tolerance) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def assert_like(run: RunFolder, other: RunFolder, iterations: int, tolerance: float = 1e-4) -> None:
    """The same games, baselines and decisions, and within ``tolerance`` the same numbers and weights."""
    lines, others = run.read_metrics(), other.read_metrics()
    assert [line["iteration"] for line in lines] == [line["iteration"] for line in others] == list(range(iterations))
    for line, theirs in zip(lines, others, strict=True):
        differing = {k: (v, theirs.get(k)) for k, v in untimed(line).items() if not close(v, theirs.get(k), tolerance)}
        assert not differing
        assert line.keys() == theirs.keys()
    for number in range(iterations):
        assert close(read_games(run.games_path(number)), read_games(other.games_path(number)), tolerance)
    states = []
    for each in (run, other):
        checkpoint = newest_checkpoint(each.checkpoints)
        assert checkpoint is not None
        states.append(json.loads((checkpoint / "state.json").read_text())["state"])
    assert close(*states, tolerance)
    assert sorted(path.name for path in run.model.iterdir()) == sorted(path.name for path in other.model.iterdir())
    for file in other.model.glob("*.safetensors"):
        own, theirs = load_file(run.model / file.name), load_file(file)
        assert own.keys() == theirs.keys()
        for name in own:
            assert torch.allclose(own[name], theirs[name], atol=tolerance, rtol=0), name


# The same results

# Both stages are trained, or entropy is, so that no gradient is zero: Adam makes whole steps of its rounding errors.
SHORT = ("training.iterations=2", "training.stages=joint", "training.minibatches=1", "training.games=5")
UNEVEN = (
    "training.games=3",
    "training.minibatches=3",
    "training.epochs=2",
    "training.batch_tokens=1",
    "training.entropy=0.1",
)
MEASURED = ("training.evaluation.every=1", "training.evaluation.documents=3", "training.evaluation.path={corpus}")
LONG = ("training.iterations=4", "training.stages=joint", "training.minibatches=1")
SPARING = ("training.reference=cpu", "training.gradient_checkpointing=true")
VARIANTS = {
    "whole": (*SHORT, *MEASURED),
    "sharded": (*SHORT, "training.sharding=full"),
    "adapters": (*SHORT, "training.sharding=full", "model.lora.rank=4", "model.lora.merge=true"),
    "tied": (*SHORT, "training.sharding=full", "model.path={tied}"),
    "sparing": (*SHORT, *UNEVEN, *SPARING, "training.sharding=full"),
}
ROUGH = {
    "bfloat16": (*SHORT, "training.sharding=full", "model.dtype=bfloat16"),
    "bfloat16 adapters": (*SHORT, "training.sharding=full", "model.dtype=bfloat16", "model.lora.rank=4"),
}

RUN_ALL = """
import json, sys
from pathlib import Path

import safetensors.torch

from spyrl.errors import SpyRLError
from spyrl.runs.folder import RunFolder
from spyrl.training.processes import is_main, together
from spyrl.training.train import train
from tiny import Onlooker, tiny_config

folder, model, variants = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
with together():
    for name, words in variants.items():
        own = folder / f"{name}-{is_main()}"
        words = [word.format(corpus=own / "corpus.jsonl", tied=folder / "tied") for word in words]
        config = tiny_config(own, model, *words, f"run.folder={folder / name}")
        run, watcher, resume = RunFolder(folder / name / "tiny"), Onlooker(), name in ("resumed", "resharded")
        result = train(config, run, watcher, preset="tiny", resume=resume)
        assert result.finished
        if is_main():  # seconds are its own
            assert watcher.metrics == result.run.read_metrics()[-len(watcher.metrics):]

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    if not is_main():
        safetensors.torch.save = full
    own = folder / f"full-{is_main()}"
    config = tiny_config(own, model, f"run.folder={folder / 'full'}")
    try:
        train(config, RunFolder(folder / "full" / "tiny"), Onlooker(), preset="tiny")
    except SpyRLError as error:
        (own / "error").write_text(str(error))
"""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> tuple[Path, RunFolder]:
    """A folder with a run of one process that was stopped after two iterations, and the same run never stopped."""
    folder = tmp_path_factory.mktemp("stopped")
    whole = alone(folder / "whole", tiny_model, *LONG)
    part = alone(folder / "part", tiny_model, *LONG, "training.iterations=2", f"run.folder={folder / 'resumed'}")
    assert newest_checkpoint(part.checkpoints) == part.checkpoints / "iteration-00002"
    shutil.copytree(folder / "resumed", folder / "resharded")
    return folder, whole


@pytest.fixture(scope="module")
def pair(stopped: tuple[Path, RunFolder], tiny_model: Path) -> Path:
    """Folder of runs on two processes, one a variant."""
    folder, _ = stopped
    make_tiny_model(folder / "tied", "gemma")  # its output layer is its embedding
    resumed = {"resumed": LONG, "resharded": (*LONG, "training.sharding=full")}
    variants = {**VARIANTS, **ROUGH, **resumed, "begun": (*LONG, "training.iterations=2", "training.sharding=full")}
    done = on_two(folder, RUN_ALL, str(folder), str(tiny_model), json.dumps(variants))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_processes_do_what_one_does(pair: Path, tmp_path: Path, tiny_model: Path, variant: str):
    words = [word.format(corpus=tmp_path / "corpus.jsonl", tied=pair / "tied") for word in VARIANTS[variant]]
    run = alone(tmp_path, tiny_model, *words)
    assert_like(RunFolder(pair / variant / "tiny"), run, 2)
    assert run.read_held_out() == RunFolder(pair / variant / "tiny").read_held_out()


@pytest.mark.parametrize("variant", ROUGH)
def test_a_sharded_model_in_bfloat16_learns(pair: Path, tiny_model: Path, variant: str):
    """Numbers are rough in bfloat16, so games differ; what was sampled is what is learnt from all the same."""
    run = RunFolder(pair / variant / "tiny")
    lines = run.read_metrics()
    assert len(lines) == 2
    assert all(line["logprob_gap/mean"] < 0.05 and 0 < line["grad_norm"] < 100 for line in lines)
    assert run.model.is_dir()


@pytest.mark.parametrize("variant", ["resumed", "resharded"])
def test_a_run_goes_on_on_more_processes(pair: Path, stopped: tuple[Path, RunFolder], variant: str):
    assert_like(RunFolder(pair / variant / "tiny"), stopped[1], 4)


def test_a_sharded_run_goes_on_on_one_process(
    pair: Path, stopped: tuple[Path, RunFolder], tmp_path: Path, tiny_model: Path
):
    begun = pair / "begun" / "tiny" / "checkpoints" / "iteration-00002"
    parts = [load_file(begun / f"shard-0000{number}-model-00001-of-00001.safetensors") for number in (1, 2)]
    divided = [{name for name in part if "/step/" not in name} for part in parts]
    assert divided[0] == divided[1]  # each process wrote its part of all weights and moments
    run = alone(tmp_path, tiny_model, *LONG, f"run.folder={pair / 'begun'}", resume=True)
    assert_like(run, stopped[1], 4)


def test_a_disk_that_is_full_for_one_process_is_an_error_on_all(pair: Path):
    for number in (True, False):
        assert "iteration-00002: No space left on device; " in (pair / f"full-{number}" / "error").read_text()
    assert list((pair / "full" / "tiny" / "checkpoints").iterdir()) == []


# The end of a process

KILLED = """
import os, signal, sys

from spyrl import cli
from spyrl.training import iteration
from spyrl.training.processes import rank

settle, settled = iteration.settle, 0


def dying_settle(*arguments):
    global settled
    settled += 1
    if settled == 4 and rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return settle(*arguments)


iteration.settle = dying_settle
sys.exit(cli.main(["train", *sys.argv[1:]]))
"""


def test_a_killed_process_ends_the_run_which_goes_on_on_one(
    stopped: tuple[Path, RunFolder], tmp_path: Path, tiny_model: Path
):
    config = tiny_config(tmp_path, tiny_model, *LONG)
    places = (f"corpus.path={tmp_path / 'corpus.jsonl'}", f"model.path={tiny_model}", "run.name=tiny")
    words = (str(tmp_path / "tiny.yaml"), *places, f"run.folder={tmp_path / 'runs'}", *LONG)
    done = on_two(tmp_path, KILLED, *words)
    run = run_of(config)
    assert done.returncode == 1
    assert "spyrl: another process of this run has ended or " in done.stderr
    assert "newest checkpoint with --resume" in done.stderr
    assert "Signal 9 (SIGKILL)" in done.stderr
    assert done.stdout.count("1/4 ") == 1  # the main process alone tells
    assert "2 processes" in " ".join(done.stdout.split())
    assert [line["iteration"] for line in run.read_metrics()] == [0, 1, 2]
    assert newest_checkpoint(run.checkpoints) == run.checkpoints / "iteration-00002"
    assert_like(alone(tmp_path, tiny_model, *LONG, resume=True), stopped[1], 4)


# Bad input


def as_one_of(number: int, monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    for name, value in {"WORLD_SIZE": str(number), "RANK": "1", **more}.items():
        monkeypatch.setenv(name, value)


def test_a_process_knows_its_number(monkeypatch: pytest.MonkeyPatch):
    assert (processes.count(), processes.rank(), processes.is_main()) == (1, 0, True)
    as_one_of(3, monkeypatch)
    assert (processes.count(), processes.rank(), processes.is_main()) == (3, 1, False)


def test_alone_everything_is_plain():
    with processes.together():
        assert processes.gathered("value") == ["value"]
        assert processes.from_main(lambda: "made") == "made"
        processes.sum_gradients([torch.nn.Parameter(torch.zeros(1))])
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("name", ["cuda:1", "mps"])
def test_each_process_takes_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch, name: str):
    processes.check_device(name)
    as_one_of(2, monkeypatch)
    with pytest.raises(UsageError, match=f"model.device={name}: each of several processes takes a GPU of its own"):
        processes.check_device(name)
    processes.check_device("cpu")


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    as_one_of(4, monkeypatch, LOCAL_WORLD_SIZE="2")  # on each of two machines
    processes.check_device("auto")
    as_one_of(4, monkeypatch, LOCAL_WORLD_SIZE="4")
    with pytest.raises(UsageError, match=r"there are 4 processes on this machine and 2 GPUs; .*model\.device=cpu"):
        processes.check_device("auto")


def test_a_reference_in_main_memory_is_a_sharded_one():
    with pytest.raises(ValueError, match="reference=cpu needs sharding=full"):
        TrainingSettings(reference="cpu")


def test_errors_say_which_process_they_are_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    as_one_of(2, monkeypatch)
    assert main(["play", "--game=-1"]) == 2
    assert capsys.readouterr().err.startswith("spyrl, process 1: --game should be 0 or more")


# Dividing


@given(st.lists(st.integers(1, 9), max_size=40), st.integers(1, 8))
def test_parts_are_neighbours_and_of_like_size(sizes: list[int], number: int):
    found = parts(sizes, number)
    assert found == sorted(found)
    assert set(found) <= set(range(number))
    shares = [sum(size for size, part in zip(sizes, found, strict=True) if part == each) for each in range(number)]
    if sizes:
        assert all(abs(share - sum(sizes) / number) <= max(sizes) for share in shares)
