"""Tables and sentences for people: coloured and folded on a terminal, plain and whole in a pipe."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import click
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.text import Text

from cli.printing.output import one_line, visible
from cli.printing.table import Column, Table, folded

Json = dict[str, Any]

_NO_TERMINAL = 10_000
"""The number of columns where there is no terminal to fit into: no line is folded, so each row stays one line."""

QUIET_S = 2.0
"""The seconds for which a person waits without wondering."""


class _Verbatim(Console):
    """Prints text unchanged: messages of objects may come from anybody, so that neither brackets in them are markup nor
    escape sequences reach the terminal.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **{**options, "markup": False, "emoji": False, "highlight": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def console() -> Console:
    found = _Verbatim()
    return found if found.is_terminal else _Verbatim(width=_NO_TERMINAL, no_color=True)


def aside(text: object) -> None:
    """Print a note on standard error beside the answer."""
    click.echo(f"note: {one_line(str(text))}", err=True)


def titled(title: str, *columns: str | Column) -> Table:
    """A table. A name alone is a column that is never left out or folded; see ``less`` and ``prose``."""
    return Table(title, columns)


def show(*parts: RenderableType | None, wide: bool = False) -> None:
    """Print the parts one below the other; None prints nothing. ``wide``: tables leave no column out."""
    shown = console()
    for part in _flat(parts):
        if isinstance(part, Table):
            part.wide = wide
        lines = part.lines(shown.width) if isinstance(part, Table) else folded(_text(part), shown.width)
        for line in lines:
            with shown.capture() as text:
                shown.print(line, soft_wrap=True)
            click.echo(text.get().rstrip())


def _flat(parts: Iterable[RenderableType | None]) -> Iterator[RenderableType]:
    for part in parts:
        if isinstance(part, Group):
            yield from _flat(part.renderables)
        elif part is not None:
            yield part


def _text(part: RenderableType) -> Text:
    assert isinstance(part, str | Text)
    return Text(visible(part)) if isinstance(part, str) else part


def ago(seconds: float) -> str:
    """An age in its two largest units: ``45s``, ``3m20s``, ``2h05m``, ``3d04h``."""
    s = max(0, int(seconds))
    if s < 60:  # noqa: PLR2004 - units of time
        return f"{s}s"
    if s < 3600:  # noqa: PLR2004
        return f"{s // 60}m{s % 60:02d}s"
    if s < 86400:  # noqa: PLR2004
        return f"{s // 3600}h{s % 3600 // 60:02d}m"
    return f"{s // 86400}d{s % 86400 // 3600:02d}h"


class _Wait:
    """One that is told of; ``since_s``: from when it counts, by the monotonic clock."""

    def __init__(self) -> None:
        self.since_s = time.monotonic()


_waits: list[_Wait] = []
"""Those that go on. Written by ``patience`` alone."""


@asynccontextmanager
async def patience(what: Callable[[], str], *, quiet_s: float = QUIET_S) -> AsyncIterator[None]:
    """A context that tells on standard error ``what`` the block waits for: after a moment, and with the time."""
    wait = _Wait()
    _waits.append(wait)
    telling = asyncio.create_task(_tell(what, wait, quiet_s))
    try:
        yield
    finally:
        _waits.remove(wait)
        telling.cancel()
        _clear_line()


@contextmanager
def asking() -> Iterator[None]:
    """While a person is asked in the block, nobody else is waited for: every wait begins anew with the answer."""
    _clear_line()
    try:
        yield
    finally:
        for wait in _waits:
            wait.since_s = time.monotonic()


def _clear_line() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


async def _tell(what: Callable[[], str], wait: _Wait, quiet_s: float) -> None:
    line, every_s = ("\r{}\x1b[K", 0.5) if sys.stderr.isatty() else ("{}\n", 10.0)
    while True:
        waited_s = time.monotonic() - wait.since_s
        if waited_s >= quiet_s:
            sys.stderr.write(line.format(f"{what()}, {waited_s:.0f} s"))
            sys.stderr.flush()
        await asyncio.sleep(max(quiet_s - waited_s, 0.0) or every_s)
