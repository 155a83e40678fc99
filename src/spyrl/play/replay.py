"""A game as it is kept: one row of plain values, everything in it that a person or a later evaluation may ask for."""

from __future__ import annotations

from typing import Any

from spyrl.play.stages import Settled


def replay(settled: Settled) -> dict[str, Any]:
    """The row of ``games/iteration-NNNNN.parquet`` for this game; columns are `spyrl.runs.games.SCHEMA`."""
    game = settled.game
    deal = game.deal
    rewards = game.detection_rewards or (None,) * len(game.ballots)
    advantages = game.detection_advantages or (None,) * len(game.ballots)
    return {
        "iteration": deal.iteration,
        "game": deal.game,
        "document_id": deal.document.id,
        "document": deal.document.text,
        "players": deal.players,
        "spy": deal.spy,
        "hidden": [{"start": start, "end": end} for start, end in deal.hidden],
        "observations": [deal.observation(player) for player in deal.numbers],
        "outputs": [
            {
                "player": turn.output.player,
                "round": turn.output.round,
                "role": deal.role(turn.output.player),
                "text": turn.output.text,
                "prompt": turn.prompt,
                "completion": turn.completion.text,
                "reasoning": turn.completion.reasoning,
                "finish_reason": turn.completion.finish_reason,
                "tokens": len(turn.completion.token_ids),
            }
            for turn in settled.performing
        ],
        "ballots": [
            {
                "voter": turn.ballot.voter,
                "outcome": turn.ballot.outcome,
                "choice": turn.ballot.choice,
                "text": turn.ballot.text,
                "probabilities": list(turn.ballot.probabilities),
                "prompt": turn.prompt,
                "reasoning": turn.completion.reasoning,
                "finish_reason": turn.completion.finish_reason,
                "tokens": len(turn.completion.token_ids),
                "reward": reward,
                "advantage": advantage,
            }
            for turn, reward, advantage in zip(settled.detection, rewards, advantages, strict=True)
        ],
        "votes": list(game.tally.votes),
        "abstained": game.tally.abstained,
        "invalid": game.tally.invalid,
        "found": game.verdict.accuracy if game.verdict else None,
        "rewards": list(game.performing_rewards),
        "advantages": list(game.performing_advantages),
    }
