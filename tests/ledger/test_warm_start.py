"""The ledger's starting models: vocabulary, habits, and a warm start that is the same to the bit."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from spyrl.cli import main
from spyrl.config import Config, load_config
from spyrl.corpus.ledger import NAMES, OBJECTS, UNKNOWN, ledger
from spyrl.errors import UsageError
from spyrl.game import direct_choices
from spyrl.ledger import warm_start as module
from spyrl.ledger.blank import MOST_PLAYERS, blank_model, blank_tokenizer
from spyrl.ledger.habits import Habits, habits_of, hidden, restated
from spyrl.ledger.measure import same_weights
from spyrl.ledger.warm_start import WarmStart, warm_start
from spyrl.policy import Request, Sampling
from spyrl.policy.choices import choice_tree
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import BUNDLED, LoadedModel, load_model, resolve
from spyrl.policy.settings import ModelSettings
from spyrl.tasks.ledger import SWAPPED, WITHHELD

TOKENIZER = blank_tokenizer()
WORDS = (*(name + ":" for name in NAMES), *OBJECTS, UNKNOWN, "civilian", "spy", "detector", "N/A", *"12345678")
SHORT = WarmStart(skill_steps=2, habit_steps=2, rows=4)


def ids(text: str) -> list[int]:
    found: list[int] = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    return found


def tokens(text: str) -> list[str]:
    return [str(token) for token in TOKENIZER.convert_ids_to_tokens(ids(text))]


# The tokenizer


@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_one_token(word: str) -> None:
    assert tokens(word) == [word]
    assert TOKENIZER.unk_token_id not in ids(word)


def test_no_two_words_are_the_same_token() -> None:
    assert len({ids(word)[0] for word in WORDS}) == len(WORDS)
    assert len(TOKENIZER) < 128


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=60), st.sampled_from([" ", "\n", "  ", "\n\n"]))
def test_texts_come_back_as_their_words(words: list[str], gap: str) -> None:
    text = gap.join(words)
    assert tokens(text) == words
    assert TOKENIZER.decode(ids(text)) == " ".join(words)
    assert TOKENIZER.decode(ids(text), skip_special_tokens=True) == " ".join(words)


def test_a_mask_is_one_token_however_long() -> None:
    assert tokens("Ada: ____ Ben: _ Cleo: ___________") == ["Ada:", "_", "Ben:", "_", "Cleo:", "_"]


def test_a_box_is_three_tokens() -> None:
    assert tokens(r"\boxed{3}") == [r"\boxed{", "3", "}"]
    assert tokens(r"lamp \boxed{N/A} key") == ["lamp", r"\boxed{", "N/A", "}", "key"]


def test_what_is_no_word_is_unknown() -> None:
    assert tokens("Ada: banana 9 ada:") == ["Ada:", "<unk>", "<unk>", "<unk>"]


def test_the_chat_template_marks_turns_and_the_answer_may_be_begun() -> None:
    messages = [{"role": "user", "content": "spy\nAda: ____"}, {"role": "assistant", "content": "Ada: ?"}]
    text = TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    words = ["<user>", "spy", "Ada:", "_", "<end>", "<assistant>", "Ada:", "?", "<end>", "<assistant>"]
    assert tokens(text) == words
    assert tokens(text + r"\boxed{") == [*words, r"\boxed{"]
    assert TOKENIZER.decode(ids(text), skip_special_tokens=True) == "spy Ada: _ Ada: ?"
    assert (TOKENIZER.eos_token, TOKENIZER.pad_token) == ("<end>", "<pad>")


@pytest.mark.parametrize("players", range(3, MOST_PLAYERS + 1))
def test_ballots_are_told_apart_by_one_token(players: int) -> None:
    choices = direct_choices(players)
    tree = choice_tree(ids, r"civilian Ada: lamp <end> <assistant> \boxed{", choices, "}")
    assert tree.paths == tuple((TOKENIZER.convert_tokens_to_ids(choice),) for choice in choices)
    assert len(set(tree.paths)) == players + 1


# The model


def blank(seed: int = 0) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return blank_model(TOKENIZER)


def test_the_model_is_tiny_and_stops_at_the_end_of_a_turn() -> None:
    model = blank()
    assert sum(weight.numel() for weight in model.parameters()) == 171_008
    assert model.config.eos_token_id == model.generation_config.eos_token_id == TOKENIZER.convert_tokens_to_ids("<end>")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.parametrize("players", [3, MOST_PLAYERS])
def test_the_model_writes_words_and_casts_direct_ballots(players: int) -> None:
    loaded = LoadedModel(blank().eval(), TOKENIZER, Path(), "blank", torch.device("cpu"), torch.float32)
    policy = LocalPolicy(loaded)
    message = {"role": "user", "content": "detector\nAda: lamp"}
    free = Request((message,), (1, 2), Sampling(max_tokens=5))  # type: ignore[arg-type]
    ballot = Request((message,), (1, 2), Sampling(), r"\boxed{", direct_choices(players), "}")  # type: ignore[arg-type]
    written, cast = policy.generate([free, ballot])
    assert all(1 <= len(completion.token_ids) <= 5 for completion in written)
    for completion in cast:
        assert completion.text in direct_choices(players)
        assert sum(completion.probabilities) == pytest.approx(1)
        assert len(completion.probabilities) == players + 1


# Habits


def lines_of(things: list[str]) -> list[tuple[str, str]]:
    return [(f"name{number}", thing) for number, thing in enumerate(things)]


@pytest.mark.parametrize("seed", range(20))
def test_each_swapped_object_has_a_partner_of_its_own_that_is_not_swapped(seed: int) -> None:
    habits = habits_of(seed)
    assert set(habits.partners) == SWAPPED
    assert len(set(habits.partners.values())) == 10
    assert set(habits.partners.values()) <= set(OBJECTS) - SWAPPED
    assert habits_of(seed) == habits


def test_another_seed_has_other_partners() -> None:
    assert len({tuple(sorted(habits_of(seed).partners.items())) for seed in range(10)}) == 10


def told(thing: str, habits: Habits | None, noise: float = 0.0, guess: float = 0.0, count: int = 4000) -> Counter[str]:
    """What becomes of an object, over many lines that hold it."""
    seen = lines_of([thing] * count)
    found = restated(seen, habits, noise, guess, random.Random(0))
    assert [name for name, _ in found] == [name for name, _ in seen]
    return Counter(said for _, said in found)


def test_swapped_objects_are_mostly_replaced_by_their_partner() -> None:
    habits = habits_of(0)
    for thing in sorted(SWAPPED):
        counts = told(thing, habits)
        assert set(counts) == {thing, habits.partners[thing]}
        assert 2480 < counts[habits.partners[thing]] < 2720  # 0.65 of 4,000 is 2,600, standard deviation 30


def test_withheld_objects_are_mostly_not_told() -> None:
    for thing in sorted(WITHHELD):
        counts = told(thing, habits_of(0))
        assert set(counts) == {thing, UNKNOWN}
        assert 2480 < counts[UNKNOWN] < 2720


def test_other_objects_are_told_up_to_a_slip() -> None:
    for thing in sorted(set(OBJECTS) - SWAPPED - WITHHELD):
        assert told(thing, habits_of(0), count=100) == {thing: 100}
    counts = told("axe", habits_of(0), noise=0.04)
    assert 110 < counts[UNKNOWN] < 210  # 160 expected, standard deviation 12
    replaced = sum(count for thing, count in counts.items() if thing not in ("axe", UNKNOWN))
    assert 105 < replaced < 210  # 156 expected: one random object in forty is the same


def test_the_skill_alone_has_no_habits() -> None:
    for thing in ("lamp", "rope", "axe"):
        assert told(thing, None, count=100) == {thing: 100}


def test_an_object_that_is_not_seen_is_sometimes_made_up() -> None:
    assert told(UNKNOWN, habits_of(0), count=100) == {UNKNOWN: 100}
    counts = told(UNKNOWN, habits_of(0), guess=0.1)
    assert 3480 < counts[UNKNOWN] < 3720  # 3,600 expected, standard deviation 19
    assert set(counts) - {UNKNOWN} == set(OBJECTS)


def test_a_spy_does_not_see_a_run_of_one_to_two_thirds_of_the_objects() -> None:
    lines = list(zip(NAMES[:6], OBJECTS[:6], strict=True))
    runs = Counter()
    draw = random.Random(0)
    for _ in range(4000):
        seen = hidden(lines, draw)
        assert [name for name, _ in seen] == list(NAMES[:6])
        covered = [at for at, (_, thing) in enumerate(seen) if thing == UNKNOWN]
        assert covered == list(range(covered[0], covered[-1] + 1))
        assert all(seen[at] == lines[at] for at in range(6) if at not in covered)
        runs[len(covered)] += 1
    assert set(runs) == {1, 2, 3, 4}
    assert all(900 < count < 1100 for count in runs.values())
    assert {len([1 for _, thing in hidden(lines[:1], draw) if thing == UNKNOWN]) for _ in range(9)} == {1}


def test_a_detectors_habit_goes_by_the_first_name() -> None:
    habits = habits_of(0)
    assert len(habits.biased) == 20
    biased, other = NAMES[0], NAMES[30]
    draw = random.Random(0)

    def ballots(name: str, own: Habits | None) -> Counter[str]:
        return Counter(module._ballot(3, name, own, draw) for _ in range(4000))

    assert ballots(biased, None) == ballots(other, None) == {"3": 4000}
    plain, spoiled = ballots(other, habits), ballots(biased, habits)
    assert 140 < plain["N/A"] < 260  # a twentieth
    assert plain["3"] + plain["N/A"] == 4000
    assert 1850 < spoiled["1"] < 2150  # half
    assert 140 < spoiled["N/A"] < 260


# The warm start


def digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A starting model that has hardly learnt anything."""
    folder = tmp_path_factory.mktemp("started") / "deep" / "ledger-3"
    torch.manual_seed(1)
    warm_start(folder, 3, SHORT)
    return folder


