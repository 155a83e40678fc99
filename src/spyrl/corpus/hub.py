"""Documents from data sets of the Hugging Face Hub, streamed: nothing is downloaded that is not read."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from spyrl.corpus.reading import document_of, nothing_at
from spyrl.errors import SpyRLError, UsageError
from spyrl.game.deal import Document

BLOCK_ROWS = 1024
"""Rows that are read, and shuffled, together."""

_CHECK = "check the name, HF_TOKEN and the network"


class HubRows:
    """The rows of one split of a Hub data set, in blocks of `BLOCK_ROWS`.

    The open stream is kept, so that blocks in order are read as they come; any other block is skipped to. Raises
    `UsageError` where ``datasets`` is not installed or the Hub does not give the data set.
    """

    size: int | None = None

    def __init__(self, name: str, *, subset: str | None, split: str, column: str, limit: int | None) -> None:
        """Open ``owner/name`` without reading a row of it yet; ``limit`` is the number of rows to stop after."""
        self._name = name
        self._column = column
        self._end = limit  # no row from this one on; lowered when the stream turns out to be shorter
        self._open: list[Iterator[Mapping[str, object]]] = []  # the stream, once there is one
        weakref.finalize(self, self._open.clear)  # a stream still open when Python ends complains of it
        self._position = 0  # number of the row that the stream gives next
        self._begun = False
        self._dataset: Any = _stream(name, subset, split, "corpus.")
        try:
            columns = self._dataset.column_names  # None where only reading a row would tell
            if columns and column in columns:  # so that no picture or sound beside the text is decoded
                self._dataset = self._dataset.select_columns([each for each in columns if each in (column, "id")])
        except Exception as error:  # as in `_stream`
            raise UsageError(_explain(error, name)) from error

    def block(self, number: int) -> list[Document]:
        """The rows of block ``number`` (from 0), fewer at the end of the data set and none beyond it.

        Raises `UsageError` for rows that hold no document, and when the first block cannot be had; when a later one
        cannot, `SpyRLError`, and the same block may be asked for again.
        """
        start = number * BLOCK_ROWS
        stop = start + BLOCK_ROWS if self._end is None else min(start + BLOCK_ROWS, self._end)
        if start >= stop:
            return []
        try:
            if not self._open or self._position != start:
                self._open[:] = [iter(self._dataset.skip(start) if start else self._dataset)]
            rows = list(islice(self._open[0], stop - start))
        except Exception as error:  # as above
            self._open.clear()
            raise (SpyRLError if self._begun else UsageError)(_explain(error, self._name)) from error
        self._begun = True
        self._position = start + len(rows)
        if len(rows) < stop - start:
            self._end = self._position
        return [
            document_of(row, self._column, place=f"{self._name}, row {index}", fallback_id=f"{self._name}:{index}")
            for index, row in enumerate(rows, start + 1)
        ]


def read_hub_rows(
    name: str, *, subset: str | None, split: str, limit: int | None
) -> list[tuple[str, Mapping[str, object]]]:
    """The first ``limit`` rows (``None``: all) of a split of a Hub data set, whole, each with its place.

    Raises `UsageError` where ``datasets`` is not installed or the Hub does not give them, or there is no row.
    """
    dataset = _stream(name, subset, split, "")
    try:
        rows = [(f"{name}, row {number}", row) for number, row in enumerate(islice(dataset, limit), 1)]
    except Exception as error:  # as in `HubRows`
        raise UsageError(_explain(error, name, "")) from error
    if not rows:
        raise UsageError(f"The Hub data set {name} is empty: its split {split} holds no row.")
    return rows


def _stream(name: str, subset: str | None, split: str, settings: str) -> Any:
    """The open data set; ``settings`` is what names of settings begin with in errors."""
    try:
        import datasets
    except ImportError as error:
        raise UsageError(
            f"{f'{settings}path=' if settings else ''}{name} is a data set of the Hub, which needs a package: "
            f"pip install 'spyrl[hub]' ({nothing_at(name)})."
        ) from error
    try:
        return datasets.load_dataset(
            name, name=subset, split=split, streaming=True, token=os.environ.get("HF_TOKEN") or None
        )
    except Exception as error:  # whatever the libraries below raise, a person gets one sentence
        raise UsageError(_explain(error, name, settings)) from error


def _explain(error: Exception, name: str, settings: str = "corpus.") -> str:
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    kinds = {kind.__name__ for each in chain for kind in type(each).__mro__}
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    reason = reason if len(reason) <= 400 else reason[:399] + "…"
    if "GatedRepoError" in kinds or "gated dataset" in reason:
        return (
            f"The Hub data set {name} is gated: accept its terms at https://huggingface.co/datasets/{name} and set "
            "HF_TOKEN to a token of that account (otherwise check the name and the network)."
        )
    if kinds & {"DatasetNotFoundError", "RepositoryNotFoundError"}:
        return f"The Hub has no data set {name} that this token may read, and {nothing_at(name)}; {_CHECK}."
    if "scripts are no longer supported" in reason:
        return (
            f"The Hub data set {name} is made by a script, which this version of datasets does not run; get its "
            f"Parquet copy (hf download {name} --repo-type dataset --revision refs/convert/parquet --local-dir FOLDER) "
            f"and set {settings or 'its '}path to the split's folder in it ({_CHECK} if that fails)."
        )
    if reason.startswith(("Bad split", "Unknown split")):
        return f"The Hub data set {name} has no such {settings}split: {reason}; otherwise {_CHECK}."
    if reason.startswith(("Config name is missing", "BuilderConfig")):
        return f"The Hub data set {name} needs another {settings}subset: {reason}; otherwise {_CHECK}."
    if kinds & {"ConnectionError", "TimeoutError", "OfflineModeIsEnabled", "TransportError", "LocalEntryNotFoundError"}:
        return f"The Hub did not answer for the data set {name} ({reason}), and {nothing_at(name)}; {_CHECK}."
    return f"The Hub data set {name} cannot be read ({type(error).__name__}: {reason}); {_CHECK}."
