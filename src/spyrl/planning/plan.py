"""The plan of a run: its memory, its work and its hours on a device, and what makes it fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spyrl.config import Config, config_of
from spyrl.errors import UsageError
from spyrl.game import Stage
from spyrl.planning.devices import Device, device
from spyrl.planning.imagined import Games, Lengths, expected_lengths, play_games
from spyrl.planning.memory import FLOAT, Memory, cache_bytes, compute_bytes, memory
from spyrl.planning.shape import Shape, shape_of
from spyrl.planning.work import (
    Generation,
    Learning,
    at_their_limits,
    calls_at_their_limits,
    forward_flops,
    generation,
    learning,
    trained_by,
)
from spyrl.settings import merged, plain, read_overrides

STAGES: tuple[Stage, ...] = ("detection", "performing")
_SMALL = 1e9  # parameters: below, a run is planned for the CPU where no device is named
_LADDER = (("RTX 4090", 1), ("H100", 1), ("H100", 2), ("H100", 4), ("H100", 8))


@dataclass(frozen=True)
class Line:
    """A part of an iteration: tokens, operations and seconds; and what it would be without sharing beginnings."""

    stage: str
    what: str
    tokens: float
    flops: float
    seconds: float
    unshared_tokens: float | None = None
    unshared_flops: float | None = None


@dataclass(frozen=True)
class Plan:
    """What a run will take on ``gpus`` devices."""

    shape: Shape
    config: Config
    device: Device
    gpus: int
    lengths: Lengths
    games: Games
    memory: Memory
    lines: tuple[Line, ...]

    @property
    def iteration_seconds(self) -> float:
        """Seconds of an iteration; where the gate alternates, the mean over its two stages."""
        learning = [line.seconds for line in self.lines if line.stage == "learning"]
        return sum(line.seconds for line in self.lines if line.stage != "learning") + sum(learning) / len(learning)

    @property
    def hours(self) -> float:
        """Hours of the whole run."""
        return self.iteration_seconds * self.config.training.iterations / 3600


def make_plan(
    config: Config,
    where: str | None = None,
    gpus: int | None = None,
    *,
    output: int | None = None,
    ballot: int | None = None,
    measure: bool = False,
) -> Plan:
    """The plan for ``gpus`` (default 1) devices called ``where``.

    Where none is named, it is the CPU for a small model, else the first of a few that the run fits on. Raises
    `UsageError` for a model, device or corpus that is not there.
    """
    if config.model.server:
        raise UsageError("model.server: a model behind a server is not trained here, so there is nothing to plan")
    named = [(device(where), gpus or 1)] if where else []
    shape = shape_of(config.model)
    lengths = expected_lengths(config, output, ballot)
    games = play_games(config, lengths, measure=measure)
    if not named:
        small = config.model.device == "cpu" or shape.parameters < _SMALL
        ladder = [each for each in _LADDER if gpus in (None, each[1])] or [("H100", gpus or 1)]
        named = [(device(name), count) for name, count in ([("cpu", 1)] if small else ladder)]
    plans = (_planned(shape, config, on, count, lengths, games) for on, count in named)
    return next((plan for plan in plans if plan.memory.fits), None) or _planned(
        shape, config, *named[-1], lengths, games
    )


def _planned(shape: Shape, config: Config, on: Device, gpus: int, lengths: Lengths, games: Games) -> Plan:
    if on.is_cpu and gpus > 1:
        raise UsageError("--gpus is for GPUs: name one with --gpu")
    return Plan(
        shape,
        config,
        on,
        gpus,
        lengths,
        games,
        memory_at_limits(shape, config, on, gpus, lengths, games),
        tuple(_lines(shape, config, on, gpus, games)),
    )


def memory_at_limits(shape: Shape, config: Config, on: Device, gpus: int, lengths: Lengths, games: Games) -> Memory:
    """The memory when all answers run to their limits, which some iteration's will."""
    shown = config.game.players * config.game.rounds * (config.game.max_tokens - lengths.output)
    trees = shape.packs
    passes = [
        each
        for stages in _updates(config).values()
        for each in learning(
            [
                member
                for stage in stages
                for member in at_their_limits(trained_by(games, (stage,)), config, shown if stage == "detection" else 0)
            ],
            config,
            packed=trees and config.training.packed,
        ).passes
    ]
    generated = [
        generation(calls_at_their_limits(calls, config, grown), config.model.batch_tokens, trees=trees)
        for calls, grown in ((games.performing, 0), (games.detection, shown))
    ]
    return memory(shape, config, on, gpus, passes, generated)


def _updates(config: Config) -> dict[str, tuple[Stage, ...]]:
    """The updates that are made at some time: their name, and the stages whose trajectories are learnt from."""
    stages = config.training.stages
    if not config.game.has_spy or stages == "performing":
        return {"performing": ("performing",)}
    if stages == "detection":
        return {"detection": ("detection",)}
    return {"both stages": STAGES} if stages == "joint" else {"detection": STAGES[:1], "performing": STAGES[1:]}


def _lines(shape: Shape, config: Config, on: Device, gpus: int, games: Games) -> Iterator[Line]:
    """The parts of an iteration, its games divided among the devices."""
    scale = games.games / games.sample
    pace = _Pace(shape, config, on, gpus)
    trees = shape.packs
    for stage, calls in (("performing", games.performing), ("detection", games.detection)):
        made = generation(calls, config.model.batch_tokens, trees=trees)
        flops = made.read_flops(shape)
        yield Line(
            stage,
            "read",
            made.read * scale,
            flops * scale,
            pace.reading(made) * scale,
            made.unshared.tokens * scale,
            forward_flops(shape, made.unshared.tokens, made.unshared.pairs, made.unshared.logits) * scale,
        )
        if made.decoding:
            flops = made.write_flops(shape)
            yield Line(stage, "write", made.written * scale, flops * scale, pace.writing(made) * scale)
    for name, stages in _updates(config).items():
        members = trained_by(games, stages)
        packed = learning(members, config, packed=trees and config.training.packed)
        padded = learning(members, config, packed=False)
        yield Line(
            "learning",
            name,
            packed.tokens(config) * scale,
            packed.flops(shape, config) * scale,
            pace.learning(packed, scale),
            padded.tokens(config) * scale,
            padded.flops(shape, config) * scale,
        )


