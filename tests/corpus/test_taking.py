from __future__ import annotations

from collections import Counter
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.corpus import Corpus, CorpusSettings, Cursor, open_corpus
from spyrl.corpus import corpus as module
from spyrl.errors import UsageError
from spyrl.game.deal import Document


def count_words(text: str) -> int:
    return len(text.split())


class Blocks:
    """Rows in blocks of a chosen size, as a Hub data set has them."""

    def __init__(self, texts: list[str], block: int) -> None:
        self.documents = [Document(str(index), text) for index, text in enumerate(texts)]
        self.length = block
        self.size = None
        self.reads: Counter[int] = Counter()

    def block(self, number: int) -> list[Document]:
        self.reads[number] += 1
        return self.documents[number * self.length : (number + 1) * self.length]


def corpus_of(rows: Blocks, *, seed: int = 0, max_tokens: int = 50, **settings: object) -> Corpus:
    chosen = CorpusSettings(**{"min_words": 2, **settings})  # type: ignore[arg-type]
    return Corpus(chosen, rows, seed=seed, count_tokens=count_words, max_tokens=max_tokens, description="")


TEXTS = st.lists(st.sampled_from(["", "one", "a text of five words", "two words"]), max_size=12).map(
    lambda texts: [*texts, "one that is long enough"]
)


@given(TEXTS, st.integers(1, 6), st.booleans(), st.integers(0, 3))
def test_one_epoch_is_what_taking_gives_before_it_comes_again(
    texts: list[str], block: int, shuffle: bool, seed: int
) -> None:
    corpus = corpus_of(Blocks(texts, block), shuffle=shuffle, seed=seed)
    epoch = list(corpus.one_epoch())
    taken, cursor = corpus.take(Cursor(), len(epoch))
    assert (taken, cursor.epoch) == (epoch, 0)
    assert corpus.take(cursor, 1)[1].epoch == 1


CURSORS = st.builds(Cursor, st.integers(0, 3), st.integers(0, 5), st.integers(0, 15))


@given(TEXTS, st.integers(1, 6), CURSORS, st.integers(0, 30), st.integers(0, 30), st.booleans(), st.integers(0, 3))
def test_taking_in_two_is_taking_at_once(
    texts: list[str], block: int, cursor: Cursor, first: int, second: int, shuffle: bool, seed: int
) -> None:
    whole, end = corpus_of(Blocks(texts, block), shuffle=shuffle, seed=seed).take(cursor, first + second)
    used = corpus_of(Blocks(texts, block), shuffle=shuffle, seed=seed)
    one, between = used.take(cursor, first)
    two, last = used.take(between, second)
    assert (one + two, last) == (whole, end)
    assert len(whole) == first + second
    resumed = corpus_of(Blocks(texts, block), shuffle=shuffle, seed=seed)
    assert resumed.take(Cursor(**asdict(between)), second) == (two, last)
    assert used.take(cursor, first + second) == (whole, end)


@given(TEXTS, st.integers(1, 6), st.integers(0, 5), st.booleans())
def test_an_epoch_gives_each_document_once(texts: list[str], block: int, seed: int, shuffle: bool) -> None:
    good = sorted(str(index) for index, text in enumerate(texts) if len(text.split()) > 1)
    corpus = corpus_of(Blocks(texts, block), seed=seed, shuffle=shuffle)
    cursor = Cursor()
    for epoch in range(3):
        taken, cursor = corpus.take(cursor, len(good))
        assert sorted(document.id for document in taken) == good
        assert cursor.epoch == epoch
    assert sum(corpus.skipped.values()) == len(texts) - len(good)


