"""Votes against quality: ranks by hand, the coefficient as SciPy has it, and a judge that ranks."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_games import made_up, row
from spyrl.cli import main
from spyrl.config import load_config
from spyrl.evaluation import ranking
from spyrl.evaluation.alignment import Rated, by_votes, points, rated_by_task, sheets, spearman
from spyrl.evaluation.ranking import rank_games
from spyrl.policy import Completion, Request
from spyrl.runs.folder import RunFolder
from spyrl.runs.games import write_games
from spyrl.settings import plain
from spyrl.tasks import TASKS
from spyrl.tasks.ledger import TASK as LEDGER
from tiny import tiny_config

TWO = [
    Rated((3, 0, 1), (0.2, 0.9, 0.5), 1),
    Rated((0, 2, 2), (0.7, 0.7, 0.1), 3),
]


def test_ranks_within_games() -> None:
    everyone = points(TWO, "all")
    assert everyone.ranks.tolist() == [3, 1, 2, 1.5, 1.5, 3]
    assert everyone.votes.tolist() == [3, 0, 1, 0, 2, 2]
    assert points(TWO, "civilians").ranks.tolist() == [1, 2, 1.5, 1.5]
    assert points(TWO, "spies").ranks.tolist() == [3, 3]
    rows = by_votes(everyone)
    assert rows[0][0] == pytest.approx(1.25)
    assert rows[2][0] == pytest.approx(2.25)
    assert [rows[votes][3] for votes in (0, 1, 2, 3)] == [2, 1, 2, 1]


def noisy(seed: int, games: int, follow: float) -> list[Rated]:
    draw = random.Random(seed)
    found = []
    for _ in range(games):
        quality = [draw.random() for _ in range(5)]
        worst = quality.index(min(quality))
        votes = [0] * 5
        for _ in range(8):
            votes[worst if draw.random() < follow else draw.randrange(5)] += 1
        found.append(Rated(tuple(votes), tuple(quality), draw.randint(1, 5)))
    return found


def test_the_coefficient_is_scipys() -> None:
    from scipy.stats import spearmanr

    found = points(noisy(0, 40, 0.5), "all")
    assert spearman(found, "x").value == pytest.approx(spearmanr(found.votes, found.ranks).statistic)


def test_votes_that_follow_quality_and_votes_that_do_not() -> None:
    follow = spearman(points(noisy(1, 100, 0.7), "all"), "x")
    assert follow.low is not None
    assert follow.low > 0.3
    covered = 0
    for seed in range(20):
        chance = spearman(points(noisy(seed, 40, 0.0), "all"), "x")
        assert chance.low is not None
        assert chance.high is not None
        covered += chance.low < 0 < chance.high
    assert covered >= 17


def test_what_does_not_vary_has_no_coefficient() -> None:
    assert spearman(points([Rated((1, 1, 1), (0.1, 0.2, 0.3), 1)] * 3, "all"), "x").value is None
    shown, scores = sheets([Rated((1, 1, 1), (0.1, 0.2, 0.3), None)] * 3, known=True)
    assert shown[0].rows[0][1] == "–"
    assert scores == ()


LEDGERS = ("Ada: lamp\nBen: key", "Ada: ?\nBen: key", "Ada: drum\nBen: map")


def test_quality_that_the_task_knows() -> None:
    game = row([*LEDGERS, None], 3, [3, 3, 2], document=LEDGERS[0], hidden=(5, 9))
    (found,) = rated_by_task([game], LEDGER)
    assert found.quality == pytest.approx((1.0, 2 / 3, 0.0, 0.0))
    assert found.votes == (0, 1, 2, 0)


class Judge:
    """Chooses, or lists, by length: the longest is best."""

    name = "judge"

    def __init__(self, *, fail: int = 0, unread: bool = False) -> None:
        self.asked: list[Request] = []
        self.fail, self.unread = fail, unread

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        return [[self._answer(request)] for request in requests]

    def _answer(self, request: Request) -> Completion:
        self.asked.append(request)
        if len(self.asked) <= self.fail:
            return Completion("", "failed", error="down")
        content = request.messages[0]["content"]
        texts = [each.split("\n\n")[0].split("\n", 1)[1] for each in content.split("[Result ")[1:]]
        lengths = np.array([0 if text == "(nothing)" else len(text) for text in texts], dtype=float)
        if request.choices:
            assert request.choices == tuple(str(place) for place in range(1, len(texts) + 1))
            bias = np.where(np.arange(len(texts)) == 0, 50.0, 0.0)  # it likes what comes first
            weights = np.exp((lengths + bias) / 20)
            return Completion("1", "choice", probabilities=tuple((weights / weights.sum()).tolist()))
        places = ", ".join(str(place + 1) for place in np.argsort(-lengths))
        return Completion("I cannot say." if self.unread else f"Well.\n\\boxed{{{places}}}", "stop")

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def prompt_tokens(self, request: Request) -> int:
        return self.count_tokens(request.messages[0]["content"])


GAMES = [
    ("0/0", row(["a" * 10, "b" * 40, None, "d" * 30], 1)),
    ("0/1", row(["a" * 40, "b" * 10, "c" * 20, "d" * 30], 2, game=1)),
]


def ranked(judge: Judge, path: Path, direct: bool) -> dict[str, tuple[float, ...] | None]:
    return rank_games(
        GAMES,
        TASKS["writing"],
        judge,
        path,
        direct=direct,
        made_with={"judge": "judge"},
        seed=0,
        on_games=lambda done, total: None,
    )


@pytest.mark.parametrize("direct", [True, False])
def test_a_judge_ranks_outputs_whatever_their_order(tmp_path: Path, direct: bool) -> None:
    judge = Judge()
    found = ranked(judge, tmp_path / "verdicts.jsonl", direct)
    assert np.argsort(found["0/0"]).tolist() == [2, 0, 3, 1]
    assert np.argsort(found["0/1"]).tolist() == [1, 2, 3, 0]
    assert len(judge.asked) == (8 if direct else 2)
    assert "What was asked:" in judge.asked[0].messages[0]["content"]
    again = Judge()
    assert ranked(again, tmp_path / "verdicts.jsonl", direct) == found
    assert again.asked == []


def test_an_unreadable_ranking_counts_and_a_failed_one_is_asked_again(tmp_path: Path) -> None:
    assert ranked(Judge(unread=True), tmp_path / "a.jsonl", False) == {"0/0": None, "0/1": None}
    assert set(ranked(Judge(fail=1), tmp_path / "b.jsonl", False)) == {"0/1"}
    assert set(ranked(Judge(), tmp_path / "b.jsonl", False)) == {"0/0", "0/1"}


@pytest.mark.parametrize("text", ["\\boxed{1, 2, 2, 3}", "\\boxed{1, 2, 3}", "\\boxed{2, 3, 4, 5}", "1, 2, 3, 4"])
def test_lists_that_are_none(text: str) -> None:
    assert ranking._listed([Completion(text, "stop")], [(1, 2, 3, 4)], 4) is None


def results(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return data


def test_the_command_with_known_quality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = RunFolder(tmp_path / "run")
    run.games.mkdir(parents=True)
    run.write_config(plain(load_config("ledger", [])), "ledger")
    draw = random.Random(0)
    games = []
    for number in range(12):
        texts = [draw.choice(LEDGERS) for _ in range(4)]
        worst = max(range(4), key=lambda index: LEDGERS.index(texts[index])) + 1
        votes = [worst] * 6 + [draw.randint(1, 4) for _ in range(2)]
        games.append(row(texts, draw.randint(1, 4), votes, document=LEDGERS[0], hidden=(5, 9), game=number))
    write_games(run.games_path(0), games)
    assert main(["eval", "alignment", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert max(map(len, (line for line in out.splitlines() if str(tmp_path) not in line))) <= 80
    found = results(run.evaluations / "alignment")
    assert found["scores"][0]["value"] > 0.4
    assert {"alignment.png", "alignment.svg"} <= {path.name for path in (run.evaluations / "alignment").iterdir()}
    assert main(["eval", "alignment", str(run.path), "--games", "5", "--to", str(tmp_path / "few")]) == 0
    assert "over 5 games" in results(tmp_path / "few")["notes"][1]


def test_the_command_with_a_judge_in_this_process(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ranking, "AT_A_TIME", 2)
    run = RunFolder(tmp_path / "run")
    run.games.mkdir(parents=True)
    run.write_config(plain(tiny_config(tmp_path, tiny_model)), "writing-smollm2")
    write_games(run.games_path(0), made_up(0, 5, players=3))
    assert main(["eval", "alignment", str(run.path)]) == 2
    assert "name a judge" in capsys.readouterr().err
    words = ["eval", "alignment", str(run.path), "--judge-local", str(tiny_model), "--device", "cpu", "--games", "4"]
    assert main([*words, "--to", str(tmp_path / "whole")]) == 0
    whole = tmp_path / "whole" / "verdicts.jsonl"
    begun = tmp_path / "killed" / "verdicts.jsonl"
    begun.parent.mkdir()
    begun.write_text("".join(whole.read_text(encoding="utf-8").splitlines(keepends=True)[:3])[:-1], encoding="utf-8")
    assert main([*words, "--to", str(tmp_path / "killed")]) == 0
    assert results(tmp_path / "killed")["sheets"] == results(tmp_path / "whole")["sheets"]
    assert begun.read_text(encoding="utf-8").splitlines()[2:] == whole.read_text(encoding="utf-8").splitlines()[2:]


def test_only_a_runs_folder_has_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "alignment", str(tmp_path)]) == 2
    assert "no config.yaml" in capsys.readouterr().err
