"""Tables of a page, as a test reads them: an example that stands on a page is run from the page's own rows."""

import re
from pathlib import Path

Row = dict[str, str]
"""The cells of a row by the heading of their column, without backticks."""


def table(page: Path, first_column: str) -> list[Row]:
    """The rows of the page's one table whose first column has this heading. AssertionError where there is no such
    table, or another one.
    """
    blocks = re.findall(r"(?:^\|.*\|$\n?)+", page.read_text(), re.MULTILINE)
    tables = [[_cells(line) for line in block.splitlines()] for block in blocks]
    found = [rows for rows in tables if rows[0][0] == first_column]
    assert len(found) == 1, f"{page.name}: {len(found)} tables begin with the column {first_column!r}"
    head, _, *rows = found[0]
    return [dict(zip(head, row, strict=True)) for row in rows]


def numbers(cell: str) -> dict[str, int]:
    """``a 2, b 2`` as a number for each name; a dash is none."""
    return {name: int(number) for name, number in re.findall(r"(\w+) (\d+)", cell)}


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
