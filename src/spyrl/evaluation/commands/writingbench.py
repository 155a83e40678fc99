"""Score what a model writes by WritingBench's criteria.

Every query has criteria of its own; a judge scores the answer by each from 1 to 10. --data is a file of queries as
WritingBench publishes it (JSON lines with query and checklist). Answers and scores are kept: the same command goes on
where it was stopped, and with another --judge it has the same texts scored again.
"""

from __future__ import annotations

import argparse

from spyrl.arguments import positive
from spyrl.evaluation.commands import common


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    common.add_models(parser)
    parser.add_argument("--data", required=True, metavar="FILE", help="WritingBench's queries, one JSON object a line")
    parser.add_argument("--limit", type=positive, metavar="N", help="first queries only (default: all)")
    common.add_sampling(parser, 4096)
    common.add_judge(parser)
    common.add_common(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from dataclasses import asdict
    from pathlib import Path

    from rich.console import Console

    from spyrl.errors import SpyRLError
    from spyrl.evaluation.answers import Question, answers
    from spyrl.evaluation.results import folder_for, report, slug
    from spyrl.evaluation.writingbench import read_queries, score_answers
    from spyrl.evaluation.writingbench_results import Written, writingbench_evaluation
    from spyrl.game import named_seed

    common.need("scipy", "spyrl eval writingbench")
    sampling = common.sampling_of(options)
    data = Path(options.data).expanduser()
    queries = read_queries(data, options.limit)
    contestants, policies = common.models_of(options)
    sides = list(zip(("model", "base"), contestants, strict=False))
    judge = common.judge_of(options)
    folder = folder_for(
        sides[0][1], "-".join(["writingbench", data.stem, *(who.name for _, who in sides[1:])]), options.to
    )
    judged_in = folder / slug(judge.name)
    seeds = [named_seed(options.seed, side) for side, _ in sides]
    for number, (side, _) in enumerate(sides):  # before any work: was what is kept made like this?
        answers(policies[number], (), folder / f"answers-{side}.jsonl", sampling=sampling, seed=seeds[number])

    console = Console(highlight=False)
    questions = [Question(query.id, ({"role": "user", "content": query.text},)) for query in queries]
    texts = []
    for (side, who), seed in zip(sides, seeds, strict=True):
        with common.progress(console, f"{who.name} writes") as on_answers:
            found = answers(
                policies.pop(0),  # and its memory is free for the next
                questions,
                folder / f"answers-{side}.jsonl",
                sampling=sampling,
                seed=seed,
                on_answers=on_answers,
            )
        texts.append([answer for (answer,) in found])
    written = []
    for (side, who), text in zip(sides, texts, strict=True):
        with common.progress(console, f"{judge.name} scores {who.name}") as on_answers:
            scored, said = score_answers(
                judge, queries, text, side, judged_in / "scores.jsonl", options.seed, on_answers
            )
        if not any(each.mean for each in scored):
            error = next((each.error for each in (*text, *said) if each.error), "none of its scores could be read")
            raise SpyRLError(f"{judge.name} gave {who.name} no score: {error}")
        written.append(Written(who.name, text, scored, said))
    evaluation = writingbench_evaluation(
        queries,
        written[0],
        written[1] if len(written) > 1 else None,
        judge=judge,
        dataset=data.stem,
        settings={
            "data": options.data,
            "limit": options.limit,
            "sampling": asdict(sampling),
            "judge": judge.name,
            "judge_server": None if judge.direct else options.judge_server,
            "seed": options.seed,
        },
    )
    report(console, evaluation, judged_in, common.command_line(options.parser, options))
    return 0
