"""A key-value cache with room to grow: a token is written into its place instead of copying all that came before it."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

_ROOM = 64  # tokens; a layer is copied once in so many steps


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """transformers' growing layer, its tensors views of larger ones; everything it returns is equal to the bit."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._room: tuple[torch.Tensor, ...] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new states, and return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before = self.get_seq_length()
        after = before + key_states.shape[-2]
        room = self._room
        if room is None or room[0].shape[-2] < after:
            room = self._room = (
                self._larger(self.keys, key_states, after),
                self._larger(self.values, value_states, after),
            )
        for whole, new in zip(room, (key_states, value_states), strict=True):
            whole[..., before:after, :] = new
        self.keys, self.values = (whole[..., :after, :] for whole in room)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep only these rows, with their room."""
        if self._room is None:
            super().batch_select_indices(indices)
            return
        length = self.get_seq_length()
        room = self._room = tuple(whole.index_select(0, indices) for whole in self._room)
        self.keys, self.values = (whole[..., :length, :] for whole in room)

    def pick(self, rows: torch.Tensor, places: torch.Tensor) -> None:
        """See `pick`."""
        assert self.keys is not None
        assert self.values is not None
        at = (rows[:, None, None], torch.arange(self.keys.shape[1], device=rows.device)[None, :, None], places[:, None])
        self.keys, self.values = self.keys[at], self.values[at]
        self._room = None

    @staticmethod
    def _larger(held: torch.Tensor | None, new: torch.Tensor, length: int) -> torch.Tensor:
        """Room for ``length`` tokens and some more, with what is held in its place."""
        rows, heads, _, width = new.shape
        whole = new.new_empty(rows, heads, length + _ROOM, width)
        if held is not None and held.numel():
            whole[..., : held.shape[-2], :] = held
        return whole


def roomy_cache(config: Any) -> DynamicCache:
    """An empty cache for a model; layers that keep a window or no keys at all stay transformers' own."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def pick(cache: Any, rows: torch.Tensor, places: torch.Tensor) -> None:
    """Make row i of the cache out of places ``places[i]`` of its row ``rows[i]``.

    ``rows`` has shape (new rows,), ``places`` (new rows, new length). All layers must be `RoomyLayer`.
    """
    for layer in cache.layers:
        layer.pick(rows, places)
