"""Tables and sentences for people: coloured and folded on a terminal, plain and whole in a pipe."""

import click
from rich.console import Console, RenderableType

_NO_TERMINAL = 10_000
"""Columns where there is no terminal to fit into: no line is folded, so each row stays one line."""


def console() -> Console:
    found = Console()
    return found if found.is_terminal else Console(width=_NO_TERMINAL, no_color=True)


def show(*parts: RenderableType | None) -> None:
    """Print them one below the other; None is nothing."""
    shown = console()
    for one in parts:
        if one is None:
            continue
        with shown.capture() as text:
            shown.print(one)
        for line in text.get().splitlines():
            click.echo(line.rstrip())
