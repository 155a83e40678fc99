"""What a task is: how to ask players and detectors, and how to read what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from spyrl.game.ballot import last_boxed
from spyrl.game.deal import Deal, Role
from spyrl.game.game import Output
from spyrl.game.settings import AnswerForm, OutputForm
from spyrl.policy.base import Message

MARKER = "=== OUTPUT ==="


@dataclass(frozen=True)
class PerformingTurn:
    """A player's turn in the performing stage: what it knows and what was said before it (nothing, in parallel)."""

    deal: Deal
    player: int
    round: int
    said: tuple[Output, ...]
    form: OutputForm

    @property
    def role(self) -> Role:
        """The player's role."""
        return self.deal.role(self.player)

    @property
    def observation(self) -> str:
        """The player's copy of the document."""
        return self.deal.observation(self.player)


@dataclass(frozen=True)
class DetectionTurn:
    """A detector's turn: what it reads. ``voter`` is its player number, ``None`` for one that is no player."""

    deal: Deal
    observation: str
    outputs: tuple[Output, ...]
    voter: int | None
    form: AnswerForm
    self_vote: bool


class Task(Protocol):
    """What players are asked to do. `spyrl.tasks.text.TextTask` makes one of a few sentences."""

    @property
    def name(self) -> str:
        """The task's name, as in ``task=NAME``."""
        ...

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Settings the task brings along for ``corpus`` and ``game``, as in a preset."""
        ...

    @property
    def ballot_opening(self) -> str:
        """How the assistant's turn is begun for a direct ballot, up to where the choice stands."""
        ...

    @property
    def ballot_closing(self) -> str:
        """What follows the choice of a direct ballot."""
        ...

    def performing(self, turn: PerformingTurn) -> tuple[Message, ...]:
        """The messages a player reads. Players that know the same should get the same messages: they are
        then prefilled once."""
        ...

    def detecting(self, turn: DetectionTurn) -> tuple[Message, ...]:
        """The messages a detector reads."""
        ...

    def read(self, text: str, form: OutputForm) -> str | None:
        """The output in a player's completion, or ``None`` if there is none."""
        ...


def read_output(text: str, form: OutputForm, marker: str = MARKER) -> str | None:
    r"""What the others see of a completion: all of it, what follows the last marker, or the last ``\boxed{}``.

    Nothing is invented: where the form was not kept, the output is missing.
    """
    if form == "whole":
        found: str | None = text
    elif form == "marked":
        position = text.rfind(marker)
        found = text[position + len(marker) :] if position >= 0 else None
    else:
        found, _ = last_boxed(text)
    return (found or "").strip() or None
