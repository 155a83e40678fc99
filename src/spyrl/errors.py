"""The errors a person can act on.

Every message says what was wrong, where (file, key, line, value) and what to do; the command line prints it
without a traceback. Anything else that is raised is a defect of this package.
"""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """What a library's error says, in one line: the first of its message, or its type where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class SpyRLError(Exception):
    """A failure while working: a server, a disk, an iteration without a playable game. Exit code 1."""

    exit_code = 1


class UsageError(SpyRLError):
    """Bad input, found before any work is done: configuration, corpus, model, task. Exit code 2."""

    exit_code = 2
