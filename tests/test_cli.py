"""The command line, from the words a person types to what is printed and left on the disk."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest
import safetensors.torch
import torch
import yaml
from rich.cells import cell_len
from transformers import AutoModelForCausalLM, AutoTokenizer

import spyrl.runs.folder as spyrl_folder
from spyrl.cli import main
from spyrl.config import DEFAULT_PRESET, Config, config_of, preset_text
from spyrl.policy.server import ServerPolicy
from spyrl.runs.folder import RunFolder
from spyrl.runs.games import read_games
from spyrl.settings import read_overrides
from tiny import make_tiny_model

SMALL = (
    "training.iterations=1",
    "training.games=1",
    "game.players=4",
    "game.max_tokens=16",
    "game.max_prompt_tokens=8000",
    "game.detectors.count=2",
    "corpus.max_words=40",
)
# Prompts of a few words, so that a run takes a second.
TASK = """\
name: short
source: note
product: text
instructions: Write.
criteria: Gaps.
performing_template: "{{ role }} {{ observation }} {{ said }}"
detecting_template: "{{ voter }} {{ observation }} {{ outputs }} Who?"
"""
RECIPE = """\
task: {folder}/short.yaml
model: {{path: {model}}}
corpus: {{path: "bundled:writing", max_words: 40}}
game:
  players: 4
  output: whole
  max_tokens: 16
  max_prompt_tokens: 4000
  detectors: {{view: full, count: 4, answer: direct}}
training: {{iterations: 2, games: 2, lr: 1.0e-4}}
"""
REASONED = ("game.detectors.answer=reasoned", "game.detectors.max_tokens=16")


@dataclass(frozen=True)
class Said:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def problem(self) -> str:
        """The one line that a command may print when it cannot do what was asked."""
        [line] = self.err.splitlines()
        assert line.startswith("spyrl: ")
        assert "Traceback" not in self.out + self.err
        return line


Spyrl = Callable[..., Said]


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, 80 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path


@pytest.fixture
def spyrl(capsys: pytest.CaptureFixture[str]) -> Spyrl:
    def run(*words: object) -> Said:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as end:
            code = int(end.code or 0)
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def small(tiny_model: Path) -> tuple[str, ...]:
    """Settings for the default preset with the tiny model."""
    return (f"model.path={tiny_model}", *SMALL)


@pytest.fixture(scope="module")
def recipe(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe for a run of two iterations with a task of its own."""
    folder = tmp_path_factory.mktemp("recipe")
    (folder / "short.yaml").write_text(TASK)
    file = folder / "tiny.yaml"
    file.write_text(RECIPE.format(folder=folder, model=tiny_model))
    return file


@pytest.fixture(scope="module")
def trained(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of the recipe, to be read only."""
    parent = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(parent)
        assert main(["train", str(recipe), "run.name=mine"]) == 0
    return parent / "runs" / "mine"


@pytest.fixture
def mine(trained: Path, workplace: Path) -> Path:
    """A copy of the finished run below the working folder."""
    return Path(shutil.copytree(trained, workplace / "runs" / "mine"))


def files(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}


def told(run: Path) -> list[dict[str, Any]]:
    """The metrics of a run but for what depends on the clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if "second" not in key} for line in lines]


def full_disk(*args: object, **options: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# What there is


def test_version(spyrl: Spyrl) -> None:
    said = spyrl("--version")
    assert (said.code, said.out, said.err) == (0, f"spyrl {importlib.metadata.version('spyrl')}\n", "")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), ["train", "play", "presets", "options", "--version"]),
        (("train",), ["--resume", "key=value", "PRESET", "spyrl options"]),
        (("play",), ["--game", "--prompts", "key=value"]),
        (("presets",), ["PRESET", "source of every number"]),
        (("options",), ["PREFIX"]),
    ],
)
def test_help(spyrl: Spyrl, words: tuple[str, ...], named: list[str]) -> None:
    said = spyrl(*words, "--help")
    assert (said.code, said.err) == (0, "")
    for part in named:
        assert part in " ".join(said.out.split())
    assert all(len(line) <= 80 for line in said.out.splitlines())


def test_presets_are_listed_and_printed_with_their_comments(spyrl: Spyrl) -> None:
    listed = spyrl("presets")
    assert listed.code == 0
    rows = [line.split(maxsplit=1) for line in listed.out.partition("\n\n")[0].splitlines()]
    assert "writing-smollm2" in [name for name, _ in rows]
    for name, summary in rows:
        printed = spyrl("presets", name)
        assert (printed.code, printed.out, printed.err) == (0, preset_text(name), "")
        assert printed.out.splitlines()[0] == f"# {summary}"


