"""``tessera top``: shows what all GPUs do, who holds them, and what waits, as long as somebody looks."""

from asyncio import sleep

import click
import msgspec
from rich.console import RenderableType
from rich.live import Live

from cli.access.cluster import SERVICE, Where, run, told
from cli.access.kubeapi import kube_options, opened
from cli.access.local import Number, Whole
from cli.naming.suggestions import names
from cli.printing.console import console, show
from cli.printing.output import FOR_PEOPLE, printed, table_option
from cli.top.fleet import Fleet, totals
from cli.top.leave import until_left
from cli.top.read import read
from cli.top.screen import BY, screen
from kube.client import Client
from kube.errors import UnavailableError


@click.command(short_help="What all GPUs do, who holds them, and what waits; live.")
@click.option("--once", is_flag=True, help="Print it once and end, as in a pipe.")
@click.option("--every", type=Number(1, 3600), default=5, show_default=True, help="Seconds between two readings.")
@click.option("--by", type=click.Choice(BY), default="auto", help="A line for each GPU or node; auto: what fits.")
@click.option(
    "--node", "nodes", multiple=True, help="These nodes alone; may be repeated.", shell_complete=names("nodes")
)
@click.option("--at-most", type=Whole(0), help="Agents of so many nodes are asked at the most; without it all are.")
@click.option(
    "--agents",
    default=SERVICE.partition("/")[0],
    show_default=True,
    help="The agents' namespace.",
    shell_complete=names("namespaces"),
)
@kube_options
@table_option
def top(
    where: Where,
    once: bool,
    every: float,
    by: str,
    nodes: tuple[str, ...],
    at_most: int | None,
    agents: str,
    output: str,
) -> None:
    """What all GPUs do, who holds them, and what waits: live until q or Ctrl-C, once in a pipe.

    GPUs, health and holders come from GpuNodes, queues from ClusterQueues, busy time and memory from the agents by
    the API server's proxy (right: get pods/proxy in their namespace). What may not be read is left out with a note.

    \b
    Examples:
      tessera top
      tessera top --by node --every 10
      tessera top --node node-1 --node node-2
      tessera top --once | sort -k2
      tessera top --once -o json | jq '.gpus[] | select(.busy == 0)'
    """

    async def look(client: Client) -> Fleet:
        return await read(client, agents=agents, only=frozenset(nodes), at_most=at_most)

    shown = console()
    if once or output not in FOR_PEOPLE or not shown.is_terminal:

        async def print_once() -> None:
            async with opened(where) as client:
                fleet = await look(client)
            if output not in FOR_PEOPLE:
                printed({**msgspec.to_builtins(fleet), "totals": totals(fleet.gpus)}, output)
            else:
                show(
                    screen(fleet, height=None, by="gpu" if by == "auto" else by, width=shown.width),
                    wide=output == "wide",
                )

        run(print_once())
        return

    def drawn(found: Fleet) -> RenderableType:
        return screen(found, height=shown.height, by=by, width=shown.width)

    async def follow() -> None:
        async with opened(where) as client:
            found = await look(client)
            await until_left(draw(client, found))

    async def draw(client: Client, fleet: Fleet) -> None:
        with Live(drawn(fleet), console=shown, screen=True, auto_refresh=False) as live:
            while True:
                await sleep(every)
                try:
                    fleet = await look(client)
                except UnavailableError as failed:  # the last reading stays, and says that it is old
                    fleet = msgspec.structs.replace(fleet, notes=(f"this is old: {told(failed)}",))
                live.update(drawn(fleet), refresh=True)

    try:
        run(follow(), patiently=False)
    except KeyboardInterrupt:
        return
