"""A transformers model in this process, as a policy.

All requests of a stage come in one call. Prompts run in batches of a token budget, those that begin alike side by side;
what they share is read once, and a prompt's cache is repeated for its samples; rows that are finished leave the batch.
Each sample draws from random numbers of its own, so it does not depend on what it was batched with (up to the last bits
of the logits).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spyrl.errors import SpyRLError
from spyrl.policy.attention import takes_trees
from spyrl.policy.base import Completion, FinishReason, Request, Sampling
from spyrl.policy.choices import chosen, uniform
from spyrl.policy.models import LoadedModel
from spyrl.policy.prefill import forward, read
from spyrl.policy.prompts import Prompts
from spyrl.policy.trees import alike

_CHUNK = 1024  # of the vocabulary


@dataclass
class _Row:
    """One sample being written."""

    request: int
    sample: int
    sampling: Sampling
    uniform: Tensor
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: FinishReason = "length"


class LocalPolicy:
    """Answers with a model in this process. ``on_tokens`` is told how many tokens each step wrote."""

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        batch_tokens: int = 32768,
        template: dict[str, Any] | None = None,
        on_tokens: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.name = loaded.name
        self.loaded = loaded
        self.batch_tokens = batch_tokens
        self.prompts = Prompts(loaded, template or {})
        self.on_tokens = on_tokens
        self._ends = self.prompts.ends
        self._trees = takes_trees(loaded.model, loaded.device)

    def count_tokens(self, text: str) -> int:
        """See `Policy.count_tokens`."""
        return len(self.prompts.tokens(text))

    def prompt_tokens(self, request: Request) -> int:
        """See `Policy.prompt_tokens`."""
        return len(self.prompts.tokens(self.prompts.text(request)))

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """See `Policy.generate`. A prompt that the model's context cannot hold gives failed completions."""
        texts = [self.prompts.text(request) for request in requests]
        prompts = [self.prompts.tokens(text) for text in texts]
        errors = [self.prompts.too_long(request, prompt) for request, prompt in zip(requests, prompts, strict=True)]
        results = [
            [Completion("", "failed", error=error)] * request.samples if error else []
            for request, error in zip(requests, errors, strict=True)
        ]
        fitting = [index for index, error in enumerate(errors) if not error]
        model = self.loaded.model
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode(), self._autocast():
                self._choose([i for i in fitting if requests[i].choices], requests, prompts, results)
                self._write([i for i in fitting if not requests[i].choices], requests, prompts, texts, results)
        except torch.OutOfMemoryError:
            raise SpyRLError(
                f"out of memory while generating {self.batch_tokens} tokens side by side; lower model.batch_tokens"
            ) from None
        finally:
            model.train(was_training)
        return results

    # Free text

    def _write(
        self,
        wanted: list[int],
        requests: Sequence[Request],
        prompts: list[list[int]],
        texts: list[str],
        results: list[list[Completion]],
    ) -> None:
        for batch in self._batches(wanted, requests, prompts):
            rows = [
                _Row(index, sample, requests[index].sampling, uniform(seed, requests[index].sampling.max_tokens))
                for index in batch
                for sample, seed in enumerate(requests[index].seeds)
            ]
            self._decode([prompts[index] for index in batch], rows, {index: at for at, index in enumerate(batch)})
            for row in rows:
                at = row.request
                results[at].append(
                    self.prompts.completion(
                        requests[at], texts[at], prompts[at], row.token_ids, row.logprobs, row.finish_reason
                    )
                )

    def _decode(self, prompts: list[list[int]], rows: list[_Row], position_of: dict[int, int]) -> None:
        """Write all ``rows``; ``position_of`` says which prompt a request's rows go on from."""
        model, device = self.loaded.model, self.loaded.device
        reading = read(model, prompts, device, trees=self._trees)
        logits, cache, mask, positions = reading.logits, reading.cache, reading.mask, reading.positions
        spread = torch.tensor([position_of[row.request] for row in rows], device=device)
        if len(rows) != len(prompts):
            cache.batch_select_indices(spread)
        logits, mask, positions = logits[spread], mask[spread], positions[spread]
        active = list(rows)
        while True:
            steps = [len(row.token_ids) for row in active]
            short = [at for at, row in enumerate(active) if steps[at] < row.sampling.min_tokens]
            if short:
                logits = logits.clone()
                logits[torch.tensor(short)[:, None], torch.tensor(sorted(self._ends))] = float("-inf")
            uniform = torch.stack([row.uniform[step] for row, step in zip(active, steps, strict=True)]).to(device)
            tokens, logprobs = draw(logits, uniform, [row.sampling for row in active])
            self.on_tokens(len(active))
            for row, token, logprob in zip(active, tokens.tolist(), logprobs.tolist(), strict=True):
                row.token_ids.append(token)
                row.logprobs.append(logprob)
                if token in self._ends:
                    row.finish_reason = "stop"
            going = [
                index
                for index, row in enumerate(active)
                if row.finish_reason != "stop" and len(row.token_ids) < row.sampling.max_tokens
            ]
            if not going:
                return
            if len(going) < len(active):
                active = [active[index] for index in going]
                left = torch.tensor(going, device=device)
                cache.batch_select_indices(left)
                tokens, mask, positions = tokens[left], mask[left], positions[left]
            mask = torch.cat([mask, mask.new_ones(len(active), 1)], 1)
            positions = positions + 1
            logits = forward(
                model, cache, input_ids=tokens[:, None], attention_mask=mask, position_ids=positions
            ).logits[:, -1]

    # Choices

    def _choose(
        self,
        wanted: list[int],
        requests: Sequence[Request],
        prompts: list[list[int]],
        results: list[list[Completion]],
    ) -> None:
        """One forward pass a distinct prompt (and one a shared first token of longer choices)."""
        trees = {index: self.prompts.tree(requests[index]) for index in wanted}
        rows = [(index, node) for index in wanted for node in trees[index].nodes]
        inputs = [prompts[index] + list(node) for index, node in rows]
        branches: dict[int, dict[tuple[int, ...], list[float]]] = {index: {} for index in wanted}
        ordered = near_those_alike({at: (row, len(row)) for at, row in enumerate(inputs)})
        for batch in grouped(ordered, self.batch_tokens, lambda at: len(inputs[at])):
            asked = [inputs[at] for at in batch]
            logits = read(self.loaded.model, asked, self.loaded.device, trees=self._trees, cached=False).logits
            for (index, node), row in zip([rows[at] for at in batch], logits, strict=True):
                scores = row[list(trees[index].allowed[node])].float()
                sampling = requests[index].sampling
                branches[index][node] = torch.log_softmax(scores / (sampling.temperature or 1.0), 0).tolist()
            self.on_tokens(len(batch))
        for index in wanted:
            results[index] = chosen(requests[index], tuple(prompts[index]), trees[index], branches[index])

    def _batches(self, wanted: list[int], requests: Sequence[Request], prompts: list[list[int]]) -> Iterator[list[int]]:
        sizes = {index: len(prompts[index]) + requests[index].sampling.max_tokens for index in wanted}
        ordered = near_those_alike({index: (prompts[index], sizes[index]) for index in wanted})
        return grouped(ordered, self.batch_tokens, sizes.__getitem__, lambda index: requests[index].samples)

    def _autocast(self) -> Any:
        return autocast(self.loaded)


