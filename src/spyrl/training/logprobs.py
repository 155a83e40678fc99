r"""Log-probabilities and entropies of written tokens from logits, a few places at a time.

Logits of large vocabularies are the largest tensors of an update. Autograd would keep several float32 copies of them;
here the model's own logits are all that is kept, and probabilities are computed again on the way back. With the scaled
logits :math:`z = \text{logits} / T`, probabilities p, written token y and entropy :math:`H = -\sum_k p_k \log p_k`,

.. math::
    \frac{\partial \log p_y}{\partial z_j} = [j = y] - p_j, \qquad
    \frac{\partial H}{\partial z_j} = -p_j (\log p_j + H).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Limit:
    """What could be written at a place: ``only`` these ids (any where empty), and not those ``held_back``."""

    only: tuple[int, ...] = ()
    held_back: tuple[int, ...] = ()


@dataclass(frozen=True)
class Scores:
    """Log-probability and entropy (nats) of the written tokens, one trajectory after another, of shape (tokens,)."""

    logprobs: Tensor
    entropies: Tensor


def scores_of(
    logits: Tensor,
    places: Tensor,
    tokens: Tensor,
    temperature: float = 1.0,
    limits: Sequence[Limit] = (),
    *,
    entropy_gradient: bool = True,
) -> Scores:
    """Scores of ``tokens``, of shape (tokens,), each written from the logits at its row of ``places``.

    ``logits`` have shape (places, vocabulary); several tokens may have the same place. ``limits`` has one entry a
    token, or none; probabilities are renormalised over what they leave. Without ``entropy_gradient`` the entropies
    carry none.
    """
    logprobs, entropies = _Scores.apply(logits, places, tokens, temperature, limits, entropy_gradient)  # type: ignore[no-untyped-call]
    return Scores(logprobs, entropies)


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        places: Tensor,
        tokens: Tensor,
        temperature: float,
        limits: Sequence[Limit],
        entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        logprobs, entropies = torch.empty(2, len(tokens), dtype=torch.float32, device=logits.device)
        for part in _parts(tokens, logits):
            found = _log_probabilities(logits, places[part], temperature, limits[part])
            logprobs[part] = found.gather(-1, tokens[part, None])[:, 0]
            probabilities = found.exp()
            entropies[part] = -probabilities.mul_(_finite(found)).sum(-1)
        ctx.save_for_backward(logits, places, tokens, entropies)
        ctx.temperature, ctx.limits, ctx.entropy_gradient = temperature, limits, entropy_gradient
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        logits, places, tokens, entropies = ctx.saved_tensors
        of_logprobs, of_entropies = gradients
        whole = torch.zeros_like(logits)
        for part in _parts(tokens, logits):
            found = _log_probabilities(logits, places[part], ctx.temperature, ctx.limits[part])
            probabilities = found.exp()
            factors = -of_logprobs[part, None]
            if ctx.entropy_gradient:
                factors = factors - of_entropies[part, None] * (_finite(found) + entropies[part, None])
            gradient = probabilities.mul_(factors)
            gradient.scatter_add_(-1, tokens[part, None], of_logprobs[part, None])
            whole.index_add_(0, places[part], gradient.div_(ctx.temperature).to(whole.dtype))
        return whole, None, None, None, None, None


def numbers_at_a_time(device: str) -> int:
    """How many probabilities are computed at a time: on a CPU few enough for its cache, which is twice as fast."""
    return 2**20 if device == "cpu" else 2**24


def _parts(tokens: Tensor, logits: Tensor) -> Iterator[slice]:
    size = max(numbers_at_a_time(logits.device.type) // logits.shape[-1], 1)
    return (slice(begin, begin + size) for begin in range(0, len(tokens), size))


def _log_probabilities(logits: Tensor, places: Tensor, temperature: float, limits: Sequence[Limit]) -> Tensor:
    """Of everything that could be written at these places, in float32; -inf for what could not."""
    scaled = logits[places].float()
    if temperature != 1:
        scaled = scaled / temperature
    only = [row for row, limit in enumerate(limits) if limit.only]
    if only:
        allowed = _pairs(((row, limits[row].only) for row in only), scaled.device)
        values = scaled[allowed]
        scaled[only] = float("-inf")
        scaled[allowed] = values
    if any(limit.held_back for limit in limits):
        scaled[_pairs(((row, limit.held_back) for row, limit in enumerate(limits)), scaled.device)] = float("-inf")
    return scaled.sub_(scaled.logsumexp(-1, keepdim=True))


def _pairs(listed: Iterable[tuple[int, Sequence[int]]], device: torch.device) -> tuple[Tensor, ...]:
    """Rows and columns of each row's listed columns."""
    pairs = [(row, column) for row, columns in listed for column in columns]
    return torch.tensor(pairs, device=device).unbind(1)


def _finite(logprobs: Tensor) -> Tensor:
    """For products with probabilities: where these are 0, something finite."""
    return logprobs.clamp_(min=-1e30)
