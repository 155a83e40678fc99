"""Games made up by hand for tests: rows as `spyrl.play.replay` makes them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

VOCABULARY = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "r", "st", "lo", "mi")]


def row(
    texts: Sequence[str | None],
    spy: int | None,
    votes: Sequence[int | None] = (),
    *,
    document: str = "one two three four five six seven eight nine ten",
    hidden: tuple[int, int] = (8, 18),
    mask: str = "_",
    iteration: int = 0,
    game: int = 0,
) -> dict[str, Any]:
    """One game: its outputs, the spy's number and the ballots (``None`` abstains)."""
    players = len(texts)
    start, end = hidden
    degraded = document[:start] + mask * (end - start) + document[end:]
    counts = [sum(vote == player for vote in votes) for player in range(1, players + 1)]
    most = max(counts)
    found = None
    if spy is not None:
        found = 1 / counts.count(most) if most and counts[spy - 1] == most else 0.0
    return {
        "iteration": iteration,
        "game": game,
        "document_id": f"d{game}",
        "document": document,
        "players": players,
        "spy": spy,
        "hidden": [{"start": start, "end": end}] if spy else [],
        "observations": [degraded if player == spy else document for player in range(1, players + 1)],
        "outputs": [
            {
                "player": player,
                "round": 1,
                "role": "spy" if player == spy else "civilian",
                "text": text,
                "prompt": "asked",
                "completion": text or "",
                "reasoning": "",
                "finish_reason": "stop",
                "tokens": len((text or "").split()),
            }
            for player, text in enumerate(texts, 1)
        ],
        "ballots": [
            {
                "voter": None,
                "outcome": "abstained" if vote is None else "vote",
                "choice": vote,
                "text": "",
                "probabilities": [],
                "prompt": "asked",
                "reasoning": "",
                "finish_reason": "stop",
                "tokens": 1,
                "reward": None,
                "advantage": None,
            }
            for vote in votes
        ],
        "votes": counts,
        "abstained": sum(vote is None for vote in votes),
        "invalid": 0,
        "found": found,
        "rewards": [0.0] * players,
        "advantages": [0.0] * players,
    }


def story(draw: random.Random, words: int, of: Sequence[str] = VOCABULARY) -> str:
    """Sentences of so many words in all."""
    chosen = draw.choices(of, k=max(words, 1))
    for begin in range(0, len(chosen), 9):
        chosen[begin] = chosen[begin].capitalize()
    return " ".join(
        word + ("." if number % 9 == 8 or number == len(chosen) - 1 else "") for number, word in enumerate(chosen)
    )


def made_up(
    seed: int, games: int, *, shorter: float = 0.0, reading: float = 0.7, iteration: int = 0, players: int = 5
) -> list[dict[str, Any]]:
    """Games of a run: every output tells of its document, the spy's not of what was hidden from it.

    All have the same lengths by law, but that the spy's is ``shorter`` by a share. Detectors find the spy with
    probability ``reading`` and else name anyone.
    """
    draw = random.Random(f"{seed}/{iteration}")
    rows = []
    for number in range(games):
        document = story(draw, 80)
        start = draw.randrange(0, len(document) // 2)
        hidden = (start, start + len(document) // 5)
        visible = (document[:start] + document[hidden[1] :]).lower().replace(".", "").split()
        whole = document.lower().replace(".", "").split()
        spy = draw.randint(1, players)
        texts = []
        for player in range(1, players + 1):
            mean = 60 * (1 - shorter if player == spy else 1)
            texts.append(story(draw, round(draw.gauss(mean, 8)), visible if player == spy else whole))
        votes = [spy if draw.random() < reading else draw.randint(1, players) for _ in range(8)]
        rows.append(row(texts, spy, votes, document=document, hidden=hidden, iteration=iteration, game=number))
    return rows