def test_options_are_all_settings_with_their_defaults(spyrl: Spyrl) -> None:
    said = spyrl("options")
    shown = dict(line.split(" = ", 1) for line in said.out.splitlines() if not line.startswith(" "))
    assert shown["training.iterations"] == "100"
    assert shown["game.rewards.lambda"] == "0.1"
    assert shown["game.detectors.spy_votes"] == "false"
    assert shown["run.name"] == "null"
    assert {key.split(".")[0] for key in shown} == {"task", "model", "corpus", "game", "training", "run"}
    optional = ("model.detector.", "model.performer.")
    words = [f"{key}={default}" for key, default in shown.items() if not key.startswith(optional)]
    assert config_of(read_overrides(words), "options") == Config()  # what is printed can be typed
    assert all(line.startswith("    ") or " = " in line for line in said.out.splitlines())


def test_options_below_a_prefix(spyrl: Spyrl) -> None:
    said = spyrl("options", "game.detectors")
    keys = [line.split(" = ")[0] for line in said.out.splitlines() if not line.startswith(" ")]
    assert "game.detectors.view" in keys
    assert all(key.startswith("game.detectors.") for key in keys)
    assert "read the complete document" in " ".join(said.out.split())


def test_as_a_program() -> None:
    environment = {**os.environ, "COLUMNS": "80"}
    command = [sys.executable, "-m", "spyrl", "train", "training.iteratons=3"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"spyrl: .*'training\.iteratons'.*'iterations'\?\n", done.stderr)


def test_as_a_program_that_trains(recipe: Path, workplace: Path) -> None:
    environment = {**os.environ, "COLUMNS": "80"}
    command = [sys.executable, "-m", "spyrl", "train", str(recipe), "training.iterations=1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")  # no other library has a word in it
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", done.stdout)
    assert "1 iteration done" in done.stdout
    assert (workplace / "runs" / "tiny" / "model" / "config.json").is_file()


@pytest.mark.parametrize("command", ["presets", "options"])
def test_a_reader_that_stops_reading_is_told_nothing(command: str) -> None:
    read, write = os.pipe()
    os.close(read)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    words = [sys.executable, "-m", "spyrl", command]
    try:
        done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


# Training


def test_a_run_leaves_all_that_is_promised(trained: Path, recipe: Path) -> None:
    assert files(trained) >= {
        "config.yaml",
        "metrics.jsonl",
        "games/iteration-00000.parquet",
        "games/iteration-00001.parquet",
        "checkpoints/iteration-00002/state.json",
        "model/config.json",
        "model/model.safetensors",
        "model/tokenizer.json",
        "model/chat_template.jinja",
    }
    assert not [name for name in files(trained) if "partial" in name]
    assert {path.name for path in trained.iterdir()} - {".lock"} == {
        "config.yaml",
        "metrics.jsonl",
        "games",
        "checkpoints",
        "model",
    }
    config = yaml.safe_load((trained / "config.yaml").read_text())
    assert (config["preset"], config["run"]["seed"], config["training"]["iterations"]) == (str(recipe), 0, 2)
    assert config["versions"]["torch"] == importlib.metadata.version("torch")
    metrics = told(trained)
    assert [line["iteration"] for line in metrics] == [0, 1]
    wanted = {"stage", "detection/accuracy", "detection/plurality", "detection/abstained", "detection/invalid"}
    wanted |= {"reward/spy", "reward/civilian", "kl", "games/played", "gate/next", "baseline/spy"}
    assert wanted <= metrics[0].keys()
    for iteration, line in enumerate(metrics):
        games = read_games(trained / "games" / f"iteration-{iteration:05d}.parquet")
        assert [game["game"] for game in games] == [0, 1]
        ballots = [(ballot, game["spy"]) for game in games for ballot in game["ballots"]]
        assert len(ballots) == 8
        assert line["detection/accuracy"] == sum(ballot["choice"] == spy for ballot, spy in ballots) / 8


def test_the_trained_model_loads_as_any_other_and_has_learnt(trained: Path, tiny_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(trained / "model")
    before = AutoModelForCausalLM.from_pretrained(tiny_model)
    assert [name for name, value in model.named_parameters() if not torch.equal(value, before.get_parameter(name))]
    tokenizer = AutoTokenizer.from_pretrained(trained / "model")
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True)["input_ids"]
    written = model.generate(torch.tensor([prompt]), max_new_tokens=3, do_sample=False)
    assert written.shape[1] > len(prompt)


def test_what_is_printed_while_training_fits_80_columns(spyrl: Spyrl, recipe: Path) -> None:
    shutil.copy(recipe, "tiny.yaml")
    said = spyrl("train", "tiny.yaml", "run.name=mine")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert all(cell_len(line) <= 80 for line in lines)
    assert lines[0].endswith("tiny.yaml → runs/mine")
    line = re.compile(r" +[12]/2 +detection +\d+% +\d+% +0%  [+-]0\.\d{3}  [+-]0\.\d{3}  \d+/\d+ +0\.\d{5} \d+(\.\d)?")
    assert len([each for each in lines if line.fullmatch(each)]) == 2
    for part in ("150 documents from bundled:writing", "runs/mine/model", "runs/mine/games", "--resume", "spyrl play"):
        assert part in said.out


