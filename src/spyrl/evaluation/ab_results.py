"""What an A/B comparison found, as tables, scores and words."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spyrl.evaluation.ab import CRITERIA, Judging
from spyrl.evaluation.answers import Answer
from spyrl.evaluation.judge import Judge, tokens_told
from spyrl.evaluation.results import Evaluation, Score
from spyrl.evaluation.sheets import Sheet
from spyrl.evaluation.statistics import Interval
from spyrl.evaluation.win_rates import WinRate, win_rate
from spyrl.game.text import words

_BY_PLACE = 0.95  # of all verdicts for one place: then the place is what is judged
_LEANING = 0.1  # points from one half at which a leaning that is no chance is told
_ONE_WORD = 0.95  # of all verdicts are ties


@dataclass(frozen=True)
class Rates:
    """Win rates by criterion, where there are any: of the model, and of the base against itself."""

    model: dict[str, WinRate | None]
    control: dict[str, WinRate | None] | None


def rates(model: Judging, control: Judging | None, seed: int) -> Rates:
    """The win rates of all verdicts; ``seed`` names the bootstrap's generators."""

    def of(judging: Judging, what: str) -> dict[str, WinRate | None]:
        return {name: win_rate(judged, seed, what, name) for name, judged in judging.judged.items()}

    return Rates(of(model, "model"), of(control, "control") if control else None)


def ab_evaluation(
    found: Rates,
    model: Judging,
    control: Judging | None,
    written: Sequence[tuple[str, Sequence[Answer]]],
    *,
    judge: Judge,
    names: tuple[str, str],
    dataset: str,
    settings: Mapping[str, Any],
) -> Evaluation:
    """The tables, scores and notes; ``names`` are ours and the base, ``written`` all answers by whose they are."""
    ours, base = names
    prompts = len(model.judged["overall"])
    sheets = (
        Sheet(
            f"win rate (%) of {ours} against {base}, {prompts} prompts, both orders, judged by {judge.name}",
            ("criterion", "win rate", "length-controlled", *(("base v. itself",) if found.control else ()), "pairs"),
            tuple(_rate_row(name, found, model) for name in CRITERIA),
        ),
        Sheet(
            f"the judge's habits (% of verdicts on {ours} against {base}; flips: of pairs)",
            ("criterion", "flips", "first place wins", "longer wins", "ties", "unreadable"),
            tuple(_habit_row(name, found.model[name], model) for name in CRITERIA),
        ),
        Sheet(
            "what was written (means)",
            ("who", "words", "tokens", "cut off", "empty", "failed"),
            tuple(_length_row(who, answers) for who, answers in written),
        ),
    )
    said = [*model.answers, *(control.answers if control else ())]
    failed = [answer for answer in said if answer.finish_reason == "failed"]
    notes = [
        *_warnings(found, judge.name, base),
        "Win rate: wins + half the ties over both orders of each pair, with its 95 % bootstrap interval by prompt.",
        "Length-controlled: a logistic fit on the verdicts, read where both texts are equally long.",
    ]
    unanswered = [answer for _, answers in written for answer in answers if answer.finish_reason == "failed"]
    if unanswered:
        notes.append(
            f"{len(unanswered)} answers failed ({unanswered[0].error}). Their prompts are left out; the same command "
            "asks again."
        )
    if failed:
        notes.append(
            f"{len(failed)} of the judge's answers failed ({failed[0].error}). Their pairs are left out; the same "
            "command asks again."
        )
    notes.append(tokens_told(judge, said))
    return Evaluation(
        "ab", f"A/B: {ours} against {base}", ours, base, settings, sheets, _scores(found, dataset), tuple(notes)
    )


def _rate_row(name: str, found: Rates, model: Judging) -> tuple[str, ...]:
    rate = found.model[name]
    row = [name, _rate(rate.raw if rate else None), _rate(rate.length_controlled if rate else None)]
    if found.control:
        control = found.control[name]
        row.append(_rate(control.raw if control else None))
    return (*row, str(sum(each.complete for each in model.judged[name])))


