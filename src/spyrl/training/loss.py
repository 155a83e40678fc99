r"""The objective of both stages (paper Eq. 7 and 10): clipped policy gradient per token plus a KL penalty.

For a trajectory i with advantage A_i and tokens t, with the probability ratio
:math:`r_t = π_θ(y_t) / π_{old}(y_t)`,

.. math::
    L_t = -\min(r_t A_i, \operatorname{clip}(r_t, 1-ε, 1+ε) A_i)
          + β_{KL} (e^{δ_t} - δ_t - 1) - β_H H_t, \qquad δ_t = \log π_{ref}(y_t) - \log π_θ(y_t)

The KL term is the k3 estimator (Schulman 2020, "Approximating KL divergence"): never negative and, under π_θ,
unbiased in value. (Its gradient at a sample is not the KL's; GRPO uses it so, and so does the published recipe.)

**Truncated importance sampling** (an option): an engine that generates computes slightly other probabilities
:math:`π_{engine}` than the trainer, so its samples are off-policy. The first term of token t is multiplied by

.. math::
    w_t = \min(π_{old}(y_t) / π_{engine}(y_t), C)

with :math:`π_{old}` the trainer's probabilities under the weights that were sampled with and C the cap; no gradient
flows through it (Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training").
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenLosses:
    """Per-token parts of the loss, all of shape (tokens,)."""

    loss: Tensor
    kl: Tensor
    ratio: Tensor
    clipped: Tensor
    """1 where the clip took the gradient away."""


def token_losses(
    logprobs: Tensor,
    old_logprobs: Tensor,
    reference_logprobs: Tensor | None,
    advantages: Tensor,
    entropies: Tensor,
    *,
    clip: float,
    kl: float,
    entropy: float,
    importance: Tensor | None = None,
) -> TokenLosses:
    """Loss of each token; every tensor has shape (tokens,), ``advantages`` the token's trajectory's advantage.

    Only ``logprobs`` and ``entropies`` carry gradients. ``reference_logprobs=None`` leaves the KL term out.
    ``importance`` are the weights of `importance_weights`, all 1 where it is ``None``.
    """
    ratio = (logprobs - old_logprobs).exp()
    free, held = ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages
    divergence = k3(logprobs, reference_logprobs) if reference_logprobs is not None else torch.zeros_like(logprobs)
    gain = torch.minimum(free, held) if importance is None else importance * torch.minimum(free, held)
    loss = -gain + kl * divergence - entropy * entropies
    return TokenLosses(loss, divergence, ratio, (held < free).to(logprobs.dtype))


def k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """The k3 estimate of KL(π‖π_ref) at each token: e^δ - δ - 1 with δ = log π_ref - log π."""
    delta = reference_logprobs - logprobs
    return delta.exp() - delta - 1


def importance_weights(old_logprobs: Tensor, sampled_logprobs: Tensor, cap: float) -> Tensor:
    """Truncated importance weights in [0, ``cap``] of tokens, all tensors of shape (tokens,).

    ``sampled_logprobs`` are as the engine sampled; where it did not tell they are NaN, and the weight is 1.
    """
    ratio = (old_logprobs - sampled_logprobs).exp().clamp(max=cap)
    return torch.where(sampled_logprobs.isnan(), 1.0, ratio).detach()
