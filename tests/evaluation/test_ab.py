"""An A/B comparison from the command to its tables, with writers and judges that are known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spyrl.cli import main
from spyrl.evaluation import ab_figure, models
from spyrl.evaluation import answers as keeping
from spyrl.evaluation.ab import CRITERIA, Pair, questions, read_verdicts
from spyrl.evaluation.results import evaluations_of, read_evaluation
from standin import StandIn, serving

PROMPTS = 10
NAMES = ("novelty", "emotion", "coherence", "consistency", "overall")


def all_lines(verdict: str) -> str:
    return "\n".join(f"{name}: {verdict}" for name in NAMES)


def writer(model: str, prompt: str) -> str:
    """The tuned model is worth 2 for six of the ten prompts and 0 for the others, the base always 1."""
    number = int(prompt.split()[-1])
    worth = 1 if model == "base" else 2 if number < 6 else 0
    return f"{model} writes of {number}, worth={worth}"


def fair(text: str) -> str:
    """The better of the two texts in a judge's question, by what they say they are worth."""
    a, b = re.findall(r"worth=(\d)", text)
    return "A" if a > b else "B" if b > a else "tie"


def answering(judge: Callable[[str], str | int]) -> Callable[[str, str], str | int]:
    return lambda model, text: writer(model, text) if model in ("tuned", "base") else judge(text)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    rows = [{"id": f"p{number}", "query": f"Write of number {number}"} for number in range(PROMPTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def _drawn_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes half a second, and one test is enough for it."""
    monkeypatch.setattr(ab_figure, "draw_win_rates", lambda *_: [])


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving(answering(lambda text: all_lines(fair(text)))) as standin:
        yield standin


def command(server: StandIn, prompts: Path, *more: str) -> list[str]:
    where = ["--server", server.url, "--against-server", server.url, "--judge-server", server.url]
    return ["eval", "ab", "tuned", "--against", "base", "--prompts", str(prompts), *where, "--judge", "judge", *more]


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


KEPT = Path("evaluations/tuned/ab-prompts-base")


# From the command to the tables


def test_planted_wins_come_out(server: StandIn, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(server, prompts)) == 0
    found = read_evaluation(KEPT / "judge")
    raw = {score.metric: score for score in found.scores}
    for name in NAMES:
        score = raw[f"A/B win rate, {name}"]
        assert score.value == pytest.approx(60.0)
        assert score.low is not None
        assert score.high is not None
        assert score.low < 60 < score.high
        assert (score.count, score.base) == (PROMPTS, 50.0)  # the base against itself only ties
    assert (found.kind, found.model, found.against) == ("ab", "tuned", "base")
    shown = capsys.readouterr().out
    assert "DO NOT USE" not in shown
    assert "Position bias" not in shown
    assert max(map(len, shown.splitlines())) <= 80 or "results.json" in shown
    rows = {row[0]: row for row in found.sheets[1].rows}
    assert rows["overall"] == ("overall", "0%", "50.0 [50.0, 50.0]", "–", "0%", "0 of 20")
    # 20 questions about the model and 20 about the base, at 10 tokens read and 2 written each.
    assert server.asked_of("judge") == 40
    assert any("read 400 tokens and wrote 80 for 40 questions" in note for note in found.notes)
    for name in ("results.md", "results.csv", "win-rates.png", "win-rates.svg"):
        assert (KEPT / "judge" / name).stat().st_size > 0
    assert results(KEPT / "judge")["command"].startswith("spyrl eval ab tuned --against base --server http")


@pytest.mark.usefixtures("_drawn_by_nobody")
def test_both_orders_and_the_control_are_asked(server: StandIn, prompts: Path) -> None:
    assert main(command(server, prompts, "--limit", "1", "--instructions", "Be brief.")) == 0
    asked = [text for model, text in server.asked if model == "judge"]
    first = [re.findall(r"(tuned|base) writes", text) for text in asked]
    assert sorted(first) == [["base", "base"], ["base", "base"], ["base", "tuned"], ["tuned", "base"]]
    assert all("Be brief.\n\nWrite of number 0" in text for text in asked)
    assert [text for model, text in server.asked if model == "tuned"] == ["Be brief.\n\nWrite of number 0"]


@pytest.mark.usefixtures("_drawn_by_nobody")
def test_without_control(server: StandIn, prompts: Path) -> None:
    assert main(command(server, prompts, "--no-control")) == 0
    assert (server.asked_of("base"), server.asked_of("judge")) == (PROMPTS, 2 * PROMPTS)
    found = read_evaluation(KEPT / "judge")
    assert {score.base for score in found.scores} == {None}
    assert found.sheets[0].columns == ("criterion", "win rate", "length-controlled", "pairs")


@pytest.mark.usefixtures("_drawn_by_nobody")
@pytest.mark.parametrize(("verdict", "place"), [("A", "first"), ("B", "second")])
def test_a_judge_that_always_names_one_place_is_flagged(
    server: StandIn, prompts: Path, verdict: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = answering(lambda text: all_lines(verdict))
    assert main(command(server, prompts)) == 0
    found = read_evaluation(KEPT / "judge")
    assert [score.value for score in found.scores] == pytest.approx([50.0] * 6)
    assert found.notes[0].startswith(f"DO NOT USE {', '.join(NAMES)}: judge judges by place, not by text.")
    assert f"what stands {place}" in found.notes[0]
    assert "DO NOT USE" in capsys.readouterr().out
    assert found.sheets[1].rows[0][1] == "100%"  # every verdict flips


def test_a_judge_that_only_ties_is_flagged(server: StandIn, prompts: Path) -> None:
    server.answer = answering(lambda text: all_lines("tie"))
    assert main(command(server, prompts)) == 0
    assert "calls nearly everything a tie" in read_evaluation(KEPT / "judge").notes[0]


def test_a_leaning_judge_is_told_of(server: StandIn, prompts: Path) -> None:
    # Right about every third prompt, and for the first text otherwise.
    def leaning(text: str) -> str:
        number = int(re.findall(r"number (\d+)", text)[0])
        return all_lines(fair(text) if number % 3 == 0 else "A")

    server.answer = answering(leaning)
    assert main(command(server, prompts)) == 0
    found = read_evaluation(KEPT / "judge")
    assert found.notes[0].startswith("Position bias")
    assert found.sheets[1].rows[0][1] == "60%"  # 6 of 10 are not divisible by 3


# Stopping, going on, asking another judge


def test_killed_and_resumed_it_gives_the_same_table(
    server: StandIn, prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keeping, "_AT_A_TIME", 4)
    assert main(command(server, prompts, "--to", "whole")) == 0
    whole, calls, shown = results(Path("whole/judge")), len(server.asked), capsys.readouterr().out

    working = server.answer
    for left in (5, 16, 22, 22):  # in the model's answers, the base's, the verdicts on either
        server.asked.clear()
        # A refused key ends the command wherever it is.
        server.answer = lambda model, text, left=left: working(model, text) if len(server.asked) <= left else 401
        assert main(command(server, prompts, "--to", "killed")) == 2
        assert not Path("killed/judge/results.json").exists()
    kept = sum(path.read_bytes().count(b"\n") - 1 for path in Path("killed").rglob("*.jsonl"))
    verdicts = Path("killed/judge/verdicts.jsonl")
    verdicts.write_bytes(verdicts.read_bytes()[:-7])  # and a line was cut off
    server.asked.clear()
    server.answer = working
    capsys.readouterr()
    assert main(command(server, prompts, "--to", "killed")) == 0
    assert len(server.asked) == calls - kept + 1
    resumed = results(Path("killed/judge"))
    assert {**resumed, "command": ""} == {**whole, "command": ""}
    tables = capsys.readouterr().out.replace("killed", "whole")
    assert [line for line in tables.splitlines() if "[" in line] == [line for line in shown.splitlines() if "[" in line]


def test_a_second_judge_reads_the_same_texts(server: StandIn, prompts: Path) -> None:
    assert main(command(server, prompts)) == 0
    server.asked.clear()
    server.answer = answering(lambda text: all_lines("A"))
    assert main([*command(server, prompts), "--judge", "other/judge"]) == 0
    assert {model for model, _ in server.asked} == {"other/judge"}
    assert [each.settings["judge"] for each in evaluations_of(KEPT.parent)] == ["judge", "other/judge"]
    assert results(KEPT / "judge")["scores"][0]["value"] == pytest.approx(60.0)
    assert results(KEPT / "other-judge")["scores"][0]["value"] == 50.0


def test_more_prompts_later_keep_the_first(server: StandIn, prompts: Path) -> None:
    assert main(command(server, prompts, "--limit", "5")) == 0
    server.asked.clear()
    assert main(command(server, prompts)) == 0
    assert server.asked_of("tuned") == PROMPTS - 5


# What goes wrong


def test_what_failed_is_left_out_and_asked_again(server: StandIn, prompts: Path) -> None:
    working = server.answer

    def failing(model: str, text: str) -> str | int:
        if (model == "tuned" and text.endswith("number 3")) or (
            model == "judge" and "worth=0" in text.split("B ==")[1]
        ):
            return 400
        return working(model, text)

    server.answer = failing
    assert main(command(server, prompts)) == 0
    found = read_evaluation(KEPT / "judge")
    # One prompt without an answer; of four lost pairs one order is missing.
    assert [row[-1] for row in found.sheets[0].rows] == ["5"] * 5
    assert found.sheets[2].rows[0][-1] == "1"
    assert any(note.startswith("1 answers failed (the server answered 400") for note in found.notes)
    assert any(note.startswith("4 of the judge's answers failed") for note in found.notes)
    server.asked.clear()
    server.answer = working
    assert main(command(server, prompts)) == 0
    assert (server.asked_of("tuned"), server.asked_of("judge")) == (1, 2 + 4)
    assert results(KEPT / "judge")["scores"][0]["value"] == pytest.approx(60.0)


def test_unreadable_verdicts_are_counted_and_not_scored(server: StandIn, prompts: Path) -> None:
    def unclear(text: str) -> str:
        lines = all_lines(fair(text))
        return (
            lines.replace("emotion: A", "emotion: A or B").replace("novelty: ", "novelty? ") if "2" in text else lines
        )

    server.answer = answering(unclear)
    assert main(command(server, prompts)) == 0
    found = read_evaluation(KEPT / "judge")
    unreadable = {row[0]: row[-1] for row in found.sheets[1].rows}
    assert unreadable["overall"] == "0 of 20"
    assert unreadable["emotion"] != "0 of 20"
    pairs = {row[0]: int(row[-1]) for row in found.sheets[0].rows}
    assert pairs["emotion"] < pairs["overall"] == PROMPTS


def test_a_judge_that_says_nothing_readable(server: StandIn, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server.answer = answering(lambda text: "I would rather not.")
    assert main(command(server, prompts)) == 1
    assert "judge gave no verdicts: no pair of them could be read" in capsys.readouterr().err
    assert not (KEPT / "judge" / "results.json").exists()


def test_other_settings_in_the_same_folder_are_refused_before_any_work(
    server: StandIn, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(server, prompts)) == 0
    server.asked.clear()
    assert main(command(server, prompts, "--temperature", "0.5")) == 2
    assert server.asked == []
    assert "answers-model.jsonl was made with other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompts", "nowhere.jsonl"], "--prompts nowhere.jsonl: there is no file or folder"),
        (["--column", "story"], "no column 'story'; the columns there are id, query; set --column query"),
        (["--prompts", "bundled:writin"], "bundled:writing"),
        (["--temperature", "-1"], "--temperature should be 0 or more, not -1"),
        (["--top-p", "0"], "--top-p should be above 0"),
        (["--judge-server", "localhost"], "give a whole address"),
        (["--judge-server", "https://api.openai.com/v1"], "needs a key: set OPENAI_API_KEY"),
        (["--judge-server", "http://127.0.0.1:9/v1"], "No answer from http://127.0.0.1:9/v1"),
    ],
)
def test_bad_input_is_told_before_any_work(
    server: StandIn, prompts: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command(server, prompts), *words]) in (1, 2)
    assert message in capsys.readouterr().err
    assert server.asked == []
    assert not Path("evaluations").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere/model", "--against", "bundled:ledger-0"], "nowhere/model"),
        (["bundled:ledger-0", "--against", "bundled:ledger-9"], "ledger-9"),
        (["bundled:ledger-0", "--against", "bundled:ledger-1", "--device", "abacus"], "abacus"),
        (["bundled:ledger-0", "--against", "bundled:ledger-1", "--judge-local", "no/judge"], "no/judge"),
    ],
)
def test_models_that_are_not_there_are_told_before_any_work(
    prompts: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "open_policy", lambda *_: pytest.fail("a model was loaded"))
    judge = [] if "--judge-local" in words else ["--judge-local", "bundled:ledger-2"]
    assert main(["eval", "ab", *words, "--prompts", str(prompts), *judge]) == 2
    assert message in capsys.readouterr().err


def test_the_base_must_be_named(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["eval", "ab", "bundled:ledger-0", "--prompts", str(prompts)])
    assert "--against" in capsys.readouterr().err


def test_ids_must_differ(tmp_path: Path, server: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "twice.jsonl"
    path.write_text('{"id": 1, "text": "Write on."}\n{"id": 1, "text": "Write more."}\n', encoding="utf-8")
    assert main(command(server, path)) == 2
    assert "two prompts have the id '1'" in capsys.readouterr().err


# Models in this process


@pytest.mark.usefixtures("_drawn_by_nobody")
def test_models_and_a_judge_in_this_process(
    tiny_model: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--max-new-tokens", "6", "--limit", "3", "--judge-local", str(tiny_model)]
    words = [
        "eval",
        "ab",
        str(tiny_model),
        "--against",
        str(tiny_model),
        "--prompts",
        str(prompts),
        *small,
        "--to",
        "kept",
    ]
    assert main(words) == 0
    (folder,) = [path.parent for path in Path("kept").rglob("results.json")]
    found = read_evaluation(folder)
    assert [row[-1] for row in found.sheets[0].rows] == ["3"] * 5  # a choice is always readable
    verdicts = (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    assert len(verdicts) == 2 * 2 * 3 * len(CRITERIA)
    assert {json.loads(line)["text"] for line in verdicts} <= {"A", "B", "tie"}
    texts = [
        Path(f"kept/answers-{side}.jsonl").read_text(encoding="utf-8").splitlines()[1:] for side in ("model", "base")
    ]
    assert json.loads(texts[0][0])["text"] != json.loads(texts[1][0])["text"]  # the same model, but not the same draws
    before = (folder / "results.json").read_text(encoding="utf-8")
    monkeypatch.setattr(models, "open_policy", lambda *_: pytest.fail("a model was loaded"))
    assert main(words) == 0
    assert (folder / "results.json").read_text(encoding="utf-8") == before


# What a judge is asked, and what it says


def test_a_written_question_has_all_criteria_and_a_direct_one_each() -> None:
    pair = Pair("p/model", "Write.", "mine", "  ")
    written, direct = questions(pair, direct=False), questions(pair, direct=True)
    assert [each.id for each in written] == ["p/model/ours-first", "p/model/ours-second"]
    first, second = (each.messages[-1]["content"] for each in written)
    assert all(name in first for name in NAMES)
    assert first.index("mine") < first.index("(nothing was written)")
    assert second.index("mine") > second.index("(nothing was written)")
    assert len(direct) == 10
    assert {each.choices for each in direct} == {("A", "B", "tie")}


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("novelty: A", "first"),
        ("Novelty: B", "second"),
        ("NOVELTY : tie", "tie"),
        ("**Novelty**: **B**", "second"),
        ("**Novelty:** Text A (fresher images)", "first"),
        ("1. novelty - B", "second"),
        ("- novelty: Tie.", "tie"),
        ("novelty：A", "first"),
        ('{"novelty": "A", "emotion": "B"}', "first"),
        ("| novelty | B |", "second"),
        ("novelty: A\nnovelty: A", "first"),
        ("novelty: draw", "tie"),
        ("novelty: A, for its ending", "first"),
        ("novelty: A\nemotion: B", "first"),
        ("novelty: A or B", "unreadable"),
        ("novelty: A/B", "unreadable"),
        ("novelty: A = B", "unreadable"),
        ("novelty: A < B", "unreadable"),
        ("novelty: A and B are equal", "unreadable"),
        ("novelty: a fresh idea", "unreadable"),
        ("novelty: neither", "unreadable"),
        ("novelty: C", "unreadable"),
        ("novelty:\nB", "unreadable"),
        ("novelty: A\nnovelty: B", "unreadable"),
        ("A", "unreadable"),
        ("", "unreadable"),
    ],
)
def test_reading_a_line(line: str, verdict: str) -> None:
    assert read_verdicts(line)["novelty"] == verdict


def test_reading_all_lines() -> None:
    said = "Here you are:\n\nnovelty: A\nemotion: tie\ncoherence: B\nconsistency: A\noverall: A"
    assert list(read_verdicts(said).values()) == ["first", "tie", "second", "first", "first"]
