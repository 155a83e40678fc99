"""The command line of the benchmarks: one table a command, with the machine and the versions."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from benchmarks import builder, generate, iteration, overhead, plan, scaling, update
from benchmarks.measuring import Row, machine
from spyrl.policy.quiet import quiet_libraries

COMMANDS = {
    "update": update,
    "generate": generate,
    "iteration": iteration,
    "builder": builder,
    "overhead": overhead,
    "scaling": scaling,
    "plan": plan,
}


def main() -> int:
    """Run one benchmark and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        what = (module.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=what, description=module.__doc__)
        command.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
        command.add_argument("--repeats", type=int, default=3, metavar="N", help="repetitions of each (default 3)")
        module.arguments(command)
    options = parser.parse_args()
    quiet_libraries()
    rows = COMMANDS[options.command].run(options)
    if options.json:
        print(json.dumps({"machine": machine(), "rows": rows}, indent=1))
    else:
        show(options.command, rows)
    return 0


def show(name: str, rows: list[Row]) -> None:
    """Print the rows as a table, or where that is too wide as a few lines each."""
    console = Console(highlight=False)
    table = Table(title=f"{name} · {platform.machine()}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        table.add_column(_words(column), justify="left")
    for row in rows:
        table.add_row(*(_cell(row.get(column, "")) for column in columns))
    unbounded = console.options.update(max_width=10_000)
    if console.measure(table, options=unbounded).maximum <= console.width:
        console.print(table)
    else:
        for row in rows:
            sizes = [
                value if isinstance(value, str) else f"{_words(key)} {value}"
                for key, value in row.items()
                if not isinstance(value, float)
            ]
            figures = [f"{_words(key)} {_cell(value)}" for key, value in row.items() if isinstance(value, float)]
            console.print(" · ".join(sizes), style="bold")
            console.print(Padding(" · ".join(figures), (0, 0, 0, 2)))
    console.print(" · ".join(f"{key} {value}" for key, value in machine().items()), style="dim")


def _words(key: str) -> str:
    return key.replace("_", " ")


def _cell(value: str | int | float) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
