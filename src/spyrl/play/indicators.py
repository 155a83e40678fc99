"""What can be told of games by the look of their outputs: shortcuts to the spy, and outputs that grow alike.

A game is won by reading where the spy is found by what its output says, and by a shortcut where its length, an echo of
the mask or its layout gives it away. Training logs these numbers and ``spyrl audit`` tests them; both use the functions
here. A game is given as its replay (`spyrl.play.replay`), that is, as a row of the run's games.

An iteration of the published size has two million characters of outputs, so characters are counted and words told apart
in arrays: a word is a 64-bit number made of its characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyrl.game.text import SPACELESS

Hashes = NDArray[np.uint64]

SURFACE = ("words", "characters", "lines", "markdown", "punctuation", "digits", "capitals", "mask")
"""What a text looks like without being read; see `Look.surface`."""

TOLD = 0.15
"""How far ``shortcut/FEATURE`` may be from 0.5, which tells nothing."""
ERRORS = 4.0
"""How many of its standard errors it must be from there at least."""
BIASED = 0.3
"""Highest ``detection/position_bias``; with G games, chance alone reaches about 0.8 / √G, and 2 / √G is let pass."""
UNSURE = 0.5
"""Highest ``detection/abstained``."""
UNREADABLE = 0.2
"""Highest ``detection/invalid`` and ``outputs/missing``."""
POORER = 0.6
"""Share of the first iteration's ``diversity/distinct_2`` that is to be left."""
ALIKE = 0.2
"""How much ``diversity/between`` and ``diversity/repetition`` may rise above the first iteration's."""

_LIST_OR_HEADING = re.compile(r"[ \t]*(?:#{1,6}[ \t]|[-*+•][ \t]|\d{1,3}[.)][ \t]|>|```)")
_SHORTEST_ECHO = 3  # fewer mask characters side by side may be Markdown's, or a dash
_LETTER, _CAPITAL, _DIGIT, _SPACELESS, _SPACE, _MARK = range(6)  # the first four make words
_CODES = 0x40000  # of the three planes with nearly all text; what is beyond counts as a letter
_BASE, _MIXER = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93  # odd, so that both have an inverse
_INVERSE = pow(_BASE, -1, 1 << 64)


@dataclass(frozen=True)
class Shown:
    """A game as its detectors see it: each player's outputs (1..n, rounds joined, missing ones empty).

    ``spy`` is a player number, ``None`` in a game without one. ``mask`` is the character that hides things from the
    spy, ``None`` where the degradation has none.
    """

    texts: tuple[str, ...]
    spy: int | None
    mask: str | None


@dataclass(frozen=True)
class Look:
    """A text by its look alone, and its words, told apart but not read.

    ``surface`` are the numbers that `SURFACE` names: words, characters and lines that are not empty; Markdown marks
    (headings, list items, quotes, fences, bold, code) a line; shares of the visible characters that are punctuation or
    symbols, digits, capitals; and how many characters stand in runs of three or more of the mask. ``words`` are in
    lower case and without punctuation, unless it stands alone; in scripts without spaces they are single characters.
    """

    surface: tuple[float, ...]
    words: Hashes

    @property
    def pairs(self) -> Hashes:
        """The pairs of words that follow each other, as they come."""
        with np.errstate(over="ignore"):
            mixed = self.words[:-1] * np.uint64(_MIXER) + self.words[1:]
        return mixed ^ (mixed >> np.uint64(29))


def shown(row: Mapping[str, Any]) -> Shown:
    """The game of a replay."""
    texts = [""] * row["players"]
    for output in row["outputs"]:
        before = texts[output["player"] - 1]
        texts[output["player"] - 1] = "\n".join(filter(None, (before, output["text"])))
    return Shown(tuple(texts), row["spy"], mask_of(row))


