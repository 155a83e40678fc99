"""Measuring a run on held-out documents: when, what of, and that it leaves the training as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from spyrl.config import Config, load_config
from spyrl.corpus.ledger import split_of
from spyrl.errors import SpyRLError
from spyrl.ledger.blank import blank_model, blank_tokenizer
from spyrl.policy.models import load_model
from spyrl.policy.settings import ModelSettings
from spyrl.runs.folder import RunFolder
from spyrl.runs.games import read_games
from spyrl.tasks.ledger import TASK
from spyrl.training.learner import Learner, learning_rate, make_learner, update
from spyrl.training.settings import EvaluationSettings, TrainingSettings
from spyrl.training.train import train
from spyrl.training.trajectory import Trajectory
from tiny import Onlooker

QUALITY = {"quality/greedy", "quality/greedy/precision", "quality/greedy/recall", "quality/sampled"}
FOUND = {"frozen/detection", "strength/civilian", "strength/spy"}
SMALL = (
    "training.iterations=5",
    "training.games=3",
    "training.lr=1.0e-2",
    "training.lr_detection=null",
    "training.optimizer=shared",
    "training.evaluation.every=2",
    "training.evaluation.documents=4",
    "game.max_tokens=6",
    "game.detectors.count=3",
    "game.gate.dwell=1",
    "game.gate.patience=2",
    "run.checkpoint_every=2",
    "run.name=mine",
)


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger model that has learnt nothing."""
    folder = tmp_path_factory.mktemp("blank") / "model"
    tokenizer = blank_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        blank_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def config(folder: Path, model: Path, *words: str) -> Config:
    return load_config("ledger", [f"model.path={model}", f"run.folder={folder}", *SMALL, *words])


def go(settings: Config, *, resume: bool = False, watcher: Onlooker | None = None) -> RunFolder:
    run = RunFolder(Path(settings.run.folder) / "mine")
    assert train(settings, run, watcher or Onlooker(), preset="ledger", resume=resume).finished
    return run


