"""Generated ledgers: what a document is, and where the endless sequence of them ends and begins."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spyrl.corpus import Corpus, CorpusSettings, Cursor, open_corpus
from spyrl.corpus.ledger import FACTS, NAMES, OBJECTS, SPLITS, LedgerRows, facts, ledger, split_of
from spyrl.errors import UsageError

BLOCK = 1024
LEDGERS = st.integers(0, 2**32).flatmap(
    lambda seed: st.integers(1, 40).map(lambda lines: ledger(random.Random(seed), lines))
)


def opened(seed: int = 0, **changes: object) -> Corpus:
    chosen = CorpusSettings(**{"path": "generated:ledger", **changes})  # type: ignore[arg-type]
    return open_corpus(chosen, seed=seed, count_tokens=lambda text: len(text.split()), max_tokens=50)


def texts(split: str, seed: int, blocks: int = 1) -> list[str]:
    rows = LedgerRows(split, seed)
    return [document.text for number in range(blocks) for document in rows.block(number)]


# Documents


def test_the_words_are_eighty_different_ones() -> None:
    assert len(set(NAMES)) == len(NAMES) == 40
    assert len(set(OBJECTS)) == len(OBJECTS) == 40
    assert not set(NAMES) & set(OBJECTS)


def test_a_document_is_six_facts_of_different_names_and_objects() -> None:
    for text in texts("train", 0):
        lines = text.split("\n")
        assert len(lines) == FACTS == 6
        names, objects = zip(*(line.split(": ") for line in lines), strict=True)
        assert len(set(names)) == len(set(objects)) == 6
        assert set(names) <= set(NAMES)
        assert set(objects) <= set(OBJECTS)


@given(LEDGERS)
def test_the_facts_of_a_document_say_it_all(text: str) -> None:
    assert "\n".join(f"{name}: {thing}" for name, thing in facts(text).items()) == text


def test_all_names_and_objects_come_up_in_every_line_alike() -> None:
    drawn = [[line.split(": ") for line in text.split("\n")] for text in texts("train", 0, blocks=4)]
    for place in range(FACTS):
        for kind, known in ((0, NAMES), (1, OBJECTS)):
            said = [lines[place][kind] for lines in drawn]
            # 4,096 draws of 40 words: 102 of each expected, standard deviation 10.
            assert all(50 < said.count(word) < 155 for word in known)


def test_what_a_text_states() -> None:
    assert facts("Ada: lamp\nBen: key") == {"Ada": "lamp", "Ben": "key"}
    assert facts("Ada: lamp\nAda: key") == {"Ada": "lamp"}  # the first time counts
    assert facts("Ada: ?\nAda: key") == {"Ada": "key"}  # and an unknown object states nothing
    assert facts("Ada: lamp key") == {"Ada": "lamp"}
    assert facts("lamp Ada:\nBen: key") == {"Ben": "key"}  # a name without an object takes none from the next line
    assert facts("Ada:") == facts("lamp") == facts("") == {}


# Splits


@given(st.integers(0, 2**32), st.integers(0, 2**32))
@settings(max_examples=5)
def test_splits_are_disjoint_whatever_the_seeds(one: int, other: int) -> None:
    train, test = set(texts("train", one)), set(texts("test", other))
    assert not train & test
    assert {split_of(text) for text in train} == {"train"}
    assert {split_of(text) for text in test} == {"test"}


def test_about_a_tenth_of_all_ledgers_is_test() -> None:
    draw = random.Random(0)
    held_out = sum(split_of(ledger(draw)) == "test" for _ in range(5000))
    assert 430 < held_out < 590  # 26 of 256 make 508, standard deviation 21


def test_an_unknown_split_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"^corpus\.split=validation: ledgers have the splits train and test\.$"):
        opened(split="validation")


# The sequence


@pytest.mark.parametrize("split", SPLITS)
def test_the_same_seed_gives_the_same_documents_and_another_seed_others(split: str) -> None:
    assert LedgerRows(split, 3).block(2) == LedgerRows(split, 3).block(2)
    drawn = [set(texts(split, seed)) for seed in (3, 4)]
    assert not drawn[0] & drawn[1]  # of more than 10^18 ledgers none comes up twice


def test_blocks_go_on_for_ever_and_do_not_depend_on_each_other() -> None:
    rows = LedgerRows("train", 0)
    far = rows.block(10**9)
    assert len(far) == BLOCK
    assert LedgerRows("train", 0).block(10**9) == far
    documents = [document for number in range(3) for document in rows.block(number)]
    assert len({document.text for document in documents}) == len({document.id for document in documents}) == 3 * BLOCK
    assert rows.size is None


def test_a_run_goes_on_over_the_end_of_a_block() -> None:
    corpus = opened(seed=5)
    whole, end = corpus.take(Cursor(), 2 * BLOCK + 10)
    assert end == Cursor(0, 2, 10)
    assert len({document.id for document in whole}) == 2 * BLOCK + 10
    assert {document.id.split("-")[2] for document in whole[:BLOCK]} == {"0"}
    taken, cursor = [], Cursor()
    while len(taken) < len(whole):
        some, cursor = opened(seed=5).take(cursor, 361)
        taken += some
    assert taken[: len(whole)] == whole
    assert corpus.size is None
    assert corpus.skipped == {}  # each is long enough for what a corpus asks of its documents


def test_a_run_and_its_held_out_documents_are_disjoint() -> None:
    train, _ = opened(seed=0).take(Cursor(), 3000)
    test, _ = opened(seed=0, split="test").take(Cursor(), 3000)
    assert not {document.text for document in train} & {document.text for document in test}
    assert not {document.id for document in train} & {document.id for document in test}
    assert opened(split="test").description == "generated ledgers (test)"


def test_a_limit_gives_the_same_few_documents_every_epoch() -> None:
    corpus = opened(limit=BLOCK + 6)
    assert corpus.size == BLOCK + 6
    taken, cursor = corpus.take(Cursor(), 2 * (BLOCK + 6))
    assert cursor.epoch == 1
    first, second = taken[: BLOCK + 6], taken[BLOCK + 6 :]
    assert len({document.text for document in first}) == BLOCK + 6
    assert {document.text for document in first} == {document.text for document in second}
    endless, _ = opened().take(Cursor(), BLOCK)
    assert set(first) >= set(endless)
