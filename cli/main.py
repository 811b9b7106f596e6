"""``tessera``: the command's root. Exit codes: 0 done, 1 it did not work, 2 it was asked wrongly."""

import importlib
import sys
from typing import Final

import click

from inventory import __version__

COMMANDS: Final = {
    "advise": ("cli.advise.command:advise", "Which containers could ask for less GPU; which moves would let jobs run."),
    "doctor": ("cli.doctor.command:doctor", "What keeps GPUs from being served on this node."),
    "explain": ("cli.explain.command:explain", "Why a workload waits, in numbers."),
    "layout": ("cli.layout.command:layout", "How GPUs are cut and shared: plan a layout, apply it."),
    "node": ("cli.node.command:node", "What this node's agent knows: GPUs, holders, health."),
    "queue": ("cli.queue.command:queue", "What queues have and who waits; stop and resume them."),
    "release-nvml": ("cli.node.command:release_nvml", "Let the agent close its NVML session for a while."),
    "sim": ("cli.sim:sim", "Let simulated GPUs fail, recover, come and go."),
    "simulate": ("cli.simulate.command:simulate_command", "Which workload would run when, from files alone."),
}
"""Where each command is, and the line of the help that begins its own."""


class Commands(click.Group):
    """Imports a command when it is asked for: a node's shell does not wait for the controller's modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found = getattr(importlib.import_module(module), name)
        return found if isinstance(found, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list in the help. Click would import every command for its line."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="tessera")
def tessera() -> None:
    """Look at and rehearse a fleet of GPUs, and the queues before it.

    \b
    Examples:
      tessera node                       what this node's agent knows
      tessera node -o json | jq .health  the same for programs
      tessera doctor                     what keeps this node from serving its GPUs
      tessera sim xid --gpu 3 79         let a simulated GPU fail
      tessera layout plan -f f.yaml      what a layout would change, and whom it would disturb
      tessera queue pending              who waits in the cluster's queues, and why
      tessera explain -n team-a bert     what one workload waits for, in numbers
      tessera simulate --fleet f.yaml .  who would run when, from files alone
      tessera advise --prometheus URL    which pods could ask for less GPU
    """


def main() -> None:
    """The console script."""
    sys.exit(tessera())
