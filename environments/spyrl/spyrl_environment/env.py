"""The environment: one deal becomes one game, a trace a turn and ballot, rewards from the votes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import verifiers.v1 as vf
from pydantic import Field, model_validator

from spyrl.play import Dropped, Played, Settled, detection_seed, performing_seed, summarize
from spyrl.policy import Completion
from spyrl_environment.harness import TurnData, TurnTask
from spyrl_environment.playing import Question, play, settle_one
from spyrl_environment.reading import completion_of
from spyrl_environment.table import Table
from spyrl_environment.taskset import DealTask, SpyrlTasksetConfig

METRICS = (
    "detection/accuracy",
    "detection/plurality",
    "detection/abstained",
    "detection/invalid",
    "outputs/missing",
    "outputs/truncated",
    "reward/spy",
    "reward/civilian",
    "reward/detector",
)
"""Which of a game's numbers (docs/metrics.md) are told on its traces."""

HERE = vf.SubprocessConfig()
"""A seat runs nothing, so it needs no sandbox."""


class GameDroppedError(Exception):
    """A game that could not be played, and is not scored."""


class SpyrlEnvConfig(vf.EnvConfig):
    """Who plays, and which stage is trained."""

    civilian: vf.AgentConfig = vf.AgentConfig(runtime=HERE)
    spy: vf.AgentConfig = vf.AgentConfig(runtime=HERE)
    detector: vf.AgentConfig = vf.AgentConfig(runtime=HERE)
    """Whoever votes: detectors that are no players (``view: full``), or the players as voters (``view: own``)."""
    stage: Literal["detection", "performing"] = "detection"
    """Which seats' traces are trained on. Both at once collapse the model (paper, Table 16)."""
    max_concurrent_agents: int | None = Field(None, ge=1)
    """Turns of one game asked at once; by default all of a stage, so that the engine can share their prompt."""

    @model_validator(mode="after")
    def _check(self) -> SpyrlEnvConfig:
        played = isinstance(self.taskset, SpyrlTasksetConfig)
        if played and self.stage == "detection" and not self.taskset.configuration().game.has_spy:
            raise ValueError("stage=detection needs a spy, and game.degradation.kind=nothing has none")
        return self


class SpyrlEnv(vf.Env[SpyrlEnvConfig]):
    """A game of Who is the Spy? The gate and the role baselines are state, and the engine's: see the README."""

    @property
    def table(self) -> Table:
        """What the games are played with."""
        table: Table = self.taskset.table
        return table

    async def setup(self, agents: vf.Agents) -> None:
        """Say whose tokens are trained on: one stage's."""
        agents.civilian.trainable = agents.spy.trainable = self.config.stage == "performing"
        agents.detector.trainable = self.config.stage == "detection"

    async def run(self, task: DealTask, agents: vf.Agents) -> None:
        """Ask all turns of a stage at once, stage by stage, until the game is played.

        Raises `GameDroppedError` where an answer failed: no vote is made up, and nothing of the game is trained on.
        """
        traces: list[vf.Trace] = []
        while isinstance(outcome := play(self.table, task.data.deal, known(traces)), list):
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(_ask(question, agents)) for question in outcome]
            traces += [each.result() for each in asked]
        if isinstance(outcome, Dropped):
            for trace in traces:
                trace.agent.trainable = False
            raise GameDroppedError(f"game {task.data.name} dropped ({outcome.reason}): {outcome.detail}")

    async def finalize(self, task: DealTask, episode: vf.Episode) -> None:
        """Settle the game by its traces, and tell each what its turn or ballot earned."""
        played = play(self.table, task.data.deal, known(episode.traces))
        if not isinstance(played, Played):
            raise GameDroppedError(f"game {task.data.name} cannot be settled by its traces")
        record(self.table, settle_one(self.table, played), episode.traces)


def known(traces: Iterable[vf.Trace]) -> dict[int, Completion]:
    """The answers in these traces, by their seeds."""
    return {trace.task.data.seed: completion_of(trace) for trace in traces}


async def _ask(question: Question, agents: vf.Agents) -> vf.Trace:
    sampling = question.request.sampling
    data = TurnData(
        name=question.seat,
        prompt=[dict(message) for message in question.request.messages],
        seed=question.seed,
        sampling=vf.SamplingConfig(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            seed=question.seed % 2**31,  # as large as servers take it
        ),
    )
    agent: vf.Agent = getattr(agents, question.seat)
    return await agent.run(TurnTask(data))


def record(table: Table, settled: Settled, traces: Iterable[vf.Trace]) -> None:
    """Put a settled game's rewards and metrics on its traces.

    A player's reward goes to each of its turns, a detector's to its ballot, with its advantage within the game.
    """
    deal = settled.game.deal
    earned = _players(table, settled) | _detectors(table, settled)
    shared = {name: value for name, value in summarize([settled], []).items() if name in METRICS}
    for trace in traces:
        each = earned[trace.task.data.seed]
        for name, value in each.rewards.items():
            trace.record_reward(name, value)
        trace.record_metrics(shared | each.metrics)
        trace.info["spyrl"] = {"iteration": deal.iteration, "game": deal.game, **each.who}


@dataclass(frozen=True)
class Earned:
    """What one trace is told of its game."""

    who: dict[str, int | None]
    rewards: dict[str, float]
    metrics: dict[str, float]


def _players(table: Table, settled: Settled) -> dict[int, Earned]:
    """By seed, what each turn of a player earned."""
    game, seed = settled.game, table.config.run.seed
    return {
        performing_seed(seed, game.deal, output.round, output.player): Earned(
            {"player": output.player, "round": output.round},
            {"performing": game.performing_rewards[output.player - 1]},
            {"votes": game.tally.votes[output.player - 1]},
        )
        for output in game.outputs
    }


def _detectors(table: Table, settled: Settled) -> dict[int, Earned]:
    """By seed, what each ballot earned; nothing where there was no spy to be found."""
    game, seed = settled.game, table.config.run.seed
    cast: Counter[int | None] = Counter()
    earned: dict[int, Earned] = {}
    for index, ballot in enumerate(game.ballots):
        rewards, metrics = {}, {}
        if game.detection_rewards:
            rewards = {"detection": game.detection_rewards[index]}
            metrics = {"advantage": game.detection_advantages[index]}
        who = {"voter": ballot.voter, "choice": ballot.choice}
        earned[detection_seed(seed, game.deal, ballot.voter, cast[ballot.voter])] = Earned(who, rewards, metrics)
        cast[ballot.voter] += 1
    return earned
