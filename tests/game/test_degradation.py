"""Degradations: what the spy's copy loses, and what it keeps."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spyrl.game import Degradation, DegradationSettings, DocumentTooShortError
from spyrl.game.degradation import (
    ChangeNumbers,
    DropSentences,
    Everything,
    Mask,
    Nothing,
    ShuffleSentences,
    Unit,
)
from spyrl.game.text import sentences, words

TEXTS = {
    "Latin": "The lamp went out at nine. Nobody saw who turned the key! Was it the mayor? It rained until morning.",
    "Cyrillic": "Лампа погасла в девять. Никто не видел, кто повернул ключ! Дождь шёл до утра.",
    "Arabic": "انطفأ المصباح في التاسعة. لم يرَ أحدٌ من أدار المفتاح؟ هطل المطر حتى الصباح۔ ثم سكت.",
    "Chinese": "九点钟灯灭了。没有人看见是谁转动了钥匙！雨一直下到天亮。",
    "Japanese": "九時にランプが消えた。だれが鍵を回したのか、見た者はいない。「雨だ。」と彼は言った。",
    "Thai": "โคมดับตอนเก้าโมง ไม่มีใครเห็นว่าใครไขกุญแจ ฝนตกจนถึงเช้า",
    "Devanagari": "दीपक नौ बजे बुझ गया। किसी ने नहीं देखा कि चाबी किसने घुमाई। सुबह तक बारिश हुई।",
    "Korean": "등불이 아홉 시에 꺼졌다. 누가 열쇠를 돌렸는지 아무도 보지 못했다. 비가 왔다.",
    "emoji": "👩‍👩‍👧 went 🏃🏽‍♀️ home 🏠. It rained 🌧️🌧️ all night! 🇫🇷 won.",
    "LaTeX": r"Let $f(x)=\frac{1}{x^2+1}$ on $[0,1]$. Then \[\int_0^1 f = \pi/4.\] Hence $\pi \approx 3.14159$, q.e.d.",
    "CRLF": "First line\r\nsecond line here\r\n\r\nA new paragraph. And more\r\n",
    "breaks": "one\ftwo three\vfour five\x85six\u2028seven eight\u2029nine\n\n\nten\n",
    "mixed": "Das Wort 灯 heißt лампа. العربية و中文 in one line！ดี มาก 123 ٤٥٦.",
    "marks": "e\u0301a\u0308 o\u0302.\nu\u0327\u0301 क\u093c\u094d ن\u0651\u0650 \u200bzero\u200b width.",
}
LINE_BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"
UNITS: tuple[Unit, ...] = ("words", "characters", "sentences")
FRACTIONS = (0.01, 0.1, 0.2, 0.25, 0.4, 0.5, 0.75, 0.9, 0.99)

PIECES = st.sampled_from([word for text in TEXTS.values() for word in text.split()] + ["a", "灯", "."])
GAPS = st.sampled_from([" ", " ", "  ", "\n", "\r\n", "\n\n", "\t", "\u2028", "\u3000", "\xa0", ". ", "。"])
DOCUMENTS = st.sampled_from(sorted(TEXTS.values())) | st.lists(
    st.tuples(PIECES, GAPS).map("".join), min_size=2, max_size=40
).map("".join)


def assert_masked(text: str, fraction: float, unit: Unit, seed: int) -> None:
    """All that a mask promises."""
    result = Mask(fraction, unit, "_").degrade(text, Random(seed), "doc")
    ((start, end),) = result.hidden
    # Outside the span nothing changes; inside, everything but the line breaks does: the length and every line stay.
    assert 0 <= start < end <= len(text) == len(result.text)
    assert result.text[:start] == text[:start]
    assert result.text[end:] == text[end:]
    assert all(
        new == (old if old in LINE_BREAKS else "_")
        for old, new in zip(text[start:end], result.text[start:end], strict=True)
    )
    assert len(result.text.splitlines()) == len(text.splitlines())
    # At least one unit is hidden, and at least one stays whole.
    assert text[start:end].strip()
    if unit == "characters":
        assert any(b <= start or a >= end for a, b in words(text))
        visible = len(text.strip())
        assert end - start <= max(round(fraction * visible), 1)
        return
    units = words(text) if unit == "words" else sentences(text)
    hidden = [span for span in units if start <= span[0] and span[1] <= end]
    whole = [span for span in units if span[1] <= start or span[0] >= end]
    assert len(hidden) + len(whole) == len(units)  # none is cut in two
    assert len(hidden) == min(max(round(fraction * len(units)), 1), len(units) - 1)
    assert (start, end) == (hidden[0][0], hidden[-1][1])


@pytest.mark.parametrize("script", TEXTS)
@pytest.mark.parametrize("unit", UNITS)
def test_masks_in_every_script(script: str, unit: Unit) -> None:
    if unit == "sentences" and script == "Thai":  # marks no sentence ends
        with pytest.raises(DocumentTooShortError):
            assert_masked(TEXTS[script], 0.2, unit, 0)
        return
    for fraction in FRACTIONS:
        for seed in range(3):
            assert_masked(TEXTS[script], fraction, unit, seed)


@given(DOCUMENTS, st.floats(0.01, 0.99), st.sampled_from(UNITS), st.integers(0, 999))
def test_masks_of_any_document(text: str, fraction: float, unit: Unit, seed: int) -> None:
    assume("_" not in text)  # what already looks hidden cannot be told from what is
    assume(len(sentences(text) if unit == "sentences" else words(text)) >= 2)
    assert_masked(text, fraction, unit, seed)


@given(st.text(max_size=40), st.sampled_from(UNITS), st.floats(0.01, 0.99), st.integers(0, 9))
def test_any_text_is_masked_or_called_too_short(text: str, unit: Unit, fraction: float, seed: int) -> None:
    text = text.replace("_", "x")
    if len(sentences(text) if unit == "sentences" else words(text)) >= 2:
        assert_masked(text, fraction, unit, seed)
    else:
        with pytest.raises(DocumentTooShortError):
            Mask(fraction, unit).degrade(text, Random(seed), "doc")


@pytest.mark.parametrize(
    ("fraction", "hidden"),
    [(0.01, 1), (0.1, 1), (0.2, 2), (0.25, 2), (0.4, 4), (0.5, 5), (0.9, 9), (0.96, 9), (0.99, 9)],
)
def test_how_many_of_ten_words_are_hidden(fraction: float, hidden: int) -> None:
    masked = Mask(fraction).degrade("aa bb cc dd ee ff gg hh ii jj", Random(0)).text
    assert len(masked.split()) == 10 - hidden + 1  # one run of underscores, across the spaces
    assert masked.count("_") == 3 * hidden - 1


def test_the_masked_span_starts_everywhere_alike() -> None:
    text = "aa bb cc dd ee ff gg hh ii jj"  # two of ten words can start at nine places
    starts = [Mask(0.2).degrade(text, Random(seed)).hidden[0][0] for seed in range(900)]
    assert set(starts) == {0, 3, 6, 9, 12, 15, 18, 21, 24}
    assert all(60 < starts.count(start) < 140 for start in set(starts))  # 100 expected, ± 4 standard deviations


def test_a_masked_line_break_stays_where_it_is() -> None:
    text = "one two\r\nthree\n\nfour"
    result = Mask(0.75).degrade(text, Random(0), "doc")
    assert result.text in ("_______\r\n_____\n\nfour", "one ___\r\n_____\n\n____")


def test_another_character_hides_as_well() -> None:
    assert Mask(0.5, character="█").degrade("ab cd", Random(0)).text in ("██ cd", "ab ██")


def test_a_mask_of_characters_hides_their_share_and_leaves_a_word() -> None:
    text = "abcdefghij klmnopqrst"  # 21 characters
    result = Mask(0.2, "characters").degrade(text, Random(1))
    assert result.text.count("_") == 4  # round(4.2)
    # 0.99 of it would be 21 characters and leave no word: as many as leave one are hidden.
    assert Mask(0.99, "characters").degrade(text, Random(1)).text.replace("_", "") in ("abcdefghij", "klmnopqrst")


def test_a_mask_of_sentences_hides_whole_ones() -> None:
    text = "It rained. Nobody came! Why? The end."
    found = {Mask(0.25, "sentences").degrade(text, Random(seed)).text for seed in range(40)}
    assert found == {
        "__________ Nobody came! Why? The end.",
        "It rained. ____________ Why? The end.",
        "It rained. Nobody came! ____ The end.",
        "It rained. Nobody came! Why? ________",
    }


def test_thai_and_chinese_words_are_hidden_with_their_marks() -> None:
    for text in ("ที่นี่ดี", "がくせい か\u3099く"):
        for seed in range(10):
            result = Mask(0.3).degrade(text, Random(seed))
            assert not any(
                symbol in "\u0e31\u0e34\u0e35\u0e48\u3099" and before == "_"
                for before, symbol in zip(result.text, result.text[1:], strict=False)
            )


@given(DOCUMENTS, st.floats(0.01, 1.0), st.integers(0, 999))
def test_dropped_sentences_are_gone_and_the_others_keep_their_order(text: str, fraction: float, seed: int) -> None:
    found = sentences(text)
    assume(len(found) >= 2)
    result = DropSentences(fraction).degrade(text, Random(seed), "doc")
    assert len(result.hidden) == min(max(round(fraction * len(found)), 1), len(found) - 1)
    assert list(result.hidden) == sorted(set(result.hidden) & set(found))
    kept = "".join(text[a:b] for a, b in found if (a, b) not in result.hidden)
    assert "".join(result.text.split()) == "".join(kept.split())
    assert len(result.text) < len(text)
    assert result.text.count("\n") == text.count("\n")


def test_a_dropped_sentence_takes_the_space_behind_it_along() -> None:
    text = "One here. Two here.  Three here.\nFour here."
    found = {DropSentences(0.25).degrade(text, Random(seed)).text for seed in range(40)}
    assert found == {
        "Two here.  Three here.\nFour here.",
        "One here. Three here.\nFour here.",
        "One here. Two here.  \nFour here.",
        "One here. Two here.  Three here.\n",
    }


@given(DOCUMENTS, st.integers(0, 999))
def test_shuffled_sentences_are_the_same_ones_in_another_order(text: str, seed: int) -> None:
    found = sentences(text)
    pieces = [text[a:b] for a, b in found]
    assume(len(set(pieces)) >= 2)
    result = ShuffleSentences().degrade(text, Random(seed), "doc")
    assert result.text != text
    assert sorted(result.text) == sorted(text)
    assert len(result.hidden) >= 2
    # Rebuild the text by the reported spans: where nothing moved the old sentence stands.
    position, new = 0, 0
    moved = []
    for (a, b), piece in zip(found, pieces, strict=True):
        gap = text[position:a]
        assert result.text[new : new + len(gap)] == gap
        new += len(gap)
        if (a, b) not in result.hidden:
            assert result.text.startswith(piece, new)
            new += len(piece)
        else:
            candidates = [p for p in pieces if p != piece and result.text.startswith(p, new)]
            assert candidates
            moved.append(max(candidates, key=len))
            if len(candidates) > 1:
                return  # which of two that begin alike stands here cannot be told
            new += len(moved[-1])
        position = b
    assert sorted(moved) == sorted(text[a:b] for a, b in result.hidden)


@given(
    st.lists(st.sampled_from(["007", "0", "3", "12", "1999", "3.14", "x", "lamp", "10%"]), min_size=1, max_size=20),
    st.floats(0.01, 1.0),
    st.integers(0, 999),
)
def test_changed_numbers_are_others_of_as_many_digits(tokens: list[str], fraction: float, seed: int) -> None:
    text = " ".join(tokens)
    numbers = sum({"3.14": 2, "x": 0, "lamp": 0}.get(token, 1) for token in tokens)
    assume(numbers)
    result = ChangeNumbers(fraction).degrade(text, Random(seed), "doc")
    assert len(result.hidden) == max(round(fraction * numbers), 1)
    assert len(result.text) == len(text)
    position = 0
    for start, end in result.hidden:
        assert result.text[position:start] == text[position:start]
        old, new = text[start:end], result.text[start:end]
        assert old.isdecimal()
        assert new.isdecimal()
        assert new != old
        assert new[0] != "0" or old[0] == "0" or len(old) == 1
        position = end
    assert result.text[position:] == text[position:]


ALL: dict[str, Degradation] = {
    "words": Mask(0.3),
    "characters": Mask(0.3, "characters"),
    "sentences": Mask(0.3, "sentences"),
    "drop": DropSentences(0.4),
    "shuffle": ShuffleSentences(),
    "numbers": ChangeNumbers(0.5),
    "everything": Everything(),
    "nothing": Nothing(),
}
STORY = "At 9 the lamp went out. At 10 it rained. 11 people came. Nobody saw 12 of them leave."


@pytest.mark.parametrize("name", ALL)
def test_every_degradation_is_deterministic_in_its_generator(name: str) -> None:
    results = [ALL[name].degrade(STORY, Random(seed), "doc") for seed in range(12)]
    assert [ALL[name].degrade(STORY, Random(seed), "another name") for seed in range(12)] == results
    if name in ("everything", "nothing"):
        assert len({result.text for result in results}) == 1
    else:
        assert len({result.text for result in results}) > 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("words", ""),
        ("words", " \n\t "),
        ("words", "word"),
        ("words", "  word\n"),
        ("characters", ""),
        ("characters", "word"),
        ("sentences", "Only one sentence."),
        ("sentences", "no end at all"),
        ("drop", ""),
        ("drop", "Only one sentence.  "),
        ("shuffle", "Only one sentence."),
        ("shuffle", "The same. The same. The same."),
        ("numbers", "no number in here"),
        ("everything", " \n"),
    ],
)
def test_a_document_too_short_is_named(name: str, text: str) -> None:
    with pytest.raises(DocumentTooShortError, match=r"'corpus/12'.*it needs at least") as caught:
        ALL[name].degrade(text, Random(0), "corpus/12")
    assert caught.value.document_id == "corpus/12"


def test_two_words_are_enough() -> None:
    assert {Mask(0.2).degrade("lamp key", Random(seed)).text for seed in range(20)} == {"____ key", "lamp ___"}
    assert {Mask(0.2).degrade("灯火", Random(seed)).text for seed in range(20)} == {"_火", "灯_"}


def test_nothing_hides_nothing_and_everything_all() -> None:
    assert Nothing().degrade(STORY, Random(0)).text == STORY
    assert Nothing().degrade("", Random(0)).hidden == ()
    assert Everything().degrade(STORY, Random(0)).text == ""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (DegradationSettings(), Mask(0.2, "words", "_")),
        (DegradationSettings(fraction=0.4, unit="sentences", character="#"), Mask(0.4, "sentences", "#")),
        (DegradationSettings("drop_sentences", 0.3), DropSentences(0.3)),
        (DegradationSettings("shuffle_sentences"), ShuffleSentences()),
        (DegradationSettings("change_numbers", 1.0), ChangeNumbers(1.0)),
        (DegradationSettings("everything"), Everything()),
        (DegradationSettings("nothing"), Nothing()),
    ],
)
def test_settings_make_what_they_say(settings: DegradationSettings, expected: Degradation) -> None:
    assert settings.make() == expected


@pytest.mark.parametrize("fraction", [0.0, -0.2, 1.0, 1.5, float("nan")])
def test_a_mask_hides_a_part(fraction: float) -> None:
    with pytest.raises(ValueError, match=r"fraction must be in \(0, 1\)"):
        DegradationSettings(fraction=fraction)


@pytest.mark.parametrize("character", ["", "__", " ", "\n", "\u3000"])
def test_the_hiding_character_is_one_and_visible(character: str) -> None:
    with pytest.raises(ValueError, match="one visible character"):
        DegradationSettings(character=character)


def test_shuffling_never_comes_out_as_it_was() -> None:
    for seed in range(20):
        assert ShuffleSentences().degrade("One. Two.\n", Random(seed)).text == "Two. One.\n"


def test_a_mask_that_would_change_nothing_is_refused_by_name() -> None:
    with pytest.raises(DocumentTooShortError, match="'blank-7'"):
        Mask(0.5).degrade("____ ____", Random(0), "blank-7")


# What a mask keeps

KEEPS = (r"\S+:", r"\d+", r"[A-Z]\w*", r"\w", r"x*", r"[^a]+")
LEDGERS = st.lists(st.sampled_from(["Ada: lamp", "Ben:  key", "x 12", "Cleo:\trope 7", "a b"]), min_size=2).map(
    "\n".join
)


def test_a_mask_keeps_what_it_is_told_to() -> None:
    text = "Ada: lamp\nBen: key\nCleo: rope\nDan: vase"
    results = {Mask(0.5, keep=r"\S+:").degrade(text, Random(seed)).text for seed in range(99)}
    # Four of the eight words, beginning at any of the first five: two neighbouring objects.
    assert results == {
        "Ada: ____\nBen: ___\nCleo: rope\nDan: vase",
        "Ada: lamp\nBen: ___\nCleo: ____\nDan: vase",
        "Ada: lamp\nBen: key\nCleo: ____\nDan: ____",
    }


def test_what_is_kept_parts_the_hidden_spans() -> None:
    result = Mask(0.99, keep=r"\d+").degrade("one  12 two three\n4 five  six", Random(3))
    # Six of the seven words, here the first ones; white space stays beside what is kept, and is hidden elsewhere.
    assert result.text == "___  12 _________\n4 ____  six"
    assert result.hidden == ((0, 3), (8, 17), (20, 24))


@given(DOCUMENTS | LEDGERS, st.floats(0.01, 0.99), st.sampled_from(UNITS), st.sampled_from(KEEPS), st.integers(0, 999))
def test_a_mask_hides_all_of_its_span_but_what_it_keeps(
    text: str, fraction: float, unit: Unit, keep: str, seed: int
) -> None:
    assume("_" not in text)
    assume(len(sentences(text) if unit == "sentences" else words(text)) >= 2)
    ((start, end),) = Mask(fraction, unit).degrade(text, Random(seed)).hidden  # the span that is drawn
    kept = {start + at for match in re.finditer(keep, text[start:end]) for at in range(*match.span())}
    if all(at in kept or text[at].isspace() for at in range(start, end)):
        with pytest.raises(DocumentTooShortError, match="'doc'"):
            Mask(fraction, unit, keep=keep).degrade(text, Random(seed), "doc")
        return
    result = Mask(fraction, unit, keep=keep).degrade(text, Random(seed), "doc")
    assert len(result.text) == len(text)
    assert len(result.text.splitlines()) == len(text.splitlines())
    changed = {at for at, (old, new) in enumerate(zip(text, result.text, strict=True)) if old != new}
    assert {result.text[at] for at in changed} == {"_"}
    assert changed <= set(range(start, end)) - kept
    assert changed >= {at for at in range(start, end) if not text[at].isspace()} - kept
    # White space beside what is kept stays, too.
    for at in kept:
        for step in (-1, 1):
            place = at + step
            while start <= place < end and text[place].isspace():
                assert place not in changed
                place += step
    # The hidden spans are what changed, and no more.
    hidden = [set(range(*span)) for span in result.hidden]
    assert all(hidden)
    assert set().union(*hidden) - changed <= {at for at in range(len(text)) if text[at] in LINE_BREAKS}
    assert changed <= set().union(*hidden)
    assert [span for pair in result.hidden for span in pair] == sorted(span for pair in result.hidden for span in pair)
    assert all(text[place].strip() for begin, stop in result.hidden for place in (begin, stop - 1))


def test_where_all_is_kept_nothing_can_be_hidden() -> None:
    with pytest.raises(DocumentTooShortError, match=r"'names' .*keep='\\\\S\+:'"):
        Mask(0.5, keep=r"\S+:").degrade("Ada: Ben: Cleo:", Random(0), "names")


@pytest.mark.parametrize("keep", ["(", "[a", "*", "(?P<a"])
def test_what_is_kept_is_a_regular_expression(keep: str) -> None:
    with pytest.raises(ValueError, match="keep must be a regular expression, not"):
        DegradationSettings(keep=keep)


def test_settings_hand_what_is_kept_to_the_mask() -> None:
    assert DegradationSettings(keep=r"\S+:").make() == Mask(0.2, "words", "_", r"\S+:")
