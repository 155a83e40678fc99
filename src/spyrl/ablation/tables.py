"""An ablation's results as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from spyrl.ablation.results import MEASURES, Compared, Results
from spyrl.ablation.variants import Variant, words_of
from spyrl.config import Config
from spyrl.evaluation.sheets import Sheet
from spyrl.evaluation.statistics import Interval

_UNKNOWN = "–"


def sheets(results: Results) -> list[Sheet]:
    """The tables that say it all: how variants end, against what they are compared with, and against the paper."""
    measure, every = results.measure, results.compared
    found = [
        Sheet(
            f"{MEASURES[measure].capitalize()} ({measure})",
            ("variant", "seeds", "start", "end", "end − start", "ends"),
            tuple(
                (
                    each.variant.name,
                    str(len(each.seeds)),
                    _mean(each.start.get(measure)),
                    _with_half(each.end.get(measure)),
                    _with_half(each.change.difference if each.change else None, "+"),
                    each.ends or _UNKNOWN,
                )
                for each in every
            ),
        ),
        Sheet(
            "Ends, compared by seed",
            ("variant", "minus", "difference", "p", "is"),
            tuple(
                (
                    each.variant.name,
                    each.variant.against,
                    _with_half(each.difference.difference, "+"),
                    _p(each.difference.p),
                    each.difference.difference.direction,
                )
                for each in every
                if each.difference
            ),
        ),
        Sheet(
            "Sampled quality, and spies found in the starting model's games",
            ("variant", "sampled: start", "end", "found: start", "end"),
            tuple(
                (each.variant.name, *_both(each, "quality/sampled"), *_both(each, "frozen/detection")) for each in every
            ),
        ),
        Sheet(
            "The paper's figures, and whether the signs agree",
            ("variant", "start", "full", "this", "− full", "− start", "source"),
            tuple(_published(each) for each in every if each.variant.paper),
        ),
    ]
    return [sheet for sheet in found if sheet.rows]


def notes(results: Results, failures: Mapping[str, str]) -> list[str]:
    """What a reader of the tables must know."""
    found = [
        "± and intervals: 95 %, by Student's t over seeds. Ends, is: above or below where the interval leaves 0 out.",
        "p: two-sided paired t test over seeds, not corrected for the number of variants.",
        "The paper's figures are single runs of other models on other tasks. − full, − start: whether our difference "
        "has the sign of the paper's; undecided where our interval holds 0.",
        "Spies found are of a variant's own games: where the spy's copy or the number of players differs, so does "
        "what there is to find.",
    ]
    found += [
        f"{each.variant.name} has the configuration, and so the runs, of {each.shared}."
        for each in results.compared
        if each.shared != each.variant.name
    ]
    found += [f"Left out: {name} failed ({reason})." for name, reason in failures.items()]
    unfinished = [name for name in results.unfinished if name not in failures]
    if unfinished:
        found.append(f"Left out as not finished: {', '.join(unfinished)}.")
    return found


def show_variants(console: Console, variants: Sequence[Variant], base: Config) -> None:
    """List variants with what they change."""
    group = ""
    for variant in variants:
        if variant.group != group:
            group = variant.group
            console.print(Text(f"\n{group}", style="bold"))
        console.print(Text(f"{variant.name}: {variant.what}"))
        words = words_of(variant, base)
        if words:
            console.print(Text("    " + " ".join(words), style="dim"))


def _published(each: Compared) -> tuple[str, ...]:
    paper = each.variant.paper
    assert paper is not None
    figures = (f"{paper.start:.1f}", f"{paper.full:.1f}", f"{paper.variant:.1f}")
    return (each.variant.name, *figures, each.as_full or _UNKNOWN, each.as_start or _UNKNOWN, paper.source)


def _both(each: Compared, key: str) -> tuple[str, str]:
    return _mean(each.start.get(key)), _with_half(each.end.get(key))


def _mean(found: Interval | None) -> str:
    return _UNKNOWN if found is None else f"{found.mean:.3f}"


def _with_half(found: Interval | None, sign: str = "") -> str:
    if found is None:
        return _UNKNOWN
    mean = format(found.mean, f"{sign}z.3f")
    return mean if found.half is None else f"{mean} ±{found.half:.3f}"


def _p(value: float | None) -> str:
    return _UNKNOWN if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"
