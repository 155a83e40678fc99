"""Held-out documents, measured with scripted policies: who is asked what, and numbers worked out by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from spyrl.config import Config, load_config
from spyrl.corpus.ledger import facts, split_of
from spyrl.errors import SpyRLError, UsageError
from spyrl.game import Deal, deal
from spyrl.play import HeldOut, KnownQuality, hold_out, measure
from spyrl.policy import Completion, Request
from spyrl.tasks import TASKS, Task, TextTask
from spyrl.tasks.ledger import TASK

DOCUMENTS = 12
# A task that knows no quality, whose detectors read nothing but the outputs.
BARE = TextTask(
    name="bare",
    source="note",
    product="text",
    instructions="Write.",
    criteria="Gaps.",
    performing_template="{{ role }} {{ observation }}",
    detecting_template="{{ outputs }}",
)

Says = Callable[[Request], str | Completion]
Votes = Callable[[Request], int | Completion | None]


class Scripted:
    """Writes what a rule says and votes for the player that a rule names (for nobody more than another: ``None``)."""

    name = "scripted"

    def __init__(self, says: Says | None = None, votes: Votes | None = None) -> None:
        self.says, self.votes = says, votes
        self.asked: list[list[Request]] = []

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        self.asked.append(list(requests))
        return [[self._answer(request)] * request.samples for request in requests]

    def _answer(self, request: Request) -> Completion:
        if not request.choices:
            assert self.says, "this policy only detects"
            said = self.says(request)
            return said if isinstance(said, Completion) else Completion(said, "stop")
        assert self.votes, "this policy only performs"
        choice = self.votes(request)
        if isinstance(choice, Completion):
            return choice
        others = len(request.choices) - 1
        if choice is None:
            return Completion("N/A", "choice", probabilities=(*[0.1] * others, 1 - 0.1 * others))
        shares = tuple(0.6 if name == str(choice) else 0.4 / others for name in request.choices)
        return Completion(str(choice), "choice", probabilities=shares)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def prompt_tokens(self, request: Request) -> int:
        return self.count_tokens(content(request))


def content(request: Request) -> str:
    return request.messages[-1]["content"]


def of_the_spy(request: Request) -> bool:
    return content(request).startswith("spy")


def failed(why: str = "gone") -> Completion:
    return Completion("", "failed", error=why)


def config(*words: str) -> Config:
    return load_config("ledger", [f"training.evaluation.documents={DOCUMENTS}", *words])


def held(task: Task, performer: Scripted, detector: Scripted, *words: str) -> HeldOut:
    return hold_out(config(*words), task, performer, detector, 200)


def share(deals: Sequence[Deal], spy: int) -> float:
    return sum(each.spy == spy for each in deals) / len(deals)


def outputs(request: Request) -> list[str]:
    """What a detector of the bare task was shown, by player."""
    return re.findall(r"\[Player \d+\]\n(\S+)", content(request))


def restates(request: Request) -> str:
    return content(request).split("\n", 1)[1]


def says(name: str) -> Says:
    return lambda request: f"{name}-spy" if of_the_spy(request) else f"{name}-civilian"


def votes_for(player: int | None) -> Votes:
    return lambda request: player


def voting_for_text(text: str, otherwise: int) -> Votes:
    def votes(request: Request) -> int:
        shown = outputs(request)
        return shown.index(text) + 1 if text in shown else otherwise

    return votes


# Quality


def test_quality_is_that_of_likeliest_outputs_and_of_civilians_samples() -> None:
    """Greedy: two facts of six, one of them wrong. Sampled: one of six; the spy's output does not count."""

    def now(request: Request) -> str:
        lines = restates(request).split("\n")
        if request.sampling.temperature == 0:
            assert not of_the_spy(request)
            return f"{lines[0]}\n{lines[1].split(': ')[0]}: {lines[0].split(': ')[1]}"
        return "" if of_the_spy(request) else lines[2]

    held_out = held(TASK, Scripted(restates), Scripted(votes=votes_for(1)))
    measured = measure(held_out, Scripted(now), Scripted(votes=votes_for(1)))
    assert measured.metrics["quality/greedy/precision"] == pytest.approx(1 / 2)
    assert measured.metrics["quality/greedy/recall"] == pytest.approx(1 / 6)
    assert measured.metrics["quality/greedy"] == pytest.approx(1 / 4)
    assert measured.metrics["quality/sampled/precision"] == pytest.approx(1)
    assert measured.metrics["quality/sampled/recall"] == pytest.approx(1 / 6)
    assert measured.metrics["quality/sampled"] == pytest.approx(2 / 7)
    # The starting model restated everything it saw.
    assert held_out.begun.metrics["quality/greedy"] == held_out.begun.metrics["quality/sampled"] == 1


