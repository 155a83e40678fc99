"""Words and sentences of any script, as character spans.

A word is what white space separates; in scripts that are written without spaces (Chinese, Japanese, Thai, …) it is
one character with the marks that combine with it.
"""

from __future__ import annotations

import re
import unicodedata

Span = tuple[int, int]
"""Half-open range of characters, ``[start, end)``."""

SPACELESS = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u3005-\u3007\u3040-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""A character of the scripts that are written without spaces."""

_SENTENCE_END = re.compile(
    r"""[.!?…]+["'”’»)\]]*(?=\s)"""  # a stop before white space
    r"""|[。！？．]+["'”’」』）]*"""  # a full-width stop
    r"""|[।॥؟۔]+(?=\s|$)"""  # Devanagari, Arabic, Urdu
    r"""|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+"""  # a line or page break
)


def words(text: str) -> list[Span]:
    """Spans of the words of ``text`` in order; none of them is empty and none holds white space.

    >>> [text[a:b] for text in ["two words"] for a, b in words(text)]
    ['two', 'words']
    """
    spans: list[Span] = []
    for run in re.finditer(r"\S+", text):
        start = run.start()
        for index in range(run.start(), run.end()):
            character = text[index]
            if (
                index > start
                and not _combines(character)
                and (SPACELESS.match(character) or SPACELESS.match(text[start]))
                and not _is_punctuation(character)
            ):
                spans.append((start, index))
                start = index
        spans.append((start, run.end()))
    return spans


def sentences(text: str) -> list[Span]:
    """Spans of the sentences of ``text`` in order, trimmed of white space; a line break ends one too."""
    spans: list[Span] = []
    start = 0
    for end in [match.end() for match in _SENTENCE_END.finditer(text)] + [len(text)]:
        piece = text[start:end]
        if piece.strip():
            left = start + len(piece) - len(piece.lstrip())
            spans.append((left, start + len(piece.rstrip())))
        start = end
    return spans


def _combines(character: str) -> bool:
    return unicodedata.category(character) in {"Mn", "Mc", "Me", "Cf"}


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith("P")
