"""A task of one's own, in YAML or Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyrl.config import load_config
from spyrl.errors import UsageError
from spyrl.game import Deal, Document, Output
from spyrl.tasks import DetectionTurn, PerformingTurn, TextTask, load_task

RECIPES = """\
name: recipes
source: list of ingredients
product: recipe
instructions: |
  Write a recipe from these {{ ingredients }}.
criteria: ingredients that are used but not listed
marker: "### RECIPE"
ballot_opening: "The spy is "
ballot_closing: "."
defaults:
  corpus: {path: kitchen.jsonl, column: ingredients, min_words: 3}
  game:
    players: 4
    degradation: {kind: drop_sentences, fraction: 0.5}
performing_template: |
  {{ role }} {{ player }}/{{ players }} round {{ round }} {{ form }}: {{ instructions }}
  {{ source }}: {{ observation }}
  {% if said %}said: {{ said }}{% else %}nobody spoke{% endif %} -> {{ product }} after {{ marker }}
detecting_template: |
  {{ voter }} {{ role }} {{ self_vote }} {{ form }} of {{ players }}: {{ criteria }}
  {{ source }}: {{ observation }}
  {{ outputs }}
  {{ product }}? {{ instructions }}
"""
DEAL = Deal(0, 0, Document("d", "salt eggs"), 3, 2, "____ eggs", ((0, 4),))
OUTPUTS = (Output(1, 1, "boil"), Output(2, 1, None), Output(3, 1, "fry"))


def written(folder: Path, text: str, name: str = "task.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def problem_of(name: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_task(name)
    return str(caught.value)


def without(key: str) -> str:
    return "\n".join(line for line in RECIPES.splitlines() if not line.startswith(f"{key}:"))


@pytest.mark.parametrize("suffix", ["yaml", "yml"])
def test_a_task_in_yaml_with_templates_of_its_own(tmp_path: Path, suffix: str) -> None:
    task = load_task(written(tmp_path, RECIPES, f"task.{suffix}"))
    assert task.name == "recipes"
    (message,) = task.performing(PerformingTurn(DEAL, 2, 1, (), "marked"))
    assert message == {
        "role": "user",
        "content": "spy 2/3 round 1 marked: Write a recipe from these {{ ingredients }}.\n"
        "list of ingredients: ____ eggs\n"
        "nobody spoke -> recipe after ### RECIPE",
    }
    (message,) = task.performing(PerformingTurn(DEAL, 3, 1, OUTPUTS[:2], "boxed"))
    assert message["content"].endswith(
        "salt eggs\nsaid: [Player 1]\nboil\n\n[Player 2]\n(no recipe was handed in) -> recipe after ### RECIPE"
    )
    (message,) = task.detecting(DetectionTurn(DEAL, "salt eggs", OUTPUTS, None, "direct", False))
    assert message["content"] == (
        "None None False direct of 3: ingredients that are used but not listed\n"
        "list of ingredients: salt eggs\n"
        "[Player 1]\nboil\n\n[Player 2]\n(no recipe was handed in)\n\n[Player 3]\nfry\n"
        "recipe? Write a recipe from these {{ ingredients }}."
    )
    assert task.read("hm ### RECIPE boil", "marked") == "boil"
    assert task.read("=== OUTPUT === boil", "marked") is None
    assert task.ballot_opening + "3" + task.ballot_closing == "The spy is 3."


def test_only_five_keys_are_needed(tmp_path: Path) -> None:
    text = "name: t\nsource: note\nproduct: reply\ninstructions: Reply.\ncriteria: vague replies\n"
    task = load_task(written(tmp_path, text))
    assert task == TextTask("t", "note", "reply", "Reply.", "vague replies")
    (message,) = task.performing(PerformingTurn(DEAL, 1, 1, (), "whole"))
    assert "All of them are given the same note" in message["content"]
    assert "Answer with the reply and nothing else." in message["content"]


def test_the_defaults_of_a_task_file_reach_the_configuration(tmp_path: Path) -> None:
    name = written(tmp_path, RECIPES)
    config = load_config(overrides=[f"task={name}"])
    assert config.task == name
    assert (config.corpus.path, config.corpus.column, config.corpus.min_words) == ("kitchen.jsonl", "ingredients", 3)
    assert (config.game.degradation.kind, config.game.degradation.fraction) == ("drop_sentences", 0.5)
    assert load_config(overrides=[f"task={name}", "corpus.min_words=5"]).corpus.min_words == 5


def test_an_unknown_key_in_the_defaults_of_a_task_file(tmp_path: Path) -> None:
    name = written(tmp_path, RECIPES.replace("min_words", "min_wrods"))
    with pytest.raises(UsageError, match=r"task\.yaml: unknown key 'corpus\.min_wrods'; did you mean 'min_words'"):
        load_config(overrides=[f"task={name}"])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("instruction", "instructions"), ("perfoming_template", "performing_template"), ("default", "defaults")],
)
def test_an_unknown_key_names_the_nearest(tmp_path: Path, wrong: str, right: str) -> None:
    name = written(tmp_path, f"{RECIPES}{wrong}: x\n")
    assert problem_of(name) == f"{name}: unknown key {wrong!r}; did you mean {right!r}?"


@pytest.mark.parametrize("key", ["name", "source", "product", "criteria"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    name = written(tmp_path, without(key))
    assert problem_of(name) == f"{name}: {key} is missing"


def test_a_wrong_type_is_named(tmp_path: Path) -> None:
    name = written(tmp_path, without("source") + "\nsource: [a, b]\n")
    assert problem_of(name) == f"{name}: source should be a valid string, not ['a', 'b']"


@pytest.mark.parametrize("key", ["performing_template", "detecting_template"])
@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{{ role", 1),
        ("fine\n{% if role %}\nnever closed\n", 2),
        ("one\ntwo\n{% fi %}\n", 3),
        ("one\n{{ role|shout }}\n", 2),
    ],
)
def test_a_template_that_cannot_be_read_names_its_line(tmp_path: Path, key: str, template: str, line: int) -> None:
    indented = "".join(f"  {part}\n" for part in template.splitlines())
    text = "name: t\nsource: s\nproduct: p\ninstructions: i\ncriteria: c\n" + f"{key}: |\n{indented}"
    assert f"line {line} of {key}: " in problem_of(written(tmp_path, text))


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ observatoin }}", "'observatoin' is undefined"),
        ("{{ role.upper.nothing }}", "nothing"),
        ("{{ players + source }}", "unsupported operand"),
        ("{{ players // 0 }}", "by zero"),
        ("{{ source.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_the_users_to_mend(template: str, says: str) -> None:
    task = TextTask("t", "s", "p", "i", "c", performing_template=template, detecting_template=template)
    for render in (
        lambda: task.performing(PerformingTurn(DEAL, 1, 1, (), "whole")),
        lambda: task.detecting(DetectionTurn(DEAL, "salt eggs", OUTPUTS, 1, "direct", False)),
    ):
        with pytest.raises(UsageError, match=rf"task 't': a template cannot be rendered: .*{says}"):
            render()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: [unclosed\n", "line 2: not valid YAML"),
        ("name: t\n\tsource: s\n", "line 2: not valid YAML"),
        ("- a\n- b\n", "expected keys and values, found list"),
        ("", "name is missing"),
    ],
)
def test_a_file_that_is_no_mapping(tmp_path: Path, text: str, says: str) -> None:
    assert says in problem_of(written(tmp_path, text))


PYTHON_TASK = """\
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Shouting:
    name: str = "shouting"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    ballot_opening: str = "<"
    ballot_closing: str = ">"

    def performing(self, turn):
        return ({"role": "user", "content": turn.observation.upper()},)

    def detecting(self, turn):
        return ({"role": "user", "content": str(len(turn.outputs))},)

    def read(self, text, form):
        return text.upper() or None


