"""The table: a SpyRL configuration, and the games that a run of it deals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spyrl.config import Config, load_config
from spyrl.corpus import Cursor
from spyrl.errors import UsageError
from spyrl.game import Deal
from spyrl.play import corpus_for, deal_games
from spyrl.policy import Request
from spyrl.policy.models import resolve
from spyrl.policy.prompts import prompt_text, token_ids
from spyrl.policy.server import ServerPolicy
from spyrl.tasks import Task, load_task
from spyrl_environment.answers import Answers, Counts


@dataclass(frozen=True)
class Tokenizer:
    """Counts as a model in this process does, with its tokenizer and chat template."""

    tokenizer: Any
    template: dict[str, Any]

    def count_tokens(self, text: str) -> int:
        """See `Counts`."""
        return len(token_ids(self.tokenizer, text))

    def prompt_tokens(self, request: Request) -> int:
        """See `Counts`."""
        return self.count_tokens(prompt_text(self.tokenizer, request, self.template, self.tokenizer.name_or_path))


@dataclass(frozen=True)
class Table:
    """What games are played with: the configuration, its task, and how documents and prompts are measured."""

    config: Config
    task: Task
    counts: Counts

    def deals(self, games: int) -> Iterator[Deal]:
        """The first ``games`` games of a run, iteration by iteration, as ``spyrl train`` deals them.

        A document that cannot be degraded leaves its number out. Raises what the corpus does.
        """
        corpus = corpus_for(self.config, self.task, Answers({}, self.counts))
        cursor, iteration = Cursor(), 0
        while games > 0:
            documents, cursor = corpus.take(cursor, min(games, self.config.training.games))
            deals, _ = deal_games(documents, self.config.game, self.config.run.seed, iteration)
            yield from deals
            games -= len(documents)
            iteration += 1


def checked_config(preset: str, settings: Sequence[str]) -> Config:
    """The configuration of a preset (or YAML file) with ``key=value`` settings laid over it.

    Raises `UsageError` for settings that are wrong, or that an engine's model behind a server cannot keep.
    """
    config = load_config(preset, list(settings))
    problem = ""
    if config.game.detectors.answer == "direct":
        problem = "direct ballots need the model in this process; set game.detectors.answer=reasoned"
    elif config.game.min_tokens:
        problem = "game.min_tokens needs the model in this process; set it to 0"
    elif config.model.performer or config.model.detector:
        problem = "who fills a seat is the engine's to say: give env.civilian, env.spy or env.detector a model"
    elif config.game.rewards.control == "shuffled":
        problem = "game.rewards.control=shuffled needs all games of an iteration at once"
    if problem:
        raise UsageError(f"settings: {problem}")
    return config


def open_table(preset: str, settings: Sequence[str], tokenizer: str | None) -> Table:
    """The table of these settings.

    With ``tokenizer`` (what ``model.path`` takes) lengths are those of that model, so that documents are cut as
    ``spyrl train`` cuts them; without, they are estimated as for a server, as ``spyrl play model.server=...`` does.
    Raises what `checked_config` does, and `UsageError` for a tokenizer that is not there.
    """
    config = checked_config(preset, settings)
    return Table(config, load_task(config.task), _counts(config, tokenizer))


def _counts(config: Config, tokenizer: str | None) -> Counts:
    if tokenizer is None:
        return ServerPolicy("estimate", "http://localhost/v1")  # which is never asked
    from transformers import AutoTokenizer

    return Tokenizer(AutoTokenizer.from_pretrained(resolve(tokenizer)), dict(config.model.template or {}))
