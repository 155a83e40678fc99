"""The update, against the objective written a second time: one trajectory at a time, without padding or batches."""

from __future__ import annotations

import copy
import dataclasses
import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from spyrl.errors import SpyRLError
from spyrl.policy import Request, Sampling
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import load_model
from spyrl.policy.settings import LoraSettings, ModelSettings
from spyrl.training.learner import Learner, _minibatches, learning_rate, make_learner, update
from spyrl.training.settings import TrainingSettings
from spyrl.training.trajectory import Trajectory
from tiny import make_tiny_model


class Recorder(torch.optim.SGD):
    """Plain gradient descent that keeps every step's gradient."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        super().__init__(parameters, lr=0.0)
        self.gradients: list[Tensor] = []

    def step(self) -> None:
        self.gradients.append(flat([weight.grad for weight in self.param_groups[0]["params"]]))
        super().step()


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def split_like(whole: Tensor, model: Any) -> list[Tensor]:
    weights = list(model.parameters())
    parts = whole.split([weight.numel() for weight in weights])
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]


def weights_of(learner: Learner) -> Tensor:
    return flat(learner.parameters).clone()


def learner_of(
    folder: Path,
    *,
    temperature: float = 1.0,
    drift: float = 0.0,
    lora: LoraSettings | None = None,
    recorded: bool = True,
    **settings: Any,
) -> Learner:
    """A learner, its weights ``drift`` away from its reference; ``recorded``: with plain gradient descent."""
    loaded = load_model(ModelSettings(path=str(folder), device="cpu", lora=lora or LoraSettings()), trainable=True)
    learner = make_learner(loaded, TrainingSettings(**{"lr": 0.0, "max_grad_norm": 1e9, **settings}), temperature)
    generator = torch.Generator().manual_seed(1)
    for weight in learner.parameters:
        weight.data += drift * torch.randn(weight.shape, generator=generator)
    if recorded:
        learner.optimizers["shared"] = Recorder(learner.parameters)
    return learner


def gradient(learner: Learner, trajectories: Sequence[Trajectory]) -> Tensor:
    update(learner, trajectories, iteration=0, seed=0)
    return learner.optimizers["shared"].gradients[-1]


def distance(one: Tensor, other: Tensor) -> float:
    """Relative to the second's norm."""
    return float((one - other).norm() / other.norm())


def mixed_trajectories(seed: int = 0) -> list[Trajectory]:
    """Free texts of several lengths, direct ballots of several depths, same prompts, both signs of advantage."""
    dice = random.Random(seed)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(dice.choices(range(250), k=count))

    found = []
    for game in range(4):
        shared = ids(25)
        for prompt, length in ((shared, 7), (shared, 12), (ids(40), 1), (ids(3), 20)):
            advantage = dice.uniform(-2, 2)
            found.append(Trajectory(game, "performing", "civilian", prompt, ids(length), (), (), advantage))
        question = ids(30)
        for path, allowed in (
            ((50,), ((49, 50, 51, 80),)),
            ((80,), ((49, 50, 51, 80),)),
            ((50,), ((49, 50, 51, 80),)),
            ((49, 52), ((49, 50, 51, 80), (52, 125))),
        ):
            advantage = dice.uniform(-2, 2)
            found.append(Trajectory(game, "detection", "detector", question, path, (), allowed, advantage))
    return found


def plain_scores(model: Any, trajectory: Trajectory, temperature: float) -> tuple[list[Tensor], list[Tensor]]:
    ids = torch.tensor([trajectory.prompt_ids + trajectory.token_ids])
    logits = model(ids).logits[0] / temperature
    logprobs, entropies = [], []
    for step, token in enumerate(trajectory.token_ids):
        row = logits[len(trajectory.prompt_ids) - 1 + step]
        among = list(trajectory.allowed[step]) if trajectory.allowed else list(range(len(row)))
        p = row[among].softmax(0)
        logprobs.append(p[among.index(token)].log())
        entropies.append(-(p * p.log()).sum())
    return logprobs, entropies


def plain_loss(
    model: Any,
    reference: Any,
    trajectories: Sequence[Trajectory],
    settings: TrainingSettings,
    temperature: float,
    old: Sequence[Sequence[float]] | None = None,
) -> Tensor:
    """The objective as the paper writes it (Eq. 7 and 10, with k3), token by token."""
    sequences = []
    for index, trajectory in enumerate(trajectories):
        logprobs, entropies = plain_scores(model, trajectory, temperature)
        with torch.no_grad():
            anchors, _ = plain_scores(reference, trajectory, temperature)
        losses = []
        for step, logprob in enumerate(logprobs):
            before = logprob.item() if old is None else old[index][step]
            ratio = (logprob - before).exp()
            gain = ratio * trajectory.advantage
            if trajectory.advantage > 0 and ratio.item() > 1 + settings.clip:
                gain = torch.tensor((1 + settings.clip) * trajectory.advantage)
            if trajectory.advantage < 0 and ratio.item() < 1 - settings.clip:
                gain = torch.tensor((1 - settings.clip) * trajectory.advantage)
            delta = anchors[step] - logprob
            losses.append(-gain + settings.kl * (delta.exp() - delta - 1) - settings.entropy * entropies[step])
        sequences.append(torch.stack(losses))
    if settings.average == "token":
        return torch.cat(sequences).mean()
    return torch.stack([losses.mean() for losses in sequences]).mean()


def plain_gradient(model: Any, loss: Tensor) -> Tensor:
    return flat(torch.autograd.grad(loss, [weight for weight in model.parameters() if weight.requires_grad]))


@pytest.fixture(scope="module")
def sharp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "sharp", scale=12)


# Loss and gradient


@pytest.mark.parametrize("architecture", ["qwen3", "llama", "gemma"])
@pytest.mark.parametrize("average", ["sequence", "token"])
def test_loss_and_gradient_equal_the_plain_objective(tmp_path: Path, architecture: str, average: str):
    folder = make_tiny_model(tmp_path / "model", architecture, scale=12)
    learner = learner_of(folder, temperature=0.8, drift=0.02, kl=0.5, entropy=0.05, average=average, batch_tokens=150)
    trajectories = mixed_trajectories()
    loss = plain_loss(learner.loaded.model, learner.reference, trajectories, learner.settings, 0.8)
    expected = plain_gradient(learner.loaded.model, loss)
    statistics = update(learner, trajectories, iteration=0, seed=0)
    (found,) = learner.optimizers["shared"].gradients
    assert distance(found, expected) < 1e-5
    assert statistics.loss == pytest.approx(loss.item(), abs=1e-5)
    assert statistics.grad_norm == pytest.approx(expected.norm().item(), rel=1e-5)
    assert statistics.kl > 0.01
    assert statistics.clip_fraction == 0  # before a first step, old and new are the same
    assert statistics.tokens == sum(len(trajectory.token_ids) for trajectory in trajectories)


@pytest.mark.parametrize("average", ["sequence", "token"])
@pytest.mark.parametrize("minibatches", [1, 3])
def test_several_steps_equal_the_plain_objective(sharp: Path, average: str, minibatches: int):
    """Old log-probabilities are those of before the first step, and the clip is at work after it."""
    settings = {"kl": 0.1, "entropy": 0.02, "lr": 0.01, "epochs": 3, "clip": 0.05}
    learner = learner_of(sharp, drift=0.02, average=average, minibatches=minibatches, batch_tokens=200, **settings)
    trajectories = mixed_trajectories()
    model = copy.deepcopy(learner.loaded.model)
    with torch.no_grad():
        old = [[x.item() for x in plain_scores(model, each, 1.0)[0]] for each in trajectories]
    statistics = update(learner, trajectories, iteration=4, seed=7)

    clipped = dict.fromkeys((1, -1), 0)
    steps = [(epoch, part) for epoch in range(3) for part in _minibatches(trajectories, minibatches, 7, 4, epoch)]
    assert statistics.steps == len(steps) == 3 * minibatches
    for step, (_, part) in enumerate(steps):
        members, before = [trajectories[index] for index in part], [old[index] for index in part]
        for member, logprobs in zip(members, before, strict=True):
            for new, was in zip(plain_scores(model, member, 1.0)[0], logprobs, strict=True):
                sign = 1 if member.advantage > 0 else -1
                clipped[sign] += sign * math.exp(new.item() - was) > sign * (1 + sign * 0.05)
        loss = plain_loss(model, learner.reference, members, learner.settings, 1.0, before)
        expected = plain_gradient(model, loss)
        assert distance(learner.optimizers["shared"].gradients[step], expected) < 1e-4
        for weight, slope in zip(model.parameters(), split_like(expected, model), strict=True):
            weight.data -= learner.settings.lr * slope
    assert min(clipped.values()) > 5
    assert statistics.clip_fraction == pytest.approx(sum(clipped.values()) / statistics.tokens, abs=0.01)
    assert distance(weights_of(learner), flat(list(model.parameters()))) < 1e-5


