"""Play two models against each other in the game.

Both perform the same deals as civilians and as the spy; every pairing of the one's civilians with the other's spy is
read by both models' detectors. Told are the spies found by plurality, with 95 % intervals, and what it changes to have
A instead of B in a part, deal by deal. The game's settings are those of the run that A (or B) is, or of a preset and
key=value words.
"""

from __future__ import annotations

import argparse

from spyrl.arguments import positive
from spyrl.evaluation.commands.common import add_common


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("model", metavar="A", help="a run's folder, or what model.path takes")
    parser.add_argument("--versus", required=True, metavar="B", help="whom it plays against, likewise")
    parser.add_argument("--games", type=positive, default=200, metavar="N", help="deals (default 200)")
    parser.add_argument("--checkpoints", action="store_true", help="each checkpoint of run A, not its result: a curve")
    parser.add_argument("--server", metavar="URL", help="A is a model of this OpenAI-compatible server")
    parser.add_argument("--versus-server", metavar="URL", help="B is a model of this OpenAI-compatible server")
    parser.add_argument(
        "words",
        nargs="*",
        metavar="PRESET|key=value",
        help="a preset, where neither is a run, and settings of the game",
    )
    add_common(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from collections.abc import Callable
    from dataclasses import replace
    from pathlib import Path

    from rich.console import Console

    from spyrl.errors import UsageError
    from spyrl.evaluation.checkpoints import checkpoints_of, open_checkpoint
    from spyrl.evaluation.commands.common import command_line, need, progress
    from spyrl.evaluation.models import Contestant, contestant
    from spyrl.evaluation.results import Evaluation, folder_for, report
    from spyrl.evaluation.versus import Match, curve, deals_for, kept_parts, made_with, play_match, settings_for, sheets
    from spyrl.evaluation.versus_figure import draw_cells, draw_curve
    from spyrl.policy import Policy
    from spyrl.policy.opening import open_policy
    from spyrl.policy.quiet import quiet_libraries
    from spyrl.policy.settings import LoraSettings
    from spyrl.tasks import load_task

    need("scipy", "spyrl eval game")
    a, b = contestant(options.model, options.server), contestant(options.versus, options.versus_server)
    config = settings_for((a, b), options.words)
    config = replace(config, run=replace(config.run, seed=options.seed))
    if options.checkpoints and a.run is None:
        raise UsageError(f"--checkpoints: {options.model} is no run's folder")
    stages = checkpoints_of(a.run) if options.checkpoints and a.run else []
    task = load_task(config.task)
    quiet_libraries()
    console = Console(highlight=False)
    model = replace(config.model, device=options.device, batch_tokens=options.batch_tokens)

    def opened(who: Contestant, say: Callable[[str], None]) -> Policy:
        return open_policy(replace(model, path=who.path, server=who.server, lora=LoraSettings()), say)

    to = folder_for(a, f"game-{b.name}", options.to)
    chosen: list[tuple[int, Path | None]] = [*stages] or [(0, None)]
    folders = {iteration: to / path.name if path else to for iteration, path in chosen}
    kept = {
        iteration: kept_parts(folders[iteration], made_with(config, str(path or a.path), b.path))
        for iteration, path in chosen
    }
    matches: dict[int, Match] = {}
    with console.status("loading") as status:
        other = opened(b, status.update)
    for iteration, path in chosen:
        with console.status("loading") as status:
            own = open_checkpoint(path, model, status.update) if path else opened(a, status.update)
            deals, where = deals_for(config, task, (own, other), options.games)
        with progress(console, path.name if path else f"{a.name} and {b.name}") as on_games:
            matches[iteration] = play_match(
                {"A": own, "B": other}, task, config, deals, folders[iteration], kept[iteration], on_games
            )
    last = list(matches.values())[-1]
    shown, scores = sheets(last, {"A": a.name, "B": b.name})
    notes = [
        f"{len(deals)} deals of {where}; the same documents, spies and draws in every cell. Chance finds the spy in "
        f"{1 / config.game.players:.0%} of games.",
        "Intervals are 95 %: Wilson's of the games; t of the differences by deal. A game without any vote for a player "
        "counts as a spy not found, players that tie share the credit.",
    ]
    notes += [f"{count} games could not be played in some cell ({reason})." for reason, count in last.dropped.items()]
    if stages:
        shown = (curve(matches), *shown)
        notes.append(f"The tables of cells are those of {stages[-1][1].name}.")
    title, made = f"{a.name} against {b.name} in the game", made_with(config, a.path, b.path)
    evaluation = Evaluation("game", title, a.name, b.name, made, shown, scores, tuple(notes))
    report(console, evaluation, to, command_line(options.parser, options))
    drawn = draw_cells(last, {"A": a.name, "B": b.name}, to) + (draw_curve(matches, b.name, to) if stages else [])
    console.out(f"{to}: {', '.join(drawn)}; games in games/")
    return 0
