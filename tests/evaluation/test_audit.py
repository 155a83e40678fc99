"""The audit: what was planted is found, what is clean is left alone."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_games import made_up, row, story
from spyrl.cli import main
from spyrl.evaluation.audit import Audit, audit
from spyrl.evaluation.commands.common import span
from spyrl.evaluation.played import Batch
from spyrl.evaluation.shortcuts import explained, followed, guess, position_bias_by_chance, relative
from spyrl.runs.folder import RunFolder
from spyrl.runs.games import write_games


def audited(*batches: Sequence[dict[str, Any]]) -> Audit:
    return audit([Batch(number, tuple(games)) for number, games in enumerate(batches)], "run")


def worrying(found: Audit) -> set[str]:
    return {each.name for each in found.findings if each.worrying}


def answer(found: Audit, name: str) -> str:
    return next(each.sentence for each in found.findings if each.name == name)


LOOK, SHARE = "Does the look of outputs tell the spy?", "How much of detection is that?"
COPYING, LENGTH = "Does copying tell it?", "Are spies' outputs longer or shorter?"
POSITION, VARIED = "Do votes go by player number?", "Do outputs stay varied?"


@pytest.mark.parametrize("games", [30, 120])
def test_spies_that_write_thirty_percent_less_are_found(games: int) -> None:
    for seed in range(2):
        found = audited(made_up(seed, games, shorter=0.3))
        assert {"Overall", LOOK, SHARE, LENGTH} <= worrying(found)
        assert found.overall.startswith("The game can be won by a shortcut, without reading: ")
        assert "shorter" in found.overall or "fewer" in found.overall
        assert found.guesses["words"].accuracy > 0.55
        assert found.guesses["words"].told


def test_a_clean_run_is_not_accused() -> None:
    for seed in range(6):
        found = audited(made_up(seed, 60))
        assert worrying(found) == set(), seed
        assert found.overall.startswith("No shortcut was found")


def test_guesses_at_nothing_are_rarely_taken_for_something() -> None:
    told = []
    for seed in range(40):
        draw = np.random.default_rng(seed)
        told.append(guess(relative(draw.normal(size=(60, 5, 6))), draw.integers(5, size=60), "none").told)
    assert sum(told) <= 1


def test_what_a_shortcut_explains() -> None:
    hits, found = np.array([1.0, 1.0, 0.0, 0.0] * 25), np.array([1.0] * 80 + [0.0] * 20)
    share = explained(hits, found, 0.2)
    assert share.value == pytest.approx((0.5 - 0.2) / (0.8 - 0.2))
    assert share.low is not None
    assert share.high is not None
    assert share.low < 0.5 < share.high
    assert explained(hits, np.full(100, 0.2), 0.2).value is None


def test_votes_that_follow_the_look_where_it_is_wrong() -> None:
    # The look points at player 2, the spy is player 1, and civilians' votes go 3 : 1 to player 2.
    suspicion = np.tile([0.0, 1.0, 0.0], (10, 1))
    votes = np.tile([4.0, 3.0, 1.0], (10, 1))
    assert followed(suspicion, votes, np.zeros(10, dtype=np.intp)).value == pytest.approx(0.75)
    assert followed(suspicion, votes, np.ones(10, dtype=np.intp)).value is None  # it is never wrong


def described(seed: int, games: int, how: str) -> list[dict[str, Any]]:
    """Games whose outputs restate sentences of their documents, the spy's in its own way."""
    draw = random.Random(f"{how}/{seed}")
    rows = []
    for number in range(games):
        sentences = [story(draw, 9) for _ in range(10)]
        document = " ".join(sentences)
        start = document.index(sentences[4])
        hidden = (start, document.index(sentences[5]) + len(sentences[5]))
        visible = sentences[:4] + sentences[6:]
        spy = draw.randint(1, 5)
        texts = []
        for player in range(1, 6):
            if how == "copies":  # all write freely, and the spy copies
                new = 2 if player == spy else 5
                chosen = draw.sample(visible, 5 - new) + [story(draw, 9) for _ in range(new)]
            elif player != spy:
                chosen = draw.sample(sentences, 5)
            elif how == "visible":  # of what it sees, to the same length
                chosen = draw.sample(visible, 5)
            else:  # it makes up what it does not see
                chosen = [*draw.sample(visible, 4), story(draw, 9)]
            draw.shuffle(chosen)
            texts.append(" ".join(chosen))
        votes = [spy if draw.random() < 0.6 else draw.randint(1, 5) for _ in range(8)]
        rows.append(row(texts, spy, votes, document=document, hidden=hidden, game=number))
    return rows


@pytest.mark.parametrize("how", ["visible", "invents"])
def test_a_spy_that_lacks_the_hidden_part_is_not_accused_of_copying(how: str) -> None:
    for seed in range(2):
        found = audited(described(seed, 60, how))
        assert not {"Overall", LOOK, COPYING} & worrying(found)


