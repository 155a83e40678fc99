"""A change that breaks the algorithm makes a test fail that says so.

Each law below is a plain function that plays or settles games and learns from them through the real code, and whose
assertion names it. Each mutation is a mistake somebody could make at a real seam; the law it breaks must then fail
with its own name, and without a mutation all laws hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from spyrl.config import load_config
from spyrl.game import (
    Ballot,
    Deal,
    Document,
    Ema,
    Gate,
    GateSettings,
    Output,
    RoleBaselines,
    direct_ballot,
    direct_choices,
)
from spyrl.game import gate as gate_module
from spyrl.game.advantages import RoleSettings
from spyrl.game.settings import DetectorSettings, GameSettings
from spyrl.game.tally import Tally, Verdict
from spyrl.ledger.blank import blank_model, blank_tokenizer
from spyrl.play import Detected, Performed, Played, Settled, stages
from spyrl.policy import Completion, Request
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import LoadedModel
from spyrl.tasks.ledger import TASK
from spyrl.training import iteration, learner, trajectory
from spyrl.training.learner import Learner, UpdateStatistics
from spyrl.training.settings import TrainingSettings
from spyrl.training.trajectory import Trajectory

PLAYERS = 5
SETTINGS = GameSettings(
    players=PLAYERS,
    output="whole",
    max_tokens=6,
    max_prompt_tokens=256,
    detectors=DetectorSettings(view="full", count=8, answer="direct"),
)
TOKENIZER = blank_tokenizer()
CHOICES = tuple(TOKENIZER.convert_tokens_to_ids(choice) for choice in direct_choices(PLAYERS))
PAID = (0.1625, 0.0625, -0.05, -0.3375, 0.1625)  # for votes (0, 1, 2, 5, 0) where player 3 is the spy
WORDS = range(30, 30 + 10 * PLAYERS)  # token ids that outputs are made of

Mutate = Callable[[pytest.MonkeyPatch], None]
Law = Callable[[str], None]


# Games whose votes are known, and a learner that learns from them


def played(spy: int, votes: Sequence[int | None], number: int = 0) -> Played:
    """A game with these ballots (``None`` abstains); all outputs are different."""
    deal = Deal(
        0, number, Document(f"d{number}", "Ada: lamp\nBen: key"), PLAYERS, spy, "Ada: ____\nBen: key", ((5, 9),)
    )
    performing = []
    for player in deal.numbers:
        prompt = (2, 6 if player == spy else 5, 20 + number, 3, 4)
        ids = tuple(WORDS[(player * 7 + number * 3 + step * player) % len(WORDS)] for step in range(3))
        performing.append(Performed(Output(player, 1, str(ids)), "", Completion("", "stop", "", prompt, ids)))
    detection = []
    for vote in votes:
        text = "N/A" if vote is None else str(vote)
        ballot = direct_ballot(text, [0.05 if vote else 0.0] * PLAYERS + [0.75 if vote else 1.0], players=PLAYERS)
        chosen = (CHOICES[-1] if vote is None else CHOICES[vote - 1],)
        completion = Completion(text, "choice", "", (2, 7, 20 + number, 3, 4, 10), chosen, (), (), (CHOICES,))
        detection.append(Detected(replace(ballot, probabilities=()), "", completion))
    return Played(deal, tuple(performing), tuple(detection))


def settled(
    *games: Played, baselines: RoleBaselines | None = None, **changes: Any
) -> tuple[list[Settled], RoleBaselines]:
    return stages.settle(games, replace(SETTINGS, **changes), baselines or RoleBaselines())


def a_learner(temperature: float = 1.0, **settings: Any) -> Learner:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = blank_model(TOKENIZER)
    loaded = LoadedModel(model, TOKENIZER, Path(), "blank", torch.device("cpu"), torch.float32)
    return learner.make_learner(loaded, TrainingSettings(**{"lr": 1e-3, "kl": 0.0, **settings}), temperature)


def learn(pupil: Learner, games: Sequence[Settled], *stage: Any, times: int = 1) -> UpdateStatistics:
    """The last of ``times`` updates on the same games."""
    found = None
    for number in range(times):
        found = learner.update(pupil, trajectory.trajectories(games, stage), iteration=number, seed=0)
    assert found is not None
    return found


def logprob(pupil: Learner, completion: Completion) -> float:
    """The completion's log-probability, computed as plainly as can be."""
    ids = torch.tensor([completion.prompt_ids + completion.token_ids])
    with torch.no_grad():
        logits = pupil.loaded.model(ids).logits[0, len(completion.prompt_ids) - 1 : -1]
    if completion.allowed:
        only = torch.full_like(logits, float("-inf"))
        only[:, list(CHOICES)] = logits[:, list(CHOICES)]
        logits = only
    return float(logits.log_softmax(-1).gather(1, torch.tensor(completion.token_ids)[:, None]).sum())


