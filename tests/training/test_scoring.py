"""Log-probabilities of trajectories, in prefix trees and in padded rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyrl.policy import Request, Sampling, attention
from spyrl.policy.attention import NAME, takes_trees
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import load_model
from spyrl.policy.settings import ModelSettings
from spyrl.training.logprobs import Scores
from spyrl.training.scoring import batches, score
from spyrl.training.trajectory import Trajectory
from tiny import make_tiny_model

CPU = torch.device("cpu")


def made_of(
    prompt: list[int], written: list[int], allowed: tuple[tuple[int, ...], ...] = (), game: int = 0
) -> Trajectory:
    return Trajectory(game, "detection", "detector", tuple(prompt), tuple(written), (), allowed, 1.0)


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


def scored(
    model: Any, group: list[Trajectory], temperature: float, *, packed: bool, budget: int = 4096
) -> list[Scores]:
    """Scores of each trajectory, in order."""
    found: dict[int, Scores] = {}
    for batch in batches(group, budget, CPU, packed=packed):
        scores = score(model, group, batch, temperature)
        lengths = [len(group[index].token_ids) for index in batch.members]
        parts = zip(scores.logprobs.split(lengths), scores.entropies.split(lengths), strict=True)
        found.update(zip(batch.members, (Scores(*part) for part in parts), strict=True))
    return [found[index] for index in range(len(group))]


both_layouts = pytest.mark.parametrize("packed", [True, False], ids=["trees", "rows"])


def games_of(dice: random.Random) -> list[Trajectory]:
    """Three games: players that share a document, ballots of one prompt, one-token prompts, ties and repetitions."""
    group = []
    for game in range(3):
        document = dice.choices(range(250), k=30)
        outputs = [dice.choices(range(250), k=length) for length in (9, 9, 20, 1)]
        outputs.append(outputs[0][:5] + dice.choices(range(250), k=4))  # begins like another one
        outputs.append(list(outputs[0]))  # and one twice
        for output in outputs:
            group.append(made_of(document, output, game=game))
        group.append(made_of([*document[:18], *dice.choices(range(250), k=12)], outputs[1], game=game))  # the spy
        question = dice.choices(range(250), k=40)
        group += [made_of(question, [token], ((4, 7, 9),), game=game) for token in (4, 9, 4)]
        group.append(made_of(question, [7, 3], ((4, 7, 9), (1, 3)), game=game))
        group.append(made_of([5], [6, 7], game=game))
        group.append(made_of([5], [6], game=game))
    return group


@both_layouts
@pytest.mark.parametrize("budget", [1, 100, 4096])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_scores_equal_a_plain_forward_pass(model: Any, temperature: float, packed: bool, budget: int):
    group = games_of(random.Random(0))
    found = scored(model, group, temperature, packed=packed, budget=budget)
    for trajectory, scores in zip(group, found, strict=True):
        logprobs, entropies = plain(model, trajectory, temperature)
        assert scores.logprobs.tolist() == pytest.approx(logprobs, abs=1e-4)
        assert scores.entropies.tolist() == pytest.approx(entropies, abs=1e-4)


@pytest.mark.parametrize("queries", [256, 7], ids=["one block", "many blocks"])
def test_trees_and_rows_give_the_same_gradient(model: Any, queries: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attention, "_QUERIES", queries)
    group = games_of(random.Random(1))
    gradients = []
    for packed in (True, False):
        found = scored(model, group, 1.0, packed=packed)
        total = sum((at % 5 - 2) * each.logprobs.sum() + each.entropies.sum() for at, each in enumerate(found))
        parts = torch.autograd.grad(total, list(model.parameters()))
        gradients.append(torch.cat([part.flatten() for part in parts]))
    assert (gradients[0] - gradients[1]).norm() / gradients[1].norm() < 1e-5


def test_blocks_leave_out_what_their_queries_do_not_see(model: Any, monkeypatch: pytest.MonkeyPatch):
    assert model.config._attn_implementation == NAME
    group = games_of(random.Random(2))
    whole = scored(model, group, 1.0, packed=True)
    monkeypatch.setattr(attention, "_QUERIES", 8)
    (laid, *_) = batches(group, 10**6, CPU)
    blocks = attention.attention_inputs(laid.seen, CPU, NAME, torch.float32)["blocks"]
    assert [block.begin for block in blocks] == list(range(0, laid.ids.shape[1], 8))
    assert any(isinstance(block.keys, torch.Tensor) for block in blocks)
    computed = sum(block.mask[0].numel() for block in blocks)
    assert computed < 0.6 * laid.ids.shape[1] ** 2
    for one, other in zip(whole, scored(model, group, 1.0, packed=True), strict=True):
        assert one.logprobs.tolist() == pytest.approx(other.logprobs.tolist(), abs=1e-5)


def test_flex_attention_sees_what_sdpa_sees():
    """Uncompiled, as on a CPU; models get it on a GPU."""
    (laid, *_) = batches(games_of(random.Random(2)), 10**6, CPU)
    heads, groups, size = 4, 2, 16
    draw = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(laid.ids.shape[0], count, laid.ids.shape[1], size, generator=draw)
        for count in (heads, heads // groups, heads // groups)
    )
    module = torch.nn.Module()
    plain = attention.attention_inputs(laid.seen, CPU, NAME, torch.float32)
    expected, _ = attention.attend(module, query, key, value, plain["attention_mask"], blocks=plain["blocks"])
    found, _ = attention.attend(module, query, key, value, attention.block_mask(torch.from_numpy(laid.seen)))
    assert torch.allclose(found, expected, atol=1e-5)
    cut = 20  # the first tokens in a cache
    cached = attention.block_mask(torch.from_numpy(laid.seen), cut)
    found, _ = attention.attend(module, query[:, :, cut:], key, value, cached)
    assert torch.allclose(found, expected[:, cut:], atol=1e-5)


def test_eager_attention_reads_trees_too(model: Any):
    group = games_of(random.Random(2))
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation("eager")
        found = [scored(model, group, 1.0, packed=packed) for packed in (True, False)]
    finally:
        model.set_attn_implementation(before)
    for one, other in zip(*found, strict=True):
        assert one.logprobs.tolist() == pytest.approx(other.logprobs.tolist(), abs=1e-4)


def test_trees_compute_each_distinct_token_once(model: Any):
    group = games_of(random.Random(3))
    read = {
        (each.game, (each.prompt_ids + each.token_ids[:-1])[:length])
        for each in group
        for length in range(1, len(each.prompt_ids) + len(each.token_ids))
    }
    laid = list(batches(group, 10**6, CPU, packed=True))
    # Padding has exits right behind it and position 0, as one-token inputs have.
    assert sum(int((batch.positions > 0).sum()) for batch in laid) == len([row for _, row in read if len(row) > 1])


def test_models_that_read_trees_are_known(model: Any, monkeypatch: pytest.MonkeyPatch):
    assert takes_trees(model, CPU)
    training = model.training
    forward = model.forward

    def deaf(**options: Any) -> Any:  # attends to whatever came before, as a recurrent layer does
        options |= {"attention_mask": torch.ones_like(options["input_ids"]), "blocks": None}
        return forward(**options)

    monkeypatch.setattr(model, "forward", deaf)
    assert not takes_trees(model, CPU)

    def refusing(**options: Any) -> Any:
        raise ValueError("a mask of four dimensions?")

    monkeypatch.setattr(model, "forward", refusing)
    assert not takes_trees(model, CPU)
    assert model.training == training


def test_models_with_windows_are_padded(model: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model.config, "layer_types", ["full_attention", "sliding_attention"], raising=False)
    assert not takes_trees(model, CPU)


@both_layouts
def test_temperature_zero_scores_at_one(model: Any, packed: bool):
    group = [made_of([1, 2, 3], [4, 5])]
    zero, one = (scored(model, group, temperature, packed=packed)[0] for temperature in (0.0, 1.0))
    assert torch.equal(zero.logprobs, one.logprobs)


@both_layouts
def test_scores_equal_what_was_recorded_in_sampling(tiny_model: Path, packed: bool):
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
    for trajectory, scores in zip(group, scored(loaded.model, group, 0.8, packed=packed), strict=True):
        assert scores.logprobs.tolist() == pytest.approx(trajectory.sampled_logprobs, abs=1e-4)


@both_layouts
def test_a_forced_token_has_no_gradient(model: Any, packed: bool):
    (scores,) = scored(model, [made_of([1, 2], [5], ((5,),))], 1.0, packed=packed)
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
    group = [made_of([1, 2, 3], [token], ((4, 5, 6),)) for token in (4, 5, 6, 4)] + [made_of([7], [8])]
    scored(model, group, 1.0, packed=False)
    assert shapes.pop() == (2, 3)
    scored(model, group, 1.0, packed=True)
    assert shapes.pop() == (1, 4)  # one game, one tree


TRAJECTORIES = st.lists(
    st.builds(
        made_of, st.lists(st.integers(0, 2), min_size=1, max_size=9), st.lists(st.just(1), min_size=1, max_size=4)
    ),
    max_size=14,
)


@given(TRAJECTORIES, st.integers(1, 60), st.booleans())
def test_batches_cover_everything_once_within_the_budget(trajectories: list[Trajectory], budget: int, packed: bool):
    laid = list(batches(trajectories, budget, CPU, packed=packed))
    assert sorted(index for batch in laid for index in batch.members) == list(range(len(trajectories)))
    for batch in laid:
        rows, width = batch.ids.shape
        assert rows == 1 or rows * width <= budget
        assert batch.places.shape == (2, sum(len(trajectories[index].token_ids) for index in batch.members))
        assert batch.positions.shape == batch.ids.shape


@given(TRAJECTORIES)
def test_what_predicts_a_token_is_read_before_it(trajectories: list[Trajectory]):
    for packed in (True, False):
        for batch in batches(trajectories, 10**6, CPU, packed=packed):
            written = [
                (each.prompt_ids + each.token_ids)[len(each.prompt_ids) + at - 1]
                for each in (trajectories[index] for index in batch.members)
                for at in range(len(each.token_ids))
            ]
            assert batch.ids[tuple(batch.places)].tolist() == written
