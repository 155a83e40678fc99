"""Is a run's game won by reading, or by a shortcut?

Reads the games that the run has played and needs no model: how far the look of outputs alone (length, echoes of the
mask, copying, position, layout) finds the spy, and how much of the detectors' success that could explain; whether votes
go by player number; abstentions and ballots that cannot be read; whether outputs grow alike; and all of it over time.
"""

from __future__ import annotations

import argparse

from spyrl.evaluation.commands.common import add_iterations

NOTES = (
    "Spy above civilians: how many of its game's civilians the spy is above in the feature, ties by half; 50% tells "
    "nothing. Finds the spy: games in which the player that the feature points at is the spy, learnt on other games. "
    "Copied: share of an output's pairs of words that the part of the document has that all see. Hidden words said: "
    "for comparison, what one would find who knew what was hidden.",
)


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("run_folder", metavar="RUN", help="a run's folder, or one with games of `spyrl eval game`")
    add_iterations(parser)
    parser.add_argument("--to", metavar="FOLDER", help="where the results go (default: evaluations/audit in the run)")


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from pathlib import Path

    from rich.console import Console

    from spyrl.evaluation.audit import audit
    from spyrl.evaluation.audit_figure import draw
    from spyrl.evaluation.commands.common import command_line, need, span
    from spyrl.evaluation.played import batches, game_files
    from spyrl.evaluation.results import Evaluation, report

    need("scipy", "spyrl audit")
    need("sklearn", "spyrl audit")
    folder = Path(options.run_folder).expanduser()
    files = game_files(folder, span(options.iterations))
    console = Console(highlight=False)
    with console.status("reading the games"):
        found = audit(batches(files), folder.name)
    to = Path(options.to).expanduser() if options.to else folder / "evaluations" / "audit"
    evaluation = Evaluation(
        "audit",
        f"Audit of {folder.name}",
        folder.name,
        None,
        {"iterations": [files[0][0], files[-1][0]], "verdict": found.overall},
        found.sheets,
        found.scores,
        NOTES,
    )
    report(console, evaluation, to, command_line(options.parser, options))
    drawn = draw(found, to)
    if drawn:
        console.out(f"{to}: {', '.join(drawn)}")
    return 0
