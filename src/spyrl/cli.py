"""The command line: parses, calls, prints."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Waiting threads must not spin: generation on shared cores slows down tenfold. Read when torch starts.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import spyrl
from spyrl.arguments import split_words
from spyrl.errors import SpyRLError, UsageError
from spyrl.policy.quiet import quiet_libraries
from spyrl.training.processes import count, from_main, is_main, rank, together

if TYPE_CHECKING:
    from spyrl.config import Config
    from spyrl.runs.folder import RunFolder

EVALUATIONS: tuple[str, ...] = ("ab", "writingbench", "rouge", "math", "game", "alignment")
"""The commands after ``spyrl eval``."""
MORE_COMMANDS: tuple[str, ...] = ("audit", "export")

_EVALUATION = "spyrl.evaluation.commands"

_SETTINGS = "settings as key=value, for example training.iterations=10 (all of them: spyrl options)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0, 1 for a failure while working, 2 for bad input."""
    parser = _parser()
    options, more = parser.parse_known_args(arguments)
    if more and ("words" not in options or any(word.startswith("-") for word in more)):
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if more:  # settings that follow an option, which argparse leaves over
        options.words += more
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except SpyRLError as error:
        print(f"{_who()}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        kept = options.run.__module__.startswith("spyrl.evaluation")
        how = "the same command goes on" if kept else "a run goes on from its newest checkpoint with --resume"
        print(f"{_who()}: interrupted; {how}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # nobody reads on, as in ``spyrl options | head``; what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        hint = "; the run goes on with --resume" if options.run is _train else ""
        print(f"{_who()}: {where}{error.strerror or error}{hint}", file=sys.stderr)
        return 1
    return code


def _who() -> str:
    """Who speaks: of many processes, all but the main one give their number."""
    return f"spyrl, process {rank()}" if rank() else "spyrl"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spyrl", description="Self-play reinforcement learning by a game of Who is the Spy?"
    )
    parser.add_argument("--version", action="version", version=f"spyrl {spyrl.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    train = commands.add_parser("train", help="train a model", description="Train a model by playing the game.")
    _add_settings(train)
    train.add_argument("--resume", action="store_true", help="go on with a run from its newest checkpoint")
    train.set_defaults(run=_train)

    play = commands.add_parser(
        "play", help="play one game and show it", description="Play one game with any policy and show it readably."
    )
    _add_settings(play)
    play.add_argument("--game", type=int, default=0, metavar="N", help="which deal of the seed to play (default 0)")
    play.add_argument("--prompts", action="store_true", help="show what players and detectors were asked, too")
    play.set_defaults(run=_play)

    ledger = commands.add_parser(
        "ledger", help="make the ledger's starting models anew", description="The ledger: a world to learn in minutes."
    )
    actions = ledger.add_subparsers(metavar="ACTION", required=True)
    what = "make a starting model: the skill of restating ledgers, then bad habits; about 5 minutes"
    start = actions.add_parser("warm-start", help=what, description=what.capitalize() + ".")
    start.add_argument("--seed", type=int, default=0, metavar="N", help="0, 1 and 2 are those that come along")
    start.add_argument("--to", default=None, metavar="FOLDER", help="where to write it (default ledger-N)")
    start.set_defaults(run=_warm_start)

    what = "run the paper's ablations: seeds x variants trainings, tables and curves"
    ablate = commands.add_parser("ablate", help=what, description=what.capitalize() + " (default preset: ledger).")
    _add_settings(ablate)
    ablate.add_argument("--seeds", type=int, default=5, metavar="N", help="trainings a variant (default 5)")
    ablate.add_argument("--only", metavar="NAME[,NAME...]", help="these variants only (default: all of --list)")
    ablate.add_argument("--jobs", type=int, metavar="N", help="trainings at a time (default: one a core)")
    ablate.add_argument("--folder", metavar="FOLDER", help="where all is kept (default ablations/PRESET)")
    ablate.add_argument("--list", action="store_true", help="list the variants and what they change; run nothing")
    ablate.set_defaults(run=_ablate)

    what = "evaluate a trained model: against its base, on benchmarks, in the game"
    evaluate = commands.add_parser("eval", help=what, description=what.capitalize() + ".")
    kinds = evaluate.add_subparsers(metavar="WHAT", required=True)
    for name in EVALUATIONS:
        _add_command(kinds, name, f"{_EVALUATION}.{name}")
    for name in MORE_COMMANDS:
        _add_command(commands, name, f"{_EVALUATION}.{name}")
    _add_command(commands, "plan", "spyrl.planning.command")

    what = "list the recipes, or print one with the source of every number"
    presets = commands.add_parser("presets", help=what, description=what.capitalize() + ".")
    presets.add_argument("name", nargs="?", metavar="PRESET")
    presets.set_defaults(run=_presets)

    what = "list every setting with its default"
    options = commands.add_parser("options", help=what, description=what.capitalize() + ".")
    options.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="only settings that begin so")
    options.set_defaults(run=_options)
    return parser


def _add_command(parsers: Any, name: str, module: str) -> None:
    """A command that has a file of its own: its first line says what it does."""
    command = import_module(module)
    what = (command.__doc__ or "").splitlines()[0].rstrip(".")
    parser = parsers.add_parser(
        name, help=what if what[:2].isupper() else what[0].lower() + what[1:], description=command.__doc__
    )
    command.add(parser)
    parser.set_defaults(run=command.run, parser=parser)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="PRESET|FILE.yaml|key=value",
        help=f"a preset or a YAML file first, then {_SETTINGS}",
    )