def test_a_measured_run_leaves_a_curve_and_shows_what_changed(spyrl: Spyrl, small: tuple[str, ...]) -> None:
    measured = ("training.evaluation.every=2", "training.evaluation.documents=4")
    words = ("writing-smollm2", "task=ledger", *small, *measured, "run.name=mine")
    said = spyrl("train", *words, "training.iterations=2")
    assert (said.code, said.err) == (0, "")
    assert re.search(r"^  unseen documents: quality \d\.\d\d → ", said.out, re.MULTILINE)
    assert "quality on unseen documents" in said.out
    assert all(cell_len(line) <= 80 for line in said.out.splitlines())
    run = Path("runs/mine")
    assert {"curve.png", "held_out/start.jsonl", "held_out/iteration-00001.jsonl"} <= files(run)
    drawn = (run / "curve.png").read_bytes()
    (run / "curve.png").unlink()
    again = spyrl("train", "--resume", "run.name=mine", "training.iterations=3")
    assert (again.code, again.err) == (0, "")
    start = re.compile(r"unseen documents:? (quality \d\.\d\d) → ")
    assert start.findall(again.out)[0] == start.findall(said.out)[0]
    assert (run / "curve.png").read_bytes() != drawn


@pytest.mark.parametrize("task", ["writing", "math", "summarization"])
def test_every_task_with_the_default_preset(spyrl: Spyrl, small: tuple[str, ...], task: str) -> None:
    said = spyrl("train", *small, f"task={task}")
    assert (said.code, said.err) == (0, "")
    assert f"bundled:{task}; task {task}" in said.out
    run = Path("runs/writing-smollm2")
    config = yaml.safe_load((run / "config.yaml").read_text())
    fraction = 0.4 if task == "math" else 0.2
    assert (config["task"], config["game"]["degradation"]["fraction"]) == (task, fraction)
    [game] = read_games(run / "games" / "iteration-00000.parquet")
    [span] = game["hidden"]
    hidden, whole = (len(text.split()) for text in (game["document"][span["start"] : span["end"]], game["document"]))
    assert hidden == round(fraction * whole)
    assert all("____" in output["prompt"] for output in game["outputs"] if output["role"] == "spy")
    assert (run / "model" / "model.safetensors").is_file()


def test_reasoned_ballots_from_the_players_own_view_train_too(spyrl: Spyrl, recipe: Path) -> None:
    own = ("game.detectors.view=own", "game.detectors.count=null", "training.stages=joint", "training.iterations=1")
    said = spyrl("train", recipe, *REASONED, *own, "run.name=mine")
    assert (said.code, said.err) == (0, "")
    [metrics] = told(Path("runs/mine"))
    assert metrics["stage"] == "joint"
    assert metrics["detection/invalid"] == 1  # a random model keeps no form
    assert metrics["detection/accuracy"] == 0
    games = read_games(Path("runs/mine/games/iteration-00000.parquet"))
    for game in games:
        assert [ballot["voter"] for ballot in game["ballots"]] == [n for n in (1, 2, 3, 4) if n != game["spy"]]


def test_runs_without_a_name_are_numbered(spyrl: Spyrl, recipe: Path, mine: Path) -> None:
    mine.rename("runs/tiny")
    said = spyrl("train", recipe, "training.iterations=1")
    assert said.code == 0
    assert "runs/tiny-2" in said.out
    assert [line["iteration"] for line in told(Path("runs/tiny-2"))] == [0]
    assert len(told(Path("runs/tiny"))) == 2


# Going on


def test_a_run_goes_on_where_it_ended(spyrl: Spyrl, recipe: Path, mine: Path) -> None:
    before = told(mine)
    said = spyrl("train", "--resume", "run.name=mine", "training.iterations=3")
    assert (said.code, said.err) == (0, "")
    assert "going on from iteration 2" in said.out
    assert re.search(r"^ +3/3 ", said.out, re.MULTILINE)
    assert told(mine)[:2] == before
    assert len(told(mine)) == 3
    assert (mine / "checkpoints" / "iteration-00003").is_dir()
    assert yaml.safe_load((mine / "config.yaml").read_text())["training"]["iterations"] == 3
    never_stopped = spyrl("train", recipe, "training.iterations=3", "run.name=other")
    assert never_stopped.code == 0
    assert told(Path("runs/other")) == told(mine)


def test_a_finished_run_that_goes_on_has_nothing_to_do(spyrl: Spyrl, mine: Path) -> None:
    before = told(mine)
    (mine / "model" / "config.json").unlink()
    said = spyrl("train", "--resume", "run.name=mine")
    assert (said.code, said.err) == (0, "")
    assert told(mine) == before
    assert (mine / "model" / "config.json").is_file()