@pytest.mark.parametrize("batch_tokens", [1, 64, 150, 10_000])
def test_the_gradient_does_not_depend_on_batches(sharp: Path, batch_tokens: int):
    settings = {"drift": 0.02, "kl": 0.2, "entropy": 0.02}
    trajectories = mixed_trajectories(1)
    whole = gradient(learner_of(sharp, batch_tokens=100_000, **settings), trajectories)
    assert distance(gradient(learner_of(sharp, batch_tokens=batch_tokens, **settings), trajectories), whole) < 1e-5


def test_the_gradient_does_not_depend_on_the_order(sharp: Path):
    trajectories = mixed_trajectories(2)
    shuffled = random.Random(0).sample(trajectories, len(trajectories))
    for settings in ({}, {"epochs": 2, "minibatches": 2, "lr": 0.01}):
        learner, other = (learner_of(sharp, drift=0.02, kl=0.2, batch_tokens=300, **settings) for _ in range(2))
        update(learner, trajectories, iteration=0, seed=0)
        update(other, shuffled, iteration=0, seed=0)
        for one, two in zip(*(each.optimizers["shared"].gradients for each in (other, learner)), strict=True):
            assert distance(one, two) < 1e-4


def test_gradient_checkpointing_changes_nothing(sharp: Path):
    trajectories = mixed_trajectories(3)[:6]
    plain = gradient(learner_of(sharp, drift=0.02, kl=0.2), trajectories)
    learner = learner_of(sharp, drift=0.02, kl=0.2, gradient_checkpointing=True)
    assert distance(gradient(learner, trajectories), plain) < 1e-5
    assert LocalPolicy(learner.loaded).generate(
        [Request(({"role": "user", "content": "?"},), (1,), Sampling(max_tokens=3))]
    )


@pytest.mark.parametrize("advantage", [1.5, -1.5])
def test_the_clip_takes_the_whole_gradient_away(sharp: Path, advantage: float):
    """A second step on a policy that went far enough in its advantage's direction has nothing left to do."""
    trajectory = dataclasses.replace(mixed_trajectories()[2], advantage=advantage)
    assert len(trajectory.token_ids) == 1
    learner = learner_of(sharp, kl=0.0, epochs=2, lr=1e-5, clip=0.001)
    update(learner, [trajectory], iteration=0, seed=0)
    first, second = learner.optimizers["shared"].gradients
    assert first.norm() > 0.1
    assert torch.equal(second, torch.zeros_like(second))
    wide = learner_of(sharp, kl=0.0, epochs=2, lr=1e-5, clip=0.9)
    update(wide, [trajectory], iteration=0, seed=0)
    assert wide.optimizers["shared"].gradients[1].norm() > 0


# The step


@pytest.mark.parametrize("kind", ["text", "ballot"])
def test_a_step_moves_the_completion_with_its_advantage(sharp: Path, kind: str):
    trajectory = mixed_trajectories()[1 if kind == "text" else 7]
    for advantage in (1.0, -1.0):
        learner = learner_of(sharp, recorded=False, lr=1e-3)
        before = sum(plain_scores(learner.loaded.model, trajectory, 1.0)[0]).item()
        update(learner, [dataclasses.replace(trajectory, advantage=advantage)], iteration=0, seed=0)
        after = sum(plain_scores(learner.loaded.model, trajectory, 1.0)[0]).item()
        assert (after - before) * advantage > 0.01


