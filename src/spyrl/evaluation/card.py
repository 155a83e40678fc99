"""The model card of a run's result, in the Hub's format."""

from __future__ import annotations

import importlib.resources
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData

import spyrl
from spyrl.config import Config
from spyrl.evaluation.example_game import HOW_CHOSEN, game_markdown
from spyrl.evaluation.origin import Base, Changes, changed_settings, command, data_sets, public, public_settings
from spyrl.evaluation.results import Evaluation, slug
from spyrl.evaluation.sheets import Sheet, markdown_table
from spyrl.figures import series
from spyrl.policy.models import BUNDLED_PREFIX

SETTINGS_FILE = "spyrl.yaml"
"""All settings of the run, beside the card."""

_TAGS = ["spyrl", "rlsvr", "self-play", "reinforcement-learning"]
_PURPOSES = {
    "writing": "creative writing",
    "math": "designing and solving maths problems grounded in documents",
    "summarization": "summarization",
    "ledger": "restating ledgers, a small made-up world",
}
_PROMPTS = {
    "math": "Design a hard problem about tilings of a 2 × n board, and solve it.",
    "summarization": "Summarise in one sentence: the committee met twice, heard nine witnesses and decided nothing.",
}
_PROMPT = "Write a short story about the last keeper of a lighthouse."
_LEDGER = "Otto: bell\nKai: coin\nXena: key\nTess: pen\nLena: rug\nJuno: vase"
_MEASURED = {
    "quality/greedy": "quality of the most likely output",
    "quality/sampled": "quality of sampled outputs",
    "frozen/detection": "spies found in games by the starting model",
    "strength/civilian": "spies of the starting model found among these civilians",
    "strength/spy": "these spies missed among civilians of the starting model",
}
_OURS = " (comes with SpyRL)"
_VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


@dataclass(frozen=True)
class Published:
    """What a card is written of."""

    name: str
    """What the model is loaded by: a Hub id, or the folder's name."""
    config: Config
    preset: str
    metrics: Sequence[Mapping[str, Any]]
    """One mapping an iteration; at least one."""
    versions: Mapping[str, Any]
    hardware: Mapping[str, Any]
    base: Base
    adapters: str | None
    """For LoRA adapters that are not merged: how their base model is loaded."""
    evaluations: Sequence[Evaluation]
    game: Mapping[str, Any] | None
    figure: str | None
    """File name of the plot of detection and stage; ``vector`` is the same as SVG."""
    vector: str | None
    curve: str | None
    """File name of the plot of measurements on held-out documents."""


def model_card(published: Published) -> ModelCard:
    """The card, with metadata (results as ``model-index``), tables, examples of use, one game and its provenance."""
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    text = importlib.resources.files("spyrl.evaluation").joinpath("model_card.md.jinja").read_text(encoding="utf-8")
    config, game = published.config, published.game
    changed = changed_settings(config, published.preset)
    body = environment.from_string(text).render(
        title=_escaped(published.name.split("/")[-1]),
        opening=_opening(published),
        facts=_facts(published),
        adapters=published.adapters,
        transformers_example=_transformers_example(published),
        vllm_example=_vllm_example(published),
        evaluations=[_evaluation(each) for each in published.evaluations],
        held_out=_held_out(published.metrics),
        curve=published.curve,
        figure=published.figure,
        vector=published.vector,
        game=game,
        how_chosen=HOW_CHOSEN,
        game_text=game_markdown(game) if game else "",
        how=_how(published.preset, changed),
        command=f"spyrl train {SETTINGS_FILE}" if changed is None else command(config, published.preset, changed),
        changes=_changes(changed or []),
        settings_file=SETTINGS_FILE,
        versions=_versions(published.versions),
        version=spyrl.__version__,
    )
    return ModelCard(f"---\n{_metadata(published).to_yaml()}\n---\n\n{body}")


def _metadata(published: Published) -> ModelCardData:
    """The card's metadata; what is not known is left out."""
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=slug(score.dataset),
            dataset_name=score.dataset,
            metric_type=slug(score.metric).lower(),
            metric_name=score.metric,
            metric_value=score.value,
            metric_args=_score_details(score.low, score.high, score.count, score.base),
        )
        for evaluation in published.evaluations
        for score in evaluation.scores
        if math.isfinite(score.value)
    ]
    more: dict[str, Any] = dict(published.base.license)
    if published.base.hub_id:
        more["base_model_relation"] = "adapter" if published.adapters else "finetune"
    return ModelCardData(
        base_model=published.base.hub_id,
        datasets=data_sets(published.config) or None,
        language=published.base.language,
        library_name="peft" if published.adapters else "transformers",
        pipeline_tag="text-generation",
        tags=[*_TAGS, "lora"] if published.adapters else _TAGS,
        model_name=published.name.split("/")[-1] if results else None,
        eval_results=results or None,
        **more,
    )


