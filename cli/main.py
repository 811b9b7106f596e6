"""``tessera``: the command's root. Exit codes: 0 done, 1 it did not work, 2 it was asked wrongly."""

import importlib
import sys
from typing import Final

import click

from inventory import __version__

COMMANDS: Final = {
    "advise": "cli.advise.command:advise",
    "doctor": "cli.doctor.command:doctor",
    "explain": "cli.explain.command:explain",
    "layout": "cli.layout.command:layout",
    "node": "cli.node.command:node",
    "queue": "cli.queue.command:queue",
    "release-nvml": "cli.node.command:release_nvml",
    "sim": "cli.sim:sim",
    "simulate": "cli.simulate.command:simulate_command",
}


class Commands(click.Group):
    """Imports a command when it is asked for: a node's shell does not wait for the controller's modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        found = getattr(importlib.import_module(module), name)
        return found if isinstance(found, click.Command) else None


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
