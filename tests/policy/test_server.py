"""A server of our own on 127.0.0.1 plays every server that a policy may meet."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.errors import SpyRLError, UsageError
from spyrl.policy.base import Completion, Policy, Request, Sampling
from spyrl.policy.server import ServerPolicy

pytestmark = [
    pytest.mark.filterwarnings("error::ResourceWarning"),
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]

KEY = "sk-secret-0123456789"
Reply = tuple[int, Any] | tuple[int, Any, dict[str, str]] | None
DRIPS = 50  # bytes of an answer that comes one at a time
PATIENCE = 5.0  # seconds after which a test that hangs gives up


class Fake:
    """What the server says: ``chat`` and ``models`` turn a call's body into a reply; None hangs up."""

    def __init__(self) -> None:
        self.chat: Callable[[dict[str, Any]], Reply] = lambda body: said(f"answer to {prompt(body)}")
        self.models: Callable[[dict[str, Any]], Reply] = lambda body: (200, {"data": [{"id": "tiny"}]})
        self.calls: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str] = []
        self.closing = threading.Event()
        self.url = ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: Fake

    def do_GET(self) -> None:
        self.answer(self.fake.models, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.fake.calls.append(body)
        self.fake.keys.append(self.headers["Authorization"])
        self.answer(self.fake.chat, body)

    def answer(self, ask: Callable[[dict[str, Any]], Reply], body: dict[str, Any]) -> None:
        self.fake.paths.append(self.path)
        reply = ask(body)
        self.close_connection = reply is None
        if reply is None:
            return
        self.send_response(reply[0])
        for name, value in (reply[2] if len(reply) > 2 else {}).items():
            self.send_header(name, value)
        if isinstance(reply[1], Iterator):
            pieces = reply[1]
            self.send_header("Content-Length", str(DRIPS))
        else:
            text = reply[1] if isinstance(reply[1], str) else json.dumps(reply[1])
            pieces = iter([text])
            self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece.encode())

    def log_message(self, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, *args: object) -> None:
        """Say nothing of clients that hung up."""


@pytest.fixture
def fake() -> Iterator[Fake]:
    fake = Fake()
    with Server(("127.0.0.1", 0), type("Bound", (Handler,), {"fake": fake})) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        fake.url = f"http://127.0.0.1:{server.server_port}/v1"
        yield fake
        fake.closing.set()
        server.shutdown()
        thread.join(PATIENCE)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def closed_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}/v1"


def policy(fake: Fake, **settings: Any) -> ServerPolicy:
    defaults: dict[str, Any] = {"api_key": KEY, "backoff": 0.0, "timeout": PATIENCE}
    return ServerPolicy("tiny", fake.url, **defaults | settings)


def ask(text: str, *seeds: int, **sampling: Any) -> Request:
    return Request(({"role": "user", "content": text},), seeds or (0,), Sampling(**sampling))


