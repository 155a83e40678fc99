"""Two models in one game: cells over the same deals, kept and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spyrl.cli import main
from spyrl.config import load_config
from spyrl.errors import UsageError
from spyrl.evaluation import versus
from spyrl.evaluation.models import Contestant
from spyrl.evaluation.versus import CELLS, Cell, Match, Outcome, curve, effect, head_to_head, settings_for, sheets
from spyrl.runs.folder import RunFolder
from spyrl.runs.games import read_games
from spyrl.settings import plain
from spyrl.training.train import train
from tiny import Onlooker, tiny_config


def outcome(found: float) -> Outcome:
    return Outcome(found, 8, round(8 * found), 0, 0)


def match(found: dict[str, list[float]]) -> Match:
    """Cells as in ``AAB`` (civilians, spy, detectors), and whether the spy was found in each deal."""
    cells: dict[Cell, dict[int, Outcome]] = {}
    for cell in CELLS:
        name = cell.civilians + cell.spy + cell.detectors
        cells[cell] = {deal: outcome(each) for deal, each in enumerate(found[name])}
    return Match(cells, {})


# A's civilians have every spy found, A's spy is found half as often among B's, detectors are alike.
PLANTED = match(
    {
        "AAA": [1, 1, 1, 1],
        "AAB": [1, 1, 1, 1],
        "ABA": [1, 1, 1, 1],
        "ABB": [1, 1, 1, 1],
        "BAA": [1, 0, 0, 0],
        "BAB": [0, 1, 0, 0],
        "BBA": [1, 1, 0, 0],
        "BBB": [1, 1, 0, 0],
    }
)


def test_effects_by_hand() -> None:
    # As civilians: of the four other places, A wins (0, 0, 4, 4) + what B's miss in deals 0 and 1: one each.
    gain = effect(PLANTED, "civilians", 1).difference
    assert gain.mean == pytest.approx((0.25 + 0.25 + 1 + 1) / 4)
    spy = effect(PLANTED, "spy", -1).difference
    assert spy.mean == pytest.approx((0.25 + 0.25 + 0 + 0) / 4)
    assert effect(PLANTED, "detectors", 1).difference.mean == 0
    assert head_to_head(PLANTED).difference.mean == pytest.approx((0.5 + 0.5 + 1 + 1) / 4)


def test_tables() -> None:
    shown, scores = sheets(PLANTED, {"A": "new", "B": "old"})
    assert shown[0].title.endswith("A is new, B is old")
    assert shown[0].rows[0][:3] == ("A", "A", "A")
    assert shown[0].rows[0][3].startswith("100.0% [")
    assert shown[1].rows[0][1].startswith("+62.5 ±")
    assert {score.count for score in scores} == {4}
    assert curve({10: PLANTED}).rows[0][0] == "10"


def test_differences_are_taken_over_deals_that_all_cells_have() -> None:
    cells = {cell: dict(games) for cell, games in PLANTED.outcomes.items()}
    del cells[CELLS[0]][3]
    assert effect(Match(cells, {}), "civilians", 1).difference.count == 3


def results(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return data


def played(folder: Path) -> dict[str, Any]:
    return {str(path.relative_to(folder)): read_games(path) for path in sorted(folder.glob("games/*/*.parquet"))}


class Killed(BaseException):
    """As a kill would end it."""


def test_a_killed_match_goes_on_and_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(versus, "AT_A_TIME", 2)
    words = ["eval", "game", "bundled:ledger-0", "--versus", "bundled:ledger-1", "--device", "cpu", "--games"]
    assert main([*words, "4", "--to", str(tmp_path / "whole")]) == 0
    out = capsys.readouterr().out
    assert max(map(len, (line for line in out.splitlines() if str(tmp_path) not in line))) <= 80

    real, writes = versus.write_games, []

    def killed(path: Path, rows: Any) -> None:
        if len(writes) == 11:  # in the middle of the second part
            raise Killed
        writes.append(path)
        real(path, rows)

    monkeypatch.setattr(versus, "write_games", killed)
    with pytest.raises(Killed):
        main([*words, "4", "--to", str(tmp_path / "killed")])
    monkeypatch.setattr(versus, "write_games", lambda path, rows: (writes.append(path), real(path, rows)))
    assert main([*words, "4", "--to", str(tmp_path / "killed")]) == 0
    assert len(writes) == 11 + 8  # the first part was not played again
    assert played(tmp_path / "killed") == played(tmp_path / "whole")
    assert results(tmp_path / "killed")["sheets"] == results(tmp_path / "whole")["sheets"]

    # More games of the same: the parts that are whole stay.
    writes.clear()
    assert main([*words, "5", "--to", str(tmp_path / "killed")]) == 0
    assert len(writes) == 8
    # The games are a run's like any other.
    assert main(["audit", str(tmp_path / "whole" / "games" / CELLS[0].folder), "--to", str(tmp_path / "audit")]) == 0
    # Other settings are another match.
    assert main([*words, "4", "--to", str(tmp_path / "whole"), "game.players=4"]) == 2
    assert "game.players was 5 and is 4" in capsys.readouterr().err


def test_a_model_against_itself_is_no_better(tmp_path: Path) -> None:
    words = ["eval", "game", "bundled:ledger-2", "--versus", "bundled:ledger-2", "--games", "4", "--device", "cpu"]
    assert main([*words, "--to", str(tmp_path)]) == 0
    cells, gains = results(tmp_path)["sheets"]
    assert len({tuple(row[3:]) for row in cells["rows"]}) == 1
    assert all(row[1].startswith("+0.0") for row in gains["rows"])
    assert {"cells.png", "cells.svg"} <= {path.name for path in tmp_path.iterdir()}


def test_a_run_and_its_checkpoints(tiny_model: Path, tmp_path: Path) -> None:
    config = tiny_config(tmp_path, tiny_model, "training.iterations=2", "run.checkpoint_every=1", "run.keep=0")
    run = RunFolder(tmp_path / "run")
    train(config, run, Onlooker(), preset="writing-smollm2")
    words = ["eval", "game", str(run.path), "--versus", str(tiny_model), "--device", "cpu", "--games", "3"]
    assert main(words) == 0
    (folder,) = run.evaluations.iterdir()
    assert folder.name.startswith("game-")
    result = results(folder)["sheets"]
    assert "the corpus that runs train on" in results(folder)["notes"][0]
    assert main([*words, "--checkpoints", "--to", str(tmp_path / "curve")]) == 0
    over, *last = results(tmp_path / "curve")["sheets"]
    assert [row[0] for row in over["rows"]] == ["1", "2"]
    assert last == result  # the newest checkpoint is the result
    assert (tmp_path / "curve" / "curve.svg").is_file()


def side(path: str, run: RunFolder | None = None, server: str | None = None) -> Contestant:
    return Contestant(path, path, server, run)


def test_settings_come_from_the_run_a_preset_or_words(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.create()
    run.write_config(plain(load_config("ledger", ["game.players=4"])), "ledger")
    ledger, other = side("bundled:ledger-0"), side("bundled:ledger-1", run)
    assert settings_for((ledger, other), []).game.players == 4
    assert settings_for((ledger, other), ["game.players=3"]).game.players == 3
    assert settings_for((ledger, other), ["ledger"]).game.players == 5
    assert settings_for((ledger, ledger), []).task == "ledger"
    assert settings_for((side("smollm2"), side("smollm2")), ["task=math"]).task == "math"


@pytest.mark.parametrize(
    ("who", "words", "message"),
    [
        ("bundled:ledger-0", ["ledger", "game.degradation.kind=nothing", "training.stages=performing"], "needs a spy"),
        ("bundled:ledger-0", ["ledger", "game.rounds=2"], "game.turns=parallel and game.rounds=1"),
        ("bundled:ledger-0", ["ledger", "math-qwen3-4b"], "one preset or file at a time"),
        ("bundled:ledger-0", ["ledger", "game.player=3"], "game.player"),
        ("smollm2", ["ledger", "task=writing", "model.path=smollm2"], "knows the words of task ledger only"),
    ],
)
def test_what_cannot_be_played(who: str, words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        settings_for((side(who), side("bundled:ledger-1")), words)


def test_servers_need_ballots_in_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"game\.detectors\.answer=reasoned"):
        settings_for((side("smollm2"), side("gpt", server="http://localhost:1/v1")), ["game.detectors.answer=direct"])


def test_checkpoints_are_a_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "game", "bundled:ledger-0", "--versus", "bundled:ledger-0", "--checkpoints"]) == 2
    assert "--checkpoints: bundled:ledger-0 is no run's folder" in capsys.readouterr().err
