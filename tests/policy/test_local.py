"""A transformers model in this process, as a policy."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig

from spyrl.errors import SpyRLError, UsageError
from spyrl.policy import Completion, Request, Sampling
from spyrl.policy.base import split_reasoning
from spyrl.policy.local import LocalPolicy, draw, grouped
from spyrl.policy.models import LoadedModel, load_model
from spyrl.policy.prefill import cache_argument, left_padded
from spyrl.policy.settings import ModelSettings
from tiny import CHAT_TEMPLATE, byte_tokenizer, make_tiny_model

TEXTS = ("hi", "A somewhat longer message, about nothing in particular.", "x" * 90, "Tell me a story!", "?", "hi")
LAST_UNIFORM = 1 - 2**-24  # the largest number that torch.rand gives


def load(folder: Path) -> LoadedModel:
    return load_model(ModelSettings(path=str(folder), device="cpu"), trainable=False)


@pytest.fixture(scope="module", params=["qwen3", "llama", "gemma"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    loaded = load(make_tiny_model(tmp_path_factory.mktemp("models") / request.param, request.param, seed=3))
    for name, weight in loaded.model.named_parameters():
        if "proj" in name:
            weight.data *= 10  # what is attended to matters, also where embeddings are tied
    return loaded


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load(make_tiny_model(tmp_path_factory.mktemp("models") / "sharp", scale=16))


def ask(text: str, *seeds: int, begin: str = "", temperature: float = 1.0, top_p: float = 1.0, tokens: int = 12):
    return Request(({"role": "user", "content": text},), seeds, Sampling(temperature, top_p, tokens), begin)


def with_ends(loaded: LoadedModel, *ends: int) -> LoadedModel:
    """The same model, ending its turns at these tokens, too."""
    model = copy.deepcopy(loaded.model)
    model.generation_config.eos_token_id = [loaded.tokenizer.eos_token_id, *ends]
    return dataclasses.replace(loaded, model=model)


def plain_logprobs(loaded: LoadedModel, completion: Completion, temperature: float) -> list[float]:
    ids = torch.tensor([completion.prompt_ids + completion.token_ids])
    with torch.no_grad():
        logits = loaded.model(ids).logits[0, len(completion.prompt_ids) - 1 : -1].double() / temperature
    return torch.log_softmax(logits, -1).gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0].tolist()


def next_distribution(loaded: LoadedModel, text: str, temperature: float) -> torch.Tensor:
    prompt = LocalPolicy(loaded).generate([ask(text, 0, tokens=1)])[0][0].prompt_ids
    with torch.no_grad():
        return (loaded.model(torch.tensor([prompt])).logits[0, -1].double() / temperature).softmax(-1)


def chi_square(counts: Counter[int], probabilities: torch.Tensor) -> tuple[float, int]:
    """Pearson's statistic and its degrees of freedom, tokens expected fewer than 5 times taken as one."""
    samples = counts.total()
    expected = probabilities * samples
    large = [token for token in range(len(expected)) if expected[token] >= 5]
    cells = [(counts[token], float(expected[token])) for token in large]
    rest = samples - sum(expect for _, expect in cells)
    if rest > 1:
        cells.append((samples - sum(count for count, _ in cells), rest))
    return sum((count - expect) ** 2 / expect for count, expect in cells), len(cells) - 1


# Greedy


@pytest.mark.parametrize("batch_tokens", [1, 400, 1_000_000])
def test_greedy_equals_transformers_generate(loaded: LoadedModel, batch_tokens: int):
    free = LocalPolicy(loaded).generate([ask(TEXTS[1], 0, temperature=0, tokens=20)])[0][0].token_ids
    ending = with_ends(loaded, free[6])  # so that this row ends early and others go on
    requests = [ask(text, 0, temperature=0, tokens=20 + at) for at, text in enumerate(TEXTS)]
    answers = LocalPolicy(ending, batch_tokens=batch_tokens).generate(requests)
    reasons = set()
    for request, (completion,) in zip(requests, answers, strict=True):
        prompt = torch.tensor([completion.prompt_ids])
        written = ending.model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=request.sampling.max_tokens
        )[0, prompt.shape[1] :]
        assert completion.token_ids == tuple(written.tolist())
        assert completion.text == loaded.tokenizer.decode(written, skip_special_tokens=True)
        reasons.add(completion.finish_reason)
    assert len(answers[1][0].token_ids) <= 7
    assert len({answers[at][0].token_ids for at in range(5)}) == 5
    assert reasons == {"stop", "length"}


