"""A policy behind any OpenAI-compatible server: vLLM, llama.cpp, Ollama, OpenAI itself."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from spyrl.errors import UsageError
from spyrl.policy.base import Completion, FinishReason, Request, split_reasoning
from spyrl.policy.connection import CallError, Connection, clean, run_calls

if TYPE_CHECKING:
    import openai

logger = logging.getLogger(__name__)


class ServerPolicy:
    """A `Policy` over chat completions, one call a sample (servers differ in whether they honour ``n``).

    ``api_key`` falls back to the environment's ``OPENAI_API_KEY``. ``timeout`` bounds one call, in seconds; a
    call is tried again up to ``retries`` times, after ``backoff`` seconds, doubled each time. ``extra_body`` is
    added to every call, for what a server takes beyond OpenAI's parameters. A server tells neither token ids
    nor, here, log-probabilities: completions carry text and usage only, so such a policy plays and is not trained.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        api_key: str | None = None,
        concurrency: int = 32,
        timeout: float = 300.0,
        retries: int = 5,
        extra_body: dict[str, Any] | None = None,
        backoff: float = 0.5,
    ) -> None:
        """Remember the server; nothing is sent before `check` or `generate`."""
        self.connection = Connection(
            model, base_url, api_key=api_key, timeout=timeout, retries=retries, backoff=backoff
        )
        if not 1 <= concurrency <= 1000:
            raise UsageError(f"concurrency={concurrency}: a server is asked 1 to 1000 samples at once")
        self.name = model
        self.concurrency = concurrency
        self._extra_body = extra_body
        self._refused: set[str] = set()

    def check(self) -> None:
        """Ask the server for its models, before any work: is it there, is the key good, does it have the model?

        Raises `SpyRLError` where the server does not answer and `UsageError` where the key or the model is
        wrong. A server that does not list its models passes.
        """
        models, where = run_calls(self.connection.models()), self.connection.url
        names = [str(entry["id"]) for entry in models or ()]
        # Ollama, Gemini, and routers that take "model:variant" list a model by a longer or shorter name.
        same = {self.name, f"{self.name}:latest", f"models/{self.name}", self.name.partition(":")[0]}
        if names and not same.intersection(names):
            nearest = difflib.get_close_matches(self.name, names, n=3, cutoff=0.3) or sorted(names)[:3]
            raise UsageError(f"{where} has no model {self.name!r}; the nearest it has: {', '.join(nearest)}")

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """Answer every request, ``samples`` times each, in the order of ``requests`` and of their seeds.

        A sample that came to nothing is a ``failed`` completion. Raises `UsageError` where the server refuses the
        key or does not know the model, and `SpyRLError` where no sample at all got through to it.
        """
        if any(request.choices or request.begin for request in requests):
            raise UsageError(
                f"Direct ballots need the model in this process, and {self.name} answers from a server "
                f"({self.connection.url}): use game.detectors.answer=reasoned"
            )
        if not any(request.samples for request in requests):
            return [[] for _ in requests]
        return run_calls(self._generate(requests))

    def count_tokens(self, text: str) -> int:
        """Estimate the length of ``text`` in tokens: one for every 4 bytes of UTF-8, rounded up."""
        return -(-len(text.encode("utf-8", "replace")) // 4)

    def prompt_tokens(self, request: Request) -> int:
        """Estimate the length of the request's messages in tokens, as `count_tokens` does, without the template."""
        return sum(self.count_tokens(message["content"]) for message in request.messages)

    async def _generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        def attempt(request: Request, seed: int) -> Callable[[openai.AsyncOpenAI], Awaitable[Completion]]:
            return lambda client: self._chat(client, request, seed)

        attempts = [attempt(request, seed) for request in requests for seed in request.seeds]
        results = iter(await self.connection.gathered(attempts, self.concurrency))
        return [[_completion(next(results)) for _ in request.seeds] for request in requests]

    async def _chat(self, client: openai.AsyncOpenAI, request: Request, seed: int) -> Completion:
        create: Callable[..., Awaitable[Any]] = client.chat.completions.with_raw_response.create
        messages = list(request.messages)
        while True:
            parameters = self._parameters(request, seed)
            call = create(model=self.name, messages=messages, extra_body=self._extra_body, **parameters)
            try:
                return self._read(await self.connection.body(call, self.connection.timeout))
            except CallError as failure:
                refused = next((name for name in failure.refused if name in parameters), None)
                if refused is None:
                    raise
                if refused not in self._refused:
                    how = "sent as max_completion_tokens" if refused == "max_tokens" else "left out"
                    logger.warning("%s does not take %s, from now on %s: %s", self.name, refused, how, failure)
                    self._refused.add(refused)

    def _parameters(self, request: Request, seed: int) -> dict[str, Any]:
        sampling = request.sampling
        parameters = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": seed % 2**31,
        }
        parameters = {name: value for name, value in parameters.items() if name not in self._refused}
        if "max_tokens" in self._refused:
            parameters["max_completion_tokens"] = sampling.max_tokens
        return parameters

    def _read(self, body: object) -> Completion:
        """Read a completion from the body of an answer; raises where it is none."""
        choices = body.get("choices") if isinstance(body, dict) else None
        if not isinstance(body, dict) or not isinstance(choices, list) or not choices:
            error = body.get("error") if isinstance(body, dict) else None
            said = self.connection.said(error) if error else "no choices in it"
            raise CallError(f"the server's answer is no completion: {said}", again=True)
        choice = choices[0] if isinstance(choices[0], dict) else {}
        message = choice.get("message")
        if not isinstance(message, dict):
            raise CallError("the server's answer is no completion: no message in it", again=True)
        finish = choice.get("finish_reason")
        if finish not in ("stop", "length"):
            raise CallError(f"the server ended the answer with finish_reason {finish!r}")
        content = message.get("content")
        private = message.get("reasoning_content") or message.get("reasoning")
        private = private if isinstance(private, str) else ""
        if not isinstance(content, str) and (content is not None or not private):
            raise CallError("the server's answer is no completion: its content is no text", again=True)
        text, thought = split_reasoning(clean(content or ""))
        reason: FinishReason = "stop" if finish == "stop" else "length"
        thoughts = "\n".join(filter(None, (clean(private), thought)))
        return Completion(text, reason, reasoning=thoughts, usage=_usage(body.get("usage")))


def _usage(told: object) -> tuple[int, int]:
    """Tokens read and written, 0 for what the server does not tell."""
    counts = [told.get(key) for key in ("prompt_tokens", "completion_tokens")] if isinstance(told, dict) else [0, 0]
    read, written = (count if isinstance(count, int) and count > 0 else 0 for count in counts)
    return read, written


def _completion(result: Completion | CallError) -> Completion:
    return result if isinstance(result, Completion) else Completion("", "failed", error=str(result))
