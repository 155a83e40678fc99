"""What a person sees, on terminals and off them."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from spyrl.config import Config
from spyrl.display import RunDisplay, iteration_line, measured_line, show_game, show_prompts, show_summary
from spyrl.game import Ballot, Deal, Document, Game, Output, RoleBaselines
from spyrl.game.settings import GameSettings
from spyrl.play import Detected, Performed, Played, Settled, settle
from spyrl.policy import Completion
from spyrl.runs.folder import RunFolder

METRICS: dict[str, Any] = {
    "iteration": 0,
    "stage": "detection",
    "detection/accuracy": 0.28125,
    "detection/abstained": 0.125,
    "detection/invalid": 0.0,
    "detection/position_bias": 0.2,
    "reward/spy": -0.0625,
    "reward/civilian": 0.015625,
    "length/spy": 97.4,
    "length/civilian": 88.6,
    "kl": 0.00123,
    "gate/next": "performing",
    "gate/switched": "accuracy",
    "seconds/total": 43.4,
}
START = {
    "start/quality/greedy": 0.5558,
    "start/quality/sampled": 0.668,
    "start/frozen/detection": 0.48,
    "start/strength/civilian": 0.48,
    "start/strength/spy": 0.52,
}
END = {
    "quality/greedy": 0.9953,
    "quality/sampled": 0.937,
    "frozen/detection": 0.72,
    "strength/civilian": 0.885,
    "strength/spy": 0.935,
}
MEASURED: list[dict[str, Any]] = [METRICS | START, METRICS | {"iteration": 1} | END]
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def plain_console(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=False)


def terminal(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard", _environ={})


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def settled(
    ballots: list[Ballot], spy: int | None = 2, text: str = "The cat sat on the mat.", story: str = "A story of cats."
) -> Settled:
    """A game in which "cat sat" is hidden and player 3 handed nothing in."""
    hidden = ((4, 11),) if spy else ()
    deal = Deal(0, 5, Document("stories:12", text), 3, spy, text[:4] + "_" * 7 + text[11:] if spy else text, hidden)
    texts = {1: story, 2: "I am no spy.", 3: None}
    performing = tuple(
        Performed(Output(player, 1, said), "the rules", Completion(said or "?", "stop"))
        for player, said in texts.items()
    )
    detection = tuple(Detected(ballot, "the outputs", Completion(ballot.text, "stop")) for ballot in ballots)
    [game], _ = settle([Played(deal, performing, detection)], GameSettings(players=3), RoleBaselines())
    return game


def game(*ballots: Ballot, spy: int | None = 2, **texts: str) -> Game:
    return settled(list(ballots), spy, **texts).game


REASONED = (
    Ballot(1, "vote", 2, "Player 2\nprotests too much: \\boxed{2}"),
    Ballot(3, "abstained", None, "\\boxed{N/A}"),
    Ballot(3, "out_of_range", None, "\\boxed{9}"),
)


# A run


def test_an_iteration_in_a_line() -> None:
    line = "  1/100 detection    28%   12%   0%  -0.062  +0.016  97/89   0.00123 "
    assert iteration_line(METRICS, 100) == line + "43"
    for seconds, shown in ((0.04, "0.0"), (9.94, "9.9"), (9.96, "10"), (10.4, "10")):
        assert iteration_line(METRICS | {"seconds/total": seconds}, 100) == line + shown


@example(iteration=9_998, stage="performing", share=1, reward=-10, length=99_999, kl=1, seconds=99_999)
@given(
    iteration=st.integers(0, 9_998),
    stage=st.sampled_from(["detection", "performing", "joint"]),
    share=st.none() | st.floats(0, 1),
    reward=st.floats(-1e9, 1e9),
    length=st.floats(0, 99_999),
    kl=st.floats(-1e-6, 1e99) | st.sampled_from([float("nan"), float("inf")]),
    seconds=st.floats(0, 99_999),
)
def test_a_line_fits_80_columns_whatever_the_numbers(
    iteration: int, stage: str, share: float | None, reward: float, length: float, kl: float, seconds: float
) -> None:
    metrics = {
        "iteration": iteration,
        "stage": stage,
        "reward/spy": -reward,
        "reward/civilian": reward,
        "length/spy": length,
        "length/civilian": length,
        "kl": kl,
        "seconds/total": seconds,
    }
    if share is not None:
        metrics |= {f"detection/{name}": share for name in ("accuracy", "abstained", "invalid")}
    line = iteration_line(metrics, 9_999)
    assert cell_len(line) <= 80
    assert "\n" not in line
    assert line.startswith(f"{iteration + 1:>3}/9999 {stage}")


def test_what_is_not_known_is_no_number() -> None:
    assert "–" in iteration_line({"iteration": 0, "stage": "performing", "seconds/total": 1.0}, 5)


def run_through(console: Console, config: Config) -> None:
    """Show a run of two iterations, as training tells of it."""
    with RunDisplay(console, config) as display:
        display.say("loading tiny on cpu")
        for iteration in (0, 1):
            for phase in ("deal", "perform", "detect", "settle", "update", "measure", "record"):
                display.phase(phase)
                display.tokens(12)
            display.iteration(METRICS | {"iteration": iteration, "gate/switched": "accuracy" if iteration else ""})
        display.phase("checkpoint")
        display.phase("something new")


def test_without_a_terminal_a_run_is_a_plain_log() -> None:
    console = plain_console()
    run_through(console, replace(Config(), training=replace(Config().training, iterations=2)))
    text = shown(console)
    assert not CONTROL.search(text)
    lines = text.splitlines()
    assert [line.split()[0] for line in lines] == ["loading", "iter", "1/2", "2/2", "the"]
    assert lines[-1] == "the gate turns to performing (accuracy)"
    assert all(cell_len(line) <= 80 for line in lines)


def test_the_header_stands_over_its_columns() -> None:
    console = plain_console()
    run_through(console, Config())
    _, header, first, *_ = shown(console).splitlines()
    below = {"stage": "detection", "spy": "0.062", "civ": "0.016", "length": "97/89", "kl": "0.00123", "sec": "43"}
    assert {title: header.index(title) for title in below} == {title: first.index(below[title]) for title in below}


def test_on_a_terminal_a_run_has_a_live_line() -> None:
    console = terminal()
    run_through(console, replace(Config(), training=replace(Config().training, iterations=2, games=4)))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(console))
    live = text[text.rindex("2/2") :]
    for part in ("8 games", "0 s left", "something new", "spy found 28%", "length 97/89"):
        assert part in live
    assert "24 tokens" not in live  # a phase counts its own
    assert text.count("-0.062") == 2
    assert "\x1b[?25h" in shown(console)  # the cursor is shown again


def test_the_live_line_is_taken_away_when_a_run_breaks() -> None:
    console = terminal()
    with suppress(KeyboardInterrupt), RunDisplay(console, Config()) as display:
        display.phase("deal")
        raise KeyboardInterrupt
    after = shown(console).rpartition("dealing")[2]
    assert "\x1b[1A\x1b[2K" in after  # a line up, and cleared
    assert "\x1b[?25h" in after


@pytest.mark.parametrize("width", [20, 40, 200])
def test_any_width_will_do(width: int, tmp_path: Path) -> None:
    console = terminal(width)
    run_through(console, Config())
    show_game(console, game(*REASONED))
    show_summary(console, RunFolder(Path("runs/mine")), Config(), [METRICS, METRICS], "ledger")
    show_summary(console, measured_run(tmp_path), Config(), MEASURED, "ledger")
    assert "detection" in shown(console)


def test_the_summary_names_every_part_of_the_run_and_what_changed() -> None:
    console = plain_console(120)
    run = RunFolder(Path("runs/mine"))
    last = METRICS | {"detection/accuracy": 0.75, "length/spy": 101.0}
    show_summary(console, run, Config(), [METRICS, last], "ledger")
    text = shown(console)
    for path in (run.model, run.games, run.metrics_path, run.checkpoints):
        assert str(path) in text
    assert "28% → 75%" in text
    assert "97 → 101" in text
    assert "spyrl play ledger model.path=runs/mine/model" in text
    assert "unseen" not in text
    assert "curve" not in text
    assert not CONTROL.search(text)


def test_the_summary_of_a_run_without_a_spy() -> None:
    console = plain_console()
    bare = {"iteration": 0, "stage": "performing", "length/civilian": 5.0}
    show_summary(console, RunFolder(Path("runs/mine")), Config(), [bare, bare], "ledger")
    assert "5 → 5" in shown(console)
    assert "found the spy" not in shown(console)


# A measured run


def measured_run(
    folder: Path, before: Sequence[str | None] = ("?", "b", "?", "?"), quality: Sequence[float] | None = (0, 1, 0, 0)
) -> RunFolder:
    """A run with held-out outputs for documents of two lines: the first is learnt, the second was known."""
    run = RunFolder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for iteration, outputs in ((None, before), (1, ["b"] * len(before))):
        run.write_held_out(
            iteration,
            [
                {
                    "document": f"{number}: a\n{number}: b",
                    "output": first and f"{number}: {first}\n{number}: b",
                    "quality": {} if quality is None else {"f1": quality[number]},
                }
                for number, first in enumerate(outputs)
            ],
        )
    return run


def test_a_measurement_is_told_of_in_a_line_below_the_iteration() -> None:
    assert measured_line(*MEASURED) == (
        "  unseen documents: quality 0.56 → 0.99, sampled 0.67 → 0.94, frozen 48% → 72%"
    )
    unknown = [{key: value for key, value in each.items() if "quality" not in key} for each in MEASURED]
    assert measured_line(*unknown) == ("  unseen documents: frozen 48% → 72%, civilians 48% → 88%, spies 52% → 94%")
    perfect = dict.fromkeys(START, 1.0), dict.fromkeys(END, 1.0)
    assert cell_len(measured_line(*perfect)) <= 80
    assert "quality 1.00 → 1.00" in measured_line(*perfect)
    assert measured_line(METRICS, METRICS) == ""


def test_measurements_are_shown_as_a_run_goes_on() -> None:
    console = plain_console()
    with RunDisplay(console, Config()) as display:
        for metrics in MEASURED:
            display.iteration(metrics)
    lines = shown(console).splitlines()
    assert [line.split()[0] for line in lines] == ["iter", "1/100", "the", "2/100", "unseen", "the"]
    assert lines[4] == measured_line(*MEASURED)


def test_a_run_that_goes_on_is_compared_with_its_own_start() -> None:
    console = terminal()
    with RunDisplay(console, Config(), MEASURED[0]) as display:
        display.iteration(MEASURED[1] | {"iteration": 7})
        display.phase("measure")
    text = shown(console)
    assert "quality 0.56 → 0.99" in text
    assert "quality 0.99" in text[text.rindex("measuring") :]


def test_the_summary_of_a_measured_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    console = plain_console()
    run = measured_run(Path("runs/mine"))
    show_summary(console, run, Config(), MEASURED, "ledger")
    text = shown(console)
    assert "quality on unseen documents 0.56 → 0.99, never shown to training" in text
    told = dict(re.findall(r"│ (\S.*?)  +(\S+ → \S+) ", text))
    assert told == {
        "quality of sampled outputs": "0.67 → 0.94",
        "detectors on games by the starting model": "48% → 72%",
        "starting detectors find the starting spy among new civilians": "48% → 88%",
        "starting detectors miss the new spy among starting civilians": "52% → 94%",
        "spy's output, tokens": "97 → 97",
        "civilians' output, tokens": "89 → 89",
    }
    for path in (run.model, run.metrics_path, run.curve, run.held_out):
        assert f"│ {path} " in text
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    assert not CONTROL.search(text)


def test_a_measured_run_without_known_quality_boasts_of_none(tmp_path: Path) -> None:
    console = plain_console()
    unknown = [{key: value for key, value in each.items() if "quality" not in key} for each in MEASURED]
    show_summary(console, measured_run(tmp_path, quality=None), Config(), unknown, "ledger")
    text = shown(console)
    assert "quality" not in text
    assert "●" not in text
    assert "○ spy found in games by the starting model" in text
    assert "✗" not in text  # nobody knows what is wrong
    assert "0: ?" in text


def rows_of(console: Console) -> list[list[str]]:
    """The cells of the table of outputs."""
    table = shown(console).partition("trained model")[2].partition("files")[0]
    return [re.split(r"  +", line.strip()) for line in table.splitlines() if re.match(r"\d: |…|\(", line)]


def test_outputs_before_and_after_stand_side_by_side(tmp_path: Path) -> None:
    console = plain_console()
    show_summary(console, measured_run(tmp_path), Config(), MEASURED, "ledger")
    assert "unseen documents that began worse than average, before and after training" in shown(console)
    assert rows_of(console) == [  # the second document began well: there is nothing to see
        row
        for number in (0, 2, 3)
        for row in (
            [f"{number}: a", f"{number}: ? ✗", f"{number}: b ✗"],
            [f"{number}: b", f"{number}: b", f"{number}: b"],
        )
    ]


def test_what_is_wrong_is_red(tmp_path: Path) -> None:
    console = terminal()
    show_summary(console, measured_run(tmp_path), Config(), MEASURED, "ledger")
    assert "\x1b[31m0: ? ✗" in shown(console)


def test_three_examples_are_shown_where_few_began_badly(tmp_path: Path) -> None:
    console = plain_console()
    run = measured_run(tmp_path, before=("?", None, "b", "b"), quality=(0, 0, 1, 1))
    show_summary(console, run, Config(), MEASURED, "ledger")
    assert "worse" not in shown(console)
    assert [row[0] for row in rows_of(console)] == ["0: a", "0: b", "1: a", "1: b", "2: a", "2: b"]
    assert "(nothing was handed in)" in shown(console)


def test_long_outputs_are_cut_and_cannot_steer_the_terminal(tmp_path: Path) -> None:
    console = plain_console()
    run = RunFolder(tmp_path)
    for iteration in (None, 0):
        row = {"document": "long words " * 200, "output": "\x1b[2J[red]told [/] " * 200, "quality": {"f1": 0.5}}
        run.write_held_out(iteration, [row])
    show_summary(console, run, Config(), MEASURED, "ledger")
    text = shown(console)
    assert not CONTROL.search(text)
    assert "[red]told [/]" in text
    assert text.count("…") == 3
    assert len([line for line in text.splitlines() if "long words" in line]) == 8
    assert all(cell_len(line) <= 80 for line in text.splitlines())


# A game


def test_a_game_shows_document_outputs_ballots_and_rewards() -> None:
    console = plain_console()
    show_game(console, game(*REASONED), "short story")
    text = shown(console)
    assert "document stories:12" in text
    assert "The [[cat sat]] on the mat." in text  # marked where there are no colours, too
    assert "player 2 is the spy" in text
    assert "player 2 · the spy" in text
    assert "A story of cats." in text
    assert "(no short story was handed in)" in text
    assert "player 1 → player 2 (right)   Player 2 protests too much: \\boxed{2}" in text
    assert "player 3 → N/A" in text
    assert "player 3 → out of range" in text
    assert "1 abstained, 1 could not be read; the spy was found" in text
    rows = [line.split() for line in text.splitlines() if re.match(r" +\d +(spy|civilian)", line)]
    # One vote for the spy: it loses 0.1, either civilian gains half of that.
    assert rows == [["1", "civilian", "0", "+0.050"], ["2", "spy", "1", "-0.100"], ["3", "civilian", "0", "+0.050"]]
    assert not CONTROL.search(text)


def test_with_colours_the_hidden_part_is_on_yellow() -> None:
    console = terminal()
    show_game(console, game(*REASONED))
    assert re.search(r"The \x1b\[30;43mcat sat\x1b\[0m on the mat\.", shown(console))
    red = re.findall(r"\x1b\[31m([^\x1b]+)", shown(console))
    assert [part.strip() for part in red if part.strip()] == ["2", "spy", "1", "-0.100"]
    assert re.search(r"\x1b\[32mplayer 1 → player 2 \(right\)", shown(console))


@pytest.mark.parametrize(
    ("ballots", "spy", "says"),
    [
        ([Ballot(1, "vote", 2), Ballot(3, "vote", 2)], 2, "the spy was found"),
        ([Ballot(1, "vote", 2), Ballot(3, "vote", 1)], 2, "the spy tied for the most votes"),
        ([Ballot(1, "vote", 3), Ballot(3, "vote", 1)], 2, "the spy got away"),
        ([Ballot(1, "abstained"), Ballot(3, "no_box")], 2, "the spy got away"),
        ([Ballot(1, "vote", 3), Ballot(3, "vote", 1)], None, "the tally elects player 1 and 3"),
        ([Ballot(1, "abstained")], None, "the tally elects nobody"),
    ],
)
def test_how_a_game_ends(ballots: list[Ballot], spy: int | None, says: str) -> None:
    console = plain_console()
    show_game(console, game(*ballots, spy=spy))
    assert shown(console).rstrip().endswith(says)


def test_a_game_without_a_spy_tells_of_none() -> None:
    console = plain_console()
    show_game(console, game(*REASONED, spy=None))
    text = shown(console)
    assert "(nobody is the spy)" in text
    assert "marked" not in text
    assert "[[" not in text
    assert "the spy" not in text.replace("nobody is the spy", "").replace("I am no spy.", "")


def test_direct_ballots_show_what_each_was_drawn_from() -> None:
    q = (0.125, 0.5, 0.25, 0.125)
    console = plain_console()
    show_game(console, game(Ballot(None, "vote", 1, "1", q), Ballot(None, "abstained", None, "N/A", q)))
    text = shown(console)
    assert "detector 1 → player 1\n" in text
    assert "detector 2 → N/A\n" in text
    assert "each drawn from   1: 12%  2: 50%  3: 25%  N/A: 12%" in text
    # The votes drawn elect player 1; what judges the detectors is their distribution.
    assert text.rstrip().endswith("the spy was the most probable")


def test_long_reasons_are_cut() -> None:
    console = plain_console(400)
    show_game(console, game(Ballot(1, "vote", 2, "word " * 300)))
    [line] = [line for line in shown(console).splitlines() if "→" in line]
    assert line.rstrip().endswith("…")
    assert len(line.rstrip()) < 240


def test_texts_cannot_steer_the_terminal_and_marks_stay_in_place() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\r\x9b31m"
    console = plain_console()
    show_game(console, game(Ballot(1, "vote", 2, evil + " \\boxed{2}"), text="\r\n\a cat sat\r\n" + evil, story=evil))
    text = shown(console)
    assert not CONTROL.search(text)
    assert "[[cat sat]]" in text.replace("\n", "")


def test_markup_in_texts_is_text() -> None:
    console = plain_console()
    show_game(
        console, game(Ballot(1, "vote", 2, "[bold]x[/bold] [/] :smile:"), story="[red]r[/red] [/nothing] :smile:")
    )
    assert "[red]r[/red] [/nothing] :smile:" in shown(console)
    assert "[bold]x[/bold] [/] :smile:" in shown(console)


def test_rounds_are_told_apart() -> None:
    one = game(*REASONED)
    again = tuple(replace(output, round=2, text=f"again {output.player}") for output in one.outputs)
    console = plain_console()
    show_game(console, replace(one, outputs=one.outputs + again))
    assert "player 1, round 1 " in shown(console)
    assert "player 2, round 2 · the spy" in shown(console)
    assert "again 3" in shown(console)


def test_prompts_are_shown_once_with_all_who_read_them() -> None:
    console = plain_console()
    show_prompts(console, settled([*REASONED, Ballot(None, "abstained", None, "N/A")]))
    text = shown(console)
    assert text.count("the rules") == text.count("the outputs") == 1
    assert "asked: player 1, player 2, player 3 " in text
    assert "asked: player 1's ballot, player 3's ballot, player 3's ballot, detector 4" in text