@pytest.mark.parametrize(
    "words",
    [
        ("--resume", "writing-smollm2", "training.iterations=2"),
        ("writing-smollm2", "--resume", "training.iterations=2"),
        ("training.iterations=2", "--resume"),
        ("--resume", "run.name=writing-smollm2"),
        ("--resume", "run.log=null", "model.batch_tokens=5000", "run.keep=1"),
    ],
)
def test_ways_to_ask_for_the_same_run(spyrl: Spyrl, mine: Path, words: tuple[str, ...]) -> None:
    named = any("writing-smollm2" in word for word in words)
    mine.rename("runs/writing-smollm2" if named else f"runs/{DEFAULT_PRESET}")
    said = spyrl("train", *words)
    assert (said.code, said.err) == (0, "")
    assert "going on from iteration 2" in said.out


def test_settings_count_before_and_after_an_option(spyrl: Spyrl, mine: Path) -> None:
    mine.rename("runs/writing-smollm2")
    said = spyrl(
        "train", "writing-smollm2", "run.checkpoint_every=7", "--resume", "run.keep=5", "training.iterations=1"
    )
    assert (said.code, said.err) == (0, "")
    config = yaml.safe_load(Path("runs/writing-smollm2/config.yaml").read_text())
    assert (config["run"]["checkpoint_every"], config["run"]["keep"], config["training"]["iterations"]) == (7, 5, 1)


def test_the_run_is_the_one_that_the_file_names(spyrl: Spyrl, mine: Path) -> None:
    mine.rename("runs/stories")
    Path("runs").rename("elsewhere")
    Path("recipe.yaml").write_text("run: {name: stories, folder: elsewhere}\n")
    taken = spyrl("train", "recipe.yaml")
    assert taken.code == 2
    assert "--resume" in taken.problem
    said = spyrl("train", "recipe.yaml", "--resume")
    assert (said.code, said.err) == (0, "")
    assert "elsewhere/stories" in said.out


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("training.lr=0.5", r"training\.lr is 0\.0001 in runs/mine/config\.yaml and 0\.5 on the command line"),
        ("run.seed=1", r"run\.seed is 0 in .* and 1 on"),
        ("game.players=5", r"game\.players is 4 in .* and 5 on"),
        ("task=math", r"task is '.*short.yaml' in .* and 'math' on"),
        ("model.detector.path=other", r"model\.detector is fixed"),
        ("model.template.enable_thinking=false", r"model\.template\.enable_thinking is None in .* and False on"),
    ],
)
def test_a_changed_setting_is_refused(spyrl: Spyrl, mine: Path, word: str, says: str) -> None:
    before = {name: (mine / name).read_bytes() for name in files(mine)}
    said = spyrl("train", "--resume", "run.name=mine", word)
    assert said.code == 2
    assert re.search(says, said.problem)
    assert {name: (mine / name).read_bytes() for name in files(mine)} == before


def test_an_optional_part_cannot_be_taken_away_either(spyrl: Spyrl, mine: Path) -> None:
    config = yaml.safe_load((mine / "config.yaml").read_text())
    config["model"]["detector"] = {"path": "other"}
    config["training"]["stages"] = "performing"
    (mine / "config.yaml").write_text(yaml.safe_dump(config))
    said = spyrl("train", "--resume", "run.name=mine", "model.detector=null")
    assert said.code == 2
    assert "model.detector" in said.problem


def test_a_run_that_another_process_trains_is_left_alone(spyrl: Spyrl, mine: Path) -> None:
    before = (mine / "metrics.jsonl").read_bytes()
    with RunFolder(mine).locked():
        said = spyrl("train", "--resume", "run.name=mine", "training.iterations=3")
    assert said.code == 1
    assert "runs/mine is being trained by another process" in said.problem
    assert (mine / "metrics.jsonl").read_bytes() == before


def test_an_interrupt_leaves_a_checkpoint_and_tells_how_to_go_on(
    spyrl: Spyrl, recipe: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RunFolder.record

    def interrupted(*args: Any) -> None:
        record(*args)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "record", interrupted)
        said = spyrl("train", recipe, "run.name=mine", "run.folder=deep/runs")
    assert (said.code, said.err) == (0, "")
    assert "Stopped after 1 iterations" in said.out
    assert not Path("deep/runs/mine/model").exists()
    command = said.out.strip().splitlines()[-1].split()
    assert command[0] == "spyrl"
    again = spyrl(*command[1:])
    assert (again.code, again.err) == (0, "")
    assert told(Path("deep/runs/mine")) == told(trained)


