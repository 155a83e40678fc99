"""Playing: the performing stage, the detection stage and the settling of a batch of games.

These are steps 2 to 4 of an iteration, for training, evaluation and ``spyrl play`` alike. All requests of a stage go to
the policy in one call. A game that an engine fails is dropped with the reason; no output and no vote is invented.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spyrl.corpus import fit
from spyrl.game import (
    Ballot,
    Deal,
    Document,
    DocumentTooShortError,
    Game,
    Output,
    Role,
    RoleBaselines,
    count_ballots,
    deal,
    detection_reward,
    direct_ballot,
    direct_choices,
    generator,
    group_advantages,
    named_seed,
    performing_rewards,
    random_ballots,
    read_ballot,
    role_advantages,
    scaled,
    shuffled_rewards,
    verdict,
)
from spyrl.game.settings import GameSettings
from spyrl.policy import Completion, Policy, Request, Sampling
from spyrl.tasks import DetectionTurn, PerformingTurn, Task


@dataclass(frozen=True)
class Performed:
    """One player's turn: what it was asked, what it wrote and the output read from that."""

    output: Output
    prompt: str
    completion: Completion


@dataclass(frozen=True)
class Detected:
    """One detector's turn: what it was asked, what it wrote and the ballot read from that."""

    ballot: Ballot
    prompt: str
    completion: Completion


@dataclass(frozen=True)
class Performance:
    """A game after the performing stage, turns in order of round and player."""

    deal: Deal
    turns: tuple[Performed, ...]

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What the players handed in."""
        return tuple(turn.output for turn in self.turns)


@dataclass(frozen=True)
class Played:
    """A game after both stages, with every completion, ready to be settled."""

    deal: Deal
    performing: tuple[Performed, ...]
    detection: tuple[Detected, ...]


@dataclass(frozen=True)
class Settled:
    """A settled game and the turns it was made of."""

    game: Game
    performing: tuple[Performed, ...]
    detection: tuple[Detected, ...]


@dataclass(frozen=True)
class Dropped:
    """A game that could not be played: why in a word for the metrics, and in a sentence for a person."""

    deal: Deal
    reason: str
    detail: str


def deal_games(
    documents: Sequence[Document], settings: GameSettings, seed: int, iteration: int
) -> tuple[list[Deal], list[Dropped]]:
    """Deal one game a document, numbered from 0; a document that cannot be degraded drops its game."""
    degradation = settings.degradation.make()
    deals: list[Deal] = []
    dropped: list[Dropped] = []
    for number, document in enumerate(documents):
        try:
            deals.append(
                deal(
                    document,
                    players=settings.players,
                    degradation=degradation,
                    seed=seed,
                    iteration=iteration,
                    game=number,
                )
            )
        except DocumentTooShortError as error:
            nobody = Deal(iteration, number, document, settings.players, None, document.text, ())
            dropped.append(Dropped(nobody, "document_too_short", str(error)))
    return deals, dropped


def perform(
    deals: Sequence[Deal], task: Task, policy: Policy, settings: GameSettings, seed: int
) -> tuple[list[Performance], list[Dropped]]:
    """Performing stage: every player does the task from its own observation (paper Eq. 3).

    In parallel, a round is one call of the policy, and players of a game with the same prompt share a request. In
    sequence, a call is one player of every game: the civilians by number, then the spy.
    """
    performances = [Performance(deal, ()) for deal in deals]
    dropped: list[Dropped] = []
    for round_ in range(1, settings.rounds + 1):
        for step in range(settings.players if settings.turns == "sequential" else 1):
            performances, failed = _take_turns(performances, round_, step, task, policy, settings, seed)
            dropped += failed
    return performances, dropped


def _take_turns(
    performances: Sequence[Performance],
    round_: int,
    step: int,
    task: Task,
    policy: Policy,
    settings: GameSettings,
    seed: int,
) -> tuple[list[Performance], list[Dropped]]:
    """One call of the policy: all players' turns of a round, or in sequence those of the ``step``-th to speak."""
    dropped: dict[int, Dropped] = {}
    asked: list[tuple[int, tuple[int, ...], Request]] = []
    for index, performance in enumerate(performances):
        deal = performance.deal
        players = tuple(deal.numbers) if settings.turns == "parallel" else (_order(deal)[step],)
        turns = [PerformingTurn(deal, player, round_, performance.outputs, settings.output) for player in players]
        requests = _performing_requests(turns, task, settings, seed)
        too_long = _too_long([request for _, request in requests], policy, settings)
        if too_long:
            dropped[index] = Dropped(deal, "prompt_too_long", too_long)
        else:
            asked += [(index, group, request) for group, request in requests]
    new: dict[int, list[Performed]] = {index: [] for index, _, _ in asked}
    answers = policy.generate([request for _, _, request in asked])
    for (index, group, request), completions in zip(asked, answers, strict=True):
        for player, completion in zip(group, completions, strict=True):
            if completion.finish_reason == "failed":
                dropped[index] = Dropped(performances[index].deal, "performing_failed", completion.error)
            output = Output(player, round_, task.read(completion.text, settings.output))
            new[index].append(Performed(output, _asked(request), completion))
    going = [
        replace(performances[index], turns=performances[index].turns + tuple(sorted(turns, key=_by_player)))
        for index, turns in new.items()
        if index not in dropped
    ]
    return going, list(dropped.values())


