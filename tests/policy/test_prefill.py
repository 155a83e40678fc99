"""Reading prompts: what they share once, and everything else as if each were read alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spyrl.policy import attention
from spyrl.policy.attention import NAME
from spyrl.policy.models import load_model
from spyrl.policy.prefill import forward, read
from spyrl.policy.settings import ModelSettings
from tiny import make_tiny_model

CPU = torch.device("cpu")
RULES = list(range(3, 33))
PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=6)


@pytest.fixture(scope="module", params=["qwen3", "llama", "gemma"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = make_tiny_model(tmp_path_factory.mktemp("models") / request.param, request.param, scale=12)
    return load_model(ModelSettings(path=str(folder), device="cpu"), trainable=False).model


def check(model: Any, prompts: list[list[int]]) -> int:
    """Read in trees: the next logits, and those after two more tokens, are those of each prompt alone."""
    more = [[1, 2]] * len(prompts)
    with torch.inference_mode():
        reading = read(model, prompts, CPU, trees=True)
        uncached = read(model, prompts, CPU, trees=True, cached=False)
        went_on = forward(
            model,
            reading.cache,
            input_ids=torch.tensor(more),
            attention_mask=torch.cat([reading.mask, torch.ones(len(prompts), 2, dtype=torch.long)], 1),
            position_ids=reading.positions + torch.tensor([[1, 2]]),
        ).logits
        for at, prompt in enumerate(prompts):
            alone = model(torch.tensor([prompt + more[at]]), use_cache=False).logits[0]
            assert reading.positions[at].item() == len(prompt) - 1
            assert reading.mask[at].sum() == len(prompt)
            assert torch.allclose(reading.logits[at], alone[-3], atol=1e-4)
            assert torch.allclose(uncached.logits[at], alone[-3], atol=1e-4)
            assert torch.allclose(went_on[at], alone[-2:], atol=1e-4)
    return reading.tokens


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(PROMPTS, st.booleans(), st.sampled_from([3, 256]))
def test_prompts_are_read_as_if_alone(model: Any, prompts: list[list[int]], ruled: bool, queries: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(attention, "_QUERIES", queries)
        check(model, [RULES * ruled + prompt for prompt in prompts])


def test_rules_and_documents_are_read_once(model: Any) -> None:
    games = [[40 + game] * 20 for game in range(3)]
    prompts = [RULES + document + [player] for document in games for player in (1, 2, 3)]
    # Rules once; each document once and its three last tokens.
    assert check(model, prompts) == 30 + 3 * (20 + 3)


def test_the_spys_copy_shares_what_comes_before_its_hidden_span(model: Any) -> None:
    document = list(range(40, 80))
    spied = document[:25] + [7] * 10 + document[35:]
    assert check(model, [document, spied, document]) == 40 + 15


def test_prompts_with_little_in_common_are_read_in_rows(model: Any) -> None:
    assert check(model, [[5] * 30, [6] * 20]) == 60


def test_other_attention_reads_trees_too(model: Any) -> None:
    try:
        for implementation in ("eager", "sdpa"):
            model.set_attn_implementation(implementation)
            assert check(model, [RULES + [player] * 5 for player in (1, 2, 3)]) == 30 + 15
    finally:
        model.set_attn_implementation(NAME)
