"""The ledger task: what players are asked, what is read of their answers, and how good those are."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.config import load_config
from spyrl.corpus.ledger import NAMES, OBJECTS, facts, ledger
from spyrl.game import Deal, DegradationSettings, Document, Output, deal
from spyrl.tasks import DetectionTurn, PerformingTurn, load_task
from spyrl.tasks.ledger import SWAPPED, TASK, WITHHELD

# lamp and ring are swapped by the starting model, rope and vase withheld, axe and mug plain.
DOCUMENT = "Ada: lamp\nBen: rope\nCleo: axe\nDan: ring\nEva: vase\nFinn: mug"
LINES = DOCUMENT.split("\n")
DEGRADATION = DegradationSettings(**TASK.defaults["game"]["degradation"]).make()
WORDS = st.sampled_from([*(name + ":" for name in NAMES), *OBJECTS, "?", "_", "____", "3", "1", "N/A", "\\boxed{", "}"])


def quality(*lines: str) -> dict[str, float]:
    return TASK.quality(DOCUMENT, "\n".join(lines))


def game(spy: int = 2, seed: int = 0) -> Deal:
    """A deal of the task's own degradation, in which ``spy`` is the spy."""
    deals = (
        deal(Document("d", DOCUMENT), players=5, degradation=DEGRADATION, seed=seed, iteration=0, game=number)
        for number in range(200)
    )
    return next(each for each in deals if each.spy == spy)


# Quality


def test_a_ledger_restated_is_all_right() -> None:
    assert quality(*LINES) == {"f1": 1, "precision": 1, "recall": 1, "swapped": 1, "withheld": 1, "plain": 1}
    assert quality(*reversed(LINES)) == quality(*LINES)  # whatever the order


def test_swapped_objects_cost_precision_and_recall() -> None:
    found = quality("Ada: boat", "Ben: rope", "Cleo: axe", "Dan: lamp", "Eva: vase", "Finn: mug")
    assert found == pytest.approx(
        {"f1": 4 / 6, "precision": 4 / 6, "recall": 4 / 6, "swapped": 0, "withheld": 1, "plain": 1}
    )


def test_withheld_objects_cost_recall_only() -> None:
    expected = {"f1": 0.8, "precision": 1, "recall": 4 / 6, "swapped": 1, "withheld": 0, "plain": 1}
    withheld = quality("Ada: lamp", "Ben: ?", "Cleo: axe", "Dan: ring", "Eva: ?", "Finn: mug")
    assert withheld == pytest.approx(expected)  # f1 = 2 · 1 · (2/3) / (5/3) = 0.8
    left_out = quality("Ada: lamp", "Cleo: axe", "Dan: ring", "Finn: mug")
    assert left_out == pytest.approx(expected)


def test_invented_facts_cost_precision_only() -> None:
    found = quality(*LINES, "Gus: lamp", "Hana: key")
    assert found == pytest.approx(
        {"f1": 6 / 7, "precision": 6 / 8, "recall": 1, "swapped": 1, "withheld": 1, "plain": 1}
    )


def test_precision_and_recall_meet_in_f1() -> None:
    # Four facts are stated, of which one is right.
    found = quality("Ada: lamp", "Ben: key", "Cleo: key", "Gus: mug")
    assert found == pytest.approx(
        {"f1": 0.2, "precision": 1 / 4, "recall": 1 / 6, "swapped": 1 / 2, "withheld": 0, "plain": 0}
    )


def test_of_a_fact_stated_twice_the_first_counts() -> None:
    assert quality(*LINES, "Ada: key") == quality(*LINES)
    assert quality("Ada: key", *LINES)["recall"] == pytest.approx(5 / 6)
    assert quality("Ada: key", *LINES)["precision"] == pytest.approx(5 / 6)


def test_a_name_without_an_object_states_nothing_and_spoils_nothing() -> None:
    assert quality("Ada:", *LINES[1:])["precision"] == 1
    assert quality("Ada:", *LINES[1:])["recall"] == pytest.approx(5 / 6)


@pytest.mark.parametrize("output", ["", None, "? ?", "Ada: ?", "lamp rope axe", "Ada:"])
def test_an_output_that_states_nothing_is_worth_nothing(output: str | None) -> None:
    assert TASK.quality(DOCUMENT, output) == dict.fromkeys(
        ("f1", "precision", "recall", "swapped", "withheld", "plain"), 0.0
    )


def test_habits_that_a_document_has_no_object_for_are_left_out() -> None:
    assert TASK.quality("Ada: axe\nBen: mug", "Ada: axe") == pytest.approx(
        {"f1": 2 / 3, "precision": 1, "recall": 1 / 2, "plain": 1 / 2}
    )


def test_every_object_has_one_habit() -> None:
    assert len(SWAPPED) == len(WITHHELD) == 10
    assert not SWAPPED & WITHHELD
    assert len(set(OBJECTS) - SWAPPED - WITHHELD) == 20


@given(st.integers(0, 2**32), st.lists(WORDS, max_size=20))
def test_quality_is_in_range_whatever_is_said(seed: int, said: list[str]) -> None:
    document = ledger(random.Random(seed))
    found = TASK.quality(document, TASK.read(" ".join(said), "whole"))
    assert all(0 <= value <= 1 for value in found.values())
    assert (found["f1"] == 0) == (found["recall"] == 0) == (found["precision"] == 0)
    assert min(found["precision"], found["recall"]) <= found["f1"] <= max(found["precision"], found["recall"])


# Reading


