"""A vLLM server with GPUs of its own, which is handed the trained model's weights.

Written for vLLM 0.32 and its endpoints for reinforcement learning. Weights go over NCCL by vLLM's own weight transfer,
or where there is no GPU to send from, through a folder that both sides see.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import save_file
from torch import distributed

from spyrl.errors import SpyRLError, UsageError, first_line
from spyrl.policy.base import FinishReason, Sampling
from spyrl.policy.connection import WRONG_PATH, CallError, Connection, run_calls
from spyrl.policy.vllm import Ask, Written, failed, process_number, unfinished
from spyrl.policy.weights import Weights

if TYPE_CHECKING:
    import openai

STARTED = (
    "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs "
    """--weight-transfer-config '{"backend": "nccl"}'"""
)
_AT_ONCE = 512  # prompts; vLLM has a queue of its own
_LONGEST = 3600.0  # seconds for one call: all of an iteration's prompts wait in that queue


class VllmServer:
    """An `Engine`. ``folder`` is where weights are handed over, ``None`` for NCCL; see `check`."""

    def __init__(self, base_url: str, folder: Path | None, *, backoff: float = 0.5) -> None:
        options: dict[str, Any] = {"api_key": None, "timeout": _LONGEST, "backoff": backoff, "key": "model.vllm.server"}
        self._calls = Connection("vLLM", base_url, retries=3, **options)
        root = base_url.strip().rstrip("/").removesuffix("/v1")
        self._control = Connection("vLLM", root, retries=0, **options)
        self.folder = folder
        self._sender: Any = None

    def check(self, length: int) -> None:
        """Is it there, and does it do all that is needed? ``length`` are the most tokens of prompt and answer.

        Raises `SpyRLError` where the server does not answer and `UsageError` where it must be started in another way.
        """
        models = run_calls(self._calls.models())
        if not models:
            raise UsageError(f"{self._calls.url} lists no model; is it a vLLM server?")
        self._calls.name = str(models[0]["id"])
        longest = models[0].get("max_model_len")
        if isinstance(longest, int) and longest < length:
            raise UsageError(
                f"{self._calls.url} takes {longest} tokens, and prompt and answer may have {length}: start it with "
                f"--max-model-len {length}, or lower game.max_prompt_tokens and game.max_tokens"
            )
        self._world()
        (probe,) = self.write([Ask((0,), Sampling(max_tokens=1), 1, 0, (), (0, 1))], lambda count: None)
        if probe[0].error:
            raise UsageError(f"{self._calls.url} does not answer as is needed: {probe[0].error}; start it as {STARTED}")
        total = sum(math.exp(logprob) for logprob in (probe[0].among or {}).values())
        if abs(total - 1) > 0.01:
            raise UsageError(
                f"{self._calls.url} does not tell the probabilities that it samples with: start it with "
                "--logprobs-mode processed_logprobs"
            )

    def write(self, asked: Sequence[Ask], on_tokens: Callable[[int], None]) -> list[list[Written]]:
        """See `Engine.write`. A prompt that came to nothing gives failed samples.

        Raises `SpyRLError` where no call at all got through.
        """

        def attempt(ask: Ask) -> Callable[[openai.AsyncOpenAI], Awaitable[list[Written]]]:
            return lambda client: self._complete(client, ask, on_tokens)

        results = run_calls(self._calls.gathered([attempt(ask) for ask in asked], _AT_ONCE))
        return [
            [failed(str(each))] * ask.samples if isinstance(each, CallError) else each
            for ask, each in zip(asked, results, strict=True)
        ]

    def wake(self, weights: Weights) -> None:
        """See `Engine.wake`. The server's caches are cleared before it takes them."""
        number = process_number()
        first = not number
        if first:
            self._ask("pause?mode=wait")  # this clears its caches
        if self.folder is not None:
            self._through_folder(weights, self.folder, first=first)
        else:
            self._over_nccl(weights)
        if first:
            self._ask("resume")
        if number is not None:
            distributed.barrier()  # nobody asks for the old weights' answers

    def sleep(self) -> None:
        """See `Engine.sleep`: the GPUs are its own."""

    async def _complete(self, client: openai.AsyncOpenAI, ask: Ask, on_tokens: Callable[[int], None]) -> list[Written]:
        parameters = ask.parameters
        own = ("n", "seed", "temperature", "top_p", "max_tokens", "logprobs")  # OpenAI's; the others are vLLM's
        extra = {name: value for name, value in parameters.items() if name not in own}
        call = client.completions.with_raw_response.create(
            model=self._calls.name,
            prompt=list(ask.prompt),
            extra_body={**extra, "return_token_ids": True, "return_tokens_as_token_ids": True},
            **{name: parameters[name] for name in own},
        )
        body = await self._calls.body(call, _LONGEST)
        choices = body.get("choices") if isinstance(body, dict) else None
        if not isinstance(choices, list) or len(choices) != ask.samples:
            raise CallError(f"the server's answer is not {ask.samples} completions", again=True)
        try:
            found = [_written(choice, ask) for choice in sorted(choices, key=lambda each: each["index"])]
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise CallError(f"the server's answer has no token ids and log-probabilities ({error!r})") from None
        on_tokens(sum(len(each.token_ids) for each in found))
        return found

    def _through_folder(self, weights: Weights, folder: Path, *, first: bool) -> None:
        gathered = {name: tensor.cpu().contiguous() for name, tensor in weights if first}
        if not first:
            return
        whole, partial = folder / "model.safetensors", folder / ".partial.safetensors"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            save_file(gathered, partial)
            os.replace(partial, whole)
        except Exception as error:  # safetensors has errors of its own
            raise SpyRLError(f"cannot write weights to {folder}: {first_line(error)}; make room there") from error
        self._ask("collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder.resolve())}})

    def _over_nccl(self, weights: Weights) -> None:
        """By vLLM's own trainer side, in all processes: the first one sends, the others gather with it."""
        if self._sender is None:
            self._sender = self._opened(weights)
        try:
            self._sender.send_weights()
        except Exception as error:  # of NCCL, of HTTP
            raise SpyRLError(f"{self._control.url} did not take the weights: {first_line(error)}") from error

    def _opened(self, weights: Weights) -> Any:
        base, clients, factory, nccl, network = load_weight_transfer()

        class Source(base.WeightSource):  # type: ignore[misc, name-defined]
            def metadata(self) -> list[Any]:
                return [base.ParamMeta(name, weights.dtype, shape) for name, shape in weights.shapes()]

            def __iter__(self) -> Any:
                return iter(weights)

        where = nccl.NCCLTrainerInitInfo(
            master_address=network.get_ip(),
            master_port=network.get_open_port(),
            world_size=1 + self._world(),
            rank=process_number() or 0,
        )
        client = clients.HTTPVLLMWeightSyncClient(self._control.base_url, timeout=_LONGEST)
        try:
            return factory.WeightTransferTrainerFactory.trainer_init(where, client=client, source=Source())
        except Exception as error:  # of NCCL, of HTTP
            raise SpyRLError(
                f"no NCCL connection with {self._control.url}: {first_line(error)}; start it with "
                '--weight-transfer-config \'{"backend": "nccl"}\', or set model.vllm.folder'
            ) from error

    def _world(self) -> int:
        """How many GPUs the server uses."""
        body = self._ask("get_world_size", get=True)
        size = body.get("world_size") if isinstance(body, dict) else None
        if not isinstance(size, int):
            raise UsageError(f"{self._control.url}/get_world_size does not tell its number of GPUs; is it vLLM?")
        return size

    def _ask(self, path: str, body: object | None = None, *, get: bool = False) -> object:
        async def call() -> object:
            async with self._control.client() as client:
                if get:
                    return await self._control.answer(client.get(f"/{path}", cast_to=object), _LONGEST)
                return await self._control.answer(client.post(f"/{path}", cast_to=object, body=body), _LONGEST)

        try:
            return run_calls(call())
        except CallError as failure:
            if failure.status in WRONG_PATH:
                raise UsageError(
                    f"{self._control.url} does not take weights ({path}: {failure}); start it as {STARTED}"
                ) from None
            raise self._control.mendable(failure) from None


def load_weight_transfer() -> tuple[Any, Any, Any, Any, Any]:
    """vLLM's weight transfer. Raises `UsageError` where vLLM is not installed or too old for it."""
    try:
        from vllm.distributed.weight_transfer import base, clients, factory, nccl_engine
        from vllm.utils import network_utils
    except ImportError:
        raise UsageError(
            "weights go over NCCL by vLLM 0.32 or later: pip install 'spyrl[vllm]', or set model.vllm.folder"
        ) from None
    return base, clients, factory, nccl_engine, network_utils


def _written(choice: dict[str, Any], ask: Ask) -> Written:
    """A sample from one of a completion's choices."""
    finish = choice["finish_reason"]
    if finish not in ("stop", "length"):
        return unfinished(finish)
    reason: FinishReason = finish
    ids, told = tuple(int(token) for token in choice["token_ids"]), choice["logprobs"]
    logprobs = tuple(float(logprob) for logprob in told["token_logprobs"])
    if len(ids) != len(logprobs) or not ids:
        raise ValueError(f"{len(ids)} token ids and {len(logprobs)} log-probabilities")
    if not ask.allowed:
        return Written(ids, logprobs, reason)
    among = {int(name.removeprefix("token_id:")): float(value) for name, value in told["top_logprobs"][0].items()}
    return Written(ids, logprobs, reason, {token: among.get(token, -math.inf) for token in ask.allowed})
