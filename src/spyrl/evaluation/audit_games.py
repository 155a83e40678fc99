"""A run's games as an audit sees them: how each output looks, where the spies are, and what batches are like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyrl.evaluation.played import Batch, Row
from spyrl.evaluation.shortcuts import Floats
from spyrl.play.indicators import SURFACE, Look, Shown, diversity, length_gap, look, shown

FEATURES = (*SURFACE, "copied")
"""What the spy may be told by: its output's look, and the share of its pairs of words that the visible text has."""
DOCUMENT, HIDDEN = len(FEATURES), len(FEATURES) + 1
"""Columns beside the features, never learnt from: overlaps with the whole document, and with its hidden words."""
_SPEAKING = re.compile(r"\\boxed|\bplayers? \d|\b(?:i am|i'm) (?:not )?(?:the |a )?(?:spy|civilian)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Games:
    """All games with a spy as arrays over (games, players), and the batch that each belongs to."""

    features: Floats
    """(games, players, features): `FEATURES`, then the overlaps with the whole document and with its hidden words."""
    spies: NDArray[np.intp]
    """Their places, from 0."""
    votes: Floats
    found: Floats
    gaps: Floats
    """`length_gap` in words; NaN where it is not known."""
    batch: NDArray[np.intp]

    def of(self, batches: Sequence[int]) -> Games:
        """Those of some batches."""
        here = np.isin(self.batch, batches)
        return Games(
            self.features[here],
            self.spies[here],
            self.votes[here],
            self.found[here],
            self.gaps[here],
            self.batch[here],
        )


@dataclass(frozen=True)
class Outputs:
    """What is known of a batch beside its games' arrays: means of `diversity`, and counts of outputs and ballots."""

    diversity: Mapping[str, float]
    outputs: int
    missing: int
    truncated: int
    speaking: int
    ballots: int
    abstained: int
    invalid: int
    outcomes: Mapping[str, int]


def read(batches: Iterable[Batch]) -> tuple[Games | None, list[Outputs], list[int]]:
    """All games with a spy (``None`` where there is none), and every batch's outputs and number."""
    arrays, outputs, numbers = [], [], []
    for batch in batches:
        looks = [_looks(row) for row in batch.games]
        arrays.append([_arrays(row, each) for row, (game, each) in zip(batch.games, looks, strict=True) if game.spy])
        outputs.append(_outputs(batch.games, [each for _, each in looks]))
        numbers.append(batch.number)
    return _stacked(arrays), outputs, numbers


def _looks(row: Row) -> tuple[Shown, tuple[Look, ...]]:
    game = shown(row)
    return game, tuple(look(text, game.mask) for text in game.texts)


def _arrays(row: Row, looks: Sequence[Look]) -> dict[str, Any]:
    """One game's numbers, its spy known."""
    spy = row["spy"]
    visible, hidden = _parts(row)
    seen = np.concatenate([look(piece).pairs for piece in visible]) if visible else np.zeros(0, dtype=np.uint64)
    shown_words = np.concatenate([look(piece).words for piece in visible]) if visible else seen
    secret = np.setdiff1d(np.concatenate([look(piece).words for piece in hidden]), shown_words) if hidden else seen[:0]
    document = look(row["document"]).pairs
    features = [
        (*each.surface, _share(each.pairs, seen), _share(each.pairs, document), _share(secret, each.words))
        for each in looks
    ]
    gap = length_gap([each.surface[0] for each in looks], spy)
    return {
        "features": features,
        "spies": spy - 1,
        "votes": row["votes"],
        "found": row["found"],
        "gaps": float("nan") if gap is None else gap,
    }


def _parts(row: Row) -> tuple[list[str], list[str]]:
    """The document's pieces that the spy sees, and those that it does not."""
    visible, hidden, position = [], [], 0
    for each in row["hidden"]:
        visible.append(row["document"][position : each["start"]])
        hidden.append(row["document"][each["start"] : each["end"]])
        position = each["end"]
    return [*visible, row["document"][position:]], hidden


def _share(own: NDArray[np.uint64], others: NDArray[np.uint64]) -> float:
    return float(np.isin(own, others).mean()) if len(own) else 0.0


def _outputs(rows: Sequence[Row], looks: Sequence[Sequence[Look]]) -> Outputs:
    outputs = [each for row in rows for each in row["outputs"]]
    ballots = [each for row in rows for each in row["ballots"]]
    outcomes: dict[str, int] = {}
    for ballot in ballots:
        if ballot["outcome"] not in ("vote", "abstained"):
            outcomes[ballot["outcome"]] = outcomes.get(ballot["outcome"], 0) + 1
    return Outputs(
        diversity(looks),
        len(outputs),
        sum(each["text"] is None for each in outputs),
        sum(each["finish_reason"] == "length" for each in outputs),
        sum(_SPEAKING.search(each["text"] or "") is not None for each in outputs),
        len(ballots),
        sum(each["outcome"] == "abstained" for each in ballots),
        sum(outcomes.values()),
        outcomes,
    )


def _stacked(batches: Sequence[Sequence[Mapping[str, Any]]]) -> Games | None:
    rows = [(row, index) for index, batch in enumerate(batches) for row in batch]
    if not rows:
        return None
    players = max(len(row["votes"]) for row, _ in rows)
    rows = [(row, index) for row, index in rows if len(row["votes"]) == players]
    return Games(
        np.array([row["features"] for row, _ in rows], dtype=float),
        np.array([row["spies"] for row, _ in rows], dtype=np.intp),
        np.array([row["votes"] for row, _ in rows], dtype=float),
        np.array([row["found"] for row, _ in rows], dtype=float),
        np.array([row["gaps"] for row, _ in rows], dtype=float),
        np.array([index for _, index in rows], dtype=np.intp),
    )