def test_examples_are_all_documents_with_their_likeliest_output() -> None:
    held_out = held(TASK, Scripted(restates), Scripted(votes=votes_for(1)))
    measured = measure(held_out, Scripted(lambda request: "Ada: lamp"), Scripted(votes=votes_for(1)))
    assert [example.document for example in measured.examples] == [deal.document.text for deal in held_out.deals]
    assert {example.output for example in measured.examples} == {"Ada: lamp"}
    assert all(example.quality == TASK.quality(example.document, "Ada: lamp") for example in measured.examples)
    assert [example.output for example in held_out.begun.examples] == [deal.document.text for deal in held_out.deals]


def test_a_habits_recall_is_a_mean_over_the_documents_that_have_it() -> None:
    held_out = held(TASK, Scripted(restates), Scripted(votes=votes_for(1)))
    measured = measure(
        held_out, Scripted(lambda request: restates(request).split("\n")[0]), Scripted(votes=votes_for(1))
    )
    rows = [TASK.quality(deal.document.text, deal.document.text.split("\n")[0]) for deal in held_out.deals]
    for habit in ("swapped", "withheld", "plain"):
        known = [row[habit] for row in rows if habit in row]
        assert measured.metrics[f"quality/greedy/{habit}"] == pytest.approx(sum(known) / len(known))


def test_a_task_that_knows_no_quality_has_no_numbers_of_it() -> None:
    assert isinstance(TASK, KnownQuality)
    assert not isinstance(TASKS["writing"], KnownQuality)
    held_out = held(BARE, Scripted(says("start")), Scripted(votes=votes_for(1)))
    measured = measure(held_out, Scripted(says("now")), Scripted(votes=votes_for(1)))
    assert set(measured.metrics) == {"frozen/detection", "strength/civilian", "strength/spy"}
    assert {(example.output, tuple(example.quality)) for example in measured.examples} == {("now-civilian", ())}


# Detection and strength


def test_detectors_are_measured_on_the_starting_models_games_and_performers_by_the_starting_detectors() -> None:
    """Each number has one moving part."""
    begin, then = Scripted(says("start")), Scripted(votes=voting_for_text("start-spy", otherwise=1))
    held_out = held(BARE, begin, then)
    spies = [each.spy for each in held_out.deals]
    assert len(set(spies)) > 2
    then.asked.clear()
    now, detector = Scripted(says("now")), Scripted(votes=votes_for(2))
    measured = measure(held_out, now, detector)

    def shown(civilians: str, spy: str) -> list[list[str]]:
        return [[f"{spy}-spy" if player == its else f"{civilians}-civilian" for player in range(1, 6)] for its in spies]

    (frozen,) = detector.asked
    assert [outputs(request) for request in frozen] == shown("start", "start")
    civilians, those_spies = then.asked
    assert [outputs(request) for request in civilians] == shown("now", "start")
    assert [outputs(request) for request in those_spies] == shown("start", "now")
    assert measured.metrics == pytest.approx(
        {
            "frozen/detection": share(held_out.deals, 2),
            "strength/civilian": 1,  # the starting spy is found among whatever civilians
            "strength/spy": 1 - share(held_out.deals, 1),  # of the current spy the starting detectors know nothing
        }
    )
    assert 0 < share(held_out.deals, 1) < 1
    assert 0 < share(held_out.deals, 2) < 1


