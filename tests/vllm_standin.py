"""A stand-in for a vLLM server, on 127.0.0.1: the endpoints that training uses, over a transformers model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from standin import listening
from vllm_sampling import Sampled, go_on


class VllmStandIn:
    """What the server holds and was asked. Set ``raw``, ``development`` or ``broken`` for one started otherwise."""

    def __init__(self, folder: Path) -> None:
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.name = "served"
        self.length = 4096
        self.raw = False
        self.development = True
        self.broken = ""
        """A part of a prompt's parameters, as JSON, that is answered with 500."""
        self.paused = False
        self.asked: list[dict[str, Any]] = []
        self.control: list[str] = []
        self.url = ""
        self.lock = threading.Lock()

    def load(self, weights: dict[str, torch.Tensor]) -> None:
        """Take weights under the names of the model's folder."""
        assert self.paused
        missing = self.model.load_state_dict(weights, strict=False)
        assert not missing.unexpected_keys
        assert set(missing.missing_keys) <= {"lm_head.weight"}

    def completions(self, body: dict[str, Any]) -> tuple[int, Any]:
        """``/v1/completions`` for a prompt in token ids."""
        self.asked.append(body)
        if self.broken and self.broken in json.dumps(body):
            return 500, {"error": {"message": "out of memory"}}
        assert not self.paused
        assert body["model"] == self.name
        assert body["return_token_ids"]
        assert body["return_tokens_as_token_ids"]
        parameters = {**body, "allowed_token_ids": None} if self.raw else body
        return 200, {
            "choices": [self._choice(at, each) for at, each in enumerate(self._sampled(body, parameters))][::-1]
        }

    def _sampled(self, body: dict[str, Any], parameters: dict[str, Any]) -> list[Sampled]:
        with self.lock:
            return go_on(self.model, body["prompt"], parameters)

    def _choice(self, index: int, sampled: Sampled) -> dict[str, Any]:
        tops = [{f"token_id:{token}": told for token, told in step.items()} for step in sampled.steps]
        return {
            "index": index,
            "text": "not used",
            "token_ids": sampled.token_ids,
            "finish_reason": sampled.finish_reason,
            "logprobs": {
                "tokens": [f"token_id:{token}" for token in sampled.token_ids],
                "token_logprobs": [step[token] for step, token in zip(sampled.steps, sampled.token_ids, strict=True)],
                "top_logprobs": tops,
            },
        }

    def command(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """The endpoints of a server in development mode."""
        if not self.development:
            return 404, {"detail": "Not Found"}
        self.control.append(path.partition("?")[0])
        match path:
            case "/get_world_size":
                return 200, {"world_size": 2}
            case "/pause?mode=wait":
                self.paused = True
            case "/resume":
                self.paused = False
            case "/collective_rpc":
                assert body["method"] == "reload_weights"
                self.load(load_file(Path(body["kwargs"]["weights_path"]) / "model.safetensors"))
            case "/init_weight_transfer_engine" | "/start_weight_update" | "/update_weights" | "/finish_weight_update":
                assert self.paused
            case _:
                return 404, {"detail": "Not Found"}
        return 200, {"results": [None]}


@contextmanager
def serving_vllm(folder: Path) -> Iterator[VllmStandIn]:
    """Serve the model in ``folder``."""
    standin = VllmStandIn(folder)

    def respond(path: str, body: Any) -> tuple[int, Any]:
        if path == "/v1/completions" and body is not None:
            return standin.completions(body)
        if path == "/v1/models" and body is None:
            return 200, {"data": [{"id": standin.name, "max_model_len": standin.length}]}
        return standin.command(path, body or {})

    with listening(respond) as standin.url:
        yield standin
