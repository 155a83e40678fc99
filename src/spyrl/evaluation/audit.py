"""The audit of a run: is its game won by reading or by a shortcut, and does it stay a game?

From the games alone, without any model. Numbers become sentences here, by thresholds that are those of the alarms in
training or are named below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spyrl.evaluation import statistics
from spyrl.evaluation.audit_games import DOCUMENT, FEATURES, HIDDEN, Games, Outputs, read
from spyrl.evaluation.played import Batch
from spyrl.evaluation.results import Score
from spyrl.evaluation.sheets import Sheet
from spyrl.evaluation.shortcuts import (
    MATERIAL,
    Guess,
    Share,
    explained,
    followed,
    guess,
    position_bias_by_chance,
    relative,
)
from spyrl.evaluation.statistics import Interval, interval
from spyrl.play.indicators import (
    ALIKE,
    POORER,
    SURFACE,
    UNREADABLE,
    UNSURE,
    spy_above,
)
from spyrl.play.summary import position_bias

MOSTLY, PARTLY = 0.5, 0.2
"""Shares of the detectors' success above chance that make a shortcut the main way to win, or a part of it."""
GAP = 0.1
"""Least difference of lengths, as a share, that is worth a word."""
BIAS = 0.1
"""Least position bias that is worth a word."""
ADDRESSING = 0.05
"""Least share of outputs that speak to the voters."""
FEWEST = 20
"""Games below which nothing is said of shortcuts."""
_WINDOWS = 10


@dataclass(frozen=True)
class Finding:
    """One question of the audit: whether there is something to worry about, and what was found, in a sentence."""

    name: str
    worrying: bool
    sentence: str


@dataclass(frozen=True)
class Audit:
    """What an audit found."""

    overall: str
    findings: tuple[Finding, ...]
    sheets: tuple[Sheet, ...]
    scores: tuple[Score, ...]
    guesses: Mapping[str, Guess]
    """By feature; `surface` and `surface + copied` are all of them together. Empty without spies or with few games."""
    games: Games | None
    numbers: tuple[int, ...]
    """The batches' numbers: iterations."""
    windows: tuple[tuple[int, ...], ...]
    """The batches, by index, that are told of together."""


def audit(batches: Iterable[Batch], name: str) -> Audit:
    """Audit these games; ``name`` is the run's, in the scores."""
    games, outputs, numbers = read(batches)
    windows = tuple(
        tuple(int(index) for index in each)
        for each in np.array_split(np.arange(len(outputs)), min(_WINDOWS, len(outputs)))
    )
    guesses = _guesses(games) if games is not None and len(games.spies) >= FEWEST else {}
    findings: list[Finding] = []
    overall = "The games have no spy, so there is nothing to find."
    sheets: list[Sheet] = []
    scores: list[Score] = []
    if games is not None:
        overall = f"There are {len(games.spies)} games, too few to say more; {FEWEST} are the least."
        if guesses:
            overall, findings, scores = _verdict(games, guesses, name)
            sheets.append(_told_by(games, guesses))
        findings += [_gap(games), _position(games)]
        sheets.append(_detection_sheet(games, guesses, outputs, numbers, windows))
    findings += [*_format(outputs), *_diversity(outputs, windows)]
    accused = bool(guesses) and findings[0].worrying
    findings.insert(0, Finding("Overall", accused, overall))
    sheets.append(_outputs_sheet(outputs, numbers, windows))
    findings_sheet = Sheet(
        "Findings",
        ("question", "", "answer"),
        tuple((f.name, "!" if f.worrying else "ok", f.sentence) for f in findings),
    )
    return Audit(
        overall, tuple(findings), (findings_sheet, *sheets), tuple(scores), guesses, games, tuple(numbers), windows
    )


# What the spy is told by.


def _guesses(games: Games) -> dict[str, Guess]:
    alone = {name: relative(games.features[..., [column]]) for column, name in enumerate(FEATURES)}
    count, players, _ = games.features.shape
    places = np.broadcast_to(np.eye(players)[:, 1:], (count, players, players - 1))
    looks = np.concatenate([alone[name] for name in SURFACE] + [places], axis=2)
    sets = {
        **alone,
        "position": places,
        "surface": looks,
        "surface + copied": np.concatenate((looks, alone["copied"]), 2),
    }
    sets["hidden words"] = relative(games.features[..., [HIDDEN]])
    return {name: guess(features, games.spies, name) for name, features in sets.items()}


