r"""What an iteration computes: tokens and floating-point operations, stage by stage, as the code lays them out.

A multiplication and an addition are two operations. Forward, for T tokens, P pairs of a query and a key that is
computed for it (in each layer), and K places whose logits are computed (Kaplan et al. 2020, arXiv 2001.08361, Table 1;
Hoffmann et al. 2022, arXiv 2203.15556, appendix F; attention by itself, since prefix trees leave pairs out):

.. math:: F = 2 N_{linear} T + 4 L d_{queries} P + 2 d V K

The backward pass takes twice that: the gradient of inputs and of weights. With LoRA the frozen weights need the first
only, so N once; the adapters twice. Gradient checkpointing computes the layers forward once more. The reference's
scores are one forward pass, and so are the old log-probabilities where an iteration takes several steps. Norms,
rotations and softmaxes are left out, as is what fused attention computes again in its backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from spyrl.config import Config
from spyrl.game import Stage
from spyrl.planning.imagined import Call, Games
from spyrl.planning.shape import Shape
from spyrl.policy.attention import keys_of_blocks
from spyrl.policy.local import grouped, near_those_alike
from spyrl.policy.prefill import sharing
from spyrl.training.scoring import batches
from spyrl.training.trajectory import Trajectory, trajectories

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Forward:
    """One forward pass: tokens, pairs of query and key in a layer, and places whose logits are computed.

    ``rows`` and ``width`` are its input's, ``written`` the tokens that are scored (some places may score several).
    """

    rows: int
    width: int
    pairs: int
    logits: int
    written: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of the pass, padding included."""
        return self.rows * self.width


def forward_flops(shape: Shape, tokens: float, pairs: float, logits: float, *, adapters: bool = True) -> float:
    """Operations of a forward pass (see the module); ``adapters`` says whether LoRA's are computed, too."""
    weights = shape.linear + (shape.adapters if adapters else 0)
    return 2 * weights * tokens + 4 * shape.layers * shape.queries * pairs + 2 * shape.head * logits


def backward_flops(shape: Shape, tokens: float, pairs: float, logits: float) -> float:
    """Operations of the backward pass of such a forward pass."""
    if not shape.adapters:
        return 2 * forward_flops(shape, tokens, pairs, logits)
    frozen = 2 * shape.linear * tokens + 2 * shape.head * logits
    return frozen + 2 * (2 * shape.adapters * tokens + 4 * shape.layers * shape.queries * pairs)


# Reading and writing


@dataclass(frozen=True)
class Decoding:
    """``rows`` answers written side by side after prompts of (padded) ``width`` tokens, in ``steps`` forward passes."""

    rows: int
    width: int
    steps: int

    @property
    def pairs(self) -> int:
        """Pairs of query and key in a layer, over all steps."""
        return self.rows * sum(self.width + step for step in range(1, self.steps + 1))


@dataclass(frozen=True)
class Generation:
    """What one stage of a sample of games takes to generate.

    ``unshared`` is what is read where each answer's prompt is read by itself, as one pass.
    """

    reading: tuple[Forward, ...]
    decoding: tuple[Decoding, ...]
    unshared: Forward
    written: int

    @property
    def read(self) -> int:
        """Tokens that are read."""
        return sum(each.tokens for each in self.reading)

    def read_flops(self, shape: Shape) -> float:
        """Operations to read."""
        return sum(forward_flops(shape, each.tokens, each.pairs, each.logits) for each in self.reading)

    def write_flops(self, shape: Shape) -> float:
        """Operations to write."""
        return sum(
            forward_flops(shape, each.rows * each.steps, each.pairs, each.rows * each.steps) for each in self.decoding
        )


def generation(calls: Sequence[Call], batch_tokens: int, *, trees: bool) -> Generation:
    """How `spyrl.policy.local.LocalPolicy` answers these calls."""
    reading: list[Forward] = []
    decoding: list[Decoding] = []
    prompts: list[int] = []
    written = 0
    for call in calls:
        rows = {at: np.asarray(prompt, dtype=np.int64) for at, prompt in enumerate(call.prompts)}
        samples = call.samples
        prompts += [len(row) for row, count in zip(call.prompts, samples, strict=True) for _ in range(count)]
        written += sum(samples) * max(call.written, 1)
        sizes = {at: len(row) + (call.limit if call.written else 0) for at, row in rows.items()}
        ordered = near_those_alike({at: (call.prompts[at], sizes[at]) for at in rows})
        counted = (lambda at: samples[at]) if call.written else (lambda at: call.nodes)  # noqa: B023
        for batch in grouped(ordered, batch_tokens, sizes.__getitem__, counted):
            reading += _reading([rows[at] for at in batch], call.nodes, trees=trees)
            if call.written:
                width = max(len(rows[at]) for at in batch)
                decoding.append(Decoding(sum(samples[at] for at in batch), width, call.written - 1))
    unshared = Forward(1, sum(prompts), sum(length**2 for length in prompts), len(prompts))
    return Generation(tuple(reading), tuple(decoding), unshared, written)


