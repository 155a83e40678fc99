from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spyrl.corpus import fit
from spyrl.corpus.cutting import cut
from spyrl.game.text import sentences, words


def count_words(text: str) -> int:
    return len(words(text))


def count_lumps(text: str) -> int:
    """Tokens of a sort: not monotone, since ``ab`` merges into one where ``a`` alone was already one."""
    return len(text.replace("abc", "a").replace(". ", "."))


TEXTS = st.text(alphabet=st.sampled_from("ab c.?!\n 你好。คำ,\t"), max_size=200)


@given(TEXTS, st.integers(0, 60))
def test_the_longest_prefix_of_whole_sentences_that_fits(text: str, limit: int) -> None:
    fitted = fit(text, limit, len)
    ends = [end for _, end in sentences(text)] if len(text) > limit else [len(text)]
    if not any(end <= limit for end in ends):
        ends = [end for _, end in words(text)]
    assert fitted == text[: max((end for end in ends if end <= limit), default=0)]


@given(TEXTS, st.integers(0, 60))
def test_what_is_cut_fits_and_is_a_prefix_even_if_the_measure_is_not_quite_monotone(text: str, limit: int) -> None:
    fitted = fit(text, limit, count_lumps)
    assert text.startswith(fitted)
    assert count_lumps(fitted) <= limit or fitted == ""
    assert fitted == text or fitted == fitted.rstrip()


@given(TEXTS, st.integers(1, 30))
def test_cutting_by_words_is_fitting_by_words(text: str, limit: int) -> None:
    fitted = cut(text, max_words=limit, max_tokens=10_000, count_tokens=len)
    assert fitted == fit(text, limit, count_words)


def test_a_text_that_fits_is_left_alone() -> None:
    assert fit("  One two.\n\n", 2, count_words) == "  One two.\n\n"
    assert fit("", 0, len) == ""


def test_words_where_no_sentence_fits_and_nothing_where_no_word_does() -> None:
    assert fit("One two three four. Five.", 3, count_words) == "One two three"
    assert fit("Incomprehensibilities. Yes.", 4, len) == ""
    assert fit("   \n ", 2, len) == ""


def test_words_come_before_tokens() -> None:
    text = "One two three. Four five six. Seven eight nine."
    assert cut(text, max_words=6, max_tokens=100, count_tokens=len) == "One two three. Four five six."
    assert cut(text, max_words=6, max_tokens=20, count_tokens=len) == "One two three."
    assert cut(text, max_words=None, max_tokens=29, count_tokens=len) == "One two three. Four five six."


@settings(max_examples=30)
@given(st.integers(1, 40_000), st.integers(0, 99))
def test_few_measurements(limit: int, seed: int) -> None:
    text = " ".join("word " * (1 + (index * 7919 + seed) % 23) + "end." for index in range(3000))
    calls = 0

    def measure(prefix: str) -> int:
        nonlocal calls
        calls += 1
        return len(prefix) // 5 + 1

    fit(text, limit, measure)
    assert calls <= 20
