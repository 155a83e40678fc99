"""Checkpoints: whole or not at all."""

from __future__ import annotations

import dataclasses
import errno
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from spyrl.corpus import Cursor
from spyrl.errors import SpyRLError
from spyrl.game import Ema, Gate, RoleBaselines
from spyrl.policy.models import load_model
from spyrl.policy.settings import LoraSettings, ModelSettings
from spyrl.runs.checkpoints import newest_checkpoint
from spyrl.training import checkpoint
from spyrl.training.checkpoint import checkpoint_bytes, load_checkpoint, save_checkpoint
from spyrl.training.learner import Learner, make_learner, update
from spyrl.training.settings import TrainingSettings
from spyrl.training.state import State
from spyrl.training.trajectory import Trajectory
from tiny import make_tiny_model

TRAJECTORIES = [
    Trajectory(game, "detection", "detector", (1, 2, 3, game), (4, 5), (), (), 1.0 - game) for game in range(3)
]


def learner_of(folder: Path, *, rank: int = 0, **settings: Any) -> Learner:
    model = ModelSettings(path=str(folder), device="cpu", lora=LoraSettings(rank=rank))
    return make_learner(load_model(model, trainable=True, seed=3), TrainingSettings(lr=1e-3, **settings), 1.0)


def trained(learner: Learner, *iterations: int) -> Learner:
    for iteration in iterations:
        update(learner, TRAJECTORIES, iteration=iteration, seed=0)
    return learner


def at(iteration: int) -> State:
    return State(
        iteration, Gate("performing", 2, Ema(0.5, 0.75), Ema(0.1, 0.75)), RoleBaselines(Ema(0.25, 0.5)), Cursor(1, 0, 3)
    )


def parameters(learner: Learner) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in learner.parameters]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Round trips

EMAS = st.builds(Ema, st.floats(-1, 1), st.floats(0, 1))


@given(
    st.builds(
        State,
        st.integers(0, 10**6),
        st.builds(Gate, st.sampled_from(["detection", "performing"]), st.integers(0, 50), EMAS, EMAS),
        st.builds(RoleBaselines, EMAS, EMAS),
        st.builds(Cursor, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    )
)
def test_a_state_survives_json_to_the_last_bit(state: State):
    assert State.from_dict(json.loads(json.dumps(state.as_dict()))) == state


@pytest.mark.parametrize(
    ("architecture", "rank", "settings"),
    [("qwen3", 0, {}), ("gemma", 0, {}), ("qwen3", 4, {}), ("qwen3", 0, {"optimizer": "per_stage"})],
)
def test_a_checkpoint_restores_everything(tmp_path: Path, architecture: str, rank: int, settings: dict[str, Any]):
    base = make_tiny_model(tmp_path / "base", architecture)
    learner = trained(learner_of(base, rank=rank, **settings), 0, 1)
    path = save_checkpoint(tmp_path / "kept", learner, at(2), keep=2)
    assert path == tmp_path / "kept" / "iteration-00002" == newest_checkpoint(tmp_path / "kept")

    other = learner_of(base, rank=rank, **settings)
    assert load_checkpoint(path, other) == at(2)
    assert same(parameters(other), parameters(learner))
    for name, optimizer in learner.optimizers.items():
        assert same(other.optimizers[name].state_dict(), optimizer.state_dict())
    assert same(parameters(trained(other, 2)), parameters(trained(learner, 2)))  # and so the next step


def test_a_large_checkpoint_is_several_files(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch):
    learner = trained(learner_of(tiny_model, optimizer="per_stage"), 0)
    monkeypatch.setattr(checkpoint, "_FILE_BYTES", checkpoint_bytes(learner) // 10)
    path = save_checkpoint(tmp_path, learner, at(1), keep=1)
    assert 5 < len(list(path.glob("*.safetensors"))) < 12
    other = learner_of(tiny_model, optimizer="per_stage")
    assert load_checkpoint(path, other) == at(1)
    assert same(parameters(other), parameters(learner))
    assert same(parameters(trained(other, 1)), parameters(trained(learner, 1)))


def test_only_what_is_trained_is_kept(tmp_path: Path, tiny_model: Path):
    learner = trained(learner_of(tiny_model, rank=2), 0)
    path = save_checkpoint(tmp_path, learner, at(1), keep=1)
    names = [name for file in path.glob("*.safetensors") for name in load_file(file)]
    assert len(names) == 4 * len(learner.parameters)  # itself, two moments, number of steps
    assert all("lora_" in name for name in names)


def test_the_size_is_about_what_was_said(tmp_path: Path, tiny_model: Path):
    for settings in ({}, {"optimizer": "per_stage"}):
        learner = learner_of(tiny_model, **settings)
        for stage in ("detection", "performing"):
            update(learner, [dataclasses.replace(each, stage=stage) for each in TRAJECTORIES], iteration=0, seed=0)
        path = save_checkpoint(tmp_path, learner, at(1), keep=1)
        size = sum(file.stat().st_size for file in path.iterdir())
        assert checkpoint_bytes(learner) == pytest.approx(size, rel=0.15)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path, tiny_model: Path):
    whole = save_checkpoint(tmp_path / "whole", trained(learner_of(tiny_model), 0), at(1), keep=1)
    with pytest.raises(SpyRLError, match="is of another model"):
        load_checkpoint(whole, learner_of(tiny_model, rank=2))
    with pytest.raises(
        SpyRLError,
        match=r"iteration-00001 has the optimisers shared, and training.optimizer=per_stage wants detection, ",
    ):
        load_checkpoint(whole, learner_of(tiny_model, optimizer="per_stage"))
    lora = save_checkpoint(tmp_path / "lora", trained(learner_of(tiny_model, rank=1), 0), at(1), keep=1)
    with pytest.raises(SpyRLError, match=r"is of another model \(.*lora_A.* is of shape \[1, \d+\], not \[2, \d+\]\)"):
        load_checkpoint(lora, learner_of(tiny_model, rank=2))  # of a row, which would fit by being repeated


# Keeping


@pytest.mark.parametrize(("keep", "left"), [(1, [5]), (2, [4, 5]), (0, [1, 2, 3, 4, 5]), (9, [1, 2, 3, 4, 5])])
def test_so_many_are_kept(tmp_path: Path, tiny_model: Path, keep: int, left: list[int]):
    learner = learner_of(tiny_model)
    for iteration in range(1, 6):
        save_checkpoint(tmp_path, learner, at(iteration), keep=keep)
    assert names(tmp_path) == [f"iteration-{iteration:05d}" for iteration in left]
    assert newest_checkpoint(tmp_path) == tmp_path / "iteration-00005"


def test_no_checkpoint_yet(tmp_path: Path):
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "nowhere") is None


