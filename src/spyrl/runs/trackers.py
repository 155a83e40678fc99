"""Metrics to TensorBoard, Weights & Biases or Trackio, when asked for; ``metrics.jsonl`` is always written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

from spyrl.errors import SpyRLError, UsageError
from spyrl.runs.folder import RunFolder
from spyrl.runs.settings import Tracker


class MetricsTracker(Protocol):
    """Where metrics go."""

    def log(self, metrics: Mapping[str, Any], iteration: int) -> None:
        """Take the metrics of one iteration; what is no number is passed over."""
        ...

    def close(self) -> None:
        """Finish writing."""
        ...


def check_trackers(names: Sequence[Tracker]) -> None:
    """Raise `UsageError` for a tracker whose package is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise UsageError(f"run.log: {name} needs its package: pip install 'spyrl[{name}]'")


def open_trackers(
    names: Sequence[Tracker], run: RunFolder, config: Mapping[str, Any], first: int
) -> list[MetricsTracker]:
    """Open the trackers called ``names`` for a run whose next iteration is ``first``.

    Raises `UsageError` for one that is not installed.
    """
    check_trackers(names)
    made: list[MetricsTracker] = []
    for name in names:
        made.append(_TensorBoard(run, first) if name == "tensorboard" else _WandbLike(name, run, config))
    return made


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if isinstance(value, int | float)}


class _TensorBoard:
    def __init__(self, run: RunFolder, first: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run.path / "tensorboard"), purge_step=first)

    def log(self, metrics: Mapping[str, Any], iteration: int) -> None:
        for key, value in _numbers(metrics).items():
            self._writer.add_scalar(key, value, iteration)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _WandbLike:
    """Weights & Biases, and Trackio, which has the same calls."""

    def __init__(self, name: str, run: RunFolder, config: Mapping[str, Any]) -> None:
        import importlib

        self._library = importlib.import_module(name)
        options: dict[str, Any] = {"project": "spyrl", "name": run.path.name, "config": dict(config)}
        if name == "wandb":
            options |= {"dir": str(run.path), "id": run.path.name, "resume": "allow"}
        else:
            options |= {"resume": "allow"}
        try:
            self._library.init(**options)
        except Exception as error:  # the services' own errors are many
            raise SpyRLError(f"run.log: {name} cannot be started: {error}") from error

    def log(self, metrics: Mapping[str, Any], iteration: int) -> None:
        self._library.log(_numbers(metrics), step=iteration)

    def close(self) -> None:
        self._library.finish()
