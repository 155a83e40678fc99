"""One iteration: what is played, what is trained, what is recorded."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from spyrl.errors import SpyRLError, UsageError
from spyrl.game import Gate
from spyrl.policy import Completion, Policy, Request
from spyrl.runs.folder import RunFolder
from spyrl.runs.games import read_games
from spyrl.training import iteration as iteration_module
from spyrl.training.iteration import Setup, run_iteration, trained_stages
from spyrl.training.state import State
from spyrl.training.train import prepare, train
from spyrl.training.trajectory import Trajectory
from tiny import Onlooker, make_tiny_model, tiny_config


@pytest.fixture
def learnt(monkeypatch: pytest.MonkeyPatch) -> list[Trajectory]:
    """The trajectories of every update that is made."""
    seen: list[Trajectory] = []
    real = iteration_module.update

    def watched(learner: Any, trajectories: Sequence[Trajectory], **options: Any) -> Any:
        seen.extend(trajectories)
        return real(learner, trajectories, **options)

    monkeypatch.setattr(iteration_module, "update", watched)
    return seen


def set_up(folder: Path, model: Path, *words: str) -> Setup:
    config = tiny_config(folder, model, *words)
    run = RunFolder(Path(config.run.folder) / "tiny")
    setup = prepare(config, run, Onlooker())
    run.create()
    return setup


def weights(setup: Setup) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in setup.learner.loaded.model.parameters()])


def untimed(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metrics.items() if not key.startswith(("seconds/", "tokens/per_second"))}


class Failing:
    """A policy that does not answer requests that ``fails`` picks."""

    def __init__(self, inner: Policy, fails: Callable[[Request], bool]) -> None:
        self.name = inner.name
        self.inner = inner
        self.fails = fails

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        answers = self.inner.generate(requests)
        for index, request in enumerate(requests):
            if self.fails(request):  # it fails for one of its samples only, which is enough
                answers[index][-1] = Completion("", "failed", error="the engine is gone")
        return answers

    def count_tokens(self, text: str) -> int:
        return self.inner.count_tokens(text)

    def prompt_tokens(self, request: Request) -> int:
        return self.inner.prompt_tokens(request)


# What is trained


@pytest.mark.parametrize(
    ("words", "gate", "expected"),
    [
        ((), Gate(), ("detection",)),
        ((), Gate("performing"), ("performing",)),
        (("training.stages=detection",), Gate("performing"), ("detection",)),
        (("training.stages=performing",), Gate("detection"), ("performing",)),
        (("training.stages=joint",), Gate("detection"), ("detection", "performing")),
        (("game.degradation.kind=nothing",), Gate("detection"), ("performing",)),
        (("game.degradation.kind=nothing", "training.stages=performing"), Gate("detection"), ("performing",)),
    ],
)
def test_trained_stages(tmp_path: Path, tiny_model: Path, words: tuple[str, ...], gate: Gate, expected: tuple[str]):
    assert trained_stages(tiny_config(tmp_path, tiny_model, *words), gate) == expected


def test_the_gates_stage_is_trained_and_then_changes(tmp_path: Path, tiny_model: Path, learnt: list[Trajectory]):
    setup = set_up(tmp_path, tiny_model)
    state, stages = State(), []
    for _ in range(5):
        learnt.clear()
        gate = state.gate
        state, metrics = run_iteration(setup, state)
        assert {trajectory.stage for trajectory in learnt} == {gate.stage} == {metrics["stage"]}
        assert metrics["gate/next"] == state.gate.stage
        assert bool(metrics["gate/switched"]) == (state.gate.stage != gate.stage)
        stages.append(metrics["stage"])
    assert set(stages) == {"detection", "performing"}
    assert state.iteration == 5


def test_joint_training_learns_from_both_stages(tmp_path: Path, tiny_model: Path, learnt: list[Trajectory]):
    setup = set_up(tmp_path, tiny_model, "training.stages=joint")
    before = weights(setup)
    _, metrics = run_iteration(setup, State())
    assert metrics["stage"] == "joint"
    assert {trajectory.stage for trajectory in learnt} == {"detection", "performing"}
    assert metrics["tokens/trained"] == metrics["tokens/written"]
    assert not torch.equal(weights(setup), before)


def test_without_a_spy_only_performing_is_trained(tmp_path: Path, tiny_model: Path, learnt: list[Trajectory]):
    setup = set_up(tmp_path, tiny_model, "game.degradation.kind=nothing")
    state, metrics = run_iteration(setup, State())
    assert metrics["stage"] == "performing"
    assert {(trajectory.stage, trajectory.role) for trajectory in learnt} == {("performing", "civilian")}
    games = read_games(setup.run.games_path(0))
    assert {game["spy"] for game in games} == {None}
    assert all(set(game["observations"]) == {game["document"]} for game in games)
    # Nothing is claimed that cannot be known.
    assert not {"detection/accuracy", "detection/plurality", "reward/spy", "reward/detector"} & set(metrics)
    assert all(game["found"] is None for game in games)
    assert state.gate.accuracy == Gate().accuracy
    assert "reward/civilian" in metrics


# Other models


@pytest.mark.parametrize(("part", "stages"), [("performer", "detection"), ("detector", "performing")])
def test_a_fixed_model_plays_its_part_and_is_not_trained(
    tmp_path: Path, tiny_model: Path, learnt: list[Trajectory], part: str, stages: str
):
    other = make_tiny_model(tmp_path / "other", seed=9)
    words = (f"model.{part}.path={other}", f"training.stages={stages}")
    setup = set_up(tmp_path / "mixed", tiny_model, *words)
    fixed, own = getattr(setup, part), setup.detector if part == "performer" else setup.performer
    assert fixed.loaded.folder == other
    assert own.loaded is setup.learner.loaded
    before = copy.deepcopy(fixed.loaded.model.state_dict())
    _, first = run_iteration(setup, State())
    assert {trajectory.stage for trajectory in learnt} == {stages}
    assert all(torch.equal(value, before[name]) for name, value in fixed.loaded.model.state_dict().items())
    assert first["logprob_gap/max"] < 1e-3  # the learner is trained on what it wrote itself

    alone = set_up(tmp_path / "alone", tiny_model, f"training.stages={stages}")
    run_iteration(alone, State())
    whole = set_up(tmp_path / "whole", other, f"training.stages={stages}")
    run_iteration(whole, State())

    def outputs(setup: Setup) -> list[str]:
        return [output["completion"] for game in read_games(setup.run.games_path(0)) for output in game["outputs"]]

    performer, others = (whole, alone) if part == "performer" else (alone, whole)
    assert outputs(setup) == outputs(performer)
    assert outputs(setup) != outputs(others)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("model.detector.path=x",), "model.detector is fixed and cannot be trained"),
        (("model.performer.path=x",), "model.performer is fixed and cannot be trained"),
        (("game.degradation.kind=nothing", "training.stages=joint"), "needs a spy"),
        (("training.stages=joint", "training.optimizer=per_stage"), "one step for both stages"),
    ],
)
def test_what_cannot_be_trained_is_refused(tmp_path: Path, tiny_model: Path, words: tuple[str, ...], problem: str):
    with pytest.raises(UsageError, match=problem):
        tiny_config(tmp_path, tiny_model, *words)


# Failures


def test_games_that_failed_are_dropped_and_counted(tmp_path: Path, tiny_model: Path, learnt: list[Trajectory]):
    words = ("training.games=6", "corpus.shuffle=false", "training.stages=joint", "training.minibatches=1")
    whole = set_up(tmp_path / "whole", tiny_model, *words)
    whole_state, _ = run_iteration(whole, State())
    complete = {game["game"]: game for game in read_games(whole.run.games_path(0))}
    learnt.clear()

    setup = set_up(tmp_path / "failing", tiny_model, *words)
    performer = Failing(setup.performer, lambda request: "doc1" in request.messages[0]["content"])
    detector = Failing(setup.detector, lambda request: "doc4" in request.messages[0]["content"])
    setup = dataclasses.replace(setup, performer=performer, detector=detector)
    state, metrics = run_iteration(setup, State())

    assert metrics["games/played"] == 4
    assert metrics["games/dropped"] == 2
    assert metrics["games/dropped/performing_failed"] == 1
    assert metrics["games/dropped/detection_failed"] == 1
    assert {trajectory.game for trajectory in learnt} == {0, 2, 3, 5}
    games = read_games(setup.run.games_path(0))
    assert [game["game"] for game in games] == [0, 2, 3, 5]
    # The other games are the same as without a failure, up to what RAE's baselines make of them.
    for game in games:
        assert {**game, "advantages": None} == {**complete[game["game"]], "advantages": None}
    assert state.cursor == whole_state.cursor
    assert setup.watcher.said[-2:] == [
        "game 1 dropped (performing_failed): the engine is gone",
        "game 4 dropped (detection_failed): the engine is gone",
    ]


def test_an_iteration_without_a_game_learns_nothing(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch):
    setup = set_up(tmp_path, tiny_model)
    setup = dataclasses.replace(setup, performer=Failing(setup.performer, lambda request: True))
    before = weights(setup)
    began = State(gate=Gate("performing", 3), iteration=2)
    state, metrics = run_iteration(setup, began)
    assert metrics["games/played"] == 0
    assert metrics["games/dropped/performing_failed"] == 4
    assert "loss" not in metrics
    assert torch.equal(weights(setup), before)
    assert (state.gate, state.baselines) == (began.gate, began.baselines)
    assert read_games(setup.run.games_path(2)) == []


def test_a_run_without_a_playable_game_stops(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch):
    from spyrl.training import train as module

    def failing(*arguments: Any) -> Setup:
        setup = prepare(*arguments)
        return dataclasses.replace(setup, detector=Failing(setup.detector, lambda request: True))

    monkeypatch.setattr(module, "prepare", failing)
    config = tiny_config(tmp_path, tiny_model)
    run = RunFolder(tmp_path / "runs" / "tiny")
    watcher = Onlooker()
    with pytest.raises(SpyRLError, match="no game of iteration 0 could be played"):
        train(config, run, watcher, preset="tiny")
    assert sum("the engine is gone" in text for text in watcher.said) == 4
    assert not run.model.exists()


def test_a_document_that_cannot_be_degraded_drops_its_game(tmp_path: Path, tiny_model: Path):
    words = ("game.degradation.kind=change_numbers", "corpus.shuffle=false", "training.games=7")
    config = tiny_config(tmp_path, tiny_model, *words)
    lines = (tmp_path / "corpus.jsonl").read_text().splitlines()
    lines[2] = '{"id": "d2", "text": "a document without any number"}'
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    run = RunFolder(tmp_path / "runs" / "tiny")
    setup = prepare(config, run, Onlooker())
    run.create()
    _, metrics = run_iteration(setup, State())
    assert (metrics["games/played"], metrics["games/dropped/document_too_short"]) == (6, 1)
    assert [game["game"] for game in read_games(run.games_path(0))] == [0, 1, 3, 4, 5, 6]


def test_a_disk_without_room_is_found_before_any_work(tmp_path: Path, tiny_model: Path, monkeypatch):
    monkeypatch.setattr(RunFolder, "free_bytes", lambda self: 100_000)
    config = tiny_config(tmp_path, tiny_model)
    run = RunFolder(tmp_path / "runs" / "tiny")
    with pytest.raises(SpyRLError, match=r"there are 0 MB free .*needs about 1 MB .*run\.keep=1"):
        train(config, run, Onlooker(), preset="tiny")
    assert not run.path.exists()


# Reproducibility


def test_the_same_configuration_plays_the_same_games(tmp_path: Path, tiny_model: Path):
    words = ("game.rounds=2", "game.turns=sequential")
    setups = [set_up(tmp_path / name, tiny_model, *words) for name in ("one", "two")]
    states = [State(), State()]
    for number in range(3):
        torch.manual_seed(number)  # the global generator has no part in it
        results = [run_iteration(setup, state) for setup, state in zip(setups, states, strict=True)]
        states = [state for state, _ in results]
        assert states[0] == states[1]
        assert untimed(results[0][1]) == untimed(results[1][1])
        one, two = (read_games(setup.run.games_path(number)) for setup in setups)
        assert one == two
        assert len(one) == 4
    assert torch.equal(weights(setups[0]), weights(setups[1]))


def test_games_do_not_depend_on_batch_sizes(tmp_path: Path, tiny_model: Path):
    one_step = "training.minibatches=1"  # Adam makes whole steps of the rounding errors in a gradient of zero
    wide = set_up(tmp_path / "wide", tiny_model, one_step)
    narrow = set_up(tmp_path / "narrow", tiny_model, one_step, "model.batch_tokens=1", "training.batch_tokens=1")
    results = [run_iteration(setup, State()) for setup in (wide, narrow)]
    games = [read_games(setup.run.games_path(0)) for setup in (wide, narrow)]
    for one, two in zip(*games, strict=True):
        assert [output["completion"] for output in one["outputs"]] == [o["completion"] for o in two["outputs"]]
        assert [ballot["text"] for ballot in one["ballots"]] == [ballot["text"] for ballot in two["ballots"]]
        assert one["rewards"] == two["rewards"]
    assert results[0][1]["loss"] == pytest.approx(results[1][1]["loss"], abs=1e-5)
    assert results[0][1]["grad_norm"] == pytest.approx(results[1][1]["grad_norm"], rel=1e-3)


def test_another_seed_deals_other_games(tmp_path: Path, tiny_model: Path):
    setups = [set_up(tmp_path / str(seed), tiny_model, f"run.seed={seed}") for seed in (1, 2)]
    deals = []
    for setup in setups:
        run_iteration(setup, State())
        games = read_games(setup.run.games_path(0))
        deals.append([(game["document_id"], game["spy"], game["observations"]) for game in games])
    assert deals[0] != deals[1]


def test_iterations_of_a_run_differ(tmp_path: Path, tiny_model: Path):
    setup = set_up(tmp_path, tiny_model, "training.lr=0", "training.games=7")
    state, _ = run_iteration(setup, State())
    run_iteration(setup, state)
    one, two = (read_games(setup.run.games_path(number)) for number in (0, 1))
    assert {game["document_id"] for game in one} == {game["document_id"] for game in two}  # one epoch each
    spies = [{game["document_id"]: game["spy"] for game in games} for games in (one, two)]
    assert spies[0] != spies[1]
    texts = [{output["completion"] for game in games for output in game["outputs"]} for games in (one, two)]
    assert not texts[0] & texts[1]


# Metrics

ALWAYS = {
    "stage",
    "games/played",
    "games/dropped",
    "detection/accuracy",
    "detection/plurality",
    "detection/abstained",
    "detection/invalid",
    "reward/spy",
    "reward/civilian",
    "reward/detector",
    "length/spy",
    "length/civilian",
    "length/detector",
    "outputs/missing",
    "outputs/truncated",
    "gate/accuracy",
    "gate/abstained",
    "gate/iterations",
    "gate/next",
    "gate/switched",
    "baseline/spy",
    "baseline/civilian",
    "corpus/epoch",
    "loss",
    "kl",
    "entropy",
    "clip_fraction",
    "grad_norm",
    "lr",
    "logprob_gap/mean",
    "logprob_gap/max",
    "optimizer_steps",
    "tokens/written",
    "tokens/prompt",
    "tokens/trained",
    "tokens/per_second",
    "seconds/deal",
    "seconds/perform",
    "seconds/detect",
    "seconds/settle",
    "seconds/update",
    "seconds/record",
    "seconds/total",
}


@pytest.mark.parametrize("answer", ["direct", "reasoned"])
def test_metrics_are_whole_and_finite(tmp_path: Path, tiny_model: Path, answer: str):
    setup = set_up(tmp_path, tiny_model, f"game.detectors.answer={answer}")
    state, first = run_iteration(setup, State())
    run_iteration(setup, state)
    lines = setup.run.read_metrics()
    assert [line["iteration"] for line in lines] == [0, 1]
    assert lines[0] == {"iteration": 0, **first}
    for line in lines:
        assert set(line) >= ALWAYS
        assert ("detection/probability_spy" in line) == (answer == "direct")
        for key, value in line.items():
            assert isinstance(value, str) or math.isfinite(value), key
            if key.startswith("detection/"):
                assert 0 <= value <= 1, key
    games = read_games(setup.run.games_path(0))
    ballots = [(ballot, game["spy"]) for game in games for ballot in game["ballots"]]
    assert first["detection/accuracy"] == sum(ballot["choice"] == spy for ballot, spy in ballots) / len(ballots)
    assert first["detection/invalid"] == (1 if answer == "reasoned" else 0)  # so small a model writes no box
    spies = [game["rewards"][game["spy"] - 1] for game in games]
    assert first["reward/spy"] == pytest.approx(sum(spies) / len(spies))
    written = sum(turn["tokens"] for game in games for turn in game["outputs"] + game["ballots"])
    assert first["tokens/written"] == written
    assert first["seconds/total"] == pytest.approx(sum(v for k, v in first.items() if k.startswith("seconds/")) / 2)


def test_the_watcher_sees_every_phase(tmp_path: Path, tiny_model: Path):
    setup = set_up(tmp_path, tiny_model)
    said, watcher = list(setup.watcher.said), setup.watcher
    _, metrics = run_iteration(setup, State())
    assert watcher.phases == ["deal", "perform", "detect", "settle", "update", "measure", "record"]
    assert watcher.said == said
    assert watcher.counted > metrics["tokens/written"]
