"""What is published of where a run comes from: its base model, its settings, and nothing of the machine."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from spyrl.config import Config, load_config, preset_names
from spyrl.evaluation.card import _code, _escaped
from spyrl.evaluation.origin import base_of, changed_settings, command, data_sets, public, public_settings
from spyrl.settings import plain

# The base model


def test_the_embedded_model_is_known_by_its_hub_id() -> None:
    base = base_of("smollm2")
    assert (base.name, base.hub_id) == ("HuggingFaceTB/SmolLM2-135M-Instruct",) * 2
    assert (base.license, base.language) == ({"license": "apache-2.0"}, ["en"])


def test_a_hub_model_of_which_nothing_is_known() -> None:
    base = base_of("owner/model-4B")
    assert (base.name, base.hub_id, dict(base.license), base.language) == ("owner/model-4B", "owner/model-4B", {}, None)
    assert base_of("owner/model-4B", license="mit").license == {"license": "mit"}


def test_a_local_folder_is_asked_for_its_card(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    base = base_of(str(folder))
    assert (base.name, base.hub_id, dict(base.license)) == ("mine", None, {})
    card = "---\nlicense: other\nlicense_name: gemma\nlicense_link: https://x.y/z\nlanguage: en\n---\n# Mine"
    (folder / "README.md").write_text(card)
    base = base_of(str(folder), "owner/mine")
    assert (base.name, base.hub_id, base.language) == ("owner/mine", "owner/mine", ["en"])
    assert base.license == {"license": "other", "license_name": "gemma", "license_link": "https://x.y/z"}
    assert base_of(str(folder), license="mit").license == {"license": "mit"}
    (folder / "README.md").write_text("---\n: [\n---\n")
    assert base_of(str(folder)).license == {}


def test_data_sets_are_those_on_the_hub(tmp_path: Path) -> None:
    def named(path: str) -> list[str]:
        return data_sets(load_config("writing-smollm2", [f"corpus.path={path}"]))

    assert named("euclaise/writingprompts") == ["euclaise/writingprompts"]
    assert named("hf://owner/name") == ["owner/name"]
    assert named("hf://datasets/owner/name/") == ["owner/name"]
    for local in ("bundled:writing", "generated:ledger", "notes/texts.jsonl", "./notes/texts", "/a/b", "~/notes"):
        assert named(local) == []


def test_a_folder_that_is_there_is_no_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my" / "texts").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert data_sets(load_config("writing-smollm2", ["corpus.path=my/texts"])) == []


# What of the settings


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/notes.jsonl", "notes.jsonl"),
        ("~/a b/notes", "a b/notes"),
        ("../models/x", "x"),
        ("data=/srv/data/x.jsonl, and (/tmp/y)", "data=x.jsonl, and (y)"),
        ("owner/name", "owner/name"),
        ("1/2 or and/or a / b", "1/2 or and/or a / b"),
        ("https://arxiv.org/abs/1", "https://arxiv.org/abs/1"),
        ("hf://owner/name", "hf://owner/name"),
    ],
)
def test_local_folders_are_left_out(text: str, shown: str) -> None:
    assert public(text) == shown


def test_hosts_and_the_runs_place_are_left_out() -> None:
    words = [
        "model.performer={path: x, server: 'http://10.0.0.7:8000/v1'}",
        "run.folder=/home/me/runs",
        "run.name=secret",
    ]
    shown = public_settings(load_config("writing-smollm2", [*words, "training.stages=detection", "run.log=wandb"]))
    assert shown["model"]["performer"]["server"] == "http://HOST/v1"
    assert shown["run"] == plain(Config().run) | {"checkpoint_every": 2, "keep": 1}


VALUES = {
    "training.lr": ["1.0e-5", "0.5"],
    "training.schedule": ["cosine"],
    "training.adam_betas": ["[0.8, 0.9]"],
    "model.lora.rank": ["4"],
    "model.lora.targets": ["[q_proj, v_proj]", "all-linear"],
    "model.template": ["{enable_thinking: false}"],
    "model.server": ["null"],
    "game.degradation.character": ["'#'", "'?'"],
    "game.degradation.fraction": ["0.25"],
    "corpus.limit": ["100"],
    "corpus.path": ["'it''s; $here.jsonl'", "bundled:math"],
    "task": ["math", "summarization"],
    "run.seed": ["7"],
}


@settings(max_examples=20)
@given(st.sampled_from(["writing-smollm2", "writing-qwen3-4b", "math-qwen3-4b"]), st.data())
def test_the_command_of_a_card_makes_the_same_settings(preset: str, data: st.DataObject) -> None:
    keys = data.draw(st.sets(st.sampled_from(sorted(VALUES))))
    words = [f"{key}={data.draw(st.sampled_from(VALUES[key]))}" for key in sorted(keys)]
    config = load_config(preset, words)
    changed = changed_settings(config, preset)
    assert changed is not None
    run, train, first, *again = shlex.split(command(config, preset, changed))
    assert (run, train, first) == ("spyrl", "train", preset)
    assert load_config(preset, again) == config


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_as_it_is_has_a_short_command(preset: str) -> None:
    config = load_config(preset)
    config = replace(config, run=replace(config.run, name="mine", folder="/x", keep=7))
    assert changed_settings(config, preset) == []
    assert command(config, preset, []) == f"spyrl train {preset}"


def test_a_file_of_the_users_has_no_command(tmp_path: Path) -> None:
    assert changed_settings(load_config("ledger"), str(tmp_path / "mine.yaml")) is None
    own = replace(load_config("writing-smollm2"), task=str(tmp_path / "gone.yaml"))
    assert changed_settings(own, "writing-smollm2") is None


# Texts in Markdown


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_escaped_texts_are_shown_as_they_are(text: str) -> None:
    html = MarkdownIt("commonmark", {"html": True}).render("x" + _escaped(text))
    expected = MarkdownIt("commonmark").render("```\nx" + " ".join(text.split()) + "\n```")
    assert (
        html.removeprefix("<p>").removesuffix("</p>\n")
        == expected.removeprefix("<pre><code>").split("\n</code>")[0].rstrip()
    )


@given(st.text("`ab *_<|", min_size=1))
def test_inline_code_holds_any_text(text: str) -> None:
    (token,) = (token for token in MarkdownIt().parseInline(_code(text))[0].children or [])
    assert token.type == "code_inline"
    assert token.content.strip() == " ".join(text.split()).strip()
