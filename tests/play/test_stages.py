"""The stages, played by a scripted policy: who is asked what, in which call, and what becomes of the answers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spyrl.game import Ballot, Deal, Document, RoleBaselines
from spyrl.game.advantages import RoleSettings
from spyrl.game.degradation import DegradationSettings
from spyrl.game.settings import DetectorSettings, GameSettings
from spyrl.play import Detected, Performance, Played, deal_games, detect, document_budget, perform, settle, summarize
from spyrl.policy import Completion, Request, Sampling
from spyrl.tasks import TASKS, TextTask

WRITING = TASKS["writing"]
# Prompts that hold what a player knows and nothing else.
BARE = TextTask(
    name="bare",
    source="note",
    product="text",
    instructions="Write.",
    criteria="Gaps.",
    performing_template="{{ role }}|{{ observation }}|{{ said }}",
    detecting_template="{{ voter }}|{{ observation }}|{{ outputs }}",
)
WHOLE = GameSettings(players=4, output="whole", detectors=DetectorSettings(view="full", count=3))

Answer = Callable[[Request, int], Completion | str]


class Scripted:
    """Answers the ``sample``-th seed of a request by a rule and remembers its calls; a token is a word."""

    name = "scripted"

    def __init__(self, *rules: Answer) -> None:
        """With several rules, each call of `generate` takes the next, and the last one stays."""
        self.rules = list(rules)
        self.calls: list[list[Request]] = []

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        self.calls.append(list(requests))
        rule = self.rules.pop(0) if len(self.rules) > 1 else self.rules[0]
        answers = [[rule(request, sample) for sample in range(request.samples)] for request in requests]
        return [[said if isinstance(said, Completion) else written(said) for said in row] for row in answers]

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def prompt_tokens(self, request: Request) -> int:
        return 2 + self.count_tokens(asked(request))


def counting() -> Answer:
    """A new text each time: text-0, text-1, …"""
    numbers = itertools.count()
    return lambda request, sample: f"text-{next(numbers)}"


def written(text: str) -> Completion:
    return Completion(text, "stop", token_ids=tuple(range(len(text.split()))))


def failed(why: str) -> Completion:
    return Completion("", "failed", error=why)


def asked(request: Request) -> str:
    return "\n\n".join(message["content"] for message in request.messages)


def documents(count: int, sentences: int = 4) -> list[Document]:
    return [
        Document(f"d{n}", " ".join(f"Sentence {s} of document {n} ends." for s in range(sentences)))
        for n in range(count)
    ]


def dealt(count: int, settings: GameSettings = WHOLE, *, seed: int = 7, iteration: int = 2) -> list[Deal]:
    deals, dropped = deal_games(documents(count), settings, seed, iteration)
    assert not dropped
    return deals


def performed(deals: Sequence[Deal], settings: GameSettings = WHOLE, rule: Answer | None = None) -> list[Performance]:
    performances, dropped = perform(deals, BARE, Scripted(rule or counting()), settings, 7)
    assert not dropped
    return performances


def with_detectors(settings: GameSettings = WHOLE, **changes: Any) -> GameSettings:
    return replace(settings, detectors=DetectorSettings(**changes))


# Deals


def test_games_are_numbered_by_document_and_a_document_too_short_drops_its_game() -> None:
    short = Document("tiny", "Word")
    deals, dropped = deal_games([*documents(1), short, *documents(1)], WHOLE, 7, 2)
    assert [deal.game for deal in deals] == [0, 2]
    assert {deal.iteration for deal in deals} == {2}
    [drop] = dropped
    assert (drop.deal.game, drop.deal.document, drop.deal.spy) == (1, short, None)
    assert drop.reason == "document_too_short"
    assert "'tiny'" in drop.detail


def test_a_game_is_dealt_the_same_whatever_is_dealt_before_it() -> None:
    [same] = documents(1, sentences=9)
    among_long, _ = deal_games([*documents(3, sentences=30), same, *documents(2)], WHOLE, 7, 2)
    among_short, _ = deal_games([Document("tiny", "Word"), *documents(2), same], WHOLE, 7, 2)
    assert among_long[3] == among_short[-1]
    assert among_long[3].game == 3
    again = [deal_games([same], WHOLE, 7, iteration)[0][0] for iteration in range(9)]
    assert len({deal.spy for deal in again}) > 1  # another epoch, another spy and another part hidden
    assert len({deal.degraded for deal in again}) > 1


# Performing


def test_parallel_performing_is_one_call_and_civilians_share_a_request() -> None:
    deals = dealt(3)
    policy = Scripted(counting())
    performances, dropped = perform(deals, BARE, policy, WHOLE, 7)
    assert dropped == []
    [requests] = policy.calls
    assert len(requests) == 6
    for deal, performance in zip(deals, performances, strict=True):
        own = {asked(request): request for request in requests if f"document {deal.game} " in asked(request)}
        assert set(own) == {f"civilian|{deal.document.text}|", f"spy|{deal.degraded}|"}
        assert own[f"civilian|{deal.document.text}|"].samples == 3
        assert own[f"spy|{deal.degraded}|"].samples == 1
        assert [(turn.output.player, turn.output.round) for turn in performance.turns] == [(n, 1) for n in range(1, 5)]
        for turn in performance.turns:
            assert turn.prompt == f"{deal.role(turn.output.player)}|{deal.observation(turn.output.player)}|"
            assert turn.output.text == turn.completion.text
    texts = [output.text for performance in performances for output in performance.outputs]
    assert sorted(texts) == sorted(f"text-{n}" for n in range(12))


def test_each_stage_samples_as_it_is_set() -> None:
    settings = replace(with_detectors(max_tokens=9), max_tokens=5, temperature=0.7, top_p=0.9)
    deals = dealt(1, settings)
    policy = Scripted(counting(), lambda request, sample: "\\boxed{N/A}")
    performances, _ = perform(deals, BARE, policy, settings, 7)
    detect(performances, BARE, policy, settings, 7)
    performing, detection = policy.calls
    assert {request.sampling for request in performing} == {Sampling(0.7, 0.9, 5)}
    assert {request.sampling for request in detection} == {Sampling(0.7, 0.9, 9)}
    assert {(request.begin, request.choices) for request in [*performing, *detection]} == {("", ())}


def test_of_several_rounds_each_shows_all_that_was_said_before() -> None:
    settings = replace(WHOLE, rounds=3)
    [deal] = dealt(1, settings)
    policy = Scripted(counting())
    [performance], _ = perform([deal], BARE, policy, settings, 7)
    assert [sum(request.samples for request in call) for call in policy.calls] == [4, 4, 4]
    assert [(turn.output.round, turn.output.player) for turn in performance.turns] == [
        (round_, player) for round_ in (1, 2, 3) for player in (1, 2, 3, 4)
    ]
    for round_, call in enumerate(policy.calls, 1):
        earlier = [output for output in performance.outputs if output.round < round_]
        for request in call:
            said = asked(request).split("|")[2]
            assert [line for line in said.splitlines() if line.startswith("text-")] == [
                output.text for output in sorted(earlier, key=lambda output: (output.player, output.round))
            ]


@pytest.mark.parametrize("rounds", [1, 2])
def test_in_sequence_the_spy_speaks_last_and_each_sees_what_was_said_before(rounds: int) -> None:
    settings = replace(WHOLE, turns="sequential", rounds=rounds)
    deals = dealt(8, settings)
    assert {deal.spy for deal in deals} > {1, 2}  # also games in which the spy would come early by its number
    policy = Scripted(counting())
    performances, dropped = perform(deals, BARE, policy, settings, 7)
    assert dropped == []
    assert [[request.samples for request in call] for call in policy.calls] == [[1] * 8] * (4 * rounds)
    for index, performance in enumerate(performances):
        deal = performance.deal
        order = [player for player in deal.numbers if player != deal.spy] + [deal.spy]
        text_of = {(output.round, output.player): output.text for output in performance.outputs}
        said: list[tuple[int, int, str | None]] = []  # player, round, text
        for call, (round_, player) in zip(policy.calls, itertools.product(range(1, rounds + 1), order), strict=True):
            several = max((spoken_in for _, spoken_in, _ in said), default=1) > 1
            shown = "\n\n".join(
                f"[Player {speaker}{f', round {spoken_in}' if several else ''}]\n{text}"
                for speaker, spoken_in, text in sorted(said)
            )
            assert asked(call[index]) == f"{deal.role(player)}|{deal.observation(player)}|{shown}".strip()
            said.append((player, round_, text_of[round_, player]))
        assert len(said) == 4 * rounds


@pytest.mark.parametrize("turns", ["parallel", "sequential"])
def test_a_failed_output_drops_that_game_alone(turns: Any) -> None:
    settings = replace(WHOLE, turns=turns, rounds=2)
    deals = dealt(3, settings)

    def rule(request: Request, sample: int) -> Completion | str:
        civilians = asked(request).startswith("civilian")
        return failed("server down") if "document 1 " in asked(request) and civilians else "fine"

    policy = Scripted(rule)
    performances, dropped = perform(deals, BARE, policy, settings, 7)
    assert [performance.deal.game for performance in performances] == [0, 2]
    assert all(len(performance.turns) == 8 for performance in performances)
    assert [(drop.deal.game, drop.reason, drop.detail) for drop in dropped] == [(1, "performing_failed", "server down")]
    asked_of_the_dropped = [sum("document 1 " in asked(request) for request in call) for call in policy.calls]
    assert asked_of_the_dropped[0] > 0
    assert not any(asked_of_the_dropped[1:])


def test_a_performing_prompt_over_the_limit_drops_its_game_before_anything_is_asked() -> None:
    deals, _ = deal_games([*documents(1), *documents(1, sentences=40)], WHOLE, 7, 2)
    policy = Scripted(counting())
    performances, dropped = perform(deals, BARE, policy, replace(WHOLE, max_prompt_tokens=100), 7)
    assert [performance.deal.game for performance in performances] == [0]
    [drop] = dropped
    assert (drop.deal.game, drop.reason) == (1, "prompt_too_long")
    assert "game.max_prompt_tokens=100" in drop.detail
    assert len(policy.calls[0]) == 2


def test_missing_outputs_are_shown_as_missing_and_counted() -> None:
    settings = replace(WHOLE, output="marked")
    deals = dealt(2, settings)
    policy = Scripted(
        lambda request, sample: f"so\n{WRITING.marker}\n a story " if sample == 0 else "no marker",
        lambda request, sample: "\\boxed{N/A}",
    )
    performances, dropped = perform(deals, WRITING, policy, settings, 7)
    assert dropped == []
    missing = [output for performance in performances for output in performance.outputs if output.text is None]
    assert len(missing) == 4  # of each game's civilians all but the first
    assert {output.text for performance in performances for output in performance.outputs} == {"a story", None}
    played, _ = detect(performances, WRITING, policy, settings, 7)
    for each in played:
        assert each.detection[0].prompt.count("(no short story was handed in)") == 2
        for output in (turn.output for turn in each.performing):
            shown = output.text or "(no short story was handed in)"
            assert f"[Player {output.player}]\n{shown}\n" in each.detection[0].prompt
    settled, _ = settle(played, settings, RoleBaselines())
    assert summarize(settled, [])["outputs/missing"] == 0.5


# Detection


@pytest.mark.parametrize("count", [None, 2])
def test_in_the_own_view_each_civilian_votes_from_its_own_observation(count: int | None) -> None:
    settings = with_detectors(view="own", count=count)
    performances = performed(dealt(3, settings), settings)
    policy = Scripted(lambda request, sample: "\\boxed{N/A}")
    played, dropped = detect(performances, BARE, policy, settings, 7)
    assert dropped == []
    [requests] = policy.calls
    assert [request.samples for request in requests] == [count or 1] * 9
    for each in played:
        civilians = [player for player in each.deal.numbers if player != each.deal.spy]
        assert [turn.ballot.voter for turn in each.detection] == [n for n in civilians for _ in range(count or 1)]
        for turn in each.detection:
            assert turn.prompt.startswith(f"{turn.ballot.voter}|{each.deal.document.text}|[Player 1]")


def test_the_spy_votes_only_where_it_may_and_then_from_its_own_copy() -> None:
    settings = with_detectors(view="own", spy_votes=True)
    performances = performed(dealt(3, settings), settings)
    played, _ = detect(performances, BARE, Scripted(lambda request, sample: "\\boxed{N/A}"), settings, 7)
    for each in played:
        assert [turn.ballot.voter for turn in each.detection] == [1, 2, 3, 4]
        assert each.deal.spy is not None
        assert each.detection[each.deal.spy - 1].prompt.startswith(f"{each.deal.spy}|{each.deal.degraded}|")


@pytest.mark.parametrize(("count", "ballots"), [(3, 3), (None, 8)])
def test_in_the_full_view_all_detectors_read_the_whole_document(count: int | None, ballots: int) -> None:
    settings = with_detectors(view="full", count=count)
    performances = performed(dealt(2, settings), settings)
    policy = Scripted(lambda request, sample: f"\\boxed{{{sample % 4 + 1}}}")
    played, _ = detect(performances, BARE, policy, settings, 7)
    [requests] = policy.calls
    assert [request.samples for request in requests] == [ballots] * 2
    for each in played:
        outputs = "\n\n".join(f"[Player {turn.output.player}]\n{turn.output.text}" for turn in each.performing)
        assert {turn.prompt for turn in each.detection} == {f"None|{each.deal.document.text}|{outputs}"}
        votes = [Ballot(None, "vote", n % 4 + 1, f"\\boxed{{{n % 4 + 1}}}") for n in range(ballots)]
        assert [turn.ballot for turn in each.detection] == votes


@pytest.mark.parametrize(("self_vote", "outcome"), [(False, "self_vote"), (True, "vote")])
def test_a_vote_for_oneself_counts_only_where_it_is_allowed(self_vote: bool, outcome: str) -> None:
    settings = with_detectors(view="own", self_vote=self_vote)
    performances = performed(dealt(2, settings), settings)
    policy = Scripted(lambda request, sample: f"me: \\boxed{{{asked(request).split('|')[0]}}}")
    played, _ = detect(performances, BARE, policy, settings, 7)
    ballots = [turn.ballot for each in played for turn in each.detection]
    assert {ballot.outcome for ballot in ballots} == {outcome}
    assert [ballot.choice for ballot in ballots] == [ballot.voter if self_vote else None for ballot in ballots]


@pytest.mark.parametrize("self_vote", [False, True])
def test_direct_ballots_choose_among_players_and_abstention(self_vote: bool) -> None:
    settings = replace(with_detectors(view="own", answer="direct", self_vote=self_vote), top_p=0.5)
    performances = performed(dealt(2, settings), settings)

    def rule(request: Request, sample: int) -> Completion:
        share = 1 / len(request.choices)
        last = request.choices[-2]
        return Completion(last, "choice", token_ids=(1,), probabilities=(share,) * len(request.choices))

    policy = Scripted(rule)
    played, _ = detect(performances, BARE, policy, settings, 7)
    for request in policy.calls[0]:
        voter = asked(request).split("|")[0]
        players = [name for name in "1234" if self_vote or name != voter]
        assert request.choices == (*players, "N/A")
        assert (request.begin, request.closing) == ("\\boxed{", "}")
        assert request.sampling.top_p == 1  # renormalised probabilities are exact only uncut
    for turn in (turn for each in played for turn in each.detection):
        ballot = turn.ballot
        assert ballot.voter is not None
        assert (ballot.outcome, ballot.choice) == ("vote", 3 if ballot.voter == 4 and not self_vote else 4)
        assert len(ballot.probabilities) == 5
        assert sum(ballot.probabilities) == pytest.approx(1)
        assert (ballot.probabilities[ballot.voter - 1] == 0) is not self_vote


def test_a_direct_abstention_is_no_vote() -> None:
    settings = with_detectors(view="full", count=2, answer="direct")
    performances = performed(dealt(1, settings), settings)
    q = (0.1, 0.2, 0.3, 0.1, 0.3)
    policy = Scripted(lambda request, sample: Completion(("2", "N/A")[sample], "choice", probabilities=q))
    [played], _ = detect(performances, BARE, policy, settings, 7)
    assert [turn.ballot for turn in played.detection] == [
        Ballot(None, "vote", 2, "2", q),
        Ballot(None, "abstained", None, "N/A", q),
    ]


@pytest.mark.parametrize("answer", ["reasoned", "direct"])
def test_a_failed_ballot_drops_that_game_alone_and_invents_no_vote(answer: Any) -> None:
    settings = with_detectors(view="full", count=3, answer=answer)
    performances = performed(dealt(3, settings), settings)

    def rule(request: Request, sample: int) -> Completion:
        if "document 1 " in asked(request) and sample == 2:
            return failed("engine died")
        if answer == "reasoned":
            return written("\\boxed{2}")
        return Completion("2", "choice", probabilities=(0.2,) * 5)

    played, dropped = detect(performances, BARE, Scripted(rule), settings, 7)
    assert [each.deal.game for each in played] == [0, 2]
    assert [len(each.detection) for each in played] == [3, 3]
    assert [(drop.deal.game, drop.reason, drop.detail) for drop in dropped] == [(1, "detection_failed", "engine died")]
    settled, _ = settle(played, settings, RoleBaselines())
    assert [sum(each.game.tally.votes) for each in settled] == [3, 3]
    assert summarize(settled, dropped)["games/dropped/detection_failed"] == 1


def test_games_that_all_failed_leave_nothing_to_ask_or_settle() -> None:
    performances, dropped = perform(dealt(2), BARE, Scripted(lambda request, sample: failed("down")), WHOLE, 7)
    assert performances == []
    assert [drop.deal.game for drop in dropped] == [0, 1]
    assert detect(performances, BARE, Scripted(counting()), WHOLE, 7) == ([], [])
    assert settle([], WHOLE, RoleBaselines()) == ([], RoleBaselines())


# Long prompts


def long_game(words_an_output: int) -> tuple[Performance, int]:
    """A game with 40 sentences of 6 words and real prompts, and the length of its detection prompt."""
    [deal], _ = deal_games(documents(1, sentences=40), WHOLE, 7, 2)
    numbers = itertools.count()
    answer: Answer = lambda request, sample: " ".join(f"o{next(numbers)}" for _ in range(words_an_output))  # noqa: E731
    performances, _ = perform([deal], WRITING, Scripted(answer), WHOLE, 7)
    policy = Scripted(lambda request, sample: "\\boxed{1}")
    detect(performances, WRITING, policy, WHOLE, 7)
    return performances[0], policy.prompt_tokens(policy.calls[0][0])


@pytest.mark.parametrize("missing", [1, 5, 6, 7, 60, 228])
def test_a_detection_prompt_over_the_limit_has_its_document_cut_at_a_sentence(missing: int) -> None:
    performance, length = long_game(words_an_output=20)
    settings = replace(WHOLE, max_prompt_tokens=length - missing)
    policy = Scripted(lambda request, sample: "\\boxed{1}")
    [played], dropped = detect([performance], WRITING, policy, settings, 7)
    assert dropped == []
    text = asked(policy.calls[0][0])
    assert policy.prompt_tokens(policy.calls[0][0]) <= settings.max_prompt_tokens
    document = performance.deal.document.text
    shown = text.partition("<document>\n")[2].partition("\n</document>")[0]
    assert shown
    assert document.startswith(shown)
    assert shown.endswith("ends.")
    assert len(shown.split()) == 6 * ((240 - missing) // 6)  # no sentence more is cut than must be
    whole, _ = detect([performance], WRITING, Scripted(lambda request, sample: "\\boxed{1}"), WHOLE, 7)
    assert text == whole[0].detection[0].prompt.replace(document, shown)  # rules and outputs are untouched
    assert [turn.ballot.choice for turn in played.detection] == [1, 1, 1]


def test_a_prompt_of_just_the_limit_is_not_cut() -> None:
    performance, length = long_game(words_an_output=20)
    policy = Scripted(lambda request, sample: "\\boxed{1}")
    detect([performance], WRITING, policy, replace(WHOLE, max_prompt_tokens=length), 7)
    assert performance.deal.document.text in asked(policy.calls[0][0])


@pytest.mark.parametrize("view", ["own", "full"])
def test_outputs_that_alone_are_too_long_drop_their_game(view: Any) -> None:
    long, length = long_game(words_an_output=300)
    settings = replace(with_detectors(view=view, count=2), max_prompt_tokens=length - 240)
    [other] = performed(dealt(1, settings), settings)
    short = replace(other, deal=replace(other.deal, game=1))
    policy = Scripted(lambda request, sample: "\\boxed{1}")
    played, dropped = detect([long, short], WRITING, policy, settings, 7)
    assert [each.deal.game for each in played] == [1]
    [drop] = dropped
    assert (drop.deal.game, drop.reason) == (0, "prompt_too_long")
    assert str(length - 240) in drop.detail
    assert not any("o0" in asked(request) for request in policy.calls[0])


@given(max_tokens=st.integers(1, 200), rounds=st.integers(1, 3), limit=st.integers(400, 2000))
def test_a_document_of_the_budget_fits_the_performing_prompt(max_tokens: int, rounds: int, limit: int) -> None:
    settings = replace(WHOLE, max_tokens=max_tokens, rounds=rounds, max_prompt_tokens=limit)
    policy = Scripted(counting())
    budget = document_budget(WRITING, policy, settings)
    assume(budget >= 2)
    [deal], _ = deal_games([Document("d", " ".join(f"w{n}" for n in range(budget)))], settings, 7, 2)
    perform([deal], WRITING, policy, replace(settings, rounds=1), 7)
    longest = max(policy.prompt_tokens(request) for request in policy.calls[0])
    reserved = min(4 * rounds * max_tokens, limit // 2)
    assert limit - 20 <= longest + reserved <= limit  # the roles' rules differ by a few words


# Seeds


SHAPES = [
    WHOLE,
    replace(WHOLE, rounds=2, turns="sequential"),
    replace(with_detectors(view="own", count=2, spy_votes=True), rounds=2),
]


def requests_of(deals: Sequence[Deal], settings: GameSettings, seed: int = 7) -> list[Request]:
    """All that is asked in both stages. Answers depend on the seed alone, as a policy's should."""
    policy = Scripted(lambda request, sample: f"words {request.seeds[sample]}")
    performances, _ = perform(deals, BARE, policy, settings, seed)
    detect(performances, BARE, policy, settings, seed)
    return [request for call in policy.calls for request in call]


