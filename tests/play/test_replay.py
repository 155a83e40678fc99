"""Replays: the rows of a run's games files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spyrl.game import Ballot, Deal, Document, Output, RoleBaselines
from spyrl.game.settings import GameSettings
from spyrl.play import Detected, Performed, Played, replay, settle
from spyrl.policy import Completion
from spyrl.runs.games import SCHEMA, read_games, write_games


def row(spy: int | None = 2) -> dict[str, Any]:
    """The replay of a game with a missing output, two rounds, reasoning, and ballots of every form."""
    deal = Deal(3, 14, Document("d-é", "One “two” 三. Four"), 3, spy, "One ____ 三. Four", ((4, 9),))
    performing = (
        Performed(Output(1, 1, "A tale\n– of two"), "p1", Completion("A tale\n– of two", "stop", "hm", (1, 2), (3, 4))),
        Performed(Output(2, 1, None), "p2", Completion("no marker", "length", token_ids=(5,))),
        Performed(Output(3, 2, "Third"), "p3", Completion("Third", "stop")),
    )
    detection = (
        Detected(Ballot(1, "vote", 2, r"so \boxed{2}"), "q1", Completion(r"so \boxed{2}", "stop", "why", (), (1,) * 7)),
        Detected(Ballot(None, "vote", 1, "1", (0.5, 0.25, 0.0, 0.25)), "q2", Completion("1", "choice")),
        Detected(Ballot(3, "abstained", None, "N/A"), "q3", Completion("N/A", "stop")),
        Detected(Ballot(None, "no_box", None, "?"), "q4", Completion("?", "length")),
    )
    [settled], _ = settle([Played(deal, performing, detection)], GameSettings(players=3), RoleBaselines())
    return replay(settled)


def agrees(value: Any, kind: pa.DataType, at: str = "row") -> None:
    """Nested keys are exactly those of the schema: pyarrow itself drops what it does not know and fills gaps."""
    if value is None:
        return
    if pa.types.is_struct(kind):
        assert list(value) == [field.name for field in kind], at
        for field in kind:
            agrees(value[field.name], field.type, f"{at}.{field.name}")
    elif pa.types.is_list(kind):
        assert isinstance(value, list), at
        for item in value:
            agrees(item, kind.value_type, f"{at}[]")
    else:
        assert isinstance(value, str | int | float), at


@pytest.mark.parametrize("spy", [2, None])
def test_rows_have_exactly_the_columns_of_the_schema(spy: int | None) -> None:
    agrees(row(spy), pa.struct(list(SCHEMA)))


def test_a_row_tells_what_was_dealt_said_voted_and_earned() -> None:
    told = row()
    assert (told["iteration"], told["game"], told["document_id"], told["players"], told["spy"]) == (3, 14, "d-é", 3, 2)
    hidden = [told["document"][span["start"] : span["end"]] for span in told["hidden"]]
    assert hidden == ["“two”"]
    assert told["observations"] == [told["document"], "One ____ 三. Four", told["document"]]
    assert [(output["player"], output["round"], output["role"], output["text"]) for output in told["outputs"]] == [
        (1, 1, "civilian", "A tale\n– of two"),
        (2, 1, "spy", None),
        (3, 2, "civilian", "Third"),
    ]
    assert (
        told["outputs"][0] | {"prompt": "p1", "reasoning": "hm", "finish_reason": "stop", "tokens": 2}
        == told["outputs"][0]
    )
    assert told["outputs"][1] | {"completion": "no marker", "finish_reason": "length"} == told["outputs"][1]
    ballots = told["ballots"]
    assert [(each["voter"], each["outcome"], each["choice"]) for each in ballots] == [
        (1, "vote", 2),
        (None, "vote", 1),
        (3, "abstained", None),
        (None, "no_box", None),
    ]
    assert [each["text"] for each in ballots] == [r"so \boxed{2}", "1", "N/A", "?"]
    assert [each["probabilities"] for each in ballots] == [[], [0.5, 0.25, 0.0, 0.25], [], []]
    assert [(each["prompt"], each["tokens"], each["reasoning"]) for each in ballots[:2]] == [
        ("q1", 7, "why"),
        ("q2", 0, ""),
    ]
    assert [each["reward"] for each in ballots] == [1, 0, 0, 0]
    assert [each["advantage"] for each in ballots] == pytest.approx([3**0.5] + [-(3**-0.5)] * 3, rel=1e-4)
    assert (told["votes"], told["abstained"], told["invalid"]) == ([1, 1, 0], 1, 1)
    assert told["found"] == 0.5
    assert told["rewards"] == pytest.approx([-0.025, -0.05, 0.075])
    assert told["advantages"] == pytest.approx(told["rewards"])


def test_without_a_spy_there_is_no_verdict_and_no_detection_reward() -> None:
    told = row(spy=None)
    assert told["spy"] is told["found"] is None
    assert {output["role"] for output in told["outputs"]} == {"civilian"}
    assert {(each["reward"], each["advantage"]) for each in told["ballots"]} == {(None, None)}
    assert len(told["rewards"]) == 3


def test_rows_come_back_from_parquet_as_they_were(tmp_path: Path) -> None:
    rows = [row(), row(spy=None)]
    write_games(tmp_path / "games.parquet", rows)
    assert read_games(tmp_path / "games.parquet") == rows
    assert pq.read_schema(tmp_path / "games.parquet").equals(SCHEMA)
    assert [path.name for path in tmp_path.iterdir()] == ["games.parquet"]


def test_an_iteration_without_a_game_is_a_file_without_rows(tmp_path: Path) -> None:
    write_games(tmp_path / "games.parquet", [])
    assert read_games(tmp_path / "games.parquet") == []
    assert pq.read_schema(tmp_path / "games.parquet").equals(SCHEMA)


def test_datasets_reads_all_games_of_a_run(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    write_games(tmp_path / "iteration-00000.parquet", [row()])
    write_games(tmp_path / "iteration-00001.parquet", [])
    write_games(tmp_path / "iteration-00002.parquet", [row(spy=None), row()])
    loaded = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "*.parquet"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert loaded.column_names == SCHEMA.names
    assert list(loaded) == [row(), row(spy=None), row()]
