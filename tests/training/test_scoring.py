"""Log-probabilities of trajectories in padded rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyrl.policy import Request, Sampling
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import load_model
from spyrl.policy.settings import ModelSettings
from spyrl.training.scoring import Scores, batches, score
from spyrl.training.trajectory import Trajectory
from tiny import make_tiny_model

CPU = torch.device("cpu")


def made_of(prompt: list[int], written: list[int], allowed: tuple[tuple[int, ...], ...] = ()) -> Trajectory:
    return Trajectory(0, "detection", "detector", tuple(prompt), tuple(written), (), allowed, 1.0)


@pytest.fixture(scope="module", params=["qwen3", "llama", "gemma"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = make_tiny_model(tmp_path_factory.mktemp("models") / request.param, request.param, scale=12)
    return load_model(ModelSettings(path=str(folder), device="cpu"), trainable=True).model.eval()


def plain(model: Any, trajectory: Trajectory, temperature: float) -> tuple[list[float], list[float]]:
    """Log-probabilities and entropies from a forward pass of this trajectory alone, over the allowed ids only."""
    ids = torch.tensor([trajectory.prompt_ids + trajectory.token_ids])
    with torch.no_grad():
        logits = model(ids).logits[0, len(trajectory.prompt_ids) - 1 : -1].double() / temperature
    logprobs, entropies = [], []
    for step, token in enumerate(trajectory.token_ids):
        ids_here = list(trajectory.allowed[step]) if trajectory.allowed else list(range(logits.shape[-1]))
        p = logits[step, ids_here].softmax(0)
        logprobs.append(p[ids_here.index(token)].log().item())
        entropies.append(-(p * p.log()).sum().item())
    return logprobs, entropies


def by_trajectory(scores: Scores, group: list[Trajectory]) -> list[Scores]:
    lengths = [len(each.token_ids) for each in group]
    parts = zip(scores.logprobs.split(lengths), scores.entropies.split(lengths), strict=True)
    return [Scores(*part) for part in parts]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_scores_equal_a_plain_forward_pass(model: Any, temperature: float):
    dice = random.Random(0)
    group = [
        made_of(dice.choices(range(250), k=n), dice.choices(range(250), k=m)) for n, m in ((30, 9), (3, 20), (1, 1))
    ]
    question = dice.choices(range(250), k=40)
    group += [made_of(question, [token], ((4, 7, 9),)) for token in (4, 9, 4)]
    group.append(made_of(question, [7, 3], ((4, 7, 9), (1, 3))))
    for trajectory, scores in zip(group, by_trajectory(score(model, group, temperature, CPU), group), strict=True):
        logprobs, entropies = plain(model, trajectory, temperature)
        assert scores.logprobs.tolist() == pytest.approx(logprobs, abs=1e-4)
        assert scores.entropies.tolist() == pytest.approx(entropies, abs=1e-4)


def test_temperature_zero_scores_at_one(model: Any):
    group = [made_of([1, 2, 3], [4, 5])]
    assert torch.equal(score(model, group, 0.0, CPU).logprobs, score(model, group, 1.0, CPU).logprobs)


def test_scores_equal_what_was_recorded_in_sampling(tiny_model: Path):
    loaded = load_model(ModelSettings(path=str(tiny_model), device="cpu"), trainable=True)
    messages = ({"role": "user", "content": "Who is the spy?"},)
    requests = [
        Request(messages, (1, 2, 3), Sampling(0.8, 1.0, 15)),
        Request(messages, (4, 5, 6), Sampling(0.8), "\\boxed{", tuple(str(n) for n in range(1, 13)), "}"),
    ]
    completions = [each for answers in LocalPolicy(loaded).generate(requests) for each in answers]
    group = [
        Trajectory(0, "detection", "detector", c.prompt_ids, c.token_ids, c.logprobs, c.allowed, 1.0)
        for c in completions
    ]
    assert any(len(each.allowed) == 0 for each in group)
    assert any(len(each.allowed) > 0 for each in group)
    for trajectory, scores in zip(group, by_trajectory(score(loaded.model, group, 0.8, CPU), group), strict=True):
        assert scores.logprobs.tolist() == pytest.approx(trajectory.sampled_logprobs, abs=1e-4)


def test_a_forced_token_has_no_gradient(model: Any):
    scores = score(model, [made_of([1, 2], [5], ((5,),))], 1.0, CPU)
    assert (scores.logprobs.item(), scores.entropies.item()) == (0, 0)
    gradients = torch.autograd.grad(
        scores.logprobs.sum() + scores.entropies.sum(), list(model.parameters()), allow_unused=True
    )
    assert all(gradient is None or not gradient.any() for gradient in gradients)


def test_one_row_for_all_ballots_of_a_prompt(model: Any, monkeypatch: pytest.MonkeyPatch):
    shapes: list[tuple[int, ...]] = []
    forward = model.forward

    def watched(**options: Any) -> Any:
        shapes.append(tuple(options["input_ids"].shape))
        return forward(**options)

    monkeypatch.setattr(model, "forward", watched)
    score(model, [made_of([1, 2, 3], [token], ((4, 5, 6),)) for token in (4, 5, 6, 4)] + [made_of([7], [8])], 1.0, CPU)
    assert shapes == [(2, 3)]


TRAJECTORIES = st.lists(
    st.builds(
        made_of, st.lists(st.integers(0, 2), min_size=1, max_size=9), st.lists(st.just(1), min_size=1, max_size=4)
    ),
    max_size=14,
)


@given(TRAJECTORIES, st.integers(1, 60))
def test_batches_cover_everything_once_within_the_budget(trajectories: list[Trajectory], budget: int):
    def inputs(index: int) -> tuple[int, ...]:
        return trajectories[index].prompt_ids + trajectories[index].token_ids[:-1]

    groups = list(batches(trajectories, budget))
    assert sorted(index for group in groups for index in group) == list(range(len(trajectories)))
    for group in groups:
        rows = {inputs(index) for index in group}
        assert len(rows) == 1 or len(rows) * max(map(len, rows)) <= budget
    # The same input is read once only.
    read = [row for group in groups for row in {inputs(index) for index in group}]
    assert len(read) == len(set(read))
