"""Choosing among a few strings: which tokens tell them apart.

Up to nine players and N/A are told apart by their first token. With more, "1" and "10" are not: then the choices form a
small tree, and a choice's probability is the product of the renormalised probabilities along its path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from spyrl.errors import UsageError
from spyrl.policy.base import Completion, Request


@dataclass(frozen=True)
class ChoiceTree:
    """``paths[i]`` are the fewest tokens that tell choice i from all others; no path begins another."""

    paths: tuple[tuple[int, ...], ...]

    @cached_property
    def allowed(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """For every beginning of a path, the tokens that may come next, in ascending order."""
        found: dict[tuple[int, ...], set[int]] = {}
        for path in self.paths:
            for length in range(len(path)):
                found.setdefault(path[:length], set()).add(path[length])
        return {node: tuple(sorted(tokens)) for node, tokens in found.items()}

    @property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """The beginnings after which the model chooses."""
        return tuple(self.allowed)


def choice_tree(tokens: Callable[[str], list[int]], begin: str, choices: tuple[str, ...], closing: str) -> ChoiceTree:
    """The tree of ``choices`` where each stands between ``begin`` and ``closing``.

    Raises `UsageError` where the tokenizer cannot tell two choices apart.
    """
    before = tokens(begin) if begin else []
    whole: list[tuple[int, ...]] = []
    for choice in choices:
        ids = tokens(begin + choice + closing)
        # Where the choice merges with what stands before it, it is tokenized alone.
        whole.append(tuple(ids[len(before) :] if ids[: len(before)] == before else tokens(choice + closing)))
    paths: list[tuple[int, ...]] = []
    for index, path in enumerate(whole):
        others = whole[:index] + whole[index + 1 :]
        length = next((n for n in range(1, len(path) + 1) if all(other[:n] != path[:n] for other in others)), None)
        if length is None:
            raise UsageError(
                f"the tokenizer cannot tell {choices[index]!r} from the other choices; "
                "use game.detectors.answer=reasoned"
            )
        paths.append(path[:length])
    return ChoiceTree(tuple(paths))


def chosen(
    request: Request,
    prompt: tuple[int, ...],
    tree: ChoiceTree,
    branches: Mapping[tuple[int, ...], Sequence[float]],
) -> list[Completion]:
    """The request's completions, one a seed, drawn from its choices' exact probabilities.

    ``branches`` has for every node of ``tree`` the log-probabilities of its ``allowed`` tokens, in their order.
    """
    steps = []  # for each choice, the log-probability of each of its tokens
    for path in tree.paths:
        nodes = [path[:length] for length in range(len(path))]
        steps.append([branches[node][tree.allowed[node].index(token)] for node, token in zip(nodes, path, strict=True)])
    probabilities = torch.tensor([sum(logprobs) for logprobs in steps], dtype=torch.float64).softmax(0)
    completions = []
    for seed in request.seeds:
        if request.sampling.temperature == 0:
            at = int(probabilities.argmax())
        else:
            at = int(torch.searchsorted(probabilities.cumsum(0), uniform(seed, 1).double(), right=True))
            at = min(at, len(tree.paths) - 1)
        path = tree.paths[at]
        completions.append(
            Completion(
                request.choices[at],
                "choice",
                prompt_ids=prompt,
                token_ids=path,
                logprobs=tuple(steps[at]),
                probabilities=tuple(probabilities.tolist()),
                allowed=tuple(tree.allowed[path[:length]] for length in range(len(path))),
            )
        )
    return completions


def uniform(seed: int, count: int) -> Tensor:
    """``count`` numbers in [0, 1) of this seed's own generator, always drawn on the CPU."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))
