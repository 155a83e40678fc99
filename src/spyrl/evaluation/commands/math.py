"""Accuracy on mathematics benchmarks.

GSM8K, MATH-500, AIME 24, AIME 25, Minerva, MMLU-Pro and GPQA-Diamond, from the Hub or from a file in their layouts.
Final answers are compared as mathematics. Answers are kept: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse

from spyrl.arguments import positive
from spyrl.errors import UsageError
from spyrl.evaluation.commands import common


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    common.add_models(parser)
    parser.add_argument(
        "--benchmark",
        required=True,
        action="append",
        metavar="NAME[,NAME...]",
        help="gsm8k, math500, aime24, aime25, minerva, mmlu-pro, gpqa-diamond, or all",
    )
    parser.add_argument(
        "--data", metavar="FILE", help="the benchmark's rows: a file, or another Hub id (default: its own)"
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="first N questions only (default: all)")
    parser.add_argument("--samples", type=positive, default=1, metavar="K", help="answers a question (default 1)")
    parser.add_argument(
        "--max-new-tokens", type=positive, default=4096, metavar="N", help="longest answer (default 4096)"
    )
    parser.add_argument(
        "--temperature", type=float, metavar="T", help="0 is greedy (default: 0 for one answer a question, else 0.7)"
    )
    common.add_common(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from dataclasses import asdict

    from rich.console import Console

    from spyrl.errors import SpyRLError
    from spyrl.evaluation.accuracy import accuracy_evaluation, check_all, verdict_rows
    from spyrl.evaluation.answers import answers
    from spyrl.evaluation.benchmarks import chosen_benchmarks, items_of, question_of
    from spyrl.evaluation.models import labels
    from spyrl.evaluation.results import folder_for, report, slug, write_rows
    from spyrl.policy import Sampling

    for package in ("scipy", "math_verify"):
        common.need(package, "spyrl eval math")
    sampling = Sampling(_temperature(options), 1.0, options.max_new_tokens)
    benchmarks = chosen_benchmarks(options.benchmark)
    if options.data and len(benchmarks) > 1:
        raise UsageError(f"--data {options.data} holds one benchmark; name one --benchmark, not {len(benchmarks)}")
    console = Console(highlight=False)
    with console.status("reading questions"):
        items = [items_of(benchmark, options.data, options.limit, options.seed) for benchmark in benchmarks]
    sides, policies = common.models_of(options)
    whole = len(benchmarks) == 7
    folder = folder_for(
        sides[0], "-".join(["math", *([] if whole else [each.name for each in benchmarks])]), options.to
    )
    kept = [
        [folder / f"answers-{benchmark.name}{suffix}.jsonl" for benchmark in benchmarks]
        for suffix in ["", *(f"-{slug(who.name)}" for who in sides[1:])]
    ]
    for policy, row in zip(policies, kept, strict=True):
        for path in row:  # before any work: was what is kept made like this?
            answers(policy, (), path, sampling=sampling, seed=options.seed)

    checked = []
    for who, row in zip(sides, kept, strict=True):
        policy = policies.pop(0)  # and its memory is free for the next
        given = []
        for benchmark, questions, path in zip(benchmarks, items, row, strict=True):
            with common.progress(console, f"{who.name}: {benchmark.title}") as on_answers:
                given.append(
                    answers(
                        policy,
                        [question_of(item) for item in questions],
                        path,
                        sampling=sampling,
                        samples=options.samples,
                        seed=options.seed,
                        on_answers=on_answers,
                    )
                )
        with console.status(f"checking {who.name}"):
            checked.append([check_all(*each) for each in zip(benchmarks, items, given, strict=True)])
        for one in checked[-1]:
            if not one.shares:
                error = one.answers[0][0].error
                raise SpyRLError(f"no question of {one.benchmark.title} was answered by {who.name}: {error}")
    for one_model, row in zip(checked, kept, strict=True):
        for one, questions, path in zip(one_model, items, row, strict=True):
            write_rows(path.with_name(path.name.replace("answers", "verdicts", 1)), verdict_rows(questions, one))
    evaluation = accuracy_evaluation(
        labels(sides),
        checked,
        samples=options.samples,
        settings={
            "benchmarks": [asdict(benchmark) for benchmark in benchmarks],
            "data": options.data,
            "limit": options.limit,
            "samples": options.samples,
            "sampling": asdict(sampling),
            "seed": options.seed,
        },
    )
    report(console, evaluation, folder, common.command_line(options.parser, options))
    return 0


def _temperature(options: argparse.Namespace) -> float:
    """The temperature that is given, or the default. Raises `UsageError` for one that makes no sense."""
    if options.temperature is None:
        return 0.0 if options.samples == 1 else 0.7
    temperature: float = options.temperature
    if temperature < 0:
        raise UsageError(f"--temperature should be 0 or more, not {temperature:g}")
    if temperature == 0 and options.samples > 1:
        raise UsageError(
            f"--samples {options.samples} at --temperature 0 would be {options.samples} times the same answer"
        )
    return temperature
