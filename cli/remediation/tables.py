"""Repairs and plans as tables."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click
from rich.text import Text

from cli.printing.console import ago, show, titled
from cli.printing.table import Cell, less, prose
from cli.remediation.repairs import BreakerRow, PlanRow, RepairRow, refusal
from cli.words import remediation as say

_STYLES: Final = {
    "Draining": "yellow",
    "Resetting": "yellow",
    "Verifying": "yellow",
    "Probation": "cyan",
    "RebootWanted": "red",
    "Retired": "red",
    "Unhealthy": "red",
    "Suspect": "yellow",
}


def show_repairs(rows: Sequence[RepairRow], now: datetime, *, wide: bool) -> None:
    if not rows:
        click.echo("No GPU is in repair.")
        return
    more = (less("UUID", 6), prose("fault", 5)) if wide else ()
    columns = ("node", "GPU", "state", "since", less("attempt"), less("asks", 2), prose("note"), prose("next"))
    made = titled("Repairs", *columns, *more)
    for row in rows:
        asks = "-" if not row.asks else f"{row.asks}, granted" if row.granted is not None else row.asks
        cells: list[Cell] = [row.node, _index(row.index), Text(row.state, style=_STYLES.get(row.state, ""))]
        cells += [_since(row.since, now), str(row.attempt), asks, _note(row), row.next or "-"]
        made.add_row(*cells, *((row.uuid, row.cause or row.reason or "-") if wide else ()))
    show(made, wide=wide)


def show_breakers(rows: Sequence[BreakerRow]) -> None:
    for row in rows:
        click.echo(say.tripped(row.flavor))


def show_plans(rows: Sequence[PlanRow], *, wide: bool) -> None:
    if not rows:
        click.echo("No GPU has failed, is suspect or in repair.")
        return
    more = (less("UUID", 6), prose("held by", 5)) if wide else ()
    made = titled("Plan", "node", "GPU", "health", less("repair"), prose("faults", 2), prose("what is done now"), *more)
    for row in rows:
        health = Text(row.health, style=_STYLES.get(row.health, ""))
        cells: list[Cell] = [
            row.node,
            _index(row.index),
            health,
            row.state or "-",
            ", ".join(row.reasons) or "-",
            row.says,
        ]
        made.add_row(*cells, *((row.uuid, ", ".join(row.holders) or "-") if wide else ()))
    show(made, wide=wide)


def _note(row: RepairRow) -> str:
    said = (*((row.note,) if row.note else ()), *map(refusal, row.refused_by))
    return ". ".join(said) or "-"


def _index(index: int | None) -> str:
    return "?" if index is None else str(index)


def _since(since: datetime | None, now: datetime) -> str:
    return "-" if since is None else ago((now - since).total_seconds())
