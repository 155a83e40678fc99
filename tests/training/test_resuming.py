"""A run that was stopped, by whatever, goes on as if it had never stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from spyrl.config import Config
from spyrl.errors import SpyRLError
from spyrl.runs.checkpoints import newest_checkpoint
from spyrl.runs.folder import RunFolder
from spyrl.runs.games import read_games
from spyrl.training.train import Result, train
from tiny import Onlooker, tiny_config

TESTS = Path(__file__).parent.parent


def run_of(config: Config) -> RunFolder:
    return RunFolder(Path(config.run.folder) / str(config.run.name))


def go(config: Config, watcher: Onlooker | None = None, *, resume: bool = False) -> Result:
    return train(config, run_of(config), watcher or Onlooker(), preset="tiny", resume=resume)


def untimed(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    timed = ("seconds/", "tokens/per_second")
    return [{key: value for key, value in line.items() if not key.startswith(timed)} for line in metrics]


def tensors_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    return {name: value for file in checkpoint.glob("*.safetensors") for name, value in load_file(file).items()}


def assert_same_result(run: RunFolder, other: RunFolder, iterations: int = 6) -> None:
    """Weights to the last bit, metrics, games, optimiser, state."""
    assert untimed(run.read_metrics()) == untimed(other.read_metrics())
    assert [line["iteration"] for line in run.read_metrics()] == list(range(iterations))
    names = [path.name for path in sorted(other.games.iterdir())]
    assert [path.name for path in sorted(run.games.iterdir())] == names
    assert len(names) == iterations
    for number in range(iterations):
        assert read_games(run.games_path(number)) == read_games(other.games_path(number))
    for file in other.model.glob("*.safetensors"):
        own, theirs = load_file(run.model / file.name), load_file(file)
        assert own.keys() == theirs.keys()
        assert all(torch.equal(own[name], theirs[name]) for name in own)
    assert sorted(path.name for path in run.model.iterdir()) == sorted(path.name for path in other.model.iterdir())
    own, theirs = newest_checkpoint(run.checkpoints), newest_checkpoint(other.checkpoints)
    assert own is not None
    assert theirs is not None
    assert own.name == theirs.name
    states = [json.loads((path / "state.json").read_text())["state"] for path in (own, theirs)]
    assert states[0] == states[1]
    tensors, others = tensors_of(own), tensors_of(theirs)
    assert tensors.keys() == others.keys()
    assert {name.split("/")[0] for name in tensors} == {"weights", "optimizers"}
    assert all(torch.equal(value, others[name]) for name, value in tensors.items())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> RunFolder:
    """A run of six iterations that was never stopped."""
    watcher = Onlooker()
    result = go(tiny_config(tmp_path_factory.mktemp("whole"), tiny_model), watcher)
    assert result.finished
    assert result.state.iteration == 6
    metrics = result.run.read_metrics()
    assert {line["stage"] for line in metrics} == {"detection", "performing"}
    assert all(line["optimizer_steps"] == 2 for line in metrics)
    assert watcher.metrics == metrics
    assert watcher.phases[-2:] == ["checkpoint", "model"]
    return result.run


def test_a_run_leaves_what_it_promises(whole: RunFolder, tiny_model: Path):
    assert sorted(path.name for path in whole.path.iterdir() if not path.name.startswith(".")) == [
        "checkpoints",
        "config.yaml",
        "games",
        "metrics.jsonl",
        "model",
    ]
    assert sorted(path.name for path in whole.checkpoints.iterdir()) == ["iteration-00004", "iteration-00006"]
    assert {path.name for path in whole.model.iterdir()} == {path.name for path in tiny_model.iterdir()}
    trained, base = (AutoModelForCausalLM.from_pretrained(path) for path in (whole.model, tiny_model))
    assert any(not torch.equal(one, two) for one, two in zip(trained.parameters(), base.parameters(), strict=True))
    tensors = tensors_of(whole.checkpoints / "iteration-00006")
    assert all(torch.equal(value, tensors[f"weights/{name}"]) for name, value in trained.named_parameters())


# Killed

KILLED = """
import os, signal, sys
from pathlib import Path

import safetensors.torch
from tiny import Onlooker, tiny_config
from spyrl.runs.folder import RunFolder
from spyrl.training.train import train

folder, model, *places = sys.argv[1:]
record, save = RunFolder.record, safetensors.torch.save
saved = 0


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def dying_record(self, iteration, metrics, replays):
    record(self, iteration, metrics, replays)
    if iteration == 3:
        if where == "line":
            text = self.metrics_path.read_text()
            self.metrics_path.write_text(text[:-40])
        die()