def _score_details(low: float | None, high: float | None, count: int, base: float | None) -> dict[str, Any]:
    details: dict[str, Any] = {"rows": count}
    if low is not None and high is not None:
        details["interval_95"] = [low, high]
    if base is not None:
        details["base_model"] = base
    return details


def _opening(published: Published) -> str:
    task = published.config.task
    what = _PURPOSES.get(task, f"the task {_code(public(task))}")
    kind = f"LoRA adapters for {_base(published.base)}," if published.adapters else f"{_base(published.base)},"
    return (
        f"{kind} trained by playing *Who is the Spy?* with itself to get better at {what}. Several players do the "
        "task on the same document, but one of them, the spy, has a damaged copy; detectors read all outputs and vote "
        "on who it is. Votes are checked against what the program dealt, so nobody has to label, rank or judge a text "
        "([paper](https://arxiv.org/abs/2607.23802))."
    )


def _facts(published: Published) -> str:
    config, metrics = published.config, published.metrics
    stages = [str(line["stage"]) for line in metrics]
    trained = ", ".join(f"{stages.count(stage)} of {stage}" for stage in sorted(set(stages)))
    rows = [
        ("base model", _base(published.base)),
        ("task", _PURPOSES.get(config.task) or _code(public(config.task))),
        ("corpus", _corpus(config)),
        ("algorithm", _algorithm(config)),
        ("iterations", f"{len(metrics)} ({trained}), {config.training.games} games each"),
        ("hardware", _hardware(published.hardware)),
        ("training time", _duration(sum(line.get("seconds/total") or 0 for line in metrics))),
        ("supervision", _supervision(config)),
        ("licence", _license(published.base)),
    ]
    return markdown_table(Sheet("", ("", ""), tuple(rows)))


def _base(base: Base) -> str:
    if base.hub_id:
        return f"[{base.hub_id}](https://huggingface.co/{base.hub_id})"
    return _code(base.name) + (_OURS if base.name.startswith(BUNDLED_PREFIX) else "")


def _corpus(config: Config) -> str:
    names = data_sets(config)
    if names:
        return f"[{names[0]}](https://huggingface.co/datasets/{names[0]}) ({config.corpus.split})"
    path = config.corpus.path
    return _code(public(path)) + (_OURS if path.startswith((BUNDLED_PREFIX, "generated:")) else "")


def _algorithm(config: Config) -> str:
    training, game = config.training, config.game
    stages = {
        "alternate": "detection and performing trained in turn",
        "detection": "detection trained only",
        "performing": "performing trained only",
        "joint": "both stages trained at once",
    }[training.stages]
    parts = [f"SpyRL: {stages}", f"clipped policy gradient with KL weight {training.kl:g}"]
    parts += ["role-advantage estimation"] if game.roles.baseline == "role" else []
    parts += [f"learning rate {training.lr:g}", f"{game.players} players", f"{game.detectors.ballots} ballots a prompt"]
    lora = config.model.lora
    return "; ".join(parts + ([f"LoRA of rank {lora.rank}"] if lora.rank else []))


def _hardware(hardware: Mapping[str, Any]) -> str:
    if not hardware:
        return "not recorded"
    if "gpu" in hardware:
        return f"{hardware['gpus']} × {_escaped(str(hardware['gpu']))}"
    return f"{hardware['cores']} cores of {_escaped(str(hardware['processor']))}, no GPU"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _supervision(config: Config) -> str:
    others = [
        f"the fixed model {_code(public(other.path))} {what}"
        for other, what in ((config.model.detector, "detects"), (config.model.performer, "performs"))
        if other
    ]
    control = config.game.rewards.control
    others += [f"votes are replaced (control {_code(control)})"] if control != "none" else []
    return "; ".join(["none: the reward comes from the game's rules", *others])


def _license(base: Base) -> str:
    if not base.license:
        return "the base model's applies; it is not known here"
    return _escaped(str(base.license.get("license_name") or base.license["license"]))


def _transformers_example(published: Published) -> str:
    name = json.dumps(published.name, ensure_ascii=False)
    options = 'dtype="auto", device_map="auto"'
    if published.adapters:
        base = json.dumps(published.adapters, ensure_ascii=False)
        imports = "from peft import PeftModel\n"
        load = f"base = AutoModelForCausalLM.from_pretrained({base}, {options})\n"
        load += f"model = PeftModel.from_pretrained(base, {name})"
    else:
        imports, load = "", f"model = AutoModelForCausalLM.from_pretrained({name}, {options})"
    template = "".join(f", {key}={value!r}" for key, value in (published.config.model.template or {}).items())
    return f"""\
{imports}from transformers import AutoModelForCausalLM, AutoTokenizer

{load}
tokenizer = AutoTokenizer.from_pretrained({name})
messages = [{{"role": "user", "content": {_prompt(published)}}}]
inputs = tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"{template}
).to(model.device)
written = model.generate(**inputs, max_new_tokens=512)
print(tokenizer.decode(written[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))"""


