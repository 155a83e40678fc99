r"""Ballots: what a detector answered (paper Eq. 4: ``v_i ~ π(· | o_i, y_1..y_n)``).

The last balanced ``\boxed{...}`` of the answer counts, since models revise themselves; inside it a player's number
with any words around it, or N/A in its usual spellings. Whatever else is found has a name of its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Outcome = Literal[
    "vote",
    "abstained",
    "empty",
    "no_box",
    "unclosed",
    "unreadable",
    "ambiguous",
    "out_of_range",
    "self_vote",
]
"""``vote`` and ``abstained`` are readable; every other outcome is an invalid ballot, scored as wrong."""

INVALID: tuple[Outcome, ...] = tuple(outcome for outcome in get_args(Outcome) if outcome not in ("vote", "abstained"))

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_ABSTENTIONS = frozenset(
    {"na", "none", "noone", "nobody", "notapplicable", "notavailable", "unsure", "notsure", "unknown", "abstain"}
)


@dataclass(frozen=True)
class Ballot:
    """One detector's parsed answer.

    ``voter`` is the player that voted, or ``None`` for a detector that is no player. ``choice`` is a player
    number exactly when ``outcome`` is ``vote``. ``probabilities`` of a direct ballot is the exact distribution
    over players 1..n and, last, N/A.
    """

    voter: int | None
    outcome: Outcome
    choice: int | None = None
    text: str = ""
    probabilities: tuple[float, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether the answer could be read: a vote or an abstention."""
        return self.outcome not in INVALID


def read_ballot(text: str, *, players: int, voter: int | None = None, self_vote: bool = True) -> Ballot:
    r"""Read a reasoned answer. Never raises: whatever is wrong with it becomes the ballot's outcome.

    ``self_vote=False`` rules out that ``voter`` names itself.

    >>> read_ballot(r"First \boxed{2}, no: \boxed{\text{Player 3}}", players=5).choice
    3
    """
    outcome, choice = _read(text, players, voter if not self_vote else None)
    return Ballot(voter, outcome, choice, text)


def direct_choices(players: int, barred: int | None = None) -> tuple[str, ...]:
    """What a direct ballot chooses among: "1".."n", without ``barred``, and "N/A"."""
    return (*(str(number) for number in range(1, players + 1) if number != barred), "N/A")


def direct_ballot(
    text: str, probabilities: Sequence[float], *, players: int, voter: int | None = None, barred: int | None = None
) -> Ballot:
    """The ballot of a detector that chose ``text`` among `direct_choices` with these ``probabilities``.

    The ballot's own ``probabilities`` are over all players and N/A; a barred player has 0.
    """
    given = dict(zip(direct_choices(players, barred), probabilities, strict=True))
    whole = tuple(given.get(name, 0.0) for name in direct_choices(players))
    if text == "N/A":
        return Ballot(voter, "abstained", None, text, whole)
    return Ballot(voter, "vote", int(text), text, whole)


def last_boxed(text: str) -> tuple[str | None, bool]:
    r"""Content of the last balanced ``\boxed{...}`` (``None`` without one), and whether any box was begun."""
    starts = {match.end() for match in _BOX.finditer(text)}
    opened: list[int] = []  # where the braces that are still open begin
    last: tuple[int, int] | None = None
    position = min(starts) - 1 if starts else len(text)
    while position < len(text):
        if text[position] == "\\":
            position += 1  # an escaped brace is no brace
        elif text[position] == "{":
            opened.append(position + 1)
        elif text[position] == "}" and opened:
            start = opened.pop()
            if start in starts and (last is None or start > last[0]):
                last = (start, position)
        position += 1
    return (text[slice(*last)] if last else None), bool(starts)


def _read(text: str, players: int, barred: int | None) -> tuple[Outcome, int | None]:
    if not text.strip():
        return "empty", None
    content, begun = last_boxed(text)
    if content is None:
        return ("unclosed" if begun else "no_box"), None
    content = unicodedata.normalize("NFKC", content)
    content = re.sub(r"\\[a-zA-Z]+\*?", " ", content)  # \text, \mathrm, ...
    numbers = {_number(digits) for digits in re.findall(r"\d+", content)}
    letters = re.sub(r"[\W\d_]", "", content).lower()
    abstains = letters in _ABSTENTIONS or re.search(r"\bn\s*/\s*a\b", content, re.IGNORECASE) is not None
    if len(numbers) > 1 or (numbers and abstains):
        return "ambiguous", None
    if not numbers:
        return ("abstained" if abstains else "unreadable"), None
    number = numbers.pop()
    if not 1 <= number <= players or re.match(r"\W*[-−]\d", content.strip()):
        return "out_of_range", None
    if number == barred:
        return "self_vote", None
    return "vote", number


def _number(digits: str) -> int:
    """The number, or 0 for one far too long to name a player (Python refuses to parse the longest)."""
    return int(digits) if len(digits) < 10 else 0
