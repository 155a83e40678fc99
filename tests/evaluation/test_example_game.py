"""The game that a model card shows: which one, and that nothing written in it breaks the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from spyrl.evaluation.example_game import choose_game, game_markdown
from spyrl.runs.folder import RunFolder
from spyrl.runs.games import SCHEMA, write_games


def game(
    number: int = 0,
    *,
    document: str = "One two three.",
    hidden: tuple[tuple[int, int], ...] = ((4, 7),),
    texts: tuple[str | None, ...] = ("first", "second", "third"),
    spy: int | None = 2,
    votes: tuple[int, ...] = (1, 3, 0),
    found: float | None = 1.0,
    reasons: str = "",
) -> dict[str, Any]:
    choices = [player for player, count in enumerate(votes, 1) for _ in range(count)]
    ballot = {"voter": None, "outcome": "vote", "text": reasons, "probabilities": []}
    return dict.fromkeys(SCHEMA.names) | {
        "iteration": 0,
        "game": number,
        "document": document,
        "spy": spy,
        "hidden": [{"start": start, "end": end} for start, end in hidden],
        "outputs": [{"player": player, "round": 1, "text": text} for player, text in enumerate(texts, 1)],
        "ballots": [{**ballot, "choice": choice} for choice in choices],
        "votes": list(votes),
        "abstained": 0,
        "invalid": 0,
        "found": found,
        "rewards": [0.1, -0.2, 0.1],
    }


def fences(page: str) -> list[str]:
    return [token.content for token in MarkdownIt("commonmark").parse(page) if token.type == "fence"]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.games.mkdir(parents=True)
    return made


def keep(run: RunFolder, iteration: int, *rows: dict[str, Any]) -> None:
    write_games(run.games_path(iteration), [{**row, "iteration": iteration} for row in rows])


def chosen(run: RunFolder) -> tuple[int, int] | None:
    row = choose_game(run)
    return (row["iteration"], row["game"]) if row else None


def test_the_newest_game_whose_spy_was_found_by_most_ballots(run: RunFolder) -> None:
    assert choose_game(run) is None
    keep(run, 0, game(0, votes=(0, 8, 0)))
    assert chosen(run) == (0, 0)
    keep(run, 1, game(0, found=0.0), game(1, votes=(2, 5, 0)), game(2, votes=(1, 6, 0), document="One two three four."))
    assert chosen(run) == (1, 2)
    keep(run, 2, game(0, found=0.0), game(1, found=0.5), game(2, texts=("a", None, "b")), game(3, document="x" * 9000))
    assert chosen(run) == (1, 2)
    keep(
        run,
        3,
        game(5, votes=(0, 7, 0), document="One two three four."),
        game(6, votes=(0, 7, 0)),
        game(7, votes=(0, 7, 0)),
    )
    assert chosen(run) == (3, 6)  # the shortest, then the first


def test_without_a_found_spy_it_is_the_shortest_of_the_last_iteration(run: RunFolder) -> None:
    keep(run, 0, game(0, found=0.0, document="One."))
    keep(run, 1, game(0, found=0.0, document="One two three four."), game(1, found=0.0), game(2, texts=("", None, "c")))
    assert chosen(run) == (1, 1)
    keep(run, 2)  # an iteration without a game
    assert chosen(run) == (1, 1)


def test_a_game_without_a_spy(run: RunFolder) -> None:
    row = game(spy=None, found=None, hidden=())
    keep(run, 0, row)
    assert chosen(run) == (0, 0)
    page = game_markdown(row)
    assert "4 ballots." in page
    assert "the spy" not in page


def test_a_game_as_a_page() -> None:
    page = game_markdown(game(reasons="Player 2 says nothing of the two, which stands in my copy. \\boxed{2}"))
    assert fences(page) == [
        "One ⟦two⟧ three.\n",
        "first\n",
        "second\n",
        "third\n",
        "Player 2 says nothing of the two, which stands in my copy. \\boxed{2}\n",
    ]
    assert "in the copy of player 2, the spy." in page
    assert "**Player 2, the spy**" in page
    assert "**Player 1**" in page
    assert "3 of 4 ballots named the spy. One of them:" in page
    assert page.endswith("| 1 | civilian | 1 | +0.100 |\n| 2 | spy | 3 | -0.200 |\n| 3 | civilian | 0 | +0.100 |")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200), min_size=4, max_size=4))
def test_no_text_breaks_the_page(texts: list[str]) -> None:
    document, *outputs = texts
    half = len(document) // 2
    page = game_markdown(game(document=document, hidden=((half, len(document)),), texts=tuple(outputs)))
    tokens = MarkdownIt("commonmark").enable("table").parse(page + "\n\n# after")
    assert [token.type for token in tokens].count("fence") == 4
    assert [token.type for token in tokens].count("heading_open") == 1
    assert [token.type for token in tokens].count("table_open") == 1
    assert not any(token.type.startswith(("html", "bullet", "blockquote")) for token in tokens)
    assert not any(ord(character) < 32 and character not in "\n\t" for character in page)


@pytest.mark.parametrize(
    "text", ["```\n# out\n<script>", "~~~", "` `` ```` `", "| a |\n---", "---\nlicense: x\n---", "\\(x\\)"]
)
def test_texts_that_try(text: str) -> None:
    page = game_markdown(game(texts=(text, "b", "c")))
    assert fences(page)[1] == text + "\n"


def test_what_turns_the_direction_of_writing_is_not_passed_on() -> None:
    page = game_markdown(game(texts=("a\u202eb\x1b[31m\x00", "b\r\nc", "c\u2028d")))
    assert fences(page)[1:] == ["a\ufffdb\ufffd[31m\ufffd\n", "b\n\nc\n", "c\nd\n"]


def test_long_texts_are_cut_and_say_so() -> None:
    page = game_markdown(game(texts=("word " * 1000, "b", "c")))
    first = fences(page)[1]
    assert first.endswith("more characters]\n")
    assert "[… 3,8" in first.replace("\n", " ")
    assert len(first) < 1300
    assert max(map(len, first.splitlines())) <= 88


def test_a_long_document_is_shown_around_its_hidden_part() -> None:
    words = [f"word{number}" for number in range(3000)]
    text = " ".join(words)
    start, end = text.index("word2000 "), text.index("word2010 ")
    shown = " ".join(fences(game_markdown(game(document=text, hidden=((start, end),))))[0].split())
    assert "⟦word2000 word2001" in shown
    assert "word2009 ⟧word2010" in shown
    assert shown.startswith("[…] ")
    assert len(shown) < 1800
    long = fences(game_markdown(game(document=text, hidden=((start, len(text) - 20),))))[0]
    assert long.count("⟦") == long.count("⟧") == 1
    at_the_end = fences(game_markdown(game(document=text, hidden=((len(text) - 8, len(text)),))))[0]
    assert at_the_end.endswith(" ⟦word2999⟧\n")
