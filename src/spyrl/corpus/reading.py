"""Documents from local files: JSON, JSON lines, CSV, TSV, Parquet and plain text, packed or not.

A reader goes over a file lazily and yields ``(number, row)``: the number is the line a row begins on or, where a
format has no lines, its place counted from 1. Every error names the file and that number.
"""

from __future__ import annotations

import bz2
import csv
import difflib
import gzip
import io
import json
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import IO, cast

import pyarrow as pa

from spyrl.errors import UsageError
from spyrl.game.deal import Document
from spyrl.game.text import words

DEFAULT_COLUMN = "text"

Reader = Callable[[Path, str], Iterator[tuple[int, object]]]

_TEXTS = (".txt", ".md")
_PACKED = (".gz", ".bz2", ".xz", ".zst")
_LARGEST_FIELD = 2**31 - 1  # characters; the csv module's own default refuses a report longer than 131,072


class MissingColumnError(UsageError):
    """A row lacks the column that documents are read from."""


@dataclass(frozen=True)
class LocalRows:
    """A corpus that is in memory as a whole: one block. A row without text is a document with an empty text."""

    documents: list[Document]

    @property
    def size(self) -> int | None:
        """Number of documents that have a text."""
        return sum(bool(document.text) for document in self.documents)

    def block(self, number: int) -> list[Document]:
        """The rows of block ``number``; no rows from the second on."""
        return self.documents if number == 0 else []


def file_format(name: str) -> str | None:
    """The format of a file by its name, as a suffix such as ``".jsonl"`` (also of ``x.jsonl.gz``); ``None``: unknown.

    >>> file_format("stories.JSONL.gz"), file_format("stories.docx")
    ('.jsonl', None)
    """
    path = PurePath(name.lower())
    if path.suffix in _PACKED:
        suffix = PurePath(path.stem).suffix
        return suffix if suffix != ".parquet" and (suffix in _READERS or suffix in _TEXTS) else None
    return path.suffix if path.suffix in _READERS or path.suffix in _TEXTS else None


def read_local(path: Path, column: str, limit: int | None) -> LocalRows:
    """Read the first ``limit`` rows (``None``: all) of the file or the folder ``path``, which exists.

    Raises `UsageError` for a suffix that is not known, for what cannot be read or parsed, for a row without the
    column or with something other than a string in it, and where there is no row.
    """
    documents = list(islice(_documents(path, column), limit))
    if not documents:
        raise UsageError(f"{path} is empty: it holds no document.")
    return LocalRows(documents)


def read_rows(path: Path, limit: int | None) -> list[tuple[str, Mapping[str, object]]]:
    """The first ``limit`` rows (``None``: all) of the file or the folder ``path``, whole, each with its place.

    Raises `UsageError` for what cannot be read or parsed, for a row that is no object, and where there is no row.
    """
    rows = list(islice(_objects(path), limit))
    if not rows:
        raise UsageError(f"{path} is empty: it holds no row.")
    return rows


def document_of(row: object, column: str, *, place: str, fallback_id: str) -> Document:
    """The document that a row holds, with an empty text where it is null or blank.

    ``place`` is where the row is, for errors; ``fallback_id`` names the document where the row has no ``id`` that is a
    string or an integer. Halves of surrogate pairs, which no tokenizer takes, become U+FFFD. Raises `UsageError`
    where the column is missing or holds no string.
    """
    if isinstance(row, str) and column == DEFAULT_COLUMN:
        return Document(fallback_id, _clean(row))
    if row is None:
        return Document(fallback_id, "")
    if not isinstance(row, Mapping):
        raise UsageError(
            f"{place} holds {_kind(row)}, not an object with a column {column!r}"
            + (f"; bare strings are read with corpus.column={DEFAULT_COLUMN}." if isinstance(row, str) else ".")
        )
    if column not in row:
        raise _missing_column(row, column, place)
    text = row[column]
    if text is not None and not isinstance(text, str):
        raise UsageError(
            f"{place}: column {column!r} holds {_kind(text)}, not a string; {_setting(_guess(row, column))}."
        )
    name = row.get("id")
    named = isinstance(name, str | int) and not isinstance(name, bool) and str(name).strip()
    return Document(_clean(str(name)) if named else fallback_id, _clean(text or ""))


def missing_file(path: str) -> UsageError:
    """The error for a path at which there is nothing, with the names that are near it."""
    return UsageError(f"corpus.path={path}: {nothing_at(path)}.")


