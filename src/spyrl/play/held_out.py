"""Held-out documents: what training is measured by and never learns from.

Every number here has one moving part. The quality of outputs, where a task knows it, is the current model's alone.
Detectors are measured on games whose outputs were written once, by the starting model (live games cannot show whether
detectors improve, since spies improve, too). And performing is measured by the starting model's detectors, with one
role's outputs from the current model and the other role's from the starting one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from spyrl.config import Config
from spyrl.corpus import Cursor, open_corpus
from spyrl.errors import SpyRLError
from spyrl.game import Deal, RoleBaselines, named_seed
from spyrl.game.settings import GameSettings
from spyrl.play.stages import Performance, deal_games, detect, perform, settle
from spyrl.policy import Policy, Request, Sampling
from spyrl.tasks import PerformingTurn, Task

_DRAWS = -1  # the iteration in whose name held-out games are dealt and sampled: never one of training's


@runtime_checkable
class KnownQuality(Protocol):
    """A task whose outputs can be scored exactly, for evaluation only."""

    def quality(self, document: str, output: str | None) -> Mapping[str, float]:
        """Numbers in [0, 1] for one output; ``f1`` is the quality itself. A number may be left out."""
        ...


@dataclass(frozen=True)
class Example:
    """A held-out document and the most likely output for it, with its quality where that is known."""

    document: str
    output: str | None
    quality: Mapping[str, float]


@dataclass(frozen=True)
class Measured:
    """One measurement: numbers for the metrics, and every document's most likely output."""

    metrics: dict[str, float]
    examples: tuple[Example, ...]


@dataclass(frozen=True)
class HeldOut:
    """Held-out deals, the games that the starting model made of them, its detector, and how it measures itself."""

    task: Task
    settings: GameSettings
    detector: Policy
    deals: tuple[Deal, ...]
    frozen: tuple[Performance, ...]
    begun: Measured


def hold_out(config: Config, task: Task, performer: Policy, detector: Policy, budget: int) -> HeldOut:
    """Deal the held-out games and let ``performer``, the model as it starts, perform them.

    Documents and draws are the same for every run of this corpus and game, whatever its seed. ``budget`` is the most
    tokens of a document. Raises `UsageError` for a corpus without that split.
    """
    evaluation = config.training.evaluation
    corpus = open_corpus(
        replace(config.corpus, path=evaluation.path or config.corpus.path, split=evaluation.split),
        seed=0,
        count_tokens=performer.count_tokens,
        max_tokens=budget,
    )
    documents, _ = corpus.take(Cursor(), evaluation.documents)
    deals, too_short = deal_games(documents, config.game, 0, _DRAWS)
    frozen, unperformed = perform(deals, task, performer, config.game, 0)
    if not frozen:
        raise SpyRLError(f"no held-out game could be played: {[*too_short, *unperformed][0].detail}")
    held_out = HeldOut(task, config.game, detector, tuple(deals), tuple(frozen), Measured({}, ()))
    return replace(held_out, begun=measure(held_out, performer, detector))


def measure(held_out: HeldOut, performer: Policy, detector: Policy) -> Measured:
    """Measure the current policies on the held-out documents.

    Metrics, all in [0, 1]: ``quality/greedy`` and ``quality/sampled`` of civilians' outputs, with the task's other
    numbers as ``quality/greedy/NAME``; ``frozen/detection``, how often the current detectors' plurality finds the spy
    in the starting model's games; ``strength/civilian``, how often the starting detectors find the starting spy
    among the current civilians; ``strength/spy``, how often they miss the current spy among the starting civilians.
    """
    task, settings = held_out.task, held_out.settings
    performed, _ = perform(held_out.deals, task, performer, settings, 0)
    examples = _greedy(held_out, performer)
    metrics: dict[str, float] = {}
    if isinstance(task, KnownQuality):
        metrics |= _means("quality/greedy", [each.quality for each in examples])
        sampled = [
            task.quality(game.deal.document.text, output.text)
            for game in performed
            for output in game.outputs
            if game.deal.role(output.player) == "civilian"
        ]
        metrics |= _means("quality/sampled", sampled)
    if settings.has_spy:
        metrics |= _found("frozen/detection", held_out.frozen, task, detector, settings)
        begun = {game.deal.game: game for game in held_out.frozen}
        pairs = [(game, begun[game.deal.game]) for game in performed if game.deal.game in begun]
        civilians = [mixed(civilians=game, spy=then) for game, then in pairs]
        spies = [mixed(civilians=then, spy=game) for game, then in pairs]
        metrics |= _found("strength/civilian", civilians, task, held_out.detector, settings)
        found = _found("strength/spy", spies, task, held_out.detector, settings)
        metrics |= {name: 1 - share for name, share in found.items()}
    return Measured(metrics, examples)


def _greedy(held_out: HeldOut, policy: Policy) -> tuple[Example, ...]:
    """Every held-out document's most likely output, as a civilian."""
    task, settings = held_out.task, held_out.settings
    sampling = Sampling(temperature=0, max_tokens=settings.max_tokens, min_tokens=settings.min_tokens)
    requests = []
    for deal in held_out.deals:
        civilian = next(player for player in deal.numbers if deal.role(player) == "civilian")
        turn = PerformingTurn(deal, civilian, 1, (), settings.output)
        requests.append(Request(task.performing(turn), (named_seed(deal.game, "greedy"),), sampling))
    found = []
    for deal, (completion,) in zip(held_out.deals, policy.generate(requests), strict=True):
        text = deal.document.text
        failed = completion.finish_reason == "failed"  # an engine's fault, which is not scored
        output = None if failed else task.read(completion.text, settings.output)
        quality = task.quality(text, output) if isinstance(task, KnownQuality) and not failed else {}
        found.append(Example(text, output, quality))
    return tuple(found)


def mixed(*, civilians: Performance, spy: Performance) -> Performance:
    """A game with the civilians' turns of the one and the spy's of the other."""
    deal = civilians.deal
    turns = tuple(
        theirs if deal.role(ours.output.player) == "spy" else ours
        for ours, theirs in zip(civilians.turns, spy.turns, strict=True)
    )
    return Performance(deal, turns)


def _found(
    name: str, games: Sequence[Performance], task: Task, detector: Policy, settings: GameSettings
) -> dict[str, float]:
    """How often ``detector`` finds the spy in ``games``, by plurality; nothing where none could be played."""
    played, _ = detect(games, task, detector, settings, 0)
    settled, _ = settle(played, settings, RoleBaselines())
    verdicts = [each.game.verdict.accuracy for each in settled if each.game.verdict is not None]
    return {name: sum(verdicts) / len(verdicts)} if verdicts else {}


def _means(name: str, rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means of each number over the rows that have it; ``f1`` stands for the whole."""
    found = {}
    for key in sorted({key for row in rows for key in row}):
        values = [row[key] for row in rows if key in row]
        found[name if key == "f1" else f"{name}/{key}"] = sum(values) / len(values)
    return found
