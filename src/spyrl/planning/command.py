"""Plan a run: memory, work, hours and cost, before any weight is loaded.

The model's shape is read from its config.json, and the run's games are dealt and asked as in training, with answers of
an assumed length. Told are the memory of each device in each phase and what makes it fit, tokens and operations of an
iteration with and without sharing prompts' beginnings, hours, and with --price the cost. Without --gpu a small model
is planned for this processor, another for the first of an RTX 4090 and 1 to 8 H100 that it fits on.
"""

from __future__ import annotations

import argparse

from spyrl.arguments import positive, split_words


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="PRESET|FILE.yaml|key=value",
        help="a preset or a YAML file first, then settings as key=value",
    )
    parser.add_argument("--gpu", metavar="NAME", help="what it is to run on: cpu, RTX 4090, A100-80, H100, ...")
    parser.add_argument("--gpus", type=positive, metavar="N", help="how many of them (default 1)")
    parser.add_argument("--price", type=float, metavar="PER_HOUR", help="of one of them, for the cost of the run")
    parser.add_argument("--output", type=positive, metavar="TOKENS", help="a player's output (default at most 1024)")
    parser.add_argument("--ballot", type=positive, metavar="TOKENS", help="a reasoned ballot (default at most 1024)")
    parser.add_argument("--measure", action="store_true", help="read the corpus's documents, though from the Hub")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a page")


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    import json
    from contextlib import nullcontext

    from rich.console import Console

    from spyrl.config import default_preset, load_config
    from spyrl.errors import UsageError
    from spyrl.planning.page import as_values, show
    from spyrl.planning.plan import make_plan, remedies
    from spyrl.policy.quiet import quiet_libraries

    source, words = split_words(options.words)
    if options.price is not None and options.price < 0:
        raise UsageError(f"--price should be 0 or more, not {options.price:g}")
    config = load_config(source, words)
    preset = source or default_preset(words)
    quiet_libraries()
    console = Console(highlight=False)

    with nullcontext() if options.json else console.status("planning"):
        plan = make_plan(
            config, options.gpu, options.gpus, output=options.output, ballot=options.ballot, measure=options.measure
        )
        fixes = [] if plan.memory.fits else remedies(plan, measure=options.measure)
    if options.json:
        print(json.dumps(as_values(preset, plan, fixes, options.price), indent=1, ensure_ascii=False))
    else:
        show(console, preset, plan, fixes, options.price)
    return 0
