"""From a trace to the completion that the game reads."""

from __future__ import annotations

import verifiers.v1 as vf

from spyrl.policy import Completion, split_reasoning


def completion_of(trace: vf.Trace) -> Completion:
    """The answer that a turn's trace holds: a ``failed`` completion where it holds none that ended by itself or by
    its length. Token ids and log-probabilities are there where the engine told them."""
    answered = [node for node in trace.nodes if node.sampled]
    call = next((call for call in reversed(trace.calls) if call.error is None), None)
    finish = call.finish_reason if call is not None else None
    if not trace.ok or not answered or (finish != "stop" and finish != "length"):
        error = trace.last_error
        said = error.message if error is not None else f"finish_reason {finish!r}, {trace.stop_condition}"
        return Completion("", "failed", error=said)
    node = answered[-1]
    text, thought = split_reasoning(node.message.content or "")
    private = getattr(node.message, "reasoning_content", None) or ""
    usage = call.usage if call is not None else None
    return Completion(
        text,
        finish,
        reasoning="\n".join(filter(None, (private, thought))),
        token_ids=tuple(token for token, sampled in zip(node.token_ids, node.mask, strict=True) if sampled),
        logprobs=tuple(node.logprobs),
        usage=(usage.input_tokens, usage.completion_tokens) if usage is not None else (0, 0),
    )
