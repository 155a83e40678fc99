"""Let a judge compare what two models write.

Both models answer the same prompts; a judge compares each pair by novelty, emotion, coherence, consistency and overall,
in both orders, ties allowed. Answers and verdicts are kept: the same command goes on where it was stopped, and with
another --judge it has the same texts judged again.
"""

from __future__ import annotations

import argparse

from spyrl.evaluation.commands import common


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    common.add_models(parser, against_required=True)
    common.add_prompts(parser)
    common.add_sampling(parser, 4096)
    common.add_judge(parser)
    parser.add_argument(
        "--control",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="judge the base against itself, too: half as much writing and as much judging again (default: yes)",
    )
    common.add_common(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    from dataclasses import asdict

    from rich.console import Console

    from spyrl.errors import SpyRLError
    from spyrl.evaluation.ab import judge_pairs, pairs_of
    from spyrl.evaluation.ab_figure import draw_win_rates
    from spyrl.evaluation.ab_results import ab_evaluation, rates
    from spyrl.evaluation.answers import Question, answers
    from spyrl.evaluation.prompts import messages, read_prompts
    from spyrl.evaluation.results import folder_for, report, slug
    from spyrl.game import named_seed

    common.need("scipy", "spyrl eval ab")
    sampling, settings = common.sampling_of(options), common.prompts_of(options)
    prompts = read_prompts(settings)
    sides, policies = common.models_of(options)
    judge = common.judge_of(options)
    ours, base = (who.name for who in sides)
    folder = folder_for(sides[0], f"ab-{settings.name}-{base}", options.to)
    judged_in = folder / slug(judge.name)
    paths = folder / "answers-model.jsonl", folder / "answers-base.jsonl"
    # Seeds of their own, so that a model compared with itself writes twice.
    seeds = [named_seed(options.seed, side) for side in ("model", "base")]
    for side, path in enumerate(paths):  # before any work: was what is kept made like this?
        answers(policies[side], (), path, sampling=sampling, seed=seeds[side])

    console = Console(highlight=False)
    questions = [Question(each.id, messages(each, settings.instructions)) for each in prompts]
    written = []
    for name, path, seed, samples in zip((ours, base), paths, seeds, (1, 2 if options.control else 1), strict=True):
        with common.progress(console, f"{name} writes") as on_answers:
            written.append(
                answers(
                    policies.pop(0),  # and its memory is free for the next
                    questions,
                    path,
                    sampling=sampling,
                    samples=samples,
                    seed=seed,
                    on_answers=on_answers,
                )
            )
    mine, theirs, again = [row[0] for row in written[0]], [row[0] for row in written[1]], []
    if options.control:
        again = [row[1] for row in written[1]]
    pairs = pairs_of("model", prompts, settings.instructions, mine, theirs)
    if not pairs:
        error = next(answer.error for answer in (*mine, *theirs) if answer.error)
        raise SpyRLError(f"no prompt was answered by both models: {error}; mend that and run the command again")
    with common.progress(console, f"{judge.name} judges {ours}") as on_answers:
        model = judge_pairs(judge, pairs, judged_in / "verdicts.jsonl", options.seed, on_answers)
    control = None
    if again:
        pairs = pairs_of("control", prompts, settings.instructions, again, theirs)
        with common.progress(console, f"{judge.name} judges {base}") as on_answers:
            control = judge_pairs(judge, pairs, judged_in / "verdicts.jsonl", options.seed, on_answers)
    found = rates(model, control, options.seed)
    if not any(found.model.values()):
        error = next((answer.error for answer in model.answers if answer.error), "no pair of them could be read")
        raise SpyRLError(f"{judge.name} gave no verdicts: {error}; what it said is in {judged_in / 'verdicts.jsonl'}")
    evaluation = ab_evaluation(
        found,
        model,
        control,
        [(ours, mine), (f"{base} (base)", theirs), *([("base, again", again)] if again else [])],
        judge=judge,
        names=(ours, base),
        dataset=settings.name,
        settings={
            "prompts": asdict(settings),
            "sampling": asdict(sampling),
            "judge": judge.name,
            "judge_server": None if judge.direct else options.judge_server,
            "seed": options.seed,
        },
    )
    report(console, evaluation, judged_in, common.command_line(options.parser, options))
    drawn = draw_win_rates(found, f"{ours} against {base}, judged by {judge.name}", judged_in)
    console.out(f"{judged_in}: {', '.join(drawn)}, verdicts.jsonl; what was written is in {folder}")
    return 0