def prompt(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def said(content: object, finish: object = "stop", **message: object) -> Reply:
    return 200, {"choices": [{"message": {"content": content, **message}, "finish_reason": finish}]}


def refuses(status: int, message: str, **fields: object) -> Reply:
    return status, {"error": {"message": message, **fields}}


def one(policy: ServerPolicy, text: str = "hi") -> Completion:
    [[completion]] = policy.generate([ask(text)])
    return completion


def in_turn(*replies: Reply) -> Callable[[dict[str, Any]], Reply]:
    """Give each reply once, and the last for ever."""
    left = list(replies)
    return lambda body: left.pop(0) if len(left) > 1 else left[0]


# What is asked, and what comes back


def test_is_a_policy(fake: Fake) -> None:
    served: Policy = policy(fake)
    assert served.name == "tiny"


def test_sends_the_request_as_it_is(fake: Fake) -> None:
    request = Request(
        ({"role": "system", "content": "Play."}, {"role": "user", "content": "hi"}),
        (2**31 + 7,),
        Sampling(temperature=0.5, top_p=0.9, max_tokens=12),
    )
    served = policy(fake, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    assert served.generate([request]) == [[Completion("answer to hi", "stop")]]
    assert fake.calls == [
        {
            "model": "tiny",
            "messages": [{"role": "system", "content": "Play."}, {"role": "user", "content": "hi"}],
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 12,
            "seed": 7,
            "chat_template_kwargs": {"enable_thinking": False},
        }
    ]
    assert fake.paths == ["/v1/chat/completions"]
    assert fake.keys == [f"Bearer {KEY}"]


@pytest.mark.parametrize(("environment", "sent"), [(None, "none"), ("", "none"), (" from-env\n", "from-env")])
def test_key_from_the_environment(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, environment: str | None, sent: str
) -> None:
    if environment is not None:
        monkeypatch.setenv("OPENAI_API_KEY", environment)
    one(policy(fake, api_key=None))
    assert fake.keys == [f"Bearer {sent}"]


def test_order_is_that_of_requests_and_seeds_whoever_answers_first(fake: Fake) -> None:
    last_answered = threading.Event()

    def chat(body: dict[str, Any]) -> Reply:
        if (prompt(body), body["seed"]) == ("b", 3):
            last_answered.set()
        assert last_answered.wait(PATIENCE)
        return said(f"{prompt(body)}{body['seed']}")

    fake.chat = chat
    answers = policy(fake).generate([ask("a", 1, 2), Request((), ()), ask("b", 1, 2, 3)])
    assert [[answer.text for answer in row] for row in answers] == [["a1", "a2"], [], ["b1", "b2", "b3"]]


def test_samples_are_in_flight_together_but_no_more_than_concurrency(fake: Fake) -> None:
    together = threading.Barrier(4)
    lock = threading.Lock()
    too_many = threading.Event()
    now = 0

    def chat(body: dict[str, Any]) -> Reply:
        nonlocal now
        with lock:
            now += 1
            if now > 4:
                too_many.set()
        together.wait(PATIENCE)  # passes only four at a time
        too_many.wait(0.05)
        with lock:
            now -= 1
        return said("yes")

    fake.chat = chat
    answers = policy(fake, concurrency=4, retries=0).generate([ask("a", *range(4)), ask("b", *range(4))])
    assert [[answer.text for answer in row] for row in answers] == [["yes"] * 4] * 2
    assert not too_many.is_set()


def test_nothing_asked_is_nothing_sent(closed_url: str) -> None:
    served = ServerPolicy("tiny", closed_url)
    assert served.generate([]) == []
    assert served.generate([Request((), ()), Request((), ())]) == [[], []]


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}, (12, 3)),
        ({"prompt_tokens": 12}, (12, 0)),
        ({"prompt_tokens": None, "completion_tokens": "3"}, (0, 0)),
        (None, (0, 0)),
        ([1, 2], (0, 0)),
    ],
)
def test_usage_is_what_the_server_tells(fake: Fake, told: object, usage: tuple[int, int]) -> None:
    status, body = said("yes")[:2]  # type: ignore[index]
    fake.chat = lambda _: (status, {**body, "usage": told})
    assert one(policy(fake)) == Completion("yes", "stop", usage=usage)


def test_length(fake: Fake) -> None:
    fake.chat = lambda body: said("Once upon", "length")
    assert one(policy(fake)) == Completion("Once upon", "length")


def test_an_empty_answer_is_an_answer(fake: Fake) -> None:
    fake.chat = lambda body: said("")
    assert one(policy(fake)) == Completion("", "stop")


@pytest.mark.parametrize(
    ("reply", "text", "reasoning"),
    [
        (said("<think>hm</think>Three."), "Three.", "hm"),
        (said("Three.", reasoning_content="hm"), "Three.", "hm"),
        (said("Three.", reasoning="hm", reasoning_content=None), "Three.", "hm"),
        (said(None, reasoning_content="hm, no end"), "", "hm, no end"),
        (said("<think>hm, no end"), "", "hm, no end"),
        (said("Three.", reasoning=["not", "text"]), "Three.", ""),
    ],
)
def test_reasoning_is_kept_apart(fake: Fake, reply: Reply, text: str, reasoning: str) -> None:
    fake.chat = lambda body: reply
    assert one(policy(fake)) == Completion(text, "stop", reasoning=reasoning)


def test_lone_surrogates_do_not_get_through(fake: Fake) -> None:
    fake.chat = lambda body: said("a\ud800b")
    assert one(policy(fake)).text == "a?b"


@pytest.mark.parametrize("finish", ["content_filter", "tool_calls", None])
def test_other_ends_are_failures_and_not_asked_again(fake: Fake, finish: str | None) -> None:
    fake.chat = lambda body: said(None, finish)
    completion = one(policy(fake))
    assert completion.finish_reason == "failed"
    assert completion.text == ""
    assert repr(finish) in completion.error
    assert len(fake.calls) == 1


# Trying again