@pytest.fixture(scope="module")
def measured(blank: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of five iterations that is measured every two."""
    return go(config(tmp_path_factory.mktemp("measured"), blank))


def measurements(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key.startswith(("quality/", "frozen/", "strength/", "start/"))}


def held_out_files(run: RunFolder) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(run.held_out.iterdir())}


# When and what


def test_every_second_iteration_and_the_last_one_are_measured(measured: RunFolder) -> None:
    lines = measured.read_metrics()
    assert [line["iteration"] for line in lines] == [0, 1, 2, 3, 4]
    for line in lines:
        now = {key for key in measurements(line) if not key.startswith("start/")}
        if line["iteration"] in (1, 3, 4):  # after two iterations, after four, and at the end
            assert now >= QUALITY | FOUND
            assert all(0 <= line[key] <= 1 for key in now)
        else:
            assert now == set()


def test_the_start_is_told_in_the_first_line_only(measured: RunFolder) -> None:
    first, *others = measured.read_metrics()
    assert {key.removeprefix("start/") for key in measurements(first)} >= QUALITY | FOUND
    assert not any(key.startswith("start/") for line in others for key in line)


def test_outputs_for_held_out_documents_are_kept(measured: RunFolder) -> None:
    names = ["iteration-00001.jsonl", "iteration-00003.jsonl", "iteration-00004.jsonl", "start.jsonl"]
    assert list(held_out_files(measured)) == names
    rows = measured.read_held_out()
    assert rows == [
        [json.loads(line) for line in (measured.held_out / name).read_text().splitlines()]
        for name in (names[-1], *names[:-1])
    ]
    documents = [row["document"] for row in rows[0]]
    assert len(set(documents)) == 4
    assert {split_of(document) for document in documents} == {"test"}
    played = {game["document"] for number in range(5) for game in read_games(measured.games_path(number))}
    assert not played & set(documents)
    lines = measured.read_metrics()
    told = [lines[0]["start/quality/greedy"], *(lines[at]["quality/greedy"] for at in (1, 3, 4))]
    for each, quality in zip(rows, told, strict=True):
        assert [row["document"] for row in each] == documents
        assert all(row["quality"] == TASK.quality(row["document"], row["output"]) for row in each)
        assert quality == pytest.approx(sum(row["quality"]["f1"] for row in each) / 4)
    assert rows[0] != rows[1]  # the model has changed meanwhile


def test_at_the_end_it_is_the_final_model_that_is_measured(measured: RunFolder, blank: Path, tmp_path: Path) -> None:
    """What a run leaves, measured as the start of another run, gives the last outputs again."""
    again = go(config(tmp_path, measured.model, "training.iterations=1"))
    assert again.read_held_out()[0] == measured.read_held_out()[-1]
    ours, theirs = again.read_metrics()[0], measured.read_metrics()[-1]
    for key in QUALITY:
        assert ours[f"start/{key}"] == theirs[key]


def test_without_training_every_measurement_is_the_start(blank: Path, tmp_path: Path) -> None:
    run = go(config(tmp_path, blank, "training.lr=0", "training.iterations=3", "training.evaluation.every=1"))
    first, *others = run.read_metrics()
    start = {key.removeprefix("start/"): value for key, value in first.items() if key.startswith("start/")}
    for line in (first, *others):
        assert {key: line[key] for key in start} == start
    assert len(set(held_out_files(run).values())) == 1


@pytest.mark.parametrize(("every", "iterations"), [(5, [4]), (9, [4]), (1, [0, 1, 2, 3, 4])])
def test_how_often_is_a_setting(blank: Path, tmp_path: Path, every: int, iterations: list[int]) -> None:
    run = go(config(tmp_path, blank, f"training.evaluation.every={every}"))
    assert [line["iteration"] for line in run.read_metrics() if "quality/greedy" in line] == iterations


def test_evaluation_settings_are_checked() -> None:
    for bad in ({"every": -1}, {"documents": 0}):
        with pytest.raises(ValueError, match="every must be at least 0 and documents at least 1"):
            EvaluationSettings(**bad)


# Training goes on as without


def assert_trained_alike(one: RunFolder, other: RunFolder) -> None:
    for number in range(5):
        assert read_games(one.games_path(number)) == read_games(other.games_path(number))
    ours, theirs = (load_file(run.model / "model.safetensors") for run in (one, other))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def untimed(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if not key.startswith(("seconds/", "tokens/per_second"))}


def test_measuring_changes_neither_games_nor_weights(measured: RunFolder, blank: Path, tmp_path: Path) -> None:
    plain = go(config(tmp_path, blank, "training.evaluation.every=0"))
    assert_trained_alike(measured, plain)
    assert not plain.held_out.exists()
    for ours, theirs in zip(measured.read_metrics(), plain.read_metrics(), strict=True):
        assert untimed(theirs) == {key: value for key, value in untimed(ours).items() if key not in measurements(ours)}


def test_another_seed_is_measured_on_the_same_documents(measured: RunFolder, blank: Path, tmp_path: Path) -> None:
    other = go(config(tmp_path, blank, "run.seed=9", "training.iterations=1"))
    assert held_out_files(other)["start.jsonl"] == held_out_files(measured)["start.jsonl"]
    assert read_games(other.games_path(0)) != read_games(measured.games_path(0))
    ours, theirs = (measurements(run.read_metrics()[0]) for run in (other, measured))
    assert {key: value for key, value in ours.items() if key.startswith("start/")} == theirs


# Stopped and gone on


@pytest.mark.parametrize("at", [1, 3])
def test_a_run_that_died_is_measured_as_if_it_had_not(
    measured: RunFolder, blank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """It dies right after a measurement was written: before iteration 1 has a checkpoint, or after that of 2."""
    record = RunFolder.record

    def dying(self: RunFolder, iteration: int, *more: Any) -> None:
        record(self, iteration, *more)
        if iteration == at:
            raise KeyboardInterrupt

    settings = config(tmp_path, blank)
    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "record", dying)
        with pytest.raises(KeyboardInterrupt):
            go(settings)
    died = RunFolder(tmp_path / "mine")
    assert f"iteration-{at:05d}.jsonl" in held_out_files(died)
    watcher = Onlooker()
    run = go(settings, resume=True, watcher=watcher)
    assert f"going on from iteration {at - 1}" in watcher.said
    assert [untimed(line) for line in run.read_metrics()] == [untimed(line) for line in measured.read_metrics()]
    assert held_out_files(run) == held_out_files(measured)
    assert_trained_alike(run, measured)


def test_measurements_after_the_checkpoint_are_taken_back(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.create()
    for iteration in (None, 1, 3, 5):
        run.write_held_out(iteration, [{"document": "d", "output": str(iteration), "quality": {"f1": 0.5}}])
    run.forget_from(3)
    assert [row["output"] for (row,) in run.read_held_out()] == ["None", "1"]
    assert sorted(held_out_files(run)) == ["iteration-00001.jsonl", "start.jsonl"]


def test_a_line_separator_in_an_output_splits_no_line(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.create()
    rows = [{"document": "one\u2028two", "output": "a\x85b\x0cc"}, {"document": "d", "output": "\n"}]
    run.write_held_out(None, rows)
    assert run.read_held_out() == [rows]


def test_a_full_disk_is_an_error_to_go_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spyrl.runs.folder.write_atomically", full)
    run = RunFolder(tmp_path / "run")
    run.create()
    with pytest.raises(SpyRLError, match=r"iteration-00002\.jsonl: No space left on device; .*--resume"):
        run.write_held_out(2, [])


# The learning rate of detection


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_detection_has_its_own_rate_on_the_same_schedule(schedule: Any) -> None:
    both = TrainingSettings(iterations=20, lr=1e-3, lr_detection=1e-4, warmup=4, schedule=schedule)
    one = TrainingSettings(iterations=20, lr=1e-3, warmup=4, schedule=schedule)
    for iteration in range(20):
        performing = learning_rate(both, iteration)
        assert performing == learning_rate(one, iteration) == learning_rate(one, iteration, detection=True)
        assert learning_rate(both, iteration, detection=True) == pytest.approx(performing / 10)
    assert learning_rate(both, 0, detection=True) == pytest.approx(1e-4 / 4)
    assert learning_rate(both, 4, detection=True) == pytest.approx(1e-4)


def test_a_rate_of_zero_is_not_the_default() -> None:
    settings = TrainingSettings(lr=1e-3, lr_detection=0.0)
    assert learning_rate(settings, 0, detection=True) == 0
    with pytest.raises(ValueError, match=r"lr_detection must be at least 0, not -0\.1"):
        TrainingSettings(lr_detection=-0.1)


def learner_of(model: Path, **settings: Any) -> Learner:
    loaded = load_model(ModelSettings(path=str(model), device="cpu"), trainable=True)
    return make_learner(loaded, TrainingSettings(**settings), 1.0)


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([weight.detach().flatten().clone() for weight in learner.parameters])


BALLOT = Trajectory(0, "detection", "detector", (7, 8, 9), (13,), (), ((13, 14, 15),), 1.0)
OUTPUT = Trajectory(0, "performing", "civilian", (7, 8, 9), (20, 21, 22), (), (), 1.0)
STAGES = {"detection": [BALLOT], "performing": [OUTPUT], "joint": [BALLOT, OUTPUT]}


@pytest.mark.parametrize("optimizer", ["shared", "per_stage"])
def test_each_stages_optimiser_gets_its_rate(blank: Path, optimizer: Any) -> None:
    learner = learner_of(blank, lr=1e-3, lr_detection=1e-4, kl=0.0, optimizer=optimizer)
    rates = {"detection": 1e-4, "performing": 1e-3}
    for stage in ("performing", "detection", "performing"):
        before = weights(learner)
        statistics = update(learner, STAGES[stage], iteration=0, seed=0)
        assert statistics is not None
        assert statistics.lr == rates[stage]
        used = learner.optimizers["shared" if optimizer == "shared" else stage]
        assert {group["lr"] for group in used.param_groups} == {rates[stage]}
        moved = (weights(learner) - before).abs().max()
        assert 0 < moved < 3 * rates[stage]  # AdamW's step is about the rate
        assert moved > rates[stage] / 3


def test_joint_training_uses_the_one_rate(blank: Path) -> None:
    learner = learner_of(blank, lr=1e-3, lr_detection=1e-4, kl=0.0)
    statistics = update(learner, STAGES["joint"], iteration=0, seed=0)
    assert statistics is not None
    assert statistics.lr == 1e-3
    assert {group["lr"] for group in learner.optimizers["shared"].param_groups} == {1e-3}


def test_detection_may_be_held_still(blank: Path) -> None:
    learner = learner_of(blank, lr=1e-3, lr_detection=0.0, kl=0.0, optimizer="per_stage")
    before = weights(learner)
    update(learner, STAGES["detection"], iteration=0, seed=0)
    assert torch.equal(weights(learner), before)
    update(learner, STAGES["performing"], iteration=1, seed=0)
    assert not torch.equal(weights(learner), before)


def test_a_runs_metrics_tell_the_rate_of_each_iterations_stage(blank: Path, tmp_path: Path) -> None:
    run = go(config(tmp_path, blank, "training.lr_detection=1.0e-3", "training.evaluation.every=0"))
    rates = {line["stage"]: line["lr"] for line in run.read_metrics()}
    assert rates == {"detection": 1e-3, "performing": 1e-2}
