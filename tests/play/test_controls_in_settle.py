"""A control changes what is earned, and nothing of what was played, counted or judged."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from spyrl.corpus import Cursor
from spyrl.game import Ballot, Deal, Document, Output, RoleBaselines, performing_rewards
from spyrl.game.settings import GameSettings
from spyrl.game.tally import Tally
from spyrl.play import (
    Detected,
    Performed,
    Played,
    Settled,
    corpus_for,
    deal_games,
    detect,
    perform,
    play_one,
    settle,
)
from spyrl.policy import Completion
from spyrl.policy.opening import open_policy
from spyrl.tasks import load_task
from tiny import tiny_config

PLAYERS = 5
DETECTORS = 8
PLAIN = GameSettings(players=PLAYERS)
CONTROLS = ("random_votes", "shuffled")


def controlled(control: str) -> GameSettings:
    return replace(PLAIN, rewards=replace(PLAIN.rewards, control=control))


def games(count: int = 12, iteration: int = 3) -> list[Played]:
    """Games with votes of all kinds, drawn once and for all."""
    dice = random.Random(0)
    found = []
    for number in range(count):
        spy = dice.randint(1, PLAYERS)
        deal = Deal(iteration, number, Document(f"d{number}", "One two"), PLAYERS, spy, "One ___", ((4, 7),))
        performing = tuple(Performed(Output(k, 1, f"{number}/{k}"), "p", Completion("", "stop")) for k in deal.numbers)
        ballots = [
            Ballot(None, "vote", dice.choice([spy, spy, *deal.numbers]))
            if dice.random() < 0.8
            else Ballot(None, "abstained" if dice.random() < 0.5 else "no_box")
            for _ in range(DETECTORS)
        ]
        detection = tuple(Detected(ballot, "q", Completion("", "choice")) for ballot in ballots)
        found.append(Played(deal, performing, detection))
    return found


def settled(control: str, seed: int = 7, iteration: int = 3, played: list[Played] | None = None) -> list[Settled]:
    return settle(played or games(iteration=iteration), controlled(control), RoleBaselines(), seed)[0]


def performing(games: list[Settled]) -> list[tuple[float, ...]]:
    return [each.game.performing_rewards for each in games]


def detection(games: list[Settled]) -> list[tuple[float, ...]]:
    return [each.game.detection_rewards for each in games]


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_changes_rewards_and_nothing_else(control: str) -> None:
    plain, changed = settled("none"), settled(control)
    for one, other in zip(plain, changed, strict=True):
        assert (one.performing, one.detection) == (other.performing, other.detection)
        for part in ("deal", "outputs", "ballots", "tally", "verdict"):
            assert getattr(one.game, part) == getattr(other.game, part)
    assert performing(plain) != performing(changed)
    assert detection(plain) != detection(changed)


@pytest.mark.parametrize("control", CONTROLS)
def test_advantages_follow_the_rewards_that_the_control_gave(control: str) -> None:
    played = games()
    scored, baselines = settle(played, controlled(control), RoleBaselines(), 7)
    first = scored[0].game
    assert first.performing_advantages == first.performing_rewards  # the baselines begin at zero
    average = 0.0
    for each in scored:
        assert each.game.deal.spy is not None
        average = 0.95 * average + 0.05 * each.game.performing_rewards[each.game.deal.spy - 1]
    assert baselines.spy.value == pytest.approx(average)
    for each in scored:
        right = sum(each.game.detection_rewards)
        if right in (0, DETECTORS):
            assert set(each.game.detection_advantages) == {0.0}
        else:
            assert all(
                (advantage > 0) == (reward == 1)
                for advantage, reward in zip(each.game.detection_advantages, each.game.detection_rewards, strict=True)
            )


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_draws_by_the_runs_seed_and_the_iteration(control: str) -> None:
    once = settled(control)
    assert settled(control) == once
    assert performing(settled(control, seed=8)) != performing(once)
    assert detection(settled(control, seed=8)) != detection(once)
    other = settled(control, iteration=4)
    assert performing(other) != performing(once)
    assert detection(other) != detection(once)


@pytest.mark.parametrize("control", ["none", *CONTROLS])
def test_the_order_in_which_games_come_makes_no_difference(control: str) -> None:
    assert settled(control, played=games()[::-1]) == settled(control)


def test_random_votes_reward_a_game_by_itself() -> None:
    """Whatever else is played beside it: a dropped game changes nothing of the others."""
    whole = settled("random_votes")
    part = settled("random_votes", played=games()[3:])
    assert performing(part) == performing(whole)[3:]
    assert detection(part) == detection(whole)[3:]


def test_random_votes_are_as_many_as_ballots_and_reward_both_stages_alike() -> None:
    for each in settled("random_votes"):
        spy = each.game.deal.spy
        assert spy is not None
        assert sum(each.game.performing_rewards) == pytest.approx(0)
        right = sum(each.game.detection_rewards)
        assert set(each.game.detection_rewards) <= {0.0, 1.0}
        # The spy is paid for as many votes as there are detectors paid for naming it.
        others = DETECTORS - right
        assert each.game.performing_rewards[spy - 1] == pytest.approx(-0.1 * (right - others / 4))
    cast = sum(each.game.tally.abstained + each.game.tally.invalid for each in settled("none"))
    assert cast > 0  # though some abstained


def test_random_votes_find_the_spy_as_often_as_chance_does() -> None:
    rewards = [reward for game in detection(settled("random_votes", played=games(200))) for reward in game]
    assert len(rewards) == 1600
    assert 240 < sum(rewards) < 400  # a fifth is 320, standard deviation 16
    plain = [reward for game in detection(settled("none", played=games(200))) for reward in game]
    assert sum(plain) > 480


def test_shuffled_rewards_are_those_that_were_earned_role_by_role() -> None:
    plain, changed = settled("none"), settled("shuffled")

    def of(role: str, games: list[Settled]) -> list[float]:
        return sorted(
            reward
            for each in games
            for player, reward in zip(each.game.deal.numbers, each.game.performing_rewards, strict=True)
            if each.game.deal.role(player) == role
        )

    assert of("spy", changed) == of("spy", plain)
    assert of("civilian", changed) == of("civilian", plain)
    pools = [sorted(reward for game in detection(each) for reward in game) for each in (plain, changed)]
    assert pools[0] == pools[1]


def test_without_a_control_rewards_are_the_papers() -> None:
    for each in settled("none"):
        tally = Tally(each.game.tally.votes, 0, 0)
        assert each.game.performing_rewards == performing_rewards(tally, each.game.deal.spy, PLAIN.rewards)
        assert each.game.detection_rewards == tuple(
            float(ballot.choice == each.game.deal.spy) for ballot in each.game.ballots
        )
    assert settle(games(), PLAIN, RoleBaselines())[0] == settled("none")


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_without_games_or_without_a_spy_is_no_error(control: str) -> None:
    assert settle([], controlled(control), RoleBaselines(), 7) == ([], RoleBaselines())
    played = [replace(each, deal=replace(each.deal, spy=None)) for each in games(3)]
    for each in settle(played, controlled(control), RoleBaselines(), 7)[0]:
        assert each.game.detection_rewards == ()
        assert len(each.game.performing_rewards) == PLAYERS


def test_a_game_played_alone_is_rewarded_as_in_training(tmp_path: Path, tiny_model: Path) -> None:
    config = tiny_config(tmp_path, tiny_model, "game.rewards.control=random_votes", "run.seed=5")
    task = load_task(config.task)
    policy = open_policy(config.model)
    documents, _ = corpus_for(config, task, policy).take(Cursor(), config.training.games)
    deals, _ = deal_games(documents, config.game, 5, 0)
    performances, _ = perform(deals, task, policy, config.game, 5)
    played, _ = detect(performances, task, policy, config.game, 5)
    trained, _ = settle(played, config.game, RoleBaselines(), 5)
    alone = [play_one(config, task, number, say=lambda text: None).game for number in range(4)]
    choices = [
        [[ballot.choice for ballot in game.ballots] for game in games]
        for games in (alone, [each.game for each in trained])
    ]
    assert choices[0] == choices[1]
    assert [game.performing_rewards for game in alone] == performing(trained)
    assert [game.detection_rewards for game in alone] == detection(trained)