# What may change when a run goes on; anything else would make another run of it.
_CHANGEABLE = (
    "training.iterations",
    "training.batch_tokens",
    "training.sharding",
    "training.reference",
    "training.gradient_checkpointing",
    "run.",
    "model.device",
    "model.batch_tokens",
    "model.lora.merge",
)


def _resumed(source: str | None, words: Sequence[str]) -> tuple[Config, RunFolder, str]:
    """The configuration of the run to go on with, and its folder."""
    from spyrl.config import Config, config_of, default_preset, file_layer
    from spyrl.runs.folder import find_run
    from spyrl.runs.settings import RunSettings
    from spyrl.settings import build, check_keys, flat, merged, plain, read_overrides

    changes = read_overrides(words)
    check_keys(Config, changes, "command line")
    source = source or default_preset(words)
    layer = file_layer(source) or {}
    named = build(RunSettings, merged(layer.get("run") or {}, changes.get("run") or {}), "run")
    run = find_run(named.name, named.folder, source)
    saved, preset = run.read_config()
    config = config_of(merged(saved, changes), "settings")
    before, after = flat(plain(config_of(saved, str(run.config_path)))), flat(plain(config))
    for key in {**after, **before}:
        was, wanted = before.get(key), after.get(key)
        if was != wanted and (key == "run.seed" or not key.startswith(_CHANGEABLE)):
            raise UsageError(
                f"{key} is {was!r} in {run.config_path} and {wanted!r} on the command line; a run goes on as it began: "
                "leave the setting out, or start another run"
            )
    return config, run, preset


def _chosen_run(options: argparse.Namespace) -> tuple[Config, RunFolder, str]:
    """The configuration, the folder of the run, new or to go on with, and its preset."""
    from spyrl.config import default_preset, load_config
    from spyrl.runs.folder import new_run

    source, words = split_words(options.words)
    if options.resume:
        return _resumed(source, words)
    preset = source or default_preset(words)
    config = load_config(preset, words)
    return config, new_run(config.run, preset), preset


def _train(options: argparse.Namespace) -> int:
    with together():
        config, run, preset = from_main(lambda: _chosen_run(options))

        from rich.console import Console

        from spyrl.display import RunDisplay, show_summary
        from spyrl.figures import curve_figure, has_curve
        from spyrl.training.train import train

        quiet_libraries()
        console = Console(quiet=not is_main())
        first = from_main(lambda: next(iter(run.read_metrics()), None))
        begun = f"[bold]SpyRL[/bold] {spyrl.__version__} · {preset} → {run.path}"
        console.print(f"{begun} · {count()} processes" if count() > 1 else begun, highlight=False)
        with RunDisplay(console, config, first) as display:
            result = train(config, run, display, preset=preset, resume=options.resume)
    if not is_main():
        return 0
    metrics = result.run.read_metrics()
    if not result.finished:
        console.print(f"Stopped after {result.state.iteration} iterations. To go on:", highlight=False)
        folder = "" if config.run.folder == "runs" else f" run.folder={config.run.folder}"
        console.print(f"  spyrl train --resume run.name={run.path.name}{folder}", highlight=False, soft_wrap=True)
        return 0
    if has_curve(metrics):
        curve_figure(metrics, run.curve)
    show_summary(console, run, config, metrics, preset)
    return 0


