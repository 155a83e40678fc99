"""Devices: their memory, speed of multiplication and speed of memory, each with its source."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cache

import torch

from spyrl.errors import UsageError
from spyrl.policy.hardware import hardware

GB = 1e9


@dataclass(frozen=True)
class Device:
    """``memory`` in bytes, ``flops`` a second (dense, bfloat16 with sums in float32), ``bandwidth`` in bytes a second.

    ``share_of_flops`` and ``share_of_bandwidth`` are what large multiplications and reading weights get of them here,
    ``call`` the seconds that launching one layer's operations takes however small they are.
    """

    name: str
    memory: float
    flops: float
    bandwidth: float
    source: str
    share_of_flops: float = 0.4
    share_of_bandwidth: float = 0.6
    call: float = 0.8e-3

    @property
    def is_cpu(self) -> bool:
        """Whether it is this machine's processor."""
        return self.name == "cpu"


def _gpu(name: str, memory: float, teraflops: float, terabytes: float, source: str) -> Device:
    return Device(name, memory * GB, teraflops * 1e12, terabytes * 1e12, source)


# Figures "with sparsity" are halved. Shares: 0.4 is about what Llama 3 reports (38 to 43 %, arXiv 2407.21783, Table 4);
# 0.6 and 0.8 ms a layer are ours, for transformers without compilation.
GPUS = (
    _gpu("RTX 3090", 24, 71, 0.936, "NVIDIA GA102 whitepaper, table of BF16 with FP32 sums"),
    _gpu("RTX 4090", 24, 165.2, 1.008, "NVIDIA Ada whitepaper, appendix A: BF16 with FP32 sums"),
    _gpu("A10", 24, 125, 0.6, "NVIDIA A10 datasheet"),
    _gpu("L40S", 48, 362, 0.864, "NVIDIA L40S datasheet"),
    _gpu("A100-40", 40, 312, 1.555, "NVIDIA A100 datasheet"),
    _gpu("A100-80", 80, 312, 2.039, "NVIDIA A100 datasheet, SXM"),
    _gpu("H100", 80, 989.5, 3.35, "NVIDIA H100 datasheet, SXM"),
    _gpu("H200", 141, 989.5, 4.8, "NVIDIA H200 datasheet, SXM"),
    _gpu("B200", 180, 2250, 8.0, "NVIDIA HGX B200 datasheet, of 8"),
)


def device(name: str) -> Device:
    """The device called ``name``, however it is spelled (``rtx4090``, ``H100``); ``cpu`` is measured.

    Raises `UsageError` for an unknown name, with the known ones.
    """
    if _plain(name) == "cpu":
        return this_cpu()
    for each in GPUS:
        if _plain(name) in (_plain(each.name), _plain(each.name.removeprefix("RTX "))):
            return each
    raise UsageError(f"--gpu {name!r} is not in the table; there are cpu, {', '.join(each.name for each in GPUS)}")


@cache
def this_cpu() -> Device:
    """This machine's processor: memory as installed, speeds measured in float32 in under a second."""
    processor = str(hardware(torch.device("cpu"))["processor"])
    one, other = torch.rand(2, 768, 768)
    flops = 2 * 768**3 / _seconds(lambda: one @ other)
    weights, vector = torch.rand(4096, 4096), torch.rand(4096)
    bandwidth = weights.numel() * 4 / _seconds(lambda: weights @ vector)
    return Device("cpu", float(_installed()), flops, bandwidth, f"{processor}, measured", 0.7, 0.7, 0.2e-3)


def _seconds(work: object) -> float:
    assert callable(work)
    found = []
    for _ in range(8):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found)


def _installed() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum()).removesuffix("gb")
