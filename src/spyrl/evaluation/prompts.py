"""Prompts that models are to answer: from the Hub, a file, or the bundled samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from spyrl.corpus import CorpusSettings, MissingColumnError, open_corpus
from spyrl.errors import UsageError
from spyrl.game import Document
from spyrl.policy import Message

COLUMNS = ("prompt", "query", "text")
"""Where prompts are looked for when no column is named."""

_NO_LIMIT = 10**12


@dataclass(frozen=True)
class PromptSettings:
    """Which prompts, and what is asked about them. Lengths are in words; see `spyrl.corpus.CorpusSettings`."""

    source: str
    column: str | None = None
    subset: str | None = None
    split: str = "test"
    limit: int | None = None
    max_words: int | None = None
    instructions: str = ""
    """Put before each prompt, for prompts that are no requests by themselves."""

    @property
    def name(self) -> str:
        """The source without its folder and ending."""
        return re.sub(r"^bundled:", "", PurePath(self.source).name).split(".")[0] or self.source


def read_prompts(settings: PromptSettings) -> list[Document]:
    """The prompts in their order; rows without any are left out.

    Raises `UsageError` for a source or column that is not there, for rows that cannot be read, and for an id that
    two rows have.
    """
    try:
        documents = _documents(settings)
    except UsageError as error:  # the corpus speaks of its own settings
        raise UsageError(re.sub(r"corpus\.(\w+)(=?)", _option, str(error))) from None
    seen: set[str] = set()
    for document in documents:
        if document.id in seen:
            raise UsageError(f"{settings.source}: two prompts have the id {document.id!r}; ids must differ")
        seen.add(document.id)
    return documents


def messages(document: Document, instructions: str) -> tuple[Message, ...]:
    """What a model is asked."""
    return ({"role": "user", "content": request(document, instructions)},)


def request(document: Document, instructions: str) -> str:
    """The prompt, behind the instructions where there are any."""
    return f"{instructions}\n\n{document.text}" if instructions else document.text


def _option(match: re.Match[str]) -> str:
    name = "prompts" if match[1] == "path" else match[1].replace("_", "-")
    return f"--{name}{' ' if match[2] else ''}"


def _documents(settings: PromptSettings) -> list[Document]:
    columns: Sequence[str] = (settings.column,) if settings.column else COLUMNS
    for column in columns:
        try:
            corpus = open_corpus(
                CorpusSettings(
                    path=settings.source,
                    subset=settings.subset,
                    split=settings.split,
                    column=column,
                    min_words=1,
                    max_words=settings.max_words,
                    shuffle=False,
                    limit=settings.limit,
                ),
                seed=0,
                count_tokens=len,
                max_tokens=_NO_LIMIT,
            )
            return list(corpus.one_epoch())
        except MissingColumnError as error:
            missing = error
    if settings.column is None:
        told = str(missing).split(": no column")[0]
        raise UsageError(f"{told}: none of the columns {', '.join(COLUMNS)}; name the prompts' with --column")
    raise missing