def changes(pupil: Learner, game: Played, *stage: Any) -> tuple[list[float], list[float]]:
    """By how much the log-probability of each output, and of each ballot, goes up in an update on ``game``."""
    completions = [[turn.completion for turn in part] for part in (game.performing, game.detection)]
    before = [[logprob(pupil, completion) for completion in part] for part in completions]
    learn(pupil, settled(game)[0], *stage)
    outputs, ballots = (
        [logprob(pupil, completion) - old for completion, old in zip(part, olds, strict=True)]
        for part, olds in zip(completions, before, strict=True)
    )
    return outputs, ballots


def near(one: Sequence[float], other: Sequence[float]) -> bool:
    return list(one) == pytest.approx(list(other), abs=1e-4)


# The laws: deals and votes


def only_the_spy_sees_the_degraded_copy(says: str) -> None:
    asked: list[Request] = []

    class Recording:
        name = "recording"

        def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
            asked.extend(requests)
            return [[Completion("Ada: lamp", "stop")] * request.samples for request in requests]

        def count_tokens(self, text: str) -> int:
            return len(text.split())

        def prompt_tokens(self, request: Request) -> int:
            return 10

    degradation = load_config("ledger").game.degradation
    document = Document("d", "Ada: lamp\nBen: key\nCleo: rope\nDan: vase")
    deals, _ = stages.deal_games([document], replace(SETTINGS, degradation=degradation), 0, 0)
    stages.perform(deals, TASK, Recording(), SETTINGS, 0)  # type: ignore[arg-type]
    read = {request.messages[0]["content"].split("\n", 1)[0]: request for request in asked}
    assert set(read) == {"spy", "civilian"}, says
    assert "_" in read["spy"].messages[0]["content"], says
    assert read["civilian"].messages[0]["content"] == f"civilian\n{document.text}", says
    assert (read["spy"].samples, read["civilian"].samples) == (1, PLAYERS - 1), says


def votes_count_for_the_player_they_name(says: str) -> None:
    (game,), _ = settled(played(3, [2, 3, 3, 4, 4, 4, 4, 4]))
    assert game.game.tally == Tally((0, 1, 2, 5, 0), 0, 0), says


def no_vote_is_invented(says: str) -> None:
    silent = played(2, [None] * 7)
    unreadable = Detected(Ballot(None, "no_box"), "", silent.detection[0].completion)
    (game,), _ = settled(replace(silent, detection=(*silent.detection, unreadable)))
    assert game.game.tally == Tally((0,) * PLAYERS, 7, 1), says
    assert not any(game.game.performing_rewards), says
    assert not any(game.game.detection_rewards), says


# The laws: rewards


def spies_that_are_found_are_discouraged(says: str) -> None:
    outputs, _ = changes(a_learner(), played(2, [2] * 8), "performing")
    assert outputs[1] < -0.01, says


def spies_that_are_not_found_are_encouraged(says: str) -> None:
    outputs, _ = changes(a_learner(), played(2, [1, 3, 4, 5, 1, 3, 4, 5]), "performing")
    assert outputs[1] > 0.01, says