GARBAGE: dict[str, Reply] = {
    "html": (200, "<html><body>Welcome</body></html>"),
    "nothing": (200, ""),
    "binary": (200, "\x00"),
    "no choices": (200, {"id": "x"}),
    "a list": (200, [1, 2]),
    "empty choices": (200, {"choices": []}),
    "choice of null": (200, {"choices": [None]}),
    "no message": (200, {"choices": [{"finish_reason": "stop"}]}),
    "null content": said(None),
    "content in parts": said([{"type": "text", "text": "hi"}]),
}
PASSING: dict[str, Reply] = {
    "408": refuses(408, "slow"),
    "409": refuses(409, "locked"),
    "429": (429, {"error": {"message": "slow down"}}, {"Retry-After": "0"}),
    "429 until a past date": (429, "", {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    "429 until nonsense": (429, "", {"Retry-After": "soon"}),
    "500": refuses(500, "oops"),
    "503 in html": (503, "<html>busy</html>"),
    "hang-up": None,
}


@pytest.mark.parametrize("trouble", [*GARBAGE.values(), *PASSING.values()], ids=[*GARBAGE, *PASSING])
def test_trouble_that_passes_is_not_seen(fake: Fake, trouble: Reply) -> None:
    fake.chat = in_turn(trouble, trouble, said("at last"))
    assert one(policy(fake)) == Completion("at last", "stop")
    assert len(fake.calls) == 3


@pytest.mark.parametrize("trouble", GARBAGE.values(), ids=GARBAGE)
def test_garbage_that_stays_is_a_failure(fake: Fake, trouble: Reply) -> None:
    fake.chat = lambda body: trouble
    completion = one(policy(fake, retries=2))
    assert completion == Completion("", "failed", error=completion.error)
    assert completion.error.startswith("the server's answer is no ")
    assert "\n" not in completion.error
    assert len(fake.calls) == 3


def test_what_the_server_says_in_garbage_is_told(fake: Fake) -> None:
    fake.chat = lambda body: (200, {"error": {"message": f"upstream lost\n for {KEY}"}})
    assert one(policy(fake, retries=0)).error == "the server's answer is no completion: upstream lost for ***"


def test_a_status_that_stays_is_a_failure(fake: Fake) -> None:
    fake.chat = lambda body: refuses(500, "out of memory")
    assert one(policy(fake, retries=1)).error == "the server answered 500: out of memory"
    assert len(fake.calls) == 2


@pytest.mark.parametrize(
    ("headers", "waits"),
    [({}, [1.0, 2.0, 4.0]), ({"Retry-After": "7"}, [7.0] * 3), ({"Retry-After": "3600"}, [60.0] * 3)],
)
def test_waits_double_unless_the_server_names_one(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], waits: list[float]
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("spyrl.policy.connection.asyncio.sleep", sleep)
    fake.chat = lambda body: (429, {"error": {"message": "slow down"}}, headers)
    assert one(policy(fake, retries=3, backoff=1.0)).finish_reason == "failed"
    assert [seconds for seconds in waited if seconds] == waits  # the client's own tasks yield with sleep(0)


# What a person must mend


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_raised_at_once(fake: Fake, status: int) -> None:
    fake.chat = lambda body: refuses(status, f"Incorrect API key provided: {KEY}.")
    with pytest.raises(UsageError) as raised:
        policy(fake, concurrency=1).generate([ask("a", *range(20))])
    for part in (fake.url, str(status), "Incorrect API key provided: ***.", "OPENAI_API_KEY"):
        assert part in str(raised.value)
    assert KEY not in str(raised.value)
    assert len(fake.calls) < 20


def test_an_unknown_model_is_raised_at_once(fake: Fake) -> None:
    fake.chat = lambda body: refuses(404, "The model `tiny` does not exist.")
    with pytest.raises(UsageError) as raised:
        one(policy(fake))
    for part in (fake.url, "404", "does not exist", "'tiny'", "base_url", "/v1"):
        assert part in str(raised.value)
    assert len(fake.calls) == 1


def test_a_server_that_is_down_is_raised(closed_url: str) -> None:
    served = ServerPolicy("tiny", closed_url, api_key=KEY, retries=1, backoff=0)
    with pytest.raises(SpyRLError) as raised:
        served.generate([ask("a", 1, 2), ask("b")])
    assert not isinstance(raised.value, UsageError)
    assert closed_url in str(raised.value)
    assert "start the server" in str(raised.value)


@pytest.mark.parametrize("dripping", [False, True])
def test_a_server_that_never_answers_is_raised(fake: Fake, dripping: bool) -> None:
    def drip() -> Iterator[str]:
        for _ in range(DRIPS):
            if not fake.closing.wait(0.02):
                yield " "

    def chat(body: dict[str, Any]) -> Reply:
        if dripping:
            return 200, drip()
        fake.closing.wait(PATIENCE)
        return None

    fake.chat = chat
    with pytest.raises(SpyRLError, match=r"no answer within 0\.1 s"):
        policy(fake, timeout=0.1, retries=1).generate([ask("a")])
    assert len(fake.calls) == 2


def test_some_lost_connections_are_failures(fake: Fake) -> None:
    fake.chat = lambda body: None if prompt(body) == "bad" else said("good")
    [[good], [bad]] = policy(fake, retries=1).generate([ask("fine"), ask("bad")])
    assert good == Completion("good", "stop")
    assert bad.finish_reason == "failed"
    assert "disconnected" in bad.error


def test_all_failed_for_mixed_reasons_is_returned(fake: Fake) -> None:
    fake.chat = lambda body: None if prompt(body) == "bad" else refuses(500, "oops")
    rows = policy(fake, retries=0).generate([ask("fine"), ask("bad")])
    assert [row[0].finish_reason for row in rows] == ["failed", "failed"]


@pytest.mark.parametrize("request_", [Request((), (1,), begin="\\boxed{"), Request((), (1,), choices=("1", "2"))])
def test_direct_ballots_need_another_policy(fake: Fake, request_: Request) -> None:
    with pytest.raises(UsageError, match=r"game\.detectors\.answer=reasoned"):
        policy(fake).generate([ask("a"), request_])
    assert fake.calls == []


# Parameters that a server does not take


TOO_LONG = [
    "This model's maximum context length is 2048 tokens. However, you requested 5000 tokens.",
    "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 2048 tokens.",
    "the request exceeds the available context size, try increasing it",
]


@pytest.mark.parametrize("message", TOO_LONG)
def test_a_request_too_long_is_a_failure(fake: Fake, message: str) -> None:
    fake.chat = lambda body: refuses(400, message)
    assert one(policy(fake)).error == f"the request is too long for the model: {message}"
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.", "max_tokens"),
        ("Unsupported value: 'temperature' does not support 0.7. Only the default (1) is supported.", "temperature"),
        ("Unrecognized request argument supplied: seed", "seed"),
        ("`temperature` and `top_p` cannot both be specified", "top_p"),
    ],
)
def test_a_refused_parameter_is_not_sent_again(
    fake: Fake, caplog: pytest.LogCaptureFixture, message: str, name: str
) -> None:
    fake.chat = lambda body: refuses(400, message) if name in body else said("fine")
    served = policy(fake, retries=0)
    with caplog.at_level(logging.WARNING, "spyrl"):
        rows = served.generate([ask("a", 1, 2, 3, max_tokens=9)])
        calls = len(fake.calls)
        rows += served.generate([ask("b", max_tokens=9)])
    assert [answer.text for row in rows for answer in row] == ["fine"] * 4
    assert len(fake.calls) == calls + 1
    sent = {"temperature", "top_p", "seed", "max_tokens"} - {name} | {"model", "messages"}
    assert fake.calls[-1].keys() == sent | ({"max_completion_tokens"} if name == "max_tokens" else set())
    assert fake.calls[-1].get("max_completion_tokens", 9) == 9
    [record] = [record for record in caplog.records if record.name.startswith("spyrl")]
    assert name in record.getMessage()


