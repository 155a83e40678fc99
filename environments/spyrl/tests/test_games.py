"""Games played by verifiers' own evaluation command, against SpyRL's own on the same replies."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf

from conftest import Server, detects, prompt, scripted
from spyrl.config import Config, load_config
from spyrl.corpus import Cursor
from spyrl.game import RoleBaselines
from spyrl.play import corpus_for, deal_games, detect, perform, play_one, replay, settle
from spyrl.policy.server import ServerPolicy
from spyrl.runs.games import read_games
from spyrl.tasks import load_task
from spyrl_environment.replays import main as write_replays
from spyrl_environment.replays import replays

REASONED = ["game.detectors.answer=reasoned", "game.temperature=0.7"]
Evaluate = Callable[..., list[vf.Episode]]


def served(server: Server, settings: list[str]) -> Config:
    return load_config("writing-smollm2", [*settings, f"model.server={server.url}", "model.path=scripted"])


def as_training(config: Config, games: int) -> list[dict[str, Any]]:
    """The replays of a run's first games, as `spyrl.training.iteration.run_iteration` plays them."""
    task, policy = load_task(config.task), ServerPolicy(config.model.path, str(config.model.server))
    corpus = corpus_for(config, task, policy)
    cursor, baselines, rows, iteration = Cursor(), RoleBaselines(), [], 0
    while len(rows) < games:
        documents, cursor = corpus.take(cursor, config.training.games)
        deals, _ = deal_games(documents, config.game, config.run.seed, iteration)
        performances, _ = perform(deals[: games - len(rows)], task, policy, config.game, config.run.seed)
        played, _ = detect(performances, task, policy, config.game, config.run.seed)
        settled, baselines = settle(played, config.game, baselines, config.run.seed)
        rows += [replay(each) for each in settled]
        iteration += 1
    return rows


def of(trace: vf.Trace, key: str) -> Any:
    return trace.info["spyrl"].get(key)


def test_rewards_of_twenty_games_are_those_of_spyrl_play_on_the_same_replies(
    server: Server, evaluate: Evaluate
) -> None:
    settings = [*REASONED, "training.games=20"]
    recorded = evaluate(20, settings)
    config, task = served(server, settings), load_task("writing")
    votes = 0
    assert len(recorded) == 20
    for episode in recorded:
        deal = episode.task.data.deal
        game = play_one(config, task, deal.game, say=lambda text: None).game
        assert game.deal == deal
        players = [trace for trace in episode.traces if trace.agent.name != "detector"]
        detectors = [trace for trace in episode.traces if trace.agent.name == "detector"]
        assert sorted(of(trace, "player") for trace in players) == [1, 2, 3, 4, 5]
        for trace in players:
            number = of(trace, "player")
            assert trace.agent.name == deal.role(number)
            assert trace.reward == game.performing_rewards[number - 1]
            assert trace.metrics["votes"] == game.tally.votes[number - 1]
        assert math.fsum(trace.reward for trace in players) == pytest.approx(0)
        assert len(detectors) == 8
        ballots = [(trace.reward, trace.metrics["advantage"], of(trace, "choice")) for trace in detectors]
        choices = [ballot.choice for ballot in game.ballots]
        settled = list(zip(game.detection_rewards, game.detection_advantages, choices, strict=True))
        assert sorted(ballots, key=str) == sorted(settled, key=str)
        for trace in detectors:
            said = scripted({"messages": [{"content": prompt_of(trace)}], "seed": trace.task.data.sampling.seed})
            assert (f"\\boxed{{{of(trace, 'choice')}}}" in said) == (of(trace, "choice") is not None)
        assert {trace.metrics["detection/plurality"] for trace in episode.traces} == {game.verdict.accuracy}
        votes += sum(game.tally.votes)
    assert votes > 20


def by_seed(episode: vf.Episode) -> dict[int, dict[str, vf.Reward | None]]:
    return {trace.task.data.seed: trace.rewards for trace in episode.traces}


def prompt_of(trace: vf.Trace) -> str:
    return str(trace.task.data.prompt[-1].content)