def the_civilian_that_draws_fewer_votes_than_its_fellows_is_encouraged(says: str) -> None:
    outputs, _ = changes(a_learner(), played(2, [1, 1, 1, 3, 3, 3, 4, 4]), "performing")
    assert outputs[4] > 0, says
    assert outputs[4] > max(outputs[0], outputs[2]), says


def players_are_paid_by_their_role_and_their_votes(says: str) -> None:
    # The civilians' mean is 1.5 votes: the spy gets -0.1 · 0.5, a civilian 0.0125 - 0.1 (votes - 1.5).
    (game,), _ = settled(played(3, [2, 3, 3, 4, 4, 4, 4, 4]))
    assert near(game.game.performing_rewards, PAID), says


def performing_is_a_zero_sum_game(says: str) -> None:
    for votes in ([2] * 8, [1, 1, 3, None, 2], [5] * 3):
        (game,), _ = settled(played(2, votes))
        assert sum(game.game.performing_rewards) == pytest.approx(0), says


def a_ballot_that_names_the_spy_becomes_more_likely(says: str) -> None:
    _, ballots = changes(a_learner(), played(4, [4, 1, 4, 2, 3, 4, None, 5]), "detection")
    assert all(ballots[at] > 0.01 for at in (0, 2, 5)), says
    assert sum(ballots[at] for at in (1, 3, 4, 6, 7)) < -0.01, says


# The laws: advantages


def each_role_is_scored_against_its_own_baseline(says: str) -> None:
    # Votes (2, 8, 0, 0, 0): nobody gets what its role usually gets.
    (game,), after = settled(played(2, [2] * 8), baselines=RoleBaselines(Ema(-0.4, 1), Ema(0.1, 1)))
    assert near(game.game.performing_advantages, [0.1, -0.4, 0.1, 0.1, 0.1]), says
    assert near([after.spy.value, after.civilian.value], [-0.42, 0.105]), says


def a_game_is_scored_against_the_games_before_it(says: str) -> None:
    found, first = played(2, [2] * 8, 0), played(3, [None] * 8, 1)
    games, _ = settled(first, found)
    assert [game.game.deal.game for game in games] == [0, 1], says
    assert near(games[0].game.performing_advantages, [0.2, -0.8, 0.2, 0.2, 0.2]), says  # against nothing
    assert near(games[1].game.performing_advantages, [-0.01, -0.01, 0.04, -0.01, -0.01]), says  # a twentieth of that


def games_of_a_batch_share_one_scale(says: str) -> None:
    games, _ = settled(played(2, [2] * 8, 0), played(2, [2] * 2, 1), roles=RoleSettings(baseline="none", scale="batch"))
    ratio = games[0].game.performing_advantages[1] / games[1].game.performing_advantages[1]
    assert ratio == pytest.approx(4), says  # eight votes against two


def detectors_are_compared_within_their_own_game(says: str) -> None:
    games, _ = settled(played(1, [1] * 8, 0), played(2, [2, 1, 1, 1, 1, 1, 1, 1], 1))
    assert near(games[0].game.detection_advantages, [0] * 8), says  # all the same: nothing to learn
    assert near(games[1].game.detection_advantages, [7**0.5] + [-(7**-0.5)] * 7), says


def the_advantage_of_a_player_goes_to_its_own_output(says: str) -> None:
    game = played(3, [2, 3, 3, 4, 4, 4, 4, 4])
    learnt = trajectory.trajectories(settled(game)[0], ["performing"])
    own = dict(zip((turn.completion.token_ids for turn in game.performing), PAID, strict=True))
    assert len(learnt) == len(own) == PLAYERS, says
    assert near([each.advantage for each in learnt], [own[each.token_ids] for each in learnt]), says
    assert [each.role for each in learnt] == ["civilian", "civilian", "spy", "civilian", "civilian"], says


