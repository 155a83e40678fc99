"""vLLM in this process, as far as there is no GPU: a package of that name with what its documentation promises."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from transformers import AutoModelForCausalLM

from spyrl.errors import SpyRLError, UsageError
from spyrl.policy import Request, Sampling
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import LoadedModel, load_model
from spyrl.policy.opening import check_vllm
from spyrl.policy.settings import ModelSettings
from spyrl.policy.vllm import VllmPolicy
from spyrl.policy.vllm_process import VllmInProcess
from vllm_sampling import go_on

APPLES = ({"role": "user", "content": "Tell me of apples."},)


@dataclass
class Told:
    logprob: float


class FakeLLM:
    """Remembers what was done, in order, and answers only awake and with the memory that it gave up taken again."""

    made: ClassVar[list[FakeLLM]] = []

    def __init__(self, **options: Any) -> None:
        if options["gpu_memory_utilization"] > 0.8:
            raise ValueError("Free memory on device is less than desired\nand so on")
        self.options = options
        self.done: list[str] = []
        self.model: Any = AutoModelForCausalLM.from_pretrained(options["model"], dtype=torch.float32).eval()
        self.there = {"weights", "kv_cache"}
        self.parameters: list[dict[str, Any]] = []
        FakeLLM.made.append(self)

    def sleep(self, level: int) -> None:
        self.done.append(f"sleep {level}")
        self.there = set()

    def wake_up(self, tags: list[str]) -> None:
        self.done.append(f"wake {' '.join(tags)}")
        self.there |= set(tags)

    def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> None:
        self.done.append(method)
        assert self.there == {"weights"}  # no room for them otherwise
        self.model.load_state_dict(dict(kwargs["weights_iterator"]), strict=False)

    def reset_prefix_cache(self) -> None:
        self.done.append("reset")

    def generate(self, prompts: list[dict[str, Any]], parameters: list[Any], use_tqdm: bool) -> list[Any]:
        assert self.there == {"weights", "kv_cache"}
        return [
            types.SimpleNamespace(outputs=self._outputs(prompt["prompt_token_ids"], vars(each)))
            for prompt, each in zip(prompts, parameters, strict=True)
        ]

    def _outputs(self, prompt: list[int], parameters: dict[str, Any]) -> list[Any]:
        assert parameters["detokenize"] is False
        self.parameters.append(parameters)
        return [
            types.SimpleNamespace(
                token_ids=each.token_ids,
                finish_reason="abort" if parameters["max_tokens"] == 5 else each.finish_reason,
                logprobs=[{token: Told(logprob) for token, logprob in step.items()} for step in each.steps],
            )
            for each in go_on(self.model, prompt, parameters)
        ]


@pytest.fixture(autouse=True)
def _fake_vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = types.ModuleType("vllm")
    vars(module).update(LLM=FakeLLM, SamplingParams=types.SimpleNamespace)
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    FakeLLM.made.clear()
    yield
    FakeLLM.made.clear()


@pytest.fixture
def loaded(tiny_model: Path) -> LoadedModel:
    return load_model(ModelSettings(path=str(tiny_model), device="cpu"), trainable=True)


def test_it_is_started_as_it_is_needed_and_sleeps(loaded: LoadedModel) -> None:
    VllmInProcess(loaded, memory=0.4, length=900)
    (llm,) = FakeLLM.made
    assert llm.done == ["sleep 2"]
    wanted = {"model": str(loaded.folder), "dtype": "float32", "max_model_len": 900, "gpu_memory_utilization": 0.4}
    wanted |= {"enable_prefix_caching": True, "enable_sleep_mode": True, "logprobs_mode": "processed_logprobs"}
    wanted |= {"distributed_executor_backend": None}
    assert {key: llm.options[key] for key in wanted} == wanted


def test_it_answers_with_the_models_weights_of_the_moment(loaded: LoadedModel) -> None:
    counted: list[int] = []
    engine = VllmInProcess(loaded, memory=0.4, length=900)
    policy, local = VllmPolicy(loaded, engine, on_tokens=counted.append), LocalPolicy(loaded)
    with torch.no_grad():
        loaded.model.get_input_embeddings().weight.mul_(1.5)
    policy.wake()
    text = Request(APPLES, (1, 2), Sampling(temperature=0.5, max_tokens=8))
    ballot = Request(APPLES, (3, 4), Sampling(), "\\boxed{", ("1", "2", "N/A"), "}")
    greedy = Request(APPLES, (5, 6), Sampling(0.0, max_tokens=8))
    written, voted, best = policy.generate([text, ballot, greedy])
    own = local.generate([text, ballot, greedy])
    policy.sleep()
    (llm,) = FakeLLM.made
    assert llm.done == ["sleep 2", "wake weights", "reload_weights", "wake kv_cache", "reset", "sleep 2"]
    assert [each["n"] for each in llm.parameters] == [2, 1, 1]
    assert [done.prompt_ids for done in written] == [own[0][0].prompt_ids] * 2
    assert [done.text for done in voted] == [done.text for done in own[1]]
    assert voted[0].probabilities == pytest.approx(own[1][0].probabilities, abs=1e-5)
    assert [done.token_ids for done in best] == [own[2][0].token_ids] * 2
    assert best[0].logprobs == pytest.approx(own[2][0].logprobs, abs=1e-4)
    assert sum(counted) == sum(len(done.token_ids) for done in written) + len(best[0].token_ids) + 1


def test_an_answer_that_was_broken_off_has_failed(loaded: LoadedModel) -> None:
    policy = VllmPolicy(loaded, VllmInProcess(loaded, memory=0.4, length=900))
    policy.wake()
    ((done,),) = policy.generate([Request(APPLES, (1,), Sampling(max_tokens=5))])
    assert (done.finish_reason, done.token_ids) == ("failed", ())
    assert "finish_reason 'abort'" in done.error


def test_too_little_memory_is_told(loaded: LoadedModel) -> None:
    with pytest.raises(SpyRLError, match=r"cannot be started: Free memory .* desired; lower model\.vllm\.memory"):
        VllmInProcess(loaded, memory=0.9, length=900)


def test_it_needs_a_gpu(tiny_model: Path) -> None:
    with pytest.raises(UsageError, match=r"needs a GPU; set model\.vllm\.server, or model\.engine=transformers"):
        check_vllm(ModelSettings(path=str(tiny_model), device="cpu", engine="vllm"), 100)
