"""vLLM as a policy: it generates with the trained model's weights, in this process or on a server.

Prompts are made by the trained model's own template and tokenizer and passed as token ids, so what is learnt from is
what was read. One request a prompt carries its number of samples. vLLM takes one seed a request and draws sample n with
that seed plus n; it is given the first sample's, so the same run samples with the same seeds, though not with those of
its transformers counterpart. Ballots that are chosen are drawn here, from exact probabilities, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import distributed

from spyrl.errors import UsageError
from spyrl.policy.base import Completion, FinishReason, Request, Sampling
from spyrl.policy.choices import ChoiceTree, chosen
from spyrl.policy.models import LoadedModel
from spyrl.policy.prompts import Prompts
from spyrl.policy.weights import Weights, check_weights

MOST_CHOICES = 20
"""How many tokens' log-probabilities vLLM tells of a step unless it is started otherwise (``max_logprobs``)."""


@dataclass(frozen=True)
class Ask:
    """A prompt in tokens and how often to go on with it.

    With ``allowed``, at most `MOST_CHOICES` token ids, one token is written, one of these.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    samples: int
    seed: int
    ends: tuple[int, ...]
    allowed: tuple[int, ...] = ()

    @property
    def parameters(self) -> dict[str, Any]:
        """vLLM's sampling parameters. All that a server would else take from the model's folder are set, too."""
        sampling = self.sampling
        made = {
            "n": self.samples,
            "seed": self.seed % 2**62,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "max_tokens": sampling.max_tokens,
            "min_tokens": sampling.min_tokens,
            "stop_token_ids": list(self.ends),
            "logprobs": 0,  # of the token that is written, no others
        }
        if self.allowed:
            made |= {"allowed_token_ids": list(self.allowed), "logprobs": len(self.allowed), "stop_token_ids": []}
        return made


@dataclass(frozen=True)
class Written:
    """What an engine wrote: token ids, their log-probabilities and why it ended.

    ``among`` are the log-probabilities of the ``allowed`` tokens, by id, where there were such. ``error`` says why
    a ``failed`` sample failed.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    among: Mapping[int, float] | None = None
    error: str = ""


def failed(error: str) -> Written:
    """A sample that came to nothing."""
    return Written((), (), "failed", error=error)


def unfinished(reason: object) -> Written:
    """A sample that ended neither by itself nor by its length."""
    return failed(f"vLLM ended the answer with finish_reason {reason!r}")


def process_number() -> int | None:
    """This process's number among those that train one model together; ``None`` where it is the only one."""
    several = distributed.is_available() and distributed.is_initialized()
    return distributed.get_rank() if several else None


class Engine(Protocol):
    """A running vLLM, in this process or elsewhere, that tells log-probabilities as it samples (processed)."""

    def write(self, asked: Sequence[Ask], on_tokens: Callable[[int], None]) -> list[list[Written]]:
        """Go on with all prompts; results in the order of ``asked``, one a sample."""
        ...

    def wake(self, weights: Weights) -> None:
        """Take these weights, to the last, and be ready to write; nothing computed with earlier ones is used."""
        ...

    def sleep(self) -> None:
        """Leave the GPU to others."""
        ...


class VllmPolicy:
    """Answers with vLLM for the model that is ``loaded``, between `wake` and `sleep`."""

    def __init__(
        self,
        loaded: LoadedModel,
        engine: Engine,
        *,
        template: dict[str, Any] | None = None,
        on_tokens: Callable[[int], None] = lambda count: None,
    ) -> None:
        check_weights(loaded.model)
        self.name = loaded.name
        self.loaded = loaded
        self.engine = engine
        self.prompts = Prompts(loaded, template or {})
        self.on_tokens = on_tokens
        self._weights = Weights(loaded.model, loaded.dtype)
        self._ends = tuple(sorted(self.prompts.ends))

    def count_tokens(self, text: str) -> int:
        """See `Policy.count_tokens`."""
        return len(self.prompts.tokens(text))

    def prompt_tokens(self, request: Request) -> int:
        """See `Policy.prompt_tokens`."""
        return len(self.prompts.tokens(self.prompts.text(request)))

    def wake(self) -> None:
        """Be ready to answer, with the weights that the model has now.

        Where several processes train one model, all of them come here together.
        """
        self.engine.wake(self._weights)

    def sleep(self) -> None:
        """Leave the GPU to the update."""
        self.engine.sleep()

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """See `Policy.generate`. A prompt that the model's context cannot hold gives failed completions."""
        texts = [self.prompts.text(request) for request in requests]
        prompts = [tuple(self.prompts.tokens(text)) for text in texts]
        trees = {at: self.prompts.tree(request) for at, request in enumerate(requests) if request.choices}
        errors = [self.prompts.too_long(request, prompt) for request, prompt in zip(requests, prompts, strict=True)]
        asked: dict[tuple[int, tuple[int, ...]], Ask] = {}
        for at, (request, prompt) in enumerate(zip(requests, prompts, strict=True)):
            if errors[at] or not request.samples:
                continue
            if at in trees:
                for node, allowed in trees[at].allowed.items():
                    asked[at, node] = self._choice(request, prompt + node, allowed)
            else:  # greedy samples are all the same, and vLLM takes one at a time only
                samples = 1 if request.sampling.temperature == 0 else request.samples
                asked[at, ()] = Ask(prompt, request.sampling, samples, request.seeds[0], self._ends)
        written = dict(zip(asked, self.engine.write(list(asked.values()), self.on_tokens), strict=True))
        results: list[list[Completion]] = []
        for at, request in enumerate(requests):
            if errors[at] or not request.samples:
                results.append([Completion("", "failed", error=errors[at])] * request.samples)
            elif at in trees:
                nodes = {node: written[at, node][0] for node in trees[at].nodes}
                results.append(self._chosen(request, prompts[at], trees[at], nodes))
            else:
                made = [self._completion(request, texts[at], prompts[at], each) for each in written[at, ()]]
                results.append(made * (request.samples // len(made)))
        return results

    def _choice(self, request: Request, prompt: tuple[int, ...], allowed: tuple[int, ...]) -> Ask:
        if len(allowed) > MOST_CHOICES:
            raise UsageError(
                f"vLLM tells the probabilities of {MOST_CHOICES} choices at most, not {len(allowed)}: lower "
                "game.players, or use game.detectors.answer=reasoned"
            )
        sampling = Sampling(request.sampling.temperature or 1.0, 1.0, max_tokens=1)
        return Ask(prompt, sampling, 1, request.seeds[0], self._ends, allowed)

    def _chosen(
        self, request: Request, prompt: tuple[int, ...], tree: ChoiceTree, nodes: Mapping[tuple[int, ...], Written]
    ) -> list[Completion]:
        failed = next((each.error for each in nodes.values() if each.finish_reason == "failed"), "")
        if failed:
            return [Completion("", "failed", error=failed)] * request.samples
        branches = {}
        for node, each in nodes.items():
            logprobs = torch.tensor([(each.among or {})[token] for token in tree.allowed[node]], dtype=torch.float64)
            branches[node] = torch.log_softmax(logprobs, 0).tolist()
        return chosen(request, prompt, tree, branches)

    def _completion(self, request: Request, text: str, prompt: tuple[int, ...], written: Written) -> Completion:
        if written.finish_reason == "failed":
            return Completion("", "failed", error=written.error)
        # Where top_p cuts the distribution, vLLM tells log-probabilities of what is left of it.
        logprobs = written.logprobs if request.sampling.top_p == 1 else ()
        return self.prompts.completion(request, text, prompt, written.token_ids, logprobs, written.finish_reason)
