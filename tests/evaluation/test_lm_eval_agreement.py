"""Generations scored here and by lm-evaluation-harness' own tasks: https://github.com/EleutherAI/lm-evaluation-harness."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from spyrl.cli import main
from spyrl.errors import SpyRLError
from spyrl.evaluation.accuracy import check
from spyrl.evaluation.answers import Answer
from spyrl.evaluation.benchmarks import BENCHMARKS, Item, item_of, items_of
from spyrl.evaluation.rows import Row

lm_eval = pytest.importorskip("lm_eval", reason="pip install lm-eval")

GSM8K = [
    ("She sells 9 eggs.\n#### 18", "Step by step: 16 - 7 = 9, and 9 * 2 = 18. \\boxed{18}"),
    ("#### 18", "The answer is $18."),
    ("#### 18", "#### 18"),
    ("#### 18", "It is 17."),
    ("#### 18", "So \\boxed{-18}"),
    ("#### 70000", "a profit of \\boxed{70,000}"),
    ("#### 70000", "a profit of $70,000."),
    ("#### 1,250", "That is 1250 metres"),
    ("#### 5", "First 5, then 7, so 12"),
    ("#### 5", "I cannot say"),
    ("#### 3", ""),
]
MATH = [
    (r"\frac{14}{3}", r"so \boxed{\dfrac{14}{3}}", r"hence $\boxed{14/3}$", r"it is \boxed{\frac{13}{3}}"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"\boxed{(3, \frac{\pi}{2})}", r"\boxed{(3, \pi)}"),
    (r"[0,1)", r"\boxed{[0, 1)}", r"\boxed{(0,1)}"),
    (r"2\sqrt{2}", r"\boxed{\sqrt{8}}", r"\boxed{2\sqrt{3}}"),
    (r"p - q", r"\boxed{p-q}", r"\boxed{q-p}"),
    (r"10080", r"\boxed{10,\!080}", r"\boxed{10{,}080}", r"\boxed{1080}"),
    (r"-\frac{1}{2}", r"\boxed{-0.5}", r"\boxed{0.5}"),
    (r"(x+1)^2", r"\boxed{x^2+2x+1}", r"\boxed{x^2+1}"),
    (r"90^\circ", r"\boxed{90}", r"\boxed{90^\circ}", r"\boxed{45}"),
    (r"1,2,3", r"\boxed{3, 2, 1}", r"\boxed{1,2}"),
    (r"3+4i", r"\boxed{4i+3}", r"\boxed{3-4i}"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\boxed{\begin{pmatrix} 1 \\ 2 \end{pmatrix}}"),
    ("025", r"\boxed{25}", r"\boxed{52}"),
]


def gsm8k_task(rows: list[dict[str, str]], folder: Path) -> Any:
    """Theirs, on our rows."""
    from lm_eval.api.task import ConfigurableTask

    path = folder / "gsm8k.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    source = Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml"
    config = yaml.safe_load(source.read_text(encoding="utf-8"))
    config = {key: value for key, value in config.items() if key not in ("tag", "dataset_name")}
    files = {"train": str(path), "test": str(path)}
    local = {"dataset_path": "json", "dataset_kwargs": {"data_files": files, "cache_dir": str(folder / "cache")}}
    return ConfigurableTask(config={**config, **local, "num_fewshot": 0})


def theirs_on_gsm8k(rows: list[dict[str, str]], texts: list[str], folder: Path) -> list[bool]:
    """Their flexible extraction of each text, as they score it."""
    from lm_eval.api.instance import Instance

    task = gsm8k_task(rows, folder)
    docs = list(task.test_docs())
    task._instances = [
        Instance("generate_until", doc, ("", {}), number, resps=[text])
        for number, (doc, text) in enumerate(zip(docs, texts, strict=True))
    ]
    task.apply_filters()
    return [
        bool(task.process_results(each.doc, [each.filtered_resps["flexible-extract"]])["exact_match"])
        for each in task._instances
    ]


def ours(items: list[Item], texts: list[str]) -> list[bool]:
    return [check(item, Answer(item.id, 0, text, 1, "stop")).right for item, text in zip(items, texts, strict=True)]


def test_gsm8k(tmp_path: Path) -> None:
    rows = [{"question": f"Question {number}", "answer": answer} for number, (answer, _) in enumerate(GSM8K)]
    texts = [text for _, text in GSM8K]
    items = [item_of(Row("row", row), str(number), 0) for number, row in enumerate(rows)]
    found = ours(items, texts)
    assert found == theirs_on_gsm8k(rows, texts, tmp_path)
    assert found == [True, True, True, False, False, True, True, True, False, False, False]


def test_math_by_their_use_of_math_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    # Their module refuses another version of antlr4 than 4.11, which only the metric that is not used here needs.
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "4.11" if name.startswith("antlr4") else version(name))
    from lm_eval.tasks.minerva_math import utils

    monkeypatch.setattr(utils, "is_equiv", lambda one, other: False)
    for truth, *responses in MATH:
        for response in responses:
            doc = {"answer": truth, "solution": f"It is $\\boxed{{{truth}}}$."}
            theirs = bool(utils.process_results(doc, [response])["math_verify"])
            assert ours([Item("1", "Q", (truth,))], [response]) == [theirs], (truth, response)


def test_what_their_string_comparison_accepts_is_right_here() -> None:
    from lm_eval.tasks.aime import utils

    accepted = 0
    for truth, *responses in MATH:
        for response in responses:
            if utils.process_results({"answer": truth}, [response])["exact_match"]:
                accepted += 1
                assert ours([Item("1", "Q", (truth,))], [response]) == [True], (truth, response)
    assert accepted >= 6


@pytest.mark.slow
def test_a_small_models_generations(tmp_path: Path) -> None:
    from spyrl.policy.models import embedded_model

    try:
        embedded_model()
    except SpyRLError as error:
        pytest.skip(f"the embedded model cannot be had here: {error}")
    rows = [
        {"question": f"Tom has {n} apples and buys {n + 1} more. How many has he now?", "answer": f"#### {2 * n + 1}"}
        for n in range(2, 14)
    ]
    path = tmp_path / "apples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = ["--benchmark", "gsm8k", "--data", str(path), "--max-new-tokens", "80", "--to", str(tmp_path / "out")]
    assert main(["eval", "math", "smollm2", "--device", "cpu", *words]) == 0
    kept = (tmp_path / "out" / "answers-gsm8k.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    texts = [json.loads(line)["text"] for line in kept]
    found = ours(items_of(BENCHMARKS[0], str(path), None, 0), texts)
    assert found == theirs_on_gsm8k(rows, texts, tmp_path)
    assert any(found)
