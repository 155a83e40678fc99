"""A run's checkpoints as models to be evaluated: the model it began with, and the weights that were trained."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from spyrl.errors import UsageError, first_line
from spyrl.policy import Policy
from spyrl.policy.settings import ModelSettings
from spyrl.runs.folder import RunFolder


def checkpoints_of(run: RunFolder) -> list[tuple[int, Path]]:
    """The run's whole checkpoints with their iterations, oldest first. Raises `UsageError` where there is none."""
    found = [
        (int(match[1]), path)
        for path in sorted(run.checkpoints.glob("iteration-*"))
        if (match := re.fullmatch(r"iteration-(\d+)", path.name)) and (path / "state.json").is_file()
    ]
    if not found:
        raise UsageError(
            f"{run.checkpoints} holds no checkpoint (run.checkpoint_every and run.keep say which are kept)"
        )
    return found


def open_checkpoint(path: Path, settings: ModelSettings, say: Callable[[str], None] = lambda text: None) -> Policy:
    """The policy that training had at this checkpoint; ``settings`` are those of the run's model.

    Raises `UsageError` where it cannot be read or is of another model.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from spyrl.policy.local import LocalPolicy
    from spyrl.policy.models import load_model

    loaded = load_model(settings, trainable=True, say=say)
    own = {name: value for name, value in loaded.model.named_parameters() if value.requires_grad}
    try:
        saved = load_file(path / "weights.safetensors")
    except (OSError, SafetensorError) as error:
        raise UsageError(f"checkpoint {path} cannot be read: {first_line(error)}") from None
    if {name: value.shape for name, value in saved.items()} != {name: value.shape for name, value in own.items()}:
        raise UsageError(f"checkpoint {path} is of another model than {settings.path}")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(saved[name])
    loaded.model.eval()
    return LocalPolicy(loaded, batch_tokens=settings.batch_tokens, template=dict(settings.template or {}))
