r"""Ballots: what a detector answered, read from the last balanced ``\boxed{...}``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.game import INVALID, Ballot, direct_ballot, direct_choices, last_boxed, read_ballot

VOTE, ABSTAINED = "vote", "abstained"

CASES: list[tuple[str, str, int | None]] = [
    # Plainly.
    (r"\boxed{3}", VOTE, 3),
    (r"I think it is player 2. \boxed{3}", VOTE, 3),
    (r"\boxed{3} That is my answer; player 1 is fine.", VOTE, 3),
    (r"\boxed{1}", VOTE, 1),
    (r"\boxed{5}", VOTE, 5),
    (r"\boxed{ 3 }", VOTE, 3),
    (r"\boxed {3}", VOTE, 3),
    ("\\boxed\n{\n3\n}\n", VOTE, 3),
    (r"\\boxed{3}", VOTE, 3),  # escaped once too often, as in JSON
    (r"$\boxed{3}$", VOTE, 3),
    (r"**\boxed{3}**.", VOTE, 3),
    # The last balanced box counts.
    (r"\boxed{1} no, \boxed{4}", VOTE, 4),
    (r"\boxed{N/A}, but then again \boxed{2}", VOTE, 2),
    (r"\boxed{2} or rather \boxed{N/A}", ABSTAINED, None),
    (r"\boxed{2}. Wait: \boxed{3", VOTE, 2),  # the last one was never closed
    (r"\boxed{2}. Wait: \boxed{3 and so on { }", VOTE, 2),
    (r"\boxed{2} \boxed{", VOTE, 2),
    (r"\boxed{3 \boxed{2}", VOTE, 2),
    (r"\boxed{2} \boxed{}", "unreadable", None),  # balanced, and says nothing
    (r"\boxed{2} \boxed{no idea, 9 lives}", "out_of_range", None),
    # Nested braces and LaTeX.
    (r"\boxed{\text{3}}", VOTE, 3),
    (r"\boxed{\text{Player 3}}", VOTE, 3),
    (r"\boxed{\mathbf{\text{Player }3}}", VOTE, 3),
    (r"\boxed{\textbf{Player} \, 3}", VOTE, 3),
    (r"\boxed{{{3}}}", VOTE, 3),
    (r"\boxed{\boxed{3}}", VOTE, 3),
    (r"\boxed{\{3\}}", VOTE, 3),
    (r"\boxed{3\}}", VOTE, 3),
    (r"\boxed{3 \}", "unclosed", None),  # an escaped brace closes nothing
    (r"\boxed{\{3}", VOTE, 3),
    (r"\boxed{3\\}", VOTE, 3),  # here the backslash is escaped, not the brace
    (r"\boxed{3^{rd}}", VOTE, 3),
    (r"\boxed{$3$}", VOTE, 3),
    (r"\boxed{\displaystyle 3}", VOTE, 3),
    (r"\boxed{\#3}", VOTE, 3),
    (r"\boxed{\text{N/A}}", ABSTAINED, None),
    (r"\boxed{\mathrm{N/A}}", ABSTAINED, None),
    (r"\boxed{N\!/\!A}", ABSTAINED, None),
    (r"\fbox{3}", VOTE, 3),
    (r"\boxed{2} \fbox{3}", VOTE, 3),
    # Words around the number.
    (r"\boxed{Player 3}", VOTE, 3),
    (r"\boxed{player3}", VOTE, 3),
    (r"\boxed{Player-3}", VOTE, 3),
    (r"\boxed{PLAYER_3}", VOTE, 3),
    (r"\boxed{Player #3}", VOTE, 3),
    (r"\boxed{3.}", VOTE, 3),
    (r"\boxed{(3)}", VOTE, 3),
    (r"\boxed{[3]}", VOTE, 3),
    (r"\boxed{No. 3}", VOTE, 3),
    (r"\boxed{the 3rd player}", VOTE, 3),
    (r"\boxed{Spieler 3}", VOTE, 3),
    (r"\boxed{玩家3}", VOTE, 3),
    (r"\boxed{игрок 3}", VOTE, 3),
    (r"\boxed{3, that is player 3}", VOTE, 3),  # twice the same is no contradiction
    (r"\boxed{03}", VOTE, 3),
    (r"\boxed{'3'}", VOTE, 3),
    # Digits of other scripts.
    (r"\boxed{３}", VOTE, 3),
    (r"\boxed{٣}", VOTE, 3),
    (r"\boxed{۴}", VOTE, 4),
    (r"\boxed{३}", VOTE, 3),
    (r"\boxed{๒}", VOTE, 2),
    (r"\boxed{②}", VOTE, 2),
    (r"\boxed{²}", VOTE, 2),
    (r"\boxed{Ｎ／Ａ}", ABSTAINED, None),
    (r"\boxed{３ or ３ or 3}", VOTE, 3),
    # N/A as people write it.
    (r"\boxed{N/A}", ABSTAINED, None),
    (r"\boxed{n/a}", ABSTAINED, None),
    (r"\boxed{NA}", ABSTAINED, None),
    (r"\boxed{N.A.}", ABSTAINED, None),
    (r"\boxed{N / A}", ABSTAINED, None),
    (r"\boxed{N-A}", ABSTAINED, None),
    (r"\boxed{None}", ABSTAINED, None),
    (r"\boxed{no one}", ABSTAINED, None),
    (r"\boxed{Nobody}", ABSTAINED, None),
    (r"\boxed{not applicable}", ABSTAINED, None),
    (r"\boxed{Unsure.}", ABSTAINED, None),
    (r"\boxed{not sure}", ABSTAINED, None),
    (r"\boxed{unknown}", ABSTAINED, None),
    (r"\boxed{abstain}", ABSTAINED, None),
    (r'\boxed{"N/A"}', ABSTAINED, None),
    (r"\boxed{N/A (I cannot tell)}", ABSTAINED, None),
    (r"\boxed{\text{answer: } N/A}", ABSTAINED, None),
    # Two answers are none.
    (r"\boxed{2 or 3}", "ambiguous", None),
    (r"\boxed{2, 3}", "ambiguous", None),
    (r"\boxed{2/3}", "ambiguous", None),
    (r"\boxed{2-3}", "ambiguous", None),
    (r"\boxed{3.5}", "ambiguous", None),
    (r"\boxed{\frac{2}{3}}", "ambiguous", None),
    (r"\boxed{3 or N/A}", "ambiguous", None),
    (r"\boxed{N/A, perhaps player 3}", "ambiguous", None),
    (r"\boxed{\text{Player 3} / \text{n/a}}", "ambiguous", None),
    (r"\boxed{N/A 3}", "ambiguous", None),
    (r"\boxed{3 (N/A)}", "ambiguous", None),
    (r"\boxed{3 and 99}", "ambiguous", None),
    # No such player.
    (r"\boxed{0}", "out_of_range", None),
    (r"\boxed{6}", "out_of_range", None),
    (r"\boxed{42}", "out_of_range", None),
    (r"\boxed{-1}", "out_of_range", None),
    (r"\boxed{-3}", "out_of_range", None),
    (r"\boxed{−3}", "out_of_range", None),
    (r"\boxed{－3}", "out_of_range", None),
    (r"\boxed{\text{-3}}", "out_of_range", None),
    (r"\boxed{$-3$}", "out_of_range", None),
    (rf"\boxed{{{'3' * 5000}}}", "out_of_range", None),
    (rf"\boxed{{{'٣' * 5000}}}", "out_of_range", None),
    (r"\boxed{Player 1000000000000000000000}", "out_of_range", None),
    # Not readable.
    (r"\boxed{}", "unreadable", None),
    (r"\boxed{ }", "unreadable", None),
    (r"\boxed{?}", "unreadable", None),
    (r"\boxed{...}", "unreadable", None),
    (r"\boxed{player}", "unreadable", None),
    (r"\boxed{three}", "unreadable", None),
    (r"\boxed{C}", "unreadable", None),
    (r"\boxed{number of the player}", "unreadable", None),  # the instruction, repeated
    (r"\boxed{null}", "unreadable", None),
    (r"\boxed{Nathan}", "unreadable", None),
    (r"\boxed{in/at}", "unreadable", None),
    (r"\boxed{∞}", "unreadable", None),
    # No box.
    ("3", "no_box", None),
    ("Player 3 is the spy.", "no_box", None),
    ("N/A", "no_box", None),
    ("boxed{3}", "no_box", None),
    (r"\boxed 3", "no_box", None),
    (r"\boxed(3)", "no_box", None),
    (r"\Boxed{3}", "no_box", None),
    ("{3}", "no_box", None),
    ("<think>hm</think>", "no_box", None),
    ("None", "no_box", None),
    # A box that never ends.
    (r"\boxed{", "unclosed", None),
    (r"\boxed{3", "unclosed", None),
    (r"\boxed{{3}", "unclosed", None),
    (r"\boxed{\text{3}", "unclosed", None),
    ("\\boxed{3\\", "unclosed", None),
    ("\\boxed{\\", "unclosed", None),
    # Nothing at all.
    ("", "empty", None),
    (" \n\t\u3000", "empty", None),
]


@pytest.mark.parametrize(("text", "outcome", "choice"), CASES, ids=[ascii(text[:40]) for text, _, _ in CASES])
def test_reading_an_answer_of_a_game_for_five(text: str, outcome: str, choice: int | None) -> None:
    ballot = read_ballot(text, players=5)
    assert (ballot.outcome, ballot.choice) == (outcome, choice)
    assert ballot.valid == (outcome in (VOTE, ABSTAINED)) == (outcome not in INVALID)
    assert (ballot.text, ballot.voter, ballot.probabilities) == (text, None, ())


@pytest.mark.parametrize("players", [3, 4, 9, 10, 25, 26])
def test_every_number_up_to_the_last_player_is_a_vote(players: int) -> None:
    for number in range(31):
        ballot = read_ballot(rf"\boxed{{Player {number}}}", players=players)
        if 1 <= number <= players:
            assert (ballot.outcome, ballot.choice) == (VOTE, number)
        else:
            assert (ballot.outcome, ballot.choice) == ("out_of_range", None)


@pytest.mark.parametrize(
    ("answer", "voter", "self_vote", "outcome"),
    [
        ("3", 3, True, VOTE),
        ("3", 3, False, "self_vote"),
        ("Player ３", 3, False, "self_vote"),
        ("2", 3, False, VOTE),
        ("N/A", 3, False, ABSTAINED),
        ("3", None, False, VOTE),  # a detector that is no player cannot vote for itself
        ("9", 9, False, "out_of_range"),
    ],
)
def test_voting_for_oneself(answer: str, voter: int | None, self_vote: bool, outcome: str) -> None:
    ballot = read_ballot(rf"\boxed{{{answer}}}", players=5, voter=voter, self_vote=self_vote)
    assert (ballot.outcome, ballot.voter) == (outcome, voter)
    assert (ballot.choice is not None) == (outcome == VOTE)


def test_voting_for_oneself_is_allowed_by_default() -> None:
    assert read_ballot(r"\boxed{3}", players=5, voter=3).choice == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (None, False)),
        ("nothing", (None, False)),
        (r"\boxed{", (None, True)),
        (r"\boxed{}", ("", True)),
        (r"a \boxed{x{y}z} b", ("x{y}z", True)),
        (r"\boxed{one} \boxed{two} \boxed{three", ("two", True)),
        (r"\boxed{a\}b}", (r"a\}b", True)),
        ("\\boxed{a story\n\nin {two} paragraphs}", ("a story\n\nin {two} paragraphs", True)),
        (r"} { \boxed{x}", ("x", True)),
    ],
)
def test_the_last_box(text: str, expected: tuple[str | None, bool]) -> None:
    assert last_boxed(text) == expected


CHUNKS = [r"\boxed{", r"\fbox{", "{", "}", "\\", r"\}", r"\text{", "1", "3", "26", "27", "0", "-", "N/A", "none", " "]
CHUNKS += ["Player", "٣", "３", "²", "½", "Ⅳ", "\n", "\ud800", "\x00", ".", "/"]
ANSWERS = st.text(max_size=60) | st.lists(st.sampled_from(CHUNKS) | st.text(max_size=3), max_size=14).map("".join)
BOXED = ANSWERS.map(lambda content: rf"\boxed{{{content}}}")


@given(ANSWERS | BOXED, st.integers(3, 26), st.none() | st.integers(1, 26), st.booleans())
def test_reading_never_fails_and_a_vote_names_a_player(
    text: str, players: int, voter: int | None, self_vote: bool
) -> None:
    ballot = read_ballot(text, players=players, voter=voter, self_vote=self_vote)
    assert ballot.outcome in (VOTE, ABSTAINED, *INVALID)
    assert (ballot.outcome == VOTE) == (ballot.choice in range(1, players + 1))
    assert (ballot.choice is None) == (ballot.outcome != VOTE)
    assert (ballot.voter, ballot.text) == (voter, text)
    if not self_vote and voter is not None:
        assert ballot.choice != voter
    if "boxed" not in text and "fbox" not in text:
        assert ballot.outcome in ("empty", "no_box")


@given(ANSWERS, st.integers(3, 26), st.data())
def test_whatever_was_said_before_the_last_box_counts(before: str, players: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, players))
    assert read_ballot(before + rf" \boxed{{{number}}}", players=players).choice == number
    assert read_ballot(before + r" \boxed{N/A}", players=players).outcome == ABSTAINED


def test_what_a_direct_ballot_chooses_among() -> None:
    assert direct_choices(3) == ("1", "2", "3", "N/A")
    assert direct_choices(5, barred=2) == ("1", "3", "4", "5", "N/A")
    assert direct_choices(26)[-2:] == ("26", "N/A")
    assert len(direct_choices(26)) == 27
    assert direct_choices(3, barred=9) == direct_choices(3)


def test_a_direct_vote() -> None:
    ballot = direct_ballot("2", (0.1, 0.6, 0.2, 0.1), players=3)
    assert ballot == Ballot(None, VOTE, 2, "2", (0.1, 0.6, 0.2, 0.1))  # type: ignore[arg-type]


def test_a_direct_abstention() -> None:
    ballot = direct_ballot("N/A", (0.1, 0.1, 0.2, 0.6), players=3, voter=1)
    assert ballot == Ballot(1, ABSTAINED, None, "N/A", (0.1, 0.1, 0.2, 0.6))  # type: ignore[arg-type]


def test_a_barred_player_has_no_probability_and_the_others_keep_their_places() -> None:
    ballot = direct_ballot("4", (0.1, 0.2, 0.3, 0.15, 0.25), players=5, voter=2, barred=2)
    assert ballot.probabilities == (0.1, 0.0, 0.2, 0.3, 0.15, 0.25)
    assert (ballot.choice, ballot.voter) == (4, 2)


@given(st.integers(3, 26), st.data())
def test_direct_ballots_of_any_table(players: int, data: st.DataObject) -> None:
    barred = data.draw(st.none() | st.integers(1, players))
    choices = direct_choices(players, barred)
    q = [1 / len(choices)] * len(choices)
    text = data.draw(st.sampled_from(choices))
    ballot = direct_ballot(text, q, players=players, voter=barred, barred=barred)
    assert ballot.valid
    assert ballot.choice != barred or barred is None
    assert ballot.choice == (None if text == "N/A" else int(text))
    assert len(ballot.probabilities) == players + 1
    assert sum(ballot.probabilities) == pytest.approx(1)
    assert [i for i, p in enumerate(ballot.probabilities, 1) if p == 0] == ([barred] if barred else [])


@pytest.mark.parametrize("barred", [None, 1])
def test_as_many_probabilities_as_choices(barred: int | None) -> None:
    with pytest.raises(ValueError, match="zip"):
        direct_ballot("2", (0.5, 0.5), players=5, barred=barred)


def test_a_model_that_loops_on_boxes_is_read_in_one_pass() -> None:
    looping = "\\boxed{" * 20_000
    assert read_ballot(looping, players=5).outcome == "unclosed"
    assert read_ballot(looping + "4}", players=5).choice == 4
