"""What an ablation leaves: tables in the terminal, ``results.json``, ``results.md`` and ``curves.png``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from rich.console import Console

from spyrl.ablation.figures import draw_curves
from spyrl.ablation.results import collect, write_json
from spyrl.ablation.running import WARM_STARTS, Ablation
from spyrl.ablation.tables import notes, sheets
from spyrl.ablation.variants import Variant
from spyrl.errors import SpyRLError
from spyrl.evaluation.sheets import markdown, show
from spyrl.runs.folder import write_atomically


def report(console: Console, ablation: Ablation, asked: Sequence[Variant], failures: Mapping[str, str]) -> None:
    """Show and write what all finished runs in the ablation's folder come to, those of earlier calls, too.

    ``asked`` and ``failures`` are the variants of this call, and its runs that failed, with the reason. Raises
    `SpyRLError` where nothing can be written.
    """
    results = collect(ablation, asked)
    if results is None:
        console.out("no run is finished, so there is nothing to compare")
        return
    found, remarks = sheets(results), notes(results, failures)
    if ablation.takes_turns:
        remarks.append(
            f"Seeds take turns with {WARM_STARTS} starting models: seed S begins with model S % {WARM_STARTS}."
        )
    show(console, found, remarks, names=2)
    folder = ablation.folder
    command = shlex.join(["spyrl", "ablate", ablation.preset, *ablation.words])
    try:
        write_json(results, ablation, failures)
        write_atomically(folder / "results.md", markdown("Ablations", found, remarks, command))
        draw_curves(results, folder / "curves.png")
    except OSError as error:
        raise SpyRLError(f"cannot write the results to {folder}: {error.strerror or error}") from error
    console.out(f"\n{folder}/results.json, results.md and curves.png have all of it")
