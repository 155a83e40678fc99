"""A server on 127.0.0.1 that answers by a rule, and verifiers' own evaluation command against it."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import verifiers.v1 as vf
from verifiers.v1.cli.eval.main import main as vf_eval

from spyrl_environment.replays import episodes

Rule = Callable[[dict[str, Any]], str | int]
"""From a call's body to what is answered: a text, or an HTTP status to fail with."""


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    rule: Rule
    bodies: list[dict[str, Any]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        self.reply(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        said = self.server.rule(body)
        if isinstance(said, int):
            self.reply(said, {"error": {"message": "the server is on fire"}})
            return
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        whole = {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"]}
        self.reply(200, {**whole, "choices": [choice], "usage": usage})

    def reply(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.rule, running.bodies = scripted, []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


def prompt(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def detects(body: dict[str, Any]) -> bool:
    return "Find the spy" in prompt(body)


def scripted(body: dict[str, Any]) -> str:
    """A text or a ballot that depends on the prompt and the sample's seed alone, as chance would have it."""
    draw = int(hashlib.sha256(f"{prompt(body)}/{body['seed']}".encode()).hexdigest(), 16)
    if not detects(body):
        return ["", "<think>so</think>", " \n"][draw % 3] + f"Story {draw % 1000}.\n"
    number = draw // 10 % 5 + 1
    return ["\\boxed{N/A}", "who knows", "", *[f"It is \\boxed{{{number}}}."] * 7][draw % 10]


@pytest.fixture
def evaluate(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[vf.Episode]]:
    """``vf-eval``: so many games with these settings, and what it wrote to ``tmp_path/out/run``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(games: int, settings: list[str], *options: str) -> list[vf.Episode]:
        config = tmp_path / "eval.toml"
        taskset = {"id": "spyrl-environment", "preset": "writing-smollm2", "settings": settings, "games": games}
        written = "\n".join(f"{key} = {json.dumps(value)}" for key, value in taskset.items())
        config.write_text(f"[env.taskset]\n{written}\n", encoding="utf-8")
        arguments = ["@", str(config), "--model", "scripted", "--client.base-url", server.url]
        arguments += ["--client.api-key-var", "NO_KEY", "--no-push", "--no-rich", "--clean"]
        arguments += ["--output-dir", str(tmp_path / "out"), "--run.name", "run", *options]
        monkeypatch.setattr("sys.argv", ["vf-eval"])
        vf_eval(arguments)
        return list(episodes(tmp_path / "out" / "run" / "traces.jsonl"))

    return run
