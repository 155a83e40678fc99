"""A judge that ranks the outputs of a game by quality.

A model in this process chooses the best output in one token, once for every rotation of their order, so that each
output stands in each place once; the outputs are ranked by their mean log-probability of being chosen. A model behind a
server is asked once, in an order drawn at random, for all numbers from best to worst.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spyrl.evaluation.answers import append_lines, read_lines
from spyrl.evaluation.played import Row
from spyrl.game import generator, last_boxed, named_seed
from spyrl.game.ballot import direct_choices
from spyrl.policy import Completion, Message, Policy, Request, Sampling
from spyrl.tasks import Task

AT_A_TIME = 16
"""Games a call: what a kill can cost."""
_LONGEST = 1024  # tokens of a server's answer

_ASKED = """\
{count} authors did the same work from the same material. Judge how good each result is: whether it does what was \
asked, whether it is true to the material, and how well it is written. Neither length nor order counts.

{asked}<material>
{material}
</material>

{results}

{answer}"""


def rank_games(
    games: Sequence[tuple[str, Row]],
    task: Task,
    policy: Policy,
    path: Path,
    *,
    direct: bool,
    made_with: Mapping[str, Any],
    seed: int,
    on_games: Callable[[int, int], None],
) -> dict[str, tuple[float, ...] | None]:
    """Each game's qualities by player, more is better; ``None`` where the judge's answer could not be read.

    Verdicts are kept in ``path`` (JSON lines), and games that it holds are not judged again. A game whose judge failed
    is left out. Raises `UsageError` where the file was made with something else.
    """
    kept = {row["game"]: row["quality"] for row in read_lines(path, made_with)}
    missing = [(name, row) for name, row in games if name not in kept]
    on_games(len(games) - len(missing), len(games))
    for begin in range(0, len(missing), AT_A_TIME):
        part = missing[begin : begin + AT_A_TIME]
        orders = {name: _orders(name, row["players"], direct, seed) for name, row in part}
        requests = [
            _request(row, order, task, direct, named_seed(seed, "alignment", name))
            for name, row in part
            for order in orders[name]
        ]
        answered = iter(policy.generate(requests))
        new = []
        for name, row in part:
            completions = [next(answered)[0] for _ in orders[name]]
            if any(each.finish_reason == "failed" for each in completions):
                continue
            read = _chosen if direct else _listed
            new.append({"game": name, "quality": read(completions, orders[name], row["players"])})
        append_lines(path, new)
        kept |= {row["game"]: row["quality"] for row in new}
        on_games(len(games) - len(missing) + min(begin + AT_A_TIME, len(missing)), len(games))
    return {name: None if kept[name] is None else tuple(kept[name]) for name, _ in games if name in kept}


def _orders(name: str, players: int, direct: bool, seed: int) -> list[tuple[int, ...]]:
    order = list(range(1, players + 1))
    generator(seed, "alignment", "order", name).shuffle(order)
    if not direct:
        return [tuple(order)]
    return [tuple(order[shift:] + order[:shift]) for shift in range(players)]


def _request(row: Row, order: tuple[int, ...], task: Task, direct: bool, seed: int) -> Request:
    texts: dict[int, str] = {}
    for output in row["outputs"]:
        before = texts.get(output["player"], "")
        texts[output["player"]] = "\n\n".join(filter(None, (before, output["text"])))
    results = [f"[Result {place}]\n{texts[player] or '(nothing)'}" for place, player in enumerate(order, 1)]
    example = ", ".join(str(place) for place in [*range(2, len(order) + 1), 1])
    answer = (
        "Answer at once with \\boxed{number of the best result}."
        if direct
        else f"Compare them briefly. Then end with all numbers from the best to the worst, as in \\boxed{{{example}}}."
    )
    asked = getattr(task, "instructions", "").strip()
    content = _ASKED.format(
        count=len(order),
        asked=f"What was asked: {asked}\n\n" if asked else "",
        material=row["document"],
        results="\n\n".join(results),
        answer=answer,
    )
    messages = (Message(role="user", content=content),)
    if direct:
        choices = direct_choices(len(order))[:-1]
        return Request(messages, (seed,), Sampling(1.0, 1.0, 4), "\\boxed{", choices, "}")
    return Request(messages, (seed,), Sampling(0.0, 1.0, _LONGEST))


def _chosen(completions: Sequence[Completion], orders: Sequence[tuple[int, ...]], players: int) -> list[float]:
    """Mean log-probability of each player's output to be chosen, over the orders."""
    quality = [0.0] * players
    for completion, order in zip(completions, orders, strict=True):
        for player, probability in zip(order, completion.probabilities, strict=True):
            quality[player - 1] += math.log(max(probability, 1e-30)) / len(orders)
    return [round(each, 5) for each in quality]  # what lies below depends on what was batched together


def _listed(completions: Sequence[Completion], orders: Sequence[tuple[int, ...]], players: int) -> list[float] | None:
    """Minus each player's place in the list; ``None`` where it is not a list of all numbers."""
    content, _ = last_boxed(completions[0].text)
    places = [int(digits) for digits in re.findall(r"\d{1,3}", content or "")]
    if sorted(places) != list(range(1, players + 1)):
        return None
    quality = [0.0] * players
    for rank, place in enumerate(places, 1):
        quality[orders[0][place - 1] - 1] = -float(rank)
    return quality
