"""ROUGE of a model's summaries.

On any corpus with references: GovReport, Multi-News, QMSum, VCSum and SAMSum by their layouts, others by two columns'
names. Answers are kept: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse

from spyrl.arguments import positive
from spyrl.errors import UsageError
from spyrl.evaluation.commands import common


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    common.add_models(parser)
    parser.add_argument("--data", required=True, metavar="FILE", help="documents with references: a file, or a Hub id")
    parser.add_argument("--subset", metavar="NAME", help="configuration of a Hub data set")
    parser.add_argument("--split", default="test", metavar="NAME", help="split of a Hub data set (default test)")
    parser.add_argument("--document", metavar="COLUMN", help="column with the document (default: by the layout)")
    parser.add_argument("--reference", metavar="COLUMN", help="column with the reference (default: by the layout)")
    parser.add_argument("--limit", type=positive, metavar="N", help="first N documents only (default: all)")
    parser.add_argument("--instructions", metavar="TEXT", help="what is asked (default: the summarization task's)")
    parser.add_argument(
        "--max-new-tokens", type=positive, default=1024, metavar="N", help="longest answer (default 1024)"
    )
    parser.add_argument(
        "--max-prompt-tokens",
        type=positive,
        metavar="N",
        help="longest prompt; longer documents are cut at a sentence (default: what a local model's context leaves)",
    )
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="default 0, greedy")
    common.add_common(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from dataclasses import asdict
    from pathlib import Path

    from rich.console import Console

    from spyrl.errors import SpyRLError
    from spyrl.evaluation.answers import Question, answers
    from spyrl.evaluation.models import context_of, labels
    from spyrl.evaluation.results import folder_for, report, slug, write_rows
    from spyrl.evaluation.rouge import overlaps, rouge_evaluation
    from spyrl.evaluation.rows import rows_of
    from spyrl.evaluation.summaries import fitted, samples_of
    from spyrl.policy import Request, Sampling

    for package in ("scipy", "rouge_score"):
        common.need(package, "spyrl eval rouge")
    if options.temperature < 0:
        raise UsageError(f"--temperature should be 0 or more, not {options.temperature:g}")
    sampling = Sampling(options.temperature, 1.0, options.max_new_tokens)
    console = Console(highlight=False)
    with console.status("reading documents"):
        rows = rows_of(options.data, subset=options.subset, split=options.split, limit=options.limit)
        samples = samples_of(rows, document=options.document, reference=options.reference, limit=options.limit)
    sides, policies = common.models_of(options)
    dataset = Path(options.data).name.split(".")[0]
    folder = folder_for(sides[0], f"rouge-{dataset}", options.to)
    kept = [folder / f"answers{suffix}.jsonl" for suffix in ["", *(f"-{slug(who.name)}" for who in sides[1:])]]
    for policy, path in zip(policies, kept, strict=True):  # before any work: was what is kept made like this?
        answers(policy, (), path, sampling=sampling, seed=options.seed)

    found, cut = [], []
    for who, path in zip(sides, kept, strict=True):
        policy = policies.pop(0)  # and its memory is free for the next
        with console.status(f"{who.name}: fitting documents"):
            context = context_of(policy)
            limits = [options.max_prompt_tokens, context and context - options.max_new_tokens]
            limit = min((each for each in limits if each is not None), default=None)
            prompts = [
                fitted(
                    sample,
                    options.instructions,
                    limit,
                    lambda messages: policy.prompt_tokens(Request(messages, (0,), sampling)),  # noqa: B023
                )
                for sample in samples
            ]
        cut.append(sum(was_cut for _, was_cut in prompts))
        questions = [Question(sample.id, messages) for sample, (messages, _) in zip(samples, prompts, strict=True)]
        with common.progress(console, f"{who.name} summarizes") as on_answers:
            given = answers(policy, questions, path, sampling=sampling, seed=options.seed, on_answers=on_answers)
        with console.status("scoring"):
            found.append(overlaps(samples, [row[0] for row in given]))
        if not any(found[-1]):
            raise SpyRLError(f"no document was summarized by {who.name}: {given[0][0].error}")
        write_rows(
            path.with_name(path.name.replace("answers", "scores", 1)), [asdict(each) for each in found[-1] if each]
        )
    evaluation = rouge_evaluation(
        labels(sides),
        dataset,
        found,
        cut=cut,
        settings={
            "data": options.data,
            "subset": options.subset,
            "split": options.split,
            "document": options.document,
            "reference": options.reference,
            "limit": options.limit,
            "instructions": options.instructions,
            "max_prompt_tokens": options.max_prompt_tokens,
            "sampling": asdict(sampling),
            "seed": options.seed,
        },
    )
    report(console, evaluation, folder, common.command_line(options.parser, options))
    return 0