def _reading(rows: Sequence[NDArray[np.int64]], nodes: int, *, trees: bool) -> Iterator[Forward]:
    """The forward passes of `spyrl.policy.prefill.read`."""
    layout = sharing(rows) if trees else None
    if layout is not None:
        if layout.root:
            yield Forward(1, layout.root, layout.root**2, 1)
        count, width = layout.laid.ids.shape
        kept = len(np.unique(layout.ends))
        yield Forward(count, width, pairs_of(layout.exits, layout.root), count * kept * nodes, len(rows) * nodes)
        return
    width = max(map(len, rows))
    yield Forward(len(rows), width, len(rows) * width * width, len(rows) * nodes, len(rows) * nodes)


def pairs_of(exits: NDArray[np.int64], seen: int = 0) -> int:
    """Pairs of query and key that are computed in a layer for trees with these ``exits`` (rows, keys).

    As on a CPU (see `spyrl.policy.attention`): blocks of queries, each with the keys that any of them may attend to.
    FlexAttention's blocks on a GPU are of half that size and leave a little more out.
    """
    return len(exits) * sum((end - begin) * len(keys) for begin, end, keys in keys_of_blocks(exits, seen))


# Learning


@dataclass(frozen=True)
class Learning:
    """The forward and backward passes that learn from one stage of a sample of games."""

    passes: tuple[Forward, ...]
    old: tuple[Forward, ...]
    """The passes for the old log-probabilities, where an iteration takes several steps."""

    def tokens(self, config: Config) -> int:
        """Tokens that are learnt from in all epochs, padding included, and read once more for the old ones."""
        return sum(each.tokens for each in self.passes) * config.training.epochs + sum(each.tokens for each in self.old)

    def flops(self, shape: Shape, config: Config) -> float:
        """Operations of an iteration's update on these trajectories."""
        training = config.training
        steps = training.epochs
        total = 0.0
        for each in self.passes:
            numbers = (shape, each.tokens, each.pairs, each.logits)
            forward = forward_flops(*numbers)
            total += steps * (forward + backward_flops(*numbers))
            if training.gradient_checkpointing:
                total += steps * forward_flops(shape, each.tokens, each.pairs, 0)
            if training.kl > 0:
                total += steps * forward_flops(*numbers, adapters=False)
        return total + sum(forward_flops(shape, each.tokens, each.pairs, each.logits) for each in self.old)

    def calls(self, config: Config) -> int:
        """How many times the layers are run, a backward pass counted as two."""
        training = config.training
        each = 3 + training.gradient_checkpointing + (training.kl > 0)
        return len(self.passes) * training.epochs * each + len(self.old)


def learning(members: Sequence[Trajectory], config: Config, *, packed: bool) -> Learning:
    """How `spyrl.training.learner.update` lays out these trajectories."""
    training = config.training
    games = sorted({each.game for each in members})
    parts = min(training.minibatches, max(len(games), 1))
    part_of = {game: at * parts // len(games) for at, game in enumerate(games)}
    passes: list[Forward] = []
    for part in range(parts):
        passes += _passes([each for each in members if part_of[each.game] == part], training.batch_tokens, packed)
    several = training.epochs * training.minibatches > 1
    return Learning(tuple(passes), tuple(_passes(members, training.batch_tokens, packed)) if several else ())


def _passes(members: Sequence[Trajectory], budget: int, packed: bool) -> Iterator[Forward]:
    for batch in batches(members, budget, CPU, packed=packed):
        rows, width = batch.ids.shape
        kept = len(set(batch.places[1].tolist()))
        pairs = rows * width * width if isinstance(batch.seen, torch.Tensor) else pairs_of(batch.seen)
        yield Forward(rows, width, pairs, rows * kept, batch.places.shape[1])


def trained_by(games: Games, stages: Sequence[Stage]) -> list[Trajectory]:
    """The trajectories that an update of these stages learns from."""
    return trajectories(games.settled, stages)


def calls_at_their_limits(calls: Sequence[Call], config: Config, grown: int) -> list[Call]:
    """The calls as they are when all answers run to their limits, their prompts ``grown`` tokens longer."""
    most = config.game.max_prompt_tokens
    return [
        replace(
            call,
            prompts=tuple(row + (0,) * min(grown, max(most - len(row), 0)) for row in call.prompts),
            written=call.limit if call.written else 0,
        )
        for call in calls
    ]


def at_their_limits(members: Sequence[Trajectory], config: Config, grown: int) -> list[Trajectory]:
    """The trajectories as they are then, likewise."""
    game = config.game
    found = []
    for each in members:
        prompt = max(min(len(each.prompt_ids) + grown, game.max_prompt_tokens), len(each.prompt_ids))
        limit = game.max_tokens if each.stage == "performing" else game.detectors.max_tokens
        length = len(each.token_ids) if each.allowed else limit
        found.append(_stretched(each, prompt, length))
    return found


def _stretched(each: Trajectory, prompt: int, length: int) -> Trajectory:
    """With filler behind its prompt and its answer."""
    ids = each.prompt_ids + (0,) * (prompt - len(each.prompt_ids))
    written = each.token_ids + (1,) * (length - len(each.token_ids))
    return Trajectory(each.game, each.stage, each.role, ids, written, (), each.allowed, each.advantage)
