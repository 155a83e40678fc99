"""The games that a run has played, file by file, without the prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spyrl.errors import UsageError
from spyrl.runs.folder import RunFolder
from spyrl.runs.games import read_games

Row = dict[str, Any]
"""One game; see `spyrl.play.replay`."""

_COLUMNS = (
    "game",
    "document",
    "players",
    "spy",
    "hidden",
    "observations",
    "votes",
    "abstained",
    "invalid",
    "found",
    *(f"outputs.list.element.{key}" for key in ("player", "round", "role", "text", "finish_reason")),
    *(f"ballots.list.element.{key}" for key in ("outcome", "choice")),
)


@dataclass(frozen=True)
class Batch:
    """The games of one file, in order, and its number: the iteration, or the part of an evaluation's games."""

    number: int
    games: tuple[Row, ...]


def game_files(folder: Path, iterations: range | None = None) -> list[tuple[int, Path]]:
    """The games files of a run's folder, or of one that holds such files itself, with their numbers.

    Raises `UsageError` where there are none.
    """
    games = RunFolder(folder).games
    where = games if games.is_dir() else folder
    found = [
        (int(match[1]), path)
        for path in sorted(where.glob("*.parquet"))
        if (match := re.fullmatch(r"(?:iteration|part)-(\d+)", path.stem))
    ]
    if not found:
        raise UsageError(f"there are no games in {where} (iteration-00000.parquet, ...); name a run's folder")
    chosen = [each for each in found if iterations is None or each[0] in iterations]
    if not chosen:
        raise UsageError(
            f"{where} has games of iterations {found[0][0]} to {found[-1][0]}, none of "
            f"{iterations.start if iterations else 0} to {iterations[-1] if iterations else 0}"
        )
    return chosen


def batches(files: Sequence[tuple[int, Path]]) -> Iterator[Batch]:
    """The games of these files, one file at a time. Raises `UsageError` for one that cannot be read."""
    import pyarrow as pa

    for number, path in files:
        try:
            rows = read_games(path, _COLUMNS)
        except (OSError, pa.ArrowException) as error:
            raise UsageError(f"{path} cannot be read as games: {error}") from None
        yield Batch(number, tuple(rows))
