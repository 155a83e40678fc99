"""Do the votes of a run track quality?

Over the games that a run has played: the mean quality rank of outputs within their game by the votes that they
received, and Spearman's correlation of the two, for all outputs, civilians and spies. Quality is the task's own where
it is known (the ledger's); elsewhere a judge ranks the outputs of each game.
"""

from __future__ import annotations

import argparse

from spyrl.arguments import positive
from spyrl.evaluation.commands.common import add_common, add_iterations, span


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("run_folder", metavar="RUN", help="a run's folder")
    add_iterations(parser)
    parser.add_argument(
        "--games", type=positive, metavar="N", help="so many games, drawn at random (default: all; 100 with a judge)"
    )
    judges = parser.add_mutually_exclusive_group()
    judges.add_argument("--judge", metavar="NAME", help="a server's model ranks the outputs, for example gpt-4o")
    judges.add_argument("--judge-local", metavar="PATH", help="a model on this machine does: a folder or Hub id")
    parser.add_argument(
        "--judge-server",
        default="https://api.openai.com/v1",
        metavar="URL",
        help="any OpenAI-compatible server (default: OpenAI's); its key is read from OPENAI_API_KEY",
    )
    add_common(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from pathlib import Path

    from rich.console import Console

    from spyrl.config import config_of
    from spyrl.errors import SpyRLError, UsageError
    from spyrl.evaluation.alignment import Rated, all_games, rated_by_task, sheets
    from spyrl.evaluation.alignment_figure import draw
    from spyrl.evaluation.commands.common import command_line, need, progress
    from spyrl.evaluation.models import Contestant, open_contestant
    from spyrl.evaluation.played import batches, game_files
    from spyrl.evaluation.ranking import rank_games
    from spyrl.evaluation.results import Evaluation, report, slug
    from spyrl.game import generator
    from spyrl.play import KnownQuality
    from spyrl.runs.folder import RunFolder
    from spyrl.tasks import load_task

    need("scipy", "spyrl eval alignment")
    run_folder = RunFolder(Path(options.run_folder).expanduser())
    if not run_folder.config_path.is_file():
        raise UsageError(f"{run_folder.path} is no run's folder: it has no config.yaml, which names the task")
    saved, _ = run_folder.read_config()
    task = load_task(config_of(saved, str(run_folder.config_path)).task)
    judge = options.judge or options.judge_local
    if judge is None and not isinstance(task, KnownQuality):
        raise UsageError(
            f"task {task.name} does not know how good an output is; name a judge: --judge gpt-4o, or --judge-local PATH"
        )
    files = game_files(run_folder.path, span(options.iterations))
    name = f"alignment-{slug(judge)}" if judge else "alignment"
    to = Path(options.to).expanduser() if options.to else run_folder.evaluations / name
    console = Console(highlight=False)
    with console.status("reading the games"):
        games = all_games(batches(files))
    count = options.games or (100 if judge else len(games))
    if count < len(games):
        games = [
            games[index] for index in sorted(generator(options.seed, "alignment").sample(range(len(games)), count))
        ]
    made_with = {"run": str(run_folder.path), "judge": judge, "seed": options.seed}
    notes = [
        "Rank 1 is the best output of its game, ties share a rank; civilians are ranked among themselves in their "
        "column, spies among all. Spearman above 0: worse outputs get more votes. Intervals are 95 %, by bootstrap "
        "over games."
    ]
    if judge is None:
        assert isinstance(task, KnownQuality)
        rated = rated_by_task((row for _, row in games), task)
        notes.append(f"Quality is the task's own, over {len(rated)} games.")
    else:
        server = options.judge_server if options.judge else None
        with console.status("loading") as status:
            policy = open_contestant(
                Contestant(judge, judge, server),
                device=options.device,
                batch_tokens=options.batch_tokens,
                say=status.update,
            )
        with progress(console, f"{judge} ranks") as on_games:
            ranked = rank_games(
                games,
                task,
                policy,
                to / "verdicts.jsonl",
                direct=server is None,
                made_with=made_with,
                seed=options.seed,
                on_games=on_games,
            )
        read = {game: quality for game, quality in ranked.items() if quality is not None}
        rated = [Rated(tuple(row["votes"]), read[game], row["spy"]) for game, row in games if game in read]
        unread, failed = len(ranked) - len(read), len(games) - len(ranked)
        notes.append(
            f"Ranked by {judge}: {len(rated)} games; {unread} of its answers could not be read, {failed} failed."
        )
        if not rated:
            raise SpyRLError(f"{judge} ranked no game: {notes[-1]} See {to / 'verdicts.jsonl'}")
    shown, scores = sheets(rated, known=judge is None)
    title = f"Votes and quality in {run_folder.path.name}"
    evaluation = Evaluation("alignment", title, run_folder.path.name, None, made_with, shown, scores, tuple(notes))
    report(console, evaluation, to, command_line(options.parser, options))
    console.out(f"{to}: {', '.join(draw(rated, to))}")
    return 0
