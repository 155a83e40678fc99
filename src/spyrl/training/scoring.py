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

from spyrl.policy.local import left_padded
from spyrl.training.packing import Ints, Tree, grow, shelved
from spyrl.training.trajectory import Trajectory


@dataclass(frozen=True)
class Scores:
    """Log-probability and entropy (nats) of the written tokens, one trajectory after another, of shape (tokens,)."""

    logprobs: Tensor
    entropies: Tensor


@dataclass(frozen=True)
class Batch:
    """Trajectories laid out for one forward pass of shape (rows, width).

    ``members`` are their indices in the order in which they are scored. ``mask`` says what may be attended to: of
    shape (rows, width) for padded rows, (rows, 1, width, width) for trees. ``places`` are the row and the
    column whose output predicts each written token, of shape (2, tokens).
    """

    members: tuple[int, ...]
    ids: Tensor
    positions: Tensor
    mask: Tensor
    places: Tensor


def score(
    model: Any, trajectories: Sequence[Trajectory], batch: Batch, temperature: float, *, entropy_gradient: bool = True
) -> Scores:
    """Score the batch's members, of these ``trajectories``, under ``model`` in one forward pass.

    ``temperature`` is the sampling temperature: the policy is what was sampled from (1 where decoding was greedy).
    Without ``entropy_gradient`` entropies carry none, which saves half of the memory that large vocabularies take.
    """
    members = [trajectories[index] for index in batch.members]
    row, column = batch.places
    kept, at = column.unique(return_inverse=True)
    logits = model(
        input_ids=batch.ids,
        attention_mask=_for_attention(model, batch.mask),
        position_ids=batch.positions,
        use_cache=False,
        logits_to_keep=kept,
    ).logits
    tokens = torch.tensor([token for each in members for token in each.token_ids], device=logits.device)
    written = logits[row, at].float() / (temperature or 1.0)
    barred = _barred(members, written)
    if barred is not None:
        written = written.masked_fill(barred, float("-inf"))
    logprobs = torch.log_softmax(written, -1)
    with torch.set_grad_enabled(torch.is_grad_enabled() and entropy_gradient):
        probabilities = logprobs.exp()
        entropies = -(probabilities * logprobs.masked_fill(probabilities == 0, 0.0)).sum(-1)
    return Scores(logprobs.gather(-1, tokens[:, None])[:, 0], entropies)


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
        yield _trees_laid_out(rows, device)


def _trees_laid_out(rows: Sequence[Sequence[Tree]], device: torch.device) -> Batch:
    """Trees side by side, flush right; padding sees itself alone, since a row of the mask must not be empty."""
    width = max(sum(tree.size for tree in row) for row in rows)
    ids, positions = np.zeros((2, len(rows), width), dtype=np.int64)
    exits = np.tile(np.arange(1, width + 1), (len(rows), 1))
    members: list[int] = []
    places: list[Ints] = []
    for number, row in enumerate(rows):
        begin = width - sum(tree.size for tree in row)
        for tree in row:
            span = slice(begin, begin + tree.size)
            ids[number, span], positions[number, span], exits[number, span] = (
                tree.ids,
                tree.positions,
                tree.exits + begin,
            )
            members += tree.members
            places += [np.stack([np.full(len(path), number), path + begin]) for path in tree.paths]
            begin += tree.size
    ends = torch.from_numpy(exits).to(device)
    at = torch.arange(width, device=device)
    mask = (at[:, None] >= at) & (at[:, None] < ends[:, None, :])
    return Batch(
        tuple(members),
        torch.from_numpy(ids).to(device),
        torch.from_numpy(positions).to(device),
        mask[:, None],
        torch.from_numpy(np.concatenate(places, axis=1)).to(device),
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


def takes_trees(model: Any, device: torch.device) -> bool:
    """Whether ``model`` computes in prefix trees what it computes row by row: tried out on a few tokens.

    Models with windows or with layers that are no attention do not. Dropout is off while this is tried.
    """
    if any(kind != "full_attention" for kind in getattr(model.config.get_text_config(), "layer_types", None) or ()):
        return False
    tried = [
        Trajectory(0, "performing", "civilian", (1, 2, 3, 4, *tail), (3, 1, 2), (), (), 0.0)
        for tail in ((5, 6), (5, 2), (3,))
    ]
    training = model.training
    model.eval()
    try:
        found = []
        for packed in (True, False):
            scored: dict[int, Tensor] = {}
            for batch in batches(tried, 64, device, packed=packed):
                with torch.no_grad():
                    parts = score(model, tried, batch, 1.0).logprobs.reshape(-1, 3)
                scored.update(zip(batch.members, parts, strict=True))
            found.append(torch.stack([scored[index] for index in range(len(tried))]))
        tolerance = 1e-3 if model.dtype == torch.float32 else 0.1
        return bool((found[0] - found[1]).abs().max() <= tolerance)
    except (TypeError, ValueError, RuntimeError):  # a forward pass that does not know such a mask
        return False
    finally:
        model.train(training)


def _for_attention(model: Any, mask: Tensor) -> Tensor:
    """The mask as the model's attention takes it: eager attention adds a tree's mask to its scores."""
    if mask.dim() == 2 or getattr(model.config, "_attn_implementation", "sdpa") != "eager":
        return mask
    dtype = model.dtype
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


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