@pytest.mark.parametrize("settings", SHAPES, ids=["full", "sequential", "own"])
def test_no_two_samples_share_a_seed(settings: GameSettings) -> None:
    runs = {(seed, iteration): dealt(4, settings, iteration=iteration) for seed in (7, 8) for iteration in (0, 1)}
    seeds = [
        sample
        for (seed, _), deals in runs.items()
        for request in requests_of(deals, settings, seed)
        for sample in request.seeds
    ]
    ballots = {1: 3, 2: 4 * 2}[settings.rounds] if settings.detectors.view == "own" else 3
    assert len(seeds) == 4 * 4 * (4 * settings.rounds + ballots)
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("settings", SHAPES, ids=["full", "sequential", "own"])
def test_a_game_is_asked_the_same_alone_or_among_others(settings: GameSettings) -> None:
    deals = dealt(4, settings)
    together = requests_of(deals, settings)
    for deal in deals:
        alone = requests_of([deal], settings)
        assert alone == [request for request in together if f"document {deal.game} " in asked(request)]


# Settling


def played_games(count: int, settings: GameSettings = WHOLE) -> list[Played]:
    """Games whose ballots differ from one to the next."""
    performances = performed(dealt(count, settings), settings)
    drawn = random.Random(1)
    policy = Scripted(lambda request, sample: f"\\boxed{{{drawn.choice(['1', '2', '3', '4', 'N/A'])}}}")
    return detect(performances, BARE, policy, settings, 7)[0]


