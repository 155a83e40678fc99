"""Advantages: group-normalised (paper Eq. 9), role baselines (Eq. 6), and the moving averages below them (Eq. 11)."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spyrl.game import Ema, Role, RoleBaselines, RoleSettings, group_advantages, role_advantages, scaled

# The first two examples of Eq. 5 in test_rewards: the spy is player 1, then player 4.
FIRST = (-0.3, 0.075, -0.025, 0.175, 0.075)
FIRST_ROLES: tuple[Role, ...] = ("spy", "civilian", "civilian", "civilian", "civilian")
SECOND = (0.15, -0.15, 0.05, 0.2, -0.25)
SECOND_ROLES: tuple[Role, ...] = ("civilian", "civilian", "civilian", "spy", "civilian")


def close(expected: object) -> object:
    return pytest.approx(expected, abs=1e-12)


def test_ema_literal_and_corrected() -> None:
    # ρ = 0.9 and the values 1, 0, 1:   0.1·1 = 0.1;   0.9·0.1 = 0.09;   0.9·0.09 + 0.1 = 0.181.
    # Share of data 1 - 0.9^t: 0.1, 0.19, 0.271; so corrected 0.1/0.1, 0.09/0.19, 0.181/0.271.
    ema, literal, corrected = Ema(), [], []
    for x in (1.0, 0.0, 1.0):
        ema = ema.updated(x, 0.9)
        literal.append(ema.read("literal"))
        corrected.append(ema.read("corrected"))
    assert literal == close([0.1, 0.09, 0.181])
    assert corrected == close([1.0, 0.09 / 0.19, 0.181 / 0.271])


def test_an_ema_of_nothing_is_zero_either_way() -> None:
    assert Ema().read("literal") == 0
    assert Ema().read("corrected") == 0


def test_a_literal_ema_of_ones_reaches_nine_tenths_at_the_45th_value() -> None:
    # 1 - 0.95^t >= 0.9 needs t >= ln 0.1 / ln 0.95 = 44.89...
    ema, first = Ema(), None
    for t in range(1, 60):
        ema = ema.updated(1.0, 0.95)
        assert ema.read("corrected") == 1.0
        if first is None and ema.read("literal") >= 0.9:
            first = t
    assert first == 45


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.floats(0, 0.99))
def test_a_corrected_ema_is_the_mean_weighted_by_decay_to_the_age(values: list[float], decay: float) -> None:
    ema = Ema()
    for value in values:
        ema = ema.updated(value, decay)
    weights = [decay**age for age in reversed(range(len(values)))]
    expected = math.fsum(w * v for w, v in zip(weights, values, strict=True)) / math.fsum(weights)
    assert ema.read("corrected") == pytest.approx(expected, abs=1e-9)
    assert min(values) - 1e-9 <= ema.read("corrected") <= max(values) + 1e-9


def test_group_advantages_equation_9() -> None:
    # One of four is right: mean 0.25, variance (0.75² + 3·0.25²)/4 = 0.1875.
    deviation = math.sqrt(0.1875) + 1e-6
    assert group_advantages([1, 0, 0, 0]) == close((0.75 / deviation, *[-0.25 / deviation] * 3))
    # Vision-Zero's values 1, -0.5, -1, -1: mean -0.375, squares 1.375², 0.125², 0.625², 0.625² sum to 2.6875, /4.
    deviation = math.sqrt(0.671875) + 1e-6
    expected = (1.375 / deviation, -0.125 / deviation, -0.625 / deviation, -0.625 / deviation)
    assert group_advantages([1, -0.5, -1, -1]) == close(expected)
    # Two of four: mean 0.5 and spread 0.5, so almost exactly ±1.
    assert group_advantages([1, 1, 0, 0]) == pytest.approx((1, 1, -1, -1), abs=1e-5)


@pytest.mark.parametrize("rewards", [[0.0] * 8, [1.0] * 5, [-0.5], []])
def test_a_group_that_agrees_teaches_nothing(rewards: list[float]) -> None:
    assert group_advantages(rewards) == (0.0,) * len(rewards)


REWARDS = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0, 3.5]), min_size=2, max_size=16)


@given(REWARDS, st.floats(-100, 100), st.floats(0.1, 100), st.randoms(use_true_random=False))
def test_group_advantages_have_mean_zero_and_ignore_shift_and_nearly_scale(
    rewards: list[float], shift: float, scale: float, random: Random
) -> None:
    advantages = group_advantages(rewards)
    assert math.fsum(advantages) == pytest.approx(0, abs=1e-9)
    assert group_advantages([reward + shift for reward in rewards]) == pytest.approx(advantages, abs=1e-6)
    assert group_advantages([reward * scale for reward in rewards]) == pytest.approx(advantages, rel=1e-4, abs=1e-6)
    order = random.sample(range(len(rewards)), len(rewards))
    shuffled = group_advantages([rewards[i] for i in order])
    assert shuffled == pytest.approx([advantages[i] for i in order], abs=1e-12)


@given(REWARDS)
def test_group_advantages_have_spread_one(rewards: list[float]) -> None:
    assume(len(set(rewards)) > 1)
    advantages = group_advantages(rewards)
    assert math.fsum(a * a for a in advantages) / len(advantages) == pytest.approx(1, abs=1e-4)
    assert all(
        (a > b) == (x > y)
        for x, a in zip(rewards, advantages, strict=True)
        for y, b in zip(rewards, advantages, strict=True)
    )


def test_role_advantages_equation_6_with_literal_baselines() -> None:
    settings = RoleSettings(decay=0.95, ema="literal")
    # Before the first game both baselines are 0: the advantages are the rewards.
    advantages, baselines = role_advantages(FIRST, FIRST_ROLES, RoleBaselines(), settings)
    assert advantages == FIRST
    # b_spy = 0.05·(-0.3) = -0.015; the civilians' mean is (0.075-0.025+0.175+0.075)/4 = 0.075: b_civ = 0.00375.
    assert baselines.spy.read("literal") == close(-0.015)
    assert baselines.civilian.read("literal") == close(0.00375)
    # The second game is scored against those: spy 0.2+0.015; civilians minus 0.00375.
    advantages, baselines = role_advantages(SECOND, SECOND_ROLES, baselines, settings)
    assert advantages == close((0.14625, -0.15375, 0.04625, 0.215, -0.25375))
    # b_spy = 0.95·(-0.015) + 0.05·0.2 = -0.00425;  mean (0.15-0.15+0.05-0.25)/4 = -0.05,
    # b_civ = 0.95·0.00375 - 0.05·0.05 = 0.0010625.
    assert baselines.spy.read("literal") == close(-0.00425)
    assert baselines.civilian.read("literal") == close(0.0010625)


def test_role_advantages_equation_6_with_corrected_baselines() -> None:
    settings = RoleSettings(decay=0.95, ema="corrected")
    advantages, baselines = role_advantages(FIRST, FIRST_ROLES, RoleBaselines(), settings)
    assert advantages == FIRST  # nothing is known before the first game
    # One game in, the corrected baselines are that game's means: -0.3 and 0.075.
    advantages, baselines = role_advantages(SECOND, SECOND_ROLES, baselines, settings)
    assert advantages == close((0.075, -0.225, -0.025, 0.5, -0.325))
    # Then -0.00425 and 0.0010625 over 1 - 0.95² = 0.0975.
    assert baselines.spy.read("corrected") == close(-0.00425 / 0.0975)
    assert baselines.civilian.read("corrected") == close(0.0010625 / 0.0975)


def test_the_order_of_games_matters_to_the_baselines() -> None:
    settings = RoleSettings()
    _, baselines = role_advantages(SECOND, SECOND_ROLES, RoleBaselines(), settings)
    advantages, baselines = role_advantages(FIRST, FIRST_ROLES, baselines, settings)
    # The other way round: b_spy = 0.01, so -0.3-0.01; then 0.95·0.01 - 0.05·0.3 = -0.0055, not -0.00425.
    # b_civ = -0.0025: 0.075+0.0025, ...
    assert advantages == close((-0.31, 0.0775, -0.0225, 0.1775, 0.0775))
    assert baselines.spy.read("literal") == close(-0.0055)


@pytest.mark.parametrize(
    ("decay", "second_advantage", "baseline"),
    [
        (0.0, 2.0, 1.0),  # only the last game counts: 1-(-1), then b = 1
        (0.5, 1.5, 0.25),  # b = -0.5, so 1.5; then -0.25 + 0.5
        (0.75, 1.25, 0.0625),  # b = -0.25, so 1.25; then -0.1875 + 0.25
    ],
)
def test_other_decays(decay: float, second_advantage: float, baseline: float) -> None:
    settings = RoleSettings(decay=decay)
    roles: tuple[Role, ...] = ("civilian", "spy", "civilian")
    _, baselines = role_advantages((0.5, -1, 0.5), roles, RoleBaselines(), settings)
    advantages, baselines = role_advantages((-0.5, 1, -0.5), roles, baselines, settings)
    assert advantages[1] == close(second_advantage)
    assert baselines.spy.read("literal") == close(baseline)


def test_without_a_spy_only_the_civilians_baseline_moves() -> None:
    start = RoleBaselines(spy=Ema(0.3, 0.5))
    advantages, after = role_advantages((0.4, 0.2, 0.0), ("civilian",) * 3, start, RoleSettings(decay=0.5))
    assert advantages == (0.4, 0.2, 0.0)
    assert after.spy == start.spy
    assert after.civilian == Ema(close(0.1), 0.5)  # type: ignore[arg-type]


def test_the_group_baseline_normalises_within_the_game_and_keeps_no_memory() -> None:
    start = RoleBaselines(spy=Ema(5.0, 1.0), civilian=Ema(-5.0, 1.0))
    advantages, after = role_advantages(FIRST, FIRST_ROLES, start, RoleSettings(baseline="group"))
    assert advantages == group_advantages(FIRST)
    assert after == start


def test_without_a_baseline_rewards_are_advantages() -> None:
    start = RoleBaselines(spy=Ema(5.0, 1.0), civilian=Ema(-5.0, 1.0))
    assert role_advantages(FIRST, FIRST_ROLES, start, RoleSettings(baseline="none")) == (FIRST, start)


@given(st.integers(3, 8), st.data())
def test_role_advantages_are_rewards_less_one_number_a_role(n: int, data: st.DataObject) -> None:
    values = st.floats(-2, 2)
    baselines = RoleBaselines(Ema(data.draw(values), 0.5), Ema(data.draw(values), 0.5))
    rewards = data.draw(st.lists(values, min_size=n, max_size=n))
    spy = data.draw(st.integers(0, n - 1))
    roles: list[Role] = ["spy" if i == spy else "civilian" for i in range(n)]
    advantages, _ = role_advantages(rewards, roles, baselines, RoleSettings())
    for reward, role, advantage in zip(rewards, roles, advantages, strict=True):
        assert advantage == pytest.approx(reward - baselines.of(role).value)


def test_scaling_by_the_batch_divides_by_the_root_mean_square_of_all_games() -> None:
    # (3² + 4² + 0²)/3 = 25/3 over both games together.
    spread = math.sqrt(25 / 3) + 1e-6
    first, second = scaled([(3.0, -4.0), (0.0,)], RoleSettings(scale="batch"))
    assert first == close((3 / spread, -4 / spread))
    assert second == (0.0,)


def test_scaling_can_be_left_out_and_survives_an_empty_batch() -> None:
    assert scaled([(3.0, -4.0), (0.0,)], RoleSettings()) == [(3.0, -4.0), (0.0,)]
    assert scaled([], RoleSettings(scale="batch")) == []
    assert scaled([(0.0, 0.0)], RoleSettings(scale="batch")) == [(0.0, 0.0)]
