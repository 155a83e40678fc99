"""Results as tables: in the terminal, in Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Sheet:
    """One table: its title, the columns' names, and rows of text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def show(console: Console, sheets: Sequence[Sheet], remarks: Sequence[str] = (), *, names: int = 1) -> None:
    """Print the tables in at most the console's width; the first ``names`` columns may break at a ``+``."""
    for sheet in sheets:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title=sheet.title, title_justify="left")
        for number, column in enumerate(sheet.columns):
            table.add_column(column, no_wrap=0 < number < len(sheet.columns) - 1, justify="left")
        for row in sheet.rows:
            table.add_row(
                *(Text(cell.replace("+", "\n+") if number < names else cell) for number, cell in enumerate(row))
            )
        console.print(table)
        console.print()
    for remark in remarks:
        console.print(Text(remark, style="dim"))


def markdown(title: str, sheets: Sequence[Sheet], remarks: Sequence[str], command: str) -> str:
    """The tables and notes as a page, with the command that makes them."""
    parts = [f"# {title}\n\n`{command}`\n"]
    parts += [f"## {sheet.title}\n\n{markdown_table(sheet)}\n" for sheet in sheets]
    parts.append("\n".join(f"- {remark}" for remark in remarks) + "\n")
    return "\n".join(parts)


def markdown_table(sheet: Sheet) -> str:
    """One table's rows in Markdown."""
    rows = [sheet.columns, ("---",) * len(sheet.columns), *sheet.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def comma_separated(sheets: Sequence[Sheet]) -> str:
    """All tables as CSV, each under a line with its title, an empty line between them."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for number, sheet in enumerate(sheets):
        if number:
            writer.writerow([])
        writer.writerow([f"# {sheet.title}"])
        writer.writerows([sheet.columns, *sheet.rows])
    return written.getvalue()