def above(games: Games, column: int) -> float:
    """`spy_above` in one column of the features, mean over games."""
    values, spies = games.features[..., column].tolist(), games.spies.tolist()
    return float(np.mean([spy_above(row, spy + 1) for row, spy in zip(values, spies, strict=True)]))


def copies(games: Games, guesses: Mapping[str, Guess]) -> bool:
    """Whether how much is copied tells the spy, and not because it lacks the hidden part.

    A spy that writes of the visible part alone shares more of its words with that than civilians do, but not more with
    the whole document; one that makes up the rest shares fewer with the document, but not with the visible part.
    """
    if not guesses["copied"].told:
        return False
    more = above(games, FEATURES.index("copied")) > 0.5
    return above(games, DOCUMENT) > 0.6 if more else above(games, FEATURES.index("copied")) < 0.4


def _verdict(games: Games, guesses: Mapping[str, Guess], name: str) -> tuple[str, list[Finding], list[Score]]:
    copied = copies(games, guesses)
    best = guesses["surface + copied" if copied else "surface"]
    found = statistics.share(games.found.tolist())
    share = explained(best.hits, games.found, best.chance)
    at_chance = found.low is not None and found.low <= best.chance
    told = best.told or copied
    guessed = f"{best.accuracy:.0%} of games {_ends(best.low, best.high)}, by chance {best.chance:.0%}"
    if not told:
        overall = f"No shortcut was found: the look of outputs finds the spy in {guessed}."
        sentence = f"No: their look finds the spy in {guessed}."
    else:
        how = _how(games, _strongest(guesses))
        if at_chance:
            overall = f"A shortcut lies open that detectors do not use: {how}."
        elif share.value is None or share.value >= MOSTLY:
            overall = f"The game can be won by a shortcut, without reading: {how}."
        elif share.value >= PARTLY:
            overall = f"The game can partly be won by a shortcut: {how}."
        else:
            overall = f"A shortcut exists, but explains little: {how}."
        sentence = f"Yes: their look finds the spy in {guessed}. Most telling: {how}."
    findings = [Finding("Does the look of outputs tell the spy?", told, sentence)]
    findings.append(_explained(games, best, found, share, told, at_chance))
    if guesses["copied"].told and not copied:
        text = "Only as it must be where a part was hidden: the spy has no words of that."
    else:
        text = _how(games, "copied").capitalize() + "." if copied else "No."
    findings.append(Finding("Does copying tell it?", copied, text))
    scores = [
        Score(
            name, "spy found by detectors (%)", 100 * found.mean, _percent(found.low), _percent(found.high), found.count
        ),
        Score(
            name,
            "spy found by the look of outputs (%)",
            100 * best.accuracy,
            _percent(best.low),
            _percent(best.high),
            len(games.spies),
        ),
    ]
    return overall, findings, scores


def _explained(games: Games, best: Guess, found: Interval, share: Share, told: bool, at_chance: bool) -> Finding:
    question = "How much of detection is that?"
    detectors = f"Detectors find the spy in {found.mean:.0%} of games {_ends(found.low, found.high)}"
    if at_chance or share.value is None:
        return Finding(question, False, f"{detectors}, not surely above chance, so there is nothing to explain.")
    parts = [f"{detectors}; the look of outputs could explain {_bounded(share)} of what is above chance."]
    right = best.hits == 1
    if 0 < right.sum() < len(right):
        parts.append(
            f"They find {games.found[right].mean():.0%} where the look points at the spy, and "
            f"{games.found[~right].mean():.0%} where it does not."
        )
    votes = followed(best.suspicion, games.votes, games.spies)
    if votes.value is not None:
        indifferent = 1 / (games.votes.shape[1] - 1)
        parts.append(
            f"A civilian that it points at gets {votes.value:.0%} {_ends(votes.low, votes.high)} of the votes for "
            f"civilians ({indifferent:.0%} if voters do not go by it)."
        )
    return Finding(question, told and share.value >= PARTLY, " ".join(parts))