# Independence


def test_a_sample_depends_on_its_seed_only(loaded: LoadedModel):
    requests = [ask(text, *range(10 * at, 10 * at + 1 + at), tokens=8 + at) for at, text in enumerate(TEXTS)]
    together = LocalPolicy(loaded).generate(requests)
    assert [len(answers) for answers in together] == [request.samples for request in requests]
    narrow = LocalPolicy(loaded, batch_tokens=300).generate(requests)
    reversed_ = LocalPolicy(loaded).generate(requests[::-1])[::-1]
    for at, request in enumerate(requests):
        for sample, seed in enumerate(request.seeds):
            single = dataclasses.replace(request, seeds=(seed,))
            (alone,) = LocalPolicy(loaded).generate([single])[0]
            for other in (together[at][sample], narrow[at][sample], reversed_[at][sample]):
                assert other.token_ids == alone.token_ids
                assert other.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
    texts = {completion.text for answers in together for completion in answers}
    assert len(texts) == sum(request.samples for request in requests)  # and different seeds differ


def test_the_same_seed_gives_the_same_sample_again(qwen: LoadedModel):
    policy = LocalPolicy(qwen)
    torch.manual_seed(1)
    first = policy.generate([ask("Again?", 5, 6)])
    torch.manual_seed(2)  # no global generator is drawn from
    assert policy.generate([ask("Again?", 5, 6)]) == first


# Distribution


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_samples_are_distributed_as_the_softmax(qwen: LoadedModel, temperature: float):
    seeds = range(6000)
    completions = LocalPolicy(qwen).generate([ask("One token.", *seeds, temperature=temperature, tokens=1)])[0]
    counts = Counter(completion.token_ids[0] for completion in completions)
    statistic, freedom = chi_square(counts, next_distribution(qwen, "One token.", temperature))
    assert freedom > 20
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5
    other, other_freedom = chi_square(counts, next_distribution(qwen, "One token.", 1.7 - temperature))
    assert other > other_freedom + 10 * (2 * other_freedom) ** 0.5  # the bound does tell temperatures apart


def test_second_tokens_are_distributed_given_the_first(qwen: LoadedModel):
    completions = LocalPolicy(qwen).generate([ask("Two tokens.", *range(3000), temperature=0.5, tokens=2)])[0]
    first, _ = Counter(completion.token_ids[0] for completion in completions).most_common(1)[0]
    counts = Counter(each.token_ids[1] for each in completions if each.token_ids[0] == first)
    with torch.no_grad():
        logits = qwen.model(torch.tensor([(*completions[0].prompt_ids, first)])).logits[0, -1].double()
    statistic, freedom = chi_square(counts, (logits / 0.5).softmax(-1))
    assert freedom > 5
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5


@pytest.mark.parametrize(("top_p", "temperature"), [(0.5, 1.0), (0.8, 0.7), (0.02, 1.0)])
def test_top_p_keeps_exactly_the_nucleus(qwen: LoadedModel, top_p: float, temperature: float):
    probabilities = next_distribution(qwen, "Nucleus.", temperature)
    nucleus, mass = [], 0.0
    for token in sorted(range(len(probabilities)), key=lambda token: -probabilities[token]):
        nucleus.append(token)
        mass += float(probabilities[token])
        if mass >= top_p:
            break
    request = ask("Nucleus.", *range(6000), temperature=temperature, top_p=top_p, tokens=1)
    completions = LocalPolicy(qwen).generate([request])[0]
    counts = Counter(completion.token_ids[0] for completion in completions)
    assert set(counts) <= set(nucleus)
    assert set(counts) >= {token for token in nucleus if probabilities[token] / mass > 0.003}
    cut = torch.zeros_like(probabilities)
    cut[nucleus] = probabilities[nucleus] / mass
    statistic, freedom = chi_square(counts, cut)
    assert statistic <= freedom + 4 * (2 * freedom) ** 0.5
    # What is recorded is the distribution before it was cut.
    for completion in completions[:20]:
        assert completion.logprobs[0] == pytest.approx(float(probabilities[completion.token_ids[0]].log()), abs=1e-4)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.0, 0.6), (0.0, 1.0)])
