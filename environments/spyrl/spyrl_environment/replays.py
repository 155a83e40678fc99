"""From verifiers' records to SpyRL's replays: ``spyrl-environment-replays RUN`` writes ``RUN/games``."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from spyrl.errors import SpyRLError, UsageError, first_line
from spyrl.game import RoleBaselines
from spyrl.play import Played, replay, settle
from spyrl.runs.games import write_games
from spyrl_environment.env import known
from spyrl_environment.harness import TurnData
from spyrl_environment.playing import play
from spyrl_environment.table import Table, open_table
from spyrl_environment.taskset import DealData

TRACES = "traces.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the games of a run's records as ``games/iteration-NNNNN.parquet``, as a run of SpyRL keeps them."""
    parser = argparse.ArgumentParser(prog="spyrl-environment-replays", description=main.__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help=f"a folder of vf-eval, or its {TRACES}")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="where to write them (default: RUN/games)")
    options = parser.parse_args(arguments)
    file = options.run / TRACES if options.run.is_dir() else options.run
    try:
        rows, unplayed = replays(episodes(file))
    except SpyRLError as error:
        print(f"spyrl-environment-replays: {error}", file=sys.stderr)
        return error.exit_code
    to = options.to or file.parent / "games"
    to.mkdir(parents=True, exist_ok=True)
    for iteration, games in rows.items():
        write_games(to / f"iteration-{iteration:05d}.parquet", games)
    print(f"{sum(map(len, rows.values()))} games in {to}, {unplayed} dropped")
    return 0


def episodes(file: Path) -> Iterator[vf.Episode]:
    """The episodes in a file of JSON lines, their data as the environment made them.

    Raises `UsageError` for a file that is not there or holds something else.
    """
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield typed(vf.WireEpisode.model_validate_json(line))
                except ValueError as error:
                    why = first_line(error)
                    raise UsageError(f"{file}, line {number}: no episode of this environment: {why}") from None
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None


def typed(episode: vf.WireEpisode) -> vf.Episode:
    """A recorded episode with its deal and turns as the environment made them. Raises `ValueError` for another's."""
    episode.task.data = DealData.model_validate(episode.task.data.model_dump())
    for trace in episode.traces:
        trace.task.data = TurnData.model_validate(trace.task.data.model_dump())
    return episode


def replays(recorded: Iterable[vf.Episode]) -> tuple[dict[int, list[dict[str, Any]]], int]:
    """The games in these episodes by iteration, and how many could not be played.

    Role baselines go through the games in their order, as in training. A deal that was played several times is there
    several times.
    """
    tables: dict[str, Table] = {}
    played: dict[tuple[str, int], list[Played]] = defaultdict(list)
    unplayed = 0
    for episode in recorded:
        data = episode.task.data
        of = repr((data.preset, data.settings, data.tokenizer))
        if of not in tables:
            tables[of] = open_table(data.preset, data.settings, data.tokenizer)
        outcome = play(tables[of], data.deal, known(episode.traces))
        if isinstance(outcome, Played):
            played[of, data.deal.iteration].append(outcome)
        else:
            unplayed += 1
    rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    baselines = {of: RoleBaselines() for of in tables}
    for of, iteration in sorted(played, key=lambda key: key[1]):
        config = tables[of].config
        settled, baselines[of] = settle(played[of, iteration], config.game, baselines[of], config.run.seed)
        rows[iteration] += [replay(each) for each in settled]
    return rows, unplayed


if __name__ == "__main__":
    sys.exit(main())