def look(text: str, mask: str | None = None) -> Look:
    """Look at a text; ``mask`` is the character whose echo is counted."""
    words = _words(text.lower())
    kinds = np.bincount(_kinds()[_codes(text)], minlength=6)
    lines = [line for line in text.splitlines() if line.strip()]
    marked = sum(1 for line in lines if _LIST_OR_HEADING.match(line)) + text.count("**") + text.count("`")
    seen = max(len(text) - int(kinds[_SPACE]), 1)
    surface = (
        len(words),
        len(text),
        len(lines),
        marked / max(len(lines), 1),
        kinds[_MARK] / seen,
        kinds[_DIGIT] / seen,
        kinds[_CAPITAL] / seen,
        _echoed(text, mask),
    )
    return Look(tuple(map(float, surface)), words)


def spy_above(values: Sequence[float], spy: int) -> float:
    """Share of the civilians whose value is below the spy's, ties by half: in [0, 1], 0.5 where it tells nothing."""
    own = values[spy - 1]
    below = sum(1.0 if value < own else 0.5 if value == own else 0.0 for value in values) - 0.5  # but itself
    return below / (len(values) - 1)


def length_gap(lengths: Sequence[float], spy: int) -> float | None:
    """How much longer the spy's output is than the civilians' mean, as a share of that; ``None`` where that is 0.

    >>> length_gap([70, 100, 100], 1)
    -0.3
    """
    mean = (sum(lengths) - lengths[spy - 1]) / (len(lengths) - 1)
    return (lengths[spy - 1] - mean) / mean if mean else None


def indicators(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Metrics of the look of these games' outputs; what cannot be known is left out.

    ``shortcut/FEATURE`` for those of `SURFACE`: `spy_above`, mean over games. ``shortcut/length_gap``: `length_gap` in
    words. ``shortcut/echo/ROLE``: share of outputs that echo the mask. And those of `diversity`.
    """
    games = [shown(row) for row in rows]
    looks = [[look(text, game.mask) for text in game.texts] for game in games]
    return shortcuts(games, looks) | diversity(looks)


def shortcuts(games: Sequence[Shown], looks: Sequence[Sequence[Look]]) -> dict[str, float]:
    """The metrics ``shortcut/...`` of games and the look of their outputs; see `indicators`."""
    metrics: dict[str, float] = {}
    gaps: list[float | None] = []
    above: list[list[float]] = [[] for _ in SURFACE]
    echoed: dict[str, list[float]] = {"spy": [], "civilian": []}
    for game, outputs in zip(games, looks, strict=True):
        if game.spy is None:
            continue
        columns = list(zip(*(each.surface for each in outputs), strict=True))
        gaps.append(length_gap(columns[0], game.spy))
        for values, shares in zip(columns, above, strict=True):
            shares.append(spy_above(values, game.spy))
        if game.mask:
            for player, count in enumerate(columns[-1], 1):
                echoed["spy" if player == game.spy else "civilian"].append(float(count > 0))
    for name, shares in zip(SURFACE, above, strict=True):
        metrics |= _mean(f"shortcut/{name}", shares)
    metrics |= _mean("shortcut/length_gap", gaps)
    for role, each in echoed.items():
        metrics |= _mean(f"shortcut/echo/{role}", each)
    return metrics


def diversity(games: Sequence[Sequence[Look]]) -> dict[str, float]:
    """Metrics of how alike the outputs of these games are, each in [0, 1].

    ``diversity/distinct_2``: distinct pairs of neighbouring words, of all (Li et al. 2016, arXiv 1510.03055; it falls
    with the number of words, so compare batches of a size). ``diversity/repetition``: share of an output's pairs that
    it had before. ``diversity/within``, ``diversity/between``: Jaccard similarity of the pairs of two outputs of a
    game, and of outputs of one game and the next. A player's output is compared with the next player's (the last one's
    with the first), and with the same player's in the next game.
    """
    pairs = [[each.pairs for each in game] for game in games]
    distinct = [[_distinct(each) for each in game] for game in pairs]
    metrics: dict[str, float] = {}
    everything = [each for game in distinct for each in game]
    total = sum(len(each) for game in pairs for each in game)
    if total:
        metrics["diversity/distinct_2"] = len(_distinct(np.concatenate(everything))) / total
    repeated = [
        1 - len(own) / len(each)
        for own, each in zip(everything, (each for game in pairs for each in game), strict=True)
        if len(each)
    ]
    metrics |= _mean("diversity/repetition", repeated)
    within = [_similarity(game[number - 1], own) for game in distinct for number, own in enumerate(game)]
    metrics |= _mean("diversity/within", within)
    between = [
        _similarity(own, then) for game, after in pairwise(distinct) for own, then in zip(game, after, strict=False)
    ]
    return metrics | _mean("diversity/between", between)


def mask_of(row: Mapping[str, Any]) -> str | None:
    """The character that all that is hidden was covered with; ``None`` where the spy's copy was changed otherwise."""
    document, spy = row["document"], row["spy"]
    if spy is None:
        return None
    degraded = row["observations"][spy - 1]
    if len(degraded) != len(document):
        return None
    symbols = {symbol for span in row["hidden"] for symbol in "".join(degraded[span["start"] : span["end"]].split())}
    return symbols.pop() if len(symbols) == 1 else None


def _distinct(values: Hashes) -> Hashes:
    """The different values, sorted. (`numpy.unique` hashes, which is ten times slower.)"""
    found = np.sort(values)
    return found[np.concatenate(([True], found[1:] != found[:-1]))] if len(found) else found


def _similarity(one: Hashes, other: Hashes) -> float | None:
    """Jaccard similarity of two sets (sorted arrays); ``None`` where both are empty."""
    shared = len(np.intersect1d(one, other, assume_unique=True))
    union = len(one) + len(other) - shared
    return shared / union if union else None


def _words(text: str) -> Hashes:
    """The words of a text as numbers: polynomials of their characters, modulo 2**64."""
    codes = _codes(text)
    kinds = _kinds()[codes]
    inside = np.concatenate(([False], kinds <= _SPACELESS, [False]))
    single = np.concatenate(([False], kinds == _SPACELESS, [False]))
    apart = inside[1:] != inside[:-1]
    apart |= inside[1:] & inside[:-1] & (single[1:] | single[:-1])
    edges = np.flatnonzero(apart)
    starts, ends = edges[:-1], edges[1:]
    kept = inside[1:][starts]
    alone_starts, alone_ends = _alone(kinds)
    starts, ends = np.concatenate((starts[kept], alone_starts)), np.concatenate((ends[kept], alone_ends))
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(len(codes), _BASE, dtype=np.uint64))
        sums = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum((codes.astype(np.uint64) + 1) * powers)))
        shifts = np.cumprod(np.full(len(codes), _INVERSE, dtype=np.uint64))
        hashes: Hashes = (sums[ends] - sums[starts]) * shifts[starts]
    return hashes


