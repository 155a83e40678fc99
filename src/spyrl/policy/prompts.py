"""A model's template and tokenizer: from requests to token ids, and from token ids to completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from spyrl.errors import UsageError
from spyrl.policy.base import Completion, FinishReason, Request, split_reasoning
from spyrl.policy.choices import ChoiceTree, choice_tree
from spyrl.policy.models import LoadedModel


@dataclass(frozen=True)
class Prompts:
    """How a model reads and writes text. ``template`` are extra variables of its chat template.

    Every engine that answers for the model shares this, so that the same request is the same token ids to all.
    """

    loaded: LoadedModel
    template: Mapping[str, Any] = field(default_factory=dict)

    def text(self, request: Request) -> str:
        """The prompt, with the assistant's turn begun. Raises `UsageError` where the template refuses the messages."""
        return prompt_text(self.loaded.tokenizer, request, self.template, self.loaded.name)

    def tokens(self, text: str) -> list[int]:
        """Token ids of ``text``, without special tokens of their own."""
        return token_ids(self.loaded.tokenizer, text)

    def tree(self, request: Request) -> ChoiceTree:
        """The request's choices in tokens."""
        return choice_tree(self.tokens, request.begin, request.choices, request.closing)

    def completion(
        self,
        request: Request,
        text: str,
        prompt: Sequence[int],
        token_ids: Sequence[int],
        logprobs: Sequence[float],
        reason: FinishReason,
    ) -> Completion:
        """What was written after the prompt ``text``, which is ``prompt`` in tokens."""
        raw = self.loaded.tokenizer.decode(token_ids, skip_special_tokens=True)
        answer, reasoning = split_reasoning(raw, opened=text.rstrip().endswith("<think>"))
        least = request.sampling.min_tokens
        return Completion(
            answer,
            reason,
            reasoning,
            tuple(prompt),
            tuple(token_ids),
            tuple(logprobs),
            held_back=tuple(sorted(self.ends)) if least else (),
            min_tokens=least,
        )

    def too_long(self, request: Request, prompt: Sequence[int]) -> str:
        """Why the model's context cannot hold prompt and answer, empty where it can."""
        needed = len(prompt) + (request.sampling.max_tokens if not request.choices else 1)
        if self.context is None or needed <= self.context:
            return ""
        return f"prompt and answer need {needed} tokens, the model's context holds {self.context}"

    @cached_property
    def ends(self) -> frozenset[int]:
        """The tokens that end a turn. Raises `UsageError` where the model names none."""
        ends = self.loaded.model.generation_config.eos_token_id
        listed = ends if isinstance(ends, list) else [ends]
        known = {token for token in (*listed, self.loaded.tokenizer.eos_token_id) if token is not None}
        if not known:
            name = self.loaded.name
            raise UsageError(f"model {name!r} names no end-of-turn token (eos_token_id in generation_config.json)")
        return frozenset(known)

    @cached_property
    def context(self) -> int | None:
        """The most tokens of prompt and answer together, where the model says."""
        config = self.loaded.model.config
        length = getattr(config.get_text_config(), "max_position_embeddings", None)
        return int(length) if length else None


def prompt_text(tokenizer: Any, request: Request, template: Mapping[str, Any], name: str) -> str:
    """A request's prompt by the chat template, with extra variables, of the model ``name``; see `Prompts.text`."""
    try:
        text = tokenizer.apply_chat_template(
            [dict(message) for message in request.messages], tokenize=False, add_generation_prompt=True, **template
        )
    except Exception as error:  # templates raise what they like
        raise UsageError(f"the chat template of {name!r} refuses the game's messages: {error}") from error
    return str(text) + request.begin


def token_ids(tokenizer: Any, text: str) -> list[int]:
    """See `Prompts.tokens`."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids
