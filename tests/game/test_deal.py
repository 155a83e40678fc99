"""The deal: which player is the spy and what each one sees (paper Eq. 2)."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.game import Deal, DegradationSettings, Document, DocumentTooShortError, deal

DOCUMENT = Document(
    "doc-7", "The lamp went out at nine. Nobody in the harbour town saw who had turned the key. It rained."
)
MASK = DegradationSettings().make()


def dealt(
    document: Document = DOCUMENT,
    *,
    players: int = 5,
    kind: str = "mask",
    seed: int = 0,
    iteration: int = 0,
    game: int = 0,
) -> Deal:
    degradation = DegradationSettings(kind=kind).make()  # type: ignore[arg-type]
    return deal(document, players=players, degradation=degradation, seed=seed, iteration=iteration, game=game)


def test_one_player_is_the_spy_and_only_it_sees_the_degraded_copy() -> None:
    one = dealt(iteration=3, game=4)
    assert (one.iteration, one.game, one.document, one.players) == (3, 4, DOCUMENT, 5)
    assert one.spy in one.numbers
    assert list(one.numbers) == [1, 2, 3, 4, 5]
    assert [one.role(player) for player in one.numbers].count("spy") == 1
    for player in one.numbers:
        if player == one.spy:
            assert one.role(player) == "spy"
            assert one.observation(player) == one.degraded != DOCUMENT.text
        else:
            assert one.role(player) == "civilian"
            assert one.observation(player) == DOCUMENT.text


def test_hiding_nothing_deals_no_spy() -> None:
    one = dealt(kind="nothing")
    assert one.spy is None
    assert one.hidden == ()
    assert {one.role(player) for player in one.numbers} == {"civilian"}
    assert {one.observation(player) for player in one.numbers} == {DOCUMENT.text}


def test_hiding_everything_leaves_the_spy_nothing() -> None:
    one = dealt(kind="everything")
    assert one.spy is not None
    assert one.observation(one.spy) == ""
    assert one.hidden == ((0, len(DOCUMENT.text)),)


@pytest.mark.parametrize("players", [-1, 0, 1, 2, 27])
def test_too_few_or_too_many_players(players: int) -> None:
    with pytest.raises(ValueError, match=rf"players must be in 3\.\.26, not {players}"):
        dealt(players=players)


def test_a_document_too_short_is_named() -> None:
    with pytest.raises(DocumentTooShortError, match="'tiny'"):
        dealt(Document("tiny", "word"))


INTEGERS = st.integers(0, 2**31)


@given(INTEGERS, INTEGERS, INTEGERS, st.integers(3, 26))
def test_a_deal_follows_from_seed_iteration_game_and_document_alone(
    seed: int, iteration: int, game: int, players: int
) -> None:
    first = dealt(players=players, seed=seed, iteration=iteration, game=game)
    random.seed(game)  # neither the global generator …
    for other in (0, 1, 2):  # … nor the games dealt in between matter
        dealt(players=players, seed=seed, iteration=iteration, game=other)
    again = dealt(Document(DOCUMENT.id, DOCUMENT.text), players=players, seed=seed, iteration=iteration, game=game)
    assert again == first
    assert first.spy in range(1, players + 1)


def test_a_batch_deals_the_same_games_in_any_order_and_any_part() -> None:
    whole = {game: dealt(seed=1, iteration=2, game=game) for game in range(20)}
    assert {game: dealt(seed=1, iteration=2, game=game) for game in reversed(range(20))} == whole
    assert [dealt(seed=1, iteration=2, game=game) for game in (17, 3)] == [whole[17], whole[3]]


def test_the_spy_does_not_depend_on_the_document() -> None:
    other = Document("other", "Another text with other words, and more of them than the first one had.")
    assert [dealt(seed=s).spy for s in range(50)] == [dealt(other, seed=s).spy for s in range(50)]


def test_the_same_document_meets_another_spy_and_another_mask_in_another_game_iteration_or_run() -> None:
    for key in ("seed", "iteration", "game"):
        deals = [dealt(**{key: value}) for value in range(40)]  # type: ignore[arg-type]
        assert {one.spy for one in deals} == {1, 2, 3, 4, 5}
        assert len({one.hidden for one in deals}) > 5


@pytest.mark.parametrize("players", [3, 5, 8])
@pytest.mark.parametrize("key", ["seed", "iteration", "game"])
def test_the_spy_is_uniform(key: str, players: int) -> None:
    draws = 1500
    counts = Counter(dealt(players=players, **{key: value}).spy for value in range(draws))  # type: ignore[arg-type]
    expected = draws / players
    chi_square = sum((counts[player] - expected) ** 2 / expected for player in range(1, players + 1))
    # The 0.999 quantiles of chi-square with 2, 4 and 7 degrees of freedom.
    assert chi_square < {3: 13.82, 5: 18.47, 8: 24.32}[players]


def test_where_the_mask_lies_has_nothing_to_do_with_who_the_spy_is() -> None:
    deals = [dealt(players=3, seed=seed) for seed in range(1200)]
    middle = len(DOCUMENT.text) / 2
    early = Counter(one.spy for one in deals if sum(one.hidden[0]) / 2 < middle)
    for spy in (1, 2, 3):  # about half of each spy's masks lie early; 5 standard deviations of 400 draws are 50
        total = sum(one.spy == spy for one in deals)
        assert abs(early[spy] - total * early.total() / len(deals)) < 50