def test_the_start_is_measured_by_itself() -> None:
    detector = Scripted(votes=voting_for_text("start-spy", otherwise=1))
    held_out = held(BARE, Scripted(says("start")), detector)
    assert held_out.begun.metrics == {"frozen/detection": 1, "strength/civilian": 1, "strength/spy": 0}
    again = measure(held_out, Scripted(says("start")), detector)
    assert again == held_out.begun


def test_detectors_that_favour_nobody_share_the_credit() -> None:
    nobody = Scripted(votes=votes_for(None))
    held_out = held(BARE, Scripted(says("start")), nobody)
    assert held_out.begun.metrics == pytest.approx(
        {"frozen/detection": 1 / 5, "strength/civilian": 1 / 5, "strength/spy": 4 / 5}
    )


def test_frozen_games_stay_the_starting_models() -> None:
    held_out = held(TASK, Scripted(restates), Scripted(votes=votes_for(1)))
    before = held_out.frozen
    shown = []
    for text in ("Ada: lamp", "Ben: key"):
        detector = Scripted(votes=votes_for(1))
        measure(held_out, Scripted(lambda request, text=text: text), detector)
        shown.append([content(request) for call in detector.asked for request in call])
    assert shown[0] == shown[1]
    assert held_out.frozen == before
    for game, prompt in zip(held_out.frozen, shown[0], strict=True):
        for player, text in zip(game.deal.numbers, (output.text for output in game.outputs), strict=True):
            assert f"\n{player}\n{text}" in prompt
            assert facts(text or "").items() <= facts(game.deal.document.text).items()
            assert (text == game.deal.document.text) == (player != game.deal.spy)


def test_without_a_spy_there_is_nothing_to_find() -> None:
    nobody = Scripted()  # any vote would be an error
    held_out = held(TASK, Scripted(restates), nobody, "game.degradation.kind=nothing", "training.stages=performing")
    measured = measure(held_out, Scripted(lambda request: restates(request).split("\n")[0]), nobody)
    assert {key.split("/")[0] for key in measured.metrics} == {"quality"}
    assert measured.metrics["quality/greedy/recall"] == pytest.approx(1 / 6)
    assert measured.metrics["quality/sampled/recall"] == pytest.approx(1 / 6)


def test_a_control_of_the_rewards_changes_no_measurement() -> None:
    both = [
        held(TASK, Scripted(restates), Scripted(votes=votes_for(1)), *words)
        for words in ((), ("game.rewards.control=random_votes",), ("game.rewards.control=shuffled",))
    ]
    assert both[0].begun == both[1].begun == both[2].begun


# What fails is not scored


def test_a_game_that_cannot_be_played_is_left_out() -> None:
    known = held(TASK, Scripted(restates), Scripted(votes=votes_for(1)))
    documents = [deal.document.text for deal in known.deals]
    lines = [text.split("\n")[0] for text in documents]

    def failing(number: int) -> Says:
        def rule(request: Request) -> str | Completion:
            # One player's failure drops its game. Greedy requests of another document fail as well.
            spied = of_the_spy(request) and lines[number].split(": ")[0] + ":" in content(request).split("\n")[1]
            greedy = request.sampling.temperature == 0 and documents[number + 1] in content(request)
            return failed() if spied or greedy else restates(request)

        return rule

    held_out = held(TASK, Scripted(failing(1)), Scripted(votes=votes_for(1)))
    kept = [game.deal.game for game in held_out.frozen]
    assert 1 not in kept
    assert len(kept) < len(held_out.deals) == DOCUMENTS
    assert held_out.begun.metrics["frozen/detection"] == pytest.approx(share([known.deals[n] for n in kept], 1))
    assert held_out.begun.metrics["quality/greedy"] == held_out.begun.metrics["quality/sampled"] == 1
    assert (held_out.begun.examples[2].output, dict(held_out.begun.examples[2].quality)) == (None, {})
    assert held_out.begun.examples[2].document == documents[2]

    detector = Scripted(votes=votes_for(2))
    held_out.detector.asked.clear()  # type: ignore[attr-defined]
    measure(held_out, Scripted(failing(4)), detector)
    (frozen,), (civilians, spies) = detector.asked, held_out.detector.asked  # type: ignore[attr-defined]
    assert len(frozen) == len(kept)
    both = [n for n in kept if lines[n].split(": ")[0] != lines[4].split(": ")[0]]
    assert len(both) < len(kept)
    for call in (civilians, spies):
        assert [content(request).split("\n1\n")[0] for request in call] == [f"detector\n{documents[n]}" for n in both]