def test_recorded_logprobs_equal_a_plain_forward_pass(loaded: LoadedModel, temperature: float, top_p: float):
    requests = [ask(text, 1, 2, temperature=temperature, top_p=top_p, tokens=16) for text in TEXTS]
    for answers in LocalPolicy(loaded, batch_tokens=700).generate(requests):
        for completion in answers:
            assert len(completion.logprobs) == len(completion.token_ids)
            assert completion.logprobs == pytest.approx(
                plain_logprobs(loaded, completion, temperature or 1.0), abs=1e-4
            )


def test_requests_of_one_batch_keep_their_own_sampling(qwen: LoadedModel):
    requests = [
        ask("a", 1, temperature=0, tokens=3),
        ask("b", 2, temperature=0.5, tokens=9),
        ask("c", 3, temperature=1.5, top_p=0.5, tokens=5),
    ]
    together = LocalPolicy(qwen).generate(requests)
    for request, answers in zip(requests, together, strict=True):
        assert LocalPolicy(qwen).generate([request])[0][0].token_ids == answers[0].token_ids
        assert len(answers[0].token_ids) == request.sampling.max_tokens


# Ends


def test_a_stop_token_ends_a_row_and_is_recorded(qwen: LoadedModel):
    free = LocalPolicy(qwen).generate([ask("Go on.", *range(8), tokens=20)])[0]
    stop = free[0].token_ids[5]
    ended = LocalPolicy(with_ends(qwen, stop)).generate([ask("Go on.", *range(8), tokens=20)])[0]
    for whole, cut in zip(free, ended, strict=True):
        if stop in whole.token_ids:
            length = whole.token_ids.index(stop) + 1
            assert cut.finish_reason == "stop"
            assert cut.token_ids == whole.token_ids[:length]
            assert cut.logprobs == pytest.approx(whole.logprobs[:length], abs=1e-4)
        else:
            assert cut.finish_reason == "length"
            assert cut.token_ids == whole.token_ids
    assert ended[0].finish_reason == "stop"
    assert {"stop", "length"} == {completion.finish_reason for completion in ended}


def test_a_stop_token_in_the_last_place_is_a_stop(qwen: LoadedModel):
    stop = LocalPolicy(qwen).generate([ask("Go on.", 1, tokens=1)])[0][0].token_ids[0]
    (completion,) = LocalPolicy(with_ends(qwen, stop)).generate([ask("Go on.", 1, tokens=1)])[0]
    assert (completion.finish_reason, completion.token_ids) == ("stop", (stop,))


def test_a_model_without_an_end_is_refused(qwen: LoadedModel):
    model = copy.deepcopy(qwen.model)
    model.generation_config.eos_token_id = None
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(UsageError, match="names no end-of-turn token"):
        LocalPolicy(dataclasses.replace(qwen, model=model, tokenizer=tokenizer))


# Prompts


