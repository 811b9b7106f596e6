"""Groups of commands, one for each kind of object, that are found by any of the kind's names."""

from typing import Final

import click

from cli.evictions import asks
from cli.kubectlwords import read
from cli.kueuectl.passthrough import ALIASES, PLURALS, YES, hand_over
from cli.naming.nearest import NearestGroup
from cli.naming.suggestions import kubectls

_PASSED_ON: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False}


class Kinds(NearestGroup):
    """A group whose command ``clusterqueue`` is found as clusterqueues and as cq, and so on."""

    def words(self, ctx: click.Context) -> dict[str, str]:
        known = super().words(ctx)
        return known | {word: kind for word, kind in ALIASES.items() if kind in known}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))


def handed_over(group: click.Group, verb: str, kinds: tuple[str, ...]) -> None:
    """Add commands to ``group`` that kubectl carries out."""
    for kind in kinds:
        group.add_command(_passing(verb, kind))


def _passing(verb: str, kind: str) -> click.Command:
    @click.command(
        kind, short_help=f"{verb.capitalize()} {PLURALS[kind]}, as kubectl does.", context_settings=_PASSED_ON
    )
    @click.argument(
        "rest",
        nargs=-1,
        type=click.UNPROCESSED,
        metavar="[KUBECTL'S WORDS]...",
        shell_complete=kubectls(PLURALS[kind]),
    )
    def command(rest: tuple[str, ...]) -> None:
        words = tuple(word for word in rest if word not in YES)
        if asks(yes=words != rest):
            from cli.access.cluster import run
            from cli.kueuectl.affected import ask_before_delete

            run(ask_before_delete(kind, read(rest)))
        hand_over(verb, kind, words)

    command.help = (
        f"{verb.capitalize()} {PLURALS[kind]}, as kubectl does: all that follows is its own.\n\n"
        "On a terminal it is told who would be affected, and asked; --yes passes.\n\n"
        f"\b\nExample:\n  tessera {verb} {kind} research\n"
    )
    return command
