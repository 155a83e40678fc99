"""From the finished runs of an ablation to means, intervals, tests, and how they stand to the paper's figures."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from spyrl.ablation.running import Ablation, Run, cores, found_runs
from spyrl.ablation.variants import FULL, VARIANTS, Variant, words_of
from spyrl.evaluation.statistics import Direction, Interval, Paired, interval, paired
from spyrl.figures import Points, series
from spyrl.runs.folder import versions, write_atomically

Agreement = Literal["yes", "no", "undecided"]

MEASURES = {
    "quality/greedy": "quality of the most likely output",
    "frozen/detection": "spies found in the starting model's games",
    "detection/accuracy": "ballots that found the spy, while training",
}
"""What variants are compared by: the first of these that there is. All are shares, in [0, 1]."""

_MEASURED = re.compile(r"(start/)?((quality|frozen|strength)/.+)")
_LIVE = "detection/accuracy"


@dataclass(frozen=True)
class Seed:
    """One finished run: its measurements of the starting and of the final model, and the curve between them."""

    seed: int
    start: Mapping[str, float]
    end: Mapping[str, float]
    curve: Points
    """Iterations done, and what variants are compared by."""
    seconds: float
    """Of all iterations."""


@dataclass(frozen=True)
class Compared:
    """A variant over its seeds. What cannot be told, as without its other variant's runs, is ``None``."""

    variant: Variant
    shared: str
    """The variant whose runs these are; its own name but where two variants come to the same configuration."""
    seeds: tuple[Seed, ...]
    start: Mapping[str, Interval]
    end: Mapping[str, Interval]
    change: Paired | None
    """End minus start of what variants are compared by."""
    difference: Paired | None
    """This variant's end minus that of the one it is compared with, over the seeds of both."""
    as_full: Agreement | None
    """Whether the sign of ``difference`` is that of the paper's figures; ``undecided`` with an interval around 0."""
    as_start: Agreement | None
    """The same for ``change``."""

    @property
    def ends(self) -> Direction | None:
        """Whether it ends above or below its start."""
        return self.change.difference.direction if self.change else None


@dataclass(frozen=True)
class Results:
    """All that an ablation's finished runs tell."""

    preset: str
    words: tuple[str, ...]
    measure: str
    """What variants are compared by, a key of `MEASURES`."""
    compared: tuple[Compared, ...]
    unfinished: tuple[str, ...]
    """Runs that were begun and are left out."""


def collect(ablation: Ablation, asked: Sequence[Variant] = ()) -> Results | None:
    """The results of all finished runs in the folder; ``None`` where there is none.

    A variant that shares another one's runs is among them if it was ``asked`` for, or if one is compared with it.
    """
    finished: dict[str, list[tuple[Run, list[dict[str, Any]]]]] = {}
    unfinished = []
    for run in found_runs(ablation):
        if run.finished:
            finished.setdefault(run.variant, []).append((run, run.folder.read_metrics()))
        else:
            unfinished.append(run.name)
    everything = [metrics for runs in finished.values() for _, metrics in runs]
    measure = next((key for key in MEASURES if any(key in metrics[-1] for metrics in everything)), None)
    if measure is None:
        return None
    seeds = {name: tuple(_seed(run.seed, metrics, measure) for run, metrics in runs) for name, runs in finished.items()}
    owners = {variant.name: ablation.shared(variant) for variant in VARIANTS}
    referred = {variant.against for variant in VARIANTS if owners[variant.name] == variant.name in seeds}
    compared = tuple(
        compare(variant, owners[variant.name], seeds, owners.get(variant.against, ""), measure)
        for variant in VARIANTS
        if owners[variant.name] in seeds
        and (owners[variant.name] == variant.name or variant in asked or variant.name in referred)
    )
    return Results(ablation.preset, ablation.words, measure, compared, tuple(unfinished))


def compare(variant: Variant, shared: str, seeds: Mapping[str, Sequence[Seed]], against: str, measure: str) -> Compared:
    """One variant's means over its seeds, and its tests against the runs of ``against``."""
    own = tuple(seeds[shared])
    change = _paired([(seed.end.get(measure), seed.start.get(measure)) for seed in own])
    difference = None
    if against != shared:
        others = {seed.seed: seed for seed in seeds.get(against, ())}
        pairs = [(seed.end.get(measure), others[seed.seed].end.get(measure)) for seed in own if seed.seed in others]
        difference = _paired(pairs)
    paper = variant.paper
    return Compared(
        variant,
        shared,
        own,
        _intervals([seed.start for seed in own]),
        _intervals([seed.end for seed in own]),
        change,
        difference,
        agreement(paper.variant - paper.full, difference) if paper else None,
        agreement(paper.variant - paper.start, change) if paper else None,
    )


def agreement(published: float, found: Paired | None) -> Agreement | None:
    """Whether the difference found has the sign of a ``published`` one; ``None`` where either is not there."""
    if found is None or published == 0:
        return None
    direction = found.difference.direction
    if direction == "undecided":
        return "undecided"
    return "yes" if (direction == "above") == (published > 0) else "no"


def write_json(results: Results, ablation: Ablation, failures: Mapping[str, str]) -> None:
    """Write everything to ``results.json``. Raises `OSError` where that fails."""
    data = {
        "preset": results.preset,
        "words": list(results.words),
        "measure": results.measure,
        "variants": [
            {**asdict(each), "ends": each.ends, "settings": words_of(each.variant, ablation.configs[FULL])}
            for each in results.compared
        ],
        "failed": dict(failures),
        "unfinished": [name for name in results.unfinished if name not in failures],
        "machine": {"system": platform.platform(), "processor": platform.machine(), "cores": cores()},
        "versions": versions(),
    }
    write_atomically(ablation.folder / "results.json", json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def _seed(seed: int, metrics: Sequence[Mapping[str, Any]], measure: str) -> Seed:
    first, last = metrics[0], metrics[-1]
    start: dict[str, float] = {}
    end: dict[str, float] = {}
    for line, kept, prefix in ((first, start, "start/"), (last, end, None)):
        for key, value in line.items():
            match = _MEASURED.fullmatch(key)
            if match and match[1] == prefix and value is not None:
                kept[match[2]] = float(value)
        if line.get(_LIVE) is not None:  # of games that are played before the iteration's update
            kept[_LIVE] = float(line[_LIVE])
    seconds = sum(line.get("seconds/total") or 0 for line in metrics)
    return Seed(seed, start, end, series(metrics, measure), seconds)


def _intervals(rows: Sequence[Mapping[str, float]]) -> dict[str, Interval]:
    """Intervals of each number that all rows have."""
    keys = [key for key in rows[0] if all(key in row for row in rows)]
    return {key: interval([row[key] for row in rows]) for key in keys}


def _paired(pairs: Sequence[tuple[float | None, float | None]]) -> Paired | None:
    known = [(value, other) for value, other in pairs if value is not None and other is not None]
    return paired([value for value, _ in known], [other for _, other in known]) if known else None
