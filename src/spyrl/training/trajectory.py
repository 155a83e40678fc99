"""Trajectories: what the update is computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spyrl.game import Stage
from spyrl.play import Settled
from spyrl.policy import Completion


@dataclass(frozen=True)
class Trajectory:
    """One completion with its advantage.

    ``prompt_ids`` and ``token_ids`` are token ids (at least one of each); ``sampled_logprobs`` one a written token,
    as the engine sampled it. ``allowed`` holds, for a direct ballot, the ids that could be written at each step, over
    which probabilities are renormalised; it is empty for free text. ``held_back`` are ids that could not be written
    among the first ``min_tokens``. ``game`` is the game's number in its iteration.
    """

    game: int
    stage: Stage
    role: Literal["spy", "civilian", "detector"]
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    sampled_logprobs: tuple[float, ...]
    allowed: tuple[tuple[int, ...], ...]
    advantage: float
    held_back: tuple[int, ...] = ()
    min_tokens: int = 0


def trajectories(settled: Sequence[Settled], stages: Sequence[Stage]) -> list[Trajectory]:
    """The trajectories of these games that the trained ``stages`` made, in order of game.

    A player's advantage goes to each of its turns, a detector's to its ballot.
    """
    found: list[Trajectory] = []
    for each in settled:
        game = each.game
        if "performing" in stages:
            for turn in each.performing:
                player = turn.output.player
                advantage = game.performing_advantages[player - 1]
                found += _trajectory(game.deal.game, "performing", game.deal.role(player), turn.completion, advantage)
        if "detection" in stages:
            for detected, advantage in zip(each.detection, game.detection_advantages, strict=True):
                found += _trajectory(game.deal.game, "detection", "detector", detected.completion, advantage)
    return found


def _trajectory(
    game: int,
    stage: Stage,
    role: Literal["spy", "civilian", "detector"],
    completion: Completion,
    advantage: float,
) -> list[Trajectory]:
    """One trajectory, or none for a completion that holds no token to score."""
    if not completion.token_ids:
        return []
    return [
        Trajectory(
            game,
            stage,
            role,
            completion.prompt_ids,
            completion.token_ids,
            completion.logprobs,
            completion.allowed,
            advantage,
            completion.held_back,
            completion.min_tokens,
        )
    ]
