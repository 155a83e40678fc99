"""Attention of prefix trees, as an implementation that transformers' models can use (`NAME`).

On a GPU it is FlexAttention with the trees' ``mask_mod``. Elsewhere it is SDPA over blocks of queries, each with the
keys that some query of the block may attend to: what comes later, and most of what is on other branches, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from spyrl.policy.trees import Ints, grow, laid_out

NAME = "sdpa_of_trees"
"""Its name in transformers. With "sdpa" in it, models are asked whether they can use SDPA at all."""

_QUERIES = 256  # a block; small enough to leave keys out, large enough for fast multiplications
_WORTH_PICKING = 0.7  # keys are copied into place only where the block needs a smaller share of those before it


@dataclass(frozen=True)
class Block:
    """Queries from ``begin`` to ``end``, the places of the keys for them, and who sees whom.

    ``mask`` has shape (rows, 1, queries, keys). ``keys`` is a slice where that is nearly all there is before them.
    """

    begin: int
    end: int
    keys: slice | Tensor
    mask: Tensor


def attention_inputs(
    exits: Ints, device: torch.device, implementation: str, dtype: torch.dtype, *, seen: int = 0
) -> dict[str, Any]:
    """What a model's forward pass takes so that the tokens of trees attend as they should.

    ``exits`` has shape (rows, keys): key k may be attended to by query q where k ≤ q < exits[k]. The first ``seen``
    keys are in the model's cache already, the others are its input and the queries. ``implementation`` and ``dtype``
    are the model's.
    """
    ends = torch.from_numpy(exits).to(device)
    if implementation == NAME and device.type == "cuda":
        return {"attention_mask": block_mask(ends, seen)}
    at = torch.arange(exits.shape[1], device=device)
    mask = ((at[seen:, None] >= at) & (at[seen:, None] < ends[:, None, :]))[:, None]
    if implementation == NAME:
        return {"attention_mask": mask, "blocks": _blocks(exits, mask, seen)}
    if implementation == "eager":  # it adds the mask to its scores
        mask = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)
    return {"attention_mask": mask}


def takes_trees(model: Any, device: torch.device) -> bool:
    """Whether ``model`` computes in prefix trees what it computes row by row: tried out on a few tokens.

    Models with windows or with layers that are no attention do not. Dropout is off while this is tried.
    """
    if any(kind != "full_attention" for kind in getattr(model.config.get_text_config(), "layer_types", None) or ()):
        return False
    rows = {at: np.array([1, 2, 3, 4, *tail]) for at, tail in enumerate(((5, 6, 3), (5, 2), (3,)))}
    (tree,) = grow(rows, 64, {at: len(row) for at, row in rows.items()})
    laid = laid_out([[tree]])
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            found = model(
                input_ids=torch.from_numpy(laid.ids).to(device),
                position_ids=torch.from_numpy(laid.positions).to(device),
                use_cache=False,
                **attention_inputs(laid.exits, device, implementation_of(model), model.dtype),
            ).logits[0]
            alone = [model(input_ids=torch.from_numpy(row[None]).to(device), use_cache=False) for row in rows.values()]
            differences = [
                found[columns] - alone[at].logits[0] for at, (_, columns) in zip(laid.members, laid.places, strict=True)
            ]
        tolerance = 1e-3 if model.dtype == torch.float32 else 0.1
        return all(float(each.abs().max()) <= tolerance for each in differences)
    except (TypeError, ValueError, RuntimeError):  # a forward pass that does not know such a mask
        return False
    finally:
        model.train(training)


def implementation_of(model: Any) -> str:
    """The name of the attention that the model computes with."""
    return str(getattr(model.config, "_attn_implementation", "sdpa"))


def block_mask(ends: Tensor, seen: int = 0) -> BlockMask:
    """The same for FlexAttention; ``ends`` are the exits, of shape (rows, keys)."""

    def mask_mod(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        at = query + seen
        return (key <= at) & (at < ends[row, key])

    rows, keys = ends.shape
    return create_block_mask(mask_mod, rows, None, keys - seen, keys, device=ends.device)


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | BlockMask | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    blocks: tuple[Block, ...] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it; without trees it is transformers' own over SDPA.

    ``query`` has shape (rows, heads, queries, size); the result (rows, queries, heads, size).
    """
    if isinstance(attention_mask, BlockMask):
        found = _flex()(query, key, value, block_mask=attention_mask, scale=scaling, enable_gqa=True)
        return found.transpose(1, 2).contiguous(), None
    if blocks is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    groups = query.shape[1] // key.shape[1]
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    parts = [
        scaled_dot_product_attention(
            query[:, :, block.begin : block.end],
            key[:, :, block.keys],
            value[:, :, block.keys],
            attn_mask=block.mask,
            dropout_p=dropout,
            scale=scaling,
        )
        for block in blocks
    ]
    return torch.cat(parts, 2).transpose(1, 2).contiguous(), None


def keys_of_blocks(exits: Ints, seen: int = 0) -> Iterator[tuple[int, int, Ints]]:
    """Where blocks of queries (those after the ``seen`` keys) begin and end, and the keys that are computed for each.

    ``exits`` has shape (rows, keys). The keys are all up to the block's end where it needs nearly all of them.
    """
    queries = exits.shape[1] - seen
    for begin in range(0, queries, _QUERIES):
        end = min(begin + _QUERIES, queries)
        needed = np.flatnonzero((exits[:, : seen + end] > seen + begin).any(0))
        yield begin, end, needed if len(needed) < _WORTH_PICKING * (seen + end) else np.arange(seen + end)


def _blocks(exits: Ints, mask: Tensor, seen: int) -> tuple[Block, ...]:
    found = []
    for begin, end, needed in keys_of_blocks(exits, seen):
        # A slice is a view, which costs neither time nor memory.
        keys = slice(0, seen + end) if len(needed) == seen + end else torch.from_numpy(needed).to(mask.device)
        found.append(Block(begin, end, keys, mask[:, :, begin:end, keys].contiguous()))
    return tuple(found)


@cache
def _flex() -> Any:
    """FlexAttention is fast when compiled, which is worth it on a GPU only."""
    return torch.compile(flex_attention, dynamic=True) if torch.cuda.is_available() else flex_attention


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