@dataclass(frozen=True)
class _Pace:
    """Seconds from operations, bytes and calls: the slower of multiplying and reading, and launching on top."""

    shape: Shape
    config: Config
    device: Device
    gpus: int

    @property
    def _flops(self) -> float:
        """Operations a second of all devices; GPUs are an eighth as fast in float32 at best."""
        on = self.device
        slower = 1 if on.is_cpu or compute_bytes(self.config, on) < FLOAT else 1 / 8
        return on.flops * on.share_of_flops * slower * self.gpus

    @property
    def _bandwidth(self) -> float:
        return self.device.bandwidth * self.device.share_of_bandwidth * self.gpus

    def _calls(self, count: float) -> float:
        return count * self.shape.layers * self.device.call / self.gpus

    def reading(self, made: Generation) -> float:
        """Seconds to read a sample's prompts."""
        return made.read_flops(self.shape) / self._flops + self._calls(len(made.reading))

    def writing(self, made: Generation) -> float:
        """Seconds to write a sample's answers."""
        shape, config, on = self.shape, self.config, self.device
        weights = (shape.linear + shape.head) * compute_bytes(config, on)
        steps = sum(each.steps for each in made.decoding)
        cached = sum(each.pairs for each in made.decoding) * cache_bytes(shape, config, on)
        moving = (steps * weights + cached) / self._bandwidth
        return max(moving, made.write_flops(shape) / self._flops) + self._calls(steps)

    def learning(self, made: Learning, scale: float) -> float:
        """Seconds of an update: passes, and AdamW's steps, which read and write weights, gradients and moments."""
        training = self.config.training
        passes = made.flops(self.shape, self.config) / self._flops + self._calls(made.calls(self.config))
        steps = training.epochs * training.minibatches
        return passes * scale + steps * 7 * FLOAT * self.shape.trained / self._bandwidth


# What makes it fit


@dataclass(frozen=True)
class Remedy:
    """Settings that make a run fit, as they are typed, and the peak that it then has."""

    words: tuple[str, ...]
    peak: float


def remedies(plan: Plan, *, measure: bool = False) -> list[Remedy]:
    """Single settings each of which makes the plan fit; where none does, several together, if those do."""
    found: list[Remedy] = []
    for trial in _trials(plan):
        for words in trial:
            changed = _with(plan, plan.config, plan.gpus, words, measure)
            if changed is not None and changed[2].fits:
                found.append(Remedy((words,), changed[2].peak))
                break
    if found:
        return found
    taken: list[str] = []
    config, gpus, peak = plan.config, plan.gpus, plan.memory.peak
    for trial in _trials(plan):
        best: tuple[str, Config, int] | None = None
        for words in trial:
            changed = _with(plan, config, gpus, words, measure)
            if changed is None:
                continue
            if changed[2].fits:
                return [Remedy((*taken, words), changed[2].peak)]
            if changed[2].peak < peak * 0.99:
                best, peak = (words, changed[0], changed[1]), changed[2].peak
        if best is not None:
            taken.append(best[0])
            config, gpus = best[1:]
    return []


def _with(plan: Plan, config: Config, gpus: int, words: str, measure: bool) -> tuple[Config, int, Memory] | None:
    """The configuration and the number of devices with ``words``, and their memory; ``None`` where no game is left."""
    try:
        changed, count = _changed(config, gpus, words)
        shape = plan.shape if changed.model == plan.config.model else shape_of(changed.model)
        lengths, games = plan.lengths, plan.games
        if changed.game != plan.config.game:
            lengths = expected_lengths(changed, lengths.output, lengths.ballot)
            games = play_games(changed, lengths, measure=measure)
        return changed, count, memory_at_limits(shape, changed, plan.device, count, lengths, games)
    except UsageError:
        return None


def _trials(plan: Plan) -> Iterator[list[str]]:
    """Settings to try, those that cost least first; of each, the values in order."""
    config = plan.config
    if not config.training.gradient_checkpointing:
        yield ["training.gradient_checkpointing=true"]
    yield [f"training.batch_tokens={each}" for each in _halves(config.training.batch_tokens, 512)]
    yield [f"model.batch_tokens={each}" for each in _halves(config.model.batch_tokens, 1024)]
    if not plan.device.is_cpu and config.model.dtype == "float32":
        yield ["model.dtype=bfloat16"]
    if not plan.device.is_cpu:
        yield [f"--gpus {count}" for count in (2, 4, 8) if count > plan.gpus]
    if not plan.shape.adapters:
        yield ["model.lora.rank=32"]
    yield [f"game.max_tokens={each}" for each in _halves(config.game.max_tokens, 64)]
    yield [f"game.max_prompt_tokens={each}" for each in _halves(config.game.max_prompt_tokens, 1024)]


def _halves(value: int, least: int) -> list[int]:
    found = []
    while value // 2 >= least:
        value //= 2
        found.append(value)
    return found


def _changed(config: Config, gpus: int, words: str) -> tuple[Config, int]:
    if words.startswith("--gpus "):
        return config, int(words.split()[1])
    return config_of(merged(plain(config), read_overrides([words])), "plan"), gpus
