"""Prefix trees: built as a plain trie would be, in rows that fit, within the budget."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.policy.trees import Tree, grow, shelved

INPUTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=12)


def grown(inputs: list[list[int]], budget: int = 10**9, wanted: int | None = None) -> list[Tree]:
    rows = {index: np.array(row) for index, row in enumerate(inputs)}
    return grow(rows, budget, {index: wanted or len(row) for index, row in enumerate(inputs)})


def test_a_tree_worked_out_by_hand() -> None:
    (tree,) = grown([[1, 2, 3, 4], [1, 2, 5], [1, 2, 3, 4], [9], [1, 2]])
    # 1 → 2 → (3 → 4 | 5), 9
    assert tree.ids.tolist() == [1, 2, 3, 4, 5, 9]
    assert tree.positions.tolist() == [0, 1, 2, 3, 2, 0]
    assert tree.exits.tolist() == [5, 5, 4, 4, 5, 6]
    paths = {member: path.tolist() for member, path in zip(tree.members, tree.paths, strict=True)}
    assert paths == {0: [0, 1, 2, 3], 1: [0, 1, 4], 2: [0, 1, 2, 3], 3: [5], 4: [0, 1]}


@given(INPUTS, st.integers(1, 4))
def test_every_token_sees_its_own_beginning_and_nothing_else(inputs: list[list[int]], wanted: int) -> None:
    (tree,) = grown(inputs)
    assert sorted(tree.members) == list(range(len(inputs)))
    assert tree.size == len({tuple(row[:length]) for row in inputs for length in range(1, len(row) + 1)})
    for member, path in zip(tree.members, tree.paths, strict=True):
        row = inputs[member]
        assert tree.ids[path].tolist() == row
        assert tree.positions[path].tolist() == list(range(len(row)))
        for depth, query in enumerate(path):
            seen = [key for key in range(tree.size) if key <= query < tree.exits[key]]
            assert seen == path[: depth + 1].tolist()
    (cut,) = grown(inputs, wanted=wanted)
    whole = dict(zip(tree.members, tree.paths, strict=True))
    for member, path in zip(cut.members, cut.paths, strict=True):
        assert path.tolist() == whole[member][-wanted:].tolist()


@given(INPUTS, st.integers(1, 20))
def test_a_tree_too_large_is_split_and_nothing_is_dropped(inputs: list[list[int]], budget: int) -> None:
    trees = grown(inputs, budget)
    assert sorted(member for tree in trees for member in tree.members) == list(range(len(inputs)))
    for tree in trees:
        assert tree.size <= budget or len({tuple(inputs[member]) for member in tree.members}) == 1
        for member, path in zip(tree.members, tree.paths, strict=True):
            assert tree.ids[path].tolist() == inputs[member]


@given(st.lists(INPUTS, max_size=8), st.integers(1, 40))
def test_rows_and_batches_keep_to_the_budget(games: list[list[list[int]]], budget: int) -> None:
    trees = [tree for inputs in games for tree in grown(inputs)]
    batches = list(shelved(trees, budget))
    laid = [tree for rows in batches for row in rows for tree in row]
    assert sorted(map(id, laid)) == sorted(map(id, trees))
    for rows in batches:
        width = max(sum(tree.size for tree in row) for row in rows)
        assert width == max(tree.size for row in rows for tree in row)
        assert len(rows) == 1 or len(rows) * width <= budget


def test_small_trees_share_rows() -> None:
    sizes = (6, 3, 3, 2, 2, 2)
    trees = [grown([list(range(size))])[0] for size in sizes]
    (rows,) = shelved(trees, 18)
    assert sorted(sorted(tree.size for tree in row) for row in rows) == [[2, 2, 2], [3, 3], [6]]


@pytest.mark.parametrize("size", [1, 7])
def test_one_input_is_a_branch(size: int) -> None:
    (tree,) = grown([list(range(size))])
    assert tree.exits.tolist() == [size] * size
