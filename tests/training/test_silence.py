"""The silence collapse: seen, and held off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from spyrl.errors import UsageError
from spyrl.policy import Request, Sampling
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import load_model
from spyrl.policy.settings import ModelSettings
from spyrl.runs.folder import RunFolder
from spyrl.training.scoring import batches, score
from spyrl.training.silence import silence_warnings
from spyrl.training.train import train
from spyrl.training.trajectory import Trajectory
from tiny import Onlooker, tiny_config


def lengths(spy: float, civilian: float) -> dict[str, float]:
    return {"length/spy": spy, "length/civilian": civilian}


def test_a_role_that_shrinks_is_told_of_once() -> None:
    warned: set[str] = set()
    first = lengths(20, 20)
    assert silence_warnings(first, lengths(12, 12), warned) == []  # 60 % is the last length that counts as whole
    (told,) = silence_warnings(first, lengths(11.9, 20), warned)
    assert told.startswith("silence: the spy's outputs are down to 12 tokens from 20")
    assert "game.min_tokens" in told
    assert silence_warnings(first, lengths(2, 20), warned) == []
    (told,) = silence_warnings(first, lengths(2, 5), warned)
    assert told.startswith("silence: civilians' outputs are down to 5 tokens from 20")


def test_a_role_that_recovers_may_be_told_of_again() -> None:
    warned: set[str] = set()
    first = lengths(20, 20)
    said = [len(silence_warnings(first, lengths(spy, 20), warned)) for spy in (5, 5, 19, 5)]
    assert said == [1, 0, 0, 1]


@pytest.mark.parametrize("first", [{}, lengths(0, 0), {"length/spy": None, "length/civilian": None}])
def test_nothing_is_said_where_lengths_are_not_known(first: dict[str, Any]) -> None:
    assert silence_warnings(first, lengths(1, 1), set()) == []
    assert silence_warnings(lengths(9, 9), {}, set()) == []


def test_a_run_warns_while_it_trains(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spyrl.training import train as module

    real = module.run_iteration
    shrinking = iter((20.0, 20.0, 4.0, 4.0))

    def shrunk(setup: Any, state: Any) -> Any:
        after, metrics = real(setup, state)
        return after, metrics | lengths(20.0, next(shrinking))

    monkeypatch.setattr(module, "run_iteration", shrunk)
    watcher = Onlooker()
    config = tiny_config(tmp_path, tiny_model, "training.iterations=4", "training.games=1")
    train(config, RunFolder(tmp_path / "silent"), watcher, preset="writing-smollm2")
    said = [text for text in watcher.said if text.startswith("silence")]
    assert len(said) == 1
    assert "civilians' outputs are down to 4 tokens from 20" in said[0]


# A floor on length.


@pytest.fixture
def talkative(tiny_model: Path) -> LocalPolicy:
    """A model that would rather end its turn at once."""
    loaded = load_model(ModelSettings(path=str(tiny_model), device="cpu"), trainable=True)
    end = loaded.tokenizer.eos_token_id
    bias = torch.zeros(loaded.model.config.vocab_size)
    bias[end] = 99.0
    head = loaded.model.lm_head
    forward = head.forward
    head.forward = lambda hidden: forward(hidden) + bias
    return LocalPolicy(loaded)


def ask(policy: LocalPolicy, floor: int, temperature: float = 1.0) -> list[Any]:
    sampling = Sampling(temperature, 1.0, 12, floor)
    (completions,) = policy.generate([Request(({"role": "user", "content": "Go."},), tuple(range(12)), sampling)])
    return completions


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("floor", [0, 1, 5, 12])
def test_an_answer_does_not_end_before_its_floor(talkative: LocalPolicy, floor: int, temperature: float) -> None:
    end = talkative.loaded.tokenizer.eos_token_id
    completions = ask(talkative, floor, temperature)
    assert all(end not in each.token_ids[:floor] for each in completions)
    assert all(len(each.token_ids) <= 12 for each in completions)
    if floor < 12:
        assert min(len(each.token_ids) for each in completions) == floor + 1  # and then it ends as it likes


def scored_alone(policy: LocalPolicy, group: list[Trajectory]) -> torch.Tensor:
    found = []
    for each in group:
        (batch,) = batches([each], 10**6, policy.loaded.device)
        found.append(score(policy.loaded.model, [each], batch, 1.0).logprobs)
    return torch.cat(found)


def test_what_was_held_back_is_not_scored(talkative: LocalPolicy) -> None:
    completions = ask(talkative, 5)
    group = [
        Trajectory(0, "performing", "spy", c.prompt_ids, c.token_ids, c.logprobs, c.allowed, 1.0, c.held_back, 5)
        for c in completions
    ]
    scores = scored_alone(talkative, group)
    sampled = [logprob for each in completions for logprob in each.logprobs]
    assert scores.tolist() == pytest.approx(sampled, abs=1e-4)
    # Without the floor in the trajectory, the likeliest token would take nearly all of the mass.
    bare = [Trajectory(0, "performing", "spy", t.prompt_ids, t.token_ids, (), (), 1.0) for t in group]
    other = scored_alone(talkative, bare)
    assert (other[:5] < scores[:5] - 1).all()


def test_the_floor_reaches_players_and_not_detectors(tiny_model: Path, tmp_path: Path) -> None:
    config = tiny_config(
        tmp_path, tiny_model, "training.iterations=1", "training.games=2", "game.max_tokens=9", "game.min_tokens=9"
    )
    watcher = Onlooker()
    train(config, RunFolder(tmp_path / "floor"), watcher, preset="writing-smollm2")
    (metrics,) = RunFolder(tmp_path / "floor").read_metrics()
    assert metrics["length/spy"] == metrics["length/civilian"] == 9
    assert metrics["length/detector"] == 1


@pytest.mark.parametrize("words", [("game.min_tokens=-1",), ("game.min_tokens=9", "game.max_tokens=8")])
def test_a_floor_out_of_range(words: tuple[str, ...]) -> None:
    from spyrl.config import load_config

    with pytest.raises(UsageError, match=r"min_tokens must be in 0\.\.max_tokens"):
        load_config("writing-smollm2", words)


def test_a_floor_needs_a_model_in_this_process() -> None:
    from spyrl.config import load_config

    words = ["model.server=http://localhost/v1", "model.path=x", "game.detectors.answer=reasoned", "game.min_tokens=5"]
    with pytest.raises(UsageError, match=r"game\.min_tokens needs the model in this process"):
        load_config("writing-smollm2", words)