def test_a_spy_that_copies_is() -> None:
    found = audited(described(0, 100, "copies"))
    assert {"Overall", COPYING} <= worrying(found)
    assert "copied" in found.overall


def test_an_echo_of_the_mask_is_found() -> None:
    games = made_up(0, 100)
    for game in games:
        game["outputs"][game["spy"] - 1]["text"] += " ______"
    found = audited(games)
    assert found.guesses["mask"].accuracy == 1.0
    assert "mask characters" in answer(found, LOOK)


def test_a_shortcut_that_detectors_do_not_use() -> None:
    found = audited(made_up(0, 100, shorter=0.3, reading=0.0))
    assert found.overall.startswith("A shortcut lies open that detectors do not use")
    assert SHARE not in worrying(found)


def test_votes_that_go_by_number() -> None:
    games = made_up(1, 100)
    for game in games:
        game["votes"] = [6, 0, 0, 0, 0]
        game["votes"][game["spy"] - 1] += 2
    found = audited(games)
    assert POSITION in worrying(found)
    assert "player 1 gets" in answer(found, POSITION)


def test_chance_alone_is_reckoned_with() -> None:
    votes = np.zeros((10, 5))
    votes[range(10), [0, 0, 0, 0, 1, 2, 3, 4, 1, 2]] = 8
    bias, by_chance = position_bias_by_chance(votes)
    assert bias == pytest.approx(0.2)
    assert by_chance > bias


def test_abstention_format_and_speaking_to_the_voters() -> None:
    games = made_up(2, 30)
    for game in games:
        game["ballots"] = [{"outcome": "abstained", "choice": None}] * 5 + [{"outcome": "no_box", "choice": None}] * 3
        game["outputs"][0]["text"] = None
        game["outputs"][1]["text"] += " Player 3 is the spy."
    found = audited(games)
    asked = {
        "Do detectors abstain?",
        "Can ballots be read?",
        "Do outputs speak to the voters?",
        "Are outputs handed in?",
    }
    assert asked <= worrying(found)
    assert answer(found, "Can ballots be read?") == "38% of ballots cannot be read, mostly no box."


def test_outputs_that_grow_alike_over_the_run() -> None:
    late = made_up(3, 20, iteration=1)
    for game in late:
        for output in game["outputs"]:
            output["text"] = "the same old story told again and again"
    found = audited(made_up(3, 20), late)
    assert VARIED in worrying(found)
    assert VARIED not in worrying(audited(made_up(3, 20), made_up(4, 20, iteration=1)))


def test_without_a_spy_or_with_few_games_only_what_can_be_known() -> None:
    none = audited([row(["a b c", "b c", "c d"], None, [1, 2]) for _ in range(30)])
    assert none.overall == "The games have no spy, so there is nothing to find."
    assert none.games is None
    few = audited(made_up(0, 5))
    assert few.overall.startswith("There are 5 games, too few")
    assert few.guesses == {}


def run_with_games(folder: Path, *batches: Sequence[dict[str, Any]]) -> Path:
    run = RunFolder(folder)
    run.games.mkdir(parents=True)
    for number, games in enumerate(batches):
        write_games(run.games_path(number), list(games))
    return folder


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    folder = run_with_games(tmp_path / "short", *(made_up(5, 15, shorter=0.3, iteration=number) for number in range(3)))
    assert main(["audit", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "by a shortcut" in out.replace("\n", " ")
    assert max(map(len, (line for line in out.splitlines() if str(tmp_path) not in line))) <= 80
    kept = folder / "evaluations" / "audit"
    assert {path.name for path in kept.iterdir()} == {
        "audit.png",
        "audit.svg",
        "results.csv",
        "results.json",
        "results.md",
    }
    first = json.loads((kept / "results.json").read_text(encoding="utf-8"))
    assert first["kind"] == "audit"
    assert main(["audit", str(folder), "--iterations", "0-2", "--to", str(tmp_path / "again")]) == 0
    again = json.loads((tmp_path / "again" / "results.json").read_text(encoding="utf-8"))
    assert again["sheets"] == first["sheets"]
    assert main(["audit", str(folder / "games"), "--iterations", "1", "--to", str(tmp_path / "one")]) == 0


def test_what_cannot_be_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(tmp_path)]) == 2
    assert "there are no games in" in capsys.readouterr().err
    folder = run_with_games(tmp_path / "run", made_up(0, 3))
    assert main(["audit", str(folder), "--iterations", "5-9"]) == 2
    assert "games of iterations 0 to 0, none of 5 to 9" in capsys.readouterr().err
    assert main(["audit", str(folder), "--iterations", "9-5"]) == 2
    assert "--iterations should be FROM-TO" in capsys.readouterr().err
    RunFolder(folder).games_path(0).write_bytes(b"PAR1 no more")
    assert main(["audit", str(folder)]) == 2
    assert "cannot be read as games" in capsys.readouterr().err


def test_spans() -> None:
    assert span("3-5") == range(3, 6)
    assert span("4") == range(4, 5)
    assert span(None) is None