def _play(options: argparse.Namespace) -> int:
    from spyrl.config import load_config

    source, words = split_words(options.words)
    config = load_config(source, words)
    if options.game < 0:
        raise UsageError(f"--game should be 0 or more, not {options.game}")

    from rich.console import Console

    from spyrl.display import show_game, show_prompts
    from spyrl.play import play_one
    from spyrl.tasks import load_task

    quiet_libraries()
    console = Console()
    with console.status("loading") as status:
        task = load_task(config.task)
        settled = play_one(config, task, options.game, say=status.update)
    show_game(console, settled.game, getattr(task, "product", "output"))
    if options.prompts:
        show_prompts(console, settled)
    return 0


def _warm_start(options: argparse.Namespace) -> int:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress

    from spyrl.ledger.measure import same_weights, start_quality
    from spyrl.ledger.warm_start import warm_start
    from spyrl.policy.models import BUNDLED, resolve

    quiet_libraries()
    console = Console()
    name = f"ledger-{options.seed}"
    folder = Path(options.to or name)
    with Progress(console=console) as progress:
        line = progress.add_task("learning", total=None)

        def on_step(step: int, steps: int, losses: dict[str, float]) -> None:
            progress.update(line, completed=step, total=steps)
            if step % 100 == 0 or step == steps:
                told = " · ".join(f"{name} {value:.3f}" for name, value in losses.items())
                progress.console.print(f"{step:>5}/{steps}  {told}", highlight=False)

        warm_start(folder, options.seed, on_step=on_step)
    found = start_quality(folder)
    console.print(
        f"{folder}: quality on unseen documents {found['quality/greedy']:.3f} (most likely output), "
        f"{found['quality/sampled']:.3f} (sampled); its detectors find {found['frozen/detection']:.0%} of its spies",
        highlight=False,
    )
    if name in BUNDLED:
        same = "the same weights as" if same_weights(folder, resolve(f"bundled:{name}")) else "not to the bit"
        console.print(f"{same} bundled:{name}", highlight=False)
    return 0


def _ablate(options: argparse.Namespace) -> int:
    from rich.console import Console

    from spyrl.ablation import running as ablating
    from spyrl.ablation.report import report
    from spyrl.ablation.tables import show_variants
    from spyrl.ablation.variants import chosen
    from spyrl.config import DEFAULT_PRESET, load_config
    from spyrl.evaluation.commands.common import need

    source, words = split_words(options.words)
    preset, variants, jobs = source or DEFAULT_PRESET, chosen(options.only), options.jobs or ablating.cores()
    console = Console(highlight=False)
    if options.list:
        show_variants(console, variants, load_config(preset, words))
        return 0
    if options.seeds < 1 or jobs < 1:
        raise UsageError("--seeds and --jobs should be 1 or more")
    need("scipy", "spyrl ablate")
    ablation = ablating.open_ablation(preset, words, options.folder)
    runs = ablating.planned(ablation, variants, options.seeds)
    console.print(f"[bold]SpyRL[/bold] {spyrl.__version__} · {len(runs)} runs of {preset} → {ablation.folder}")
    with console.status("starting") as status:
        ended = ablating.run_all(ablation, runs, jobs, say=console.out, status=status.update)
    if ended.interrupted:
        console.print("Interrupted. The same command goes on where the runs were.")
        return 130
    report(console, ablation, variants, ended.failures)
    return 1 if ended.failures else 0


def _presets(options: argparse.Namespace) -> int:
    from spyrl.config import preset_names, preset_text

    if options.name:
        print(preset_text(options.name), end="")
        return 0
    for name in preset_names():
        summary = preset_text(name).splitlines()[0].removeprefix("#").strip()
        print(f"{name:<24}{summary}")
    print("\nOne of them whole, with its sources: spyrl presets NAME")
    return 0


def _options(options: argparse.Namespace) -> int:
    from spyrl.config import Config
    from spyrl.settings import options as settings

    found = [row for row in settings(Config) if row[0].startswith(options.prefix)]
    if not found:
        raise UsageError(f"no setting begins with {options.prefix!r}")
    for key, default, description in found:
        print(f"{key} = {default}")
        for line in textwrap.wrap(description, 76):
            print(f"    {line}")
    return 0