def _strongest(guesses: Mapping[str, Guess]) -> str:
    """The feature that tells most, or one that tells about as much and says more to a person."""
    best = max(FEATURES, key=lambda name: guesses[name].accuracy)
    close = (
        name for name in ("mask", "words", "copied") if guesses[name].accuracy >= guesses[best].accuracy - MATERIAL
    )
    return next(close, best)


def _how(games: Games, feature: str) -> str:
    """What the spy is told by, in words."""
    share = above(games, FEATURES.index(feature))
    if feature == "words":
        gap = float(np.nanmean(games.gaps))
        return f"spies' outputs are {abs(gap):.0%} {'longer' if gap > 0 else 'shorter'} than civilians'"
    what = {"mask": "mask characters", "markdown": "Markdown", "copied": "words copied from the visible text"}
    than = f"than {max(share, 1 - share):.0%} of the civilians"
    return f"the spy has {'more' if share > 0.5 else 'fewer'} {what.get(feature, feature)} {than}"


def _told_by(games: Games, guesses: Mapping[str, Guess]) -> Sheet:
    rows = []
    for name in (*FEATURES, "position", "surface", "surface + copied"):
        each = guesses[name]
        share = f"{above(games, FEATURES.index(name)):.0%}" if name in FEATURES else ""
        label = {"surface": "all but copied", "surface + copied": "all"}.get(name, name)
        rows.append((label, share, f"{each.accuracy:.0%} {_ends(each.low, each.high)}", "yes" if each.told else ""))
    found = statistics.share(games.found.tolist())
    rows.append(("chance", "50%", f"{guesses['surface'].chance:.0%}", ""))
    rows.append(("detectors", "", f"{found.mean:.0%} {_ends(found.low, found.high)}", ""))
    hidden = guesses["hidden words"]
    share = f"{above(games, HIDDEN):.0%}"
    rows.append(("hidden words said", share, f"{hidden.accuracy:.0%} {_ends(hidden.low, hidden.high)}", ""))
    columns = ("feature", "spy above civilians", "finds the spy", "tells it")
    return Sheet("What tells the spy, by cross-validation", columns, tuple(rows))


def _gap(games: Games) -> Finding:
    known = games.gaps[~np.isnan(games.gaps)]
    question = "Are spies' outputs longer or shorter?"
    if len(known) < 2:
        return Finding(question, False, "There is too little to tell.")
    gap = interval(known.tolist())
    worrying = abs(gap.mean) >= GAP and gap.direction != "undecided"
    text = f"{gap.mean:+.0%} {_signed(gap)} words against the civilians of their games."
    return Finding(question, worrying, text)


def _position(games: Games) -> Finding:
    question = "Do votes go by player number?"
    if not games.votes.sum():
        return Finding(question, False, "There are no votes.")
    bias, by_chance = position_bias_by_chance(games.votes)
    shares = games.votes.sum(axis=0) / games.votes.sum()
    most = int(shares.argmax())
    worrying = bias > by_chance and bias >= BIAS
    told = f"player {most + 1} gets {shares[most]:.0%} of the votes"
    limits = f"position bias {bias:.2f}, by chance up to {by_chance:.2f}"
    return Finding(question, worrying, f"{'Yes' if worrying else 'No'}: {told}; {limits}.")


# What the outputs and ballots are like over time.