@pytest.mark.parametrize("what", ["games", "checkpoint", "model"])
def test_a_disk_that_fills_up_costs_one_iteration(
    spyrl: Spyrl, recipe: Path, trained: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    write_games, save, saved = spyrl_folder.write_games, safetensors.torch.save, count(1)
    with monkeypatch.context() as patch:
        if what == "games":
            patch.setattr(
                spyrl_folder,
                "write_games",
                lambda path, replays: full_disk() if "00001" in path.name else write_games(path, replays),
            )
        elif what == "checkpoint":
            patch.setattr(safetensors.torch, "save", lambda *a, **b: full_disk() if next(saved) == 2 else save(*a, **b))
        else:
            patch.setattr(shutil, "copyfile", full_disk)
        said = spyrl("train", recipe, "run.name=mine", "run.checkpoint_every=1")
    assert said.code == 1
    assert "No space left on device" in said.problem
    assert "--resume" in said.problem
    assert "runs/mine" in said.problem
    run = Path("runs/mine")
    assert told(run) == told(trained)[: 1 if what == "games" else 2]
    newest = 2 if what == "model" else 1
    assert sorted(path.name for path in (run / "checkpoints").iterdir())[-1] == f"iteration-{newest:05d}"
    assert not [path for path in run.rglob("*") if "partial" in path.name]
    assert not (run / "model").exists()
    again = spyrl("train", "--resume", "run.name=mine")
    assert (again.code, again.err) == (0, "")
    assert told(run) == told(trained)
    for name in ("model/model.safetensors", "model/config.json"):
        assert (run / name).read_bytes() == (trained / name).read_bytes()


# Playing


def test_a_game_is_shown(spyrl: Spyrl, small: tuple[str, ...], workplace: Path) -> None:
    said = spyrl("play", *small, "game.players=5", "game.detectors.count=8")
    assert (said.code, said.err) == (0, "")
    out = said.out
    order = [
        "document bundled-writing-",
        "the marked part",
        "\nplayer 1 ",
        "\nplayer 5 ",
        "\nballots ",
        "detector 8 → ",
    ]
    order += ["each drawn from", "tally and rewards", " reward", "abstained, 0 could not be read; the spy was"]
    places = [out.index(part) for part in order]
    assert places == sorted(places)
    assert re.search(r"player [1-5] is the spy", out)
    assert "[[" in out
    rows = re.findall(r"^ +([1-5]) +(spy|civilian) +(\d) +([+-]\d\.\d{3})$", out, re.MULTILINE)
    assert [int(player) for player, *_ in rows] == [1, 2, 3, 4, 5]
    assert [role for _, role, *_ in rows].count("spy") == 1
    votes = [int(each) for *_, each, _ in rows]
    assert sum(votes) == len(re.findall(r"detector \d → player", out))
    assert abs(sum(float(reward) for *_, reward in rows)) < 0.01  # zero-sum, but for rounding
    assert "This is a game for" not in out
    assert list(workplace.iterdir()) == []  # playing leaves nothing behind


def test_the_game_is_the_one_that_training_would_play(spyrl: Spyrl, recipe: Path, trained: Path) -> None:
    for number, game in enumerate(read_games(trained / "games" / "iteration-00000.parquet")):
        said = spyrl("play", recipe, "--game", number)
        assert f"document {game['document_id']} " in said.out
        assert f"player {game['spy']} is the spy" in said.out


def test_the_trained_model_plays(spyrl: Spyrl, recipe: Path, trained: Path) -> None:
    said = spyrl("play", recipe, f"model.path={trained / 'model'}")
    assert (said.code, said.err) == (0, "")
    before = spyrl("play", recipe)
    assert said.out.splitlines()[0] == before.out.splitlines()[0]
    assert said.out != before.out


def test_prompts_are_shown_when_asked_for(spyrl: Spyrl, small: tuple[str, ...]) -> None:
    said = spyrl("play", *small, "--prompts")
    assert said.code == 0
    assert said.out.count("This is a game for 4 players.") == 2  # the civilians share theirs
    assert said.out.count("Find the spy.") == 1
    assert re.search(r"asked: player \d, player \d, player \d ", said.out)
    assert "asked: detector 1, detector 2 " in said.out


# Bad input


BAD_SETTINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown key": (("trainng.iterations=3",), ("command line", "'trainng'", "did you mean 'training'?")),
    "unknown key deep": (
        ("game.detectors.vew=own",),
        ("command line", "'game.detectors.vew'", "did you mean 'view'?"),
    ),
    "unknown key in a file": (("typo.yaml",), ("typo.yaml", "'game.player'", "did you mean 'players'?")),
    "unknown preset": (("writing-smolm2",), ("'writing-smolm2'", "did you mean 'writing-smollm2'?")),
    "two presets": (("writing-smollm2", "other"), ("writing-smollm2 and other", "key=value")),
    "wrong type": (("training.iterations=many",), ("training.iterations", "integer", "'many'")),
    "wrong choice": (("game.detectors.view=both",), ("game.detectors.view", "'own' or 'full'", "'both'")),
    "a value for a group": (("training=3",), ("training.KEY", "3")),
    "nothing for a group": (("game=null",), ("game", "None")),
    "out of range": (("game.players=2",), ("players", "3..26", "2")),
    "out of range deep": (("game.degradation.fraction=1.5",), ("game.degradation", "fraction", "1.5")),
    "no key": (("=3",), ("'=3'", "key=value")),
    "name that is a path": (("run.name=a/b",), ("name", "'a/b'")),
    "unknown task": (("task=mth",), ("'mth'", "did you mean 'math'?")),
    "missing task file": (("task=mine.yaml",), ("mine.yaml", "does not exist")),
    "missing recipe": (("nosuch.yaml",), ("nosuch.yaml", "No such file or directory")),
    "recipe that is no YAML": (("torn.yaml",), ("torn.yaml, line 2", "mapping values")),
    "recipe that is a list": (("list.yaml",), ("list.yaml", "list")),
    "unknown tracker": (("run.log=[tensorbord]",), ("run.log", "'tensorboard'", "'tensorbord'")),
    "nothing to detect": (
        ("game.degradation.kind=nothing", "training.stages=detection"),
        ("training.stages=detection", "game.degradation.kind=nothing"),
    ),
    "direct ballots over a server": (
        ("model.server=http://127.0.0.1:9/v1",),
        ("direct ballots", "game.detectors.answer=reasoned"),
    ),
    "a server's model": (
        ("model.server=http://127.0.0.1:9/v1", *REASONED),
        ("model.server", "cannot be trained", "model.path"),
    ),
    "missing model": (("model.path=./nomodel",), ("'./nomodel'", "no such folder")),
    "model folder without a model": (("model.path=hollow",), ("hollow", "config.json")),
    "run that is not there": (("--resume",), ("writing-smollm2", "runs", "run.name=NAME")),
    "named run that is not there": (("--resume", "run.name=gone"), ("no run to resume", "runs/gone")),
    "run named by a number": (("--resume", "run.name=5"), ("no run to resume at runs/5",)),
    "no run group": (("--resume", "run=null"), ("no run of writing-smollm2",)),
    "resumed unknown key": (("--resume", "trainng.iterations=3"), ("'trainng'",)),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_bad_settings_end_in_one_line_and_leave_nothing(spyrl: Spyrl, workplace: Path, case: str) -> None:
    words, parts = BAD_SETTINGS[case]
    Path("typo.yaml").write_text("game:\n  player: 4\n")
    Path("torn.yaml").write_text("game:\n  players: 4: 5\n")
    Path("list.yaml").write_text("- game\n")
    Path("hollow").mkdir()
    before = sorted(workplace.rglob("*"))
    said = spyrl("train", "model.path=./nomodel", *words)
    assert said.code == 2
    for part in parts:
        assert part in said.problem
    assert sorted(workplace.rglob("*")) == before


CORPORA: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "missing": ("other.jsonl", "{}", ("corpus.path=mine.jsonl", "/mine.jsonl")),
    "empty": ("mine.jsonl", "", ("mine.jsonl", "empty")),
    "missing column": (
        "mine.jsonl",
        '{"story": "One two three."}',
        ("mine.jsonl:1", "'text'", "story", "corpus.column=story"),
    ),
    "column of another type": ("mine.jsonl", '{"text": 3}', ("mine.jsonl:1", "'text'", "number")),
    "malformed line": ("mine.jsonl", '{"text": "One two three."}\n{"text": oops}', ("mine.jsonl:2", "not valid JSON")),
    "too short": ("mine.jsonl", '{"text": "One two."}\n' * 3, ("mine.jsonl", "3 too few words", "corpus.min_words=8")),
    "not to be degraded": (
        "mine.jsonl",
        '{"text": "One sentence of nine words and not one more."}',
        ("mine.jsonl:1", "too short to degrade", "two sentences"),
    ),
    "unknown format": ("mine.jsonl/mine.docx", "text", ("mine.jsonl", ".parquet")),
}