def test_what_could_not_be_measured_is_no_number() -> None:
    held_out = held(TASK, Scripted(restates), Scripted(votes=votes_for(1)))
    gone = Scripted(lambda request: failed(), lambda request: failed())
    measured = measure(held_out, gone, gone)
    assert measured.metrics == {}
    assert {(example.output, tuple(example.quality)) for example in measured.examples} == {(None, ())}


def test_a_start_without_any_game_is_an_error_that_says_why() -> None:
    with pytest.raises(SpyRLError, match="no held-out game could be played: the server is down"):
        held(TASK, Scripted(lambda request: failed("the server is down")), Scripted(votes=votes_for(1)))
    with pytest.raises(SpyRLError, match=r"no held-out game could be played: document 'ledger-test-0-.*too short"):
        held(TASK, Scripted(restates), Scripted(votes=votes_for(1)), r"game.degradation.keep='\S+'")


# Documents and draws


def test_documents_and_draws_do_not_depend_on_the_runs_seed() -> None:
    found = []
    for seed in (1, 2):
        performer, detector = Scripted(restates), Scripted(votes=votes_for(1))
        found.append((held(TASK, performer, detector, f"run.seed={seed}"), performer.asked, detector.asked))
    assert found[0][0].deals == found[1][0].deals
    assert found[0][1:] == found[1][1:]  # all requests, with their seeds
    assert {split_of(deal.document.text) for deal in found[0][0].deals} == {"test"}


def test_deals_are_none_of_training() -> None:
    held_out = held(TASK, Scripted(restates), Scripted(votes=votes_for(1)))
    assert [each.game for each in held_out.deals] == list(range(DOCUMENTS))
    settings = config().game
    for iteration in range(3):
        again = [
            deal(
                each.document,
                players=5,
                degradation=settings.degradation.make(),
                seed=0,
                iteration=iteration,
                game=each.game,
            )
            for each in held_out.deals
        ]
        assert [each.spy for each in again] != [each.spy for each in held_out.deals]


def test_more_documents_are_the_same_ones_and_others() -> None:
    few, many = (
        held(TASK, Scripted(restates), Scripted(votes=votes_for(1)), f"training.evaluation.documents={count}")
        for count in (5, 9)
    )
    assert many.deals[:5] == few.deals


def test_the_documents_may_come_from_a_corpus_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "held.jsonl"
    file.write_text('{"text": "Ada: lamp\\nBen: key\\nCleo: rope\\nDan: vase"}\n')
    words = (f"training.evaluation.path={file}", "training.evaluation.documents=1")
    held_out = held(TASK, Scripted(restates), Scripted(votes=votes_for(1)), *words)
    assert [deal.document.text for deal in held_out.deals] == ["Ada: lamp\nBen: key\nCleo: rope\nDan: vase"]


def test_an_unknown_split_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"corpus\.split=dev: ledgers have the splits train and test"):
        held(TASK, Scripted(restates), Scripted(votes=votes_for(1)), "training.evaluation.split=dev")
