"""Who answers: a transformers model in this process, or any OpenAI-compatible server."""

from spyrl.policy.base import Completion, Message, Policy, Request, Sampling, split_reasoning

__all__ = ["Completion", "Message", "Policy", "Request", "Sampling", "split_reasoning"]
