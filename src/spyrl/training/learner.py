"""The learner: the model that is trained, its reference, and the update (paper Eq. 7 and 10).

Of many processes each learns from its share of every mini-batch's games; gradients are added up, so that the step is
that of the whole mini-batch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spyrl.errors import SpyRLError
from spyrl.game import generator, named_seed
from spyrl.policy.attention import takes_trees
from spyrl.policy.local import autocast
from spyrl.policy.models import LoadedModel
from spyrl.training.logprobs import Scores
from spyrl.training.loss import importance_weights, token_losses
from spyrl.training.processes import count, gathered, rank, sum_gradients
from spyrl.training.scoring import Batch, batches, score
from spyrl.training.settings import TrainingSettings
from spyrl.training.sharding import is_sharded, shard
from spyrl.training.trajectory import Trajectory


@dataclass(frozen=True)
class Learner:
    """The trained model with everything its update needs.

    ``reference`` is a frozen copy of the model as it began; with LoRA it is ``None`` and the base weights serve,
    and with ``kl=0`` there is none at all. ``optimizers`` has one entry, or one a stage.
    """

    loaded: LoadedModel
    reference: Any | None
    optimizers: dict[str, torch.optim.AdamW]
    settings: TrainingSettings
    temperature: float
    packed: bool = False
    """Whether its model reads prefix trees; else trajectories are scored in padded rows."""

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The weights that are trained."""
        return [parameter for parameter in self.loaded.model.parameters() if parameter.requires_grad]


def make_learner(loaded: LoadedModel, settings: TrainingSettings, temperature: float) -> Learner:
    """A learner for a model that was loaded to be trained; with ``settings.sharding`` its weights are divided."""
    model = loaded.model
    reference = None
    if settings.kl > 0 and not hasattr(model, "peft_config"):
        reference = copy.deepcopy(model).requires_grad_(False).eval()
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    packed = settings.packed and takes_trees(model, loaded.device)
    if settings.sharding == "full" and count() > 1:
        shard(model, loaded.device, loaded.dtype)
        if reference is not None:
            shard(reference, loaded.device, loaded.dtype, offload=settings.reference == "cpu")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    names = ("detection", "performing") if settings.optimizer == "per_stage" else ("shared",)
    optimizers = {
        name: torch.optim.AdamW(
            parameters, lr=settings.lr, betas=settings.adam_betas, weight_decay=settings.weight_decay
        )
        for name in names
    }
    return Learner(loaded, reference, optimizers, settings, temperature, packed)


@dataclass(frozen=True)
class UpdateStatistics:
    """What an update did, as means over its scored tokens.

    ``gap_mean`` and ``gap_max`` are the absolute difference between the log-probabilities that were sampled with and
    those the learner computes before its first step; ``tokens`` counts scored tokens. ``importance_mean`` is the mean
    weight of truncated importance sampling and ``importance_capped`` the share of tokens whose weight is the cap; both
    ``None`` where it is off.
    """

    loss: float
    kl: float
    entropy: float
    clip_fraction: float
    grad_norm: float
    gap_mean: float
    gap_max: float
    lr: float
    steps: int
    tokens: int
    importance_mean: float | None = None
    importance_capped: float | None = None


def update(
    learner: Learner,
    trajectories: Sequence[Trajectory],
    *,
    iteration: int,
    seed: int,
    on_tokens: Callable[[int], None] = lambda count: None,
) -> UpdateStatistics | None:
    """Take the iteration's optimiser steps on ``trajectories``; ``None`` where there is none to learn from.

    ``trajectories`` are those of all processes; the step and the statistics are the same on each.

    Order: old log-probabilities (only where several steps are taken; before a single step they are the current
    ones), then for each epoch and mini-batch of whole games the loss, averaged over the mini-batch and
    accumulated in passes of ``batch_tokens``, gradient clipping, one AdamW step. Raises `SpyRLError` for a loss that
    is not finite, before the step that would spoil the weights.
    """
    if not trajectories:
        return None
    settings = learner.settings
    model = learner.loaded.model
    model.train()
    stages = {trajectory.stage for trajectory in trajectories}
    optimizer = learner.optimizers.get("shared") or learner.optimizers[min(stages)]
    lr = learning_rate(settings, iteration, detection=stages == {"detection"})
    for group in optimizer.param_groups:
        group["lr"] = lr
    several = settings.epochs * settings.minibatches > 1
    sums = _Sums()
    steps = 0
    with _named_dropout(learner, seed, iteration):
        old = _logprobs(learner, trajectories) if several else None
        for epoch in range(settings.epochs):
            for minibatch in _minibatches(trajectories, settings.minibatches, seed, iteration, epoch):
                optimizer.zero_grad(set_to_none=True)
                _accumulate(learner, trajectories, minibatch, old, sums, on_tokens)
                if not is_sharded(model):
                    sum_gradients(learner.parameters)
                norm = _whole_norm(torch.nn.utils.clip_grad_norm_(learner.parameters, settings.max_grad_norm))
                if not torch.isfinite(norm):
                    raise SpyRLError(
                        f"iteration {iteration}: the gradient is not finite (loss {sums.loss}); its step was not "
                        "taken. Lower training.lr, or set model.dtype=float32"
                    )
                optimizer.step()
                sums.norm += float(norm)
                steps += 1
    optimizer.zero_grad(set_to_none=True)
    sums = _together(gathered(sums))
    tokens = max(sums.tokens, 1)
    return UpdateStatistics(
        loss=sums.loss / steps,
        kl=sums.kl / tokens,
        entropy=sums.entropy / tokens,
        clip_fraction=sums.clipped / tokens,
        grad_norm=sums.norm / steps,
        gap_mean=sums.gap / max(sums.gap_tokens, 1),
        gap_max=sums.gap_max,
        lr=lr,
        steps=steps,
        tokens=sums.tokens,
        importance_mean=None if settings.importance_cap is None else sums.importance / tokens,
        importance_capped=None if settings.importance_cap is None else sums.capped / tokens,
    )


def learning_rate(settings: TrainingSettings, iteration: int, *, detection: bool = False) -> float:
    """Learning rate of ``iteration`` (from 0): a function of its number, so that nothing of it need be stored.

    ``detection`` says that the detection stage alone is trained, which may have a rate of its own.
    """
    highest = settings.lr_detection if detection and settings.lr_detection is not None else settings.lr
    if iteration < settings.warmup:
        return highest * (iteration + 1) / settings.warmup
    if settings.schedule == "constant":
        return highest
    done = (iteration - settings.warmup) / max(settings.iterations - settings.warmup, 1)
    if settings.schedule == "linear":
        return highest * max(1 - done, 0.0)
    return highest * (1 + math.cos(math.pi * min(done, 1.0))) / 2


@contextmanager
def _named_dropout(learner: Learner, seed: int, iteration: int) -> Iterator[None]:
    """Dropout draws from torch's global generators: give them this iteration's seed, and their own state back."""
    device = learner.loaded.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(named_seed(seed, iteration, rank(), "dropout"))
        yield


def _whole_norm(norm: Any) -> Tensor:
    """The norm of all gradients, of which a sharded model's processes have a part each."""
    whole: Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    return whole


@dataclass
class _Sums:
    loss: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    norm: float = 0.0
    gap: float = 0.0
    gap_max: float = 0.0
    gap_tokens: int = 0
    importance: float = 0.0
    capped: float = 0.0
    tokens: int = 0


def _together(parts: Sequence[_Sums]) -> _Sums:
    """The sums of all processes; the norm is the same on each."""
    return _Sums(
        loss=sum(part.loss for part in parts),
        kl=sum(part.kl for part in parts),
        entropy=sum(part.entropy for part in parts),
        clipped=sum(part.clipped for part in parts),
        norm=parts[0].norm,
        gap=sum(part.gap for part in parts),
        gap_max=max(part.gap_max for part in parts),
        gap_tokens=sum(part.gap_tokens for part in parts),
        importance=sum(part.importance for part in parts),
        capped=sum(part.capped for part in parts),
        tokens=sum(part.tokens for part in parts),
    )


