"""The objective of a token, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyrl.training.loss import k3, token_losses

LOGPROBS = st.lists(st.floats(-30, 0), min_size=1, max_size=8)


def losses(
    ratios: list[float],
    advantages: list[float],
    *,
    reference: list[float] | None = None,
    entropies: list[float] | None = None,
    clip: float = 0.2,
    kl: float = 0.0,
    entropy: float = 0.0,
):
    """Losses of tokens with these probability ratios (old probability 1/2), and the log-probabilities they are of."""
    logprobs = (torch.tensor(ratios, dtype=torch.float64) * 0.5).log().requires_grad_()
    old = torch.full_like(logprobs, 0.5).log()
    return logprobs, token_losses(
        logprobs,
        old,
        None if reference is None else torch.tensor(reference, dtype=torch.float64).log(),
        torch.tensor(advantages, dtype=torch.float64),
        torch.tensor(entropies or [0.0] * len(ratios), dtype=torch.float64),
        clip=clip,
        kl=kl,
        entropy=entropy,
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipped"),
    [
        # inside the clip range: -r·A, and its derivative in log π is -r·A as well
        (1.0, 2.0, -2.0, -2.0, 0),
        (1.0, -2.0, 2.0, 2.0, 0),
        (1.1, 2.0, -2.2, -2.2, 0),
        (0.9, -2.0, 1.8, 1.8, 0),
        # moved far enough in the direction of the advantage: no gradient is left
        (1.5, 2.0, -2.4, 0.0, 1),
        (0.5, -2.0, 1.6, 0.0, 1),
        # moved the other way: the clip does not help, the way back is free
        (0.5, 2.0, -1.0, -1.0, 0),
        (1.5, -2.0, 3.0, 3.0, 0),
        # nothing to learn
        (1.5, 0.0, 0.0, 0.0, 0),
        (0.5, 0.0, 0.0, 0.0, 0),
    ],
)
def test_clipping(ratio: float, advantage: float, loss: float, gradient: float, clipped: int):
    logprobs, found = losses([ratio], [advantage])
    assert found.loss.item() == pytest.approx(loss)
    assert found.ratio.item() == pytest.approx(ratio)
    assert found.clipped.item() == clipped
    found.loss.sum().backward()
    if gradient == 0:
        assert logprobs.grad.item() == 0  # exactly
    else:
        assert logprobs.grad.item() == pytest.approx(gradient)


def test_each_token_has_its_own_clip():
    logprobs, found = losses([1.5, 1.0, 0.5, 0.5], [1.0, 1.0, 1.0, -1.0])
    assert found.loss.tolist() == pytest.approx([-1.2, -1.0, -0.5, 0.8])
    found.loss.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([0.0, -1.0, -0.5, 0.0])
    assert found.clipped.tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("clip", [0.1, 0.2, 0.6])
def test_the_clip_range_is_the_setting(clip: float):
    _, found = losses([3.0, 0.1], [1.0, -1.0], clip=clip)
    assert found.loss.tolist() == pytest.approx([-(1 + clip), 1 - clip])


def test_kl_and_entropy_are_added():
    # π = 0.6 (ratio 1.2 to 0.5), π_ref = 0.3: δ = ln(0.3/0.6) = -ln 2; k3 = 1/2 + ln 2 - 1
    _, found = losses([1.2], [1.0], reference=[0.3], entropies=[0.7], clip=0.3, kl=0.5, entropy=0.1)
    divergence = 0.5 + math.log(2) - 1
    assert found.kl.item() == pytest.approx(divergence)
    assert found.loss.item() == pytest.approx(-1.2 + 0.5 * divergence - 0.1 * 0.7)


def test_the_kl_gradient_is_not_clipped():
    logprobs, found = losses([1.6], [1.0], reference=[0.4], kl=0.5)
    found.loss.sum().backward()
    # d k3 / d log π = 1 - π_ref/π = 1 - 0.4/0.8
    assert logprobs.grad.item() == pytest.approx(0.5 * 0.5)


def test_without_a_reference_there_is_no_kl():
    _, found = losses([1.0, 1.1], [1.0, -1.0], kl=5.0)
    assert found.kl.tolist() == [0, 0]
    assert found.loss.tolist() == pytest.approx([-1.0, 1.1])


@given(LOGPROBS, st.randoms())
def test_k3_is_never_negative_and_zero_at_the_reference(values: list[float], random):
    logprobs = torch.tensor(values, dtype=torch.float64)
    reference = torch.tensor([random.uniform(-30, 0) for _ in values], dtype=torch.float64)
    assert (k3(logprobs, reference) >= -1e-12).all()
    assert k3(logprobs, logprobs).tolist() == [0] * len(values)


def test_k3_by_hand():
    values = k3(torch.tensor([0.5, 0.25, 0.1]).log(), torch.tensor([0.25, 0.5, 0.1]).log())
    assert values.tolist() == pytest.approx([0.5 + math.log(2) - 1, 2 - math.log(2) - 1, 0], abs=1e-6)


def test_k3_is_the_kl_in_the_mean():
    generator = torch.Generator().manual_seed(0)
    policy = torch.randn(12, generator=generator, dtype=torch.float64).log_softmax(0)
    reference = torch.randn(12, generator=generator, dtype=torch.float64).log_softmax(0)
    mean = (policy.exp() * k3(policy, reference)).sum()
    assert mean.item() == pytest.approx((policy.exp() * (policy - reference)).sum().item())