def the_advantage_of_a_ballot_goes_to_that_ballot(says: str) -> None:
    game = played(3, [3, 1, 1, 1, 1, 1, 1, 1])
    learnt = trajectory.trajectories(settled(game)[0], ["detection"])
    assert len(learnt) == 8, says
    for each in learnt:
        assert (each.advantage > 0) == (each.token_ids == (CHOICES[2],)), says


# The laws: the gate


def after_iterations(gate: Gate, votes: Sequence[int | None], count: int, **changes: Any) -> list[tuple[str, str]]:
    """The gate's stage and reason after each of ``count`` iterations of a game; player 2 is the spy."""
    found = []
    settings = GateSettings(**{"dwell": 3, "patience": 20, **changes})
    for _ in range(count):
        games, _ = settled(played(2, votes))
        gate, reason = gate.step([each.game.verdict for each in games if each.game.verdict], settings)
        found.append((gate.stage, reason))
    return found


def the_gate_turns_to_performing_when_detectors_are_right(says: str) -> None:
    assert after_iterations(Gate(), [2] * 8, 3)[-1] == ("performing", "threshold"), says
    assert after_iterations(Gate(), [1] * 8, 6)[-1] == ("detection", ""), says


def the_gate_turns_to_detection_when_detectors_are_lost(says: str) -> None:
    for lost in ([1] * 8, [None] * 8):
        assert after_iterations(Gate("performing"), lost, 3)[-1] == ("detection", "threshold"), says
    assert after_iterations(Gate("performing"), [2] * 8, 6)[-1] == ("performing", ""), says


def the_gate_stays_for_its_dwell(says: str) -> None:
    stays = [stage for stage, _ in after_iterations(Gate(), [2] * 8, 3)]
    assert stays == ["detection", "detection", "performing"], says


def the_patience_of_the_gate_ends(says: str) -> None:
    last = after_iterations(Gate(), [1] * 8, 4, patience=4)[-1]
    assert last == ("performing", "patience"), says


def only_the_stage_of_the_gate_is_trained(says: str) -> None:
    games, _ = settled(played(3, [3, 1, 1, 1, 1, 1, 1, 1]))
    config = load_config("ledger")
    for stage in ("detection", "performing"):
        learnt = trajectory.trajectories(games, iteration.trained_stages(config, Gate(stage)))
        assert {each.stage for each in learnt} == {stage}, says


# The laws: the update


def the_kl_term_holds_the_policy_near_the_reference(says: str) -> None:
    pupil = a_learner(kl=0.5, lr=1e-4)
    shift = torch.Generator().manual_seed(0)
    for weight in pupil.parameters:
        weight.data += 0.02 * torch.randn(weight.shape, generator=shift)
    games, _ = settled(played(2, [None] * 8))  # nobody is paid, so that nothing but the penalty pulls
    divergences = [learn(pupil, games, "performing", times=times).kl for times in (1, 10)]
    assert divergences[0] > 1e-3, says
    assert divergences[1] < 0.8 * divergences[0], says


def the_clip_limits_what_one_batch_can_change(says: str) -> None:
    pupil = a_learner(lr=1e-3, epochs=40, adam_betas=(0.0, 0.999), clip=0.2)
    game = played(2, [2, 1])
    outputs, _ = changes(pupil, replace(game, performing=game.performing[:2]), "performing")
    # Three tokens each; each may leave the range by one step at most.
    assert max(abs(output) for output in outputs) < 3, says


def what_is_learnt_is_scored_as_it_was_sampled(says: str) -> None:
    pupil = a_learner(temperature=0.5, lr=0.0)
    for weight in pupil.parameters:
        weight.data *= 1.5  # sharper, so that a temperature makes a difference
    policy = LocalPolicy(pupil.loaded)
    settings = replace(SETTINGS, temperature=0.5)
    document = Document("d", "Ada: lamp\nBen: key\nCleo: rope\nDan: vase\nEva: axe")
    deals, _ = stages.deal_games([document], settings, 0, 0)
    performances, _ = stages.perform(deals, TASK, policy, settings, 0)
    games, _ = stages.detect(performances, TASK, policy, settings, 0)
    for stage in ("performing", "detection"):
        assert learn(pupil, settled(*games)[0], stage).gap_max < 1e-4, says