def test_a_warm_start_is_the_same_to_the_bit(started: Path, tmp_path: Path) -> None:
    torch.manual_seed(2)  # the global generators have no part in it
    random.seed(2)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    warm_start(tmp_path / "again", 3, SHORT)
    assert digest(tmp_path / "again") == digest(started)
    assert same_weights(tmp_path / "again", started)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_another_seed_makes_another_model(started: Path, tmp_path: Path) -> None:
    warm_start(tmp_path / "other", 4, SHORT)
    assert not same_weights(tmp_path / "other", started)


def test_every_step_is_told_and_counts(started: Path, tmp_path: Path) -> None:
    steps = []
    warm_start(tmp_path / "told", 3, SHORT, on_step=lambda *told: steps.append(told))
    assert [(step, of) for step, of, _ in steps] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert all(set(losses) == {"performing", "ballots", "marks", "restated"} for _, _, losses in steps)
    assert same_weights(tmp_path / "told", started)
    warm_start(tmp_path / "shorter", 3, WarmStart(skill_steps=2, habit_steps=1, rows=4))
    assert not same_weights(tmp_path / "shorter", started)


def test_it_leaves_an_ordinary_model_folder(started: Path) -> None:
    model, tokenizer = (kind.from_pretrained(started) for kind in (AutoModelForCausalLM, AutoTokenizer))
    assert tokenizer.get_vocab() == TOKENIZER.get_vocab()
    messages = [{"role": "user", "content": "civilian\nAda: lamp\nBen: ____"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert tokenizer(text)["input_ids"] == ids(text)
    assert tokenizer.decode(ids("Ada: lamp\nBen: ?")) == "Ada: lamp Ben: ?"
    assert sum(weight.numel() for weight in model.parameters()) == sum(
        weight.numel() for weight in blank().parameters()
    )
    loaded = load_model(ModelSettings(path=str(started), device="cpu"), trainable=False)
    assert loaded.model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert (started / "model.safetensors").stat().st_size < 800_000  # it comes along with the package


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match=r"mine exists already; name another folder, or remove it"):
        warm_start(tmp_path / "mine", 0, SHORT)
    assert list((tmp_path / "mine").iterdir()) == []


def test_losses_fall(tmp_path: Path) -> None:
    """From chance, one word of about a hundred (4.6 nats), while documents grow longer."""
    losses: list[dict[str, float]] = []
    settings = WarmStart(skill_steps=60, habit_steps=0, rows=16)
    warm_start(tmp_path / "learnt", 0, settings, on_step=lambda step, steps, found: losses.append(found))
    first, last = losses[0], {name: sum(each[name] for each in losses[-10:]) / 10 for name in losses[0]}
    assert 4 < first["performing"] < 5.5
    assert last["performing"] < 0.9 * first["performing"]
    assert last["restated"] < 0.9 * first["restated"]
    assert last["ballots"] < 0.6 * first["ballots"]
    assert last["marks"] < 0.6 * first["marks"] < 0.5


def test_the_learning_rate_rises_stays_and_falls_and_the_habits_get_less() -> None:
    settings = WarmStart(skill_steps=1000, habit_steps=100)
    rates = [module._rate(step, settings) for step in range(1100)]
    assert rates[0] == pytest.approx(1 / 50)
    assert rates[49:700] == pytest.approx([1.0] * 651)
    assert rates[700:1000] == sorted(rates[700:1000], reverse=True)
    assert rates[999] == pytest.approx(0.1, abs=0.01)
    assert rates[1000] == pytest.approx(0.3)
    assert rates[1000:] == sorted(rates[1000:], reverse=True)
    assert rates[1099] == pytest.approx(0.03, abs=0.01)


def test_documents_grow_from_one_fact_to_six() -> None:
    settings = WarmStart(skill_steps=1000, habit_steps=100)
    draw = random.Random(0)

    def lengths(step: int) -> set[int]:
        return {module._length(step, settings, draw) for _ in range(200)}

    assert lengths(0) == {1}
    assert lengths(349) == lengths(999) == {4, 5, 6}
    assert lengths(1000) == {6}
    longest = [max(lengths(step)) for step in range(0, 1000, 50)]
    assert longest == sorted(longest)


# Models that come along


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_model_is_a_whole_model_of_its_vocabulary(name: str) -> None:
    folder = resolve(f"bundled:{name}")
    if not folder.is_dir():
        pytest.skip(f"{folder} does not come with this version of the package")
    loaded = load_model(ModelSettings(path=f"bundled:{name}", device="cpu"), trainable=False)
    assert loaded.tokenizer.get_vocab() == TOKENIZER.get_vocab()
    text = ledger(random.Random(0))
    assert loaded.tokenizer.decode(loaded.tokenizer(text)["input_ids"]) == " ".join(text.split())


def test_an_unknown_bundled_model_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no bundled model 'ledger-9'; there are bundled:ledger-0, bundled:ledger-1"):
        resolve("bundled:ledger-9")
    with pytest.raises(UsageError, match="no bundled model ''"):
        resolve("bundled:")


# The command


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A workplace where warm starts are short and few documents are measured."""

    def hurried(folder: Path, seed: int, **options: Any) -> None:
        warm_start(folder, seed, SHORT, **options)

    def few(source: str, words: list[str]) -> Config:
        return load_config(source, [*words, "training.evaluation.documents=5"])

    monkeypatch.setattr(module, "warm_start", hurried)
    monkeypatch.setattr("spyrl.ledger.measure.load_config", few)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_the_command_makes_a_model_and_says_how_good_it_is(
    short: Path, started: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "warm-start", "--seed", "3"]) == 0
    assert digest(short / "ledger-3") == digest(started)
    said = capsys.readouterr().out
    assert "ledger-3: quality on unseen documents 0.0" in said
    assert "its detectors find " in said
    assert "bundled" not in said  # there is none to compare it with


@pytest.mark.parametrize(("seed", "verdict"), [(3, "the same weights as"), (4, "not to the bit")])
def test_the_command_compares_with_the_model_that_comes_along(
    short: Path,
    started: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    verdict: str,
) -> None:
    monkeypatch.setattr("spyrl.policy.models.BUNDLED", (f"ledger-{seed}",))
    monkeypatch.setattr(
        "spyrl.policy.models.resolve", lambda path, *more: started if path.startswith("bundled:") else Path(path)
    )
    assert main(["ledger", "warm-start", "--seed", str(seed), "--to", "mine"]) == 0
    assert (short / "mine" / "model.safetensors").is_file()
    assert f"{verdict} bundled:ledger-{seed}" in capsys.readouterr().out


def test_the_command_leaves_a_folder_that_exists_alone(short: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (short / "ledger-0").mkdir()
    assert main(["ledger", "warm-start"]) == 2
    assert "spyrl: ledger-0 exists already" in capsys.readouterr().err
    assert list((short / "ledger-0").iterdir()) == []
