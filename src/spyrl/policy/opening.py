"""From settings to a policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spyrl.errors import UsageError
from spyrl.policy.base import Policy
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import LoadedModel, load_model, pick_device
from spyrl.policy.server import ServerPolicy
from spyrl.policy.settings import ModelSettings, OtherModel
from spyrl.policy.vllm import Engine
from spyrl.policy.vllm_process import VllmInProcess, load_vllm
from spyrl.policy.vllm_server import VllmServer, load_weight_transfer


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


def check_vllm(settings: ModelSettings, length: int) -> VllmServer | None:
    """What can be said of ``model.engine=vllm`` before a model is loaded; the server, where there is one.

    ``length`` are the most tokens of prompt and answer. Raises as `VllmServer.check` does, and `UsageError` where vLLM
    is not installed here and must be, or where there is no GPU.
    """
    server, on_gpu = settings.vllm.server, pick_device(settings.device).type == "cuda"
    if server is None:
        load_vllm()
        if not on_gpu:
            raise UsageError(
                "model.engine=vllm in this process needs a GPU; set model.vllm.server, or model.engine=transformers"
            )
        return None
    folder = settings.vllm.folder
    if folder is None:
        load_weight_transfer()
        if not on_gpu:
            raise UsageError("weights go to model.vllm.server over NCCL from a GPU; without one, set model.vllm.folder")
    found = VllmServer(server, Path(folder).expanduser() if folder else None)
    found.check(length)
    return found


def start_vllm(loaded: LoadedModel, settings: ModelSettings, length: int) -> Engine:
    """vLLM in this process, asleep."""
    return VllmInProcess(loaded, memory=settings.vllm.memory, length=length)
