"""The bootstrap: how far a number might be from what other prompts, or games, of the kind would have given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyrl.evaluation.statistics import Interval
from spyrl.game import named_seed

RESAMPLES = 2000

Floats = NDArray[np.float64]


def resamples(count: int, seed: int, *names: int | str) -> Floats:
    """How often each of ``count`` prompts (at least 1) is in each resample: shape (`RESAMPLES`, count).

    Drawn from the generator of these names, ``count`` prompts with replacement a resample.
    """
    drawn = np.random.Generator(np.random.PCG64(named_seed(seed, "bootstrap", *names)))
    return drawn.multinomial(count, np.full(count, 1 / count), RESAMPLES).astype(np.float64)


def percentile_interval(value: float, replicates: NDArray[Any], count: int) -> Interval:
    """``value`` with the 2.5th and 97.5th percentile of its ``replicates`` (Efron 1979); none for a single prompt."""
    if count < 2:
        return Interval(value, None, None, count)
    low, high = np.percentile(replicates, [2.5, 97.5])
    return Interval(value, float(low), float(high), count)


def mean_interval(values: Floats, counts: Floats) -> Interval:
    """Mean over prompts of ``values`` (shape (prompts,)) with its bootstrap interval over ``counts``' resamples."""
    return percentile_interval(float(values.mean()), counts @ values / len(values), len(values))


def bootstrapped(
    statistic: Callable[[NDArray[np.intp]], float], clusters: int, *names: int | str, draws: int = RESAMPLES
) -> tuple[float | None, float | None]:
    """The 95 % percentile interval of a statistic when clusters (games, prompts) are drawn with replacement.

    ``statistic`` is given the drawn clusters' numbers in 0..clusters-1. It may answer NaN, and is left out then; there
    is no interval where it does so in more than one of twenty draws, or where there are fewer than two clusters.
    ``names`` name the generator.
    """
    if clusters < 2:
        return None, None
    draw = np.random.default_rng(named_seed("bootstrap", *names))
    found = np.array([statistic(draw.integers(clusters, size=clusters)) for _ in range(draws)])
    known = found[~np.isnan(found)]
    if len(known) < 0.95 * draws:
        return None, None
    low, high = np.quantile(known, (0.025, 0.975))
    return float(low), float(high)
