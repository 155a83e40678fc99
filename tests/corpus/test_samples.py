from __future__ import annotations

import pytest

from spyrl.corpus import CorpusSettings, Cursor, open_corpus
from spyrl.game.deal import Document
from spyrl.game.text import words


def sample(name: str) -> list[Document]:
    settings = CorpusSettings(path=f"bundled:{name}", shuffle=False, min_words=1)
    corpus = open_corpus(settings, seed=0, count_tokens=len, max_tokens=10_000_000)
    assert corpus.size is not None
    assert corpus.description == f"{corpus.size} documents from bundled:{name}"
    documents, _ = corpus.take(Cursor(), corpus.size)
    assert not corpus.skipped
    return documents


@pytest.mark.parametrize(
    ("name", "least", "least_words"), [("writing", 120, 8), ("math", 40, 8), ("summarization", 12, 800)]
)
def test_samples(name: str, least: int, least_words: int) -> None:
    documents = sample(name)
    assert len(documents) >= least
    assert len({document.id for document in documents}) == len(documents)
    assert len({document.text for document in documents}) == len(documents)
    assert min(len(words(document.text)) for document in documents) >= least_words