@pytest.mark.parametrize("case", CORPORA)
@pytest.mark.parametrize("command", ["train", "play"])
def test_a_bad_corpus_is_named(spyrl: Spyrl, recipe: Path, case: str, command: str) -> None:
    name, text, parts = CORPORA[case]
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)
    said = spyrl(command, recipe, "corpus.path=mine.jsonl", "game.degradation.unit=sentences")
    assert said.code == 2
    for part in parts:
        assert part in said.problem
    assert not Path("runs").exists()


def no_template(folder: Path) -> None:
    make_tiny_model(folder, chat_template=None)


def torn_weights(folder: Path) -> None:
    weights = make_tiny_model(folder) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def garbled_weights(folder: Path) -> None:
    (make_tiny_model(folder) / "model.safetensors").write_bytes(b"these are no weights" * 99)


def other_shape(folder: Path) -> None:
    config = make_tiny_model(folder) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"intermediate_size": 32}))


def torn_config(folder: Path) -> None:
    (make_tiny_model(folder) / "config.json").write_text('{"model_type": ')


def torn_tokenizer(folder: Path) -> None:
    (make_tiny_model(folder) / "tokenizer.json").write_text('{"version": ')


def no_weights(folder: Path) -> None:
    (make_tiny_model(folder) / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (no_template, "chat template"),
        (torn_weights, "cannot be loaded"),
        (garbled_weights, "cannot be loaded"),
        (other_shape, "cannot be loaded"),
        (torn_config, "cannot be loaded"),
        (torn_tokenizer, "cannot be loaded"),
        (no_weights, "cannot be loaded"),
    ],
)
@pytest.mark.parametrize("command", ["train", "play"])
def test_a_bad_model_is_named(spyrl: Spyrl, spoil: Callable[[Path], None], says: str, command: str) -> None:
    spoil(Path("broken"))
    said = spyrl(command, *SMALL, "model.path=broken")
    assert said.code == 2
    assert "'broken'" in said.problem
    assert says in said.problem
    assert not Path("runs").exists()


