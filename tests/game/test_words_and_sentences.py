"""Words and sentences of any script, as character spans."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.game.text import Span, sentences, words

TEXTS = st.text(max_size=80) | st.text(
    alphabet=st.sampled_from("ab. !?…\"'”)\n\r\t 灯。！」「、かー゛ดี่ ที।दी؟ًن👩\u200d\u0301-3"), max_size=80
)


def shown(text: str, spans: list[Span]) -> list[str]:
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\t\u3000\xa0", []),
        ("two words", ["two", "words"]),
        ("  it's well-known, isn't it?  ", ["it's", "well-known,", "isn't", "it?"]),
        ("никто не видел", ["никто", "не", "видел"]),
        ("لم يرَ أحدٌ", ["لم", "يرَ", "أحدٌ"]),
        ("सुबह तक।", ["सुबह", "तक।"]),
        ("비가 왔다", ["비가", "왔다"]),
        ("灯灭了", ["灯", "灭", "了"]),
        ("灯，灭了。", ["灯，", "灭", "了。"]),
        ("「灯」だ", ["「", "灯」", "だ"]),
        ("カ\u3099ス", ["カ\u3099", "ス"]),  # a combining mark stays with its letter
        ("ที่ดี", ["ที่", "ดี"]),
        ("灯lamp火", ["灯", "lamp", "火"]),
        ("lamp灯", ["lamp", "灯"]),
        ("𠀀𠀁", ["𠀀", "𠀁"]),  # beyond the basic plane
        ("👩‍👩‍👧 🏃🏽‍♀️", ["👩‍👩‍👧", "🏃🏽‍♀️"]),
        ("$x^2$ \\frac{1}{2}", ["$x^2$", "\\frac{1}{2}"]),
        ("a\u2028b\x85c\fd", ["a", "b", "c", "d"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert shown(text, words(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n ", []),
        ("no end", ["no end"]),
        ("One. Two! Three? Four…", ["One.", "Two!", "Three?", "Four…"]),
        ("Really?! Yes...  Fine.", ["Really?!", "Yes...", "Fine."]),
        ('"Go." He went. (Twice.) So.', ['"Go."', "He went.", "(Twice.)", "So."]),
        ("It costs 3.14 or v1.2, e.g.this. Right.", ["It costs 3.14 or v1.2, e.g.this.", "Right."]),
        ("a line\nanother\n\n\nand one", ["a line", "another", "and one"]),
        ("CRLF here\r\nand there\r\n", ["CRLF here", "and there"]),
        ("九点灯灭了。没有人看见！是谁？", ["九点灯灭了。", "没有人看见！", "是谁？"]),
        ("「雨だ。」と言った。", ["「雨だ。」", "と言った。"]),
        ("दीपक बुझ गया। बारिश हुई॥", ["दीपक बुझ गया।", "बारिश हुई॥"]),
        ("من أدار المفتاح؟ هطل المطر۔", ["من أدار المفتاح؟", "هطل المطر۔"]),
        ("...", ["..."]),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert shown(text, sentences(text)) == expected


def assert_partition(text: str, spans: list[Span]) -> None:
    """Spans are ordered, disjoint, not empty, start and end visibly, and leave out white space only."""
    position = 0
    for start, end in spans:
        assert position <= start < end <= len(text)
        assert not text[start].isspace()
        assert not text[end - 1].isspace()
        assert not text[position:start].strip()
        position = end
    assert not text[position:].strip()


@given(TEXTS)
def test_words_cover_all_but_white_space_and_hold_none(text: str) -> None:
    spans = words(text)
    assert_partition(text, spans)
    assert not any(symbol.isspace() for a, b in spans for symbol in text[a:b])


@given(TEXTS)
def test_sentences_cover_all_but_white_space(text: str) -> None:
    spans = sentences(text)
    assert_partition(text, spans)
    assert all("\n" not in text[a:b] for a, b in spans)


@given(TEXTS)
def test_no_word_begins_with_a_mark_that_combines_with_what_is_before_it(text: str) -> None:
    for start, _ in words(text):
        before = start > 0 and not text[start - 1].isspace()
        assert not (before and unicodedata.category(text[start]) in {"Mn", "Mc", "Me"})


@given(TEXTS, TEXTS)
def test_words_of_two_lines_are_the_words_of_each(one: str, other: str) -> None:
    expected = shown(one, words(one)) + shown(other, words(other))
    joined = f"{one}\n{other}"
    assert shown(joined, words(joined)) == expected
    assert shown(joined, sentences(joined)) == shown(one, sentences(one + "\n")) + shown(other, sentences(other))


@pytest.mark.parametrize("mark", ["\n", "\r\n", "\r", "\f", "\x85", "\u2028", "\u2029"])
def test_a_line_or_page_break_ends_a_sentence(mark: str) -> None:
    text = f"a heading{mark}a line without a stop"
    assert [text[start:end] for start, end in sentences(text)] == ["a heading", "a line without a stop"]
