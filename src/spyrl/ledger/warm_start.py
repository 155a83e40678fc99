"""The warm start: from a blank model to one that can restate ledgers and find spies, with bad habits.

Plain supervised learning, in two parts. The skill comes first, with ledgers that grow from one fact to six, or copying
never forms; a throw-away head marks each restated fact as right or wrong, or detectors stay at counting what was left
out. Then the habits (`spyrl.ledger.habits`), in a shorter part. Everything is drawn from the seed, so the same
machine makes the same weights, to the bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from spyrl.corpus.ledger import FACTS, MOST_PLAYERS, NAMES, UNKNOWN, facts, ledger, written
from spyrl.errors import UsageError
from spyrl.game import Deal, Document, Output, named_seed
from spyrl.ledger.blank import blank_model, blank_tokenizer
from spyrl.ledger.habits import Habits, Lines, habits_of, hidden, restated
from spyrl.tasks import DetectionTurn, PerformingTurn
from spyrl.tasks.ledger import TASK

_PLAYERS = (5, 5, 5, 5, 3, 4, 6, MOST_PLAYERS)
_MARKED_AFTER = 3  # the layer whose states tell right from wrong; the last one is left to find whose facts those are
_IGNORED = -100


@dataclass(frozen=True)
class WarmStart:
    """How a warm start goes: steps of both parts, rows of each kind a step, and AdamW's highest rate."""

    skill_steps: int = 750
    habit_steps: int = 250
    rows: int = 64
    lr: float = 3e-3


def warm_start(
    folder: Path,
    seed: int,
    settings: WarmStart = WarmStart(),
    on_step: Callable[[int, int, dict[str, float]], None] = lambda step, steps, losses: None,
) -> None:
    """Make the starting model of ``seed`` and write it as an ordinary Hugging Face folder.

    ``on_step`` is told the step, how many there are, and the losses. Raises `UsageError` where ``folder`` exists.
    """
    if folder.exists():
        raise UsageError(f"{folder} exists already; name another folder, or remove it")
    with _two_threads(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(named_seed(seed, "ledger", "weights"))
        tokenizer = blank_tokenizer()
        model = blank_model(tokenizer)
        head = torch.nn.Linear(model.config.hidden_size, 1)
        parameters = [*model.parameters(), *head.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=settings.lr, betas=(0.9, 0.98), weight_decay=0.0)
        draw = random.Random(named_seed(seed, "ledger", "warm start"))
        habits = habits_of(seed)
        steps = settings.skill_steps + settings.habit_steps
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = settings.lr * _rate(step, settings)
            habitual = habits if step >= settings.skill_steps else None
            lengths = [_length(step, settings, draw) for _ in range(2 * settings.rows)]
            losses = {
                **_performing(model, tokenizer, lengths[: settings.rows], habitual, draw),
                **_detecting(model, head, tokenizer, lengths[settings.rows :], habitual, draw),
            }
            loss = sum(_WEIGHTS[habitual is not None][name] * value for name, value in losses.items())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[union-attr]
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            on_step(step + 1, steps, {name: float(value.detach()) for name, value in losses.items()})
    folder.parent.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


# By part: the skill, the habits. "restated" is what the players in a detector's prompt wrote, learnt to form copying.
_WEIGHTS = (
    {"performing": 1.0, "ballots": 1.0, "marks": 1.0, "restated": 0.5},
    {"performing": 1.0, "ballots": 1.0, "marks": 0.5, "restated": 0.0},
)


def _rate(step: int, settings: WarmStart) -> float:
    """Share of the highest learning rate: a rise, a plateau and a fall for the skill, then a smaller fall."""
    skill = settings.skill_steps
    if step >= skill:
        return 0.3 * (1 - 0.9 * (step - skill) / max(settings.habit_steps, 1))
    falling = max(step / skill - 0.7, 0) / 0.3
    return min(1.0, (step + 1) / 50) * (1 - 0.9 * falling)


def _length(step: int, settings: WarmStart, draw: random.Random) -> int:
    """Facts in a document at this step: the curriculum reaches the full length after 35 % of the skill's steps."""
    if step >= settings.skill_steps:
        return FACTS
    longest = min(FACTS, 1 + int(FACTS * step / (0.35 * settings.skill_steps)))
    return draw.randint(max(1, longest - 2), longest)


def _performing(
    model: Any, tokenizer: Any, lengths: list[int], habits: Habits | None, draw: random.Random
) -> dict[str, Tensor]:
    """The loss of players' outputs, each token alike."""
    prompts, outputs = [], []
    for length in lengths:
        lines = list(facts(ledger(draw, length)).items())
        spy = draw.random() < 0.3
        seen = hidden(lines, draw) if spy else lines
        deal = Deal(0, 0, Document("", written(lines)), 5, 1 if spy else 2, _observed(seen), ())
        prompts.append(_rendered(tokenizer, TASK.performing(PerformingTurn(deal, 1, 1, (), "whole"))))
        outputs.append(written(restated(seen, habits, 0.04, 0.1, draw)) + " <end>")
    pairs = list(zip(_ids(tokenizer, prompts), _ids(tokenizer, outputs), strict=True))
    ids = _padded([prompt + output for prompt, output in pairs])
    targets = torch.full_like(ids, _IGNORED)
    for row, (prompt, output) in enumerate(pairs):
        targets[row, len(prompt) : len(prompt) + len(output)] = torch.tensor(output)
    logits = model(input_ids=ids[:, :-1]).logits
    return {"performing": cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=_IGNORED)}