LAWS: tuple[Law, ...] = (
    only_the_spy_sees_the_degraded_copy,
    votes_count_for_the_player_they_name,
    no_vote_is_invented,
    spies_that_are_found_are_discouraged,
    spies_that_are_not_found_are_encouraged,
    the_civilian_that_draws_fewer_votes_than_its_fellows_is_encouraged,
    players_are_paid_by_their_role_and_their_votes,
    performing_is_a_zero_sum_game,
    a_ballot_that_names_the_spy_becomes_more_likely,
    each_role_is_scored_against_its_own_baseline,
    a_game_is_scored_against_the_games_before_it,
    games_of_a_batch_share_one_scale,
    detectors_are_compared_within_their_own_game,
    the_advantage_of_a_player_goes_to_its_own_output,
    the_advantage_of_a_ballot_goes_to_that_ballot,
    the_gate_turns_to_performing_when_detectors_are_right,
    the_gate_turns_to_detection_when_detectors_are_lost,
    the_gate_stays_for_its_dwell,
    the_patience_of_the_gate_ends,
    only_the_stage_of_the_gate_is_trained,
    the_kl_term_holds_the_policy_near_the_reference,
    the_clip_limits_what_one_batch_can_change,
    what_is_learnt_is_scored_as_it_was_sampled,
)


def sentence(law: Law) -> str:
    return law.__name__.replace("_", " ")


@pytest.mark.parametrize("law", LAWS, ids=sentence)
def test_the_algorithm_keeps_its_laws(law: Law) -> None:
    law(sentence(law))


# Mutations

REAL = {
    name: getattr(module, name)
    for module, names in (
        (stages, ("performing_rewards", "detection_reward", "count_ballots", "role_advantages", "verdict", "settle")),
        (stages, ("group_advantages", "scaled")),
        (trajectory, ("trajectories",)),
        (learner, ("token_losses", "score")),
    )
    for name in names
}


def rotated(values: Sequence[float]) -> tuple[float, ...]:
    return (*values[1:], *values[:1])


def other(role: str) -> str:
    return "civilian" if role == "spy" else "spy"


def with_loss(**changed: float) -> Callable[..., Any]:
    """The loss with some of its weights replaced."""
    return lambda *tensors, **weights: REAL["token_losses"](*tensors, **{**weights, **changed})


def performing_sign(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        stages, "performing_rewards", lambda *given: tuple(-reward for reward in REAL["performing_rewards"](*given))
    )


def beta_sign(patch: pytest.MonkeyPatch) -> None:
    def wrong(tally: Tally, spy: int, settings: Any) -> Any:
        return REAL["performing_rewards"](tally, spy, replace(settings, beta=-settings.beta))

    patch.setattr(stages, "performing_rewards", wrong)


def lambda_sign(patch: pytest.MonkeyPatch) -> None:
    def wrong(tally: Tally, spy: int, settings: Any) -> Any:
        return REAL["performing_rewards"](tally, spy, replace(settings, lambda_=-settings.lambda_))

    patch.setattr(stages, "performing_rewards", wrong)


def lambda_missing(patch: pytest.MonkeyPatch) -> None:
    def wrong(tally: Tally, spy: int, settings: Any) -> Any:
        return REAL["performing_rewards"](tally, spy, replace(settings, lambda_=0.0))

    patch.setattr(stages, "performing_rewards", wrong)


def civilians_paid_in_full(patch: pytest.MonkeyPatch) -> None:
    def wrong(tally: Tally, spy: int, settings: Any) -> tuple[float, ...]:
        rewards = REAL["performing_rewards"](tally, spy, settings)
        return tuple(reward - (player != spy) * rewards[spy - 1] for player, reward in enumerate(rewards, 1))

    patch.setattr(stages, "performing_rewards", wrong)


