"""What the documentation shows is run, or at least read by the code it speaks of."""

from __future__ import annotations

import json
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

from spyrl.arguments import split_words
from spyrl.cli import _parser, main
from spyrl.config import Config, load_config, preset_names
from spyrl.game import INVALID
from spyrl.play import play_one
from spyrl.settings import check_keys, options, read_overrides
from spyrl.tasks import load_task

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TASKS_PAGE = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    found = []
    for page in PAGES:
        for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            found += [line.split("  #")[0].strip() for line in block.splitlines() if line.startswith("spyrl ")]
    return sorted(set(found))


def block(language: str, title: str) -> str:
    """The code block of docs/tasks.md whose first line names the file ``title``."""
    (found,) = re.findall(rf"^```{language}\n(# {re.escape(title)}\n.*?)^```", TASKS_PAGE, re.M | re.S)
    return found


def test_there_are_commands_to_check() -> None:
    assert len(commands()) > 12


@pytest.mark.parametrize("command", commands())
def test_commands_of_the_documentation_can_be_read(command: str) -> None:
    parsed = _parser().parse_args(shlex.split(command)[1:])
    if hasattr(parsed, "words"):
        source, words = split_words(parsed.words)
        check_keys(Config, read_overrides(words), command)
        assert source is None or source in preset_names() or source.endswith(".yaml")


def settings_named_in(text: str) -> set[str]:
    return set(re.findall(r"`((?:model|corpus|game|training|run)\.[a-z_.]+)(?:=[^`]*)?`", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_named_in_the_documentation_exist(page: Path) -> None:
    known = {key for key, _, _ in options(Config)}
    named = settings_named_in(page.read_text(encoding="utf-8"))
    assert {name for name in named if not any(key == name or key.startswith(name + ".") for key in known)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_functions_and_tests_named_in_the_documentation_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`spyrl\.([\w.]+)`", text):
        assert pkgutil.resolve_name(f"spyrl.{name}"), name
    for path in re.findall(r"`((?:game|play|training|policy|tests)/[\w/]+\.py)`", text):
        assert (ROOT / path).is_file() or (ROOT / "tests" / path).is_file(), path


def play_small(task: str, tiny_model: Path, *words: str) -> list[str | None]:
    small = ["game.max_tokens=12", "game.max_prompt_tokens=9000", "training.games=1", f"model.path={tiny_model}"]
    config = load_config("writing-smollm2", [f"task={task}", *small, *words])
    settled = play_one(config, load_task(config.task), 0, lambda text: None)
    assert len(settled.game.ballots) == 8
    return [turn.prompt for turn in settled.performing]


def test_the_yaml_task_of_the_documentation_is_played(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipe.yaml").write_text(block("yaml", "recipe.yaml"), encoding="utf-8")
    document = "two eggs, 200 g flour, a pinch of salt, 300 ml milk, one lemon, 50 g sugar, 30 g butter"
    (tmp_path / "ingredients.jsonl").write_text(json.dumps({"ingredients": document}) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    prompts = play_small("recipe.yaml", tiny_model)
    assert sum(document in prompt for prompt in prompts) == 4  # all but the spy's
    assert all("uses every ingredient on this list" in prompt for prompt in prompts)
    assert load_config("writing-smollm2", ["task=recipe.yaml"]).game.degradation.fraction == 0.3


def test_the_python_task_of_the_documentation_is_played(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flat.py").write_text(block("python", "flat.py"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    play_small("flat.py", tiny_model)


def test_every_metric_of_a_run_is_documented(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["game.max_tokens=8", "game.max_prompt_tokens=9000", "training.games=2", "training.iterations=1"]
    measured = ["training.evaluation.every=1", "training.evaluation.documents=4"]
    ledger = ["writing-smollm2", "task=ledger", f"model.path={tiny_model}", "run.name=r"]
    assert main(["train", *ledger, *small, *measured]) == 0
    (line,) = (tmp_path / "runs" / "r" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    table = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").split("What to watch")[0]
    documented = {name for row in table.splitlines() if row.startswith("|") for name in re.findall("`([^`]+)`", row)}
    documented |= {f"detection/invalid/{outcome}" for outcome in INVALID}
    documented |= {f"detection/votes/player_{number}" for number in range(1, 6)}
    habits = documented & {"precision", "recall", "swapped", "withheld", "plain"}
    documented |= {f"quality/{outputs}/{name}" for outputs in ("greedy", "sampled") for name in habits}
    assert "start/..." in documented
    told = {name.removeprefix("start/") for name in json.loads(line)}
    assert "strength/spy" in told
    assert told - documented == set()
