"""One game of a run for its model card: chosen by rule, and as Markdown that no text in it can break."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any

from spyrl.evaluation.sheets import Sheet, markdown_table
from spyrl.runs.folder import RunFolder
from spyrl.runs.games import read_games

HOW_CHOSEN = (
    "chosen by rule: of the newest iteration that has one, the game whose spy most ballots named, whose outputs are "
    "all there and fit on a page; then the shortest"
)
_LOOKED_AT = 10  # iterations, from the last one back
_PAGE = 8000  # characters of a document and its outputs that can be read without being cut much
_DOCUMENT, _OUTPUT, _REASONS = 1600, 1200, 800  # characters shown
_BEFORE = 400  # characters shown before the hidden part
_WIDTH = 88
_OPEN, _CLOSE = "⟦", "⟧"
# What would steer a terminal or turn the direction of writing; other line ends become plain ones.
_STEERING = dict.fromkeys((*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd")
_STEERING |= {9: "\t", 10: "\n", 13: "\n", 0x2028: "\n", 0x2029: "\n"}


def choose_game(run: RunFolder) -> dict[str, Any] | None:
    """The row of the game to show (`HOW_CHOSEN`); without one whose spy was found, the shortest of the last iteration.

    ``None`` where no game was kept. Raises `OSError` for a file that cannot be read.
    """
    newest = sorted(run.games.glob("iteration-*.parquet"), reverse=True)[:_LOOKED_AT]
    rest: list[dict[str, Any]] = []
    for path in newest:
        rows = [row for row in read_games(path) if all(output["text"] for output in row["outputs"])]
        found = [row for row in rows if row["found"] == 1 and _length(row) <= _PAGE]
        if found:
            return min(found, key=lambda row: (-row["votes"][row["spy"] - 1], _length(row), row["game"]))
        rest = rest or rows
    return min(rest, key=lambda row: (_length(row), row["game"]), default=None)


def game_markdown(row: Mapping[str, Any]) -> str:
    """A game as Markdown: the document with what the spy could not see in ``⟦ ⟧``, outputs, votes and rewards.

    Long texts are shortened, and say so. Texts stand in fences longer than any in them.
    """
    spy = row["spy"]
    hidden = (
        f"What stands in {_OPEN} {_CLOSE} was hidden or changed in the copy of player {spy}, the spy." if spy else ""
    )
    parts = [f"The document. {hidden}".strip(), _fenced(_around_hidden(row))]
    rounds = max(output["round"] for output in row["outputs"])
    for output in row["outputs"]:
        who = f"**Player {output['player']}{', the spy' if output['player'] == spy else ''}**"
        who += f", round {output['round']}" if rounds > 1 else ""
        parts += [who, _fenced(_shortened(output["text"], _OUTPUT))]
    parts += [_ballots(row), _tally(row)]
    return "\n\n".join(parts)


def _length(row: Mapping[str, Any]) -> int:
    return len(row["document"]) + sum(len(output["text"]) for output in row["outputs"])


def _around_hidden(row: Mapping[str, Any]) -> str:
    """The document with its hidden parts marked, from a little before the first of them on."""
    document: str = row["document"]
    text, position = "", 0
    for span in row["hidden"]:
        text += document[position : span["start"]] + _OPEN + document[span["start"] : span["end"]] + _CLOSE
        position = span["end"]
    text += document[position:]
    if len(text) <= _DOCUMENT:
        return text
    begin = max(0, text.find(_OPEN) - _BEFORE)
    if begin + _DOCUMENT > len(text):
        begin = len(text) - _DOCUMENT
    shown = _shortened(text[begin:], _DOCUMENT)
    if shown.count(_OPEN) > shown.count(_CLOSE):
        shown += _CLOSE
    return ("[…] " if begin else "") + shown


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    kept = text[:most].rsplit(maxsplit=1)[0]
    return f"{kept} [… {len(text) - len(kept):,} more characters]"


def _fenced(text: str) -> str:
    """A text in a code fence, its lines broken to be read without scrolling."""
    lines = [wrapped for line in text.translate(_STEERING).split("\n") for wrapped in _wrapped(line)]
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *lines, fence])


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, _WIDTH, replace_whitespace=False, drop_whitespace=True, expand_tabs=False) or [""]


def _ballots(row: Mapping[str, Any]) -> str:
    ballots = row["ballots"]
    counted = [f"{sum(ballot['choice'] == row['spy'] for ballot in ballots)} of {len(ballots)} ballots named the spy"]
    counted = counted if row["spy"] else [f"{len(ballots)} ballots"]
    counted += [f"{row['abstained']} abstained"] if row["abstained"] else []
    counted += [f"{row['invalid']} could not be read"] if row["invalid"] else []
    said = ", ".join(counted) + "."
    right = next((each for each in ballots if each["choice"] == row["spy"] and len(each["text"] or "") > 40), None)
    if right is None:
        return said
    return f"{said} One of them:\n\n{_fenced(_shortened(right['text'], _REASONS))}"


def _tally(row: Mapping[str, Any]) -> str:
    rows = tuple(
        (str(player), "spy" if player == row["spy"] else "civilian", str(votes), f"{reward:+z.3f}")
        for player, (votes, reward) in enumerate(zip(row["votes"], row["rewards"], strict=True), 1)
    )
    return markdown_table(Sheet("", ("player", "role", "votes", "reward"), rows))