def _by_player(turn: Performed) -> int:
    return turn.output.player


def detect(
    performances: Sequence[Performance], task: Task, policy: Policy, settings: GameSettings, seed: int
) -> tuple[list[Played], list[Dropped]]:
    """Detection stage: detectors read an observation and all outputs, and vote (paper Eq. 4).

    A prompt longer than ``max_prompt_tokens`` has its document cut at a sentence; a game whose outputs alone are
    too long is dropped.
    """
    dropped: list[Dropped] = []
    asked: list[tuple[int, int | None, Request]] = []
    for index, performance in enumerate(performances):
        requests: list[tuple[int | None, Request]] = []
        for voter in _voters(performance.deal, settings):
            request = _detection_request(performance, voter, task, policy, settings, seed)
            if request is None:
                detail = f"outputs leave no room for the document in {settings.max_prompt_tokens} prompt tokens"
                dropped.append(Dropped(performance.deal, "prompt_too_long", detail))
                break
            requests.append((voter, request))
        else:
            asked += [(index, voter, request) for voter, request in requests]
    answers = policy.generate([request for _, _, request in asked])
    detected: dict[int, list[Detected]] = {index: [] for index, _, _ in asked}
    failures: dict[int, str] = {}
    for (index, voter, request), completions in zip(asked, answers, strict=True):
        for completion in completions:
            if completion.finish_reason == "failed":
                failures.setdefault(index, completion.error)
            else:
                ballot = _ballot(completion, performances[index].deal, voter, settings)
                detected[index].append(Detected(ballot, _asked(request), completion))
    dropped += [Dropped(performances[index].deal, "detection_failed", error) for index, error in failures.items()]
    played = [
        Played(performances[index].deal, performances[index].turns, tuple(turns))
        for index, turns in detected.items()
        if index not in failures
    ]
    return played, dropped


def settle(
    played: Sequence[Played], settings: GameSettings, baselines: RoleBaselines, seed: int = 0
) -> tuple[list[Settled], RoleBaselines]:
    """Tally, reward and score all games, in their global order, and move the role baselines (paper Eq. 5, 6, 8, 9).

    ``seed`` is the run's, for the controls of ``settings.rewards.control``, which change rewards and nothing else.
    """
    played = sorted(played, key=lambda p: p.deal.game)
    roles = [[each.deal.role(player) for player in each.deal.numbers] for each in played]
    performing, detecting = _rewards(played, roles, settings, seed)
    advantages = []
    for rewards, own in zip(performing, roles, strict=True):
        scored, baselines = role_advantages(rewards, own, baselines, settings.roles)
        advantages.append(scored)
    settled = []
    for each, rewards, earned, scored in zip(
        played, performing, detecting, scaled(advantages, settings.roles), strict=True
    ):
        ballots = tuple(turn.ballot for turn in each.detection)
        tally = count_ballots(ballots, each.deal.players)
        spy = each.deal.spy
        game = Game(
            deal=each.deal,
            outputs=tuple(turn.output for turn in each.performing),
            ballots=ballots,
            tally=tally,
            performing_rewards=rewards,
            performing_advantages=scored,
            detection_rewards=earned,
            detection_advantages=group_advantages(earned),
            verdict=None if spy is None else verdict(ballots, tally, spy),
        )
        settled.append(Settled(game, each.performing, each.detection))
    return settled, baselines


def _rewards(
    played: Sequence[Played], roles: Sequence[Sequence[Role]], settings: GameSettings, seed: int
) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
    """Performing and detection rewards of all games."""
    control = settings.rewards.control
    performing: list[tuple[float, ...]] = []
    detecting: list[tuple[float, ...]] = []
    for each in played:
        deal, ballots = each.deal, tuple(turn.ballot for turn in each.detection)
        if control == "random_votes":
            ballots = random_ballots(ballots, deal.players, generator(seed, deal.iteration, deal.game, "control"))
        performing.append(performing_rewards(count_ballots(ballots, deal.players), deal.spy, settings.rewards))
        spy = deal.spy
        detecting.append(() if spy is None else tuple(detection_reward(b, spy, settings.rewards) for b in ballots))
    if control == "shuffled" and played:
        draw = generator(seed, played[0].deal.iteration, "control")
        performing = shuffled_rewards(performing, roles, draw)
        pool = [reward for rewards in detecting for reward in rewards]
        draw.shuffle(pool)
        detecting = [tuple(pool.pop() for _ in rewards) for rewards in detecting]
    return performing, detecting