def _format(outputs: Sequence[Outputs]) -> list[Finding]:
    late = outputs[-max(len(outputs) // _WINDOWS, 1) :]
    findings = []
    for question, key, whole, most, what in (
        ("Do detectors abstain?", "abstained", "ballots", UNSURE, "of ballots say N/A"),
        ("Can ballots be read?", "invalid", "ballots", UNREADABLE, "of ballots cannot be read"),
        ("Are outputs handed in?", "missing", "outputs", UNREADABLE, "of outputs are missing"),
        (
            "Do outputs speak to the voters?",
            "speaking",
            "outputs",
            ADDRESSING,
            "of outputs name players, the spy or a box",
        ),
    ):
        if not sum(getattr(each, whole) for each in outputs):
            continue
        rate, last = _rate(outputs, key, whole), _rate(late, key, whole)
        text = f"{rate:.0%} {what}" + (f", {last:.0%} at the end." if len(outputs) > 1 else ".")
        if key == "invalid" and rate:
            counts: dict[str, int] = {}
            for each in outputs:
                for outcome, count in each.outcomes.items():
                    counts[outcome] = counts.get(outcome, 0) + count
            worst = max(counts, key=lambda outcome: counts[outcome])
            text = f"{text[:-1]}, mostly {worst.replace('_', ' ')}."
        findings.append(Finding(question, max(rate, last) >= most, text))
    return findings


def _diversity(outputs: Sequence[Outputs], windows: Sequence[Sequence[int]]) -> list[Finding]:
    question = "Do outputs stay varied?"
    if len(windows) < 2:
        return [Finding(question, False, "One iteration does not tell.")]
    worrying, parts = False, []
    for key, what in (
        ("diversity/distinct_2", "distinct pairs of words"),
        ("diversity/between", "likeness between games"),
        ("diversity/repetition", "repetition"),
    ):
        before, after = (_mean_of(outputs, windows[index], key) for index in (0, -1))
        if before is None or after is None:
            continue
        parts.append(f"{what} {before:.2f} → {after:.2f}")
        worrying |= after < POORER * before if key == "diversity/distinct_2" else after >= before + ALIKE
    return [Finding(question, worrying, f"{'No' if worrying else 'Yes'}: {', '.join(parts)}.")]


def _detection_sheet(
    games: Games,
    guesses: Mapping[str, Guess],
    outputs: Sequence[Outputs],
    numbers: Sequence[int],
    windows: Sequence[Sequence[int]],
) -> Sheet:
    rows = []
    for window in windows:
        here, within = games.of(window), np.isin(games.batch, window)
        if not len(here.spies):
            continue
        told = [outputs[index] for index in window]
        rows.append(
            (
                _named(numbers, window),
                str(len(here.spies)),
                f"{here.found.mean():.0%}",
                f"{guesses['surface'].hits[within].mean():.0%}" if guesses else "–",
                f"{np.nanmean(here.gaps):+.0%}" if not np.isnan(here.gaps).all() else "–",
                f"{_rate(told, 'abstained', 'ballots'):.0%}",
                f"{_rate(told, 'invalid', 'ballots'):.0%}",
                f"{position_bias(here.votes.sum(axis=0).tolist()):.2f}",
            )
        )
    columns = ("iterations", "games", "found", "by look", "length gap", "n/a", "bad", "position bias")
    return Sheet("Detection over time", columns, tuple(rows))


def _outputs_sheet(outputs: Sequence[Outputs], numbers: Sequence[int], windows: Sequence[Sequence[int]]) -> Sheet:
    rows = []
    for window in windows:
        told = [outputs[index] for index in window]
        means = [
            _mean_of(outputs, window, f"diversity/{key}") for key in ("distinct_2", "repetition", "within", "between")
        ]
        shares = [_rate(told, key, "outputs") for key in ("missing", "truncated", "speaking")]
        cells = [*("–" if mean is None else f"{mean:.2f}" for mean in means), *(f"{share:.0%}" for share in shares)]
        rows.append((_named(numbers, window), *cells))
    columns = ("iterations", "distinct-2", "repeated", "within", "between", "missing", "cut", "speaking")
    return Sheet("Outputs over time", columns, tuple(rows))


def _named(numbers: Sequence[int], window: Sequence[int]) -> str:
    first, last = numbers[window[0]], numbers[window[-1]]
    return str(first) if first == last else f"{first}–{last}"


def _rate(outputs: Sequence[Outputs], key: str, whole: str) -> float:
    total: int = sum(getattr(each, whole) for each in outputs)
    return sum(getattr(each, key) for each in outputs) / total if total else 0.0


def _mean_of(outputs: Sequence[Outputs], window: Sequence[int], key: str) -> float | None:
    known = [outputs[index].diversity[key] for index in window if key in outputs[index].diversity]
    return sum(known) / len(known) if known else None


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{100 * low:.0f}–{100 * high:.0f}]"


def _signed(value: Interval) -> str:
    return "" if value.low is None or value.high is None else f"[{100 * value.low:+.0f} to {100 * value.high:+.0f}]"


def _bounded(share: Share) -> str:
    return f"{share.value:.0%} {_ends(share.low, share.high)}"


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
