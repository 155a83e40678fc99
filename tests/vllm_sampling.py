"""What vLLM does with a prompt and its sampling parameters, one token at a time with a transformers model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Sampled:
    """One sample; ``steps`` has for each token the log-probabilities told, the written token's first."""

    token_ids: list[int]
    steps: list[dict[int, float]]
    finish_reason: str


def go_on(model: Any, prompt: list[int], parameters: dict[str, Any]) -> list[Sampled]:
    """Sample ``parameters["n"]`` times, log-probabilities being those that were sampled from (processed)."""
    if parameters["temperature"] == 0 and parameters["n"] > 1:
        raise ValueError("n must be 1 when using greedy sampling")
    return [_sample(model, prompt, parameters, parameters["seed"] + number) for number in range(parameters["n"])]


@torch.no_grad()
def _sample(model: Any, prompt: list[int], parameters: dict[str, Any], seed: int) -> Sampled:
    generator = torch.Generator().manual_seed(seed)
    allowed, ends = parameters.get("allowed_token_ids"), parameters["stop_token_ids"]
    ids: list[int] = []
    steps: list[dict[int, float]] = []
    while len(ids) < parameters["max_tokens"]:
        logits = model(torch.tensor([prompt + ids])).logits[0, -1].double()
        if allowed is not None:
            kept = logits[allowed]
            logits = torch.full_like(logits, float("-inf"))
            logits[allowed] = kept
        if len(ids) < parameters["min_tokens"]:
            logits[ends] = float("-inf")
        logprobs = (logits / (parameters["temperature"] or 1.0)).log_softmax(0)
        greedy = parameters["temperature"] == 0
        token = int(logprobs.argmax() if greedy else torch.multinomial(logprobs.exp(), 1, generator=generator))
        top = logprobs.topk(parameters["logprobs"]) if parameters["logprobs"] else None
        told = {token: float(logprobs[token])}
        if top is not None:
            told |= dict(zip(top.indices.tolist(), top.values.tolist(), strict=True))
        ids.append(token)
        steps.append(told)
        if token in ends:
            return Sampled(ids, steps, "stop")
    return Sampled(ids, steps, "length")
