"""A plan as a page of a terminal, and as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spyrl.planning.devices import GB
from spyrl.planning.plan import Line, Plan, Remedy


def show(console: Console, preset: str, plan: Plan, remedies: Sequence[Remedy], price: float | None) -> None:
    """Print the page."""
    console.print(Text(f"{preset} on {_devices(plan)}", style="bold"))
    console.print(Text(_source(plan), style="dim"))
    console.print()
    for name, text in _described(plan):
        _item(console, name, text)
    console.print()
    _show_memory(console, plan)
    for line in _fitting(plan, remedies):
        console.print(Text(line, style="" if plan.memory.fits else "red"))
    console.print()
    _show_work(console, plan)
    console.print()
    for line in _time(plan, price):
        console.print(Text(line))
    console.print()
    for line in _notes(plan):
        _item(console, "·", line, style="dim", width=2)


def as_values(preset: str, plan: Plan, remedies: Sequence[Remedy], price: float | None) -> dict[str, Any]:
    """The page as plain values: bytes, operations, seconds, hours."""
    memory, shape = plan.memory, plan.shape
    return {
        "preset": preset,
        "device": {"name": plan.device.name, "count": plan.gpus, "memory": plan.device.memory,
                   "source": plan.device.source},
        "model": {"path": shape.name, "parameters": shape.parameters, "trained": shape.trained},
        "assumed": {"output_tokens": plan.lengths.output, "ballot_tokens": plan.lengths.ballot,
                    "notes": list(plan.games.assumed)},
        "memory": {
            phase: {part.name: part.bytes for part in getattr(memory, phase)}
            for phase in ("held", "generating", "learning", "step")
        } | {"peaks": memory.phases, "peak": memory.peak, "room": memory.room, "fits": memory.fits},
        "remedies": [{"settings": list(each.words), "peak": each.peak} for each in remedies],
        "iteration": [
            {"stage": line.stage, "what": line.what, "tokens": line.tokens, "flops": line.flops,
             "seconds": line.seconds, "unshared_tokens": line.unshared_tokens, "unshared_flops": line.unshared_flops}
            for line in plan.lines
        ],
        "iterations": plan.config.training.iterations,
        "seconds_an_iteration": plan.iteration_seconds,
        "hours": plan.hours,
        "device_hours": plan.hours * plan.gpus,
        "cost": None if price is None else plan.hours * plan.gpus * price,
    }  # fmt: skip


def _item(console: Console, name: str, text: str, style: str = "", width: int = 12) -> None:
    """A name and a text that is wrapped beside it."""
    row = Table.grid(padding=(0, 0))
    row.add_column(width=width)
    row.add_column(max_width=min(console.width, 80) - width)
    row.add_row(Text(name, style="dim"), Text(text, style=style))
    console.print(row)


def _devices(plan: Plan) -> str:
    if plan.device.is_cpu:
        return f"this machine's processor, {plan.device.memory / GB:.0f} GB"
    return f"{plan.gpus} × {plan.device.name}, {plan.device.memory / GB:.0f} GB each"


def _source(plan: Plan) -> str:
    on = plan.device
    number = "float32" if on.is_cpu else "dense bfloat16"
    return f"{on.flops / 1e12:,.3g} TFLOP/s in {number}, {on.bandwidth / 1e12:.3g} TB/s of memory; {on.source}"


def _described(plan: Plan) -> list[tuple[str, str]]:
    shape, config = plan.shape, plan.config
    game, training = config.game, config.training
    kind = f"LoRA of rank {shape.lora_rank} trains {_count(shape.adapters)}" if shape.adapters else "all are trained"
    tied = "tied" if shape.tied else "untied"
    ballots = game.detectors.ballots
    voters = f"{ballots} detectors" if game.detectors.view == "full" else f"{ballots} ballot(s) a voting player"
    rounds = f" in {game.rounds} rounds" if game.rounds > 1 else ""
    return [
        ("model", f"{shape.name}: {_count(shape.parameters)} parameters, {kind}"),
        (
            "",
            f"{shape.layers} layers of {shape.hidden}, MLP {shape.mlp}, {shape.heads} heads on {shape.kv_heads}, "
            f"{shape.vocabulary:,} tokens ({tied})",
        ),
        (
            "iteration",
            f"{training.games} games of {game.players} players{rounds} and {voters} "
            f"({game.detectors.view} view, {game.detectors.answer} ballots)",
        ),
        ("assumed", f"{_answers(plan)}; {'; '.join(plan.games.assumed)}"),
    ]


def _answers(plan: Plan) -> str:
    game, lengths = plan.config.game, plan.lengths
    outputs = f"outputs of {lengths.output:,} tokens"
    if lengths.output < game.max_tokens:
        outputs += f" (at most {game.max_tokens:,}; --output)"
    if game.detectors.answer == "direct":
        return f"{outputs}, ballots of one"
    ballots = f"ballots of {lengths.ballot:,}"
    if lengths.ballot < game.detectors.max_tokens:
        ballots += f" (at most {game.detectors.max_tokens:,}; --ballot)"
    return f"{outputs}, {ballots}"


def _show_memory(console: Console, plan: Plan) -> None:
    memory = plan.memory
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("memory of one device, GB" if plan.gpus > 1 else "memory, GB", min_width=38)
    for name in ("generating", "learning", "stepping"):
        table.add_column(name, justify="right", min_width=10)
    for part in memory.held:
        table.add_row(part.name, *[_gb(part.bytes)] * 3)
    columns = (memory.generating, memory.learning, memory.step)
    for name in dict.fromkeys(part.name for column in columns for part in column):
        table.add_row(name, *(_gb(sum(part.bytes for part in column if part.name == name)) for column in columns))
    table.add_row(Text("in all", style="bold"), *(Text(_gb(peak), style="bold") for peak in memory.phases.values()))
    console.print(table)


def _fitting(plan: Plan, remedies: Sequence[Remedy]) -> list[str]:
    memory = plan.memory
    room = (
        f"{_gb(memory.room)} of {_gb(plan.device.memory)} GB" if not plan.device.is_cpu else (f"{_gb(memory.room)} GB")
    )
    if memory.fits:
        return [f"fits: {_gb(memory.peak)} GB at most, with all answers at their limits; usable are {room}"]
    over = ", ".join(f"{name} {_gb(peak)}" for name, peak in memory.phases.items() if peak > memory.room)
    lines = [f"does not fit: {over} GB, and usable are {room}"]
    if not remedies:
        return [*lines, "no settings tried here make it fit: take a smaller model or a larger device"]
    if len(remedies[0].words) > 1:
        return [*lines, f"no single setting helps; together these do ({_gb(remedies[0].peak)} GB):",
                *(f"  {words}" for words in remedies[0].words)]  # fmt: skip
    lines.append("any one of these makes it fit:")
    return lines + [f"  {each.words[0]:<42} then {_gb(each.peak)} GB" for each in remedies]


def _show_work(console: Console, plan: Plan) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("one iteration", min_width=20)
    for name in ("tokens", "TFLOP", "time", "unshared: tokens", "TFLOP"):
        table.add_column(name, justify="right")
    for line in plan.lines:
        table.add_row(_name(line), _tokens(line.tokens), _tera(line.flops), _duration(line.seconds),
                      _tokens(line.unshared_tokens), _tera(line.unshared_flops))  # fmt: skip
    console.print(table)


def _name(line: Line) -> str:
    if line.stage == "learning":
        return f"learning, {line.what}"
    return f"{line.stage}, {line.what}"


def _time(plan: Plan, price: float | None) -> list[str]:
    iterations = plan.config.training.iterations
    both = sum(line.stage == "learning" for line in plan.lines) == 2
    learnt = " (one stage is learnt; taken as half each)" if both else ""
    lines = [f"{_duration(plan.iteration_seconds)} an iteration{learnt}"]
    run = f"{iterations} iterations: {_duration(plan.hours * 3600)}"
    if plan.gpus > 1:
        run += f", {plan.hours * plan.gpus:,.3g} GPU-hours"
    if price is not None:
        cost = plan.hours * plan.gpus * price
        each = "a GPU-hour" if not plan.device.is_cpu else "an hour"
        run += f"; at {price:g} {each} {cost:,.2f} in all" if cost < 10 else f"; at {price:g} {each} {cost:,.0f} in all"
    return [*lines, run]


def _notes(plan: Plan) -> list[str]:
    on, config = plan.device, plan.config
    notes = [
        "Memory is planned for answers at their limits, work and time for the assumed lengths. Unshared: every "
        "answer's prompt read by itself, trajectories in padded rows.",
        f"Time: multiplying at {on.share_of_flops:.0%} and reading memory at {on.share_of_bandwidth:.0%} of the "
        f"device's speed, {on.call * 1e3:g} ms for each layer that is run; answers are written by transformers, "
        f"model.batch_tokens={config.model.batch_tokens} at a time.",
    ]
    if plan.gpus > 1:
        notes.append(
            "Weights, gradients, moments and reference are divided among the devices (full sharding), and so are "
            "games; what they send each other takes no time here."
        )
    if not plan.device.is_cpu:
        notes.append("Of a GPU's memory 5 % are left for what its allocator cannot use.")
    if config.training.evaluation.every:
        notes.append(f"Measuring every {config.training.evaluation.every} iterations is not in it.")
    if config.model.performer or config.model.detector:
        notes.append("Fixed models that play beside the learner are planned as if they were the learner.")
    if plan.shape.context and _longest(plan) > plan.shape.context:
        notes.append(
            f"Prompt and answer may have {_longest(plan):,} tokens, the model's context {plan.shape.context:,}."
        )
    return notes


def _longest(plan: Plan) -> int:
    game = plan.config.game
    ballot = game.detectors.max_tokens if game.detectors.answer == "reasoned" else 1
    return game.max_prompt_tokens + max(game.max_tokens, ballot)


def _gb(value: float) -> str:
    if not value:
        return "–"
    found = value / GB
    return f"{found:.1f}" if found >= 0.95 else f"{found:.2f}" if found >= 0.0095 else "<0.01"


def _count(value: int) -> str:
    for size, name in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return str(value)


def _tokens(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1e6:.3g} M" if value >= 1e6 else f"{value / 1e3:.3g} k" if value >= 1e3 else f"{value:.0f}"


def _tera(value: float | None) -> str:
    if value is None:
        return "–"
    found = value / 1e12
    return f"{found:,.0f}" if found >= 100 else f"{found:.3g}"


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    days, more = divmod(hours, 24)
    if days > 2:
        return f"{days} d {more} h"
    return f"{hours} h {left:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
