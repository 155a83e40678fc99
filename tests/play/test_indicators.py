"""How outputs look: counted by hand, and the same on any text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_games import made_up, row
from spyrl.play.indicators import SURFACE, indicators, length_gap, look, mask_of, shown, spy_above


def surface(text: str, mask: str | None = None) -> dict[str, float]:
    return dict(zip(SURFACE, look(text, mask).surface, strict=True))


def test_a_text_by_its_look() -> None:
    text = "# A Title\n\n- One **bold** word, 12.\n______ and __ two"
    found = surface(text, "_")
    assert found["words"] == 12  # # A Title - One bold word 12 ______ and __ two
    assert found["characters"] == len(text)
    assert found["lines"] == 3
    assert found["markdown"] == pytest.approx(4 / 3)  # a heading, a list item, two marks of bold
    visible = len("".join(text.split()))
    assert found["punctuation"] == pytest.approx((1 + 1 + 4 + 2 + 6 + 2) / visible)
    assert found["digits"] == pytest.approx(2 / visible)
    assert found["capitals"] == pytest.approx(3 / visible)
    assert found["mask"] == 6  # two are no echo


def test_an_empty_text_has_nothing() -> None:
    assert set(surface("").values()) == {0.0}
    assert len(look("").words) == len(look("").pairs) == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [("Kofi: ? and lamp", 4), ("我爱你。", 3), ("don't stop", 3), ("Straße, ÉTÉ", 2), ("… !", 2), (" \n\t", 0)],
)
def test_words_of_several_scripts(text: str, count: int) -> None:
    assert len(look(text).words) == count


@given(st.text(alphabet="abAB 12.,\n", max_size=60))
def test_words_are_told_apart_as_a_plain_reading_does(text: str) -> None:
    plain = re.findall(r"[a-z0-9]+|(?<!\S)[.,]+(?!\S)", text.lower())
    found = look(text).words.tolist()
    assert len(found) == len(plain)
    assert [found.index(word) for word in found] == [plain.index(word) for word in plain]


@given(st.text(max_size=40))
def test_any_text_can_be_looked_at(text: str) -> None:
    found = look(text, "_")
    assert found.surface[0] == len(found.words)
    assert all(value >= 0 for value in found.surface)


def test_spy_above_counts_civilians_below_it() -> None:
    assert spy_above([5, 1, 2, 9], 1) == pytest.approx(2 / 3)
    assert spy_above([5, 5, 2], 1) == pytest.approx(0.75)
    assert spy_above([1, 1, 1], 2) == 0.5


def test_length_gap() -> None:
    assert length_gap([70, 100, 100], 1) == pytest.approx(-0.3)
    assert length_gap([3, 0, 0], 1) is None


def test_a_game_as_it_is_shown() -> None:
    game = row(["a", None, "c"], 2)
    again = game["outputs"] + [{**game["outputs"][0], "round": 2, "text": "more"}]
    assert shown({**game, "outputs": again}).texts == ("a\nmore", "", "c")


def test_the_mask_is_what_covers_the_hidden_part() -> None:
    assert mask_of(row(["a", "b", "c"], 1, mask="█")) == "█"
    cut = row(["a", "b", "c"], 1)
    cut["observations"][0] = "shorter"
    assert mask_of(cut) is None
    assert mask_of(row(["a", "b", "c"], None)) is None


def test_every_number_of_two_games() -> None:
    games = [
        row(["one two", "one two three", "one two three"], 1),
        row(["six seven eight", "____ six.", "six seven eight"], 2),
    ]
    found = indicators(games)
    assert found["shortcut/words"] == 0.0
    assert found["shortcut/length_gap"] == pytest.approx(-1 / 3)
    assert found["shortcut/mask"] == pytest.approx((0.5 + 1) / 2)
    assert found["shortcut/echo/spy"] == 0.5
    assert found["shortcut/echo/civilian"] == 0.0
    assert found["shortcut/punctuation"] == pytest.approx((0.5 + 1) / 2)
    # Pairs: 12, 12 23, 12 23 | 67 78, _6, 67 78: five different ones of ten.
    assert found["diversity/distinct_2"] == pytest.approx(5 / 10)
    assert found["diversity/repetition"] == 0.0
    assert found["diversity/within"] == pytest.approx((0.5 + 1 + 0.5 + 0 + 0 + 1) / 6)
    assert found["diversity/between"] == 0.0


def test_outputs_that_grow_alike() -> None:
    same = [row(["it was a dark night"] * 3, 1, game=number) for number in range(3)]
    found = indicators(same)
    assert found["diversity/within"] == found["diversity/between"] == 1.0
    assert found["diversity/distinct_2"] == pytest.approx(4 / 36)
    loop = indicators([row(["no no no no no"] * 3, 1)])
    assert loop["diversity/repetition"] == pytest.approx(0.75)


def test_a_clean_batch_tells_nothing_and_a_planted_one_does() -> None:
    clean, planted = indicators(made_up(0, 200)), indicators(made_up(0, 200, shorter=0.3))
    assert all(abs(clean[f"shortcut/{name}"] - 0.5) < 0.12 for name in SURFACE)
    assert planted["shortcut/words"] < 0.15
    assert planted["shortcut/length_gap"] == pytest.approx(-0.3, abs=0.04)


def test_without_spy_or_games_only_what_can_be_known() -> None:
    assert indicators([]) == {}
    found = indicators([row(["a b", "a b", "a b"], None)])
    assert set(found) == {"diversity/distinct_2", "diversity/repetition", "diversity/within"}
