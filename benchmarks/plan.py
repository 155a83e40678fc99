"""What `spyrl plan` says against what CPU runs do: tokens, floating-point operations and peak memory.

Runs are whole iterations of a Llama with random weights, whose tokens are single characters so that every answer can be
read back, on made-up documents. Operations are counted by torch's FlopCounterMode, with attention in its plain form
(it does not count the CPU's fused one). Peak memory is that of a process of its own over two iterations, above what its
libraries take. The plan is told the mean lengths of the run's answers. Asked for: tokens within 2 %, operations within
5 %, memory within 15 %.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders
from tokenizers import models as token_models
from tokenizers.pre_tokenizers import Split
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.measuring import Row, peak_above
from benchmarks.playing import Silent
from benchmarks.texts import write_documents
from spyrl.config import Config, load_config
from spyrl.planning.devices import this_cpu
from spyrl.planning.memory import program_bytes
from spyrl.planning.plan import Plan, make_plan
from spyrl.runs.folder import RunFolder
from spyrl.training.iteration import Setup, run_iteration
from spyrl.training.state import State
from spyrl.training.train import prepare

CASES: dict[str, list[str]] = {
    "detection": ["training.stages=detection", "training.batch_tokens=4096"],
    "performing": ["training.stages=performing", "training.batch_tokens=4096"],
    "direct ballots": ["training.stages=detection", "game.detectors.answer=direct"],
    "joint, mini-batches": ["training.stages=joint", "training.minibatches=2", "training.batch_tokens=4096"],
    "checkpointing": [
        "training.stages=performing", "training.gradient_checkpointing=true", "training.batch_tokens=4096",
    ],
    "lora": ["training.stages=performing", "model.lora.rank=8", "training.batch_tokens=4096"],
    "lora, checkpointing": [
        "training.stages=detection",
        "model.lora.rank=8",
        "training.gradient_checkpointing=true",
        "training.batch_tokens=4096",
    ],
    # All rows in one pass, so that they differ in length: equal ones would do without a mask.
    "padded rows": ["training.stages=detection", "training.packed=false", "training.batch_tokens=16384"],
}  # fmt: skip
TOLERANCES = {"tokens": 0.02, "operations": 0.05, "memory": 0.15}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--layers", type=int, default=4, metavar="N", help="layers of the model (default 4)")
    parser.add_argument("--hidden", type=int, default=256, metavar="N", help="its hidden size (default 256)")
    parser.add_argument("--vocabulary", type=int, default=16000, metavar="N", help="its tokens (default 16000)")
    parser.add_argument("--games", type=int, default=2, metavar="N", help="games an iteration (default 2)")
    parser.add_argument("--length", type=int, default=100, metavar="WORDS", help="words a document (default 100)")
    parser.add_argument("--written", type=int, default=60, metavar="TOKENS", help="tokens an output (default 60)")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="default: all")
    parser.add_argument("--only", nargs="+", choices=list(TOLERANCES), default=list(TOLERANCES), help="default: all")


def run(options: argparse.Namespace) -> list[Row]:
    """Check every case."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        model = characters_model(Path(scratch) / "model", options.layers, options.hidden, options.vocabulary)
        documents = write_documents(Path(scratch) / "documents.jsonl", options.games, options.length)
        task = short_task(Path(scratch))
        for name in options.cases:
            words = [
                f"task={task}",
                f"model.path={model}",
                f"corpus.path={documents}",
                f"training.games={options.games}",
                f"game.max_tokens={options.written}",
                f"game.min_tokens={options.written}",
                f"game.detectors.max_tokens={options.written // 2}",
                *SETTINGS,
                *CASES[name],
            ]
            rows += checked(name, words, Path(scratch) / name.replace(" ", "-"), options.only)
    return rows


SETTINGS = (
    "corpus.column=text",
    "model.device=cpu",
    "game.detectors.answer=reasoned",
    "game.max_prompt_tokens=8000",
    "training.lr=1e-12",
)


def checked(name: str, words: Sequence[str], folder: Path, only: Sequence[str] = tuple(TOLERANCES)) -> list[Row]:
    """What a run of these settings does against what its plan says."""
    config = load_config("writing-smollm2", list(words))
    limits = Found(config.game.max_tokens, config.game.detectors.max_tokens, {}, {})
    found = limits if list(only) == ["memory"] else played(config, folder)
    plan = make_plan(config, "cpu", output=found.output, ballot=found.ballot)
    rows: list[Row] = []
    if "tokens" in only:
        rows += [
            _row(name, "tokens", phase, planned_tokens(plan)[phase], found.tokens[phase])
            for phase in ("perform", "detect", "update")
        ]
    if "operations" in only:
        rows += [
            _row(name, "operations", phase, planned_operations(plan)[phase], found.operations[phase])
            for phase in ("perform", "detect", "update")
        ]
    if "memory" in only:
        # Else glibc keeps what tensors below 32 MB were in, which small models are made of.
        os.environ["MALLOC_MMAP_THRESHOLD_"] = str(2**18)
        measured = peak_above(_two_iterations, list(words), str(folder)) * 1e6
        rows.append(_row(name, "memory", "peak", plan.memory.peak - program_bytes(this_cpu()), measured))
    return rows


def _row(case: str, what: str, phase: str, planned: float, measured: float) -> Row:
    ratio = planned / measured if measured else float(planned == measured)
    holds = abs(ratio - 1) <= TOLERANCES[what]
    return {"case": case, "what": what, "of": phase, "planned": float(planned), "measured": float(measured),
            "ratio": round(ratio, 4), "holds": "yes" if holds else "no"}  # fmt: skip