def test_order() -> None:
    texts = [f"number {index}" for index in range(40)]

    def ids(seed: int, epoch: int, shuffle: bool = True) -> list[int]:
        taken, _ = corpus_of(Blocks(texts, 20), seed=seed, shuffle=shuffle).take(Cursor(epoch), 40)
        return [int(document.id) for document in taken]

    assert ids(0, 0, shuffle=False) == ids(1, 3, shuffle=False) == list(range(40))
    assert ids(0, 0) == ids(0, 0)
    assert len({tuple(ids(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4
    assert set(ids(0, 0)[:20]) == set(range(20))
    assert ids(0, 0)[:20] != [each - 20 for each in ids(0, 0)[20:]]


def test_the_order_of_a_seed_is_kept_for_ever() -> None:
    # A resumed run must meet the documents it would have met: a change here breaks every checkpoint.
    taken, _ = corpus_of(Blocks([f"number {index}" for index in range(8)], 8), seed=7).take(Cursor(), 8)
    assert [int(document.id) for document in taken] == [7, 3, 6, 5, 2, 0, 1, 4]


def test_documents_are_cut_and_the_short_passed_over() -> None:
    rows = Blocks(["One two three. Four five six.", "One two.", "Incomprehensible", "", "A b c d e. F g h i j."], 8)
    corpus = corpus_of(rows, shuffle=False, max_words=5, min_words=3, max_tokens=4, min_tokens=4)
    assert corpus.take(Cursor(), 1) == ([Document("4", "A b c d")], Cursor(0, 0, 5))
    assert corpus.skipped == {"too few tokens": 1, "too few words": 2, "empty": 1}
    assert corpus.take(Cursor(0, 0, 5), 2)[1] == Cursor(2, 0, 5)
    assert corpus.skipped == {"too few tokens": 1, "too few words": 2, "empty": 1}


def test_a_single_word_is_never_a_document() -> None:
    corpus = corpus_of(Blocks(["One", "One two"], 8), shuffle=False, min_words=1)
    assert [each.text for each in corpus.take(Cursor(), 2)[0]] == ["One two", "One two"]


def test_an_epoch_without_a_document_ends_in_an_error() -> None:
    for texts in ([], ["", "one"]):
        with pytest.raises(UsageError, match="whole pass"):
            corpus_of(Blocks(texts, 1)).take(Cursor(3, 1, 1), 1)
    with pytest.raises(UsageError, match="2 too few words"):
        corpus_of(Blocks(["one", "two"], 1)).take(Cursor(), 1)


def test_blocks_are_read_once_while_they_are_in_use() -> None:
    rows = Blocks([f"number {index}" for index in range(9)], 3)
    corpus = corpus_of(rows)
    cursor = Cursor()
    for _ in range(4):
        corpus.take(cursor, 2)
        _, cursor = corpus.take(cursor, 2)
    assert rows.reads == {0: 1, 1: 1, 2: 1}


def test_documents_are_measured_once() -> None:
    calls: Counter[str] = Counter()

    def count(text: str) -> int:
        calls[text] += 1
        return len(text.split())

    rows = Blocks(["One two three.", "Four five."], 2)
    corpus = Corpus(CorpusSettings(min_words=2), rows, seed=0, count_tokens=count, max_tokens=9, description="")
    corpus.take(Cursor(), 20)
    assert calls == {"One two three.": 1, "Four five.": 1}


def test_open_corpus_takes_the_smaller_budget_and_tells_when_it_is_ready(tmp_path: Path) -> None:
    told: list[str] = []
    path = str(tmp_path / "a.txt")
    Path(path).write_text("One two. Three four. Five six.")

    def text(own: int | None, left: int) -> str:
        settings = CorpusSettings(path=path, max_tokens=own, min_words=2)
        corpus = open_corpus(settings, seed=0, count_tokens=count_words, max_tokens=left, on_ready=told.append)
        assert corpus.settings is settings
        return corpus.take(Cursor(), 1)[0][0].text

    assert text(None, 4) == text(4, 100) == text(100, 4) == "One two. Three four."
    assert told == [f"1 document from {path}"] * 3
    with pytest.raises(UsageError, match="leave 0 tokens"):
        text(None, 0)


def test_settings_are_checked() -> None:
    for wrong in (
        {"path": ""},
        {"split": ""},
        {"column": ""},
        {"subset": ""},
        {"min_words": 0},
        {"max_words": 0},
        {"max_tokens": -1},
        {"min_tokens": 0},
        {"limit": 0},
        {"min_words": 9, "max_words": 8},
        {"min_tokens": 9, "max_tokens": 8},
    ):
        with pytest.raises(ValueError, match=next(reversed(wrong))):
            CorpusSettings(**wrong)
    with pytest.raises(FrozenInstanceError):
        CorpusSettings().path = "x"  # type: ignore[misc]


def test_cursors_and_counts_are_checked() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        Cursor(offset=-1)
    with pytest.raises(ValueError, match="count"):
        corpus_of(Blocks(["a b"], 1)).take(Cursor(), -1)
    assert corpus_of(Blocks([], 1)).take(Cursor(2, 3, 4), 0) == ([], Cursor(2, 3, 4))
    assert set(module.BUNDLED) == {"writing", "math", "summarization"}
