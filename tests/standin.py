"""A stand-in for an OpenAI-compatible server, on 127.0.0.1: it answers what a function says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StandIn:
    """``answer`` turns a model's name and the last message into a text, or an HTTP status to fail with."""

    def __init__(self, answer: Callable[[str, str], str | int]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []
        self.url = ""

    def asked_of(self, model: str) -> int:
        """How many calls there were to ``model``."""
        return sum(name == model for name, _ in self.asked)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # of the default 5, many calls at once are made to wait for a second

    def handle_error(self, *args: object) -> None:
        """Say nothing of clients that hung up."""


@contextmanager
def listening(respond: Callable[[str, Any], tuple[int, Any]]) -> Iterator[str]:
    """Answer JSON on 127.0.0.1; gives the URL that OpenAI's clients take.

    ``respond`` turns a path and what was posted there (``None``: it was fetched) into a status and what is answered.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.reply(*respond(self.path, None))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"
            self.reply(*respond(self.path, json.loads(body)))

        def reply(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    with _Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serving(answer: Callable[[str, str], str | int]) -> Iterator[StandIn]:
    """Serve ``answer``; a call counts 10 tokens read and 2 written."""
    standin = StandIn(answer)

    def respond(path: str, body: Any) -> tuple[int, Any]:
        if body is None:
            return 404, {}
        asked = body["model"], body["messages"][-1]["content"]
        standin.asked.append(asked)
        said = standin.answer(*asked)
        if isinstance(said, int):
            return said, {"error": {"message": "no"}}
        choice = {"message": {"content": said}, "finish_reason": "stop"}
        return 200, {"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 2}}

    with listening(respond) as standin.url:
        yield standin