def spy_numbered_from_zero(patch: pytest.MonkeyPatch) -> None:
    def wrong(tally: Tally, spy: int, settings: Any) -> Any:
        return REAL["performing_rewards"](tally, spy % len(tally.votes) + 1, settings)

    patch.setattr(stages, "performing_rewards", wrong)


def detection_sign(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stages, "detection_reward", lambda *given: -REAL["detection_reward"](*given))


def votes_off_by_one(patch: pytest.MonkeyPatch) -> None:
    def wrong(ballots: Any, players: int) -> Tally:
        tally = REAL["count_ballots"](ballots, players)
        return replace(tally, votes=rotated(tally.votes))

    patch.setattr(stages, "count_ballots", wrong)


def votes_simulated(patch: pytest.MonkeyPatch) -> None:
    def wrong(ballots: Any, players: int) -> Tally:
        return REAL["count_ballots"](
            [b if b.choice else replace(b, outcome="vote", choice=1) for b in ballots], players
        )

    patch.setattr(stages, "count_ballots", wrong)


def copies_swapped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deal, "observation", lambda self, player: self.document.text if player == self.spy else self.degraded)


def copies_all_whole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Deal, "observation", lambda self, player: self.document.text)


def baselines_swapped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RoleBaselines, "of", lambda self, role: self.civilian if role == "spy" else self.spy)


def roles_swapped_in_baselines(patch: pytest.MonkeyPatch) -> None:
    def wrong(rewards: Any, roles: Any, *more: Any) -> Any:
        return REAL["role_advantages"](rewards, [other(role) for role in roles], *more)

    patch.setattr(stages, "role_advantages", wrong)


def one_baseline_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RoleBaselines, "of", lambda self, role: self.civilian)


def baselines_forgotten(patch: pytest.MonkeyPatch) -> None:
    def wrong(rewards: Any, roles: Any, baselines: Any, settings: Any) -> Any:
        return REAL["role_advantages"](rewards, roles, RoleBaselines(), settings)

    patch.setattr(stages, "role_advantages", wrong)


def baselines_moved_first(patch: pytest.MonkeyPatch) -> None:
    def wrong(rewards: Any, roles: Any, baselines: Any, settings: Any) -> Any:
        _, after = REAL["role_advantages"](rewards, roles, baselines, settings)
        return REAL["role_advantages"](rewards, roles, after, settings)[0], after

    patch.setattr(stages, "role_advantages", wrong)


def games_in_any_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stages, "sorted", lambda values, key: list(values), raising=False)


def normalised_in_the_game(patch: pytest.MonkeyPatch) -> None:
    def wrong(rewards: Any, roles: Any, baselines: Any, settings: Any) -> Any:
        return REAL["role_advantages"](rewards, roles, baselines, RoleSettings(baseline="group"))

    patch.setattr(stages, "role_advantages", wrong)


def scaled_game_by_game(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stages, "scaled", lambda games, settings: [REAL["scaled"]([game], settings)[0] for game in games])


def group_normalisation_absent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stages, "group_advantages", tuple)


def group_normalisation_across_games(patch: pytest.MonkeyPatch) -> None:
    def wrong(*given: Any) -> Any:
        games, baselines = REAL["settle"](*given)
        rewards = [reward for each in games for reward in each.game.detection_rewards]
        shares = iter(REAL["group_advantages"](rewards))
        return [
            replace(
                each,
                game=replace(each.game, detection_advantages=tuple(next(shares) for _ in each.game.detection_rewards)),
            )
            for each in games
        ], baselines

    patch.setattr(stages, "settle", wrong)


def rotate_in_every_game(patch: pytest.MonkeyPatch, field: str) -> None:
    def wrong(games: Sequence[Settled], stage: Any) -> list[Trajectory]:
        turned = [
            replace(each, game=replace(each.game, **{field: rotated(getattr(each.game, field))})) for each in games
        ]
        return REAL["trajectories"](turned, stage)

    patch.setattr(trajectory, "trajectories", wrong)


