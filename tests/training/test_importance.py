"""Truncated importance sampling, by hand and through the update."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyrl.policy.models import load_model
from spyrl.policy.settings import ModelSettings
from spyrl.training.learner import Learner, _logprobs, make_learner, update
from spyrl.training.loss import importance_weights, token_losses
from spyrl.training.settings import TrainingSettings
from spyrl.training.trajectory import Trajectory

GIVEN = [
    Trajectory(0, "performing", "civilian", (1, 2, 3), (4, 5, 6, 7), (), (), 1.5),
    Trajectory(0, "performing", "spy", (1, 2, 9), (8, 4), (), (), -0.5),
]


@pytest.mark.parametrize(
    ("trainer", "engine", "cap", "weight"),
    [
        (0.5, 0.5, 2.0, 1.0),
        (0.3, 0.6, 2.0, 0.5),  # sampled too often: counts less
        (0.6, 0.4, 2.0, 1.5),  # sampled too seldom: counts more
        (0.9, 0.1, 2.0, 2.0),  # and at most the cap
        (0.6, 0.4, 1.0, 1.0),
        (0.5, math.nan, 2.0, 1.0),  # the engine did not tell
    ],
)
def test_weights_by_hand(trainer: float, engine: float, cap: float, weight: float) -> None:
    (found,) = importance_weights(torch.tensor([trainer]).log(), torch.tensor([engine]).log(), cap).tolist()
    assert found == pytest.approx(weight)


@given(st.lists(st.tuples(st.floats(-20, 0), st.floats(-20, 0)), min_size=1, max_size=6), st.floats(0.5, 8))
def test_weights_stay_below_the_cap(pairs: list[tuple[float, float]], cap: float) -> None:
    old, sampled = torch.tensor(pairs, dtype=torch.float64).T
    weights = importance_weights(old, sampled, cap)
    assert bool(((weights >= 0) & (weights <= cap)).all())
    assert torch.equal(weights < cap, (old - sampled).exp() < cap)


def test_only_the_policy_gradient_is_weighted() -> None:
    """Loss 3 of the advantage's part halved, KL and entropy as they were."""
    logprobs = torch.tensor([0.5], dtype=torch.float64).log().requires_grad_()
    parts = {"clip": 0.2, "kl": 0.1, "entropy": 0.01}
    reference, advantage, entropy = torch.tensor([0.25]).log(), torch.tensor([-6.0]), torch.tensor([1.0])
    plain = token_losses(logprobs, logprobs.detach(), reference, advantage, entropy, **parts)
    halved = token_losses(
        logprobs, logprobs.detach(), reference, advantage, entropy, **parts, importance=torch.tensor([0.5])
    )
    assert (plain.loss - halved.loss).item() == pytest.approx(3.0)
    assert torch.equal(plain.kl, halved.kl)
    (gradient,) = torch.autograd.grad(plain.loss.sum() - halved.loss.sum(), logprobs)
    assert gradient.item() == pytest.approx(3.0)


def learner_of(folder: Path, **settings: float | None) -> Learner:
    loaded = load_model(ModelSettings(path=str(folder), device="cpu"), trainable=True)
    return make_learner(loaded, TrainingSettings(lr=1e-2, kl=0.0, **settings), 1.0)  # type: ignore[arg-type]


def moved(learner: Learner) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in learner.parameters])


def sampled_at(folder: Path, *gaps: float) -> list[Trajectory]:
    """The trajectories, sampled by an engine whose log-probabilities are those of the learner and these gaps off."""
    found = _logprobs(learner_of(folder), GIVEN)
    logprobs = [found[index] for index in range(len(GIVEN))]
    return [
        dataclasses.replace(each, sampled_logprobs=tuple((own - gap).tolist()))
        for each, own, gap in zip(GIVEN, logprobs, gaps, strict=True)
    ]


def test_an_engine_that_agrees_changes_nothing(tiny_model: Path) -> None:
    given = sampled_at(tiny_model, 0.0, 0.0)
    with_weights, without = learner_of(tiny_model, importance_cap=2.0), learner_of(tiny_model)
    told = update(with_weights, given, iteration=0, seed=0)
    plain = update(without, given, iteration=0, seed=0)
    assert told is not None
    assert plain is not None
    assert told.importance_mean == pytest.approx(1.0, abs=1e-4)
    assert told.importance_capped == 0
    assert told.loss == pytest.approx(plain.loss, abs=1e-5)
    assert plain.importance_mean is plain.importance_capped is None


def test_statistics_and_loss_by_hand(tiny_model: Path) -> None:
    """Four tokens of advantage 1.5 weigh 1/2, two of advantage -0.5 weigh e^1 and are cut to 2."""
    given = sampled_at(tiny_model, math.log(0.5), 1.0)
    told = update(learner_of(tiny_model, importance_cap=2.0), given, iteration=0, seed=0)
    assert told is not None
    assert told.loss == pytest.approx(-(1.5 * 0.5 + -0.5 * 2) / 2, abs=1e-4)
    assert told.importance_mean == pytest.approx((4 * 0.5 + 2 * 2) / 6, abs=1e-4)
    assert told.importance_capped == pytest.approx(2 / 6)
    assert told.gap_mean == pytest.approx((4 * math.log(2) + 2 * 1.0) / 6, abs=1e-4)


def test_of_an_engine_that_tells_nothing_all_weights_are_one(tiny_model: Path) -> None:
    capped, plain = learner_of(tiny_model, importance_cap=2.0), learner_of(tiny_model)
    told = update(capped, GIVEN, iteration=0, seed=0)
    update(plain, GIVEN, iteration=0, seed=0)
    assert told is not None
    assert told.importance_mean == 1
    assert torch.equal(moved(capped), moved(plain))


def test_a_cap_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="importance_cap must be above 0, not 0"):
        TrainingSettings(importance_cap=0.0)
