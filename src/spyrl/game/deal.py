"""The deal: which document, who is the spy, and what each player sees (paper Eq. 2).

``z`` is the spy's number ``u ~ Uniform{1..n}``; civilians observe ``o_i = x`` and the spy ``o_u = g(x)``, g being
the degradation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spyrl.game.degradation import Degradation, Nothing
from spyrl.game.randomness import generator
from spyrl.game.text import Span

Role = Literal["civilian", "spy"]

MIN_PLAYERS = 3
MAX_PLAYERS = 26


@dataclass(frozen=True)
class Document:
    """A text of the corpus, with an id that names it there."""

    id: str
    text: str


@dataclass(frozen=True)
class Deal:
    """One game's hidden truth and what each player was given.

    ``spy`` is a player number in 1..players, or ``None`` in the ablation without a spy. ``degraded`` is the
    spy's observation and ``hidden`` the spans of the document that it does not show as they are.
    """

    iteration: int
    game: int
    document: Document
    players: int
    spy: int | None
    degraded: str
    hidden: tuple[Span, ...]

    def role(self, player: int) -> Role:
        """Role of ``player`` (1..players)."""
        return "spy" if player == self.spy else "civilian"

    def observation(self, player: int) -> str:
        """What ``player`` (1..players) sees: the document, or for the spy what the degradation left of it (Eq. 2)."""
        return self.degraded if player == self.spy else self.document.text

    @property
    def numbers(self) -> range:
        """The players' numbers, 1..players."""
        return range(1, self.players + 1)


def deal(document: Document, *, players: int, degradation: Degradation, seed: int, iteration: int, game: int) -> Deal:
    """Deal one game: draw the spy and degrade the document for it (paper Eq. 2).

    Depends on the document and on (seed, iteration, game) only. Raises `DocumentTooShortError` when
    nothing of the document can be hidden and `ValueError` for a number of players outside 3..26.
    """
    if not MIN_PLAYERS <= players <= MAX_PLAYERS:
        raise ValueError(f"players must be in {MIN_PLAYERS}..{MAX_PLAYERS}, not {players}")
    if isinstance(degradation, Nothing):
        return Deal(iteration, game, document, players, None, document.text, ())
    spy = generator(seed, iteration, game, "spy").randint(1, players)
    degraded = degradation.degrade(document.text, generator(seed, iteration, game, "degradation"), document.id)
    return Deal(iteration, game, document, players, spy, degraded.text, degraded.hidden)