def performing_advantages_rotated(patch: pytest.MonkeyPatch) -> None:
    rotate_in_every_game(patch, "performing_advantages")


def detection_advantages_rotated(patch: pytest.MonkeyPatch) -> None:
    rotate_in_every_game(patch, "detection_advantages")


def both_stages_become_trajectories(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        trajectory, "trajectories", lambda games, stage: REAL["trajectories"](games, ["detection", "performing"])
    )


def the_other_stage_is_trained(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        iteration,
        "trained_stages",
        lambda config, gate: ("performing",) if gate.stage == "detection" else ("detection",),
    )


def gate_inverted(patch: pytest.MonkeyPatch) -> None:
    due = Gate._due
    patch.setattr(gate_module.Gate, "_due", lambda self, settings: not due(self, settings))


def gate_thresholds_swapped(patch: pytest.MonkeyPatch) -> None:
    """In performing, it asks what it should ask in detection."""
    due = Gate._due
    patch.setattr(gate_module.Gate, "_due", lambda self, settings: due(replace(self, stage="detection"), settings))


def gate_without_dwell(patch: pytest.MonkeyPatch) -> None:
    step = Gate.step
    patch.setattr(
        gate_module.Gate, "step", lambda self, verdicts, settings: step(self, verdicts, replace(settings, dwell=1))
    )


def gate_without_patience(patch: pytest.MonkeyPatch) -> None:
    step = Gate.step
    patch.setattr(
        gate_module.Gate,
        "step",
        lambda self, verdicts, settings: step(self, verdicts, replace(settings, patience=10**9)),
    )


def verdict_inverted(patch: pytest.MonkeyPatch) -> None:
    def wrong(*given: Any) -> Verdict:
        found = REAL["verdict"](*given)
        return replace(found, accuracy=1 - found.accuracy)

    patch.setattr(stages, "verdict", wrong)


def abstentions_not_told(patch: pytest.MonkeyPatch) -> None:
    """Detectors that all abstain count as right."""
    patch.setattr(
        stages,
        "verdict",
        lambda ballots, tally, spy: Verdict(1.0, 0.0) if not any(tally.votes) else REAL["verdict"](ballots, tally, spy),
    )


def loss_sign(patch: pytest.MonkeyPatch) -> None:
    def wrong(own: Any, old: Any, reference: Any, advantages: Any, *more: Any, **weights: Any) -> Any:
        return REAL["token_losses"](own, old, reference, -advantages, *more, **weights)

    patch.setattr(learner, "token_losses", wrong)


def kl_missing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(learner, "token_losses", with_loss(kl=0.0))


def kl_sign(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(learner, "token_losses", with_loss(kl=-0.5))


def reference_follows_the_policy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        learner,
        "_reference_scores",
        lambda pupil, members, batch: REAL["score"](pupil.loaded.model, members, batch, pupil.temperature),
    )


def clip_missing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(learner, "token_losses", with_loss(clip=1e9))


def old_probabilities_follow_the_policy(patch: pytest.MonkeyPatch) -> None:
    """The ratio is always 1, so that the clip never takes hold."""

    def wrong(own: Any, old: Any, *more: Any, **weights: Any) -> Any:
        return REAL["token_losses"](own, own.detach(), *more, **weights)

    patch.setattr(learner, "token_losses", wrong)


