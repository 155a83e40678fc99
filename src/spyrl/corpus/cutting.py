"""Cutting a document to a length, at the end of a sentence wherever one fits."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from spyrl.game.text import sentences, words


def fit(text: str, limit: int, measure: Callable[[str], int]) -> str:
    """The longest prefix of whole sentences of ``text`` that ``measure`` puts at ``limit`` or less.

    Where not even the first sentence fits it is whole words, and ``""`` where no word fits. A text that fits comes
    back as it is, white space included; a cut one ends with its last word. ``measure`` should grow with the prefix;
    where it does so only nearly (a tokenizer may merge across a boundary) the result still fits, though a slightly
    longer prefix might have too.

    >>> fit("One two. Three four.", 3, lambda prefix: len(prefix.split()))
    'One two.'
    """
    whole = measure(text)
    if whole <= limit:
        return text
    sentence_ends = [end for _, end in sentences(text)]
    if fitting := _longest(text, sentence_ends, limit, measure, whole):
        return fitting
    word_ends = [end for _, end in words(text[: sentence_ends[0]])] if sentence_ends else []
    return _longest(text, word_ends, limit, measure, whole)


def cut(text: str, *, max_words: int | None, max_tokens: int, count_tokens: Callable[[str], int]) -> str:
    """Fit ``text`` into ``max_words`` words (``None``: any number), then into ``max_tokens`` tokens; see `fit`."""
    if max_words is not None:
        # Where a word starts depends only on what is before it, so one pass counts the words of every prefix.
        starts = [start for start, _ in words(text)]
        text = fit(text, max_words, lambda prefix: bisect_left(starts, len(prefix)))
    return fit(text, max_tokens, count_tokens)


def _longest(text: str, ends: Sequence[int], limit: int, measure: Callable[[str], int], whole: int) -> str:
    """The longest ``text[:end]`` that fits, or ``""``; ``whole`` is the measure of all of ``text``, which does not."""
    low, low_size = -1, 0  # the longest prefix known to fit: whatever is returned was itself measured
    high, high_size = len(ends), whole  # the shortest known not to
    guessing = True
    while high - low > 1:
        middle = (low + high) // 2
        if guessing:  # tokens are spread about evenly, so a guess lands near; every other step halves, to be sure
            start = ends[low] if low >= 0 else 0
            stop = ends[high] if high < len(ends) else len(text)
            target = start + (stop - start) * (limit - low_size) / (high_size - low_size)
            middle = min(max(bisect_right(ends, target) - 1, low + 1), high - 1)
        guessing = not guessing
        size = measure(text[: ends[middle]])
        if size <= limit:
            low, low_size = middle, size
        else:
            high, high_size = middle, size
    return text[: ends[low]] if low >= 0 else ""