@pytest.mark.parametrize("limit", [1, 100])
@pytest.mark.parametrize("command", ["train", "play"])
def test_a_prompt_limit_that_leaves_no_room_is_named(
    spyrl: Spyrl, small: tuple[str, ...], limit: int, command: str
) -> None:
    said = spyrl(command, *small, f"game.max_prompt_tokens={limit}")
    assert said.code == 2
    assert f"game.max_prompt_tokens={limit}" in said.problem
    assert not Path("runs").exists()


def test_a_run_that_exists_is_not_touched(spyrl: Spyrl, recipe: Path, mine: Path) -> None:
    before = {name: (mine / name).read_bytes() for name in files(mine)}
    said = spyrl("train", recipe, "run.name=mine")
    assert said.code == 2
    for part in ("runs/mine", "--resume", "run.name"):
        assert part in said.problem
    assert {name: (mine / name).read_bytes() for name in files(mine)} == before


def test_a_run_folder_that_cannot_be_made_is_named(spyrl: Spyrl, recipe: Path) -> None:
    Path("file").write_text("in the way")
    said = spyrl("train", recipe, "run.folder=file")
    assert said.code == 1
    assert "file/tiny: Not a directory" in said.problem


def test_a_run_folder_that_may_not_be_written_is_named(
    spyrl: Spyrl, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object, **options: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refused)
    said = spyrl("train", recipe, "run.name=mine")
    assert said.code == 1
    assert "runs/mine: Permission denied" in said.problem
    assert not Path("runs").exists()


def test_a_disk_too_small_is_noticed_before_the_run(
    spyrl: Spyrl, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "free_bytes", lambda self: 300_000)
    said = spyrl("train", recipe, "run.name=mine")
    assert said.code == 1
    for part in ("runs/mine", "MB free", "run.folder", "run.keep=1"):
        assert part in said.problem
    assert not Path("runs").exists()


def test_a_missing_tracker_is_noticed_before_the_run(
    spyrl: Spyrl, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spyrl.runs.trackers.find_spec", lambda name: None)
    said = spyrl("train", recipe, "run.log=[wandb]")
    assert said.code == 2
    assert "pip install 'spyrl[wandb]'" in said.problem
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("train", "--resumes"), "--resumes"),
        (("train", "a=1", "--nope", "b=2"), "--nope"),
        (("play", "--game", "one"), "'one'"),
        (("presets", "a", "b"), "b"),
        (("tran",), "'tran'"),
        ((), "COMMAND"),
    ],
)
def test_words_that_are_not_known(spyrl: Spyrl, words: tuple[str, ...], says: str) -> None:
    said = spyrl(*words)
    assert said.code == 2
    assert says in said.err.splitlines()[-1]
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("play", "--game", "-1"), "--game should be 0 or more, not -1"),
        (("options", "trainign"), "'trainign'"),
        (("presets", "writing-smolm2"), "did you mean 'writing-smollm2'?"),
    ],
)
def test_other_bad_words(spyrl: Spyrl, words: tuple[str, ...], says: str) -> None:
    said = spyrl(*words)
    assert said.code == 2
    assert says in said.problem


# Servers


