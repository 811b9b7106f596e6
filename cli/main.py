"""``tessera``: the command's root. Exit codes: 0 done, 1 it did not work, 2 it was asked wrongly."""

import sys

import click

from cli.node import node, release_nvml
from cli.sim import sim
from cli.simulate import simulate_command
from inventory import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="tessera")
def tessera() -> None:
    """Look at and rehearse a fleet of GPUs.

    \b
    Examples:
      tessera node                       what this node's agent knows
      tessera node -o json | jq .health  the same for programs
      tessera sim xid --gpu 3 79         let a simulated GPU fail
      tessera simulate --fleet f.yaml .  who would run when, from files alone
    """


tessera.add_command(node)
tessera.add_command(release_nvml)
tessera.add_command(sim)
tessera.add_command(simulate_command)


def main() -> None:
    """The console script."""
    sys.exit(tessera())