def _vllm_example(published: Published) -> str:
    name = json.dumps(published.name, ensure_ascii=False)
    imports, model, request = "", f"LLM({name})", ""
    if published.adapters:
        rank = next((rank for rank in _VLLM_RANKS if rank >= published.config.model.lora.rank), _VLLM_RANKS[-1])
        imports = "from vllm.lora.request import LoRARequest\n"
        base = json.dumps(published.adapters, ensure_ascii=False)
        model = f"LLM({base}, enable_lora=True, max_lora_rank={rank})"
        request = f', lora_request=LoRARequest("spyrl", 1, {name})'
    template = published.config.model.template
    request += f", chat_template_kwargs={dict(template)!r}" if template else ""
    return f"""\
from vllm import LLM, SamplingParams
{imports}
model = {model}
messages = [{{"role": "user", "content": {_prompt(published)}}}]
answers = model.chat(messages, SamplingParams(max_tokens=512){request})
print(answers[0].outputs[0].text)"""


def _prompt(published: Published) -> str:
    """A first message to try, as a Python string: what the task's own model knows, or something to write."""
    task = published.config.task
    text = f"civilian\n{_LEDGER}" if task == "ledger" else _PROMPTS.get(task, _PROMPT)
    return json.dumps(text, ensure_ascii=False)


def _evaluation(evaluation: Evaluation) -> dict[str, Any]:
    settings = " · ".join(f"{key}: {_code(_setting(value))}" for key, value in evaluation.settings.items())
    return {
        "title": _escaped(public(evaluation.title)),
        "sheets": [
            {
                "title": _escaped(public(sheet.title)),
                "table": markdown_table(
                    Sheet("", tuple(map(_cell, sheet.columns)), tuple(tuple(map(_cell, row)) for row in sheet.rows))
                ),
            }
            for sheet in evaluation.sheets
        ],
        "notes": [_escaped(public(note)) for note in evaluation.notes],
        "settings": settings,
    }


def _setting(value: Any) -> str:
    return public(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _held_out(metrics: Sequence[Mapping[str, Any]]) -> str:
    def lines() -> Iterator[tuple[str, ...]]:
        for key, name in _MEASURED.items():
            points = series(metrics, key)
            if len(points) > 1:
                yield name, f"{points[0][1]:.3f}", f"{points[-1][1]:.3f}"

    rows = tuple(lines())
    return markdown_table(Sheet("", ("", "starting model", "this model"), rows)) if rows else ""


def _how(preset: str, changed: Changes | None) -> str:
    if changed is None:
        return f"With settings of its own ({_code(public(preset))}):"
    return f"With the preset {_code(preset)}{' and some settings of its own' if changed else ''}:"


def _changes(changed: Changes) -> str:
    rows = tuple((_code(key), _code(_setting(before)), _code(_setting(now))) for key, before, now in changed)
    return markdown_table(Sheet("", ("setting", "preset", "this run"), rows)) if rows else ""


def _versions(versions: Mapping[str, Any]) -> str:
    return f"Versions: {', '.join(f'{name} {_escaped(str(number))}' for name, number in versions.items())}."


def settings_text(config: Config) -> str:
    """The content of `SETTINGS_FILE`: what ``spyrl train`` takes."""
    first = "# Every setting of the run, without the folders of the machine it ran on; spyrl train takes it.\n"
    return first + str(yaml.safe_dump(public_settings(config), sort_keys=False, allow_unicode=True))


def _code(text: str) -> str:
    """A text as inline code, whatever is in it."""
    shown = " ".join(text.split()) or " "
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    marks = "`" * (longest + 1)
    return f"{marks} {shown} {marks}" if longest else f"{marks}{shown}{marks}"


def _escaped(text: str) -> str:
    """A text that Markdown shows as it is."""
    # An escaped backslash before a parenthesis would be a formula to the Hub; the character's number is not.
    return re.sub(r"([`*_\[\]<>&|~$#])", r"\\\1", " ".join(text.split()).replace("\\", "\0")).replace("\0", "&#92;")


def _cell(text: str) -> str:
    return _escaped(public(text)).replace("\\|", "|")  # `markdown_table` escapes it