def test_gradients_are_clipped_to_the_norm(sharp: Path):
    trajectories = mixed_trajectories()
    free = learner_of(sharp)
    whole = gradient(free, trajectories)
    learner = learner_of(sharp, max_grad_norm=0.01)
    statistics = update(learner, trajectories, iteration=0, seed=0)
    (found,) = learner.optimizers["shared"].gradients
    assert found.norm().item() == pytest.approx(0.01, rel=1e-3)
    assert distance(found / found.norm(), whole / whole.norm()) < 1e-4
    assert statistics.grad_norm == pytest.approx(whole.norm().item(), rel=1e-5)  # as it was before


def test_statistics_by_hand(sharp: Path):
    learner = learner_of(sharp, drift=0.02, lr=0.25)
    given = mixed_trajectories()
    scores = [plain_scores(learner.loaded.model, each, 1.0) for each in given]
    logprobs = [[x.item() for x in own] for own, _ in scores]
    entropies = [x.item() for _, own in scores for x in own]
    told = [  # one is told how it was sampled, 0.3 off at its first token; another exactly; the others not at all
        dataclasses.replace(given[0], sampled_logprobs=(logprobs[0][0] - 0.3, *logprobs[0][1:])),
        dataclasses.replace(given[1], sampled_logprobs=tuple(logprobs[1])),
        *given[2:],
    ]
    statistics = update(learner, told, iteration=0, seed=0)
    assert statistics.entropy == pytest.approx(sum(entropies) / len(entropies), abs=1e-4)
    assert statistics.gap_max == pytest.approx(0.3, abs=1e-4)
    assert statistics.gap_mean == pytest.approx(0.3 / (len(logprobs[0]) + len(logprobs[1])), abs=1e-4)
    assert (statistics.lr, statistics.steps) == (0.25, 1)
    divergences = []
    for each, own in zip(given, logprobs, strict=True):
        anchors, _ = plain_scores(learner.reference, each, 1.0)
        divergences += [math.exp(a.item() - x) - (a.item() - x) - 1 for a, x in zip(anchors, own, strict=True)]
    assert statistics.kl == pytest.approx(sum(divergences) / len(divergences), rel=1e-3)


def test_nothing_to_learn_from_changes_nothing(sharp: Path):
    learner = learner_of(sharp, recorded=False, lr=0.1, weight_decay=0.5)
    before = weights_of(learner)
    assert update(learner, [], iteration=0, seed=0) is None
    assert torch.equal(weights_of(learner), before)


def test_the_reference_stays_as_it_began(sharp: Path):
    learner = learner_of(sharp, recorded=False, lr=1e-2, epochs=2)
    before, began = weights_of(learner), flat(list(learner.reference.parameters()))
    assert torch.equal(before, began)
    first = update(learner, mixed_trajectories(), iteration=0, seed=0)
    second = update(learner, mixed_trajectories(), iteration=1, seed=0)
    assert torch.equal(flat(list(learner.reference.parameters())), began)
    assert not torch.equal(weights_of(learner), before)
    assert second.kl > first.kl > 0


def test_without_kl_there_is_no_reference(sharp: Path):
    learner = learner_of(sharp, kl=0.0)
    assert learner.reference is None
    assert update(learner, mixed_trajectories(), iteration=0, seed=0).kl == 0


@pytest.mark.parametrize("advantage", [math.inf, math.nan, -math.inf])
def test_a_gradient_that_is_not_finite_stops_before_the_step(sharp: Path, advantage: float):
    learner = learner_of(sharp, recorded=False, lr=0.1)
    update(learner, mixed_trajectories(), iteration=0, seed=0)
    before, optimizer = weights_of(learner), copy.deepcopy(learner.optimizers["shared"].state_dict())
    trajectories = mixed_trajectories()
    trajectories[5] = dataclasses.replace(trajectories[5], advantage=advantage)
    with pytest.raises(SpyRLError, match=r"^iteration 3: the gradient is not finite \(loss .*\); .*training\.lr"):
        update(learner, trajectories, iteration=3, seed=0)
    assert torch.equal(weights_of(learner), before)
    after = learner.optimizers["shared"].state_dict()
    for index, state in optimizer["state"].items():
        assert all(torch.equal(value, after["state"][index][name]) for name, value in state.items())


# Optimisers


