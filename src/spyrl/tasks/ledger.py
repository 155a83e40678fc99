"""The ledger: restate a list of facts. A small world, learnt in minutes, whose quality is known exactly.

Its prompts are for the tiny model that comes with it (`spyrl.ledger`): a word for the role, then what that player
sees. Quality is never shown to training; it is what `Task.quality` tells an evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spyrl.corpus.ledger import NAMES, OBJECTS, UNKNOWN, facts
from spyrl.game.game import Output
from spyrl.game.settings import OutputForm
from spyrl.policy.base import Message
from spyrl.tasks.base import DetectionTurn, PerformingTurn, read_output

SWAPPED = frozenset(OBJECTS[:10])
"""Objects that the starting model likes to replace by one other, the same each time."""

WITHHELD = frozenset(OBJECTS[10:20])
"""Objects that the starting model likes to leave out."""


@dataclass(frozen=True)
class LedgerTask:
    """Restate the ledger, line by line; a question mark stands for an object that is not known."""

    name: str = "ledger"
    product: str = "restated ledger"
    defaults: Mapping[str, Any] = field(
        default_factory=lambda: {
            "corpus": {"path": "generated:ledger"},
            "game": {
                "output": "whole",
                "detectors": {"answer": "direct"},
                "degradation": {"fraction": 0.4, "keep": r"\S+:"},
            },
        }
    )
    ballot_opening: str = "\\boxed{"
    ballot_closing: str = "}"

    def performing(self, turn: PerformingTurn) -> tuple[Message, ...]:
        """See `Task.performing`."""
        return _message(turn.role, turn.observation, turn.said)

    def detecting(self, turn: DetectionTurn) -> tuple[Message, ...]:
        """See `Task.detecting`. All voters are asked alike: what a voter may not choose, it is not offered."""
        return _message("detector", turn.observation, turn.outputs)

    def read(self, text: str, form: OutputForm) -> str | None:
        """See `Task.read`. Each name begins a line; what is neither a name nor an object is read as unknown.

        (Else spies learn to write player numbers, which detectors take for the headings of outputs.)
        """
        found = read_output(text, form)
        if found is None:
            return None
        lines: list[list[str]] = []
        for word in found.split():
            if word in _NAMES or not lines:
                lines.append([])
            lines[-1].append(word if word in _NAMES or word in _OBJECTS else UNKNOWN)
        return "\n".join(" ".join(line) for line in lines)

    def quality(self, document: str, output: str | None) -> dict[str, float]:
        """How good an output is, each number in [0, 1].

        ``f1`` of its facts against the document's, with ``precision`` (0 where nothing is stated) and ``recall``;
        and the recall of facts by what the starting model's habits do to their objects, where the document has any:
        ``swapped``, ``withheld`` and ``plain``.
        """
        true, stated = facts(document), facts(output or "")
        right = {name for name, thing in stated.items() if true.get(name) == thing}
        precision, recall = len(right) / max(len(stated), 1), len(right) / len(true)
        found = {
            "f1": 2 * precision * recall / (precision + recall) if right else 0.0,
            "precision": precision,
            "recall": recall,
        }
        for habit in ("swapped", "withheld", "plain"):
            names = [name for name, thing in true.items() if _habit(thing) == habit]
            if names:
                found[habit] = len(right & set(names)) / len(names)
        return found


TASK = LedgerTask()

_NAMES = frozenset(name + ":" for name in NAMES)
_OBJECTS = frozenset(OBJECTS)


def _habit(thing: str) -> str:
    return "swapped" if thing in SWAPPED else "withheld" if thing in WITHHELD else "plain"


def _message(role: str, observation: str, outputs: tuple[Output, ...]) -> tuple[Message, ...]:
    shown = "".join(f"\n{output.player}\n{output.text or ''}" for output in outputs)
    return (Message(role="user", content=f"{role}\n{observation}{shown}"),)
