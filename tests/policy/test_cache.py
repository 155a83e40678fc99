"""The cache with room gives to the bit what transformers' own gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache, Qwen3Config
from transformers.cache_utils import DynamicLayer

from spyrl.policy.cache import RoomyLayer, roomy_cache

STEPS = st.lists(
    st.one_of(st.integers(1, 70), st.lists(st.integers(0, 2), min_size=3, max_size=3)), min_size=1, max_size=8
)


@given(STEPS)
def test_it_holds_what_a_growing_layer_holds(steps: list[int | list[int]]) -> None:
    """Numbers append so many tokens, lists choose and repeat rows."""
    dice = torch.Generator().manual_seed(0)
    ours, theirs = RoomyLayer(), DynamicLayer()
    for step in steps:
        if isinstance(step, list):
            for layer in (ours, theirs):
                layer.batch_select_indices(torch.tensor(step))
        else:
            new = [torch.randn(3, 2, step, 4, generator=dice) for _ in range(2)]
            for one, other in zip(ours.update(*new), theirs.update(*new), strict=True):
                assert torch.equal(one, other)
        assert ours.get_seq_length() == theirs.get_seq_length()
        if theirs.get_seq_length():
            assert torch.equal(ours.keys, theirs.keys)
            assert torch.equal(ours.values, theirs.values)


def test_rows_may_become_fewer_and_more() -> None:
    layer = RoomyLayer()
    layer.update(torch.ones(3, 1, 2, 2), torch.ones(3, 1, 2, 2))
    layer.batch_select_indices(torch.tensor([1]))
    keys, _ = layer.update(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
    assert keys.shape == (1, 1, 3, 2)
    layer.batch_select_indices(torch.tensor([0, 0, 0, 0]))
    keys, _ = layer.update(torch.zeros(4, 1, 1, 2), torch.zeros(4, 1, 1, 2))
    assert keys.shape == (4, 1, 4, 2)


def test_a_step_copies_nothing_while_there_is_room() -> None:
    layer = RoomyLayer()
    layer.update(torch.ones(2, 1, 5, 2), torch.ones(2, 1, 5, 2))
    places = set()
    for _ in range(60):
        keys, _ = layer.update(torch.zeros(2, 1, 1, 2), torch.zeros(2, 1, 1, 2))
        places.add(keys.data_ptr())
    assert len(places) == 1


@pytest.mark.parametrize("layer_types", [None, ["full_attention", "sliding_attention"]])
def test_only_plain_layers_are_replaced(layer_types: list[str] | None) -> None:
    config = Qwen3Config(num_hidden_layers=2, layer_types=layer_types, sliding_window=8, use_sliding_window=True)
    plain = [type(layer) for layer in DynamicCache(config=config).layers]
    made = [type(layer) for layer in roomy_cache(config).layers]
    assert made == [RoomyLayer if kind is DynamicLayer else kind for kind in plain]
    assert RoomyLayer in made
