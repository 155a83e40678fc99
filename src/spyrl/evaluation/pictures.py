"""Pictures of an evaluation: PNG and SVG, the same files for the same results."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from spyrl.errors import SpyRLError


def picture(width: float, height: float) -> Any:
    """An empty matplotlib figure, in inches."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its font cache
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def save_picture(figure: Any, folder: Path, name: str) -> list[str]:
    """Write ``name.png`` and ``name.svg``; returns their names. Raises `SpyRLError` where they cannot be written."""
    from matplotlib import rc_context

    names = [f"{name}.png", f"{name}.svg"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with rc_context({"svg.hashsalt": "spyrl"}):  # no random ids, and no date
            figure.savefig(folder / names[0])
            figure.savefig(folder / names[1], metadata={"Date": None})
    except OSError as error:
        raise SpyRLError(f"cannot draw into {folder}: {error.strerror or error}") from error
    return names