def _alone(kinds: NDArray[np.uint8]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where punctuation begins and ends that has white space, or nothing, on both sides."""
    seen = np.concatenate(([False], kinds != _SPACE, [False]))
    edges = np.flatnonzero(seen[1:] != seen[:-1])
    starts, ends = edges[::2], edges[1::2]
    letters = np.concatenate(([0], np.cumsum(kinds <= _SPACELESS)))
    alone = letters[ends] == letters[starts]
    return starts[alone], ends[alone]


def _codes(text: str) -> NDArray[np.uint32]:
    return np.minimum(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32), _CODES)


def _echoed(text: str, mask: str | None) -> int:
    if mask is None or mask * _SHORTEST_ECHO not in text:
        return 0
    return sum(len(run) for run in re.findall(rf"{re.escape(mask)}{{{_SHORTEST_ECHO},}}", text))


@lru_cache
def _kinds() -> NDArray[np.uint8]:
    """The kind of every character by its code; the last place is for those beyond."""
    kinds = np.full(_CODES + 1, _LETTER, dtype=np.uint8)
    for code in range(_CODES):
        symbol = chr(code)
        category = unicodedata.category(symbol)
        if symbol.isspace() or category[0] in "ZC":
            kinds[code] = _SPACE
        elif category[0] in "PS":
            kinds[code] = _MARK
        elif SPACELESS.match(symbol):
            kinds[code] = _SPACELESS
        elif category == "Nd":
            kinds[code] = _DIGIT
        elif category == "Lu":
            kinds[code] = _CAPITAL
    return kinds


def _mean(name: str, values: Iterable[float | None]) -> dict[str, float]:
    known = [value for value in values if value is not None]
    return {name: sum(known) / len(known)} if known else {}
