"""What a batch of games is told of in the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from spyrl.game import INVALID, Role
from spyrl.play.stages import Dropped, Settled
from spyrl.policy import Completion


def summarize(settled: Sequence[Settled], dropped: Sequence[Dropped]) -> dict[str, float]:
    """Metrics of these games; shares and rates are in [0, 1], lengths in tokens, rewards as they were earned.

    What cannot be known (accuracy without a spy, lengths where an engine tells no tokens, anything without a game) is
    left out rather than made up.
    """
    games = [each.game for each in settled]
    metrics: dict[str, float] = {"games/played": len(settled), "games/dropped": len(dropped)}
    for reason, count in sorted(Counter(each.reason for each in dropped).items()):
        metrics[f"games/dropped/{reason}"] = count
    if not games:
        return metrics
    metrics |= _detection(settled)
    for role in ("spy", "civilian"):
        earned = [
            reward
            for game in games
            for player, reward in zip(game.deal.numbers, game.performing_rewards, strict=True)
            if game.deal.role(player) == role
        ]
        metrics |= _mean(f"reward/{role}", earned)
        metrics |= _mean(f"length/{role}", _lengths(settled, role))
    metrics |= _mean("reward/detector", [reward for game in games for reward in game.detection_rewards])
    metrics |= _mean("length/detector", _tokens(turn.completion for each in settled for turn in each.detection))
    turns = [turn for each in settled for turn in each.performing]
    metrics |= _mean("outputs/missing", [turn.output.text is None for turn in turns])
    metrics |= _mean("outputs/truncated", [turn.completion.finish_reason == "length" for turn in turns])
    completions = [turn.completion for turn in turns]
    completions += [turn.completion for each in settled for turn in each.detection]
    metrics["tokens/written"] = sum(len(completion.token_ids) for completion in completions)
    metrics["tokens/prompt"] = sum(len(completion.prompt_ids) for completion in completions)
    return metrics


def position_bias(shares: Sequence[float]) -> float:
    """Total variation distance of the votes' distribution over player numbers from the uniform one.

    0 where every number gets its share, 1 - 1/n where one gets all. Spies are dealt uniformly, so good detectors
    stay near 0 over many games.
    """
    total = sum(shares)
    if total <= 0:
        return 0.0
    return sum(abs(share / total - 1 / len(shares)) for share in shares) / 2


def _detection(settled: Sequence[Settled]) -> dict[str, float]:
    """Metrics of all ballots of these games."""
    games = [each.game for each in settled]
    ballots = [(ballot, game.deal.spy) for game in games for ballot in game.ballots]
    metrics: dict[str, float] = {}
    metrics |= _mean("detection/accuracy", [ballot.choice == spy for ballot, spy in ballots if spy is not None])
    metrics |= _mean("detection/plurality", [game.verdict.accuracy for game in games if game.verdict])
    metrics |= _mean("detection/abstained", [ballot.outcome == "abstained" for ballot, _ in ballots])
    metrics |= _mean("detection/invalid", [not ballot.valid for ballot, _ in ballots])
    for outcome in INVALID:
        metrics |= _mean(f"detection/invalid/{outcome}", [ballot.outcome == outcome for ballot, _ in ballots])
    exact = [(ballot.probabilities, spy) for ballot, spy in ballots if ballot.probabilities]
    metrics |= _mean("detection/probability_spy", [q[spy - 1] for q, spy in exact if spy is not None])
    metrics |= _mean("detection/probability_abstained", [q[-1] for q, _ in exact])
    players = games[0].deal.players
    votes = [sum(game.tally.votes[number] for game in games) for number in range(players)]
    if sum(votes):
        for number, received in enumerate(votes, 1):
            metrics[f"detection/votes/player_{number}"] = received / sum(votes)
        metrics["detection/position_bias"] = position_bias(votes)
    return metrics


def _lengths(settled: Sequence[Settled], role: Role) -> list[int]:
    return _tokens(
        turn.completion
        for each in settled
        for turn in each.performing
        if each.game.deal.role(turn.output.player) == role
    )


def _tokens(completions: Iterable[Completion]) -> list[int]:
    return [len(completion.token_ids) for completion in completions if completion.token_ids]


def _mean(name: str, values: Sequence[float]) -> dict[str, float]:
    return {name: sum(values) / len(values)} if values else {}
