"""How benchmarks print: what, measured, target."""

from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    what: str
    measured: str
    target: str


def show(title: str, rows: Sequence[Row]) -> None:
    """Print the rows as aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    print(f"\n{title}")
    for row in rows:
        target = f"   (target: {row.target})" if row.target else ""
        print(f"  {row.what:<{widths[0]}}   {row.measured:<{widths[1]}}{target}".rstrip())
