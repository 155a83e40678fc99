"""A policy behind any OpenAI-compatible server: vLLM, llama.cpp, Ollama, OpenAI itself."""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from spyrl.errors import SpyRLError, UsageError
from spyrl.policy.base import Completion, FinishReason, Request, split_reasoning

if TYPE_CHECKING:
    import openai

T = TypeVar("T")
logger = logging.getLogger(__name__)

LONGEST_WAIT = 60.0
REFUSED_ACCESS = (401, 403)
WRONG_PATH = (404, 405)
# Of these a server may refuse some. One goes at a time, the least missed first.
OPTIONAL = ("max_tokens", "top_p", "seed", "temperature")
# Such a message often names max_tokens too, and another name would not shorten the prompt.
TOO_LONG = re.compile(
    r"context.?(length|window|size)|too long|too many (input )?tokens|maximum .*tokens|exceed.*tokens", re.IGNORECASE
)
# A value out of range is for a person to mend: without it the server would sample in another way than asked.
OUT_OF_RANGE = re.compile(r"between|at most|at least|(less|greater) than", re.IGNORECASE)


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
        _openai()
        if not 1 <= concurrency <= 1000:
            raise UsageError(f"concurrency={concurrency}: a server is asked 1 to 1000 samples at once")
        if not timeout > 0:
            raise UsageError(f"timeout={timeout}: give a number of seconds above 0")
        if retries < 0:
            raise UsageError(f"retries={retries}: give 0 or more")
        self.name = model
        self.concurrency = concurrency
        self.timeout = timeout
        self.retries = retries
        self.backoff = backoff
        self._base_url = base_url.strip()
        self._url = _shown(self._base_url)
        self._api_key = (api_key or os.environ.get("OPENAI_API_KEY") or "").strip() or "none"
        if not re.fullmatch(r"[!-~]+", self._api_key):
            raise UsageError(
                "The API key holds spaces or characters outside ASCII: set OPENAI_API_KEY to the key alone"
            )
        self._extra_body = extra_body
        self._refused: set[str] = set()

    def check(self) -> None:
        """Ask the server for its models, before any work: is it there, is the key good, does it have the model?

        Raises `SpyRLError` where the server does not answer and `UsageError` where the key or the model is
        wrong. A server that does not list its models passes.
        """
        _run(self._check())

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """Answer every request, ``samples`` times each, in the order of ``requests`` and of their seeds.

        A sample that came to nothing is a ``failed`` completion. Raises `UsageError` where the server refuses the
        key or does not know the model, and `SpyRLError` where no sample at all got through to it.
        """
        if any(request.choices or request.begin for request in requests):
            raise UsageError(
                f"Direct ballots need the model in this process, and {self.name} answers from a server ({self._url}): "
                "use game.detectors.answer=reasoned"
            )
        if not any(request.samples for request in requests):
            return [[] for _ in requests]
        return _run(self._generate(requests))

    def count_tokens(self, text: str) -> int:
        """Estimate the length of ``text`` in tokens: one for every 4 bytes of UTF-8, rounded up."""
        return -(-len(text.encode("utf-8", "replace")) // 4)

    def prompt_tokens(self, request: Request) -> int:
        """Estimate the length of the request's messages in tokens, as `count_tokens` does, without the template."""
        return sum(self.count_tokens(message["content"]) for message in request.messages)

    async def _check(self) -> None:
        async with self._client() as client:
            try:
                # A server that is down should be told of soon: one more try is enough.
                body = await self._retried(
                    lambda: self._body(client.models.with_raw_response.list(), min(self.timeout, 30.0)),
                    min(self.retries, 1),
                )
            except _CallError as failure:
                if failure.status in WRONG_PATH:
                    return
                raise self._mendable(failure) from None
        models = body if isinstance(body, list) else body.get("data") if isinstance(body, dict) else None
        if not isinstance(models, list):
            raise UsageError(f"{self._url}/models is no list of models: base_url must usually end in /v1")
        if isinstance(body, dict) and body.get("has_more"):
            return
        names = [str(entry["id"]) for entry in models if isinstance(entry, dict) and "id" in entry]
        # Ollama, Gemini, and routers that take "model:variant" list a model by a longer or shorter name.
        same = {self.name, f"{self.name}:latest", f"models/{self.name}", self.name.partition(":")[0]}
        if names and not same.intersection(names):
            nearest = difflib.get_close_matches(self.name, names, n=3, cutoff=0.3) or sorted(names)[:3]
            raise UsageError(f"{self._url} has no model {self.name!r}; the nearest it has: {', '.join(nearest)}")

    async def _generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        gate = asyncio.Semaphore(self.concurrency)
        try:
            async with self._client() as client, asyncio.TaskGroup() as group:
                tasks = [
                    [group.create_task(self._sample(client, gate, request, seed)) for seed in request.seeds]
                    for request in requests
                ]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        results = [[task.result() for task in row] for row in tasks]
        failures = [result for row in results for result in row if isinstance(result, _CallError)]
        if failures and len(failures) == sum(map(len, results)) and all(failure.connection for failure in failures):
            raise self._mendable(failures[0])
        return [[_completion(result) for result in row] for row in results]

    async def _sample(
        self, client: openai.AsyncOpenAI, gate: asyncio.Semaphore, request: Request, seed: int
    ) -> Completion | _CallError:
        async with gate:
            try:
                return await self._retried(lambda: self._chat(client, request, seed), self.retries)
            except _CallError as failure:
                if failure.status in REFUSED_ACCESS or failure.status in WRONG_PATH:
                    raise self._mendable(failure) from None
                return failure

    async def _chat(self, client: openai.AsyncOpenAI, request: Request, seed: int) -> Completion:
        create: Callable[..., Awaitable[Any]] = client.chat.completions.with_raw_response.create
        messages = list(request.messages)
        while True:
            parameters = self._parameters(request, seed)
            call = create(model=self.name, messages=messages, extra_body=self._extra_body, **parameters)
            try:
                return self._read(await self._body(call, self.timeout))
            except _CallError as failure:
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
            said = self._said(body["error"]) if isinstance(body, dict) and body.get("error") else "no choices in it"
            raise _CallError(f"the server's answer is no completion: {said}", again=True)
        choice = choices[0] if isinstance(choices[0], dict) else {}
        message = choice.get("message")
        if not isinstance(message, dict):
            raise _CallError("the server's answer is no completion: no message in it", again=True)
        finish = choice.get("finish_reason")
        if finish not in ("stop", "length"):
            raise _CallError(f"the server ended the answer with finish_reason {finish!r}")
        content = message.get("content")
        private = message.get("reasoning_content") or message.get("reasoning")
        private = private if isinstance(private, str) else ""
        if not isinstance(content, str) and (content is not None or not private):
            raise _CallError("the server's answer is no completion: its content is no text", again=True)
        text, thought = split_reasoning(_clean(content or ""))
        reason: FinishReason = "stop" if finish == "stop" else "length"
        thoughts = "\n".join(filter(None, (_clean(private), thought)))
        return Completion(text, reason, reasoning=thoughts, usage=_usage(body.get("usage")))

    async def _body(self, call: Awaitable[Any], timeout: float) -> object:
        """Wait for one call and decode its JSON; whatever the client raises becomes a `_CallError`."""
        openai = _openai()
        try:
            async with asyncio.timeout(timeout):
                raw = await call
        except (openai.APITimeoutError, TimeoutError):
            raise _CallError(f"no answer within {timeout:g} s", again=True, connection=True) from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            said = self._said(str(cause) or type(cause).__name__)
            raise _CallError(said, again=True, connection=True) from None
        except openai.APIStatusError as error:
            raise self._refusal(error) from None
        try:
            return json.loads(raw.http_response.content)
        except ValueError:
            start = self._said(raw.http_response.text)[:60]
            raise _CallError(f"the server's answer is no JSON: {start!r}", again=True) from None

    def _refusal(self, error: openai.APIStatusError) -> _CallError:
        status = error.status_code
        said = self._said(error.body if error.body is not None else error.response.text)
        if status in (408, 409, 429) or status >= 500:
            wait = _retry_after(error.response.headers.get("retry-after"))
            return _CallError(f"the server answered {status}: {said}", status=status, again=True, wait=wait)
        refusal = status in (400, 422)
        if refusal and TOO_LONG.search(said):
            return _CallError(f"the request is too long for the model: {said}", status=status)
        named = set(re.findall(r"\w+", f"{error.param} {said}"))
        refused = tuple(name for name in OPTIONAL if name in named and refusal and not OUT_OF_RANGE.search(said))
        return _CallError(f"the server answered {status}: {said}", status=status, refused=refused)

    def _said(self, body: object) -> str:
        """Return a server's own words as one line, without our key."""
        while isinstance(body, dict):
            body = next((body[key] for key in ("message", "error", "detail") if body.get(key)), None) or str(body)
        text = " ".join(str(body).split()) or "nothing"
        if self._api_key != "none":
            # As a whole word: a stand-in key such as "x" is in every other word.
            text = re.sub(rf"(?<!\w){re.escape(self._api_key)}(?!\w)", "***", text)
        return _clean(text if len(text) <= 300 else text[:299] + "…")

    async def _retried(self, attempt: Callable[[], Awaitable[T]], retries: int) -> T:
        tried = 0
        while True:
            try:
                return await attempt()
            except _CallError as failure:
                if not failure.again or tried >= retries:
                    raise
                wait = self.backoff * 2**tried if failure.wait is None else failure.wait
            await asyncio.sleep(min(wait, LONGEST_WAIT))
            tried += 1

    def _mendable(self, failure: _CallError) -> SpyRLError:
        """Say what a person must mend."""
        if failure.connection:
            advice = "start the server, correct base_url, or give it more time (timeout)"
            return SpyRLError(f"No answer from {self._url}: {failure}; {advice}")
        if failure.status in REFUSED_ACCESS:
            return UsageError(f"{self._url} refuses the API key: {failure}; set OPENAI_API_KEY to a key it knows")
        if failure.status in WRONG_PATH:
            advice = "check the model's name and base_url, which must usually end in /v1"
            return UsageError(f"{self._url} cannot answer as {self.name!r}: {failure}; {advice}")
        if not failure.status:
            advice = "base_url must usually end in /v1"
            return UsageError(f"{self._url} does not answer as an OpenAI-compatible server: {failure}; {advice}")
        advice = "wait until it is ready, or look into its log"
        return SpyRLError(f"{self._url} does not work: {failure}; {advice}")

    def _client(self) -> openai.AsyncOpenAI:
        # A dead address is noticed soon, however long an answer may take. Trying again is done in one place, here.
        timeout = _openai().Timeout(self.timeout, connect=min(self.timeout, 10.0))
        client: openai.AsyncOpenAI = _openai().AsyncOpenAI(
            api_key=self._api_key, base_url=self._base_url, timeout=timeout, max_retries=0
        )
        return client


class _CallError(Exception):
    """A call that came to nothing: why, and whether another try may help."""

    def __init__(
        self,
        reason: str,
        *,
        status: int = 0,
        again: bool = False,
        connection: bool = False,
        wait: float | None = None,
        refused: tuple[str, ...] = (),
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.again = again
        self.connection = connection
        self.wait = wait
        self.refused = refused


def _usage(told: object) -> tuple[int, int]:
    """Tokens read and written, 0 for what the server does not tell."""
    counts = [told.get(key) for key in ("prompt_tokens", "completion_tokens")] if isinstance(told, dict) else [0, 0]
    read, written = (count if isinstance(count, int) and count > 0 else 0 for count in counts)
    return read, written


def _completion(result: Completion | _CallError) -> Completion:
    return result if isinstance(result, Completion) else Completion("", "failed", error=str(result))


def _clean(text: str) -> str:
    """Replace lone surrogates, which JSON can carry and no file or later call can."""
    return text.encode("utf-8", "replace").decode()


def _retry_after(header: str | None) -> float | None:
    """Read the seconds of a ``Retry-After`` header, given as a number or as a date."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = max(0.0, parsedate_to_datetime(header).timestamp() - time())
        except ValueError:
            return None
    return seconds if seconds >= 0 else None


def _shown(url: str) -> str:
    """Return ``url`` as messages may show it, without a password in it; raises where it is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme not in ("http", "https"):
        given = url.rpartition("@")[2]
        raise UsageError(f"base_url={given}: give a whole address, such as http://localhost:8000/v1")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}".rstrip("/")


def _openai() -> Any:
    try:
        import openai
    except ImportError:
        raise UsageError("A model behind a server needs the openai package: pip install 'spyrl[server]'") from None
    return openai


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # The caller's own thread runs a loop already, as in a notebook.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result()
