"""Many processes, started by ``torchrun``: how many there are, and what they tell one another.

Every process runs the same iteration on the same games. What takes long is divided: each answers a part of a stage's
requests (`spyrl.training.dividing`) and learns from a part of the trajectories (`spyrl.training.learner`), and the
parts are put together at once, so that all know the same. The main process alone writes and shows anything.

With one process there is no group, and each function here does the plain thing.
"""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from spyrl.errors import SpyRLError, UsageError, first_line

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

LONGEST_WAIT = timedelta(hours=1)
"""After so long a wait for a process that neither answers nor ends the run is given up. One that ends is noticed at
once."""


def count() -> int:
    """How many processes there are."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def rank() -> int:
    """This process's number, from 0."""
    return int(os.environ.get("RANK") or 0) if count() > 1 else 0


def is_main() -> bool:
    """Whether this is the process that writes and shows everything."""
    return rank() == 0


@contextmanager
def together() -> Iterator[None]:
    """Hold the processes that ``torchrun`` started together; with one, do nothing.

    Raises `UsageError` where something else said that there are several, and `SpyRLError` where another one ends or
    stays silent while this one needs it.
    """
    if count() == 1:
        yield
        return
    import torch
    import torch.distributed as dist

    local = int(os.environ.get("LOCAL_RANK") or 0)
    if local < torch.cuda.device_count():
        torch.cuda.set_device(local)
    # Objects travel from main memory to main memory by gloo, gradients and shards by what suits their device.
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=LONGEST_WAIT)
    except ValueError as error:
        raise UsageError(
            f"WORLD_SIZE={count()} says that there are several processes, but: {first_line(error)}; start them with "
            "torchrun, or unset WORLD_SIZE"
        ) from None
    try:
        with _ending_with_the_others():
            yield
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or any(word in str(error) for word in ("gloo", "NCCL", "Connection")):
            raise _unanswered(error) from error
        raise
    dist.destroy_process_group()  # not after an error: it would wait for those that are gone


def check_device(name: str) -> None:
    """Raise `UsageError` where the processes of this machine cannot each have a device called ``name``."""
    if count() == 1 or name == "cpu":
        return
    if name not in ("auto", "cuda"):
        raise UsageError(f"model.device={name}: each of several processes takes a GPU of its own; leave it out, or cpu")
    import torch

    here, gpus = int(os.environ.get("LOCAL_WORLD_SIZE") or count()), torch.cuda.device_count()
    if torch.cuda.is_available() and here > gpus:
        raise UsageError(
            f"there are {here} processes on this machine and {gpus} GPU{'s' if gpus > 1 else ''}; start one process a "
            "GPU (torchrun --nproc-per-node), or set model.device=cpu"
        )


def gathered(value: T) -> list[T]:
    """The ``value`` of every process, by number. All of them must call this, and get equal lists."""
    if count() == 1:
        return [value]
    import torch.distributed as dist

    values: list[Any] = [None] * count()
    with _noticing():
        dist.all_gather_object(values, value)
    return values


def from_main(make: Callable[[], T]) -> T:
    """What ``make`` returns on the main process, which alone calls it. All processes must call this.

    Where it raises a `SpyRLError` there, all raise it.
    """
    if count() == 1:
        return make()
    import torch.distributed as dist

    told: list[Any] = [None]
    if is_main():
        try:
            told = [(make(), None)]
        except SpyRLError as error:
            told = [(None, error)]
    with _noticing():
        dist.broadcast_object_list(told, src=0)
    made, raised = told[0]
    if raised is not None:
        raise raised
    return made  # type: ignore[no-any-return]


def sum_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Add up the gradients of all processes, so that each has the whole; one that is missing is zero.

    Once a step, where `DistributedDataParallel` would do it in every backward pass, of which processes make different
    numbers here.
    """
    if count() == 1:
        return
    import torch
    import torch.distributed as dist

    with _noticing():
        under_way = []
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            under_way.append(dist.all_reduce(parameter.grad, async_op=True))
        for each in under_way:
            each.wait()


@contextmanager
def _noticing() -> Iterator[None]:
    """Say so where processes cannot be reached."""
    try:
        yield
    except RuntimeError as error:
        raise _unanswered(error) from error


@contextmanager
def _ending_with_the_others() -> Iterator[None]:
    """Say why where torchrun ends this process: it does so with SIGTERM when another one has ended."""

    def on_signal(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise _lost("torchrun was told to stop")

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _unanswered(error: RuntimeError) -> SpyRLError:
    return _lost(f"does not answer ({textwrap.shorten(first_line(error), 120)})")


def _lost(what: str) -> SpyRLError:
    return SpyRLError(
        f"another process of this run has ended or {what}. The reason is what it said itself or, where it could say "
        "nothing, its exit code, which torchrun tells. The run goes on from its newest checkpoint with --resume, on "
        "any number of processes"
    )
