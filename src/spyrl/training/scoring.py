"""Log-probabilities of trajectories under a model, in padded rows.

Trajectories whose input is the same (all direct ballots of one prompt) share one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spyrl.policy.local import left_padded
from spyrl.training.trajectory import Trajectory


@dataclass(frozen=True)
class Scores:
    """Log-probability and entropy (nats) of the written tokens, one trajectory after another, of shape (tokens,)."""

    logprobs: Tensor
    entropies: Tensor


def score(model: Any, batch: Sequence[Trajectory], temperature: float, device: torch.device) -> Scores:
    """Score all trajectories of ``batch`` under ``model`` in one forward pass.

    ``temperature`` is the sampling temperature: the policy is what was sampled from (1 where decoding was greedy).
    """
    rows: dict[tuple[int, ...], int] = {}
    for trajectory in batch:
        rows.setdefault(_inputs(trajectory), len(rows))
    ids, mask = left_padded(list(rows), device)
    # Rows are flush right, so the logits of all written tokens are among the last ones of each row.
    last = max(len(trajectory.token_ids) for trajectory in batch)
    logits = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=(mask.cumsum(1) - 1).clamp(min=0),
        use_cache=False,
        logits_to_keep=last,
    ).logits
    row = torch.tensor([rows[_inputs(each)] for each in batch for _ in each.token_ids], device=device)
    place = torch.tensor([last - at for each in batch for at in range(len(each.token_ids), 0, -1)], device=device)
    tokens = torch.tensor([token for each in batch for token in each.token_ids], device=device)
    written = logits[row, place].float() / (temperature or 1.0)
    barred = _barred(batch, written)
    if barred is not None:
        written = written.masked_fill(barred, float("-inf"))
    logprobs = torch.log_softmax(written, -1)
    probabilities = logprobs.exp()
    entropies = -(probabilities * logprobs.masked_fill(probabilities == 0, 0.0)).sum(-1)
    return Scores(logprobs.gather(-1, tokens[:, None])[:, 0], entropies)


def batches(trajectories: Sequence[Trajectory], budget: int) -> Iterator[list[int]]:
    """Indices of ``trajectories`` in groups whose padded size (rows × longest) stays within ``budget`` tokens.

    At least one row each, however long; trajectories with the same input stay together.
    """
    order = sorted(range(len(trajectories)), key=lambda i: (-len(_inputs(trajectories[i])), _inputs(trajectories[i])))
    group: list[int] = []
    rows: set[tuple[int, ...]] = set()
    for index in order:
        inputs = _inputs(trajectories[index])
        width = len(_inputs(trajectories[group[0]])) if group else len(inputs)
        if group and inputs not in rows and width * (len(rows) + 1) > budget:
            yield group
            group, rows = [], set()
        group.append(index)
        rows.add(inputs)
    if group:
        yield group


def _inputs(trajectory: Trajectory) -> tuple[int, ...]:
    """What the model reads to predict every written token."""
    return trajectory.prompt_ids + trajectory.token_ids[:-1]


def _barred(batch: Sequence[Trajectory], written: Tensor) -> Tensor | None:
    """Which tokens could not be written where, like ``written`` of shape (tokens, vocabulary)."""
    allowed: list[tuple[int, int]] = []
    held_back: list[tuple[int, int]] = []
    only = []  # places where nothing but what is allowed could be written
    at = 0
    for each in batch:
        for step in range(len(each.token_ids)):
            if each.allowed:
                only.append(at)
                allowed += [(at, token) for token in each.allowed[step]]
            elif step < each.min_tokens:
                held_back += [(at, token) for token in each.held_back]
            at += 1
    if not allowed and not held_back:
        return None
    barred = torch.zeros_like(written, dtype=torch.bool)
    barred[only] = True
    for places, value in ((allowed, False), (held_back, True)):
        if places:
            rows, columns = torch.tensor(places, device=written.device).T
            barred[rows, columns] = value
    return barred