@given(order=st.permutations(range(6)))
def test_games_are_settled_by_number_whatever_order_they_come_in(order: list[int]) -> None:
    games = played_games(6)
    in_order, after = settle(games, WHOLE, RoleBaselines())
    assert [each.game.deal.game for each in in_order] == list(range(6))
    assert settle([games[index] for index in order], WHOLE, RoleBaselines()) == (in_order, after)


@pytest.mark.parametrize("baseline", ["role", "group", "none"])
def test_settling_all_is_settling_one_by_one(baseline: Any) -> None:
    settings = replace(WHOLE, roles=RoleSettings(baseline=baseline))
    games = played_games(6, settings)
    together, after = settle(games, settings, RoleBaselines())
    baselines, one_by_one = RoleBaselines(), []
    for each in games:
        [settled], baselines = settle([each], settings, baselines)
        one_by_one.append(settled)
    assert together == one_by_one
    assert after == baselines
    assert (after != RoleBaselines()) == (baseline == "role")
    assert len({each.game.performing_advantages for each in together}) > 1


def test_a_settled_game_holds_what_its_ballots_earned() -> None:
    [deal] = dealt(1)
    [performance] = performed([deal])
    assert deal.spy is not None
    other = deal.spy % 4 + 1
    ballots = (Ballot(None, "vote", deal.spy), Ballot(None, "vote", other), Ballot(None, "vote", deal.spy))
    turns = tuple(Detected(ballot, "asked", written("said")) for ballot in ballots)
    [settled], baselines = settle([Played(deal, performance.turns, turns)], WHOLE, RoleBaselines())
    game = settled.game
    assert (settled.performing, settled.detection) == (performance.turns, turns)
    assert game.outputs == performance.outputs
    assert game.tally.votes[deal.spy - 1] == 2
    # m̄_c = 1/3, so the gap is 5/3: the spy loses 0.1 · 5/3, a civilian gets a third of it less 0.1 (m_j - 1/3).
    expected = {deal.spy: -1 / 6, other: 1 / 18 - 0.1 * 2 / 3}
    assert game.performing_rewards == pytest.approx([expected.get(n, 1 / 18 + 0.1 / 3) for n in deal.numbers])
    assert game.performing_advantages == pytest.approx(game.performing_rewards)  # the first game's baseline is 0
    assert game.detection_rewards == (1, 0, 1)
    assert game.detection_advantages == pytest.approx((2**-0.5, -(2**0.5), 2**-0.5), rel=1e-4)
    assert game.verdict is not None
    assert (game.verdict.accuracy, game.verdict.abstained) == (1, 0)
    assert baselines.spy.value == pytest.approx(0.05 * -1 / 6)
    assert baselines.civilian.value == pytest.approx(0.05 * 1 / 18)