def test_prompts_too_long_for_the_context_fail_alone(qwen: LoadedModel):
    model = copy.deepcopy(qwen.model)
    model.config.max_position_embeddings = 150
    short = dataclasses.replace(qwen, model=model)
    requests = [
        ask("fits", 1, 2),
        ask("x" * 200, 3, 4, 5),
        ask("fits, too", 6),
        Request(({"role": "user", "content": "y" * 200},), (7,), choices=("1", "2")),
        Request(({"role": "user", "content": "z"},), (8,), choices=("1", "2")),
        ask("x", 9, tokens=150),
    ]
    answers = LocalPolicy(short).generate(requests)
    assert [[completion.finish_reason == "failed" for completion in each] for each in answers] == [
        [False] * 2,
        [True] * 3,
        [False],
        [True],
        [False],
        [True],
    ]
    failed = answers[1][0]
    assert (failed.text, failed.token_ids, failed.prompt_ids) == ("", (), ())
    needed = LocalPolicy(short).prompt_tokens(requests[1]) + 12
    assert failed.error == f"prompt and answer need {needed} tokens, the model's context holds 150"
    unlimited = LocalPolicy(qwen).generate([requests[0], requests[2], requests[4]])
    assert [each[0].text for each in unlimited] == [answers[at][0].text for at in (0, 2, 4)]


def test_the_context_may_be_filled_to_the_last_token(qwen: LoadedModel):
    policy = LocalPolicy(qwen)
    model = copy.deepcopy(qwen.model)
    model.config.max_position_embeddings = policy.prompt_tokens(ask("full", 1)) + 12
    (completion,) = LocalPolicy(dataclasses.replace(qwen, model=model)).generate([ask("full", 1)])[0]
    assert completion.text == policy.generate([ask("full", 1)])[0][0].text
    assert LocalPolicy(dataclasses.replace(qwen, model=model)).generate([ask("full", 1, tokens=13)])[0][0].error


def test_begin_is_part_of_the_prompt_and_not_of_the_answer(qwen: LoadedModel):
    policy = LocalPolicy(qwen)
    (begun,) = policy.generate([ask("Answer.", 1, begin="So: ")])[0]
    (plain,) = policy.generate([ask("Answer.", 1)])[0]
    tokenizer = qwen.tokenizer
    assert begun.prompt_ids == plain.prompt_ids + tuple(tokenizer("So: ", add_special_tokens=False)["input_ids"])
    assert tokenizer.decode(plain.prompt_ids) == "<|im_start|>user\nAnswer.<|im_end|>\n<|im_start|>assistant\n"
    assert begun.text == tokenizer.decode(begun.token_ids, skip_special_tokens=True)
    assert begun.token_ids != plain.token_ids
    assert policy.prompt_tokens(ask("Answer.", 1, begin="So: ")) == len(begun.prompt_ids)
    assert policy.count_tokens("So: ") == 4


def test_template_variables_reach_the_template(tmp_path: Path):
    template = CHAT_TEMPLATE + "{% if thinking %}<think>\n{% endif %}"
    loaded = load(make_tiny_model(tmp_path / "model", chat_template=template))
    requests = [ask("Hm.", 1)]
    plain = LocalPolicy(loaded).generate(requests)[0][0]
    thinking = LocalPolicy(loaded, template={"thinking": True}).generate(requests)[0][0]
    assert loaded.tokenizer.decode(thinking.prompt_ids) == loaded.tokenizer.decode(plain.prompt_ids) + "<think>\n"
    assert plain.text
    assert (thinking.text, bool(thinking.reasoning)) == ("", True)  # it never stopped thinking


def test_a_template_that_refuses_is_a_usage_error(tmp_path: Path):
    loaded = load(make_tiny_model(tmp_path / "model", chat_template="{{ raise_exception('no system here') }}"))
    with pytest.raises(UsageError, match=r"chat template of .* refuses the game's messages: no system here"):
        LocalPolicy(loaded).generate([ask("Hm.", 1)])


# Reasoning


@pytest.mark.parametrize(
    ("text", "opened", "answer", "reasoning"),
    [
        ("plain", False, "plain", ""),
        ("<think>\nhm\n</think>\n\nThree.", False, "Three.", "hm"),
        ("hm</think>Three.", True, "Three.", "hm"),
        ("<think>a</think>b</think>c", False, "c", "a</think>b"),
        ("<think>never", False, "", "never"),
        ("never", True, "", "never"),
        ("  <think>never", False, "", "never"),
        ("<think></think>", False, "", ""),
        ("1 < 2 and <thin>", False, "1 < 2 and <thin>", ""),
        ("", False, "", ""),
    ],
)
def test_reasoning_is_split_off(text: str, opened: bool, answer: str, reasoning: str):
    assert split_reasoning(text, opened=opened) == (answer, reasoning)


