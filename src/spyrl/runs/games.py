"""Played games as Parquet, one file an iteration, one row a game."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_OUTPUT = pa.struct(
    [
        ("player", pa.int32()),
        ("round", pa.int32()),
        ("role", pa.string()),
        ("text", pa.string()),  # null: missing
        ("prompt", pa.string()),
        ("completion", pa.string()),
        ("reasoning", pa.string()),
        ("finish_reason", pa.string()),
        ("tokens", pa.int32()),
    ]
)
_BALLOT = pa.struct(
    [
        ("voter", pa.int32()),  # null: a detector that is no player
        ("outcome", pa.string()),
        ("choice", pa.int32()),
        ("text", pa.string()),
        ("probabilities", pa.list_(pa.float64())),
        ("prompt", pa.string()),
        ("reasoning", pa.string()),
        ("finish_reason", pa.string()),
        ("tokens", pa.int32()),
        ("reward", pa.float64()),
        ("advantage", pa.float64()),
    ]
)
SCHEMA = pa.schema(
    [
        ("iteration", pa.int32()),
        ("game", pa.int32()),
        ("document_id", pa.string()),
        ("document", pa.string()),
        ("players", pa.int32()),
        ("spy", pa.int32()),  # null: the ablation without a spy
        ("hidden", pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64())]))),
        ("observations", pa.list_(pa.string())),
        ("outputs", pa.list_(_OUTPUT)),
        ("ballots", pa.list_(_BALLOT)),
        ("votes", pa.list_(pa.int32())),
        ("abstained", pa.int32()),
        ("invalid", pa.int32()),
        ("found", pa.float64()),
        ("rewards", pa.list_(pa.float64())),
        ("advantages", pa.list_(pa.float64())),
    ]
)
"""The columns of a games file; `spyrl.play.replay` makes its rows."""


def write_games(path: Path, replays: Sequence[dict[str, Any]]) -> None:
    """Write the games of one iteration; the file appears whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with pq.ParquetWriter(partial, SCHEMA, compression="zstd") as writer:
            if replays:  # the datasets library cannot read an empty row group
                writer.write_table(pa.Table.from_pylist(list(replays), schema=SCHEMA))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_games(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The games of one file, as `spyrl.play.replay` made them.

    With ``columns`` these only, a part of a nested one as in ``outputs.list.element.text``: prompts are most of a file.
    """
    if columns is None:
        whole: list[dict[str, Any]] = pq.read_table(path, schema=SCHEMA).to_pylist()
        return whole
    with pq.ParquetFile(path) as file:
        rows: list[dict[str, Any]] = file.read(columns=list(columns)).to_pylist()
    return rows
