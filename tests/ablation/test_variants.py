"""What the ablations change."""

from __future__ import annotations

import pytest

from spyrl.ablation.running import open_ablation
from spyrl.ablation.variants import VARIANTS, Variant, chosen, words_of
from spyrl.config import Config, load_config
from spyrl.errors import UsageError
from spyrl.settings import plain


def settings(name: str) -> Config:
    [variant] = chosen(name)
    return load_config("ledger", words_of(variant, load_config("ledger")))


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_every_variant_is_a_configuration_of_the_ledger(variant: Variant) -> None:
    base = load_config("ledger")
    changed = load_config("ledger", words_of(variant, base))
    assert (plain(changed) == plain(base)) == (variant.name == "full")
    assert variant.against in {each.name for each in VARIANTS}
    assert variant.what
    assert "\n" not in variant.what
    assert not set(variant.name) & set("/\\ ")


def test_names_are_unique_and_full_is_first() -> None:
    names = [variant.name for variant in VARIANTS]
    assert len(set(names)) == len(names)
    assert names[0] == "full"


def test_what_some_variants_change() -> None:
    base = load_config("ledger")
    assert settings("no-role-baselines").game.roles.baseline == "none"
    assert (settings("no-gate").game.gate.dwell, settings("no-gate").game.gate.patience) == (5, 5)
    assert not settings("no-spy").game.has_spy
    assert settings("mask-60").game.degradation.fraction == 0.6
    assert settings("players-8").game.players == 8
    assert settings("lambda-double").game.rewards.lambda_ == 2 * base.game.rewards.lambda_
    assert settings("long-runs").training.iterations == 3 * base.training.iterations
    assert settings("small-batches").training.games == base.training.games // 4
    large = settings("large-steps+no-role-baselines")
    assert large.training.lr == pytest.approx(5 * base.training.lr)
    assert large.game.roles.baseline == "none"
    assert base.training.lr_detection is not None
    assert large.training.lr_detection == pytest.approx(5 * base.training.lr_detection)
    assert settings("hidden-60+joint").training.stages == "joint"


def test_scaled_numbers_follow_the_words_and_never_fall_below_one() -> None:
    [variant] = chosen("small-batches")
    assert words_of(variant, load_config("ledger", ["training.games=2"])) == ["training.games=1"]
    [variant] = chosen("large-steps")
    base = load_config("ledger", ["training.lr=1e-6", "training.lr_detection=null"])
    assert words_of(variant, base) == ["training.lr=5e-06"]
    assert load_config("ledger", words_of(variant, base)).training.lr == pytest.approx(5e-6)


def test_variants_are_chosen_by_name_in_their_own_order() -> None:
    assert [variant.name for variant in chosen("joint, full")] == ["full", "joint"]
    assert chosen(None) == VARIANTS
    with pytest.raises(UsageError, match="no variant 'no-role-baseline'; did you mean 'no-role-baselines'"):
        chosen("full,no-role-baseline")


def test_equal_configurations_share_their_runs() -> None:
    ablation = open_ablation("ledger", [])
    shared = {variant.name: ablation.shared(variant) for variant in VARIANTS}
    assert {name: other for name, other in shared.items() if name != other} == {
        "hidden-60": "mask-60",
        "shared-optimizer+joint": "joint",
    }


def test_the_papers_figures() -> None:
    figures = {
        variant.name: (variant.paper.start, variant.paper.full, variant.paper.variant)
        for variant in VARIANTS
        if variant.paper and "+" not in variant.name
    }
    assert figures == {
        "full": (41.4, 50.4, 50.4),
        "no-role-baselines": (41.4, 50.4, 37.5),
        "joint": (42.4, 50.8, 35.3),
        "performing-only": (68.2, 79.5, 72.3),
        "detection-only": (68.2, 79.5, 69.2),
        "no-spy": (68.2, 79.5, 71.6),
        "players-3": (0.0, 9.3, 5.5),
    }
