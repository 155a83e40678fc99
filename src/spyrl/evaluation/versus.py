"""Two models in one game: each as civilians, as the spy and as detectors, over the same deals.

Both perform every deal in both roles; a game is then put together from the one's civilians and the other's spy, and
read by the one's or the other's detectors. So every cell (civilians, spy, detectors) has the same documents, spies and
random draws as the others, and differences are taken deal by deal.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from spyrl.arguments import split_words
from spyrl.config import LEDGER_MODELS, Config, config_of, has_splits, load_config
from spyrl.corpus import Cursor, open_corpus
from spyrl.errors import SpyRLError, UsageError
from spyrl.evaluation import statistics
from spyrl.evaluation.answers import append_lines, read_lines
from spyrl.evaluation.models import Contestant
from spyrl.evaluation.results import Score
from spyrl.evaluation.sheets import Sheet
from spyrl.evaluation.statistics import Interval, Paired, paired
from spyrl.game import Deal, RoleBaselines
from spyrl.play import Dropped, Performance, deal_games, detect, document_budget, mixed, perform, replay, settle
from spyrl.policy import Policy
from spyrl.runs.games import read_games, write_games
from spyrl.settings import check_keys, flat, merged, plain, read_overrides
from spyrl.tasks import Task

Side = Literal["A", "B"]
Part = Literal["civilians", "spy", "detectors"]
PartKey = tuple[int, tuple[int, ...]]
"""Deals kept together: their part's number and theirs."""
AT_A_TIME = 16
"""Deals that are played and kept together: what a kill can cost."""
_LOG = "parts.jsonl"
_DRAWS = -2  # the iteration in whose name these games are dealt: never training's, nor its held-out games'


@dataclass(frozen=True)
class Cell:
    """Who plays what."""

    civilians: Side
    spy: Side
    detectors: Side

    @property
    def folder(self) -> str:
        """The name of the folder with its games."""
        return f"civilians-{self.civilians}-spy-{self.spy}-detectors-{self.detectors}"


SIDES: tuple[Side, Side] = ("A", "B")
CELLS = tuple(Cell(*sides) for sides in itertools.product(SIDES, repeat=3))


@dataclass(frozen=True)
class Outcome:
    """One game in one cell: was the spy found (0 to 1, ties share), and how did its detectors vote."""

    found: float
    ballots: int
    right: int
    abstained: int
    invalid: int


@dataclass(frozen=True)
class Match:
    """Every cell's games by the number of their deal, and the games that could not be played, by reason."""

    outcomes: Mapping[Cell, Mapping[int, Outcome]]
    dropped: Mapping[str, int]


def settings_for(contestants: Sequence[Contestant], words: Sequence[str]) -> Config:
    """The game's settings: of a preset or file in ``words``, else of the run that one of them is, and ``key=value``.

    Raises `UsageError` for what cannot be read, and for a game that cannot be put together from two models' turns.
    """
    source, changes = split_words(words)
    run = next((who.run for who in contestants if who.run), None)
    if run and not source:
        saved, _ = run.read_config()
        overrides = read_overrides(changes)
        check_keys(Config, overrides, "command line")
        config = config_of(merged(saved, overrides), "settings")
    else:
        config = load_config(source, [f"model.path={contestants[0].path}", *changes])
    game, servers = config.game, [who.name for who in contestants if who.server]
    problem = ""
    if not game.has_spy:
        problem = "it needs a spy, and game.degradation.kind=nothing has none"
    elif game.turns == "sequential" or game.rounds > 1:
        problem = "it mixes turns taken without knowing of each other; set game.turns=parallel and game.rounds=1"
    elif servers and game.detectors.answer == "direct":
        problem = f"direct ballots need {servers[0]} in this process; set game.detectors.answer=reasoned"
    elif servers and game.min_tokens:
        problem = f"game.min_tokens needs {servers[0]} in this process; a server cannot be asked for it"
    for who in contestants:
        if who.path.startswith(LEDGER_MODELS) and config.task != "ledger":
            problem = f"{who.path} knows the words of task ledger only, and the game's task is {config.task}"
    if problem:
        raise UsageError(f"spyrl eval game: {problem}")
    return config