def nothing_at(path: str) -> str:
    """Say that there is nothing at a local path: what was looked for, and what is like it in that folder."""
    absolute = Path(os.path.abspath(os.path.expanduser(path)))
    sentence = f"there is no file or folder {absolute}"
    try:
        names = sorted(os.listdir(absolute.parent))
    except OSError:
        return f"{sentence}, nor a folder {absolute.parent} that can be listed"
    near = near_names(absolute.name, names)
    return f"{sentence}; near names there: {', '.join(near)}" if near else sentence


def near_names(name: str, names: list[str]) -> list[str]:
    """At most three of ``names`` that are spelt like ``name``, the nearest first; case does not count."""
    lowered = {each.lower(): each for each in names}
    return [lowered[each] for each in difflib.get_close_matches(name.lower(), lowered, n=3)]


def _documents(path: Path, column: str) -> Iterator[Document]:
    for name, file in _files(path):
        yield from _file_documents(file, name, column)


def _objects(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    for _, file in _files(path):
        suffix = _known_format(file)
        if suffix in _TEXTS:
            raise UsageError(f"{file} holds plain text, not rows with columns; {_KNOWN}.")
        for _, place, row in _file_rows(file, suffix, ""):
            if not isinstance(row, Mapping):
                raise UsageError(f"{place} holds {_kind(row)}, not an object with columns.")
            yield place, row


def _files(path: Path) -> list[tuple[str, Path]]:
    """The file ``path``, or all files below the folder that can be read, by the names their documents have."""
    if not path.is_dir():
        return [(path.name, path)]
    files: list[tuple[str, Path]] = []
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]  # what is hidden is some tool's
        for name in names:
            if not name.startswith(".") and file_format(name):
                file = Path(folder, name)
                files.append((file.relative_to(path).as_posix(), file))
    if not files:
        raise UsageError(f"{path}: no file below this folder can be read; {_KNOWN}.")
    return sorted(files)


def _known_format(file: Path) -> str:
    suffix = file_format(file.name)
    if suffix is None:
        has = f"the suffix {file.suffix} is not known" if file.suffix else "a file without a suffix"
        raise UsageError(f"{file}: {has}; {_KNOWN}.")
    return suffix


def _file_documents(file: Path, name: str, column: str) -> Iterator[Document]:
    suffix = _known_format(file)
    if suffix in _TEXTS:
        with _reading(file):
            text = "".join(line for _, line in _lines(file))
        yield Document(name, _clean(text.replace("\r\n", "\n")))
        return
    for number, place, row in _file_rows(file, suffix, column):
        yield document_of(row, column, place=place, fallback_id=f"{name}:{number}")


