"""A run's result as a folder to publish, loaded again by nothing but its card's own words."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from rich.console import Console
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import spyrl.evaluation.exporting as exporting
from spyrl.cli import main
from spyrl.config import config_of, load_config
from spyrl.evaluation.results import Evaluation, Score, report
from spyrl.evaluation.sheets import Sheet
from spyrl.policy import models
from spyrl.policy.models import resolve, side_files
from spyrl.runs.folder import RunFolder
from spyrl.settings import plain
from spyrl.training.train import train
from tiny import Onlooker, tiny_config

WORDS = ("training.iterations=2", "training.games=8", "training.evaluation.documents=6", "run.checkpoint_every=1")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ledger")
    assert main(["train", "ledger", *WORDS, f"run.folder={folder}"]) == 0
    return folder / "ledger"


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """A run of LoRA adapters for a model in a local folder."""
    folder = tmp_path_factory.mktemp("adapted")
    config = tiny_config(folder, tiny_model, "training.iterations=2", "model.lora.rank=2", "training.lr=0.3")
    run = RunFolder(folder / "runs" / "tiny")
    train(config, run, Onlooker(), preset=str(folder / "tiny.yaml"))
    return run.path


@pytest.fixture(autouse=True)
def pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take the longest: only tests that ask for ``drawn`` have them drawn."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(
            exporting, "training_figure", lambda _, __, paths: [each.write_bytes(b"") for each in paths]
        )
        monkeypatch.setattr(exporting, "curve_figure", lambda _, path: path.write_bytes(b""))


@pytest.fixture
def drawn() -> None:
    """Have pictures drawn."""


@pytest.fixture
def run(tmp_path: Path, trained: Path) -> RunFolder:
    """A copy of the trained run, to be changed."""
    return RunFolder(Path(shutil.copytree(trained, tmp_path / "runs" / "ledger")))


def exported(run: Path, folder: Path, *options: str) -> Path:
    assert main(["export", str(run), "--to", str(folder), *options]) == 0
    return folder


def card_of(folder: Path) -> ModelCard:
    return ModelCard.load(folder / "README.md")


def snippet(folder: Path) -> str:
    """The first example of the card."""
    return re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]


def run_without_spyrl(place: Path, *codes: str) -> list[str]:
    """What a Python in which `import spyrl` fails prints for each code, pasted as a user would."""
    process = "import sys, json; sys.modules['spyrl'] = None\n"
    process += "for code in json.loads(sys.argv[1]): exec(code, {}); print('\\0')\n"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {
        "CUDA_VISIBLE_DEVICES": ""
    }
    command = [sys.executable, "-I", "-c", process, json.dumps(codes)]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [printed.strip() for printed in done.stdout.split("\0")[:-1]]


def written_by(model: Any, tokenizer: Any, message: str, most: int) -> str:
    """The most likely answer."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": message}], add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    written = model.generate(**prompt, max_new_tokens=most)[0, prompt["input_ids"].shape[1] :]
    return str(tokenizer.decode(written, skip_special_tokens=True)).strip()


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(40, 80)[None]).logits.float()


# The folder


