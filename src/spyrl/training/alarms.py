"""Alarms: what a person should know when an iteration's numbers say that the game is being won without reading.

Each number is logged in every iteration (docs/metrics.md); a line is said when one crosses its threshold, once a run.
The thresholds, in `spyrl.play.indicators`, leave room for chance, so that small batches raise no alarm by luck;
``spyrl audit`` tests all games together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from spyrl.play.indicators import ALIKE, BIASED, ERRORS, POORER, TOLD, UNREADABLE, UNSURE

_LOOKS = {
    "length": ("words", "characters", "lines"),
    "mask": ("mask",),
    "layout": ("markdown", "punctuation", "digits", "capitals"),
}
_NAMES = {"mask": "mask characters", "markdown": "Markdown"}
_APART = 0.1  # nats of logprob_gap/mean; the roundings of bfloat16 make about 0.02
_RANK_DEVIATION = math.sqrt(1 / 6)  # of the spy's rank, from 0 to 1, among 3 players; among more it is smaller


def alarms(first: Mapping[str, Any], now: Mapping[str, Any], warned: set[str]) -> list[str]:
    """What to say of an iteration's metrics, given those of the run's ``first``; ``warned`` keeps what was said of."""
    said = []
    for matter, text in (*_shortcuts(now), *_ballots(now), *_diversity(first, now), *_engine(now)):
        if matter not in warned:
            warned.add(matter)
            said.append(text)
    return said


def _shortcuts(now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    games = now.get("games/played") or 0
    least = max(TOLD, ERRORS * _RANK_DEVIATION / math.sqrt(max(games, 1)))
    for matter, features in _LOOKS.items():
        shares = {name: now[f"shortcut/{name}"] for name in features if now.get(f"shortcut/{name}") is not None}
        if not shares:
            continue
        name = max(shares, key=lambda each: abs(shares[each] - 0.5))
        share = shares[name]
        if abs(share - 0.5) >= least:
            yield (
                f"shortcut/{matter}",
                f"shortcut: the spy has {'more' if share > 0.5 else 'fewer'} {_NAMES.get(name, name)} than "
                f"{max(share, 1 - share):.0%} of the civilians (50% would tell nothing); spyrl audit says how much of "
                "detection that can explain",
            )


def _ballots(now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    games = now.get("games/played") or 0
    bias = now.get("detection/position_bias") or 0.0
    if bias >= max(BIASED, 2 / math.sqrt(max(games, 1))):
        shares = {key: now[key] for key in now if key.startswith("detection/votes/player_")}
        most = max(shares, key=lambda key: shares[key])
        yield (
            "position",
            f"position bias: player {most.rpartition('_')[2]} gets {shares[most]:.0%} of the votes, whoever is the spy",
        )
    for key, most_allowed, what in (
        ("detection/abstained", UNSURE, "of the ballots abstain; what is rewarded for guessing is learnt from few"),
        ("detection/invalid", UNREADABLE, "of the ballots cannot be read: see detection/invalid/... in the metrics"),
        ("outputs/missing", UNREADABLE, "of the outputs are missing: see game.output"),
    ):
        if (now.get(key) or 0.0) >= most_allowed:
            yield key, f"format: {now[key]:.0%} {what}"


def _diversity(first: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, what in (
        ("diversity/distinct_2", "pairs of words are less varied"),
        ("diversity/between", "outputs for different documents grow alike"),
        ("diversity/repetition", "outputs repeat themselves"),
    ):
        before, after = first.get(key), now.get(key)
        if before is None or after is None:
            continue
        if after < POORER * before if key == "diversity/distinct_2" else after >= before + ALIKE:
            yield key, f"diversity: {what} ({key} {before:.2f} → {after:.2f})"


def _engine(now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    gap = now.get("logprob_gap/mean") or 0.0
    if gap >= _APART:
        yield (
            "engine",
            f"engine: what generates samples with other probabilities than the learner's (logprob_gap/mean {gap:.2f}); "
            "are the weights handed over?",
        )
