"""The ablations: what each changes in the configuration, and what the paper reports for it.

The paper is arXiv 2607.23802; its figures are single runs on other tasks and models, so only their order is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from spyrl.config import Config
from spyrl.errors import UsageError
from spyrl.settings import nearest, plain

FULL = "full"


@dataclass(frozen=True)
class Paper:
    """Published figures: of the untrained model, of the full method and of the variant, in the source's unit."""

    source: str
    start: float
    full: float
    variant: float


@dataclass(frozen=True)
class Variant:
    """One ablation: ``overrides`` as ``key=value`` words, and numbers ``scaled`` from what the preset has."""

    name: str
    what: str
    overrides: tuple[str, ...] = ()
    scaled: tuple[tuple[str, float], ...] = ()
    """Keys and the factors that the preset's numbers are multiplied by; whole numbers stay whole and at least 1."""
    group: str = ""
    """What it is drawn and listed with."""
    against: str = FULL
    """The variant that it is compared with."""
    paper: Paper | None = None


_TABLE_8 = "Table 8, MATH-500"
_TABLE_9 = "Table 9, mean of 7 benchmarks"
_TABLE_16 = "Table 16, mean of 5 benchmarks"
_FIGURE_5 = "Fig. 5, mean gain"

_NO_BASELINES = Paper(_TABLE_9, start=41.4, full=50.4, variant=37.5)
# Table 16 gives no full method; 50.8 is the mean of the model card's figures on the same five benchmarks.
_JOINT = Paper(_TABLE_16, start=42.4, full=50.8, variant=35.3)


def _regime(
    name: str, what: str, overrides: tuple[str, ...] = (), scaled: tuple[tuple[str, float], ...] = ()
) -> tuple[Variant, ...]:
    """Three variants under harder conditions; the last two are compared with the first."""
    alone = Variant(name, what, overrides, scaled, group=f"regime: {name}")
    without = (*overrides, "game.roles.baseline=none")
    joint = (*overrides, "training.stages=joint", "training.optimizer=shared")
    return (
        alone,
        replace(
            alone,
            name=f"{name}+no-role-baselines",
            what=f"{what}; no role baselines",
            overrides=without,
            against=name,
            paper=_NO_BASELINES,
        ),
        replace(
            alone,
            name=f"{name}+joint",
            what=f"{what}; both stages at once",
            overrides=joint,
            against=name,
            paper=_JOINT,
        ),
    )


def _group(group: str, *variants: Variant) -> tuple[Variant, ...]:
    return tuple(replace(variant, group=group) for variant in variants)


