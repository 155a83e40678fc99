"""Plans agree with CPU runs, read well, and say what makes a run fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.plan import CASES, SETTINGS, characters_model, checked, short_task
from benchmarks.texts import write_documents
from rich.cells import cell_len

from spyrl.cli import main
from spyrl.config import load_config, preset_names
from spyrl.errors import UsageError
from spyrl.planning.devices import GPUS, device
from spyrl.planning.plan import make_plan, remedies


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A run of two games on a model of a few layers whose answers are as long as they may be."""
    folder = tmp_path_factory.mktemp("planned")
    model = characters_model(folder / "model", layers=3, hidden=64, vocabulary=500)
    documents = write_documents(folder / "documents.jsonl", 2, 30)
    sizes = ("training.games=2", "game.max_tokens=20", "game.min_tokens=20", "game.detectors.max_tokens=10")
    return (f"task={short_task(folder)}", f"model.path={model}", f"corpus.path={documents}", *sizes, *SETTINGS)


@pytest.mark.parametrize("case", CASES)
def test_tokens_and_operations_are_those_of_a_run(settings: tuple[str, ...], tmp_path: Path, case: str) -> None:
    rows = checked(case, [*settings, *CASES[case]], tmp_path / "run", ("tokens", "operations"))
    assert len(rows) == 6
    assert [row for row in rows if row["holds"] != "yes"] == []


# The page


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_has_a_page_of_80_columns(
    preset: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["plan", preset, "--price", "2"]) == 0
    page = capsys.readouterr().out
    assert [line for line in page.splitlines() if cell_len(line) > 80] == []
    for word in ("parameters", "AdamW", "keys and values", "performing, read", "an iteration", "in all"):
        assert word in page
    assert "fits: " in page


@pytest.mark.parametrize("preset", ["writing-qwen3-4b-lora", "math-qwen3-4b-lora"])
@pytest.mark.parametrize("name", ["RTX 3090", "RTX 4090", "A10"])
def test_the_lora_presets_fit_in_24_gb(preset: str, name: str) -> None:
    plan = make_plan(load_config(preset), name)
    assert plan.memory.fits
    assert plan.memory.peak < 24e9
    assert plan.memory.held[1].bytes > 2 * 4.02e9  # the base in bfloat16, and the adapters


def test_writing_smollm2_fits_in_8_gb() -> None:
    assert make_plan(load_config("writing-smollm2"), "cpu").memory.peak < 8e9


def as_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["plan", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_as_json_and_the_cost(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "writing-qwen3-4b", "--gpu", "h100", "--gpus", "8", "--price", "2.5")
    assert found["device"]["count"] == 8
    assert found["cost"] == pytest.approx(2.5 * found["device_hours"])
    assert found["device_hours"] == pytest.approx(8 * found["hours"])
    assert found["hours"] == pytest.approx(found["seconds_an_iteration"] * 100 / 3600)
    held = found["memory"]["held"]
    assert held["weights (float32)"] == 4 * 4_022_468_096 / 8
    assert held["AdamW's moments (float32)"] == 2 * held["weights (float32)"]
    assert found["memory"]["peak"] == max(found["memory"]["peaks"].values())


def test_settings_after_options_count(capsys: pytest.CaptureFixture[str]) -> None:
    less = as_json(capsys, "writing-qwen3-4b-lora", "--gpu", "A10", "training.games=8")
    more = as_json(capsys, "writing-qwen3-4b-lora", "--gpu", "A10", "training.games=16")
    for one, other in zip(less["iteration"], more["iteration"], strict=True):
        if one["what"] == "write":
            assert other["tokens"] == 2 * one["tokens"]
        assert one["unshared_tokens"] is None or one["unshared_tokens"] >= one["tokens"]


def test_longer_answers_are_more_work(capsys: pytest.CaptureFixture[str]) -> None:
    short = as_json(capsys, "math-qwen3-4b-lora", "--output", "200", "--ballot", "100")
    long = as_json(capsys, "math-qwen3-4b-lora", "--output", "400", "--ballot", "100")
    written = [line["tokens"] for line in short["iteration"] if line["what"] == "write"]
    assert written == [32 * 5 * 200, 32 * 8 * 100]
    assert long["hours"] > short["hours"]


# What fits


def test_a_remedy_makes_it_fit() -> None:
    config = load_config("writing-qwen3-4b-lora", ["training.batch_tokens=65536"])
    plan = make_plan(config, "RTX 4090")
    assert not plan.memory.fits
    found = remedies(plan)
    assert any(remedy.words[0].startswith("training.batch_tokens=") for remedy in found)
    for remedy in found:
        key, _, value = remedy.words[0].partition("=")
        if "gpus" not in key:
            again = make_plan(
                load_config("writing-qwen3-4b-lora", ["training.batch_tokens=65536", f"{key}={value}"]), "A10"
            )
            assert again.memory.fits


def test_what_does_not_fit_is_told_with_its_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "writing-qwen3-4b", "--gpu", "RTX 4090"]) == 0
    page = capsys.readouterr().out
    assert "does not fit" in page
    assert "model.lora.rank=32" in page


def test_devices_are_found_however_they_are_spelled() -> None:
    assert device("rtx4090") == device("RTX 4090") == device("4090")
    assert device("A100-80GB").memory == 80e9
    assert all(each.source for each in GPUS)
    with pytest.raises(UsageError, match="H100"):
        device("V100")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("writing-smollm2", "--gpu", "TPU"), "not in the table"),
        (("writing-smollm2", "--gpu", "cpu", "--gpus", "2"), "--gpus"),
        (("writing-smollm2", "--price", "-1"), "--price"),
        (("writing-smollm2", "model.path=./nowhere"), "no such folder"),
        (("writing-smollm2", "other"), "one preset or file"),
        (("writing-qwen3-4b", "game.max_prompt_tokens=300"), "leaves"),
        (("writing-qwen3-4b", "model.server=http://localhost/v1"), "server"),
    ],
)
def test_bad_input_is_told(words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *words]) == 2
    assert told in capsys.readouterr().err
