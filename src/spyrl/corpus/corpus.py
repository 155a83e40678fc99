"""The corpus: an endless, reproducible sequence of documents, and the cursor that says where in it a run is."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Protocol

from spyrl.corpus.cutting import cut
from spyrl.corpus.hub import HubRows
from spyrl.corpus.ledger import LedgerRows
from spyrl.corpus.reading import DEFAULT_COLUMN, file_format, missing_file, near_names, read_local
from spyrl.errors import UsageError
from spyrl.game.deal import Document
from spyrl.game.randomness import generator
from spyrl.game.text import words

BUNDLED = {"writing": "writing_prompts.jsonl", "math": "math_documents.jsonl", "summarization": "reports.jsonl"}
"""The samples that come with the package: ``bundled:NAME`` and its file."""

_BUNDLED_PREFIX = "bundled:"
_GENERATED = "generated:ledger"
_HUB_PREFIX = "hf://"
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_FEWEST_WORDS = 2  # of one word nothing can be hidden that leaves something
_BLOCKS_KEPT = 2  # a take may cross from one block into the next and be repeated


@dataclass(frozen=True)
class CorpusSettings:
    """Which documents a run plays with. Raises `ValueError` for a value out of its range."""

    path: str = "bundled:writing"
    """``bundled:NAME``, ``generated:ledger``, a local file or folder, ``hf://owner/name`` or ``owner/name`` (Hub)."""

    subset: str | None = None
    """Configuration of a Hub data set; elsewhere without effect."""

    split: str = "train"
    """Split of a Hub data set or of the ledgers (train, test); elsewhere without effect."""

    column: str = DEFAULT_COLUMN
    """Name of the column that holds the documents; without effect for ``.txt`` and ``.md``, one document a file."""

    min_words: int = 8
    """Documents of fewer words are passed over; at least 1, and those under 2 words always are."""

    max_words: int | None = None
    """Longer documents are cut at a sentence (published: 128 for writing prompts, 1000 for maths); at least 1."""

    max_tokens: int | None = None
    """Longer documents are cut at a sentence, in the policy's tokens; ``None``: what the prompt limit leaves."""

    min_tokens: int = 1
    """Documents of fewer of the policy's tokens are passed over; at least 1."""

    shuffle: bool = True
    """Whether the order is random, drawn anew each epoch (a Hub data set: within 1,024 rows at a time)."""

    limit: int | None = None
    """Only the first so many documents (rows); at least 1. ``None``: all."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("path", "split", "column"):
            if not getattr(self, name):
                raise ValueError(f"{name} must not be empty")
        if self.subset is not None and not self.subset:
            raise ValueError("subset must not be empty; leave it out for the data set's only one")
        for name in ("min_words", "min_tokens", "max_words", "max_tokens", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        for unit in ("words", "tokens"):
            least, most = getattr(self, f"min_{unit}"), getattr(self, f"max_{unit}")
            if most is not None and most < least:
                raise ValueError(f"max_{unit} must be at least min_{unit}, which is {least}, not {most}")


@dataclass(frozen=True)
class Cursor:
    """A place in the sequence of documents, for a checkpoint to hold (`dataclasses.asdict`, ``Cursor(**saved)``).

    ``offset`` counts positions in the block as it is ordered in this epoch, documents that are passed over included.
    Raises `ValueError` below 0.
    """

    epoch: int = 0
    block: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if min(self.epoch, self.block, self.offset) < 0:
            raise ValueError(f"epoch, block and offset must be at least 0, not {self}")


class Rows(Protocol):
    """Where documents come from, in blocks."""

    @property
    def size(self) -> int | None:
        """Number of documents, or ``None`` where only reading them all would tell."""
        ...

    def block(self, number: int) -> list[Document]:
        """The rows of block ``number`` (from 0), uncut, with an empty text where there is none; none past the end."""
        ...


@dataclass
class _Block:
    rows: list[Document]
    verdicts: dict[int, Document | str] = field(default_factory=dict)  # by row: as it is played, or why it is not


class Corpus:
    """An endless sequence of documents: after the last block of an epoch, the next one begins.

    ``skipped`` counts the documents passed over so far by reason, each once however often it is come across.
    """

    settings: CorpusSettings
    description: str
    """What and how much is read, for a log."""
    size: int | None
    """Number of documents that have a text, before those too short are passed over; ``None`` for a stream."""
    skipped: dict[str, int]

    def __init__(
        self,
        settings: CorpusSettings,
        rows: Rows,
        *,
        seed: int,
        count_tokens: Callable[[str], int],
        max_tokens: int,
        description: str,
    ) -> None:
        """Use `open_corpus`, which also checks that there is a document."""
        self.settings = settings
        self.description = description
        self.size = rows.size
        self.skipped = {}
        self._rows = rows
        self._seed = seed
        self._count_tokens = count_tokens
        self._max_tokens = max_tokens
        self._blocks: dict[int, _Block] = {}
        self._counted: set[tuple[int, int]] = set()

    def take(self, cursor: Cursor, count: int) -> tuple[list[Document], Cursor]:
        """The next ``count`` documents (at least 0) from ``cursor`` on, and the cursor behind them.

        The same cursor gives the same documents. Raises `UsageError` when a whole epoch gives no document,
        `SpyRLError` when the Hub stops answering, `ValueError` for a negative count.
        """
        if count < 0:
            raise ValueError(f"count must be at least 0, not {count}")
        epoch, number, offset = cursor.epoch, cursor.block, cursor.offset
        taken: list[Document] = []
        epochs_ended = 0  # since the last document
        while len(taken) < count:
            block = self._block(number)
            if not block.rows:
                epochs_ended += 1
                if epochs_ended == 2:  # the first may have been joined near its end, the second was a whole one
                    raise self._nothing(f"a whole pass over {self.settings.path}")
                epoch, number, offset = epoch + 1, 0, 0
                continue
            for row in self._order(epoch, number, len(block.rows))[offset:]:
                offset += 1
                verdict = self._verdict(block, number, row)
                if isinstance(verdict, Document):
                    taken.append(verdict)
                    epochs_ended = 0
                    if len(taken) == count:
                        return taken, Cursor(epoch, number, offset)
            number, offset = number + 1, 0
        return taken, cursor

    def one_epoch(self) -> Iterator[Document]:
        """Every document once, in the order of the first epoch. Raises what `take` does."""
        number = 0
        while (block := self._block(number)).rows:
            for row in self._order(0, number, len(block.rows)):
                if isinstance(verdict := self._verdict(block, number, row), Document):
                    yield verdict
            number += 1

    def check(self) -> None:
        """Raise `UsageError` where the first block gives no document."""
        block = self._block(0)
        if not block.rows:
            raise UsageError(f"{self.settings.path} is empty: it holds no document.")
        order = self._order(0, 0, len(block.rows))
        if not any(isinstance(self._verdict(block, 0, row), Document) for row in order):
            read = len(block.rows)
            raise self._nothing(f"{self.settings.path}, {read:,} {'row' if read == 1 else 'rows'} read")

    def _block(self, number: int) -> _Block:
        if number in self._blocks:
            return self._blocks[number]
        block = _Block(self._rows.block(number))
        if block.rows:
            self._blocks[number] = block
            if len(self._blocks) > _BLOCKS_KEPT:
                del self._blocks[next(iter(self._blocks))]
        return block

    def _order(self, epoch: int, block: int, size: int) -> tuple[int, ...]:
        return _shuffled(self._seed, epoch, block, size) if self.settings.shuffle else tuple(range(size))

    def _verdict(self, block: _Block, number: int, row: int) -> Document | str:
        if row not in block.verdicts:
            verdict = self._cut(block.rows[row])
            block.verdicts[row] = verdict
            if isinstance(verdict, str) and (number, row) not in self._counted:
                self._counted.add((number, row))
                self.skipped[verdict] = self.skipped.get(verdict, 0) + 1
        return block.verdicts[row]

    def _cut(self, document: Document) -> Document | str:
        """The document as it is played, or the reason why it is passed over."""
        if not document.text:
            return "empty"
        text = cut(
            document.text,
            max_words=self.settings.max_words,
            max_tokens=self._max_tokens,
            count_tokens=self._count_tokens,
        )
        if len(words(text)) < max(self.settings.min_words, _FEWEST_WORDS):
            return "too few words"
        if self.settings.min_tokens > 1 and self._count_tokens(text) < self.settings.min_tokens:
            return "too few tokens"
        return Document(document.id, text)

    def _nothing(self, where: str) -> UsageError:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.skipped.items())
        return UsageError(
            f"No document is long enough in {where} ({reasons}): corpus.min_words={self.settings.min_words}, "
            f"corpus.min_tokens={self.settings.min_tokens}, and documents are cut at {self._max_tokens:,} tokens "
            "(the least of corpus.max_tokens and what game.max_prompt_tokens leaves)."
        )


def open_corpus(
    settings: CorpusSettings,
    *,
    seed: int,
    count_tokens: Callable[[str], int],
    max_tokens: int,
    on_ready: Callable[[str], None] | None = None,
) -> Corpus:
    """Open the corpus that ``settings`` name, and see that it has a document.

    ``max_tokens`` is what the prompts leave for a document, in the tokens of ``count_tokens``; a smaller
    ``settings.max_tokens`` comes first. ``on_ready`` is told the corpus's description. Local files are read as a
    whole, of a Hub data set the first 1,024 rows. Raises `UsageError` for whatever is wrong with path, column, rows
    or lengths.
    """
    budget = max_tokens if settings.max_tokens is None else min(max_tokens, settings.max_tokens)
    if budget < settings.min_tokens:
        raise UsageError(
            f"The prompts leave {max_tokens:,} tokens for a document, fewer than corpus.min_tokens="
            f"{settings.min_tokens}: raise the prompt limit or lower that."
        )
    rows, description = _rows(settings, seed)
    corpus = Corpus(settings, rows, seed=seed, count_tokens=count_tokens, max_tokens=budget, description=description)
    corpus.check()
    if on_ready is not None:
        on_ready(corpus.description)
    return corpus


def hub_data_set(path: str) -> str | None:
    """The Hub data set that a corpus's path names: ``hf://owner/name``, or ``owner/name`` that is not on the disk."""
    name = path.removeprefix(_HUB_PREFIX).removeprefix("datasets/").rstrip("/")
    if path.startswith(_HUB_PREFIX):
        return name if _HUB_ID.fullmatch(name) else None
    local = path.startswith((".", "/", "~")) or file_format(path) is not None or os.path.exists(path)
    return path if _HUB_ID.fullmatch(path) and not local else None


