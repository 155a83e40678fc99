"""Scores of written tokens and their gradients, against autograd on the plain formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from spyrl.training import logprobs
from spyrl.training.logprobs import Limit, scores_of

VOCABULARY = 11
PLACES = torch.tensor([0, 3, 3, 1, 4, 4, 4, 2])  # several tokens at one place, and place 5 at none
TOKENS = torch.tensor([7, 2, 5, 10, 4, 4, 0, 6])
LIMITS = [
    Limit(),
    Limit(only=(2, 9)),
    Limit(held_back=(0, 3)),
    Limit(only=(10,)),
    Limit(),
    Limit(only=(4, 5, 6)),
    Limit(held_back=(10,)),
    Limit(),
]


def plain(logits: Tensor, temperature: float, limits: list[Limit]) -> tuple[Tensor, Tensor]:
    logprobs, entropies = [], []
    for at, (place, token) in enumerate(zip(PLACES.tolist(), TOKENS.tolist(), strict=True)):
        limit = limits[at] if limits else Limit()
        open_to = [k for k in limit.only or range(VOCABULARY) if k not in limit.held_back]
        chances = torch.softmax(logits[place, open_to] / temperature, 0)
        logprobs.append(chances[open_to.index(token)].log())
        entropies.append(-(chances * chances.log()).sum())
    return torch.stack(logprobs), torch.stack(entropies)


@pytest.mark.parametrize("numbers", [2**24, 2 * VOCABULARY, 1], ids=["one part", "pairs", "one by one"])
@pytest.mark.parametrize("limits", [[], LIMITS], ids=["free", "limits"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_scores_and_gradients_are_those_of_the_formulas(
    numbers: int, limits: list[Limit], temperature: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logprobs, "numbers_at_a_time", lambda device: numbers)
    draw = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(6, VOCABULARY, generator=draw)).requires_grad_()
    weights, more = torch.randn(2, len(TOKENS), generator=draw)
    found = scores_of(logits, PLACES, TOKENS, temperature, limits)
    expected = plain(logits.double(), temperature, limits)
    assert found.logprobs.tolist() == pytest.approx(expected[0].tolist(), abs=1e-5)
    assert found.entropies.tolist() == pytest.approx(expected[1].tolist(), abs=1e-5)
    (gradient,) = torch.autograd.grad((weights * found.logprobs + more * found.entropies).sum(), logits)
    (sought,) = torch.autograd.grad((weights.double() * expected[0] + more.double() * expected[1]).sum(), logits)
    assert torch.allclose(gradient, sought, atol=1e-5)
    assert not gradient[5].any()


def test_entropies_carry_a_gradient_only_where_asked():
    logits = torch.randn(6, VOCABULARY, generator=torch.Generator().manual_seed(1), requires_grad=True)
    scores = scores_of(logits, PLACES, TOKENS, entropy_gradient=False)
    assert scores.logprobs.requires_grad
    assert not scores.entropies.requires_grad
    (gradient,) = torch.autograd.grad(scores.logprobs.sum(), logits)
    (sought,) = torch.autograd.grad(plain(logits, 1.0, [])[0].sum(), logits)
    assert torch.allclose(gradient, sought, atol=1e-5)


def test_logits_in_half_precision_give_scores_in_single():
    logits = torch.randn(6, VOCABULARY, generator=torch.Generator().manual_seed(2)).bfloat16().requires_grad_()
    scores = scores_of(logits, PLACES, TOKENS)
    expected, _ = plain(logits.float(), 1.0, [])
    assert scores.logprobs.dtype == torch.float32
    assert scores.logprobs.tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    scores.logprobs.sum().backward()
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16