def autocast(loaded: LoadedModel) -> Any:
    """Compute in the model's ``dtype`` where its weights are kept in float32."""
    return torch.autocast(loaded.device.type, loaded.dtype, enabled=loaded.dtype != torch.float32)


def draw(logits: Tensor, uniform: Tensor, samplings: Sequence[Sampling]) -> tuple[Tensor, Tensor]:
    """Draw one token a row by inverting its distribution at ``uniform`` (shape (rows,), in [0, 1)).

    Returns token ids and their log-probabilities, both of shape (rows,): of the distribution at the sampling
    temperature, before ``top_p`` cuts it (at temperature 1 where decoding is greedy).
    """
    temperature = torch.tensor([s.temperature or 1.0 for s in samplings], device=logits.device)
    probabilities = torch.softmax(logits.float() / temperature[:, None], -1)
    greedy = [sampling.temperature == 0 for sampling in samplings]
    tokens = torch.zeros(len(samplings), dtype=torch.long, device=logits.device)
    if any(greedy):
        tokens = probabilities.argmax(-1)
    if not all(greedy):
        left = probabilities
        if any(s.top_p < 1 for s in samplings):
            top_p = torch.tensor([s.top_p for s in samplings], device=logits.device)
            left = _nucleus(probabilities, top_p)
        drawn = _inverted(left, uniform)
        tokens = torch.where(torch.tensor(greedy, device=logits.device), tokens, drawn)
    return tokens, probabilities.gather(-1, tokens[:, None])[:, 0].log()


def _inverted(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The token of each row at which the sum of its probabilities passes ``uniform`` of their total.

    First among chunks of the vocabulary, then within one: a running sum over all of it takes longer than the rest.
    """
    rows, size = probabilities.shape
    chunks = -(-size // _CHUNK)
    if chunks * _CHUNK > size:
        probabilities = torch.nn.functional.pad(probabilities, (0, chunks * _CHUNK - size))
    parts = probabilities.view(rows, chunks, _CHUNK)
    sums = parts.sum(-1).double().cumsum(-1)
    target = uniform.double()[:, None] * sums[:, -1:]
    chunk = _first_above(sums, target)
    before = torch.where(chunk > 0, sums.gather(-1, (chunk - 1).clamp(min=0)), 0.0)
    within = parts[torch.arange(rows, device=chunk.device), chunk[:, 0]].double().cumsum(-1)
    return (chunk * _CHUNK + _first_above(within, target - before))[:, 0]


def _first_above(sums: Tensor, target: Tensor) -> Tensor:
    """Where running ``sums`` first exceed ``target``, or for want of the last bit are complete; shape (rows, 1)."""
    last = torch.searchsorted(sums, sums[:, -1:].contiguous())
    return torch.minimum(torch.searchsorted(sums, target, right=True), last)


def _nucleus(probabilities: Tensor, top_p: Tensor) -> Tensor:
    """Keep the smallest set of most likely tokens whose mass reaches ``top_p``."""
    ordered, order = probabilities.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = ordered * (before < top_p[:, None])
    return torch.zeros_like(probabilities).scatter(-1, order, kept)


def near_those_alike(prompts: Mapping[int, tuple[Sequence[int], int]]) -> list[int]:
    """The keys of prompts, given with their sizes: neighbours share their beginnings where they can.

    Largest first, so that what is too much for the memory shows at once.
    """
    groups = alike({index: np.asarray(prompt) for index, (prompt, _) in prompts.items()})
    groups.sort(key=lambda group: -max(prompts[index][1] for index in group))
    return [index for group in groups for index in group]


def grouped(
    items: Sequence[Any], budget: int, size: Callable[[Any], int], rows: Callable[[Any], int] = lambda _: 1
) -> Iterator[list[Any]]:
    """Groups of consecutive items whose padded size (rows × longest) stays within ``budget``; at least one each."""
    group: list[Any] = []
    widest = count = 0
    for item in items:
        width = max(widest, size(item))
        if group and width * (count + rows(item)) > budget:
            yield group
            group, width, count = [], size(item), 0
        group.append(item)
        widest, count = width, count + rows(item)
    if group:
        yield group
