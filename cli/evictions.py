"""Asks before a command evicts running workloads: on a terminal it names those that would go. In a pipe it does not
ask, as kubectl's plugin of Kueue does not.
"""

import sys
from collections.abc import Sequence
from typing import Final

import click
from rich.text import Text

from cli.printing.console import asking, console
from cli.printing.output import one_line
from cli.printing.table import folded
from inventory.words.catalog import plural

_NAMED: Final = 20

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask on a terminal before anything is evicted.")


def on_terminal() -> bool:
    """Whether a person reads the answer and can answer in turn."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def asks(*, yes: bool) -> bool:
    return not yes and on_terminal()


def confirm(
    leaving: Sequence[str],
    instead: str = "",
    *,
    what: str = "workload",
    fate: str = "would be evicted",
    question: str = "Evict?",
) -> None:
    """Ask whether those may go; no question is asked where nobody would go. ``instead``: the option that would let them
    run.

    Raises click.Abort.
    """
    if not leaving:
        return
    click.echo(f"{plural(len(leaving), what)} {fate}:", err=True)
    for line in leaving[:_NAMED]:
        for part in folded(Text(f"  {one_line(line)}"), console().width):
            click.echo(part.plain, err=True)
    if len(leaving) > _NAMED:
        click.echo(f"  and {len(leaving) - _NAMED} more", err=True)
    for part in folded(Text(instead), console().width) if instead else ():
        click.echo(part.plain, err=True)
    with asking():
        click.confirm(question, abort=True, err=True)
