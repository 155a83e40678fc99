"""The bootstrap: how far a mean over prompts might be from what other prompts of the kind would have given."""

from __future__ import annotations

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
