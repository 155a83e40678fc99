"""Prefix trees: the trajectories of a game with every common beginning once (DESIGN: one forward pass for many).

The players of a game share a document, its detectors share all but their answer. A game's inputs are laid out as the
tree of their beginnings, depth first: a token's position is its depth, and token q may attend to token k exactly when
k ≤ q < exit(k), exit(k) being where k's subtree ends. Each token then sees what it would see in a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """A prefix tree in depth-first order; ``ids``, ``positions`` and ``exits`` have shape (size,).

    ``members`` are the inputs in it, by the numbers they were given, and ``paths[i]`` says where in the tree the last
    tokens of input ``members[i]`` are.
    """

    ids: Ints
    positions: Ints
    exits: Ints
    members: tuple[int, ...]
    paths: tuple[Ints, ...]

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.ids)


def grow(inputs: Mapping[int, Ints], budget: int, wanted: Mapping[int, int]) -> list[Tree]:
    """The prefix trees of ``inputs``, each of at least one token id from 0 on, in at most ``budget`` tokens a tree.

    One tree where the budget allows; else it is split along its branches, and what the parts share is repeated. An
    input longer than the budget gets a tree of its own. Of input i's path the last ``wanted[i]`` places are kept. Time
    is linear in the inputs' tokens, but for sorting.
    """
    path = np.empty(max((len(row) for row in inputs.values()), default=0), dtype=np.int64)
    found: list[Tree] = []
    growing = _Growing()
    for index, row in _ordered(inputs):
        shared = common_length(growing.last, row)
        if growing.size and len(row) > shared and growing.size + len(row) - shared > budget:
            found.append(growing.tree(path))
            growing, shared = _Growing(), 0
        growing.add(index, row, shared, path, wanted[index])
    if growing.size:
        found.append(growing.tree(path))
    return found


def alike(inputs: Mapping[int, Ints]) -> list[list[int]]:
    """Groups of inputs, neighbours in which share at least half of the longer one at their beginnings."""
    groups: list[list[int]] = []
    last: Ints | None = None
    for index, row in _ordered(inputs):
        if last is None or 2 * common_length(last, row) < max(len(last), len(row)):
            groups.append([])
        groups[-1].append(index)
        last = row
    return groups


def shelved(trees: Sequence[Tree], budget: int) -> Iterator[list[list[Tree]]]:
    """Batches of rows of trees side by side, as wide as the batch's largest tree, of at most ``budget`` tokens in all.

    Largest first, each into the first row with room for it; a batch has at least one row, however wide.
    """
    rows: list[list[Tree]] = []
    filled: list[int] = []
    width = 0
    for tree in sorted(trees, key=lambda each: -each.size):
        at = next((number for number, size in enumerate(filled) if size + tree.size <= width), None)
        if at is None and rows and (len(rows) + 1) * width > budget:
            yield rows
            rows, filled = [], []
        if at is None or not rows:
            width = width if rows else tree.size
            rows.append([tree])
            filled.append(tree.size)
        else:
            rows[at].append(tree)
            filled[at] += tree.size
    if rows:
        yield rows


@dataclass(frozen=True)
class Laid:
    """Rows of trees side by side, flush right: ``ids``, ``positions`` and ``exits`` have shape (rows, width).

    Padding sees itself alone, since nothing can attend to nothing. ``members`` are the inputs, and ``places[i]`` the
    row and the columns of the last tokens of input ``members[i]``, of shape (2, tokens).
    """

    ids: Ints
    positions: Ints
    exits: Ints
    members: tuple[int, ...]
    places: tuple[Ints, ...]


def laid_out(rows: Sequence[Sequence[Tree]]) -> Laid:
    """Lay out a batch of `shelved`."""
    width = max(sum(tree.size for tree in row) for row in rows)
    ids, positions = np.zeros((2, len(rows), width), dtype=np.int64)
    exits = np.tile(np.arange(1, width + 1), (len(rows), 1))
    members: list[int] = []
    places: list[Ints] = []
    for number, row in enumerate(rows):
        begin = width - sum(tree.size for tree in row)
        for tree in row:
            span = slice(begin, begin + tree.size)
            ids[number, span], positions[number, span] = tree.ids, tree.positions
            exits[number, span] = tree.exits + begin
            members += tree.members
            places += [np.stack([np.full(len(path), number), path + begin]) for path in tree.paths]
            begin += tree.size
    return Laid(ids, positions, exits, tuple(members), tuple(places))


class _Growing:
    """A tree under construction; ``path`` is where in it the last input's tokens are."""

    def __init__(self) -> None:
        self.size = 0
        self.last: Ints = np.empty(0, dtype=np.int64)
        self._ids: list[Ints] = []
        self._positions: list[Ints] = []
        self._closed: list[tuple[Ints, int]] = []
        self._members: list[int] = []
        self._paths: list[Ints] = []

    def add(self, index: int, row: Ints, shared: int, path: Ints, wanted: int) -> None:
        """Add an input that shares its first ``shared`` tokens with the last one."""
        self._closed.append((path[shared : len(self.last)].copy(), self.size))
        fresh = len(row) - shared
        path[shared : len(row)] = np.arange(self.size, self.size + fresh)
        self._ids.append(row[shared:])
        self._positions.append(np.arange(shared, len(row)))
        self._members.append(index)
        self._paths.append(path[max(len(row) - wanted, 0) : len(row)].copy())
        self.size += fresh
        self.last = row

    def tree(self, path: Ints) -> Tree:
        """The tree as it stands, with all branches closed."""
        exits = np.empty(self.size, dtype=np.int64)
        for tokens, end in [*self._closed, (path[: len(self.last)], self.size)]:
            exits[tokens] = end
        return Tree(
            np.concatenate(self._ids), np.concatenate(self._positions), exits, tuple(self._members), tuple(self._paths)
        )


def _ordered(inputs: Mapping[int, Ints]) -> list[tuple[int, Ints]]:
    """The inputs in the order of their tokens, so that those that begin alike are neighbours."""
    return sorted(inputs.items(), key=lambda each: each[1].astype(">u4").tobytes())


def common_length(one: Ints, other: Ints) -> int:
    """How many tokens two inputs share at their beginning."""
    length = min(len(one), len(other))
    differ = one[:length] != other[:length]
    return int(differ.argmax()) if differ.any() else length