def _rows(settings: CorpusSettings, seed: int) -> tuple[Rows, str]:
    path = settings.path
    if path == _GENERATED:
        return LedgerRows(settings.split, seed, settings.limit), f"generated ledgers ({settings.split})"
    if path.startswith(_BUNDLED_PREFIX):
        name = path.removeprefix(_BUNDLED_PREFIX)
        if name not in BUNDLED:
            known = ", ".join([*(_BUNDLED_PREFIX + each for each in BUNDLED), _GENERATED])
            raise UsageError(f"corpus.path={path}: no such sample; there are {known}.")
        with as_file(files("spyrl.corpus") / "samples" / BUNDLED[name]) as file:
            return _local(file, settings)
    if repository := hub_data_set(path):
        return _hub(repository, settings)
    if path.startswith(_HUB_PREFIX):
        raise UsageError(f"corpus.path={path}: a Hub data set is written hf://owner/name.")
    local = os.path.expanduser(path)
    if os.path.exists(local):
        return _local(Path(os.path.abspath(local)), settings)
    named = not path.startswith((".", "/", "~")) and file_format(path) is None
    if named and (near := near_names(path.split(":")[-1], [*BUNDLED])):
        raise UsageError(f"{str(missing_file(path)).rstrip('.')}. For the sample set corpus.path=bundled:{near[0]}.")
    raise missing_file(path)


def _local(file: Path, settings: CorpusSettings) -> tuple[Rows, str]:
    rows = read_local(file, settings.column, settings.limit)
    return rows, f"{rows.size:,} {'document' if rows.size == 1 else 'documents'} from {settings.path}"


def _hub(name: str, settings: CorpusSettings) -> tuple[Rows, str]:
    rows = HubRows(name, subset=settings.subset, split=settings.split, column=settings.column, limit=settings.limit)
    return rows, f"streaming {name} ({settings.split})"


@lru_cache(maxsize=4)
def _shuffled(seed: int, epoch: int, block: int, size: int) -> tuple[int, ...]:
    order = list(range(size))
    generator(seed, "corpus", epoch, block).shuffle(order)
    return tuple(order)