def dying_save(tensors, metadata):
    global saved
    saved += 1
    if saved == 2:  # checkpoint
        die()
    return save(tensors, metadata)


for where in places:  # a process each; what takes long is importing torch
    child = os.fork()
    if child:
        print(where, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sep="=")
        continue
    if where == "checkpoint":
        safetensors.torch.save = dying_save
    else:
        RunFolder.record = dying_record
    config = tiny_config(Path(folder) / where, Path(model))
    train(config, RunFolder(Path(config.run.folder) / "tiny"), Onlooker(), preset="tiny")
    os._exit(0)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """Folder of runs that were killed, one below each place's name."""
    folder = tmp_path_factory.mktemp("killed")
    places = ["record", "line", "checkpoint"]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), str(tiny_model), *places],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [f"{place}={-signal.SIGKILL}" for place in places], done.stderr
    return folder


@pytest.mark.parametrize(
    ("where", "recorded"),
    [
        ("record", 4),  # right after iteration 3 was recorded
        ("line", 3),  # while it was
        ("checkpoint", 4),  # in the middle of writing the checkpoint of iteration 4
    ],
)
def test_a_killed_run_goes_on_to_the_same_result(
    whole: RunFolder, killed: Path, tiny_model: Path, where: str, recorded: int
):
    config = tiny_config(killed / where, tiny_model)
    run = run_of(config)
    assert len(run.read_metrics()) == recorded
    assert run.games_path(3).exists()
    assert not run.model.exists()
    assert newest_checkpoint(run.checkpoints) == run.checkpoints / "iteration-00002"
    if where == "checkpoint":
        assert (run.checkpoints / ".iteration-00004.partial").exists()

    watcher = Onlooker()
    assert go(config, watcher, resume=True).finished
    assert "going on from iteration 2" in watcher.said
    assert [line["iteration"] for line in watcher.metrics] == [2, 3, 4, 5]
    assert_same_result(run, whole)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["iteration-00004", "iteration-00006"]


def test_a_damaged_checkpoint_is_passed_over(whole: RunFolder, tmp_path: Path, tiny_model: Path):
    config = tiny_config(tmp_path, tiny_model, "training.iterations=6")
    stop_after(config, 4)
    run = run_of(config)
    weights = next((run.checkpoints / "iteration-00004").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-100])
    watcher = Onlooker()
    go(config, watcher, resume=True)
    assert "going on from iteration 2" in watcher.said
    assert_same_result(run, whole)


def test_a_run_without_a_checkpoint_begins_again(whole: RunFolder, tmp_path: Path, tiny_model: Path):
    """It was killed in its first iterations; whatever it had recorded is played again."""
    config = tiny_config(tmp_path, tiny_model)
    run = run_of(config)
    run.create()
    run.record(0, {"stage": "detection"}, [])
    watcher = Onlooker()
    go(config, watcher, resume=True)
    assert "going on from iteration 0" in watcher.said
    assert_same_result(run, whole)


def test_a_finished_run_only_writes_its_model(whole: RunFolder, tmp_path: Path, tiny_model: Path):
    config = tiny_config(tmp_path, tiny_model)
    go(config)
    run = run_of(config)
    for path in run.model.iterdir():
        path.unlink()
    run.model.rmdir()  # it was killed before it had one
    watcher = Onlooker()
    assert go(config, watcher, resume=True).finished
    assert watcher.metrics == []
    assert_same_result(run, whole)


def test_a_finished_run_may_go_on_further(tmp_path: Path, tiny_model: Path):
    short = tiny_config(tmp_path / "short", tiny_model, "training.iterations=3")
    long = tiny_config(tmp_path / "short", tiny_model, "training.iterations=5")
    go(short)
    go(long, resume=True)
    once = tiny_config(tmp_path / "once", tiny_model, "training.iterations=5")
    go(once)
    assert_same_result(run_of(long), run_of(once), 5)


def test_only_one_process_trains_a_run(tmp_path: Path, tiny_model: Path):
    config = tiny_config(tmp_path, tiny_model, "training.iterations=1")
    go(config)
    with run_of(config).locked(), pytest.raises(SpyRLError, match="is being trained by another process"):
        go(config, resume=True)


# Interrupted


class Interrupting(Onlooker):
    """Sends a signal at one point of one iteration."""

    def __init__(self, number: int, phase: str = "iteration", code: int = signal.SIGINT, times: int = 1) -> None:
        super().__init__()
        self.number, self.at, self.code, self.times = number, phase, code, times

    def _maybe(self, phase: str, number: int) -> None:
        if phase == self.at and number == self.number:
            for _ in range(self.times):
                signal.raise_signal(self.code)

    def phase(self, name: str) -> None:
        super().phase(name)
        self._maybe(name, len(self.metrics))

    def iteration(self, metrics: dict[str, Any]) -> None:
        super().iteration(metrics)
        self._maybe("iteration", metrics["iteration"])