def performing_seed(seed: int, deal: Deal, round_: int, player: int) -> int:
    """The seed of one player's turn, which tells whose sample of a request it is; ``seed`` is the run's."""
    return named_seed(seed, deal.iteration, deal.game, f"performing/{round_}/{player}")


def detection_seed(seed: int, deal: Deal, voter: int | None, number: int) -> int:
    """The seed of a voter's ``number``-th ballot (from 0), likewise; ``None``: of the detectors that are no players."""
    who = "detector" if voter is None else f"voter {voter}"
    return named_seed(seed, deal.iteration, deal.game, f"detection/{who}/{number}")


def document_budget(task: Task, policy: Policy, settings: GameSettings) -> int:
    """How many tokens a document may have: what the prompt limit leaves beside the rules and room for the outputs.

    The outputs get their longest, but never more than half of the limit; where they then turn out longer, `detect`
    cuts the document for that prompt.
    """
    empty = Deal(0, 0, Document("", ""), settings.players, 1, "", ())
    turn = PerformingTurn(empty, 1, 1, (), settings.output)
    rules = policy.prompt_tokens(Request(task.performing(turn), (0,)))
    outputs = settings.players * settings.rounds * settings.max_tokens
    return settings.max_prompt_tokens - rules - min(outputs, settings.max_prompt_tokens // 2)


def _asked(request: Request) -> str:
    """The whole of what was asked, as it is kept in replays."""
    return "\n\n".join(message["content"] for message in request.messages)


def _order(deal: Deal) -> tuple[int, ...]:
    """Who speaks when in the sequential game: the spy last."""
    return tuple(sorted(deal.numbers, key=lambda player: (player == deal.spy, player)))


def _performing_requests(
    turns: Sequence[PerformingTurn], task: Task, settings: GameSettings, seed: int
) -> list[tuple[tuple[int, ...], Request]]:
    """One request for each distinct prompt of these turns of one game, with the players that read it."""
    groups: dict[str, list[PerformingTurn]] = {}
    messages = {}
    for turn in turns:
        written = task.performing(turn)
        groups.setdefault(repr(written), []).append(turn)
        messages[repr(written)] = written
    sampling = Sampling(settings.temperature, settings.top_p, settings.max_tokens, settings.min_tokens)
    return [
        (
            tuple(turn.player for turn in group),
            Request(
                messages[key],
                tuple(performing_seed(seed, turn.deal, turn.round, turn.player) for turn in group),
                sampling,
            ),
        )
        for key, group in groups.items()
    ]


def _too_long(requests: Sequence[Request], policy: Policy, settings: GameSettings) -> str:
    longest = max(policy.prompt_tokens(request) for request in requests)
    if longest <= settings.max_prompt_tokens:
        return ""
    return f"a prompt of {longest} tokens is longer than game.max_prompt_tokens={settings.max_prompt_tokens}"


def _voters(deal: Deal, settings: GameSettings) -> list[int | None]:
    if settings.detectors.view == "full":
        return [None]
    return [player for player in deal.numbers if player != deal.spy or settings.detectors.spy_votes]


def _barred(voter: int | None, settings: GameSettings) -> int | None:
    return None if settings.detectors.self_vote else voter


def _detection_request(
    performance: Performance, voter: int | None, task: Task, policy: Policy, settings: GameSettings, seed: int
) -> Request | None:
    """The request for one voter's ballots, its document cut to fit; ``None`` where none of it would be left."""
    deal, detectors = performance.deal, settings.detectors
    observation = deal.document.text if voter is None else deal.observation(voter)
    seeds = tuple(detection_seed(seed, deal, voter, number) for number in range(detectors.ballots))
    direct = detectors.answer == "direct"
    sampling = Sampling(settings.temperature, 1.0 if direct else settings.top_p, detectors.max_tokens)

    def request(shown: str) -> Request:
        turn = DetectionTurn(deal, shown, performance.outputs, voter, detectors.answer, detectors.self_vote)
        if not direct:
            return Request(task.detecting(turn), seeds, sampling)
        options = direct_choices(deal.players, _barred(voter, settings))
        return Request(task.detecting(turn), seeds, sampling, task.ballot_opening, options, task.ballot_closing)

    whole = request(observation)
    excess = policy.prompt_tokens(whole) - settings.max_prompt_tokens
    if excess <= 0:
        return whole
    shown = fit(observation, policy.count_tokens(observation) - excess, policy.count_tokens)
    cut = request(shown)
    return cut if shown.strip() and policy.prompt_tokens(cut) <= settings.max_prompt_tokens else None


def _ballot(completion: Completion, deal: Deal, voter: int | None, settings: GameSettings) -> Ballot:
    barred = _barred(voter, settings)
    if settings.detectors.answer == "direct":
        return direct_ballot(
            completion.text, completion.probabilities, players=deal.players, voter=voter, barred=barred
        )
    return read_ballot(completion.text, players=deal.players, voter=voter, self_vote=settings.detectors.self_vote)
