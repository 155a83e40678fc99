"""Choosing among a few strings: the tree of tokens, and exact probabilities from a model."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spyrl.errors import UsageError
from spyrl.game import direct_choices
from spyrl.policy import Request, Sampling
from spyrl.policy.choices import ChoiceTree, choice_tree
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import load_model
from spyrl.policy.settings import ModelSettings

OPENING, CLOSING = "\\boxed{", "}"


def bytes_of(text: str) -> list[int]:
    return list(text.encode())


def greedy_tokenizer(*vocabulary: str):
    """Longest match first over these pieces and, below them, single characters."""
    pieces = sorted(vocabulary, key=lambda piece: -len(piece))

    def tokens(text: str) -> list[int]:
        ids = []
        while text:
            piece = next((each for each in pieces if text.startswith(each)), text[0])
            ids.append(vocabulary.index(piece) if piece in vocabulary else 1000 + ord(piece))
            text = text[len(piece) :]
        return ids

    return tokens


def test_few_choices_differ_in_their_first_token():
    tree = choice_tree(bytes_of, OPENING, direct_choices(5), CLOSING)
    assert tree.paths == tuple((ord(text[0]),) for text in ("1", "2", "3", "4", "5", "N"))
    assert tree.allowed == {(): tuple(sorted(map(ord, "12345N")))}
    assert tree.nodes == ((),)


def test_one_and_ten_differ_in_their_second_token():
    tree = choice_tree(bytes_of, OPENING, direct_choices(12), CLOSING)
    paths = dict(zip(direct_choices(12), tree.paths, strict=True))
    assert paths["1"] == tuple(b"1}")
    assert paths["10"] == tuple(b"10")
    assert paths["12"] == tuple(b"12")
    assert paths["2"] == tuple(b"2")  # no 20 at this table
    assert tree.allowed[tuple(b"1")] == tuple(sorted(b"}012"))
    assert set(tree.nodes) == {(), tuple(b"1")}


def test_numbers_that_are_tokens_of_their_own_need_no_tree():
    tokens = greedy_tokenizer("10", "11", "12")
    tree = choice_tree(tokens, OPENING, direct_choices(12), CLOSING)
    assert all(len(path) == 1 for path in tree.paths)
    assert len(set(tree.paths)) == 13


def test_a_choice_that_merges_with_the_opening_is_tokenized_alone():
    tokens = greedy_tokenizer("{1", "{2", "{N")
    tree = choice_tree(tokens, OPENING, ("1", "2", "N/A"), CLOSING)
    assert tree.paths == tuple((1000 + ord(text),) for text in "12N")


def test_a_barred_player_is_not_in_the_tree():
    tree = choice_tree(bytes_of, OPENING, direct_choices(5, barred=3), CLOSING)
    assert ord("3") not in tree.allowed[()]
    assert len(tree.paths) == 5


@pytest.mark.parametrize(
    ("choices", "closing"),
    [
        (("1", "10"), ""),  # without a closing, 1 is how 10 begins
        (("2", "2"), "}"),
    ],
)
def test_choices_that_no_token_tells_apart_are_refused(choices: tuple[str, ...], closing: str):
    with pytest.raises(UsageError, match=r"cannot tell '[12]' from the other choices.*answer=reasoned"):
        choice_tree(bytes_of, OPENING, choices, closing)


@given(st.lists(st.text("01N/", min_size=1, max_size=4), min_size=1, max_size=9, unique=True))
def test_paths_are_the_shortest_that_differ(choices: list[str]):
    tree = choice_tree(bytes_of, "", tuple(choices), "}")
    for choice, path in zip(choices, tree.paths, strict=True):
        whole = tuple(bytes_of(choice + "}"))
        assert whole[: len(path)] == path
        others = [tuple(bytes_of(other + "}")) for other in choices if other != choice]
        assert all(other[: len(path)] != path for other in others)
        if len(path) > 1:
            assert any(other[: len(path) - 1] == path[:-1] for other in others)
    # Every walk along allowed tokens ends at exactly one choice.
    ends = {(*node, token) for node, tokens in tree.allowed.items() for token in tokens} - set(tree.nodes)
    assert ends == set(tree.paths)


# With a model


@pytest.fixture(scope="module")
def policy(tiny_model: Path) -> LocalPolicy:
    return LocalPolicy(load_model(ModelSettings(path=str(tiny_model), device="cpu"), trainable=False))


def ballot(text: str, players: int, seeds: range, temperature: float = 1.0, barred: int | None = None) -> Request:
    return Request(
        ({"role": "user", "content": text},),
        tuple(seeds),
        Sampling(temperature, 1.0, 8),
        OPENING,
        direct_choices(players, barred),
        CLOSING,
    )


def next_token_logits(policy: LocalPolicy, ids: tuple[int, ...]) -> list[float]:
    with torch.no_grad():
        return policy.loaded.model(torch.tensor([ids])).logits[0, -1].tolist()


def softmax_over(logits: list[float], tokens: tuple[int, ...], temperature: float) -> dict[int, float]:
    weights = {token: torch.tensor(logits[token] / temperature).double().exp().item() for token in tokens}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_probabilities_are_the_softmax_over_the_first_tokens(policy: LocalPolicy, temperature: float):
    (completion,) = policy.generate([ballot("Who is it?", 5, range(1), temperature)])[0]
    assert policy.loaded.tokenizer.decode(completion.prompt_ids).endswith("<|im_start|>assistant\n" + OPENING)
    (first,) = completion.allowed
    tokens = [policy.loaded.tokenizer(text[0])["input_ids"][0] for text in direct_choices(5)]
    assert first == tuple(sorted(tokens))
    expected = softmax_over(next_token_logits(policy, completion.prompt_ids), first, temperature)
    assert completion.probabilities == pytest.approx([expected[token] for token in tokens], abs=1e-5)
    assert sum(completion.probabilities) == pytest.approx(1, abs=1e-12)
    chosen = direct_choices(5).index(completion.text)
    assert completion.token_ids == (tokens[chosen],)
    assert completion.logprobs[0] == pytest.approx(torch.tensor(expected[tokens[chosen]]).log().item(), abs=1e-4)
    assert completion.finish_reason == "choice"


@pytest.mark.parametrize(("players", "barred"), [(12, None), (12, 1), (26, None), (26, 2)])
@pytest.mark.parametrize("batch_tokens", [1, 100_000])
def test_long_choices_are_products_along_their_paths(
    policy: LocalPolicy, players: int, barred: int | None, batch_tokens: int
):
    policy = LocalPolicy(policy.loaded, batch_tokens=batch_tokens)
    request = ballot("Name the spy.", players, range(40), barred=barred)
    completions = policy.generate([ballot("Another, longer prompt in the same call.", 5, range(2)), request])[1]
    prompt = completions[0].prompt_ids
    tree = choice_tree(
        lambda text: policy.loaded.tokenizer(text)["input_ids"], OPENING, request.choices, request.closing
    )
    assert any(len(path) > 1 for path in tree.paths)
    at_node = {
        node: softmax_over(next_token_logits(policy, prompt + node), allowed, 1)
        for node, allowed in tree.allowed.items()
    }
    expected = [prod(at_node[path[:at]][token] for at, token in enumerate(path)) for path in tree.paths]
    assert sum(expected) == pytest.approx(1, abs=1e-9)
    for completion in completions:
        assert len(completion.probabilities) == len(request.choices)
        assert sum(completion.probabilities) == pytest.approx(1, abs=1e-12)
        assert completion.probabilities == pytest.approx(expected, abs=1e-5)
        path = tree.paths[request.choices.index(completion.text)]
        assert completion.token_ids == path
        assert completion.allowed == tuple(tree.allowed[path[:at]] for at in range(len(path)))
        steps = [at_node[path[:at]][token] for at, token in enumerate(path)]
        assert [torch.tensor(x).exp().item() for x in completion.logprobs] == pytest.approx(steps, abs=1e-5)


def test_sampled_choices_follow_their_probabilities(policy: LocalPolicy):
    samples = 4000
    completions = policy.generate([ballot("Who is the spy here?", 12, range(samples))])[0]
    counts = Counter(completion.text for completion in completions)
    expected = dict(zip(direct_choices(12), completions[0].probabilities, strict=True))
    statistic = sum((counts[text] - samples * p) ** 2 / (samples * p) for text, p in expected.items())
    assert statistic < 12 + 4 * (2 * 12) ** 0.5  # chi-square with 12 degrees of freedom
    assert statistic < sum((counts[text] - samples / 13) ** 2 / (samples / 13) for text in expected)


def test_a_choice_depends_on_its_seed_alone(policy: LocalPolicy):
    together = policy.generate([ballot("Who?", 26, range(30)), ballot("Which of them is it, then?", 5, range(30))])
    for seed in (0, 7, 29):
        (alone,) = policy.generate([ballot("Who?", 26, range(seed, seed + 1))])[0]
        assert alone.text == together[0][seed].text
        assert alone.probabilities == pytest.approx(together[0][seed].probabilities, abs=1e-6)


def test_greedy_choice_is_the_most_likely(policy: LocalPolicy):
    for text in ("a", "bb", "ccc"):
        for completion in policy.generate([ballot(text, 12, range(3), temperature=0)])[0]:
            best = max(range(13), key=completion.probabilities.__getitem__)
            assert completion.text == direct_choices(12)[best]


def test_allowed_tokens_are_in_ascending_order():
    tree = ChoiceTree(((9, 2), (9, 1), (3,)))
    assert tree.allowed == {(): (3, 9), (9,): (1, 2)}
