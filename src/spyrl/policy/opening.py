"""From settings to a policy."""

from __future__ import annotations

from collections.abc import Callable

from spyrl.policy.base import Policy
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import load_model
from spyrl.policy.server import ServerPolicy
from spyrl.policy.settings import ModelSettings, OtherModel


def open_policy(settings: ModelSettings, say: Callable[[str], None] = lambda text: None) -> Policy:
    """A model to play with, not to train: in this process, or behind a server that is asked whether it is there."""
    if settings.server:
        policy = ServerPolicy(settings.path, settings.server)
        policy.check()
        return policy
    loaded = load_model(settings, trainable=False, say=say)
    return LocalPolicy(loaded, batch_tokens=settings.batch_tokens, template=dict(settings.template or {}))


def open_other(
    other: OtherModel | None, settings: ModelSettings, say: Callable[[str], None] = lambda text: None
) -> Policy | None:
    """The fixed model that takes a part instead of the learner, if there is one."""
    if other is None:
        return None
    return open_policy(ModelSettings(path=other.path, server=other.server, device=settings.device), say)