class Scripted(torch.nn.Module):
    """Writes ``script``, whatever the one prompt of ``prompt_length`` tokens is."""

    def __init__(self, script: list[int], prompt_length: int, end: int, size: int) -> None:
        super().__init__()
        self.config = LlamaConfig(num_hidden_layers=1, vocab_size=size)
        self.dtype = torch.float32
        self.generation_config = SimpleNamespace(eos_token_id=end)
        self.script = torch.tensor([*script, end])
        self.prompt_length = prompt_length

    def forward(self, input_ids, attention_mask, position_ids, use_cache, past_key_values, logits_to_keep=0):  # type: ignore[no-untyped-def]
        wanted = self.script[position_ids[:, -1:] + 1 - self.prompt_length]
        return SimpleNamespace(logits=20.0 * torch.nn.functional.one_hot(wanted, self.config.vocab_size).float())


@pytest.mark.parametrize(
    ("begin", "script", "answer", "reasoning"),
    [
        ("", "<think>\nWho? Two.\n</think>\n\n\\boxed{2}", "\\boxed{2}", "Who? Two."),
        ("<think>\n", "Who? Two.\n</think>\n\\boxed{2}", "\\boxed{2}", "Who? Two."),
        ("<think>", "and so on and on", "", "and so on and on"),
        ("", "\\boxed{2}", "\\boxed{2}", ""),
    ],
)
def test_completions_tell_answer_and_reasoning_apart(begin: str, script: str, answer: str, reasoning: str):
    tokenizer = byte_tokenizer()
    request = ask("Who is it?", 4, begin=begin, temperature=0, tokens=100)
    prompt = tokenizer.apply_chat_template(list(request.messages), tokenize=False, add_generation_prompt=True) + begin
    ids = tokenizer(script)["input_ids"]
    model = Scripted(ids, len(tokenizer(prompt)["input_ids"]), tokenizer.eos_token_id, len(tokenizer))
    policy = LocalPolicy(LoadedModel(model, tokenizer, Path(), "scripted", torch.device("cpu"), torch.float32))
    (completion,) = policy.generate([request])[0]
    assert (completion.text, completion.reasoning, completion.finish_reason) == (answer, reasoning, "stop")
    assert completion.token_ids == (*ids, tokenizer.eos_token_id)  # the reasoning is trained on, too


# The model is left as it was


def test_generating_leaves_the_model_in_its_mode_and_counts_tokens(qwen: LoadedModel):
    counted: list[int] = []
    policy = LocalPolicy(qwen, on_tokens=counted.append)
    for training in (True, False):
        qwen.model.train(training)
        counted.clear()
        answers = policy.generate([ask("Count.", 1, 2), ask("Count me, too.", 3, tokens=5)])
        assert qwen.model.training is training
        assert sum(counted) == sum(len(completion.token_ids) for each in answers for completion in each)
    assert policy.generate([]) == []


def test_out_of_memory_names_the_setting(qwen: LoadedModel, monkeypatch: pytest.MonkeyPatch):
    def forward(**options):
        raise torch.OutOfMemoryError

    model = copy.deepcopy(qwen.model).train()
    policy = LocalPolicy(dataclasses.replace(qwen, model=model), batch_tokens=77)
    monkeypatch.setattr(model, "forward", forward)
    with pytest.raises(SpyRLError, match=r"77 tokens side by side; lower model\.batch_tokens"):
        policy.generate([ask("Hm.", 1)])
    assert model.training


# Drawing


def draw_one(probabilities: list[float], uniform: float, sampling: Sampling | None = None) -> tuple[int, float]:
    logits = torch.tensor([probabilities]).log()
    tokens, logprobs = draw(logits, torch.tensor([uniform]), [sampling or Sampling()])
    return int(tokens), float(logprobs)