def ballots_scored_over_the_vocabulary(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("spyrl.training.scoring._limits", lambda members: [])


def temperature_ignored(patch: pytest.MonkeyPatch) -> None:
    def warm(model: Any, members: Any, batch: Any, temperature: float, **options: Any) -> Any:
        return REAL["score"](model, members, batch, 1.0, **options)

    patch.setattr(learner, "score", warm)


MUTATIONS: tuple[tuple[Mutate, Law], ...] = (
    (copies_swapped, only_the_spy_sees_the_degraded_copy),
    (copies_all_whole, only_the_spy_sees_the_degraded_copy),
    (votes_off_by_one, votes_count_for_the_player_they_name),
    (votes_simulated, no_vote_is_invented),
    (performing_sign, spies_that_are_found_are_discouraged),
    (performing_sign, spies_that_are_not_found_are_encouraged),
    (beta_sign, spies_that_are_found_are_discouraged),
    (beta_sign, spies_that_are_not_found_are_encouraged),
    (spy_numbered_from_zero, players_are_paid_by_their_role_and_their_votes),
    (lambda_missing, players_are_paid_by_their_role_and_their_votes),
    (loss_sign, spies_that_are_found_are_discouraged),
    (loss_sign, a_ballot_that_names_the_spy_becomes_more_likely),
    (lambda_sign, the_civilian_that_draws_fewer_votes_than_its_fellows_is_encouraged),
    (lambda_missing, the_civilian_that_draws_fewer_votes_than_its_fellows_is_encouraged),
    (civilians_paid_in_full, performing_is_a_zero_sum_game),
    (detection_sign, a_ballot_that_names_the_spy_becomes_more_likely),
    (baselines_swapped, each_role_is_scored_against_its_own_baseline),
    (roles_swapped_in_baselines, each_role_is_scored_against_its_own_baseline),
    (one_baseline_for_all, each_role_is_scored_against_its_own_baseline),
    (normalised_in_the_game, each_role_is_scored_against_its_own_baseline),
    (baselines_forgotten, a_game_is_scored_against_the_games_before_it),
    (baselines_moved_first, a_game_is_scored_against_the_games_before_it),
    (games_in_any_order, a_game_is_scored_against_the_games_before_it),
    (scaled_game_by_game, games_of_a_batch_share_one_scale),
    (group_normalisation_absent, detectors_are_compared_within_their_own_game),
    (group_normalisation_across_games, detectors_are_compared_within_their_own_game),
    (performing_advantages_rotated, the_advantage_of_a_player_goes_to_its_own_output),
    (detection_advantages_rotated, the_advantage_of_a_ballot_goes_to_that_ballot),
    (gate_inverted, the_gate_turns_to_performing_when_detectors_are_right),
    (verdict_inverted, the_gate_turns_to_performing_when_detectors_are_right),
    (gate_inverted, the_gate_turns_to_detection_when_detectors_are_lost),
    (gate_thresholds_swapped, the_gate_turns_to_detection_when_detectors_are_lost),
    (abstentions_not_told, the_gate_turns_to_detection_when_detectors_are_lost),
    (gate_without_dwell, the_gate_stays_for_its_dwell),
    (gate_without_patience, the_patience_of_the_gate_ends),
    (both_stages_become_trajectories, only_the_stage_of_the_gate_is_trained),
    (the_other_stage_is_trained, only_the_stage_of_the_gate_is_trained),
    (kl_missing, the_kl_term_holds_the_policy_near_the_reference),
    (kl_sign, the_kl_term_holds_the_policy_near_the_reference),
    (reference_follows_the_policy, the_kl_term_holds_the_policy_near_the_reference),
    (clip_missing, the_clip_limits_what_one_batch_can_change),
    (old_probabilities_follow_the_policy, the_clip_limits_what_one_batch_can_change),
    (ballots_scored_over_the_vocabulary, what_is_learnt_is_scored_as_it_was_sampled),
    (temperature_ignored, what_is_learnt_is_scored_as_it_was_sampled),
)


@pytest.mark.parametrize(
    ("mutate", "law"), MUTATIONS, ids=[f"{mutate.__name__}: {sentence(law)}" for mutate, law in MUTATIONS]
)
def test_a_mutation_breaks_the_law_that_is_named_for_it(
    mutate: Mutate, law: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match=f"^{re.escape(sentence(law))}\\b"):
        law(sentence(law))


def test_every_law_can_be_broken() -> None:
    assert {law for _, law in MUTATIONS} == set(LAWS)
