"""What the commands that evaluate share: their common arguments, and a display of how far they are."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from spyrl.errors import UsageError


def add_common(parser: argparse.ArgumentParser) -> None:
    """Where results go, and how models are run."""
    parser.add_argument("--to", metavar="FOLDER", help="where all is kept (default: in the run, or under evaluations/)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one)")
    parser.add_argument(
        "--batch-tokens", type=positive, default=32768, metavar="N", help="tokens generated side by side"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="names all random draws (default 0)")


def command_line(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """The command that these options come from, without those that are at their defaults."""
    words = parser.prog.split()
    for action in parser._actions:
        value = getattr(options, action.dest, None)
        if isinstance(action, argparse._HelpAction) or value == action.default:
            continue
        if not action.option_strings:
            words.append(str(value))
        elif isinstance(value, bool):
            words.append(action.option_strings[0 if value else -1])
        else:
            words += [action.option_strings[0], str(value)]
    return shlex.join(words)


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"should be 1 or more, not {number}")
    return number


def need(package: str, command: str) -> None:
    """Raise `UsageError` where a package of the extra ``evaluation`` is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UsageError(f"{command} needs {package}: pip install 'spyrl[evaluation]'")


@contextmanager
def progress(console: Any, what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on ``console`` for `spyrl.evaluation.answers.answers`' ``on_answers``."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bars:
        line = bars.add_task(what, total=None)

        def on_answers(done: int, total: int) -> None:
            bars.update(line, completed=done, total=total)

        yield on_answers
