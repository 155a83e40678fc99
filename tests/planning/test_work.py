"""Work: operations by hand, and layouts that are those of the code that runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyrl.planning.shape import Shape
from spyrl.planning.work import Decoding, backward_flops, forward_flops, pairs_of
from spyrl.policy.attention import NAME, attention_inputs
from spyrl.policy.trees import grow, laid_out

SHAPE = Shape(
    name="made up", parameters=1000, adapters=0, lora_rank=0, linear=700, head=300, largest=300, layers=2, hidden=10,
    mlp=20, heads=4, kv_heads=2, head_size=5, vocabulary=30, tied=True, qk_norm=False, packs=True, context=None,
)  # fmt: skip


def test_operations_by_hand() -> None:
    # 7 tokens through 700 weights; 2 layers x (scores and sums: 2 x 20 each) x 11 pairs; 3 places of logits.
    assert forward_flops(SHAPE, 7, 11, 3) == 2 * 7 * 700 + 2 * (2 * 20 * 11 + 2 * 20 * 11) + 2 * 3 * 300
    assert backward_flops(SHAPE, 7, 11, 3) == 2 * forward_flops(SHAPE, 7, 11, 3)


def test_frozen_weights_need_no_gradient_of_their_own() -> None:
    lora = dataclasses.replace(SHAPE, adapters=50)
    assert forward_flops(lora, 1, 0, 0) == 2 * 750
    assert forward_flops(lora, 1, 0, 0, adapters=False) == 2 * 700
    assert backward_flops(lora, 1, 0, 0) == 2 * 700 + 2 * 2 * 50


def test_an_answer_attends_to_all_before_it() -> None:
    assert Decoding(rows=3, width=10, steps=2).pairs == 3 * (11 + 12)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=40), min_size=1, max_size=5), st.integers(0, 300))
def test_pairs_are_those_that_attention_computes(rows: list[list[int]], shared: int) -> None:
    inputs = {at: np.array([1] * shared + row) for at, row in enumerate(rows)}
    laid = laid_out([grow(inputs, 10**6, dict.fromkeys(inputs, 1))])
    blocks = attention_inputs(laid.exits, torch.device("cpu"), NAME, torch.float32)["blocks"]
    assert pairs_of(laid.exits) == sum(block.mask.numel() for block in blocks)


@pytest.mark.parametrize("seen", [0, 100])
def test_pairs_behind_what_is_in_the_cache(seen: int) -> None:
    exits = np.full((2, 700), 700)
    blocks = attention_inputs(exits, torch.device("cpu"), NAME, torch.float32, seen=seen)["blocks"]
    assert pairs_of(exits, seen) == sum(block.mask.numel() for block in blocks)
