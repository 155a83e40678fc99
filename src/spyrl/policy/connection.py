"""A connection to an OpenAI-compatible server: calls, trying again, and what went wrong in words for a person."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from spyrl.errors import SpyRLError, UsageError

if TYPE_CHECKING:
    import openai

T = TypeVar("T")

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


class Connection:
    """Where a server is and how it is called.

    ``name`` is the model asked for there, ``key`` what the address is set by.
    ``api_key`` falls back to the environment's ``OPENAI_API_KEY``. ``timeout`` bounds one call, in seconds; a call is
    tried again up to ``retries`` times, after ``backoff`` seconds, doubled each time. Nothing is sent before a call.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        api_key: str | None,
        timeout: float,
        retries: int,
        backoff: float,
        key: str = "base_url",
    ) -> None:
        load_openai()
        if not timeout > 0:
            raise UsageError(f"timeout={timeout}: give a number of seconds above 0")
        if retries < 0:
            raise UsageError(f"retries={retries}: give 0 or more")
        self.name = name
        self.timeout = timeout
        self.retries = retries
        self.backoff = backoff
        self.key = key
        self.base_url = base_url.strip()
        self.url = _shown(self.base_url)
        self._api_key = (api_key or os.environ.get("OPENAI_API_KEY") or "").strip() or "none"
        if not re.fullmatch(r"[!-~]+", self._api_key):
            raise UsageError(
                "The API key holds spaces or characters outside ASCII: set OPENAI_API_KEY to the key alone"
            )

    def client(self) -> openai.AsyncOpenAI:
        """A client to make calls with, to be closed after them."""
        # A dead address is noticed soon, however long an answer may take. Trying again is done in one place, here.
        timeout = load_openai().Timeout(self.timeout, connect=min(self.timeout, 10.0))
        client: openai.AsyncOpenAI = load_openai().AsyncOpenAI(
            api_key=self._api_key, base_url=self.base_url, timeout=timeout, max_retries=0
        )
        return client

    async def models(self) -> list[dict[str, Any]] | None:
        """The models that the server lists, ``None`` where it lists none or only some.

        Raises `SpyRLError` where it does not answer and `UsageError` where it refuses the key or answers with
        something else.
        """
        async with self.client() as client:
            try:
                # A server that is down should be told of soon: one more try is enough.
                body = await self.retried(
                    lambda: self.body(client.models.with_raw_response.list(), min(self.timeout, 30.0)),
                    min(self.retries, 1),
                )
            except CallError as failure:
                if failure.status in WRONG_PATH:
                    return None
                raise self.mendable(failure) from None
        models = body if isinstance(body, list) else body.get("data") if isinstance(body, dict) else None
        if not isinstance(models, list):
            raise UsageError(f"{self.url}/models is no list of models: {self.key} must usually end in /v1")
        if isinstance(body, dict) and body.get("has_more"):
            return None
        return [entry for entry in models if isinstance(entry, dict) and "id" in entry]

    async def retried(self, attempt: Callable[[], Awaitable[T]], retries: int) -> T:
        """Call, and call again up to ``retries`` times where that may help; raises the last `CallError`."""
        tried = 0
        while True:
            try:
                return await attempt()
            except CallError as failure:
                if not failure.again or tried >= retries:
                    raise
                wait = self.backoff * 2**tried if failure.wait is None else failure.wait
            await asyncio.sleep(min(wait, LONGEST_WAIT))
            tried += 1

    async def gathered(
        self, attempts: Sequence[Callable[[openai.AsyncOpenAI], Awaitable[T]]], concurrency: int
    ) -> list[T | CallError]:
        """Make all calls, ``concurrency`` at once, each tried again where that may help; a failed one gives its error.

        Raises `UsageError` where the server refuses the key or does not know the model, and `SpyRLError` where no call
        at all got through to it.
        """
        gate = asyncio.Semaphore(concurrency)

        async def one(attempt: Callable[[openai.AsyncOpenAI], Awaitable[T]]) -> T | CallError:
            async with gate:
                try:
                    return await self.retried(lambda: attempt(client), self.retries)
                except CallError as failure:
                    if failure.status in REFUSED_ACCESS or failure.status in WRONG_PATH:
                        raise self.mendable(failure) from None
                    return failure

        try:
            async with self.client() as client, asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(attempt)) for attempt in attempts]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        results = [task.result() for task in tasks]
        failures = [result for result in results if isinstance(result, CallError)]
        if failures and len(failures) == len(results) and all(failure.connection for failure in failures):
            raise self.mendable(failures[0])
        return results

    async def answer(self, call: Awaitable[T], timeout: float) -> T:
        """Wait for one call; whatever the client raises becomes a `CallError`."""
        openai = load_openai()
        try:
            async with asyncio.timeout(timeout):
                return await call
        except (openai.APITimeoutError, TimeoutError):
            raise CallError(f"no answer within {timeout:g} s", again=True, connection=True) from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            said = self.said(str(cause) or type(cause).__name__)
            raise CallError(said, again=True, connection=True) from None
        except openai.APIStatusError as error:
            raise self._refusal(error) from None

    async def body(self, call: Awaitable[Any], timeout: float) -> object:
        """Wait for one call that returns a raw response, and decode its JSON; see `answer`."""
        raw = await self.answer(call, timeout)
        try:
            return json.loads(raw.http_response.content)
        except ValueError:
            start = self.said(raw.http_response.text)[:60]
            raise CallError(f"the server's answer is no JSON: {start!r}", again=True) from None

    def mendable(self, failure: CallError) -> SpyRLError:
        """Say what a person must mend."""
        if failure.connection:
            advice = f"start the server, correct {self.key}, or give it more time (timeout)"
            return SpyRLError(f"No answer from {self.url}: {failure}; {advice}")
        if failure.status in REFUSED_ACCESS:
            return UsageError(f"{self.url} refuses the API key: {failure}; set OPENAI_API_KEY to a key it knows")
        if failure.status in WRONG_PATH:
            advice = f"check the model's name and {self.key}, which must usually end in /v1"
            return UsageError(f"{self.url} cannot answer as {self.name!r}: {failure}; {advice}")
        if not failure.status:
            advice = f"{self.key} must usually end in /v1"
            return UsageError(f"{self.url} does not answer as an OpenAI-compatible server: {failure}; {advice}")
        advice = "wait until it is ready, or look into its log"
        return SpyRLError(f"{self.url} does not work: {failure}; {advice}")

    def _refusal(self, error: openai.APIStatusError) -> CallError:
        status = error.status_code
        said = self.said(error.body if error.body is not None else error.response.text)
        if status in (408, 409, 429) or status >= 500:
            wait = _retry_after(error.response.headers.get("retry-after"))
            return CallError(f"the server answered {status}: {said}", status=status, again=True, wait=wait)
        refusal = status in (400, 422)
        if refusal and TOO_LONG.search(said):
            return CallError(f"the request is too long for the model: {said}", status=status)
        named = set(re.findall(r"\w+", f"{error.param} {said}"))
        refused = tuple(name for name in OPTIONAL if name in named and refusal and not OUT_OF_RANGE.search(said))
        return CallError(f"the server answered {status}: {said}", status=status, refused=refused)

    def said(self, body: object) -> str:
        """Return a server's own words as one line, without our key."""
        while isinstance(body, dict):
            body = next((body[key] for key in ("message", "error", "detail") if body.get(key)), None) or str(body)
        text = " ".join(str(body).split()) or "nothing"
        if self._api_key != "none":
            # As a whole word: a stand-in key such as "x" is in every other word.
            text = re.sub(rf"(?<!\w){re.escape(self._api_key)}(?!\w)", "***", text)
        return clean(text if len(text) <= 300 else text[:299] + "…")


class CallError(Exception):
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


def clean(text: str) -> str:
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


def load_openai() -> Any:
    """The openai package; raises `UsageError` where it is not installed."""
    try:
        import openai
    except ImportError:
        raise UsageError("A model behind a server needs the openai package: pip install 'spyrl[server]'") from None
    return openai


def run_calls(work: Coroutine[Any, Any, T]) -> T:
    """Run calls to their end, also where an event loop runs already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # The caller's own thread runs a loop already, as in a notebook.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result()
