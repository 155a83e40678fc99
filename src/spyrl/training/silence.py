"""The silence collapse: outputs that shrink because what is not said cannot be voted against.

A spy that stops early shows less of what it does not know, and detectors that were never taught to miss anything let it
pass. Sharing weights, civilians may follow. Training on detection catches it as a rule; where it does not, a floor on
length (``game.min_tokens``) holds it off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHRUNK = 0.6
"""Share of a role's first mean length below which its outputs count as collapsing."""


def silence_warnings(first: Mapping[str, Any], now: Mapping[str, Any], warned: set[str]) -> list[str]:
    """What to tell a person of roles whose outputs have shrunk since the run's ``first`` iteration.

    A role is told of once: ``warned`` keeps which were, and forgets those that have recovered.
    """
    told = []
    for role in ("spy", "civilian"):
        key = f"length/{role}"
        if not first.get(key) or key not in now:
            continue
        if now[key] >= SHRUNK * first[key]:
            warned.discard(role)
        elif role not in warned:
            warned.add(role)
            who = "the spy's" if role == "spy" else "civilians'"
            told.append(
                f"silence: {who} outputs are down to {now[key]:.0f} tokens from {first[key]:.0f}; what is not said is "
                "not voted against. game.min_tokens sets a floor"
            )
    return told