def _file_rows(file: Path, suffix: str, column: str) -> Iterator[tuple[int, str, object]]:
    """The rows of a file with their numbers and places."""
    between = ":" if suffix in _BY_LINE else ", row "
    with _reading(file):
        for number, row in _READERS[suffix](file, column):
            yield number, f"{file}{between}{number}", row


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn what reading ``file`` may raise into a `UsageError`."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}.") from error
    except (EOFError, zlib.error, lzma.LZMAError, pa.ArrowException, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {' '.join(str(error).split()).rstrip('.')}.") from error


def _open(file: Path) -> IO[bytes]:
    match file.suffix.lower():
        case ".gz":
            return cast(IO[bytes], gzip.open(file))
        case ".bz2":
            return bz2.open(file)
        case ".xz":
            return lzma.open(file)
        case ".zst":  # the standard library reads it from Python 3.14 on only
            return io.BufferedReader(pa.input_stream(str(file), compression="zstd"))
    return file.open("rb")


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers and their line ends. Lines are decoded one by one to name a bad one."""
    with _open(file) as lines:
        for number, line in enumerate(lines, 1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"{file}:{number}: byte 0x{line[error.start]:02x} is not UTF-8 ({error.reason}); "
                    "save the file as UTF-8."
                ) from error
            yield number, text.removeprefix("\ufeff") if number == 1 else text


def _json_lines(file: Path, column: str) -> Iterator[tuple[int, object]]:
    for number, line in _lines(file):
        if line.strip():
            yield number, _parse(line, file, number)


def _json(file: Path, column: str) -> Iterator[tuple[int, object]]:
    text = "".join(line for _, line in _lines(file))
    value = _parse(text, file, 1) if text.strip() else []
    if isinstance(value, dict):
        lists = [key for key, item in value.items() if isinstance(item, list)]
        if len(lists) != 1:
            raise UsageError(
                f"{file} holds an object with {len(lists)} lists ({_listed(value)}), where the rows should be its only "
                "list; a list of objects at the top does too."
            )
        value = value[lists[0]]
    if not isinstance(value, list):
        raise UsageError(f"{file} holds {_kind(value)}, not a list of objects.")
    yield from enumerate(value, 1)


def _parse(text: str, file: Path, line: int) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{file}:{line + error.lineno - 1}"
        hint = ""
        if error.msg == "Extra data" and file_format(file.name) == ".json":
            hint = "; a file of one object a line is named .jsonl"
        raise UsageError(f"{where}: not valid JSON: {error.msg} (column {error.colno}){hint}.") from error
    except (ValueError, RecursionError) as error:  # a number with too many digits; lists in lists without end
        raise UsageError(f"{file}:{line}: not readable as JSON: {error}.") from error


def _comma_separated(file: Path, column: str) -> Iterator[tuple[int, object]]:
    return _separated(file, ",")


def _tab_separated(file: Path, column: str) -> Iterator[tuple[int, object]]:
    return _separated(file, "\t")


def _separated(file: Path, delimiter: str) -> Iterator[tuple[int, object]]:
    """Rows of a table in text whose first row names the columns.

    Strict: a stray quotation mark or comma would silently swallow documents or cut them short.
    """
    before = csv.field_size_limit(_LARGEST_FIELD)
    reader = csv.reader((line for _, line in _lines(file)), delimiter=delimiter, strict=True)
    header: list[str] = []
    line = 1
    try:
        for row in reader:
            if row and not header:
                header = row
            elif row:
                if len(row) != len(header):
                    raise UsageError(
                        f"{file}:{line}: {len(row)} fields where the first row names {len(header)} columns; "
                        "a field that holds the separator must be in quotation marks."
                    )
                yield line, dict(zip(header, row, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(f"{file}:{line}: not a readable table row: {error}.") from error
    finally:
        csv.field_size_limit(before)


def _parquet(file: Path, column: str) -> Iterator[tuple[int, object]]:
    from pyarrow import parquet  # here: it takes a while to import, and few corpora need it

    with parquet.ParquetFile(file) as table:
        names = table.schema_arrow.names
        wanted = [name for name in names if name in (column, "id")] if column in names else names
        number = 0
        for batch in table.iter_batches(batch_size=1024, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                yield number, row


_READERS: dict[str, Reader] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": _comma_separated,
    ".tsv": _tab_separated,
    ".parquet": _parquet,
}
_BY_LINE = (".jsonl", ".ndjson", ".csv", ".tsv")
_KNOWN = (
    f"known are {', '.join(suffix for suffix in (*_READERS, *_TEXTS) if suffix != '.parquet')} "
    f"(each also packed: {', '.join(_PACKED)}) and .parquet"
)


def _missing_column(row: Mapping[str, object], column: str, place: str) -> MissingColumnError:
    there = f"the columns there are {_listed(row)}" if row else "it has no columns at all"
    return MissingColumnError(f"{place}: no column {column!r}; {there}; {_setting(_guess(row, column))}.")


def _guess(row: Mapping[str, object], column: str) -> str | None:
    """The column that was most likely meant: the one spelt like it, or the only one that holds running text."""
    texts = {name: value for name, value in row.items() if isinstance(value, str) and name != column}
    if near := near_names(column, list(texts)):
        return near[0]
    running = [name for name, value in texts.items() if name != "id" and len(words(value[:1000])) > 1]
    return running[0] if len(running) == 1 else None


def _setting(guess: str | None) -> str:
    return f"set corpus.column={guess}" if guess else "set corpus.column=... to the one that holds the documents"


def _listed(names: Mapping[str, object]) -> str:
    shown = [name if len(name) <= 40 else name[:39] + "…" for name in map(str, names)]
    return ", ".join(shown[:20]) + (f" and {len(shown) - 20} more" if len(shown) > 20 else "")


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
    return f"a {type(value).__name__}"


def _clean(text: str) -> str:
    """``text`` that can be encoded, or ``""`` where it is blank."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text) if text.strip() else ""