def test_the_same_iteration_is_replaced(tmp_path: Path, tiny_model: Path):
    learner = learner_of(tiny_model)
    save_checkpoint(tmp_path, learner, at(1), keep=1)
    trained(learner, 0)
    path = save_checkpoint(tmp_path, learner, at(1), keep=1)
    other = learner_of(tiny_model)
    load_checkpoint(path, other)
    assert same(parameters(other), parameters(learner))


# Damage


FILE = "shard-00001-model-00001-of-00001.safetensors"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, empty, Path.unlink])
@pytest.mark.parametrize("name", [FILE, "state.json"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, tiny_model: Path, name: str, damage: Any):
    learner = learner_of(tiny_model)
    for iteration in (1, 2):
        save_checkpoint(tmp_path, trained(learner, iteration), at(iteration), keep=5)
    damage(tmp_path / "iteration-00002" / name)
    assert newest_checkpoint(tmp_path) == tmp_path / "iteration-00001"
    # It does not count as one of those kept, either.
    save_checkpoint(tmp_path, learner, at(3), keep=2)
    assert newest_checkpoint(tmp_path) == tmp_path / "iteration-00003"
    assert (tmp_path / "iteration-00001").exists()


def test_what_is_half_made_is_no_checkpoint(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch):
    """At every moment of writing, the newest checkpoint is the older one; after the rename it is the new one."""
    learner = learner_of(tiny_model)
    save_checkpoint(tmp_path, learner, at(1), keep=5)
    seen: list[Path | None] = []

    def watch(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            seen.append(newest_checkpoint(tmp_path))
            result = real(*arguments, **options)
            seen.append(newest_checkpoint(tmp_path))
            return result

        monkeypatch.setattr(owner, name, watched)

    watch(safetensors.torch, "save")
    watch(checkpoint, "write_atomically")
    trained(learner, 0)
    save_checkpoint(tmp_path, learner, at(2), keep=5)
    assert seen == [tmp_path / "iteration-00001"] * 4  # before and after its tensors and its state
    assert newest_checkpoint(tmp_path) == tmp_path / "iteration-00002"


@pytest.mark.parametrize("failing", ["save", "write_atomically", "_flush"])
def test_a_full_disk_leaves_older_checkpoints(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, failing: str
):
    learner = learner_of(tiny_model)
    save_checkpoint(tmp_path, learner, at(1), keep=1)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "iteration-00001").iterdir()}
    before = parameters(learner)
    trained(learner, 0)

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    owner = safetensors.torch if failing == "save" else checkpoint
    with monkeypatch.context() as patched:
        patched.setattr(owner, failing, full)
        with pytest.raises(
            SpyRLError,
            match=r"cannot write the checkpoint .*iteration-00002: No space left on device; earlier checkpoints are "
            r"untouched: make room and go on with --resume",
        ):
            save_checkpoint(tmp_path, learner, at(2), keep=1)
    assert names(tmp_path) == ["iteration-00001"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "iteration-00001").iterdir()} == kept
    other = learner_of(tiny_model)
    assert load_checkpoint(newest_checkpoint(tmp_path), other) == at(1)
    assert same(parameters(other), before)
    assert save_checkpoint(tmp_path, learner, at(2), keep=1) == newest_checkpoint(tmp_path)


def test_a_checkpoint_folder_that_cannot_be_made(tmp_path: Path, tiny_model: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpyRLError, match=r"cannot write the checkpoint .*: Not a directory"):
        save_checkpoint(tmp_path / "file", learner_of(tiny_model), at(1), keep=1)


def test_weights_that_were_tampered_with_are_one_sentence(tmp_path: Path, tiny_model: Path):
    path = save_checkpoint(tmp_path, trained(learner_of(tiny_model), 0), at(1), keep=1)
    size = (path / FILE).stat().st_size
    (path / FILE).write_bytes(b"\xff" * size)  # as long as it should be
    with pytest.raises(SpyRLError, match=r"iteration-00001 cannot be read: ") as caught:
        load_checkpoint(path, learner_of(tiny_model))
    assert "\n" not in str(caught.value)
