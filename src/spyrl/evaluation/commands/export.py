"""Write a run's result as a Hugging Face folder with a model card, and publish it.

The folder holds the weights, the base model's tokenizer and chat template, and a card with every
evaluation that the run's folder holds (evaluations/).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spyrl.errors import UsageError

if TYPE_CHECKING:
    from spyrl.evaluation.exporting import FinishedRun
    from spyrl.evaluation.origin import Base


def add(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("name", metavar="RUN", help="the folder of a finished run, for example runs/ledger")
    parser.add_argument("--to", metavar="FOLDER", required=True, help="new folder, or an earlier export to replace")
    parser.add_argument("--merge", action="store_true", help="add LoRA adapters to the base model's weights")
    parser.add_argument("--push", metavar="REPO", help="upload it to this model repository of the Hugging Face Hub")
    parser.add_argument("--private", action="store_true", help="make the repository a private one if it is new")
    parser.add_argument("--base-model", metavar="ID", help="Hub id of the base model, where it was a local folder")
    parser.add_argument("--license", metavar="ID", help="licence, where the base model's card does not name it")


def run(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    _check(options)

    from rich.console import Console

    from spyrl.evaluation.exporting import check_target, export, finished_run, push
    from spyrl.evaluation.origin import base_of
    from spyrl.policy.quiet import quiet_libraries

    quiet_libraries()
    target = Path(options.to).expanduser()
    source = finished_run(Path(options.name).expanduser())
    replaced = check_target(target)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    base = base_of(source.config.model.path, options.base_model, options.license)
    if options.push and source.adapters and not options.merge and not base.hub_id:
        raise UsageError(
            f"these are LoRA adapters for {base.name}, a local folder that others cannot load; name its Hub id "
            "(--base-model OWNER/NAME), or --merge them into it"
        )
    with console.status("exporting") as status:
        name = options.push or target.resolve().name
        files = export(source, target, name, base, merge=options.merge, say=status.update)
    console.print(f"{target}{' (in place of an earlier export)' if replaced else ''}")
    for path in files:
        console.print(f"  {path.relative_to(target).as_posix():<32} {_size(path.stat().st_size):>9}")
    for remark in _remarks(source, base, options.merge):
        console.print(remark)
    if options.push:
        total = _size(sum(path.stat().st_size for path in files))
        console.print(f"uploading these {len(files)} files ({total}) to {options.push}")
        console.print(push(files, target, options.push, private=options.private))
    return 0


def _check(options: argparse.Namespace) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    if options.private and not options.push:
        raise UsageError("--private is of the repository that --push names")
    for option, repo in (("--push", options.push), ("--base-model", options.base_model)):
        try:
            if repo is not None:
                validate_repo_id(repo)
        except HFValidationError as error:
            raise UsageError(f"{option} {repo!r} is no repository of the Hub, which is OWNER/NAME: {error}") from None


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def _remarks(source: FinishedRun, base: Base, merge: bool) -> Iterator[str]:
    """What the user may want to do about this export."""
    if merge and not source.adapters:
        yield "There was nothing to merge: the run trained the whole model."
    if source.adapters and not merge and not base.hub_id:
        yield f"The adapters name their base by its folder here ({base.name}); for others: --base-model, or --merge."
    if not base.license:
        yield "The card names no licence, since the base model's is not known here: --license."
    for name in source.older:
        yield f"Evaluation {name} is older than the model: if it was of an earlier result, run it again."
    if not source.evaluations:
        yield f"The card has no evaluation yet. To make one, for example: spyrl eval game {source.folder.path}"