def planned_tokens(plan: Plan) -> dict[str, float]:
    """Tokens that the trained model is given, by the iteration's phases."""
    own_reference = bool(plan.shape.adapters) and plan.config.training.kl > 0
    found = dict.fromkeys(("perform", "detect", "update"), 0.0)
    for line in plan.lines:
        phase = {"performing": "perform", "detection": "detect", "learning": "update"}[line.stage]
        passes = 1.0
        if line.what == "write":  # of an answer's last token nothing follows
            found[phase] -= answers(plan)[phase]
        if phase == "update":
            passes += own_reference
        found[phase] += line.tokens * passes
    return found


def answers(plan: Plan) -> dict[str, float]:
    """Answers that an iteration writes, by phase; a ballot in the full view."""
    game, games = plan.config.game, plan.config.training.games
    return {"perform": games * game.players * game.rounds, "detect": games * game.detectors.ballots}


def planned_operations(plan: Plan) -> dict[str, float]:
    """Operations by the iteration's phases."""
    found = dict.fromkeys(("perform", "detect", "update"), 0.0)
    for line in plan.lines:
        found[{"performing": "perform", "detection": "detect", "learning": "update"}[line.stage]] += line.flops
    return found


@dataclass(frozen=True)
class Found:
    """What a run did: mean answer lengths, and tokens and operations by phase."""

    output: int
    ballot: int
    tokens: dict[str, float]
    operations: dict[str, float]


class _Counting(Silent):
    """Knows the phase under way."""

    now = ""

    def phase(self, name: str) -> None:
        """A phase begins."""
        self.now = name


class _Nowhere:
    """In place of the tracker of modules, which fails where inputs are made to require gradients in inference mode."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...


def played(config: Config, folder: Path) -> Found:
    """One iteration, counted."""
    watcher = _Counting()
    made = _setup(config, folder, watcher)
    tokens: dict[str, float] = {}
    operations: dict[str, float] = {}

    def note(module: Any, arguments: Any, inputs: dict[str, Any]) -> None:
        tokens[watcher.now] = tokens.get(watcher.now, 0.0) + inputs["input_ids"].numel()

    hook = made.learner.loaded.model.register_forward_pre_hook(note, with_kwargs=True)
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = _Nowhere()  # type: ignore[assignment]
    before, phase = 0, watcher.phase

    def next_phase(name: str) -> None:
        nonlocal before
        total = counter.get_total_flops()
        operations[watcher.now] = operations.get(watcher.now, 0.0) + total - before
        before = total
        phase(name)

    watcher.phase = next_phase  # type: ignore[method-assign]
    with sdpa_kernel(SDPBackend.MATH), counter:
        _, metrics = run_iteration(made, State())
    hook.remove()
    assert metrics["games/played"] == config.training.games, metrics
    lengths = [metrics[key] for key in ("length/spy", "length/civilian", "length/detector")]
    players = config.game.players
    output = (lengths[0] + (players - 1) * lengths[1]) / players
    return Found(round(output), max(round(lengths[2]), 1), tokens, operations)


def _setup(config: Config, folder: Path, watcher: Silent) -> Setup:
    run = RunFolder(folder)
    if not run.path.exists():
        run.path.parent.mkdir(parents=True, exist_ok=True)
        run.create()
    return prepare(config, run, watcher)


def _two_iterations(words: list[str], folder: str) -> Callable[[], None]:
    """Two iterations, after one with the smallest of models, by which all libraries are there."""
    small = characters_model(Path(folder) / "smallest", layers=1, hidden=16, vocabulary=200)
    _iterations(
        [*words, f"model.path={small}", "training.games=1", "game.max_tokens=2", "game.min_tokens=2"], folder, 1
    )
    return lambda: _iterations(words, folder, 2)


def _iterations(words: list[str], folder: str, count: int) -> None:
    made = _setup(load_config("writing-smollm2", words), Path(folder), Silent())
    state = State()
    for _ in range(count):
        state, _ = run_iteration(made, state)


def short_task(folder: Path) -> Path:
    """A task of few words: where a token is a character, the rules would be most of a prompt."""
    path = folder / "short.yaml"
    path.write_text(_TASK, encoding="utf-8")
    return path


_TASK = """\
name: short
source: text
product: line
instructions: Go on.
criteria: Any.
performing_template: "{{ observation }} {{ said }} {{ role }}"
detecting_template: "{{ observation }} {{ outputs }} {{ voter }} {{ form }}"
"""


def characters_model(folder: Path, layers: int, hidden: int, vocabulary: int) -> Path:
    """A Llama with random weights whose tokens are single characters: what it writes is read back as it was written."""
    plain = [chr(code) for code in (9, 10, *range(32, 127))]
    others = [chr(code) for code in (*range(0x4E00, 0xA000), *range(0xAC00, 0xD7A4))]
    tokens = ["<end>", "<unk>", *plain, *others][:vocabulary]
    tokenizer = Tokenizer(token_models.WordLevel({token: at for at, token in enumerate(tokens)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    wrapped.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokens), hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
            num_attention_heads=8, num_key_value_heads=2, head_dim=hidden // 8, max_position_embeddings=16384,
            tie_word_embeddings=True, eos_token_id=0, pad_token_id=0, bos_token_id=None,
        )
    )  # fmt: skip
    model.generation_config.eos_token_id = 0
    model.save_pretrained(folder)
    wrapped.save_pretrained(folder)
    return folder
