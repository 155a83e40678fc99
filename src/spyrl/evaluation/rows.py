"""Rows of a benchmark or a corpus with references: from a file, or from the Hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spyrl.corpus import hub_data_set
from spyrl.corpus.hub import read_hub_rows
from spyrl.corpus.reading import nothing_at, read_rows
from spyrl.errors import UsageError


@dataclass(frozen=True)
class Row:
    """One row of a table, by its columns' names, and where it is, for errors."""

    place: str
    columns: Mapping[str, object]

    def find(self, names: Sequence[str]) -> str | None:
        """The column that is called as one of ``names``, the first of them that is there; case does not count."""
        there = {column.lower().replace(" ", "_"): column for column in self.columns}
        return next((there[name] for name in names if name in there), None)


def rows_of(source: str, *, subset: str | None = None, split: str = "test", limit: int | None = None) -> list[Row]:
    """The first ``limit`` rows (``None``: all) of a local file or folder, or of a Hub data set ``owner/name``.

    ``subset`` and ``split`` are a Hub data set's. Raises `UsageError` where there is nothing, or nothing readable.
    """
    local = Path(source).expanduser()
    if local.exists():
        found = read_rows(local.absolute(), limit)
    else:
        name = hub_data_set(source) or hub_data_set(source.removeprefix("datasets/").rstrip("/"))
        if name is None:
            raise UsageError(f"--data {source}: {nothing_at(source)}.")
        found = read_hub_rows(name, subset=subset, split=split, limit=limit)
    return [Row(place, columns) for place, columns in found]
