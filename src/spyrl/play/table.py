"""The table a game is played at: the corpus that suits a task and a policy, and one game from a configuration."""

from __future__ import annotations

from collections.abc import Callable

from spyrl.config import Config
from spyrl.corpus import Corpus, Cursor, open_corpus
from spyrl.errors import SpyRLError, UsageError
from spyrl.game import RoleBaselines
from spyrl.play.stages import Settled, deal_games, detect, document_budget, perform, settle
from spyrl.policy import Policy
from spyrl.policy.opening import open_other, open_policy
from spyrl.tasks import Task


def corpus_for(config: Config, task: Task, policy: Policy) -> Corpus:
    """The configured corpus, its documents cut to what prompts leave for them.

    Raises `UsageError` where there is no room for a document or none of the first can be degraded.
    """
    budget = document_budget(task, policy, config.game)
    if budget < config.corpus.min_tokens:
        raise UsageError(
            f"game.max_prompt_tokens={config.game.max_prompt_tokens} leaves {max(budget, 0)} tokens for the document "
            "beside the rules and the outputs; raise it, or lower game.max_tokens"
        )
    corpus = open_corpus(config.corpus, seed=config.run.seed, count_tokens=policy.count_tokens, max_tokens=budget)
    documents, _ = corpus.take(Cursor(), config.training.games)
    deals, dropped = deal_games(documents, config.game, config.run.seed, 0)
    if not deals:
        raise UsageError(f"none of the first {len(dropped)} documents can be degraded: {dropped[0].detail}")
    return corpus


def play_one(config: Config, task: Task, number: int, say: Callable[[str], None]) -> Settled:
    """Play game ``number`` of the run's first iteration, as training would deal it.

    Raises `SpyRLError` where the game is dropped.
    """
    policy = open_policy(config.model, say)
    performer = open_other(config.model.performer, config.model, say) or policy
    detector = open_other(config.model.detector, config.model, say) or policy
    corpus = corpus_for(config, task, performer)
    documents, _ = corpus.take(Cursor(), number + 1)
    deals, dropped = deal_games(documents, config.game, config.run.seed, 0)
    chosen = [deal for deal in deals if deal.game == number]
    say("the players perform")
    performances, unperformed = perform(chosen, task, performer, config.game, config.run.seed)
    say("the detectors vote")
    played, undetected = detect(performances, task, detector, config.game, config.run.seed)
    for each in (*dropped, *unperformed, *undetected):
        if each.deal.game == number:
            raise SpyRLError(f"game {number} could not be played ({each.reason}): {each.detail}")
    (settled,), _ = settle(played, config.game, RoleBaselines(), config.run.seed)
    return settled