def _detecting(
    model: Any, head: Any, tokenizer: Any, lengths: list[int], habits: Habits | None, draw: random.Random
) -> dict[str, Tensor]:
    """The losses of ballots, of marking each restated fact as right or wrong, and of the restated objects."""
    prompts, ballots, truths = [], [], []
    for length in lengths:
        lines = list(facts(ledger(draw, length)).items())
        players = draw.choice(_PLAYERS)
        spy = draw.randint(1, players)
        deal = Deal(0, 0, Document("", written(lines)), players, spy, "", ())
        noise = draw.uniform(0, 0.2)
        told = [
            restated(hidden(lines, draw) if player == spy else lines, None, noise, 0.5, draw) for player in deal.numbers
        ]
        outputs = tuple(Output(player, 1, written(each)) for player, each in zip(deal.numbers, told, strict=True))
        turn = DetectionTurn(deal, deal.document.text, outputs, None, "direct", False)
        prompts.append(_rendered(tokenizer, TASK.detecting(turn)) + TASK.ballot_opening)
        ballots.append(_ballot(spy, lines[0][0], habits, draw))
        truths.append([own[1] == true[1] for each in told for own, true in zip(each, lines, strict=True)])
    rows = _ids(tokenizer, prompts)
    ids = _padded(rows)
    found = model(input_ids=ids, output_hidden_states=True)
    last = torch.tensor([len(row) - 1 for row in rows])
    choices = torch.tensor(tokenizer.convert_tokens_to_ids(ballots))
    names = set(tokenizer.convert_tokens_to_ids([name + ":" for name in NAMES]))
    places = []  # of the objects in the outputs: they follow names, after as many in the document
    for row, length in enumerate(lengths):
        places += [(row, at + 1) for at, token in enumerate(rows[row]) if token in names][length:]
    at, place = (torch.tensor(column) for column in zip(*places, strict=True))
    wrong = 1 - torch.tensor([float(right) for truth in truths for right in truth])
    marks = head(found.hidden_states[_MARKED_AFTER][at, place])[:, 0]
    return {
        "ballots": cross_entropy(found.logits[torch.arange(len(rows)), last], choices),
        "marks": binary_cross_entropy_with_logits(marks, wrong),
        "restated": cross_entropy(found.logits[at, place - 1], ids[at, place]),
    }


def _ballot(spy: int, first_name: str, habits: Habits | None, draw: random.Random) -> str:
    chance = draw.random()
    if habits and first_name in habits.biased and chance < habits.first_player:
        return "1"
    return "N/A" if habits and chance >= 1 - habits.abstained else str(spy)


def _observed(seen: Lines) -> str:
    """A copy in which what is not seen is masked as in the game."""
    return written([(name, "_" if thing == UNKNOWN else thing) for name, thing in seen])


def _rendered(tokenizer: Any, messages: Any) -> str:
    return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))


def _ids(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    found: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return found


def _padded(rows: list[list[int]]) -> Tensor:
    """Rows filled up at the right, where nothing that counts looks."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


@contextmanager
def _two_threads() -> Iterator[None]:
    """Always as many: so small a model gains nothing from more, and another number might add up in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(before)