@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 0), (0.249, 0), (0.251, 1), (0.499, 1), (0.501, 2), (LAST_UNIFORM, 2)]
)
def test_draw_inverts_the_distribution(uniform: float, token: int):
    probabilities = [0.25, 0.25, 0.5]
    drawn, logprob = draw_one(probabilities, uniform)
    assert drawn == token
    assert logprob == pytest.approx(torch.tensor(probabilities[token]).log().item(), abs=1e-6)


@pytest.mark.parametrize("uniform", [0.0, 0.5, LAST_UNIFORM])
def test_what_is_impossible_is_never_drawn(uniform: float):
    assert draw_one([0.0, 0.5, 0.0, 0.5, 0.0], uniform)[0] in (1, 3)
    # top_p 0.6 keeps tokens 3 and 1 of these
    assert draw_one([0.1, 0.35, 0.1, 0.45], uniform, Sampling(top_p=0.6))[0] in (1, 3)
    assert draw_one([0.3, 0.7], uniform, Sampling(top_p=1e-6))[0] == 1


def test_a_uniform_near_one_stays_inside_a_large_vocabulary():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 200_000, generator=generator) * 3
    logits[:, -5000:] = -torch.inf
    uniform = torch.full((4,), LAST_UNIFORM)
    tokens, logprobs = draw(logits, uniform, [Sampling(), Sampling(0.3), Sampling(top_p=0.9), Sampling(2.0)])
    assert (tokens < 195_000).all()
    assert logprobs.isfinite().all()
    # and it is the end of the distribution that was drawn from
    assert (tokens[[0, 3]] > 190_000).all()


def test_draw_follows_each_rows_own_sampling():
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().repeat(4, 1)
    samplings = [Sampling(0.0), Sampling(1.0), Sampling(0.5), Sampling(1.0, 0.5)]
    tokens, logprobs = draw(logits, torch.tensor([0.05, 0.05, 0.35, 0.05]), samplings)
    # squares at temperature 0.5: 1, 4, 9, 16 of 30; the nucleus of 0.5 is tokens 3 and 2
    assert tokens.tolist() == [3, 0, 2, 2]
    assert logprobs.exp().tolist() == pytest.approx([0.4, 0.1, 9 / 30, 0.3], abs=1e-6)


def test_greedy_needs_no_random_number():
    assert draw_one([0.2, 0.5, 0.3], 0.99, Sampling(0.0)) == draw_one([0.2, 0.5, 0.3], 0.0, Sampling(0.0))


# Batches


def test_left_padding_is_flush_right_and_masked():
    ids, mask = left_padded([[5, 6, 7], [8], [9, 9]], torch.device("cpu"))
    assert ids.tolist() == [[5, 6, 7], [0, 0, 8], [0, 9, 9]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1], [0, 1, 1]]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 6)), max_size=20),
    st.integers(1, 200),
)
def test_groups_keep_the_order_and_the_budget(items: list[tuple[int, int]], budget: int):
    def padded(group: list[tuple[int, int]]) -> int:
        return max(size for size, _ in group) * sum(rows for _, rows in group)

    groups = list(grouped(items, budget, lambda item: item[0], lambda item: item[1]))
    assert [item for group in groups for item in group] == items
    assert all(padded(group) <= budget or len(group) == 1 for group in groups)
    # None is smaller than it need be.
    for group, after in itertools.pairwise(groups):
        assert padded([*group, after[0]]) > budget


def test_batches_stay_within_the_budget(qwen: LoadedModel, monkeypatch: pytest.MonkeyPatch):
    shapes: list[tuple[int, int]] = []
    forward = qwen.model.forward

    @functools.wraps(forward)
    def watched(*arguments, **options):
        rows, width = options["input_ids"].shape
        cache = options[cache_argument(qwen.model)]
        shapes.append((rows, width + cache.get_seq_length()))
        return forward(*arguments, **options)

    policy = LocalPolicy(qwen, batch_tokens=500)
    monkeypatch.setattr(qwen.model, "forward", watched)
    policy.generate([ask("m" * (7 * at), at, at + 50, tokens=10) for at in range(10)])
    assert len({rows for rows, _ in shapes}) > 1
    assert all(rows * width <= 500 for rows, width in shapes)