def test_one_optimiser_a_stage_keeps_its_own_state(sharp: Path):
    trajectories = mixed_trajectories()
    detection = [each for each in trajectories if each.stage == "detection"]
    performing = [each for each in trajectories if each.stage == "performing"]
    learner = learner_of(sharp, recorded=False, lr=1e-3, optimizer="per_stage")
    assert set(learner.optimizers) == {"detection", "performing"}

    update(learner, detection, iteration=0, seed=0)
    assert not learner.optimizers["performing"].state
    kept = copy.deepcopy(learner.optimizers["detection"].state_dict()["state"])
    assert kept
    middle = copy.deepcopy(learner.loaded.model)

    update(learner, performing, iteration=1, seed=0)
    after = learner.optimizers["detection"].state_dict()["state"]
    assert all(torch.equal(value, after[index][name]) for index in kept for name, value in kept[index].items())
    # The second stage's first step is a first step: as that of a learner that starts from these weights.
    fresh = learner_of(sharp, recorded=False, lr=1e-3, optimizer="per_stage")
    fresh.loaded.model.load_state_dict(middle.state_dict())
    update(fresh, performing, iteration=1, seed=0)
    assert distance(weights_of(learner), weights_of(fresh)) < 1e-6
    # With a shared state it is not.
    shared = learner_of(sharp, recorded=False, lr=1e-3)
    update(shared, detection, iteration=0, seed=0)
    update(shared, performing, iteration=1, seed=0)
    assert distance(weights_of(shared), weights_of(fresh)) > 1e-4


# Adapters


def test_training_adapters_leaves_the_base_alone(sharp: Path):
    learner = learner_of(sharp, recorded=False, lr=1e-2, lora=LoraSettings(rank=4))
    assert learner.reference is None
    model = learner.loaded.model
    base = {name: value.clone() for name, value in model.named_parameters() if "lora_" not in name}
    adapters = {name for name, value in model.named_parameters() if value.requires_grad}
    assert adapters
    assert all("lora_" in name for name in adapters)

    first = update(learner, mixed_trajectories(), iteration=0, seed=0)
    assert first.kl == 0  # fresh adapters do nothing, and the base is the reference
    second = update(learner, mixed_trajectories(), iteration=1, seed=0)
    assert second.kl > 1e-6
    assert all(torch.equal(value, base[name]) for name, value in model.named_parameters() if name in base)


def test_adapter_gradients_equal_the_plain_objective(sharp: Path):
    learner = learner_of(sharp, drift=0.05, kl=0.5, lora=LoraSettings(rank=4), batch_tokens=200)
    base = load_model(ModelSettings(path=str(sharp), device="cpu"), trainable=False).model
    trajectories = mixed_trajectories()[:8]
    loss = plain_loss(learner.loaded.model, base, trajectories, learner.settings, 1.0)
    expected = plain_gradient(learner.loaded.model, loss)
    assert distance(gradient(learner, trajectories), expected) < 1e-5


def test_dropout_is_the_same_in_the_same_iteration(sharp: Path):
    """A run that is resumed goes on as if it had never stopped, adapters' dropout included."""
    lora = LoraSettings(rank=4, dropout=0.5)

    def moved(iteration: int, global_seed: int) -> Tensor:
        learner = learner_of(sharp, drift=0.05, lora=lora)
        torch.manual_seed(global_seed)
        update(learner, mixed_trajectories()[:4], iteration=iteration, seed=3)
        return learner.optimizers["shared"].gradients[0]

    assert torch.equal(moved(2, global_seed=0), moved(2, global_seed=1))
    assert distance(moved(2, global_seed=0), moved(3, global_seed=0)) > 0.01


# Mini-batches


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=25),
    st.integers(1, 6),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_minibatches_keep_games_whole(games: list[int], count: int, iteration: int, epoch: int):
    trajectories = [Trajectory(game, "detection", "detector", (1,), (1,), (), (), 1.0) for game in games]
    parts = _minibatches(trajectories, count, 5, iteration, epoch)
    assert sorted(index for part in parts for index in part) == list(range(len(games)))
    assert len(parts) == min(count, len(set(games)))
    members = [{games[index] for index in part} for part in parts]
    assert all(members)
    assert sum(map(len, members)) == len(set(games))  # no game is in two parts
    assert max(map(len, members)) - min(map(len, members)) <= 1
    # Which game is where does not depend on the order of the trajectories.
    turned = _minibatches(trajectories[::-1], count, 5, iteration, epoch)
    assert [{games[::-1][index] for index in part} for part in turned] == members


