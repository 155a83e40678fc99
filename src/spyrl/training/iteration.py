"""One iteration of SpyRL: deal, perform, detect, settle, update, record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from spyrl.config import Config
from spyrl.corpus import Corpus
from spyrl.game import Gate, Stage
from spyrl.play import (
    Dropped,
    HeldOut,
    Settled,
    deal_games,
    detect,
    indicators,
    measure,
    perform,
    replay,
    settle,
    summarize,
)
from spyrl.policy import Policy
from spyrl.policy.vllm import VllmPolicy
from spyrl.runs.folder import RunFolder
from spyrl.tasks import Task
from spyrl.training.learner import Learner, UpdateStatistics, update
from spyrl.training.processes import from_main
from spyrl.training.state import State
from spyrl.training.trajectory import trajectories


class Watcher(Protocol):
    """Who watches a run: the live display, or nobody."""

    def phase(self, name: str) -> None:
        """A step of the iteration begins."""
        ...

    def tokens(self, count: int) -> None:
        """So many tokens were written or learnt from."""
        ...

    def say(self, text: str) -> None:
        """Something a person should know."""
        ...

    def iteration(self, metrics: dict[str, Any]) -> None:
        """An iteration is done."""
        ...


@dataclass(frozen=True)
class Setup:
    """All that an iteration works with. ``performer`` and ``detector`` are the learner's policy unless fixed."""

    config: Config
    task: Task
    corpus: Corpus
    performer: Policy
    detector: Policy
    learner: Learner
    run: RunFolder
    watcher: Watcher
    held_out: HeldOut | None = None
    engine: VllmPolicy | None = None
    """The learner's policy where that is no part of the learner, and must be given its weights."""


def run_iteration(setup: Setup, state: State) -> tuple[State, dict[str, Any]]:
    """Play and learn from one batch of games; returns the state after it and its metrics.

    The games of an iteration follow from the run's seed, the state and the model alone. Of many processes each goes
    through all of it: the policies divide the writing and the update divides the learning.
    """
    game, seed = setup.config.game, setup.config.run.seed
    stages = trained_stages(setup.config, state.gate)
    clock = _Clock(setup.watcher.phase)

    # 1. Deal: draw documents and spies, degrade the spies' copies.
    with clock("deal"):
        documents, cursor = setup.corpus.take(state.cursor, setup.config.training.games)
        deals, too_short = deal_games(documents, game, seed, state.iteration)

    # An engine beside the learner takes the learner's weights.
    if setup.engine:
        with clock("weights"):
            setup.engine.wake()

    # 2. Performing stage: every player does the task from its own observation.
    with clock("perform"):
        performances, unperformed = perform(deals, setup.task, setup.performer, game, seed)

    # 3. Detection stage: detectors read all outputs and vote.
    with clock("detect"):
        played, undetected = detect(performances, setup.task, setup.detector, game, seed)

    # 4. Settle: tally, rewards, advantages, role baselines; then the gate.
    with clock("settle"):
        if setup.engine:
            setup.engine.sleep()
        settled, baselines = settle(played, game, state.baselines, seed)
        verdicts = [each.game.verdict for each in settled if each.game.verdict is not None]
        gate, switched = state.gate.step(verdicts, game.gate) if verdicts else (state.gate, "")

    # 5. Update: one stage's trajectories, clipped objective and KL.
    with clock("update"):
        statistics = update(
            setup.learner,
            trajectories(settled, stages),
            iteration=state.iteration,
            seed=seed,
            on_tokens=setup.watcher.tokens,
        )

    # 6. Measure, every so often, on documents that nothing is learnt from.
    with clock("measure"):
        measured = _measure(setup, state.iteration)

    # 7. Record: every game and every number.
    after = State(state.iteration + 1, gate, baselines, cursor)
    dropped = [*too_short, *unperformed, *undetected]
    with clock("record"):
        replays = [replay(each) for each in settled]
        looks = indicators(replays)
    metrics = _metrics(setup, stages, settled, dropped, statistics, after, switched, clock.seconds)
    metrics |= looks | measured
    from_main(lambda: setup.run.record(state.iteration, metrics, replays))
    for each in dropped:
        setup.watcher.say(f"game {each.deal.game} dropped ({each.reason}): {each.detail}")
    return after, metrics


def _measure(setup: Setup, iteration: int) -> dict[str, float]:
    """The policies on held-out documents after this iteration's update; in the first, as they began, too."""
    held_out = setup.held_out
    if held_out is None:
        return {}
    metrics: dict[str, float] = {}
    if iteration == 0:
        metrics |= {f"start/{key}": value for key, value in held_out.begun.metrics.items()}
        from_main(lambda: setup.run.write_held_out(None, [asdict(each) for each in held_out.begun.examples]))
    every, done = setup.config.training.evaluation.every, iteration + 1
    if done % every == 0 or done == setup.config.training.iterations:
        if setup.engine:
            setup.engine.wake()
        measured = measure(held_out, setup.performer, setup.detector)
        if setup.engine:
            setup.engine.sleep()
        from_main(lambda: setup.run.write_held_out(iteration, [asdict(each) for each in measured.examples]))
        metrics |= measured.metrics
    return metrics


def trained_stages(config: Config, gate: Gate) -> tuple[Stage, ...]:
    """Which stages' trajectories are trained now. Without a spy there is nothing to detect."""
    if not config.game.has_spy:
        return ("performing",)
    match config.training.stages:
        case "alternate":
            return (gate.stage,)
        case "joint":
            return ("detection", "performing")
        case stage:
            return (stage,)


def _metrics(
    setup: Setup,
    stages: Sequence[Stage],
    settled: Sequence[Settled],
    dropped: Sequence[Dropped],
    statistics: UpdateStatistics | None,
    after: State,
    switched: str,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """One line of ``metrics.jsonl``; ``stage`` is what this iteration trained, the rest is after it."""
    game = setup.config.game
    metrics: dict[str, Any] = {"stage": "joint" if len(stages) == 2 else stages[0]}
    metrics |= summarize(settled, dropped)
    metrics |= {
        "gate/accuracy": after.gate.accuracy.read(game.gate.ema),
        "gate/abstained": after.gate.abstained.read(game.gate.ema),
        "gate/iterations": after.gate.iterations,
        "gate/next": after.gate.stage,
        "gate/switched": switched,
        "baseline/spy": after.baselines.spy.read(game.roles.ema),
        "baseline/civilian": after.baselines.civilian.read(game.roles.ema),
        "corpus/epoch": after.cursor.epoch,
    }
    if statistics is not None:
        metrics |= {
            "loss": statistics.loss,
            "kl": statistics.kl,
            "entropy": statistics.entropy,
            "clip_fraction": statistics.clip_fraction,
            "grad_norm": statistics.grad_norm,
            "lr": statistics.lr,
            "logprob_gap/mean": statistics.gap_mean,
            "logprob_gap/max": statistics.gap_max,
            "tokens/trained": statistics.tokens,
            "optimizer_steps": statistics.steps,
        }
        if statistics.importance_mean is not None:
            metrics |= {
                "importance/mean": statistics.importance_mean,
                "importance/capped": statistics.importance_capped,
            }
    generating = seconds["perform"] + seconds["detect"]
    if metrics.get("tokens/written") and generating > 0:
        metrics["tokens/per_second"] = metrics["tokens/written"] / generating
    metrics |= {f"seconds/{name}": spent for name, spent in seconds.items()}
    metrics["seconds/total"] = sum(seconds.values())
    return metrics


@dataclass
class _Clock:
    """Seconds by phase."""

    announce: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.announce(name)
        begun = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begun
