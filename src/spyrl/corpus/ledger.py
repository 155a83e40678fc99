"""Ledgers: generated documents of facts, each a name and an object, for the ledger task.

A small world whose quality is known exactly: a restated ledger is as good as its facts are right. A document has six
lines of ``Name: object``, names and objects all different. Documents belong to the train or the test split by a
digest of their text, so the splits are disjoint whatever the seed.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable

from spyrl.errors import UsageError
from spyrl.game.deal import Document
from spyrl.game.randomness import generator

NAMES = tuple(
    "Ada Ben Cleo Dan Eva Finn Gus Hana Ivo Jin Kai Lena Max Nia Otto Pia Quinn Rosa Sam Tess "  # noqa: SIM905
    "Uma Vik Wren Xena Yara Zoe Amos Bela Cyd Dora Elio Fay Gil Hugo Ines Juno Kofi Lars Mira Noor".split()
)
"""The forty names."""

OBJECTS = tuple(
    "lamp key ring drum map coin boat kite harp clock rope bell vase book comb sword chair crown flute tent "  # noqa: SIM905
    "axe bowl cup desk egg fan glove hat iron jar knife ladle mug net oar pen quilt rug sock tray".split()
)
"""The forty objects."""

FACTS = 6
"""Facts in a document."""

UNKNOWN = "?"
"""What stands for an object that a player does not know."""

MOST_PLAYERS = 8
"""Players that the ledger's models have numbers for."""

SPLITS = ("train", "test")

_BLOCK = 1024
_TEST_SHARE = 26  # of 256 values of the digest's first byte: about a tenth
_FACT = re.compile(r"(\S+):[ \t]+(\S+)")  # on one line: a name without an object takes none from the next


def facts(text: str) -> dict[str, str]:
    """The facts that ``text`` states: name → object, the first where a name is stated twice.

    An object written as unknown states nothing.

    >>> facts("Ada: lamp\\nBen: ?\\nCleo: key")
    {'Ada': 'lamp', 'Cleo': 'key'}
    """
    found: dict[str, str] = {}
    for name, thing in _FACT.findall(text):
        if thing != UNKNOWN:
            found.setdefault(name, thing)
    return found


def ledger(draw: random.Random, lines: int = FACTS) -> str:
    """A ledger of ``lines`` facts (1 to 40) drawn uniformly."""
    names, objects = draw.sample(NAMES, lines), draw.sample(OBJECTS, lines)
    return written(zip(names, objects, strict=True))


def written(lines: Iterable[tuple[str, str]]) -> str:
    """Names and objects as the text of a ledger, one line each."""
    return "\n".join(f"{name}: {thing}" for name, thing in lines)


def split_of(text: str) -> str:
    """The split a document belongs to: about one in ten is test."""
    return "test" if hashlib.sha256(text.encode()).digest()[0] < _TEST_SHARE else "train"


class LedgerRows:
    """Endless ledgers of one split (or the first ``limit``), in blocks of 1,024; see `spyrl.corpus.corpus.Rows`."""

    def __init__(self, split: str, seed: int, limit: int | None = None) -> None:
        if split not in SPLITS:
            raise UsageError(f"corpus.split={split}: ledgers have the splits {' and '.join(SPLITS)}.")
        self._split, self._seed = split, seed
        self.size = limit

    def block(self, number: int) -> list[Document]:
        """The documents of block ``number``; without a limit every block has some."""
        draw = generator(self._seed, "ledger", self._split, number)
        wanted = _BLOCK if self.size is None else min(self.size - number * _BLOCK, _BLOCK)
        found: list[Document] = []
        while len(found) < wanted:
            text = ledger(draw)
            if split_of(text) == self._split:
                found.append(Document(f"ledger-{self._split}-{number}-{len(found)}", text))
        return found