def test_several_refused_parameters_go_one_by_one(fake: Fake) -> None:
    def chat(body: dict[str, Any]) -> Reply:
        for name in ("temperature", "max_tokens"):
            if name in body:
                return refuses(400, "Unsupported parameter", param=name)
        return (422, {"detail": [{"loc": ["body", "seed"], "msg": "extra"}]}) if "seed" in body else said("fine")

    fake.chat = chat
    assert one(policy(fake, retries=0)).text == "fine"
    assert len(fake.calls) == 4


@pytest.mark.parametrize("message", ["temperature must be between 0 and 1", "no such template", "temperature"])
def test_other_bad_requests_are_failures(fake: Fake, message: str) -> None:
    fake.chat = lambda body: refuses(400, message)
    assert one(policy(fake)).error == f"the server answered 400: {message}"
    assert len(fake.calls) == (2 if message == "temperature" else 1)


# Checking


@pytest.mark.parametrize(
    "reply",
    [
        (200, {"data": [{"id": "other"}, {"id": "tiny"}]}),
        (200, {"data": []}),
        (200, [{"id": "tiny"}]),
        (200, {"data": [{"id": "tiny:latest"}]}),
        (200, {"data": [{"id": "first page"}], "has_more": True}),
        (404, "no such page"),
        refuses(405, "no"),
    ],
)
def test_check_passes(fake: Fake, reply: Reply) -> None:
    fake.models = lambda body: reply
    policy(fake).check()
    assert fake.paths == ["/v1/models"]
    assert fake.calls == []


