"""The whole of it, small: by the game alone the ledger's model gets better, and with a sign error it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spyrl.config import load_config
from spyrl.game.rewards import RewardSettings
from spyrl.play import stages
from spyrl.policy.models import resolve
from spyrl.runs.folder import RunFolder
from spyrl.training.train import train
from tiny import Onlooker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not resolve("bundled:ledger-0").is_dir(),
        reason="bundled:ledger-0 does not come with this version of the package",
    ),
]


def quality(folder: Path) -> tuple[float, float]:
    """Quality of the likeliest outputs for held-out documents, before and after a few iterations of performing."""
    words = (
        "model.path=bundled:ledger-0",
        "training.stages=performing",
        "training.iterations=14",
        "training.games=64",
        "training.evaluation.every=14",
        "training.evaluation.documents=100",
        f"run.folder={folder}",
        "run.name=short",
    )
    run = RunFolder(folder / "short")
    train(load_config("ledger", words), run, Onlooker(), preset="ledger")
    metrics = run.read_metrics()
    return metrics[0]["start/quality/greedy"], metrics[-1]["quality/greedy"]


def test_playing_makes_outputs_better(tmp_path: Path) -> None:
    before, after = quality(tmp_path)
    assert after > before + 0.2, "nothing was learnt"


def test_with_a_sign_error_in_the_rewards_it_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = stages.performing_rewards

    def wrong(tally: Any, spy: int | None, settings: RewardSettings) -> tuple[float, ...]:
        return real(tally, spy, replace(settings, beta=-settings.beta, lambda_=-settings.lambda_))

    monkeypatch.setattr(stages, "performing_rewards", wrong)
    before, after = quality(tmp_path)
    assert after < before + 0.1, "outputs got better on rewards with the wrong sign"
