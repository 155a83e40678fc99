"""Shared fixtures."""

from __future__ import annotations

import os
from pathlib import Path

# As the command line does: read when torch starts.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:  # one of several processes: a core each
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from hypothesis import settings

from tiny import make_tiny_model

settings.register_profile("default", deadline=None, max_examples=60)
settings.load_profile("default")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a small random Qwen3 with a byte tokenizer and a chat template."""
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny-qwen3")
