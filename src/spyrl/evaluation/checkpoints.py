"""A run's checkpoints as models to be evaluated: the model it began with, and the weights that were trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spyrl.errors import UsageError
from spyrl.policy import Policy
from spyrl.policy.settings import ModelSettings
from spyrl.runs.checkpoints import load_weights, whole_checkpoints
from spyrl.runs.folder import RunFolder


def checkpoints_of(run: RunFolder) -> list[tuple[int, Path]]:
    """The run's whole checkpoints with their iterations, oldest first. Raises `UsageError` where there is none."""
    found = [(int(path.name.removeprefix("iteration-")), path) for path in whole_checkpoints(run.checkpoints)]
    if not found:
        raise UsageError(
            f"{run.checkpoints} holds no checkpoint (run.checkpoint_every and run.keep say which are kept)"
        )
    return found


def open_checkpoint(path: Path, settings: ModelSettings, say: Callable[[str], None] = lambda text: None) -> Policy:
    """The policy that training had at this checkpoint; ``settings`` are those of the run's model.

    Raises `SpyRLError` where it cannot be read or is of another model.
    """
    from spyrl.policy.local import LocalPolicy
    from spyrl.policy.models import load_model

    loaded = load_model(settings, trainable=True, say=say)
    load_weights(path, loaded.model)
    loaded.model.eval()
    return LocalPolicy(loaded, batch_tokens=settings.batch_tokens, template=dict(settings.template or {}))
