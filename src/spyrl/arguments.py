"""What commands read alike from the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from spyrl.errors import UsageError


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"should be 1 or more, not {number}")
    return number


def split_words(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The preset or file, if one is named, and the settings ``key=value``. Raises `UsageError` for two of the first."""
    sources = [word for word in words if "=" not in word]
    if len(sources) > 1:
        raise UsageError(f"one preset or file at a time, not {' and '.join(sources)}; settings are written key=value")
    return (sources[0] if sources else None), [word for word in words if "=" in word]
