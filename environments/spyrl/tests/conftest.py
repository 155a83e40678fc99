"""A server on 127.0.0.1 that answers by a rule, and verifiers' own evaluation command against it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import verifiers.v1 as vf
from verifiers.v1.cli.eval.main import main as vf_eval

from spyrl_environment.replays import episodes
from standin import listening

Rule = Callable[[dict[str, Any]], str | int]
"""From a call's body to what is answered: a text, or an HTTP status to fail with."""


@dataclass
class Server:
    """What the server answers by, and the bodies of the calls it had."""

    rule: Rule
    bodies: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def respond(self, path: str, body: Any) -> tuple[int, Any]:
        if body is None:
            return 200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]}
        self.bodies.append(body)
        said = self.rule(body)
        if isinstance(said, int):
            return said, {"error": {"message": "the server is on fire"}}
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        whole = {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"]}
        return 200, {**whole, "choices": [choice], "usage": usage}


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(scripted)
    with listening(running.respond) as running.url:
        yield running


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
