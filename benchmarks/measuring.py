"""How things are measured: pairs in turn in one process, medians with their spread, memory in a process of its own."""

from __future__ import annotations

import gc
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from spyrl.errors import SpyRLError
from spyrl.policy.quiet import quiet_libraries

Row = dict[str, str | int | float]


def machine() -> dict[str, str | int]:
    """The machine and the versions that a figure depends on."""
    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            processor = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    found: dict[str, str | int] = {"processor": processor, "cores": len(os.sched_getaffinity(0))}
    found |= {name: metadata.version(name) for name in ("torch", "transformers")}
    return found | {"threads": torch.get_num_threads()}


def in_turn(ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of both, run in turn after one warm-up each, so that a slower machine slows both."""
    times: tuple[list[float], list[float]] = ([], [])
    for work in (ours, theirs):
        work()
    for _ in range(repeats):
        for work, spent in zip((ours, theirs), times, strict=True):
            gc.collect()
            begun = time.perf_counter()
            work()
            spent.append(time.perf_counter() - begun)
    return times


def matrix_speed(rows: int = 1024) -> float:
    """FLOP/s of this machine in float32 multiplications of the update's shapes: the fastest of many."""
    inputs, weights = torch.randn(rows, 576), torch.randn(1536, 576)
    best = float("inf")
    for _ in range(50):
        begun = time.perf_counter()
        torch.nn.functional.linear(inputs, weights)
        best = min(best, time.perf_counter() - begun)
    return 2 * rows * 576 * 1536 / best


def speedup(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Median seconds of both, the median of the pairs' ratios, and the smallest and largest ratio."""
    ratios = [slow / fast for fast, slow in zip(ours, theirs, strict=True)]
    return {
        "seconds": statistics.median(ours),
        "against_seconds": statistics.median(theirs),
        "speedup": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
    }


def peak_above(prepare: Callable[..., Callable[[], Any]], *arguments: Any) -> float:
    """MB by which a fresh process's peak memory rises above what it holds when ``prepare(*arguments)`` has returned."""
    return float(apart(_peak, prepare, arguments))


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """What ``work(*arguments)`` returns in a process of its own, whose memory goes back when it ends."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sending, work, arguments))
    process.start()
    sending.close()
    try:
        return receiving.recv()
    except EOFError:
        process.join()
        raise SpyRLError(f"a measuring process died (exit code {process.exitcode}): out of memory?") from None
    finally:
        process.join()


def _send(sending: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    quiet_libraries()
    sending.send(work(*arguments))


def _peak(prepare: Callable[..., Callable[[], Any]], arguments: tuple[Any, ...]) -> float:
    work = prepare(*arguments)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew
    before = _memory("VmRSS")
    work()
    return peak_memory() - before


def peak_memory() -> float:
    """Peak memory of this process, MB. (What getrusage says holds that of the process which started it, too.)"""
    return _memory("VmHWM")


def _memory(key: str) -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{key}:")) * 1024 / 1e6