def deals_for(config: Config, task: Task, policies: Sequence[Policy], games: int) -> tuple[list[Deal], str]:
    """Deals that both models can be asked, and in words where their documents come from.

    Documents are of the corpus's held-out split where it has one. Fewer come back than asked for where a document
    cannot be degraded. Raises `UsageError` where there is no room for a document or none can be dealt.
    """
    budget = min(document_budget(task, policy, config.game) for policy in policies)
    if budget < config.corpus.min_tokens:
        raise UsageError(
            f"game.max_prompt_tokens={config.game.max_prompt_tokens} leaves no room for a document; raise it, or lower "
            "game.max_tokens"
        )
    evaluation, settings, where = config.training.evaluation, config.corpus, "the corpus that runs train on"
    if has_splits(config):
        settings = replace(settings, path=evaluation.path or settings.path, split=evaluation.split)
        where = f"held-out documents ({evaluation.path or f'split {evaluation.split}'})"

    def count_tokens(text: str) -> int:
        return max(policy.count_tokens(text) for policy in policies)

    corpus = open_corpus(settings, seed=config.run.seed, count_tokens=count_tokens, max_tokens=budget)
    documents, _ = corpus.take(Cursor(), games)
    deals, dropped = deal_games(documents, config.game, config.run.seed, _DRAWS)
    if not deals:
        raise UsageError(f"none of the first {len(dropped)} documents can be degraded: {dropped[0].detail}")
    return deals, where


def made_with(config: Config, a: str, b: str) -> dict[str, Any]:
    """What decides how the games go, as dotted keys: the models' paths and the settings."""
    game = {key: value for key, value in plain(config.game).items() if key not in ("gate", "roles", "rewards")}
    settings = {**flat(plain(config.corpus), "corpus."), **flat(game, "game.")}
    return {"A": a, "B": b, "seed": config.run.seed, "task": config.task, **settings}


def kept_parts(folder: Path, made: Mapping[str, Any]) -> dict[PartKey, dict[str, int]]:
    """The parts that ``folder`` has whole, with the games that could not be played in each, by reason.

    Raises `UsageError` where its games were made with something else.
    """
    return {(row["part"], tuple(row["deals"])): row["dropped"] for row in read_lines(folder / _LOG, made)}


