"""The real vLLM, its CPU build in an environment of its own: ``SPYRL_VLLM_PYTHON`` is the path of its Python.

How to make that environment is told in docs/scaling-vllm.md.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from spyrl.policy import Completion, Request, Sampling
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import LoadedModel, load_model
from spyrl.policy.settings import ModelSettings
from spyrl.policy.vllm import VllmPolicy
from spyrl.policy.vllm_server import VllmServer
from spyrl.runs.folder import RunFolder
from spyrl.training.train import train
from tiny import Onlooker, make_tiny_model, tiny_config

PYTHON = os.environ.get("SPYRL_VLLM_PYTHON", "")
PATIENCE = 240  # seconds to start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="SPYRL_VLLM_PYTHON names no Python with vLLM"),
]

# The CPU build packs linear layers for oneDNN when they are loaded, and not again when they are reloaded: its answers
# would stay those of the old weights. Each of its processes imports this file.
LAUNCH = """
import runpy
from vllm import _custom_ops
_custom_ops._supports_onednn = False
if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
"""
SETTINGS = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("vllm") / "model", head_dim=64)  # smaller heads it does not take


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launch, log = model.parent / "launch.py", model.parent / "log"
    launch.write_text(LAUNCH, encoding="utf-8")
    command = [PYTHON, str(launch), "--model", str(model), "--port", str(port), "--dtype", "float32"]
    command += ["--max-model-len", "2048", "--enforce-eager", "--logprobs-mode", "processed_logprobs"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | SETTINGS
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=model.parent) as server,
    ):
        try:
            for _ in range(PATIENCE):
                if server.poll() is not None:
                    break
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(1)
            assert server.poll() is None, log.read_text(encoding="utf-8")[-3000:]
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


@pytest.fixture
def loaded(model: Path) -> LoadedModel:
    return load_model(ModelSettings(path=str(model), device="cpu"), trainable=True)


def gap(loaded: LoadedModel, done: Completion, temperature: float) -> float:
    """The largest difference between a completion's log-probabilities and the model's own."""
    ids = torch.tensor([done.prompt_ids + done.token_ids])
    with torch.no_grad():
        logits = loaded.model(ids).logits[0, len(done.prompt_ids) - 1 : -1].double()
    logits[: done.min_tokens, list(done.held_back)] = float("-inf")
    own = (logits / temperature).log_softmax(-1)[range(len(done.token_ids)), list(done.token_ids)]
    return float((own - torch.tensor(done.logprobs)).abs().max())


def test_it_answers_with_the_weights_it_was_handed(loaded: LoadedModel, url: str, tmp_path: Path) -> None:
    server = VllmServer(url, tmp_path / "weights")
    server.check(1000)
    policy, local = VllmPolicy(loaded, server), LocalPolicy(loaded)
    asked: tuple[dict[str, str], ...] = ({"role": "user", "content": "Tell me of apples."},)
    text = Request(asked, (5, 6, 7), Sampling(temperature=0.7, max_tokens=12, min_tokens=4))  # type: ignore[arg-type]
    choices = ("1", "2", "13", "14", "N/A")
    ballot = Request(asked, tuple(range(9)), Sampling(0.8), "\\boxed{", choices, "}")  # type: ignore[arg-type]
    with torch.no_grad():
        for number, weight in enumerate(loaded.model.parameters()):
            weight += 0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))
    stale, _ = policy.generate([text, ballot])
    assert max(gap(loaded, done, 0.7) for done in stale) > 1e-2
    policy.wake()
    written, voted = policy.generate([text, ballot])
    assert max(gap(loaded, done, 0.7) for done in written) < 1e-4
    assert len({done.token_ids for done in written}) == 3
    ((*own,),) = local.generate([ballot])
    assert voted[0].probabilities == pytest.approx(own[0].probabilities, abs=1e-5)
    assert [done.text for done in voted] == [done.text for done in own]
    again, _ = policy.generate([text, ballot])  # the same seeds, now with the prompt in its cache
    assert [done.token_ids for done in again] == [done.token_ids for done in written]
    greedy = Request(text.messages, (1, 2), Sampling(0.0, max_tokens=12))
    assert [done.token_ids for done in policy.generate([greedy])[0]] == [
        done.token_ids for done in local.generate([greedy])[0]
    ]


def test_a_run_trains_on_what_it_wrote(model: Path, url: str, tmp_path: Path) -> None:
    words = ["model.engine=vllm", f"model.vllm.server={url}", f"model.vllm.folder={tmp_path / 'weights'}"]
    words += ["training.iterations=3", "training.lr=1e-2", "training.importance_cap=2", "training.stages=joint"]
    config = tiny_config(tmp_path, model, *words)
    run = RunFolder(Path(config.run.folder) / "tiny")
    assert train(config, run, Onlooker(), preset="tiny").finished
    lines = list(run.read_metrics())
    assert len(lines) == 3
    assert max(line["logprob_gap/max"] for line in lines) < 1e-3
    assert all(line["games/dropped"] == 0 for line in lines)
