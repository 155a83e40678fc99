"""Who is evaluated: a run's result, or any model or server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from spyrl.errors import UsageError
from spyrl.policy import Completion, Policy, Request
from spyrl.policy.models import pick_device, resolve
from spyrl.policy.opening import open_policy
from spyrl.policy.quiet import quiet_libraries
from spyrl.policy.settings import ModelSettings
from spyrl.runs.folder import RunFolder


@dataclass(frozen=True)
class Contestant:
    """A model by the name it has in tables, what ``model.path`` would be for it, and the run that made it."""

    name: str
    path: str
    server: str | None = None
    run: RunFolder | None = None


def contestant(named: str, server: str | None = None) -> Contestant:
    """Who ``named`` is: a run's folder, or what ``model.path`` takes (with ``server``, a model's name there).

    Raises `UsageError` for a run that has no result yet.
    """
    if server:
        return Contestant(named, named, server)
    run = RunFolder(Path(named).expanduser())
    if not run.config_path.is_file():
        return Contestant(named, named)
    if not (run.model / "config.json").is_file() and not (run.model / "adapter_config.json").is_file():
        raise UsageError(f"run {run.path} has no result yet ({run.model}); let it end, or evaluate a model")
    return Contestant(run.path.name, str(run.model), run=run)


def labels(sides: Sequence[Contestant]) -> list[str]:
    """What the contestants are called in tables: the last part of their names, where that tells them apart."""
    short = [Path(who.name).name for who in sides]
    return short if len(set(short)) == len(sides) else [who.name for who in sides]


def open_contestant(
    who: Contestant,
    *,
    device: str = "auto",
    batch_tokens: int = 32768,
    say: Callable[[str], None] = lambda text: None,
) -> Policy:
    """The contestant, ready to answer. Raises `UsageError` where it is not there or cannot be read."""
    if not who.server:
        quiet_libraries()
    return open_policy(ModelSettings(path=who.path, server=who.server, device=device, batch_tokens=batch_tokens), say)


class LazyPolicy:
    """A policy that is opened when it is first asked: where all its answers are kept, no model is loaded."""

    def __init__(self, name: str, opened: Callable[[], Policy]) -> None:
        """``name`` is the one that the policy has once ``opened``."""
        self.name = name
        self._open = opened

    @cached_property
    def _policy(self) -> Policy:
        return self._open()

    @property
    def context(self) -> int | None:
        """See `context_of`."""
        return context_of(self._policy)

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """See `Policy.generate`; also raises what opening does."""
        return self._policy.generate(requests)

    def count_tokens(self, text: str) -> int:
        """See `Policy.count_tokens`."""
        return self._policy.count_tokens(text)

    def prompt_tokens(self, request: Request) -> int:
        """See `Policy.prompt_tokens`."""
        return self._policy.prompt_tokens(request)


def checked_contestant(who: Contestant, *, device: str = "auto", batch_tokens: int = 32768) -> Policy:
    """The contestant, seen to be there, and loaded when it is first asked.

    Raises `UsageError` where it is not there, and `SpyRLError` where its server does not answer.
    """
    if who.server:
        return open_contestant(who)
    pick_device(device)
    resolve(who.path)
    return LazyPolicy(who.path, lambda: open_contestant(who, device=device, batch_tokens=batch_tokens))


def context_of(policy: Policy) -> int | None:
    """The most tokens that prompt and answer may have together; ``None`` where the policy does not tell."""
    length: int | None = getattr(policy, "context", None)
    return length