def test_batch_scaling_divides_by_the_spread_of_the_whole_batch() -> None:
    plain, _ = settle(played_games(4), WHOLE, RoleBaselines())
    settings = replace(WHOLE, roles=RoleSettings(scale="batch"))
    scaled, _ = settle(played_games(4), settings, RoleBaselines())
    flat = [advantage for each in scaled for advantage in each.game.performing_advantages]
    assert sum(advantage**2 for advantage in flat) / len(flat) == pytest.approx(1, rel=1e-3)
    before = [advantage for each in plain for advantage in each.game.performing_advantages]
    ratios = [after / old for after, old in zip(flat, before, strict=True) if old]
    assert ratios == pytest.approx([ratios[0]] * len(ratios))


# Without a spy


@pytest.mark.parametrize("view", ["own", "full"])
def test_without_a_spy_everybody_reads_the_same_and_the_tally_elects(view: Any) -> None:
    settings = replace(with_detectors(view=view, count=1), degradation=DegradationSettings(kind="nothing"))
    [deal] = dealt(1, settings)
    assert (deal.spy, deal.degraded, deal.hidden) == (None, deal.document.text, ())
    policy = Scripted(counting(), lambda request, sample: "\\boxed{2}")
    performances, _ = perform([deal], BARE, policy, settings, 7)
    [request] = policy.calls[0]
    assert asked(request) == f"civilian|{deal.document.text}|"
    assert request.samples == 4
    played, _ = detect(performances, BARE, policy, settings, 7)
    voters = [None] if view == "full" else [1, 2, 3, 4]
    assert [turn.ballot.voter for turn in played[0].detection] == voters
    [settled], baselines = settle(played, settings, RoleBaselines())
    game = settled.game
    assert game.verdict is None
    assert game.detection_rewards == game.detection_advantages == ()
    votes = 1 if view == "full" else 3  # player 2's own vote names itself
    assert game.tally.votes == (0, votes, 0, 0)
    # Whoever the tally elects stands where the spy would; all are civilians to the baselines.
    assert game.performing_rewards == pytest.approx((votes / 30, -votes / 10, votes / 30, votes / 30))
    assert baselines.spy == RoleBaselines().spy
    assert baselines.civilian.weight == pytest.approx(0.05)
