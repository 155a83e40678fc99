"""What machine a model runs on, for the record."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch


def hardware(device: torch.device) -> dict[str, str | int]:
    """The processor with the cores this process may use, and on a GPU its name and how many are used (one)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found: dict[str, str | int] = {"processor": _processor(), "cores": cores}
    if device.type == "cuda":
        found |= {"gpu": torch.cuda.get_device_name(device), "gpus": 1}
    elif device.type != "cpu":
        found |= {"gpu": device.type, "gpus": 1}
    return found


def _processor() -> str:
    try:  # Linux keeps the name here only
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
