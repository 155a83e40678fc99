"""Degradations ``g``: what the spy's copy of a document loses (paper Eq. 2).

The published one masks one random contiguous span: 20 % for writing and summarization, 40 % for maths. Each class
here has one method, ``degrade(text, generator, document_id)``, is deterministic in its generator and reports the
spans of the original that it did not leave as they were.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Literal, Protocol

from spyrl.game.text import Span, sentences, words

Unit = Literal["words", "characters", "sentences"]

_LINE_BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"  # where str.splitlines breaks


class DocumentTooShortError(ValueError):
    """The document has too little in it for this degradation; the message names the document."""

    def __init__(self, document_id: str, needs: str) -> None:
        super().__init__(f"document {document_id!r} is too short to degrade: it needs {needs}")
        self.document_id = document_id


@dataclass(frozen=True)
class Degraded:
    """A degraded text and the spans of the original that were hidden, moved or changed, in order."""

    text: str
    hidden: tuple[Span, ...]


class Degradation(Protocol):
    """What every degradation does."""

    def degrade(self, text: str, generator: random.Random, document_id: str = "") -> Degraded:
        """Degrade ``text``; raises `DocumentTooShortError` where nothing can be hidden or nothing would stay."""
        ...


@dataclass(frozen=True)
class Mask:
    """Masks one random contiguous span of about ``fraction`` (in (0, 1)) of the text's units.

    Every character of the span but its line breaks becomes ``character``, so length and layout stay. At least
    one word is hidden, and at least one stays whole. What the regular expression ``keep`` matches inside the span, and
    the white space around that, stays as it is.
    """

    fraction: float = 0.2
    unit: Unit = "words"
    character: str = "_"
    keep: str | None = None

    def degrade(self, text: str, generator: random.Random, document_id: str = "") -> Degraded:
        """See `Degradation.degrade`."""
        if self.unit == "characters":
            span = self._characters(text, generator, document_id)
        else:
            units = words(text) if self.unit == "words" else sentences(text)
            if len(units) < 2:
                raise DocumentTooShortError(document_id, f"at least two {self.unit}")
            count = min(max(round(self.fraction * len(units)), 1), len(units) - 1)
            first = generator.randrange(len(units) - count + 1)
            span = (units[first][0], units[first + count - 1][1])
        hidden = _without(self.keep, text, span) if self.keep else (span,)
        covered = text
        for piece in hidden:
            covered = _covered(covered, piece, self.character)
        if covered == text:
            met = f"{self.character!r}" + (f" and what keep={self.keep!r} matches" if self.keep else "")
            raise DocumentTooShortError(document_id, f"more to hide than {met}, which is all the mask met")
        return Degraded(covered, hidden)

    def _characters(self, text: str, generator: random.Random, document_id: str) -> Span:
        found = words(text)
        if len(found) < 2:
            raise DocumentTooShortError(document_id, "at least two words")
        begin, end = found[0][0], found[-1][1]
        length = max(round(self.fraction * (end - begin)), 1)
        starts: list[int] = []
        while not starts:
            # For one word to stay whole, the span ends before the last one begins or begins after the first ends.
            early, late = found[-1][0] - length, found[0][1]
            starts = [start for start in range(begin, end - length + 1) if start <= early or start >= late]
            length = length if starts else length - 1
        span = (0, 0)
        while not text[slice(*span)].strip():
            start = generator.choice(starts)
            span = (start, start + length)
        return span


@dataclass(frozen=True)
class DropSentences:
    """Leaves out about ``fraction`` of the sentences, drawn at random; at least one goes and one stays."""

    fraction: float = 0.2

    def degrade(self, text: str, generator: random.Random, document_id: str = "") -> Degraded:
        """See `Degradation.degrade`."""
        found = sentences(text)
        if len(found) < 2:
            raise DocumentTooShortError(document_id, "at least two sentences")
        count = min(max(round(self.fraction * len(found)), 1), len(found) - 1)
        dropped = [found[index] for index in sorted(generator.sample(range(len(found)), count))]
        kept, position = [], 0
        for start, end in dropped:
            kept.append(text[position:start])
            position = end + len(text[end:]) - len(text[end:].lstrip(" \t"))
        return Degraded("".join([*kept, text[position:]]), tuple(dropped))


@dataclass(frozen=True)
class ShuffleSentences:
    """Puts the sentences in another order; nothing is hidden but what followed from what."""

    def degrade(self, text: str, generator: random.Random, document_id: str = "") -> Degraded:
        """See `Degradation.degrade`."""
        found = sentences(text)
        pieces = [text[start:end] for start, end in found]
        if len(set(pieces)) < 2:
            raise DocumentTooShortError(document_id, "at least two different sentences")
        shuffled = pieces
        while shuffled == pieces:
            shuffled = generator.sample(pieces, len(pieces))
        parts, position = [], 0
        for (start, end), piece in zip(found, shuffled, strict=True):
            parts += [text[position:start], piece]
            position = end
        moved = tuple(span for span, old, new in zip(found, pieces, shuffled, strict=True) if old != new)
        return Degraded("".join([*parts, text[position:]]), moved)


@dataclass(frozen=True)
class ChangeNumbers:
    """Changes about ``fraction`` of the numbers to others of as many digits (at least one)."""

    fraction: float = 1.0

    def degrade(self, text: str, generator: random.Random, document_id: str = "") -> Degraded:
        """See `Degradation.degrade`."""
        found = [match.span() for match in re.finditer(r"[0-9]+", text)]
        if not found:
            raise DocumentTooShortError(document_id, "at least one number")
        count = max(round(self.fraction * len(found)), 1)
        changed = [found[index] for index in sorted(generator.sample(range(len(found)), count))]
        parts, position = [], 0
        for start, end in changed:
            parts += [text[position:start], _other_number(text[start:end], generator)]
            position = end
        return Degraded("".join([*parts, text[position:]]), tuple(changed))


@dataclass(frozen=True)
class Everything:
    """Hides the whole document: the spy sees nothing of it."""

    def degrade(self, text: str, generator: random.Random, document_id: str = "") -> Degraded:
        """See `Degradation.degrade`."""
        if not text.strip():
            raise DocumentTooShortError(document_id, "at least one word")
        return Degraded("", ((0, len(text)),))


@dataclass(frozen=True)
class Nothing:
    """Hides nothing: the ablation without a spy (Table 8). A deal with it has no spy at all."""

    def degrade(self, text: str, generator: random.Random, document_id: str = "") -> Degraded:
        """See `Degradation.degrade`."""
        return Degraded(text, ())


Kind = Literal["mask", "drop_sentences", "shuffle_sentences", "change_numbers", "everything", "nothing"]


@dataclass(frozen=True)
class DegradationSettings:
    """Which degradation the spy's copy suffers."""

    kind: Kind = "mask"
    """``mask`` (paper), ``drop_sentences``, ``shuffle_sentences``, ``change_numbers``, ``everything``, ``nothing``."""
    fraction: float = 0.2
    """Share of the document that is hidden, in (0, 1]: paper 0.2 for writing and summarization, 0.4 for maths."""
    unit: Unit = "words"
    """What ``mask`` counts and never cuts in two."""
    character: str = "_"
    """What a hidden character looks like. Runs of underscores cost few tokens in common tokenizers."""
    keep: str | None = None
    """Regular expression of what ``mask`` leaves visible inside its span, as headings or names."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 < self.fraction <= 1 or (self.kind == "mask" and self.fraction == 1):
            raise ValueError(f"fraction must be in (0, 1), not {self.fraction} (to hide all: kind=everything)")
        if len(self.character) != 1 or self.character.isspace():
            raise ValueError(f"character must be one visible character, not {self.character!r}")
        try:
            re.compile(self.keep or "")
        except re.error as error:
            raise ValueError(f"keep must be a regular expression, not {self.keep!r}: {error}") from None

    def make(self) -> Degradation:
        """The degradation these settings describe."""
        match self.kind:
            case "mask":
                return Mask(self.fraction, self.unit, self.character, self.keep)
            case "drop_sentences":
                return DropSentences(self.fraction)
            case "shuffle_sentences":
                return ShuffleSentences()
            case "change_numbers":
                return ChangeNumbers(self.fraction)
            case "everything":
                return Everything()
            case "nothing":
                return Nothing()


def _without(keep: str, text: str, span: Span) -> tuple[Span, ...]:
    """The parts of ``span`` that ``keep`` does not match, each without white space at its ends."""
    pieces: list[Span] = []
    position, end = span
    for kept in [*(match.span() for match in re.finditer(keep, text[slice(*span)])), (end - position,) * 2]:
        start, stop = position, span[0] + kept[0]
        piece = text[start:stop]
        if piece.strip():
            pieces.append((start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())))
        position = max(span[0] + kept[1], position)
    return tuple(pieces)


def _covered(text: str, span: Span, character: str) -> str:
    start, end = span
    hidden = "".join(symbol if symbol in _LINE_BREAKS else character for symbol in text[start:end])
    return text[:start] + hidden + text[end:]


def _other_number(digits: str, generator: random.Random) -> str:
    """A different number of as many digits; the first digit of a longer number stays above zero if it was."""
    other = digits
    while other == digits:
        first = str(generator.randint(1, 9)) if len(digits) > 1 and digits[0] != "0" else str(generator.randint(0, 9))
        other = first + "".join(str(generator.randint(0, 9)) for _ in digits[1:])
    return other