def stop_after(config: Config, iterations: int) -> None:
    """Run the first iterations of a longer run."""
    result = go(config, Interrupting(iterations - 1))
    assert (result.finished, result.state.iteration) == (False, iterations)


@pytest.mark.parametrize(
    ("phase", "code"), [("iteration", signal.SIGINT), ("detect", signal.SIGINT), ("update", signal.SIGTERM)]
)
def test_an_interrupted_run_stops_with_a_checkpoint(
    whole: RunFolder, tmp_path: Path, tiny_model: Path, phase: str, code: int
):
    config = tiny_config(tmp_path, tiny_model)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    watcher = Interrupting(2, phase, code)
    result = go(config, watcher)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert not result.finished
    assert result.state.iteration == 3
    assert sum("stopping after this iteration" in text for text in watcher.said) == 1
    run = run_of(config)
    assert newest_checkpoint(run.checkpoints) == run.checkpoints / "iteration-00003"
    assert len(run.read_metrics()) == 3
    assert not run.model.exists()

    assert go(config, resume=True).finished
    assert_same_result(run, whole)


def test_a_second_interrupt_stops_at_once(whole: RunFolder, tmp_path: Path, tiny_model: Path):
    config = tiny_config(tmp_path, tiny_model)
    handler = signal.getsignal(signal.SIGINT)
    watcher = Interrupting(3, "detect", times=2)
    with pytest.raises(KeyboardInterrupt):
        go(config, watcher)
    assert signal.getsignal(signal.SIGINT) == handler
    assert watcher.phases[-1] == "detect"
    run = run_of(config)
    assert newest_checkpoint(run.checkpoints) == run.checkpoints / "iteration-00002"
    go(config, resume=True)
    assert_same_result(run, whole)


def test_an_interrupt_in_the_last_iteration_still_finishes(whole: RunFolder, tmp_path: Path, tiny_model: Path):
    config = tiny_config(tmp_path, tiny_model)
    assert go(config, Interrupting(5)).finished
    assert_same_result(run_of(config), whole)


def test_an_interrupt_while_a_checkpoint_is_written(whole: RunFolder, tmp_path: Path, tiny_model: Path):
    """Iteration 1 has a checkpoint of its own; the run stops there."""
    config = tiny_config(tmp_path, tiny_model)
    result = go(config, Interrupting(2, "checkpoint"))
    assert (result.finished, result.state.iteration) == (False, 2)
    run = run_of(config)
    assert newest_checkpoint(run.checkpoints) == run.checkpoints / "iteration-00002"
    go(config, resume=True)
    assert_same_result(run, whole)


VARIANTS = {
    "adapters with dropout": ("model.lora.rank=4", "model.lora.dropout=0.3"),
    "an optimiser a stage": ("training.optimizer=per_stage",),
    "several epochs, a schedule": ("training.epochs=2", "training.schedule=cosine", "training.warmup=2"),
    "own view, sequential, joint": (
        "game.detectors.view=own",
        "game.turns=sequential",
        "training.stages=joint",
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_run_resumes_to_the_same_result(tmp_path: Path, tiny_model: Path, variant: str):
    words = ("training.iterations=4", "run.checkpoint_every=50", *VARIANTS[variant])
    once = tiny_config(tmp_path / "once", tiny_model, *words)
    torch.manual_seed(0)
    go(once)
    stopped = tiny_config(tmp_path / "stopped", tiny_model, *words)
    torch.manual_seed(1)
    stop_after(stopped, 2)
    torch.manual_seed(2)
    go(stopped, resume=True)
    assert_same_result(run_of(stopped), run_of(once), 4)


def test_a_full_disk_while_saving_is_an_error_to_go_on_from(
    whole: RunFolder, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
):
    config = tiny_config(tmp_path, tiny_model)
    run = run_of(config)
    save: Callable[..., bytes] = safetensors.torch.save
    saved = 0

    def full(*arguments: Any, **options: Any) -> bytes:
        nonlocal saved
        saved += 1
        if saved == 2:  # checkpoint
            raise OSError(28, "No space left on device")
        return save(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(safetensors.torch, "save", full)
        with pytest.raises(SpyRLError, match=r"iteration-00004: No space left on device; .*go on with --resume"):
            go(config)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["iteration-00002"]
    go(config, resume=True)
    assert_same_result(run, whole)
