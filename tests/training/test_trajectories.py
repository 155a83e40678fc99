"""From settled games to what the update is computed from."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from spyrl.config import Config
from spyrl.corpus import Cursor
from spyrl.game import Ema, RoleBaselines
from spyrl.play import Played, Settled, corpus_for, deal_games, detect, perform, settle
from spyrl.policy import Completion
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import load_model
from spyrl.tasks import load_task
from spyrl.training.trajectory import trajectories
from tiny import tiny_config

FORMS = {
    "parallel, full view": (),
    "two rounds, full view": ("game.rounds=2",),
    "sequential, two rounds, own view": ("game.rounds=2", "game.turns=sequential", "game.detectors.view=own"),
    "own view, reasoned, spy votes": (
        "game.detectors.view=own",
        "game.detectors.answer=reasoned",
        "game.detectors.spy_votes=true",
    ),
}


def play(config: Config) -> tuple[list[Played], Config]:
    policy = LocalPolicy(load_model(config.model, trainable=False))
    task = load_task(config.task)
    documents, _ = corpus_for(config, task, policy).take(Cursor(), 4)
    deals, _ = deal_games(documents, config.game, 0, 0)
    performances, _ = perform(deals, task, policy, config.game, 0)
    played, dropped = detect(performances, task, policy, config.game, 0)
    assert (len(played), dropped) == (4, [])
    return played, config


@pytest.fixture(params=FORMS)
def played(request: pytest.FixtureRequest, tmp_path: Path, tiny_model: Path) -> tuple[list[Played], Config]:
    return play(tiny_config(tmp_path, tiny_model, "game.temperature=0.9", *FORMS[request.param]))


def marked(settled: Settled) -> Settled:
    """The same game with advantages that name whose they are: 100·game + player, and -100·game - ballot."""
    game = settled.game
    number = 100 * (game.deal.game + 1)
    performing = tuple(float(number + player) for player in game.deal.numbers)
    detection = tuple(float(-number - ballot) for ballot in range(len(game.ballots)))
    game = dataclasses.replace(game, performing_advantages=performing, detection_advantages=detection)
    return dataclasses.replace(settled, game=game)


def test_every_turn_gets_its_own_advantage(played: tuple[list[Played], Config]):
    games, config = played
    settled = [marked(each) for each in settle(games, config.game, RoleBaselines())[0]]
    found = trajectories(settled, ("performing",))
    assert len(found) == 4 * config.game.players * config.game.rounds
    expected = []
    for each in settled:
        for turn in each.performing:
            completion, deal = turn.completion, each.game.deal
            advantage = 100.0 * (deal.game + 1) + turn.output.player
            role = "spy" if turn.output.player == deal.spy else "civilian"
            expected.append((deal.game, role, completion.prompt_ids, completion.token_ids, advantage))
    assert [(t.game, t.role, t.prompt_ids, t.token_ids, t.advantage) for t in found] == expected
    assert {trajectory.stage for trajectory in found} == {"performing"}
    assert all(trajectory.allowed == () for trajectory in found)
    # Each player's turns of all rounds, and nobody else's, share its advantage.
    assert len({trajectory.advantage for trajectory in found}) == 4 * config.game.players
    assert sum(trajectory.role == "spy" for trajectory in found) == 4 * config.game.rounds


def test_every_ballot_gets_its_own_advantage(played: tuple[list[Played], Config]):
    games, config = played
    settled = [marked(each) for each in settle(games, config.game, RoleBaselines())[0]]
    found = trajectories(settled, ("detection",))
    expected = [
        (
            each.game.deal.game,
            turn.completion.prompt_ids,
            turn.completion.token_ids,
            turn.completion.allowed,
            -100.0 * (each.game.deal.game + 1) - number,
        )
        for each in settled
        for number, turn in enumerate(each.detection)
    ]
    assert [(t.game, t.prompt_ids, t.token_ids, t.allowed, t.advantage) for t in found] == expected
    assert {(trajectory.stage, trajectory.role) for trajectory in found} == {("detection", "detector")}
    direct = config.game.detectors.answer == "direct"
    assert all(bool(trajectory.allowed) == direct for trajectory in found)
    for trajectory in found:
        assert len(trajectory.sampled_logprobs) == len(trajectory.token_ids)


def test_real_advantages_reach_the_player_that_earned_them(played: tuple[list[Played], Config]):
    """The text of a trajectory is the output whose votes made its advantage."""
    games, config = played
    settled, _ = settle(games, config.game, RoleBaselines())
    by_tokens = {(t.game, t.prompt_ids, t.token_ids): t.advantage for t in trajectories(settled, ("performing",))}
    for each in settled:
        for turn in each.performing:
            key = (each.game.deal.game, turn.completion.prompt_ids, turn.completion.token_ids)
            assert by_tokens[key] == each.game.performing_advantages[turn.output.player - 1]
            assert turn.output.text == (turn.completion.text.strip() or None)


def test_only_the_trained_stages_are_taken(played: tuple[list[Played], Config]):
    games, config = played
    settled, _ = settle(games, config.game, RoleBaselines())
    performing, detection = trajectories(settled, ("performing",)), trajectories(settled, ("detection",))
    both = trajectories(settled, ("detection", "performing"))
    assert sorted(map(repr, both)) == sorted(map(repr, performing + detection))
    assert [trajectory.game for trajectory in both] == sorted(trajectory.game for trajectory in both)
    assert trajectories(settled, ()) == []
    assert trajectories([], ("detection", "performing")) == []


def test_advantages_do_not_depend_on_the_order_of_games(played: tuple[list[Played], Config]):
    games, config = played
    began = RoleBaselines(Ema(0.2, 0.4), Ema(-0.1, 0.4))
    settled, after = settle(games, config.game, began)
    for seed in range(3):
        shuffled = random.Random(seed).sample(games, len(games))
        again, after_again = settle(shuffled, config.game, began)
        assert again == settled
        assert after_again == after
    # They do depend on the games before: each is scored against the baseline it met.
    assert settle(games[1:], config.game, began)[0] != settled[1:]


def test_a_completion_without_tokens_is_no_trajectory(tmp_path: Path, tiny_model: Path):
    games, config = play(tiny_config(tmp_path, tiny_model))
    (first, *rest), _ = settle(games, config.game, RoleBaselines())
    turns = list(first.performing)
    turns[1] = dataclasses.replace(turns[1], completion=Completion("a server tells no tokens", "stop"))
    settled = [marked(dataclasses.replace(first, performing=tuple(turns))), *map(marked, rest)]
    advantages = [trajectory.advantage for trajectory in trajectories(settled, ("performing",))]
    assert advantages[:3] == [101.0, 103.0, 201.0]
