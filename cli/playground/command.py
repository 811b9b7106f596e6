"""``tessera try``: the page over a simulated fleet and queues that live, without a cluster."""

import asyncio
import os
import signal
from pathlib import Path

import click

from cli.access.cluster import run
from cli.access.local import Whole
from cli.manifests import WrongInputError
from cli.playground import world as worlds
from cli.simulate.reading import inputs
from cli.words import given as say
from controller.insight.simulation.documents import InputError
from inventory.words.catalog import plural
from simulator.fleet.fleetfile import load_fleet
from simulator.reading import InputError as FleetError

_MOST_PORT = 65_535


@click.command("try", short_help="The page over a simulated fleet and queues that live; no cluster.")
@click.argument("manifests", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--fleet", type=click.Path(path_type=Path), help="The simulated fleet's file, in place of the built-in.")
@click.option("--port", type=Whole(0, _MOST_PORT), default=0, show_default="any", help="Of this machine, at 127.0.0.1.")
def try_command(manifests: tuple[Path, ...], fleet: Path | None, port: int) -> None:
    """See the page at work: jobs come, wait, borrow and are preempted; a GPU fails and comes back. Until Ctrl-C.

    The controller and the page are the real ones; API server, nodes and GPUs are simulated in this process. Without
    arguments it shows three teams that share 32 GPUs. With --fleet and MANIFESTS it shows your queues and jobs, by the
    annotations that tessera simulate reads: tessera.dev/arrival, tessera.dev/runtime. What comes by the clock comes
    again. Only Jobs of batch/v1 run here: tessera simulate takes jobs of all kinds.

    \b
    Examples:
      tessera try
      tessera try --port 8082
      tessera try --fleet fleet.yaml queues.yaml jobs.yaml
    """
    from cli.playground.stage_shell import played

    world = _world(manifests, fleet)

    async def shown(address: str) -> None:
        nodes, gpus = len(world.fleet.nodes), sum(len(node.gpus) for node in world.fleet.nodes)
        size = f"{plural(nodes, 'node')}, {plural(gpus, 'GPU')}"
        click.echo(f"A simulated fleet ({size}) and its queues, to look at; Ctrl-C ends it.")
        click.echo(address)

    async def serving() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        try:
            await played(world, port, shown, stop)
        except OSError as failed:
            why = os.strerror(failed.errno) if failed.errno else str(failed)
            raise click.ClickException(say.port_taken(port, why)) from None

    run(serving(), patiently=False)


def _world(manifests: tuple[Path, ...], fleet: Path | None) -> worlds.World:
    if bool(manifests) != (fleet is not None):
        raise click.UsageError(say.fleet_and_manifests("MANIFESTS" if manifests else "--fleet"))
    if fleet is None:
        fleet, manifests = worlds.packaged()
    read = inputs(manifests, fleet, events_count=True)
    try:
        return worlds.world(load_fleet(fleet), read.documents)
    except (FleetError, InputError) as wrong:
        raise WrongInputError(str(wrong)) from None
