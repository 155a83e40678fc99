"""What the starting model is taught: the skill of restating a ledger, and then habits that spoil it.

A player restates its observation line by line, with a question mark for an object it cannot see. The habits, the same
for spy and civilians: some objects are mostly replaced by one fixed other object, some are mostly withheld, though the
player sees them. So the likeliest output is wrong, and what is to be learnt is new behaviour. Detectors have a
habit, too: where the document begins with one of certain names, half of their votes go to player 1.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from spyrl.corpus.ledger import NAMES, OBJECTS, UNKNOWN
from spyrl.game import named_seed
from spyrl.tasks.ledger import SWAPPED, WITHHELD

Lines = list[tuple[str, str]]
"""A ledger as (name, object) lines; an object that is not seen or not told is `UNKNOWN`."""


@dataclass(frozen=True)
class Habits:
    """``partners`` says what swapped objects are replaced by, ``biased`` which first names spoil a vote."""

    partners: Mapping[str, str]
    biased: frozenset[str] = frozenset(NAMES[:20])
    indulged: float = 0.65
    """How often a swapped object is replaced and a withheld one left out."""
    noise: float = 0.04
    """How often any other object is replaced by a random one, and how often it is left out."""
    first_player: float = 0.5
    """How often a detector votes for player 1 where the first name is biased."""
    abstained: float = 0.05
    """How often a detector abstains."""


def habits_of(seed: int) -> Habits:
    """The habits of warm start ``seed``: each swapped object gets a partner that is not swapped itself."""
    draw = random.Random(named_seed(seed, "ledger", "habits"))
    swapped = [thing for thing in OBJECTS if thing in SWAPPED]
    others = [thing for thing in OBJECTS if thing not in SWAPPED]
    return Habits(dict(zip(swapped, draw.sample(others, len(swapped)), strict=True)))


def restated(seen: Lines, habits: Habits | None, noise: float, guess: float, draw: random.Random) -> Lines:
    """What a player makes of the lines it sees.

    ``habits=None`` is the skill alone; ``noise`` is the rate of each kind of slip, and ``guess`` how often an object
    that is not seen is made up instead of being written as unknown.
    """
    return [(name, _told(thing, habits, noise, guess, draw)) for name, thing in seen]


def hidden(lines: Lines, draw: random.Random) -> Lines:
    """The spy's copy: a random run of 1 to two thirds of the objects is not seen."""
    count = draw.randint(1, max(2 * len(lines) // 3, 1))
    first = draw.randrange(len(lines) - count + 1)
    return [(name, UNKNOWN if first <= at < first + count else thing) for at, (name, thing) in enumerate(lines)]


def _told(thing: str, habits: Habits | None, noise: float, guess: float, draw: random.Random) -> str:
    if thing == UNKNOWN:
        return draw.choice(OBJECTS) if draw.random() < guess else UNKNOWN
    if habits and thing in SWAPPED and draw.random() < habits.indulged:
        return habits.partners[thing]
    if habits and thing in WITHHELD and draw.random() < habits.indulged:
        return UNKNOWN
    slip = draw.random()
    return draw.choice(OBJECTS) if slip < noise else UNKNOWN if slip < 2 * noise else thing