@pytest.mark.parametrize(
    "settings",
    [
        ["game.detectors.view=full", "game.detectors.count=3"],
        ["game.detectors.view=own", "game.detectors.count=2", "game.detectors.spy_votes=true"],
        ["game.turns=sequential", "game.rounds=2", "game.players=3", "game.detectors.count=2"],
        ["game.degradation.kind=nothing", "training.stages=performing", "game.detectors.count=2"],
    ],
    ids=["full", "own", "in sequence", "no spy"],
)
def test_replays_and_advantages_are_those_of_a_run_of_spyrl(
    server: Server, evaluate: Evaluate, settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [*REASONED, "training.games=3", *settings]
    recorded = evaluate(5, settings, "--env.stage", "performing")
    expected = as_training(served(server, settings), 5)
    assert [episode.ok for episode in recorded] == [True] * 5
    rows, unplayed = replays(recorded)
    assert [row for iteration in sorted(rows) for row in rows[iteration]] == expected
    assert unplayed == 0
    assert write_replays([str(tmp_path / "out" / "run")]) == 0
    assert "5 games in" in capsys.readouterr().out
    kept = [read_games(path) for path in sorted((tmp_path / "out" / "run" / "games").iterdir())]
    assert [row["game"] for rows in kept for row in rows] == [0, 1, 2, 0, 1]
    assert [row["rewards"] for rows in kept for row in rows] == [row["rewards"] for row in expected]


def test_each_seat_samples_as_the_game_says_unless_the_run_says_otherwise(server: Server, evaluate: Evaluate) -> None:
    lengths = ["game.max_tokens=7", "game.detectors.max_tokens=9", "game.detectors.count=2"]
    evaluate(1, [*REASONED, *lengths])
    assert {body["max_tokens"] for body in server.bodies if not detects(body)} == {7}
    assert {body["max_tokens"] for body in server.bodies if detects(body)} == {9}
    assert {body["temperature"] for body in server.bodies} == {0.7}
    assert len({body["seed"] for body in server.bodies}) == 7
    server.bodies.clear()
    evaluate(1, [*REASONED, *lengths], "--sampling.temperature", "0.1")
    assert {body["temperature"] for body in server.bodies} == {0.1}


@pytest.mark.parametrize("stage", ["performing", "detection"])
def test_a_failed_reply_drops_its_game_and_nothing_of_it_is_scored_or_trained(
    server: Server, evaluate: Evaluate, stage: str
) -> None:
    settings = [*REASONED, "game.detectors.count=2"]
    [first, second] = sorted(evaluate(2, settings), key=lambda episode: episode.task.data.deal.game)
    assert first.ok
    assert second.ok
    failing = second.task.data.deal.document.text

    def rule(body: dict[str, Any]) -> str | int:
        return 400 if failing in prompt(body) and detects(body) == (stage == "detection") else scripted(body)

    server.rule = rule
    [good, dropped] = sorted(evaluate(2, settings), key=lambda episode: episode.task.data.deal.game)
    assert good.ok
    assert by_seed(good) == by_seed(first)
    assert not dropped.ok
    assert f"dropped ({stage}_failed)" in dropped.errors[-1].message
    assert "on fire" in dropped.errors[-1].message
    assert not any(trace.rewards or trace.metrics or trace.agent.trainable for trace in dropped.traces)
    rows, unplayed = replays([good, dropped])
    assert ([len(games) for games in rows.values()], unplayed) == ([1], 1)


@pytest.mark.parametrize(("stage", "seats"), [("performing", {"civilian", "spy"}), ("detection", {"detector"})])
def test_one_stage_is_trained(evaluate: Evaluate, stage: str, seats: set[str]) -> None:
    [episode] = evaluate(1, [*REASONED, "game.detectors.count=2"], "--env.stage", stage)
    assert {trace.agent.name for trace in episode.traces if trace.agent.trainable} == seats
    assert {trace.agent.name for trace in episode.traces} == {"civilian", "spy", "detector"}