def test_the_folder_is_the_result_with_a_card(
    tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = exported(trained, tmp_path / "deep" / "my-ledger")
    base, result = resolve("bundled:ledger-0"), trained / "model"
    side = {path.name for path in side_files(base)}
    assert {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"} <= side
    for name in side:
        assert (folder / name).read_bytes() == (base / name).read_bytes()
    for name in ("model.safetensors", "config.json"):
        assert (folder / name).read_bytes() == (result / name).read_bytes()
    pictures = {"training.png", "training.svg", "held_out.png"}
    names = {path.name for path in folder.iterdir()}
    assert (
        names == side | {"model.safetensors", "config.json", "README.md", "spyrl.yaml", ".spyrl-export.json"} | pictures
    )
    assert list(folder.parent.iterdir()) == [folder]
    said = capsys.readouterr().out
    assert all(name in said for name in pictures)
    assert "The card has no evaluation yet" in said


def test_the_cards_examples_run_where_this_package_is_not(tmp_path: Path, trained: Path, adapted: Path) -> None:
    whole = snippet(exported(trained, tmp_path / "whole"))
    adapters = snippet(exported(adapted, tmp_path / "adapters"))
    merged = snippet(exported(adapted, tmp_path / "merged", "--merge"))
    assert "from peft import PeftModel" in adapters
    assert "peft" not in whole + merged
    assert "spyrl" not in whole + adapters + merged
    # The random model never ends by itself, so its examples are cut short.
    short = [each.replace("max_new_tokens=512", "max_new_tokens=24") for each in (adapters, merged)]
    printed = run_without_spyrl(tmp_path, whole, *short)
    model, tokenizer = (kind.from_pretrained(trained / "model") for kind in (AutoModelForCausalLM, AutoTokenizer))
    ledger = "civilian\nOtto: bell\nKai: coin\nXena: key\nTess: pen\nLena: rug\nJuno: vase"
    assert printed[0] == written_by(model, tokenizer, ledger, 512) != ""
    model, tokenizer = (kind.from_pretrained(adapted / "model") for kind in (AutoModelForCausalLM, AutoTokenizer))
    story = "Write a short story about the last keeper of a lighthouse."
    assert printed[1] == printed[2] == written_by(model, tokenizer, story, 24) != ""


def test_the_card_says_what_was_done(tmp_path: Path, trained: Path, drawn: None) -> None:
    card = card_of(exported(trained, tmp_path / "my-ledger"))
    data = card.data.to_dict()
    assert data["library_name"] == "transformers"
    assert data["pipeline_tag"] == "text-generation"
    assert data["license"] == "apache-2.0"
    assert {"spyrl", "self-play"} <= set(data["tags"])
    assert "model-index" not in data
    assert "base_model" not in data  # the bundled model is not on the Hub
    text = card.text
    assert "| supervision | none: the reward comes from the game's rules |" in text
    assert "| iterations | 2 (2 of detection), 8 games each |" in text
    assert "cores of" in text
    assert "spyrl train ledger training.iterations=2 training.games=8 training.evaluation.documents=6\n" in text
    assert "| `training.games` | `64` | `8` |" in text
    assert "arXiv preprint arXiv:2607.23802" in text
    assert "None was made of this model." in text
    assert "| quality of the most likely output | 0." in text
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (tmp_path / "my-ledger" / picture).stat().st_size > 5000
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "{{" not in re.sub(r"(?s)<code.*?</code>", "", html)
    assert len(re.findall("<h1>", html)) == 1


def test_the_settings_of_the_card_train_again(tmp_path: Path, trained: Path) -> None:
    folder = exported(trained, tmp_path / "my-ledger")
    saved, _ = RunFolder(trained).read_config()
    config = config_of(saved, "saved")
    again = load_config(str(folder / "spyrl.yaml"))
    assert {**plain(again), "run": None} == {**plain(config), "run": None}
    assert str(trained.parent) not in (folder / "spyrl.yaml").read_text(encoding="utf-8")


def test_an_export_is_the_same_each_time(tmp_path: Path, trained: Path, drawn: None) -> None:
    one = exported(trained, tmp_path / "a" / "model")
    other = exported(trained, tmp_path / "b" / "model")
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes(), path.name


def test_a_run_without_held_out_measurements_has_its_plot_too(tmp_path: Path, adapted: Path, drawn: None) -> None:
    folder = exported(adapted, tmp_path / "tiny", "--merge")
    assert (folder / "training.png").is_file()
    assert not (folder / "held_out.png").exists()
    assert "On unseen documents" not in (folder / "README.md").read_text(encoding="utf-8")


# Adapters


def test_adapters_stay_adapters(tmp_path: Path, adapted: Path, tiny_model: Path) -> None:
    folder = exported(adapted, tmp_path / "tiny")
    card = card_of(folder)
    assert card.data.library_name == "peft"
    assert "lora" in card.data.tags
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {path.name for path in folder.iterdir()}
    assert not (folder / "model.safetensors").exists()
    for path in side_files(tiny_model):
        assert (folder / path.name).read_bytes() == path.read_bytes()


def test_merged_adapters_are_a_plain_model(tmp_path: Path, adapted: Path, tiny_model: Path) -> None:
    folder = exported(adapted, tmp_path / "merged", "--merge")
    assert not list(folder.glob("adapter_*"))
    for path in side_files(tiny_model):
        assert (folder / path.name).read_bytes() == path.read_bytes()
    assert (folder / "config.json").read_bytes() == (tiny_model / "config.json").read_bytes()
    assert load_file(folder / "model.safetensors").keys() == load_file(tiny_model / "model.safetensors").keys()
    merged = logits(AutoModelForCausalLM.from_pretrained(folder))
    torch.testing.assert_close(
        merged, logits(AutoModelForCausalLM.from_pretrained(adapted / "model")), atol=1e-4, rtol=0
    )
    assert (merged - logits(AutoModelForCausalLM.from_pretrained(tiny_model))).abs().max() > 1e-2
    card = card_of(folder)
    assert card.data.library_name == "transformers"
    assert "LoRA of rank 2" in card.text


def test_adapters_name_their_base_by_its_hub_id(tmp_path: Path, adapted: Path) -> None:
    folder = exported(adapted, tmp_path / "tiny", "--base-model", "owner/base-1B", "--license", "mit")
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == "owner/base-1B"
    data = card_of(folder).data.to_dict()
    assert (data["base_model"], data["base_model_relation"], data["license"]) == ("owner/base-1B", "adapter", "mit")
    assert 'from_pretrained("owner/base-1B"' in snippet(folder)
    assert "enable_lora=True, max_lora_rank=8" in (folder / "README.md").read_text(encoding="utf-8")


def test_no_local_folder_is_told(tmp_path: Path, adapted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = exported(adapted, tmp_path / "tiny", "--merge")
    written = "".join((folder / name).read_text(encoding="utf-8") for name in ("README.md", "spyrl.yaml"))
    assert "corpus.jsonl" in written
    for place in (adapted.parent, adapted.parent.parent, tmp_path):
        assert str(place) not in written
    assert "license" not in card_of(folder).data.to_dict()  # not known, so not named
    assert "names no licence" in capsys.readouterr().out


def test_merging_where_there_is_nothing_to_merge_says_so(
    tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(trained, tmp_path / "whole", "--merge")
    assert "There was nothing to merge" in capsys.readouterr().out


# Evaluations


def evaluate(run: RunFolder, name: str, **changes: Any) -> None:
    found: dict[str, Any] = {
        "kind": "math",
        "title": "Accuracy on mathematics benchmarks",
        "model": "ledger",
        "against": "base",
        "settings": {"data": "/home/me/secret/gsm8k_test.jsonl", "samples": 1, "server": None},
        "sheets": (
            Sheet("accuracy, %", ("benchmark", "base", "trained"), (("GSM8K | a*b", "50.0 ±9.8", "60.0 ±9.6"),)),
        ),
        "scores": (
            Score("GSM8K", "accuracy", 60.0, 50.4, 69.6, 100, 50.0),
            Score("AIME 24", "pass@4", 10.0, None, None, 30),
        ),
        "notes": ("2 answers could not be read.",),
    }
    report(Console(quiet=True), Evaluation(**{**found, **changes}), run.evaluations / name, "spyrl eval math")


def test_every_evaluation_is_in_the_card_and_its_metadata(tmp_path: Path, run: RunFolder) -> None:
    evaluate(run, "math")
    nan = Score("ledgers", "Spearman ρ", float("nan"), None, None, 0)
    evaluate(
        run, "votes", kind="alignment", title="Do votes <b>track</b> quality? ../x/runs/me", scores=(nan,), notes=()
    )
    folder = exported(run.path, tmp_path / "my-ledger")
    card = card_of(folder)
    first, second = card.data.eval_results
    assert (first.dataset_name, first.dataset_type, first.metric_type, first.metric_value) == (
        "GSM8K",
        "GSM8K",
        "accuracy",
        60.0,
    )
    assert first.metric_args == {"rows": 100, "interval_95": [50.4, 69.6], "base_model": 50.0}
    assert (second.dataset_type, second.metric_name, second.metric_args) == ("AIME-24", "pass@4", {"rows": 30})
    for result in card.data.to_dict()["model-index"][0]["results"]:
        assert re.fullmatch(r"(?:[\w-]+/)?[\w.-]+", result["dataset"]["type"])  # what the Hub asks for
    html = MarkdownIt("commonmark").enable("table").render(card.text)
    assert "<td>GSM8K | a*b</td>\n<td>50.0 ±9.8</td>\n<td>60.0 ±9.6</td>" in html
    assert "2 answers could not be read." in html
    assert "Do votes &lt;b&gt;track&lt;/b&gt; quality? me</h3>" in html
    assert "<code>gsm8k_test.jsonl</code>" in html
    assert "/home/me" not in card.content


def test_an_evaluation_of_an_earlier_result_is_pointed_out(
    tmp_path: Path, run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(run, "math")
    evaluate(run, "rouge")
    os.utime(run.evaluations / "math" / "results.json", (1, 1))
    exported(run.path, tmp_path / "my-ledger")
    said = capsys.readouterr().out
    assert "Evaluation math is older than the model" in said
    assert "rouge is older" not in said


# Runs that cannot be exported


def test_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path), "--to", str(tmp_path / "x")]) == 2
    assert f"{tmp_path} is no run: it has no config.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("earlier", [False, True])
def test_an_unfinished_run_says_how_to_end_it(
    tmp_path: Path, run: RunFolder, earlier: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    text = run.config_path.read_text(encoding="utf-8")
    run.config_path.write_text(text.replace("iterations: 2", "iterations: 5"), encoding="utf-8")
    if not earlier:
        shutil.rmtree(run.model)
    assert main(["export", str(run.path), "--to", str(tmp_path / "x")]) == 2
    said = capsys.readouterr().err
    assert "has no result yet: 2 of 5 iterations are done" in said
    assert ("is of an earlier, shorter one" in said) == earlier
    assert not (tmp_path / "x").exists()
    command = said.split("newest checkpoint is: spyrl ")[1].split()
    assert main(command) == 0
    exported(run.path, tmp_path / "x")


# Where it may be written


def test_an_earlier_export_is_replaced(tmp_path: Path, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    folder = exported(run.path, tmp_path / "x")
    evaluate(run, "math")
    (folder / "held_out.png").unlink()
    exported(run.path, folder)
    assert "in place of an earlier export" in capsys.readouterr().out
    assert "GSM8K" in (folder / "README.md").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "x"]
    (tmp_path / "empty").mkdir()
    exported(run.path, tmp_path / "empty")


def other_files(folder: Path) -> None:
    (folder / ".spyrl-export.json").unlink()


def a_file_of_mine(folder: Path) -> None:
    (folder / "gguf").mkdir()
    (folder / "gguf" / "mine.gguf").write_text("x")


def a_changed_card(folder: Path) -> None:
    with (folder / "README.md").open("a") as file:
        file.write("Thanks to everyone.\n")


def a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("x")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (other_files, "is not empty and is no earlier export"),
        (a_file_of_mine, r"with other files in it \(gguf/mine.gguf\)"),
        (a_changed_card, r"README.md was changed since it was exported and would be lost"),
        (a_file, "is a file; choose another --to"),
    ],
)
def test_nothing_of_the_users_is_written_over(
    tmp_path: Path, trained: Path, change: Callable[[Path], None], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = exported(trained, tmp_path / "x")
    change(folder)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert main(["export", str(trained), "--to", str(folder)]) == 2
    assert re.search(says, capsys.readouterr().err)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_run_itself_is_not_written_over(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(trained), "--to", str(trained / "model")]) == 2
    assert "is not empty and is no earlier export" in capsys.readouterr().err


@pytest.mark.parametrize("where", [(exporting, "training_figure"), (models, "side_files")])
def test_a_full_disk_leaves_the_earlier_export(
    tmp_path: Path,
    adapted: Path,
    where: tuple[Any, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = exported(adapted, tmp_path / "x")

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*where, full)
    assert main(["export", str(adapted), "--to", str(folder), "--merge"]) == 1
    said = capsys.readouterr().err
    assert "No space left on device; make room" in said
    assert "--resume" not in said
    assert (folder / "README.md").is_file()
    assert list(tmp_path.iterdir()) == [folder]


# The Hub


class Hub:
    """Stands in for `huggingface_hub.HfApi`."""

    def __init__(self, private: bool = False, error: Exception | None = None) -> None:
        self.private, self.error = private, error
        self.created: list[tuple[str, bool]] = []
        self.uploads: list[dict[str, Any]] = []

    def __call__(self) -> Hub:
        return self

    def create_repo(self, repo: str, *, private: bool, exist_ok: bool) -> huggingface_hub.RepoUrl:
        if self.error:
            raise self.error
        self.created.append((repo, private))
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{repo}")

    def model_info(self, repo: str) -> Any:
        return type("Info", (), {"private": self.private})

    def upload_folder(self, **options: Any) -> None:
        self.uploads.append(options)


def test_a_pushed_folder_is_uploaded_whole(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = Hub(private=True)
    monkeypatch.setattr(huggingface_hub, "HfApi", hub)
    folder = exported(trained, tmp_path / "x", "--push", "me/my-ledger", "--private")
    assert hub.created == [("me/my-ledger", True)]
    (upload,) = hub.uploads
    assert (upload["repo_id"], upload["folder_path"]) == ("me/my-ledger", folder)
    assert set(upload["allow_patterns"]) == {path.name for path in folder.iterdir()} - {".spyrl-export.json"}
    assert 'from_pretrained("me/my-ledger"' in snippet(folder)
    assert card_of(folder).text.startswith("\n# my-ledger\n")
    said = capsys.readouterr().out
    assert "uploading these 11 files" in said
    assert "https://huggingface.co/me/my-ledger" in said


def test_without_a_network_it_says_what_it_would_upload(
    tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """HF_HUB_OFFLINE is set in all tests."""
    folder = tmp_path / "x"
    assert main(["export", str(trained), "--to", str(folder), "--push", "me/my-ledger"]) == 1
    said = capsys.readouterr()
    for path in folder.glob("[!.]*"):
        assert re.search(rf"^  {re.escape(path.name)} +\d+(\.\d)? k?B$", said.out, re.MULTILINE)
    assert re.search(r"uploading these 11 files \(\d+\.\d kB\) to me/my-ledger", said.out)
    assert "nothing was uploaded, the Hub cannot be used: " in said.err
    assert f"hf upload me/my-ledger {folder}" in said.err
    assert (folder / "model.safetensors").is_file()


def test_what_was_meant_to_be_private_does_not_go_public(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = Hub(private=False)
    monkeypatch.setattr(huggingface_hub, "HfApi", hub)
    assert main(["export", str(trained), "--to", str(tmp_path / "x"), "--push", "me/open", "--private"]) == 1
    assert "me/open exists and is public" in capsys.readouterr().err
    assert hub.uploads == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--private"], "--private is of the repository that --push names"),
        (["--push", "a/b/c"], "--push 'a/b/c' is no repository of the Hub"),
        (["--base-model", "../base"], "--base-model '../base' is no repository of the Hub"),
        (["--push", "me/tiny"], "LoRA adapters for tiny-qwen3, a local folder that others cannot load"),
    ],
)
def test_bad_options_are_told_before_anything_is_written(
    tmp_path: Path, adapted: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(adapted), "--to", str(tmp_path / "x"), *options]) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_hardware_is_recorded_and_no_setting(trained: Path) -> None:
    data = yaml.safe_load((trained / "config.yaml").read_text(encoding="utf-8"))
    assert data["hardware"]["cores"] >= 1
    assert data["hardware"]["processor"]
    saved, _ = RunFolder(trained).read_config()
    assert "hardware" not in saved