def _minibatches(
    trajectories: Sequence[Trajectory], count: int, seed: int, iteration: int, epoch: int
) -> list[list[int]]:
    """Indices of ``trajectories`` in ``count`` parts of whole games, dealt anew each epoch."""
    games = sorted({trajectory.game for trajectory in trajectories})
    if count > 1:
        generator(seed, iteration, epoch, "minibatches").shuffle(games)
    part_of = {game: index * min(count, len(games)) // len(games) for index, game in enumerate(games)}
    parts: list[list[int]] = [[] for _ in range(min(count, len(games)))]
    for index, trajectory in enumerate(trajectories):
        parts[part_of[trajectory.game]].append(index)
    return parts


def _accumulate(
    learner: Learner,
    trajectories: Sequence[Trajectory],
    minibatch: Sequence[int],
    old: Mapping[int, Tensor] | None,
    sums: _Sums,
    on_tokens: Callable[[int], None],
) -> None:
    """Add up the gradient of this process's part of the mini-batch's mean loss, pass by pass."""
    settings, device = learner.settings, learner.loaded.device
    own = _share(trajectories, minibatch)
    members = [trajectories[index] for index in own]
    written = sum(len(trajectories[index].token_ids) for index in minibatch)
    averaged = count() if is_sharded(learner.loaded.model) else 1  # sharding means gradients over processes
    passes = _passes(learner, members)
    idle = _idle_passes(learner, [trajectories[index] for index in minibatch], len(passes))
    for batch in passes:
        scored = [members[at] for at in batch.members]
        lengths = [len(member.token_ids) for member in scored]
        reference = _reference_scores(learner, members, batch)
        with autocast(learner.loaded):
            scores = score(
                learner.loaded.model,
                members,
                batch,
                learner.temperature,
                entropy_gradient=settings.entropy > 0,
            )
        before = scores.logprobs.detach() if old is None else torch.cat([old[own[at]] for at in batch.members])
        told = _told(scored, before.device)
        cap = settings.importance_cap
        importance = None if cap is None else importance_weights(before, told, cap)
        losses = token_losses(
            scores.logprobs,
            before,
            reference.logprobs if reference else None,
            _each_token([member.advantage for member in scored], lengths, device),
            scores.entropies,
            clip=settings.clip,
            kl=settings.kl,
            entropy=settings.entropy,
            importance=importance,
        )
        if settings.average == "token":
            total = losses.loss.sum() / written
        else:
            shares = [1 / (len(minibatch) * length) for length in lengths]
            total = (losses.loss * _each_token(shares, lengths, device)).sum()
        sums.kl += float(losses.kl.detach().sum())
        sums.entropy += float(scores.entropies.detach().sum())
        sums.clipped += float(losses.clipped.sum())
        sums.tokens += sum(lengths)
        gap = (before - told)[~told.isnan()].abs()
        if len(gap):
            sums.gap += float(gap.sum())
            sums.gap_max = max(sums.gap_max, float(gap.max()))
            sums.gap_tokens += len(gap)
        if importance is not None and cap is not None:
            sums.importance += float(importance.sum())
            sums.capped += float((importance >= cap).sum())
        (total * averaged).backward()  # type: ignore[no-untyped-call]
        sums.loss += float(total.detach())
        on_tokens(sum(len(member.prompt_ids) + len(member.token_ids) for member in scored))
    for member, batch in idle:
        _reference_scores(learner, [member], batch)
        with autocast(learner.loaded):
            scores = score(learner.loaded.model, [member], batch, learner.temperature)
        (0 * scores.logprobs.sum()).backward()  # type: ignore[no-untyped-call]


def _share(trajectories: Sequence[Trajectory], indices: Sequence[int]) -> list[int]:
    """The ``indices`` of trajectories that this process learns from: games are dealt in turn."""
    return [index for index in indices if trajectories[index].game % count() == rank()]


def _passes(learner: Learner, members: Sequence[Trajectory]) -> list[Batch]:
    """The forward passes that score ``members``."""
    return list(batches(members, learner.settings.batch_tokens, learner.loaded.device, packed=learner.packed))


def _idle_passes(learner: Learner, members: Sequence[Trajectory], own: int) -> list[tuple[Trajectory, Batch]]:
    """Passes with which this process, after its ``own``, goes along with those that have more; what they give is void.

    A sharded model's layers are there only when all processes are at them. ``members`` are those of all processes.
    """
    if not is_sharded(learner.loaded.model):
        return []
    shortest = min(members, key=lambda member: len(member.prompt_ids) + len(member.token_ids))
    (batch,) = _passes(learner, [shortest])
    return [(shortest, batch)] * (max(gathered(own)) - own)


def _each_token(values: Sequence[float], lengths: Sequence[int], device: torch.device) -> Tensor:
    """Each trajectory's value for each of its tokens."""
    return torch.tensor(values, dtype=torch.float32, device=device).repeat_interleave(
        torch.tensor(lengths, device=device)
    )


def _told(scored: Sequence[Trajectory], device: torch.device) -> Tensor:
    """The log-probabilities that tokens were sampled with, NaN where the engine did not tell; shape (tokens,)."""
    told = [member.sampled_logprobs or [math.nan] * len(member.token_ids) for member in scored]
    return torch.tensor([logprob for each in told for logprob in each], dtype=torch.float32, device=device)


def _reference_scores(learner: Learner, trajectories: Sequence[Trajectory], batch: Batch) -> Scores | None:
    if learner.settings.kl == 0:
        return None
    model = learner.reference if learner.reference is not None else learner.loaded.model
    off: AbstractContextManager[Any] = nullcontext() if learner.reference is not None else model.disable_adapter()
    with torch.no_grad(), autocast(learner.loaded), off:
        return score(model, trajectories, batch, learner.temperature)


def _logprobs(learner: Learner, trajectories: Sequence[Trajectory]) -> dict[int, Tensor]:
    """The log-probabilities before the first step of this process's share of all trajectories, by index."""
    found: dict[int, Tensor] = {}
    own = _share(trajectories, range(len(trajectories)))
    members = [trajectories[index] for index in own]
    passes = _passes(learner, members)
    idle = _idle_passes(learner, trajectories, len(passes))
    with torch.no_grad(), autocast(learner.loaded):
        for batch in passes:
            scores = score(learner.loaded.model, members, batch, learner.temperature)
            lengths = [len(members[at].token_ids) for at in batch.members]
            indices = [own[at] for at in batch.members]
            found.update(zip(indices, torch.split(scores.logprobs, lengths), strict=True))
        for member, batch in idle:
            score(learner.loaded.model, [member], batch, learner.temperature)
    return found
