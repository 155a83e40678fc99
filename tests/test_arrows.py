"""Arrows point one way: what each room may import of ours, read from the source."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import spyrl

SOURCE = Path(spyrl.__file__).parent
MAY_IMPORT = {
    "errors": set(),
    "arguments": {"errors"},
    "settings": {"errors"},
    "game": set(),
    "policy": {"errors"},
    "tasks": {"errors", "settings", "game", "policy", "corpus"},
    "corpus": {"errors", "game"},
    "runs": {"errors", "settings"},
    "training/settings": set(),
    "config": {"errors", "settings", "game", "policy", "tasks", "corpus", "runs", "training/settings"},
    "play": {"errors", "config", "game", "policy", "tasks", "corpus"},
    "training": {
        "errors",
        "settings",
        "config",
        "game",
        "policy",
        "tasks",
        "corpus",
        "runs",
        "play",
        "training/settings",
    },
    "planning": {"errors", "arguments", "settings", "config", "game", "policy", "tasks", "corpus", "play", "training"},
    "ledger": {"errors", "config", "game", "policy", "tasks", "corpus", "play"},
    "figures": set(),
    "display": {"config", "game", "play", "runs", "figures"},
    "evaluation": {
        "errors",
        "arguments",
        "settings",
        "config",
        "game",
        "policy",
        "tasks",
        "corpus",
        "runs",
        "play",
        "figures",
    },
    "ablation": {"errors", "settings", "config", "runs", "figures", "evaluation"},
    "cli": {
        "errors",
        "arguments",
        "settings",
        "config",
        "game",
        "policy",
        "tasks",
        "corpus",
        "runs",
        "play",
        "training",
        "ledger",
        "figures",
        "display",
        "evaluation",
        "ablation",
        "planning",
    },
}


def room(name: str) -> str:
    parts = name.split(".")
    if parts[1:3] == ["training", "settings"]:
        return "training/settings"
    return parts[1] if len(parts) > 1 else ""


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def files() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.name != "__init__.py" or path.parent != SOURCE]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_imports_only_what_is_below_its_room(path: Path) -> None:
    own = room("spyrl." + ".".join(path.relative_to(SOURCE).with_suffix("").parts))
    if own in ("__main__", "presets"):
        return
    used = {room(name) for name in imports(path) if name.split(".")[0] == "spyrl"} - {own, ""}
    assert used <= MAY_IMPORT[own], f"{own} imports {sorted(used - MAY_IMPORT[own])}"


def test_the_rules_need_the_standard_library_only() -> None:
    used = {name.split(".")[0] for path in (SOURCE / "game").glob("*.py") for name in imports(path)}
    assert used - {"spyrl"} <= set(sys.stdlib_module_names)
