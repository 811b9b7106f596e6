"""``tessera completion``: the scripts with which a shell completes commands and options, and the program that kubectl
asks.
"""

import sys

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from cli.main import COMPLETE_VAR, tessera

_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "fish": FishComplete, "zsh": ZshComplete}
_NO_FILES = 4
"""The directive at the end of an answer to kubectl that it completes no file names besides (cobra's
ShellCompDirective).
"""


@click.command(short_help="Let a shell complete commands and options.")
@click.argument("shell", type=click.Choice(sorted(_SHELLS)))
def completion(shell: str) -> None:
    """The script that lets SHELL complete tessera's commands and options. Bash 4.4 or newer.

    kubectl 1.26 and newer completes "kubectl tessera" by the program kubectl_complete-tessera, which is installed with
    this one.

    \b
    Examples:
      tessera completion bash > ~/.local/share/bash-completion/completions/tessera
      tessera completion zsh > ~/.zfunc/_tessera
      tessera completion fish > ~/.config/fish/completions/tessera.fish
    """
    # The base class's own source() is called: bash's looks for a bash first, which need not be on this machine.
    click.echo(ShellComplete.source(_SHELLS[shell](tessera, {}, "tessera", COMPLETE_VAR)))


def of_kubectl() -> None:
    """The program that kubectl calls with the words so far, the last one incomplete."""
    for line in candidates(sys.argv[1:]):
        click.echo(line)


def candidates(words: list[str]) -> list[str]:
    """The lines ``candidate TAB description``, and a directive."""
    *before, incomplete = words or [""]
    found = ShellComplete(tessera, {}, "tessera", COMPLETE_VAR).get_completions(before, incomplete)
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in found if item.type == "plain"]
    return [*lines, f":{_NO_FILES}"]