TASK = Shouting()
"""


def test_a_task_in_python_may_be_a_dataclass(tmp_path: Path) -> None:
    task = load_task(written(tmp_path, PYTHON_TASK, "shouting.py"))
    assert task.name == "shouting"
    assert task.performing(PerformingTurn(DEAL, 2, 1, (), "whole"))[0]["content"] == "____ EGGS"
    assert task.detecting(DetectionTurn(DEAL, "salt eggs", OUTPUTS, None, "direct", False))[0]["content"] == "3"
    assert task.read("boil", "whole") == "BOIL"


def test_a_task_in_python_may_be_a_text_task(tmp_path: Path) -> None:
    text = "from spyrl.tasks import TextTask\nTASK = TextTask('t', 's', 'p', 'i', 'c')\n"
    assert load_task(written(tmp_path, text, "t.py")) == TextTask("t", "s", "p", "i", "c")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import no_such_module_at_all\n", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module"),
        ("TASK = (\n", "cannot be imported: SyntaxError"),
        ("1 / 0\n", "cannot be imported: ZeroDivisionError: division by zero"),
        ("task = 3\n", "does not hold a task: it defines no TASK"),
        ("TASK = None\n", "does not hold a task: it defines no TASK"),
        ("TASK = 'writing'\n", "its TASK has no name, defaults, ballot_opening, ballot_closing, performing"),
        (PYTHON_TASK.replace("def read", "def reads"), "its TASK has no read (see"),
        (PYTHON_TASK.replace("ballot_opening", "opening"), "its TASK has no ballot_opening (see"),
    ],
)
def test_a_python_file_that_holds_no_task(tmp_path: Path, text: str, says: str) -> None:
    name = written(tmp_path, text, "broken.py")
    problem = problem_of(name)
    assert problem.startswith(f"task file {name} ")
    assert says in problem


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("maths", "unknown task 'maths'; did you mean 'math'?"),
        ("Writing", "unknown task 'Writing'; did you mean 'writing'?"),
        (
            "xyz",
            "unknown task 'xyz'; there is ledger, math, summarization, writing (or a .yaml or .py file of your own)",
        ),
        ("", "unknown task ''; there is ledger"),
        ("tasks/mine.txt", "unknown task 'tasks/mine.txt'"),
    ],
)
def test_an_unknown_name(name: str, says: str) -> None:
    assert problem_of(name).startswith(says)


@pytest.mark.parametrize("name", ["missing.yaml", "missing.py", "folder/missing.yml"])
def test_a_file_that_is_not_there_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert problem_of(name) == f"task file {name} does not exist (looked in {(tmp_path / name).parent})"


@pytest.mark.parametrize("template", ["performing_template", "detecting_template"])
def test_a_variable_that_does_not_exist_is_found_when_the_task_is_loaded(tmp_path: Path, template: str) -> None:
    path = tmp_path / "task.yaml"
    text = "{% if role == 'spy' %}{{ doccument }}{% endif %}"
    path.write_text(
        f'name: n\nsource: s\nproduct: p\ninstructions: i\ncriteria: c\n{template}: "{text}"\n', encoding="utf-8"
    )
    with pytest.raises(UsageError, match="doccument"):
        load_task(str(path))


def test_an_empty_marker_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "task.yaml"
    path.write_text("name: n\nsource: s\nproduct: p\ninstructions: i\ncriteria: c\nmarker: ''\n", encoding="utf-8")
    with pytest.raises(UsageError, match="marker must not be empty"):
        load_task(str(path))
