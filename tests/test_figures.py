"""A measured run's curve, in characters and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from spyrl.figures import curve_figure, has_curve, plot, series, training_figure

RUN: list[dict[str, Any]] = [
    {"iteration": 0, "stage": "detection", "detection/accuracy": 0.25, "start/quality/greedy": 0.5},
    {"iteration": 1, "stage": "detection", "detection/accuracy": 0.5, "quality/greedy": 0.75},
    {"iteration": 2, "stage": "performing", "detection/accuracy": None},
    {"iteration": 3, "stage": "performing", "detection/accuracy": 0.5, "quality/greedy": 1.0},
]


def test_a_series_begins_with_the_starting_model() -> None:
    assert series(RUN, "quality/greedy") == [(0, 0.5), (2, 0.75), (4, 1.0)]
    assert series(RUN, "frozen/detection") == []
    assert series([{"iteration": 0, "quality/greedy": None}], "quality/greedy") == []


def test_what_has_a_curve() -> None:
    assert has_curve(RUN)
    assert has_curve([{"iteration": 4, "frozen/detection": 0.0}])
    assert not has_curve([{"iteration": 4, "detection/accuracy": 0.5}])


def test_marks_stand_at_their_iterations_and_values() -> None:
    drawn = plot({"●": series(RUN, "quality/greedy"), "○": [(0, 0.9), (4, 0.6)]}, 4, 25)
    assert drawn == [
        "1.0 │                   ●",
        "    │                ···",
        "0.9 │○·            ···",
        "    │  ···        ··",
        "0.8 │     ···· ···",
        "    │         ·●",
        "0.7 │       ··· ····",
        "    │     ··        ···",
        "0.6 │   ···            ·○",
        "    │ ··",
        "0.5 │●",
        "    └────────────────────",
        "     0    iterations    4",
    ]


def test_values_near_zero_have_a_row() -> None:
    drawn = plot({"●": [(0, 0.0), (10, 1.0)]}, 10, 60)
    assert len(drawn) == 13
    assert drawn[10].startswith("0.0 │●")
    assert drawn[0].endswith("●")
    assert max(map(len, drawn)) == 60


@pytest.mark.parametrize("width", [0, 20, 80])
@pytest.mark.parametrize("value", [0.0, 0.3, 0.7, 1.0])
def test_marks_that_fall_together_are_the_first_series(width: int, value: float) -> None:
    drawn = plot({"●": [(0, value), (1, value)], "○": [(1, value)]}, 1, width)
    assert "".join(drawn).count("●") == 2
    assert "○" not in "".join(drawn)
    assert all(len(line) <= max(width, 25) for line in drawn)


@pytest.mark.parametrize("stage", ["detection", "joint"])
def test_the_picture_is_one(tmp_path: Path, stage: str) -> None:
    path = tmp_path / "curve.png"
    curve_figure([{**line, "stage": stage} for line in RUN], path)
    picture = imread(path)
    height, width, _ = picture.shape
    assert (height, width) == (690, 1050)
    assert len({tuple(colour) for colour in picture.reshape(-1, picture.shape[2])}) > 20
    assert path.stat().st_size < 200_000


def test_stages_are_shaded_apart(tmp_path: Path) -> None:
    curve_figure(RUN, tmp_path / "curve.png")
    picture = imread(tmp_path / "curve.png")
    left, right = picture[400, 250, :3], picture[400, 900, :3]
    assert left[0] > left[2]  # detection, on orange
    assert right[2] > right[0]  # performing, on blue


def test_a_picture_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        curve_figure(RUN, tmp_path / "nowhere" / "curve.png")


@pytest.mark.parametrize(
    "lines", [RUN[:1], RUN, [{**line, "gate/accuracy": 0.4, "detection/plurality": 0.5} for line in RUN]]
)
def test_the_picture_of_a_runs_own_games(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    paths = [tmp_path / "training.png", tmp_path / "training.svg"]
    training_figure(lines, {"chance": 0.2}, paths)
    picture = imread(paths[0])
    assert picture.shape[:2] == (630, 1050)
    assert picture[250, 150, 0] > picture[250, 150, 2]  # detection, on orange
    if len(lines) > 1:
        assert picture[250, 700, 2] > picture[250, 700, 0]  # performing, on blue
    drawn = paths[1].read_bytes()
    training_figure(lines, {"chance": 0.2}, paths)
    assert paths[1].read_bytes() == drawn