class Handler(BaseHTTPRequestHandler):
    """Lists one model and answers chats with ``chat(prompt)``: a text, the status of an error, or bytes as they are."""

    models: tuple[int, str] = (200, '{"data": [{"id": "served"}]}')
    chat: Callable[[str], int | str | bytes]

    def do_GET(self) -> None:
        self.reply(*self.models)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = type(self).chat(body["messages"][-1]["content"])
        if isinstance(said, int):
            self.reply(said, '{"error": {"message": "no luck today"}}')
        elif isinstance(said, bytes):
            self.reply(200, said.decode())
        else:
            choice = {"message": {"content": said}, "finish_reason": "stop"}
            self.reply(200, json.dumps({"choices": [choice]}))

    def reply(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Handler]]:
    """A server's handler, which tests give its answers; asked again at once where it fails."""
    monkeypatch.setitem(ServerPolicy.__init__.__kwdefaults__, "backoff", 0.0)
    handler = type("Bound", (Handler,), {"chat": staticmethod(perfect)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        handler.words = ("model.path=served", f"model.server=http://127.0.0.1:{running.server_port}/v1", *REASONED)
        yield handler
        running.shutdown()
        thread.join()


def perfect(prompt: str) -> str:
    """Plays as told: writes of the document, and finds the story that lacks the document's last word."""
    document = prompt.partition("<document>\n")[2].partition("\n</document>")[0]
    if "Find the spy." not in prompt:
        return f"A story of {document.split()[0]}, with {document.count('_')} gaps."
    stories = re.findall(r"\[Player (\d)\]\nA story of .*, with (\d+) gaps\.", prompt)
    return "".join(f"Player {player} has gaps. \\boxed{{{player}}}" for player, gaps in stories if gaps != "0")


@pytest.mark.parametrize("view", ["own", "full"])
def test_a_whole_reasoned_game_over_a_server(spyrl: Spyrl, server: Any, view: str) -> None:
    count = 1 if view == "own" else 8
    detectors = (f"game.detectors.view={view}", f"game.detectors.count={count}")
    said = spyrl("play", *server.words, *detectors, "game.max_prompt_tokens=4000")
    assert (said.code, said.err) == (0, "")
    spy = re.search(r"player (\d) is the spy", said.out)
    assert spy is not None
    voter = "player" if view == "own" else "detector"
    right = re.findall(rf"{voter} \d → player {spy[1]} \(right\) +Player {spy[1]} has gaps", said.out)
    assert len(right) == (4 if view == "own" else 8)
    assert said.out.count("A story of") == 5
    assert "0 abstained, 0 could not be read; the spy was found" in said.out


def test_a_server_that_is_down(spyrl: Spyrl, server: Any) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as gone:
        url = f"http://127.0.0.1:{gone.server_port}/v1"
    said = spyrl("play", *server.words, f"model.server={url}")
    assert said.code == 1
    assert f"No answer from {url}" in said.problem


@pytest.mark.parametrize(
    ("models", "code", "parts"),
    [
        ((500, '{"error": {"message": "out of memory"}}'), 1, ("500", "out of memory")),
        ((429, '{"error": {"message": "slow down"}}'), 1, ("429", "slow down")),
        ((401, '{"error": {"message": "who are you"}}'), 2, ("API key", "OPENAI_API_KEY")),
        ((200, "<html>Welcome</html>"), 2, ("no JSON", "<html>Welcome", "/v1")),
        ((200, '{"data": [{"id": "other"}]}'), 2, ("'served'", "other")),
    ],
    ids=["500", "429", "401", "garbage", "other model"],
)
def test_a_server_in_trouble_is_noticed_before_the_game(
    spyrl: Spyrl, server: Any, models: tuple[int, str], code: int, parts: tuple[str, ...]
) -> None:
    server.models = models
    said = spyrl("play", *server.words)
    assert said.code == code
    for part in ("http://127.0.0.1:", *parts):
        assert part in said.problem


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (500, "500: no luck today"),
        (429, "429: no luck today"),
        (400, "400: no luck today"),
        (b"<html>no luck", "no JSON: '<html>no luck'"),
        (b'{"id": "x"}', "no completion"),
    ],
)
def test_a_server_that_fails_in_the_performing_stage(spyrl: Spyrl, server: Any, answer: int | bytes, says: str) -> None:
    server.chat = staticmethod(lambda prompt: answer)
    said = spyrl("play", *server.words, "game.max_prompt_tokens=4000")
    assert said.code == 1
    for part in ("game 0", "performing_failed", says):
        assert part in said.problem


def test_a_server_that_fails_in_the_detection_stage(spyrl: Spyrl, server: Any) -> None:
    server.chat = staticmethod(lambda prompt: 500 if "Find the spy." in prompt else perfect(prompt))
    said = spyrl("play", *server.words, "game.max_prompt_tokens=4000")
    assert said.code == 1
    for part in ("game 0", "detection_failed", "500", "no luck today"):
        assert part in said.problem


def test_a_fixed_detector_behind_a_server_trains_performing(spyrl: Spyrl, recipe: Path, server: Any) -> None:
    _, url, *_ = server.words
    detector = ("model.detector.path=served", url.replace("model.server", "model.detector.server"), *REASONED)
    few = ("training.stages=performing", "training.iterations=1")
    server.chat = staticmethod(lambda prompt: "The second. \\boxed{2}")
    said = spyrl("train", recipe, *detector, *few, "run.name=mine")
    assert (said.code, said.err) == (0, "")
    [metrics] = told(Path("runs/mine"))
    assert metrics["stage"] == "performing"
    assert metrics["detection/votes/player_2"] == 1


def test_a_detector_that_fails_ends_the_run_with_the_reason(spyrl: Spyrl, recipe: Path, server: Any) -> None:
    _, url, *_ = server.words
    detector = ("model.detector.path=served", url.replace("model.server", "model.detector.server"), *REASONED)
    server.chat = staticmethod(lambda prompt: 500)
    said = spyrl("train", recipe, *detector, "training.stages=performing", "run.name=mine")
    assert said.code == 1
    assert "no game of iteration 0 could be played" in said.problem
    assert "detection_failed" in said.out
    assert "no luck today" in " ".join(said.out.split())
    [metrics] = told(Path("runs/mine"))
    assert (metrics["games/played"], metrics["games/dropped/detection_failed"]) == (0, 2)
    assert read_games(Path("runs/mine/games/iteration-00000.parquet")) == []