def test_check_knows_variants_that_a_router_does_not_list(fake: Fake) -> None:
    ServerPolicy("tiny:fast", fake.url).check()
    with pytest.raises(UsageError):
        ServerPolicy("tin:fast", fake.url).check()


def test_check_tries_again(fake: Fake) -> None:
    fake.models = in_turn(refuses(503, "loading"), (200, {"data": [{"id": "tiny"}]}))
    policy(fake).check()
    assert len(fake.paths) == 2


def test_check_names_the_nearest_models(fake: Fake) -> None:
    fake.models = lambda body: (200, {"data": [{"id": name} for name in ("tinny", "huge", "tiny-2")]})
    with pytest.raises(UsageError) as raised:
        policy(fake).check()
    assert "'tiny'" in str(raised.value)
    assert "tinny, tiny-2" in str(raised.value)
    assert "huge" not in str(raised.value)


def test_check_of_a_server_that_is_down(closed_url: str) -> None:
    with pytest.raises(SpyRLError, match="start the server") as raised:
        ServerPolicy("tiny", closed_url, backoff=0).check()
    assert not isinstance(raised.value, UsageError)
    assert closed_url in str(raised.value)


@pytest.mark.parametrize(
    ("reply", "kind", "part"),
    [
        (refuses(401, f"bad key {KEY}"), UsageError, "OPENAI_API_KEY"),
        (refuses(500, "loading the model"), SpyRLError, "loading the model"),
        ((200, "<html>a web page</html>"), UsageError, "/v1"),
        ((200, {"hello": "world"}), UsageError, "/v1"),
    ],
)
def test_check_says_what_is_wrong(fake: Fake, reply: Reply, kind: type[SpyRLError], part: str) -> None:
    fake.models = lambda body: reply
    with pytest.raises(SpyRLError) as raised:
        policy(fake).check()
    assert type(raised.value) is kind
    assert part in str(raised.value)
    assert fake.url in str(raised.value)
    assert KEY not in str(raised.value)


# Where it runs


def test_inside_an_event_loop(fake: Fake) -> None:
    async def notebook() -> Completion:
        served = policy(fake)
        served.check()
        return one(served)

    assert asyncio.run(notebook()).text == "answer to hi"


def test_nothing_is_left_open(fake: Fake) -> None:
    fake.chat = lambda body: refuses(401, "no") if prompt(body) == "bad" else said("fine")
    one(policy(fake))
    with pytest.raises(UsageError):
        policy(fake).generate([ask("fine", 1, 2), ask("bad", 1, 2)])
    gc.collect()  # what is left open warns, and a warning fails this file


def test_openai_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UsageError, match=r"pip install 'spyrl\[server\]'"):
        ServerPolicy("tiny", "http://127.0.0.1/v1")


@pytest.mark.parametrize(
    "url", ["", "localhost:8000/v1", "ftp://host/v1", "http://", "http://host:port/v1", "me:pw@host"]
)
def test_a_bad_address_is_told_at_once(url: str) -> None:
    with pytest.raises(UsageError, match="base_url") as raised:
        ServerPolicy("tiny", url)
    assert "pw" not in str(raised.value)


@pytest.mark.parametrize("settings", [{"concurrency": 0}, {"timeout": 0}, {"retries": -1}, {"api_key": "sk-a b"}])
def test_bad_settings_are_told_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as raised:
        ServerPolicy("tiny", "http://127.0.0.1/v1", **settings)
    assert "sk-a b" not in str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_an_address_is_told_without_its_password(closed_url: str, host: str) -> None:
    url = closed_url.replace("127.0.0.1", host)
    served = ServerPolicy("tiny", url.replace("//", "//me:hunter2@") + "/?token=hunter2", retries=0)
    with pytest.raises(SpyRLError, match="No answer from") as raised:
        one(served)
    assert "hunter2" not in str(raised.value)
    assert f"{url}:" in str(raised.value)


# Estimates


@given(st.text(max_size=40), st.text(max_size=40))
def test_count_tokens_is_an_estimate(first: str, second: str) -> None:
    served = ServerPolicy("tiny", "http://127.0.0.1/v1")
    count = served.count_tokens(first)
    assert (count == 0) == (first == "")
    assert count <= len(first.encode()) / 4 + 1
    request = Request(({"role": "system", "content": first}, {"role": "user", "content": second}), (1,))
    assert served.prompt_tokens(request) == count + served.count_tokens(second)


def test_count_tokens_by_bytes() -> None:
    served = ServerPolicy("tiny", "http://127.0.0.1/v1")
    assert [served.count_tokens(text) for text in ("", "a", "abcd", "abcde", "日本語")] == [0, 1, 1, 2, 3]