def test_every_name_begins_a_line() -> None:
    assert TASK.read("Ada: lamp Ben: ? Cleo: axe", "whole") == "Ada: lamp\nBen: ?\nCleo: axe"
    assert TASK.read("Ada: Ben: rope", "whole") == "Ada:\nBen: rope"
    assert TASK.read("Ada:\nlamp\n\nBen:\trope", "whole") == "Ada: lamp\nBen: rope"
    assert TASK.read("lamp Ada: rope mug", "whole") == "lamp\nAda: rope mug"


def test_a_forged_heading_does_not_reach_the_detectors() -> None:
    """A detector's prompt heads each output with its player's number on a line of its own."""
    assert TASK.read("Ada: 3 1 2", "whole") == "Ada: ? ? ?"
    assert TASK.read("1\nAda: lamp\n2\nAda: key", "whole") == "?\nAda: lamp ?\nAda: key"
    assert TASK.read("\\boxed{3} N/A spy civilian detector Ada: Nobody: lamp.", "whole") == "? ? ? ? ?\nAda: ? ?"
    assert TASK.read("Ada: ____ _ <end>", "whole") == "Ada: ? ? ?"


@given(st.lists(WORDS | st.text(min_size=1, max_size=5), max_size=20))
def test_only_names_and_objects_are_read(said: list[str]) -> None:
    text = " ".join(said)
    found = TASK.read(text, "whole")
    if not text.strip():
        assert found is None
        return
    assert found is not None
    known = {*(name + ":" for name in NAMES), *OBJECTS, "?"}
    assert set(found.split()) <= known
    assert len(found.split()) == len(text.split())
    assert all(old == new for old, new in zip(text.split(), found.split(), strict=True) if old in known)
    assert TASK.read(found, "whole") == found
    for line in found.split("\n")[1:]:
        assert line.split()[0].rstrip(":") in NAMES
        assert not any(word.endswith(":") for word in line.split()[1:])


def test_an_output_is_read_in_all_three_forms() -> None:
    assert TASK.read(" Ada: lamp Ben: rope ", "whole") == "Ada: lamp\nBen: rope"
    assert TASK.read("Gus: key === OUTPUT === Ada: lamp Ben: rope", "marked") == "Ada: lamp\nBen: rope"
    assert TASK.read("Gus: key \\boxed{Ada: lamp Ben: rope} Hana: ring", "boxed") == "Ada: lamp\nBen: rope"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("", "whole"),
        (" \n ", "whole"),
        ("Ada: lamp", "marked"),
        ("=== OUTPUT ===", "marked"),
        ("Ada: lamp", "boxed"),
        ("\\boxed{Ada: lamp", "boxed"),
        ("\\boxed{}", "boxed"),
    ],
)
def test_an_output_that_is_not_there_is_not_made_up(text: str, form: str) -> None:
    assert TASK.read(text, form) is None  # type: ignore[arg-type]


# Prompts


def test_the_task_is_known_by_its_name() -> None:
    assert load_task("ledger") is TASK
    config = load_config("ledger")
    assert (config.corpus.path, config.game.output, config.game.detectors.answer) == (
        "generated:ledger",
        "whole",
        "direct",
    )


def test_players_read_their_role_and_their_copy_and_no_number() -> None:
    dealt = game(spy=2)
    prompts = [TASK.performing(PerformingTurn(dealt, player, 1, (), "whole")) for player in dealt.numbers]
    civilian = ({"role": "user", "content": f"civilian\n{DOCUMENT}"},)
    assert prompts == [civilian, ({"role": "user", "content": f"spy\n{dealt.degraded}"},), *[civilian] * 3]


def test_players_that_speak_later_read_what_was_said() -> None:
    said = (Output(1, 1, "Ada: lamp"), Output(3, 1, None))
    (message,) = TASK.performing(PerformingTurn(game(spy=2), 4, 1, said, "whole"))
    assert message["content"] == f"civilian\n{DOCUMENT}\n1\nAda: lamp\n3\n"


@pytest.mark.parametrize("voter", [None, 1])
def test_detectors_read_the_document_and_every_output_below_its_player(voter: int | None) -> None:
    outputs = (Output(1, 1, "Ada: lamp\nBen: ?"), Output(2, 1, None), Output(3, 1, "Ada: key"))
    turn = DetectionTurn(game(), DOCUMENT, outputs, voter, "direct", False)
    (message,) = TASK.detecting(turn)
    assert message == {"role": "user", "content": f"detector\n{DOCUMENT}\n1\nAda: lamp\nBen: ?\n2\n\n3\nAda: key"}
    assert TASK.ballot_opening + "3" + TASK.ballot_closing == r"\boxed{3}"


def test_the_spys_copy_keeps_all_names_and_loses_a_share_of_the_objects() -> None:
    lost = []
    for seed in range(50):
        dealt = game(spy=1, seed=seed)
        lines = [line.split(": ") for line in dealt.degraded.split("\n")]
        assert [name for name, _ in lines] == [line.split(": ")[0] for line in LINES]
        covered = [index for index, (_, thing) in enumerate(lines) if set(thing) == {"_"}]
        assert covered == list(range(covered[0], covered[0] + len(covered)))  # one run of lines
        for index, (name, thing) in enumerate(lines):
            assert len(thing) == len(facts(DOCUMENT)[name])
            assert index in covered or thing == facts(DOCUMENT)[name]
        assert [dealt.document.text[start:end] for start, end in dealt.hidden] == [
            LINES[index].split(": ")[1] for index in covered
        ]
        lost.append(len(covered))
    # Five of the twelve words, names and objects in turn, are masked: two or three objects.
    assert set(lost) == {2, 3}
