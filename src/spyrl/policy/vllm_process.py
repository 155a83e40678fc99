"""vLLM in this process, on the GPU of the model that is trained: it sleeps while the model learns.

Written for vLLM 0.32, by its documentation on sleep mode. Each of several processes has a vLLM of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from spyrl.errors import SpyRLError, UsageError, first_line
from spyrl.policy.models import LoadedModel
from spyrl.policy.vllm import MOST_CHOICES, Ask, Written, process_number, unfinished
from spyrl.policy.weights import Weights


class VllmInProcess:
    """An `Engine` for the ``loaded`` model. Asleep until it is woken, it holds neither weights nor a KV cache.

    ``memory`` is its share of the GPU's memory while it is awake, and ``length`` the most tokens of prompt and answer.
    """

    def __init__(self, loaded: LoadedModel, *, memory: float, length: int) -> None:
        vllm = load_vllm()
        try:
            self._llm = vllm.LLM(
                model=str(loaded.folder),
                dtype=str(loaded.dtype).removeprefix("torch."),
                max_model_len=length,
                gpu_memory_utilization=memory,
                enable_prefix_caching=True,
                enable_sleep_mode=True,
                logprobs_mode="processed_logprobs",  # of the distribution that is sampled from
                max_logprobs=MOST_CHOICES,
                generation_config="vllm",  # nothing of the model's folder but what is asked for
                seed=0,
                distributed_executor_backend=None if process_number() is None else "external_launcher",
            )
        except Exception as error:  # it raises what it likes
            raise SpyRLError(
                f"vLLM cannot be started: {first_line(error)}; lower model.vllm.memory, or set "
                "model.engine=transformers"
            ) from error
        self._parameters = vllm.SamplingParams
        self.sleep()

    def write(self, asked: Sequence[Ask], on_tokens: Callable[[int], None]) -> list[list[Written]]:
        """See `Engine.write`."""
        prompts = [{"prompt_token_ids": list(ask.prompt)} for ask in asked]
        parameters = [self._parameters(**ask.parameters, detokenize=False) for ask in asked]
        answers = self._llm.generate(prompts, parameters, use_tqdm=False)
        found = [[_written(each, ask) for each in answer.outputs] for answer, ask in zip(answers, asked, strict=True)]
        on_tokens(sum(len(each.token_ids) for row in found for each in row))
        return found

    def wake(self, weights: Weights) -> None:
        """See `Engine.wake`."""
        torch.cuda.empty_cache()  # what the update has left is vLLM's now
        self._llm.wake_up(tags=["weights"])
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights)})
        self._llm.wake_up(tags=["kv_cache"])
        self._llm.reset_prefix_cache()

    def sleep(self) -> None:
        """See `Engine.sleep`. Weights are given up, not kept: the next ones are others."""
        self._llm.sleep(level=2)


def load_vllm() -> Any:
    """The vllm package, its engine in this very process. Raises `UsageError` where it is not installed."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # read when it is imported
    try:
        import vllm
    except ImportError:
        raise UsageError("model.engine=vllm needs vLLM: pip install 'spyrl[vllm]'") from None
    return vllm


def _written(output: Any, ask: Ask) -> Written:
    reason = output.finish_reason
    if reason not in ("stop", "length"):
        return unfinished(reason)
    steps = [{token: told.logprob for token, told in step.items()} for step in output.logprobs]
    logprobs = tuple(step[token] for step, token in zip(steps, output.token_ids, strict=True))
    return Written(tuple(output.token_ids), logprobs, reason, steps[0] if ask.allowed else None)
