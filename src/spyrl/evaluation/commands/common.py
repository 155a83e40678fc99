"""What the commands that evaluate share: their common arguments, and a display of how far they are."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from spyrl.arguments import positive
from spyrl.errors import UsageError
from spyrl.policy import Policy, Sampling

if TYPE_CHECKING:
    from spyrl.evaluation.judge import Judge
    from spyrl.evaluation.models import Contestant
    from spyrl.evaluation.prompts import PromptSettings


def add_common(parser: argparse.ArgumentParser) -> None:
    """Where results go, and how models are run."""
    parser.add_argument("--to", metavar="FOLDER", help="where all is kept (default: in the run, or under evaluations/)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one)")
    parser.add_argument(
        "--batch-tokens", type=positive, default=32768, metavar="N", help="tokens generated side by side"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="names all random draws (default 0)")


def add_models(parser: argparse.ArgumentParser, *, against_required: bool = False) -> None:
    """Who is evaluated, and what that is compared with."""
    parser.add_argument("model", metavar="RUN_OR_MODEL", help="a run's folder, a model's folder, or a Hub id")
    parser.add_argument(
        "--against", required=against_required, metavar="BASE", help="what it is compared with, likewise"
    )
    parser.add_argument("--server", metavar="URL", help="OpenAI-compatible server that knows RUN_OR_MODEL by its name")
    parser.add_argument("--against-server", metavar="URL", help="likewise for BASE")


def models_of(options: argparse.Namespace) -> tuple[list[Contestant], list[Policy]]:
    """What `add_models` was told, one or two: seen to be there, and loaded when first asked.

    Raises what `spyrl.evaluation.models.checked_contestant` does.
    """
    from spyrl.evaluation.models import checked_contestant, contestant

    sides = [contestant(options.model, options.server)]
    if options.against:
        sides.append(contestant(options.against, options.against_server))
    return sides, [checked_contestant(who, device=options.device, batch_tokens=options.batch_tokens) for who in sides]


def add_prompts(parser: argparse.ArgumentParser) -> None:
    """Which prompts are answered."""
    parser.add_argument(
        "--prompts", required=True, metavar="SOURCE", help="a file or folder, bundled:NAME, or a Hub id"
    )
    parser.add_argument("--column", metavar="NAME", help="where the prompts are (default: prompt, query or text)")
    parser.add_argument("--subset", metavar="NAME", help="configuration of a Hub data set")
    parser.add_argument("--split", default="test", metavar="NAME", help="split of a Hub data set (default test)")
    parser.add_argument("--limit", type=positive, default=200, metavar="N", help="first rows only (default 200)")
    parser.add_argument("--max-words", type=positive, metavar="N", help="cut longer prompts at a sentence")
    parser.add_argument(
        "--instructions", default="", metavar="TEXT", help="put before each prompt, if it is no request by itself"
    )


def prompts_of(options: argparse.Namespace) -> PromptSettings:
    """What `add_prompts` was told."""
    from spyrl.evaluation.prompts import PromptSettings

    return PromptSettings(
        options.prompts,
        options.column,
        options.subset,
        options.split,
        options.limit,
        options.max_words,
        options.instructions,
    )


def add_sampling(parser: argparse.ArgumentParser, max_tokens: int) -> None:
    """How models answer."""
    parser.add_argument("--temperature", type=float, default=1.0, metavar="T", help="0 is greedy (default 1)")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="default 1")
    parser.add_argument(
        "--max-new-tokens",
        type=positive,
        default=max_tokens,
        metavar="N",
        help=f"longest answer (default {max_tokens})",
    )


def sampling_of(options: argparse.Namespace) -> Sampling:
    """What `add_sampling` was told. Raises `UsageError` for a value out of its range."""
    if options.temperature < 0:
        raise UsageError(f"--temperature should be 0 or more, not {options.temperature:g}")
    if not 0 < options.top_p <= 1:
        raise UsageError(f"--top-p should be above 0 and at most 1, not {options.top_p:g}")
    return Sampling(options.temperature, options.top_p, options.max_new_tokens)


def add_judge(parser: argparse.ArgumentParser) -> None:
    """Who judges."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--judge", default="gpt-4o", metavar="NAME", help="a server's model (default gpt-4o)")
    group.add_argument("--judge-local", metavar="PATH", help="a model on this machine judges: a folder or Hub id")
    parser.add_argument(
        "--judge-server",
        default="https://api.openai.com/v1",
        metavar="URL",
        help="any OpenAI-compatible server (default: OpenAI's); its key is read from OPENAI_API_KEY",
    )
    parser.add_argument(
        "--judge-max-tokens",
        type=positive,
        default=2048,
        metavar="N",
        help="longest answer of a server's judge, its private reasoning included (default 2048)",
    )


def judge_of(options: argparse.Namespace) -> Judge:
    """What `add_judge` was told; see `spyrl.evaluation.judge.open_judge` for what it raises."""
    from spyrl.evaluation.judge import open_judge

    return open_judge(
        options.judge,
        options.judge_server,
        options.judge_local,
        max_tokens=options.judge_max_tokens,
        device=options.device,
        batch_tokens=options.batch_tokens,
    )


def add_iterations(parser: argparse.ArgumentParser) -> None:
    """The argument that chooses among a run's iterations; `span` reads it."""
    parser.add_argument("--iterations", metavar="FROM-TO", help="only games of these iterations, from 0 (default: all)")


def span(text: str | None) -> range | None:
    """``FROM-TO``, both included, or one number. Raises `UsageError` for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
    if last < first:
        raise UsageError(f"--iterations should be FROM-TO, as in 0-49, not {text!r}")
    return range(first, last + 1)


def command_line(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """The command that these options come from, without those that are at their defaults."""
    words = parser.prog.split()
    for action in parser._actions:
        value = getattr(options, action.dest, None)
        if isinstance(action, argparse._HelpAction) or value == action.default:
            continue
        if isinstance(value, bool):
            words.append(action.option_strings[0 if value else -1])
            continue
        for each in value if isinstance(value, list) else [value]:
            words += [*action.option_strings[:1], str(each)]
    return shlex.join(words)


def need(package: str, command: str) -> None:
    """Raise `UsageError` where a package of the extra ``evaluation`` is not installed."""
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