def play_match(
    policies: Mapping[Side, Policy],
    task: Task,
    config: Config,
    deals: Sequence[Deal],
    folder: Path,
    kept: Mapping[PartKey, Mapping[str, int]],
    on_games: Callable[[int, int], None],
) -> Match:
    """Play all cells of these deals, and keep every game in ``folder``; its ``kept`` parts are not played again.

    Raises `SpyRLError` where games cannot be written or none can be played. ``on_games`` is told the deals done, and
    all.
    """
    outcomes: dict[Cell, dict[int, Outcome]] = {cell: {} for cell in CELLS}
    reasons: Counter[str] = Counter()
    done = 0
    on_games(done, len(deals))
    parts: dict[int, list[Deal]] = {}
    for deal in deals:
        parts.setdefault(deal.game // AT_A_TIME, []).append(deal)
    for part, dealt in parts.items():
        key = (part, tuple(deal.game for deal in dealt))
        dropped = kept.get(key)
        if dropped is None:
            failed = _play_part(policies, task, config, dealt, folder, part)
            dropped = dict(Counter(each.reason for each in failed))
            append_lines(folder / _LOG, [{"part": part, "deals": key[1], "dropped": dropped}])
        for cell in CELLS:
            outcomes[cell] |= {row["game"]: _outcome(row) for row in read_games(_path(folder, cell, part))}
        reasons.update(dropped)
        done += len(dealt)
        on_games(done, len(deals))
    if not all(outcomes.values()):
        raise SpyRLError(f"no game could be played ({', '.join(reasons) or 'for no reason told'}); see {folder / _LOG}")
    return Match(outcomes, reasons)


def _play_part(
    policies: Mapping[Side, Policy], task: Task, config: Config, deals: Sequence[Deal], folder: Path, part: int
) -> list[Dropped]:
    settings, seed = config.game, config.run.seed
    performed: dict[Side, dict[int, Performance]] = {}
    dropped: list[Dropped] = []
    for side, policy in policies.items():
        performances, failed = perform(deals, task, policy, settings, seed)
        performed[side] = {each.deal.game: each for each in performances}
        dropped += failed
    both = [game for game in performed["A"] if game in performed["B"]]
    for cell in CELLS:
        games = [mixed(civilians=performed[cell.civilians][game], spy=performed[cell.spy][game]) for game in both]
        played, failed = detect(games, task, policies[cell.detectors], settings, seed)
        dropped += failed
        settled, _ = settle(played, settings, RoleBaselines(), seed)
        path = _path(folder, cell, part)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_games(path, [replay(each) for each in settled])
        except OSError as error:
            raise SpyRLError(f"cannot write {path}: {error.strerror or error}; make room and try again") from error
    return dropped


def _path(folder: Path, cell: Cell, part: int) -> Path:
    return folder / "games" / cell.folder / f"part-{part:05d}.parquet"


def _outcome(row: Mapping[str, Any]) -> Outcome:
    outcomes = [ballot["outcome"] for ballot in row["ballots"]]
    return Outcome(row["found"], len(outcomes), row["votes"][row["spy"] - 1], row["abstained"], row["invalid"])


# Tables.


def sheets(match: Match, names: Mapping[Side, str]) -> tuple[tuple[Sheet, ...], tuple[Score, ...]]:
    """The cells, what changes where A takes a part instead of B, and the numbers a model card can state."""
    rows, scores = [], []
    for cell in CELLS:
        games = list(match.outcomes[cell].values())
        found = statistics.share([each.found for each in games])
        ballots = sum(each.ballots for each in games)
        shares = [sum(getattr(each, key) for each in games) / ballots for key in ("right", "abstained", "invalid")]
        rows.append(
            (
                cell.civilians,
                cell.spy,
                cell.detectors,
                f"{found.mean:.1%} {_ends(found.low, found.high)}",
                *(f"{share:.0%}" for share in shares),
                str(len(games)),
            )
        )
        low, high = (None if end is None else 100 * end for end in (found.low, found.high))
        metric = f"spy found, civilians {cell.civilians}, spy {cell.spy}, detectors {cell.detectors} (%)"
        scores.append(Score("game", metric, 100 * found.mean, low, high, len(games)))
    columns = ("civilians", "spy", "detectors", "spy found", "ballots right", "n/a", "bad", "games")
    title = f"Spies found by plurality; A is {names['A']}, B is {names['B']}"
    gains = []
    for what, gain in (
        ("civilians: spies found", effect(match, "civilians", 1)),
        ("the spy: not found", effect(match, "spy", -1)),
        ("detectors: spies found", effect(match, "detectors", 1)),
        ("civilians against the other's spy", head_to_head(match)),
    ):
        difference = gain.difference
        low, high = (None if end is None else 100 * end for end in (difference.low, difference.high))
        p = "–" if gain.p is None else f"{gain.p:.3f}" if gain.p >= 0.001 else "< 0.001"
        gains.append((what, _points(difference), p, str(difference.count)))
        scores.append(
            Score("game", f"A instead of B as {what} (points)", 100 * difference.mean, low, high, difference.count)
        )
    better = Sheet("A instead of B, points, deal by deal", ("as", "more often", "p", "deals"), tuple(gains))
    return (Sheet(title, columns, tuple(rows)), better), tuple(scores)


def curve(matches: Mapping[int, Match]) -> Sheet:
    """What A instead of B changes in each part, by A's iterations."""
    rows = []
    for iteration, match in matches.items():
        gains = [effect(match, "civilians", 1), effect(match, "spy", -1), effect(match, "detectors", 1)]
        rows.append((str(iteration), *(_points(gain.difference) for gain in gains)))
    return Sheet(
        "A instead of B over A's training, points", ("iterations", "civilians", "spy", "detectors"), tuple(rows)
    )


def effect(match: Match, part: Part, sign: int) -> Paired:
    """What A in ``part`` instead of B does to finding the spy, times ``sign``: means over the other parts, by deal."""
    ours = [cell for cell in CELLS if getattr(cell, part) == "A"]
    return _difference(match, ours, [cell for cell in CELLS if cell not in ours], sign)


def head_to_head(match: Match) -> Paired:
    """How much more often A's civilians have B's spy found than B's civilians A's: means over detectors, by deal."""
    ours = [cell for cell in CELLS if (cell.civilians, cell.spy) == ("A", "B")]
    return _difference(match, ours, [cell for cell in CELLS if (cell.civilians, cell.spy) == ("B", "A")], 1)


def _difference(match: Match, ours: Sequence[Cell], theirs: Sequence[Cell], sign: int) -> Paired:
    shared = sorted(set.intersection(*(set(games) for games in match.outcomes.values())))

    def means(cells: Sequence[Cell]) -> list[float]:
        return [sign * sum(match.outcomes[cell][deal].found for cell in cells) / len(cells) for deal in shared]

    return paired(means(ours), means(theirs))


def _points(difference: Interval) -> str:
    half = difference.half
    return f"{100 * difference.mean:+.1f}" + ("" if half is None else f" ±{100 * half:.1f}")


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{100 * low:.0f}–{100 * high:.0f}]"
