"""Tables and sentences for people: coloured and folded on a terminal, plain and whole in a pipe."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

Json = dict[str, Any]

_NO_TERMINAL = 10_000
"""Columns where there is no terminal to fit into: no line is folded, so each row stays one line."""

QUIET_S = 2.0
"""So long a person waits without wondering."""


def console() -> Console:
    found = Console()
    return found if found.is_terminal else Console(width=_NO_TERMINAL, no_color=True)


def titled(title: str, *columns: str) -> Table:
    # Titles are not folded to the table's width: a narrow table would break them into pieces.
    heading = Text(title, no_wrap=True, overflow="ignore")
    table = Table(title=heading, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def show(*parts: RenderableType | None) -> None:
    """Print them one below the other; None is nothing."""
    shown = console()
    for part in parts:
        if part is None:
            continue
        with shown.capture() as text:
            shown.print(part)
        for line in text.get().splitlines():
            click.echo(line.rstrip())


@asynccontextmanager
async def patience(what: Callable[[], str], *, quiet_s: float = QUIET_S) -> AsyncIterator[None]:
    """While the block goes on, ``what`` it waits for is told on standard error: after a moment, and with the time."""
    telling = asyncio.create_task(_tell(what, quiet_s))
    try:
        yield
    finally:
        telling.cancel()
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


async def _tell(what: Callable[[], str], quiet_s: float) -> None:
    started_s = time.monotonic()
    await asyncio.sleep(quiet_s)
    line, every_s = ("\r{}\x1b[K", 0.5) if sys.stderr.isatty() else ("{}\n", 10.0)
    while True:
        sys.stderr.write(line.format(f"{what()}, {time.monotonic() - started_s:.0f} s"))
        sys.stderr.flush()
        await asyncio.sleep(every_s)
