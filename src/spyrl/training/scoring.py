"""Log-probabilities of trajectories under a model, in prefix trees or in padded rows.

Either way rows are flush right: what is scored stands at their ends, and logits are computed for few other places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spyrl.policy.attention import attention_inputs, implementation_of
from spyrl.policy.prefill import left_padded
from spyrl.policy.trees import Ints, grow, laid_out, shelved
from spyrl.training.logprobs import Limit, Scores, scores_of
from spyrl.training.trajectory import Trajectory


@dataclass(frozen=True)
class Batch:
    """Trajectories laid out for one forward pass of shape (rows, width).

    ``members`` are their indices in the order in which they are scored. ``seen`` says what may be attended to, in
    shape (rows, width): for padded rows the mask that is 0 at padding, for trees the tokens' exits. ``places`` are the
    row and the column whose output predicts each written token, of shape (2, tokens).
    """

    members: tuple[int, ...]
    ids: Tensor
    positions: Tensor
    seen: Tensor | Ints
    places: Tensor


def score(
    model: Any, trajectories: Sequence[Trajectory], batch: Batch, temperature: float, *, entropy_gradient: bool = True
) -> Scores:
    """Score the batch's members, of these ``trajectories``, under ``model`` in one forward pass.

    ``temperature`` is the sampling temperature: the policy is what was sampled from (1 where decoding was greedy).
    Without ``entropy_gradient`` entropies carry none, which saves time.
    """
    members = [trajectories[index] for index in batch.members]
    row, column = batch.places
    kept, at = column.unique(return_inverse=True)
    logits = model(
        input_ids=batch.ids,
        position_ids=batch.positions,
        use_cache=False,
        logits_to_keep=kept,
        **_attention(model, batch),
    ).logits
    tokens = torch.tensor([token for each in members for token in each.token_ids], device=logits.device)
    return scores_of(
        logits.flatten(0, 1),
        row * len(kept) + at,
        tokens,
        temperature or 1.0,
        _limits(members),
        entropy_gradient=entropy_gradient,
    )


def batches(
    trajectories: Sequence[Trajectory], budget: int, device: torch.device, *, packed: bool = True
) -> Iterator[Batch]:
    """All ``trajectories`` in batches of at most ``budget`` tokens, padding included.

    ``packed``: as prefix trees, one a game where it fits. Else in padded rows, one a distinct input, and
    at least one row a batch however long.
    """
    return _packed(trajectories, budget, device) if packed else _padded(trajectories, budget, device)


def inputs_by_game(trajectories: Sequence[Trajectory]) -> list[dict[int, Ints]]:
    """What the model reads to predict each trajectory's tokens, by its index, game by game."""
    games: dict[int, dict[int, Ints]] = {}
    prompts: dict[tuple[int, ...], Ints] = {}  # many trajectories have the same one
    for index, each in enumerate(trajectories):
        if each.prompt_ids not in prompts:
            prompts[each.prompt_ids] = np.asarray(each.prompt_ids, dtype=np.int64)
        written = np.asarray(each.token_ids[:-1], dtype=np.int64)
        games.setdefault(each.game, {})[index] = np.concatenate([prompts[each.prompt_ids], written])
    return list(games.values())


def _packed(trajectories: Sequence[Trajectory], budget: int, device: torch.device) -> Iterator[Batch]:
    wanted = {index: len(each.token_ids) for index, each in enumerate(trajectories)}
    trees = [tree for inputs in inputs_by_game(trajectories) for tree in grow(inputs, budget, wanted)]
    for rows in shelved(trees, budget):
        laid = laid_out(rows)
        yield Batch(
            laid.members,
            torch.from_numpy(laid.ids).to(device),
            torch.from_numpy(laid.positions).to(device),
            laid.exits,
            torch.from_numpy(np.concatenate(laid.places, axis=1)).to(device),
        )


def _padded(trajectories: Sequence[Trajectory], budget: int, device: torch.device) -> Iterator[Batch]:
    """Longest first; trajectories with the same input (all direct ballots of one prompt) share a row."""
    readers: dict[tuple[int, ...], list[int]] = {}
    for index, each in enumerate(trajectories):
        readers.setdefault(each.prompt_ids + each.token_ids[:-1], []).append(index)
    inputs = sorted(readers, key=lambda row: (-len(row), row))
    while inputs:
        count = max(budget // len(inputs[0]), 1)
        yield _rows_laid_out({row: readers[row] for row in inputs[:count]}, trajectories, device)
        inputs = inputs[count:]


def _rows_laid_out(
    readers: Mapping[tuple[int, ...], Sequence[int]], trajectories: Sequence[Trajectory], device: torch.device
) -> Batch:
    ids, mask = left_padded(list(readers), device)
    width = ids.shape[1]
    members = [index for row in readers.values() for index in row]
    places = [
        (number, width - at)
        for number, row in enumerate(readers.values())
        for index in row
        for at in range(len(trajectories[index].token_ids), 0, -1)
    ]
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    return Batch(tuple(members), ids, positions, mask, torch.tensor(places, device=device).T)


def _attention(model: Any, batch: Batch) -> dict[str, Any]:
    if isinstance(batch.seen, Tensor):
        return {"attention_mask": batch.seen}
    return attention_inputs(batch.seen, batch.ids.device, implementation_of(model), model.dtype)


def _limits(members: Sequence[Trajectory]) -> list[Limit]:
    """What could be written at each token's place; empty where anything could everywhere."""
    if not any(each.allowed or each.min_tokens for each in members):
        return []
    free = Limit()
    found: list[Limit] = []
    for each in members:
        if each.allowed:
            found += [Limit(only=ids) for ids in each.allowed]
        else:
            held = min(each.min_tokens, len(each.token_ids))
            found += [Limit(held_back=each.held_back)] * held + [free] * (len(each.token_ids) - held)
    return found