def _habit_row(name: str, rate: WinRate | None, model: Judging) -> tuple[str, ...]:
    verdicts = [verdict for each in model.judged[name] for verdict in (each.ours_first, each.ours_second)]
    unreadable = f"{verdicts.count('unreadable')} of {len(verdicts)}"
    if rate is None:
        return (name, "–", "–", "–", "–", unreadable)
    longer = "–" if rate.longer is None else f"{rate.longer:.0%}"
    return (name, f"{rate.flips:.0%}", _rate(rate.first), longer, f"{rate.ties:.0%}", unreadable)


def _length_row(who: str, answers: Sequence[Answer]) -> tuple[str, ...]:
    there = [answer for answer in answers if answer.finish_reason != "failed"]
    if not there:
        return (who, "–", "–", "–", "–", str(len(answers)))
    return (
        who,
        f"{statistics.fmean(len(words(answer.text)) for answer in there):.0f}",
        f"{statistics.fmean(answer.tokens for answer in there):.0f}",
        f"{statistics.fmean(answer.finish_reason == 'length' for answer in there):.0%}",
        str(sum(not answer.text.strip() for answer in there)),
        str(len(answers) - len(there)),
    )


def _warnings(found: Rates, judge: str, base: str) -> list[str]:
    """What makes the win rates doubtful, in words."""
    known = {name: rate for name, rate in found.model.items() if rate}
    told = []
    for place, end in (("first", 1.0), ("second", 0.0)):
        by_place = [name for name, rate in known.items() if abs(rate.first.mean - end) <= 1 - _BY_PLACE]
        if by_place:
            told.append(
                f"DO NOT USE {', '.join(by_place)}: {judge} judges by place, not by text. At least {_BY_PLACE:.0%} of "
                f"its verdicts are for what stands {place}, and over both orders that comes out as 50 % for any model."
            )
    tied = [name for name, rate in known.items() if rate.ties >= _ONE_WORD]
    if tied:
        told.append(f"DO NOT USE {', '.join(tied)}: {judge} calls nearly everything a tie.")
    leaning = [
        f"{name} ({rate.first.mean:.0%})"
        for name, rate in known.items()
        if _BY_PLACE > rate.first.mean > 1 - _BY_PLACE and _away_from_half(rate.first)
    ]
    if leaning:
        told.append(
            f"Position bias: what stands first does not win 50 % of {judge}'s verdicts on {', '.join(leaning)}. Both "
            "orders cancel it in the mean, but it hides differences and pulls win rates to 50 %."
        )
    off = [
        f"{name} ({control.raw.mean:.0%})"
        for name, control in (found.control or {}).items()
        if control and _excludes_half(control.raw)
    ]
    if off:
        told.append(
            f"{base} against itself should win 50 %, and does not by {', '.join(off)}: take differences of that size "
            "for noise."
        )
    return told


def _away_from_half(share: Interval) -> bool:
    return abs(share.mean - 0.5) >= _LEANING and _excludes_half(share)


def _excludes_half(share: Interval) -> bool:
    return share.low is not None and share.high is not None and not share.low <= 0.5 <= share.high


def _rate(share: Interval | None) -> str:
    if share is None:
        return "–"
    if share.low is None or share.high is None:
        return f"{100 * share.mean:.1f}"
    return f"{100 * share.mean:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def _scores(found: Rates, dataset: str) -> tuple[Score, ...]:
    scores = []
    for name, rate in found.model.items():
        control = found.control[name] if found.control else None
        base = None if control is None else 100 * control.raw.mean
        if rate:
            scores.append(_score(dataset, f"A/B win rate, {name}", rate.raw, base))
        if rate and rate.length_controlled and name == "overall":
            scores.append(_score(dataset, f"length-controlled A/B win rate, {name}", rate.length_controlled, None))
    return tuple(scores)


def _score(dataset: str, metric: str, share: Interval, base: float | None) -> Score:
    low, high = (None if end is None else 100 * end for end in (share.low, share.high))
    return Score(dataset, metric, 100 * share.mean, low, high, share.count, base)