def test_minibatches_are_dealt_anew_each_epoch():
    trajectories = [Trajectory(game, "detection", "detector", (1,), (1,), (), (), 1.0) for game in range(12)]
    deals = {str(_minibatches(trajectories, 3, 0, iteration, epoch)) for iteration in range(3) for epoch in range(3)}
    assert len(deals) == 9
    assert _minibatches(trajectories, 3, 0, 1, 1) == _minibatches(trajectories, 3, 0, 1, 1)


def test_every_trajectory_is_learnt_from_once_an_epoch(sharp: Path, monkeypatch: pytest.MonkeyPatch):
    from spyrl.training import learner as module

    seen: list[Trajectory] = []
    real = module.score

    def watched(model: Any, members: Sequence[Trajectory], batch: Any, *rest: Any, **options: Any) -> Any:
        if torch.is_grad_enabled():
            seen.extend(members[index] for index in batch.members)
        return real(model, members, batch, *rest, **options)

    monkeypatch.setattr(module, "score", watched)
    trajectories = [dataclasses.replace(each, advantage=float(at)) for at, each in enumerate(mixed_trajectories())]
    counted: list[int] = []
    learner = learner_of(sharp, epochs=3, minibatches=2, batch_tokens=100)
    statistics = update(learner, trajectories, iteration=0, seed=0, on_tokens=counted.append)
    assert Counter(each.advantage for each in seen) == {float(at): 3 for at in range(len(trajectories))}
    assert statistics.tokens == 3 * sum(len(each.token_ids) for each in trajectories)
    assert sum(counted) == 3 * sum(len(each.prompt_ids) + len(each.token_ids) for each in trajectories)


# Learning rate


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [8.0, 8.0, 8.0, 8.0, 8.0]),
        ({"warmup": 4}, [2.0, 4.0, 6.0, 8.0, 8.0]),
        ({"schedule": "linear"}, [8.0, 6.0, 4.0, 2.0, 0.0]),
        ({"schedule": "cosine"}, [8.0, 4 + 4 * math.sqrt(0.5), 4.0, 4 - 4 * math.sqrt(0.5), 0.0]),
        ({"warmup": 2, "schedule": "linear"}, [4.0, 8.0, 8.0, 4.0, 0.0]),
        ({"warmup": 2, "schedule": "cosine"}, [4.0, 8.0, 8.0, 4.0, 0.0]),
        ({"warmup": 9, "schedule": "cosine"}, [8 / 9, 16 / 9, 24 / 9, 32 / 9, 40 / 9]),
    ],
)
def test_learning_rates_by_hand(settings: dict[str, Any], expected: list[float]):
    made = TrainingSettings(iterations=4, lr=8.0, **settings)
    assert [learning_rate(made, iteration) for iteration in range(5)] == pytest.approx(expected, abs=1e-12)


@given(st.integers(1, 30), st.integers(0, 40), st.sampled_from(["constant", "linear", "cosine"]), st.integers(0, 60))
def test_learning_rates_stay_in_their_range(iterations: int, warmup: int, schedule: Any, iteration: int):
    made = TrainingSettings(iterations=iterations, warmup=warmup, schedule=schedule, lr=0.5)
    assert 0 <= learning_rate(made, iteration) <= 0.5
    if iteration < iterations:
        assert learning_rate(made, iteration) > 0  # no iteration of the run is wasted


def test_the_step_is_taken_at_the_iterations_rate(sharp: Path):
    trajectories = mixed_trajectories()[:4]
    learner = learner_of(sharp, lr=0.4, warmup=4)
    before = weights_of(learner)
    statistics = update(learner, trajectories, iteration=1, seed=0)
    assert statistics.lr == 0.2
    (found,) = learner.optimizers["shared"].gradients
    assert distance(before - weights_of(learner), 0.2 * found) < 1e-4


def test_an_update_leaves_torchs_generator_alone(tmp_path: Path) -> None:
    learner = make_learner(
        load_model(ModelSettings(path=str(make_tiny_model(tmp_path / "m"))), trainable=True), TrainingSettings(), 1.0
    )
    before = torch.get_rng_state()
    update(learner, [Trajectory(0, "detection", "detector", (1, 2), (3,), (), (), 1.0)], iteration=0, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
