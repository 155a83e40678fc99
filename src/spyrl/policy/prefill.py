"""Reading prompts before answers are written: what they share at their beginnings is read once.

The beginning that all prompts of a batch share (the rules) is read in a row of its own, and its cache given to all.
What is left of prompts that go on alike (a game's: rules, then document) is read as a prefix tree. Each prompt's cache
is then picked out of its tree's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spyrl.policy.attention import attention_inputs, implementation_of
from spyrl.policy.cache import pick, roomy_cache
from spyrl.policy.trees import Ints, Laid, alike, common_length, grow, laid_out, shelved

_WORTH_SHARING = 0.9  # of the prompts' tokens: trees that leave fewer away cost more than they save
_SHORTEST_ROOT = 16  # tokens; one more forward pass is not worth it for fewer


@dataclass(frozen=True)
class Reading:
    """Prompts that were read: their next tokens' ``logits`` of shape (prompts, vocabulary), and the ``cache``.

    In the cache prompts stand flush right; ``mask`` of shape (prompts, longest) is 0 at their padding, and
    ``positions`` of shape (prompts, 1) are those of their last tokens. ``tokens`` counts what the model was given,
    padding included.
    """

    logits: Tensor
    cache: Any
    mask: Tensor
    positions: Tensor
    tokens: int


def read(
    model: Any, prompts: Sequence[Sequence[int]], device: torch.device, *, trees: bool, cached: bool = True
) -> Reading:
    """Read all prompts (each of at least one token) in one batch, and with ``cached`` keep what goes on from there.

    ``trees`` says that the model reads prefix trees (see `spyrl.policy.attention.takes_trees`).
    """
    rows = [np.asarray(prompt, dtype=np.int64) for prompt in prompts]
    layout = sharing(rows) if trees else None
    if layout is None:
        return _in_rows(model, prompts, device, cached)
    return _as_trees(model, rows, layout, device, cached)


def left_padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask of shape (rows, longest), rows flush right; padding is never attended to."""
    width = max(len(row) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for at, row in enumerate(rows):
        ids[at, width - len(row) :] = torch.tensor(row)
        mask[at, width - len(row) :] = 1
    return ids.to(device), mask.to(device)


def _in_rows(model: Any, prompts: Sequence[Sequence[int]], device: torch.device, cached: bool) -> Reading:
    ids, mask = left_padded(prompts, device)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = roomy_cache(model.config) if cached else None
    logits = forward(model, cache, input_ids=ids, attention_mask=mask, position_ids=positions, logits_to_keep=1).logits[
        :, -1
    ]
    return Reading(logits, cache, mask, positions[:, -1:], ids.numel())


@dataclass(frozen=True)
class Sharing:
    """Prompts that share their first ``root`` tokens, and how what follows is ``laid`` out in trees."""

    root: int
    laid: Laid

    @property
    def exits(self) -> Ints:
        """The exits of all keys, those of the root first, of shape (rows, root + width)."""
        rows, width = self.laid.exits.shape
        return np.concatenate([np.full((rows, self.root), self.root + width), self.root + self.laid.exits], 1)

    @property
    def ends(self) -> Ints:
        """The columns of the prompts' last tokens, in the order of ``laid.members``."""
        return np.stack([place[1, -1] for place in self.laid.places])


def sharing(rows: Sequence[Ints]) -> Sharing | None:
    """How these prompts are read in trees; ``None`` where that leaves too few tokens away.

    The root is what all begin with, at least one token less than the shortest.
    """
    ordered = sorted(rows, key=lambda row: row.tolist())  # what the first and the last share, all share
    root = min(common_length(ordered[0], ordered[-1]), min(map(len, rows)) - 1)
    root = root if root >= _SHORTEST_ROOT and len(rows) > 1 else 0
    rest = {index: row[root:] for index, row in enumerate(rows)}
    whole = {index: len(row) for index, row in rest.items()}
    size = sum(whole.values())
    grown = [tree for group in alike(rest) for tree in grow({i: rest[i] for i in group}, size, whole)]
    tokens = sum(tree.size for tree in grown)
    if root + tokens > _WORTH_SHARING * sum(map(len, rows)):
        return None
    (shelves,) = shelved(grown, tokens * len(grown))
    return Sharing(root, laid_out(shelves))


def _as_trees(model: Any, rows: Sequence[Ints], layout: Sharing, device: torch.device, cached: bool) -> Reading:
    root, laid = layout.root, layout.laid
    cache: Any = roomy_cache(model.config) if cached or root else None
    if root:
        beginning = torch.from_numpy(rows[0][:root]).to(device)[None]
        forward(model, cache, input_ids=beginning, logits_to_keep=1)
        cache.batch_select_indices(torch.zeros(len(laid.ids), dtype=torch.long, device=device))
    kept, at = np.unique(layout.ends, return_inverse=True)
    logits = forward(
        model,
        cache,
        input_ids=torch.from_numpy(laid.ids).to(device),
        position_ids=torch.from_numpy(root + laid.positions).to(device),
        logits_to_keep=torch.from_numpy(kept).to(device),
        **attention_inputs(layout.exits, device, implementation_of(model), model.dtype, seen=root),
    ).logits
    order = np.argsort(laid.members)
    number = np.stack([place[0, -1] for place in laid.places])
    places, mask = _picked(laid, order, root)
    if cached:
        pick(cache, torch.from_numpy(number[order]).to(device), torch.from_numpy(places).to(device))
    found = torch.from_numpy(mask).to(device)
    return Reading(
        logits[torch.from_numpy(number[order]).to(device), torch.from_numpy(at[order]).to(device)],
        cache,
        found,
        found.sum(1, keepdim=True) - 1,
        root + laid.ids.size,
    )


def _picked(laid: Laid, order: Ints, root: int) -> tuple[Ints, Ints]:
    """Where each prompt's tokens stand in its row's cache, flush right, and the mask, of shape (prompts, longest)."""
    width = root + max(place.shape[1] for place in laid.places)
    places, mask = np.zeros((2, len(order), width), dtype=np.int64)
    for to, member in enumerate(order):
        columns = laid.places[member][1]
        begin = width - root - len(columns)
        places[to, begin : begin + root] = np.arange(root)
        places[to, begin + root :] = root + columns
        mask[to, begin:] = 1
    return places, mask


def cache_argument(model: Any) -> str:
    """The name under which this model takes its key-value cache: transformers renamed it in 2026."""
    kind: Any = type(model.get_base_model() if hasattr(model, "peft_config") else model)
    return _cache_argument(kind)


@functools.cache
def _cache_argument(kind: Any) -> str:
    return "cache" if "cache" in inspect.signature(kind.forward).parameters else "past_key_values"


def forward(model: Any, cache: Any, **inputs: Any) -> Any:
    """The model's forward pass with this cache, or (``None``) with none."""
    if cache is None:
        return model(use_cache=False, **inputs)
    return model(use_cache=True, **{cache_argument(model): cache}, **inputs)