VARIANTS: tuple[Variant, ...] = (
    Variant(FULL, "the preset as it is", paper=Paper(_TABLE_9, start=41.4, full=50.4, variant=50.4)),
    *_group(
        "advantages",
        Variant(
            "no-role-baselines",
            "performing rewards are advantages as they are",
            ("game.roles.baseline=none",),
            paper=_NO_BASELINES,
        ),
        Variant("group-baselines", "performing advantages normalised within a game", ("game.roles.baseline=group",)),
        Variant("alpha-0.9", "role baselines of a shorter memory", ("game.roles.decay=0.9",)),
        Variant("alpha-0.99", "role baselines of a longer memory", ("game.roles.decay=0.99",)),
        Variant(
            "literal-ema",
            "baselines and gate averages start at 0, uncorrected",
            ("game.roles.ema=literal", "game.gate.ema=literal"),
        ),
    ),
    *_group(
        "stages",
        Variant("no-gate", "a fixed cycle of 5 iterations a stage", ("game.gate.patience=5", "game.gate.dwell=5")),
        Variant(
            "joint",
            "both stages at once, with the one optimizer this takes",
            ("training.stages=joint", "training.optimizer=shared"),
            paper=_JOINT,
        ),
        Variant(
            "performing-only",
            "detectors stay untrained",
            ("training.stages=performing",),
            paper=Paper(_TABLE_8, start=68.2, full=79.5, variant=72.3),
        ),
        Variant(
            "detection-only",
            "players stay untrained",
            ("training.stages=detection",),
            paper=Paper(_TABLE_8, start=68.2, full=79.5, variant=69.2),
        ),
    ),
    *_group(
        "controls",
        Variant(
            "no-spy",
            "nothing is hidden, votes elect",
            ("game.degradation.kind=nothing", "training.stages=performing"),
            paper=Paper(_TABLE_8, start=68.2, full=79.5, variant=71.6),
        ),
        Variant("random-votes", "rewards from ballots drawn at random", ("game.rewards.control=random_votes",)),
        Variant("shuffled-rewards", "rewards dealt out anew among a role", ("game.rewards.control=shuffled",)),
    ),
    *_group(
        "detectors",
        Variant(
            "own-view",
            "civilians vote, twice each, from their own copies",
            ("game.detectors.view=own", "game.detectors.count=2"),
        ),
        Variant(
            "spy-votes",
            "all players vote, the spy too, from their own copies",
            ("game.detectors.view=own", "game.detectors.count=2", "game.detectors.spy_votes=true"),
        ),
    ),
    *_group(
        "players",
        Variant(
            "players-3",
            "3 players a game",
            ("game.players=3",),
            paper=Paper(_FIGURE_5, start=0.0, full=9.3, variant=5.5),
        ),
        *(Variant(f"players-{count}", f"{count} players a game", (f"game.players={count}",)) for count in (4, 6, 8)),
    ),
    *_group(
        "how much is hidden",
        *(
            Variant(
                f"mask-{share}", f"{share} % of the spy's copy is hidden", (f"game.degradation.fraction=0.{share}",)
            )
            for share in (10, 20, 30, 50, 60)
        ),
    ),
    *_group(
        "what is hidden",
        Variant("drop-lines", "sentences are left out", ("game.degradation.kind=drop_sentences",)),
        Variant("shuffle-lines", "sentences are shuffled", ("game.degradation.kind=shuffle_sentences",)),
        Variant("hide-all", "the spy sees nothing of the document", ("game.degradation.kind=everything",)),
    ),
    *_group(
        "rewards",
        Variant("beta-0", "no reward for the spy's votes", ("game.rewards.beta=0",)),
        Variant("lambda-0", "no reward among the civilians", ("game.rewards.lambda=0",)),
        Variant("beta-double", "twice the weight of the spy's votes", scaled=(("game.rewards.beta", 2),)),
        Variant("lambda-double", "twice the weight among the civilians", scaled=(("game.rewards.lambda", 2),)),
    ),
    *_regime("hidden-60", "60 % is hidden", ("game.degradation.fraction=0.6",)),
    *_regime("large-steps", "learning rates times 5", scaled=(("training.lr", 5), ("training.lr_detection", 5))),
    *_regime("small-batches", "a quarter of the games", scaled=(("training.games", 1 / 4),)),
    *_regime("shared-optimizer", "one optimizer for both stages", ("training.optimizer=shared",)),
    *_regime("long-runs", "three times the iterations", scaled=(("training.iterations", 3),)),
)
"""Every ablation, ``full`` first."""


def chosen(names: str | None) -> tuple[Variant, ...]:
    """The variants in a list of names with commas, in the order of `VARIANTS`; all for ``None``.

    Raises `UsageError` for an unknown name.
    """
    if names is None:
        return VARIANTS
    wanted = {name.strip() for name in names.split(",")}
    known = [variant.name for variant in VARIANTS]
    for name in sorted(wanted - set(known)):
        raise UsageError(f"there is no variant {name!r}; {nearest(name, known)} (all of them: spyrl ablate --list)")
    return tuple(variant for variant in VARIANTS if variant.name in wanted)


def words_of(variant: Variant, base: Config) -> list[str]:
    """The ``key=value`` words that make the variant of the configuration ``base``."""
    words = list(variant.overrides)
    for key, factor in variant.scaled:
        value: Any = reduce(lambda at, part: at[part], key.split("."), plain(base))
        if value is not None:  # a rate that follows another one follows that one's factor
            words.append(f"{key}={max(round(value * factor), 1) if isinstance(value, int) else value * factor:.12g}")
    return words
