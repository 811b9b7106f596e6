"""``tessera version``: versions of the command, and where a cluster is reached of its controller and its agents."""

import asyncio
from collections import Counter

import click

from cli.access.cluster import Controller, UnreachableError, Where, cluster_options, told
from cli.access.kubeapi import opened
from cli.printing.console import Json
from cli.printing.output import output_option, printed
from controller.cluster.watching.kinds import GPU_NODES
from inventory import __version__
from inventory.words.catalog import plural
from kube.errors import ConfigError, KubeError


@click.command(short_help="Versions: the command's, the controller's, the agents'.")
@click.option("--client", is_flag=True, help="The command's alone: no cluster is asked.")
@cluster_options
@output_option
def version(client: bool, where: Where, output: str) -> None:
    """Versions: of this command, and where a cluster is reached of the controller and of the agents.

    It ends with 0 where no cluster is reached: what could not be asked is told, with the reason.

    \b
    Examples:
      tessera version
      tessera version --client
      tessera version -o json | jq -r .client
    """
    body: Json = {"client": __version__}
    if not client:
        body |= asyncio.run(_of_cluster(where))
    if output != "text":
        printed(body, output)
        return
    for line in lines(body):
        click.echo(line)


async def _of_cluster(where: Where) -> Json:
    """The ``controller`` and ``agents`` of the cluster; in place of one that could not be asked, ``<what>Unknown`` says
    why.
    """
    try:
        cluster = where.cluster()
        cluster.ssl_context()  # certificates that TLS cannot use
    except (click.ClickException, ConfigError) as wrong:
        said = wrong.message if isinstance(wrong, click.ClickException) else str(wrong)
        return {"controllerUnknown": said, "agentsUnknown": said}
    body: Json = {}
    async with opened(where) as client:
        try:
            body["controller"] = await Controller(where, cluster, client).ask("version")
        except UnreachableError as failed:
            body["controllerUnknown"] = str(failed)
        try:
            nodes = (await client.list_all(GPU_NODES, Json)).items
            body["agents"] = agents(nodes)
        except KubeError as failed:
            body["agentsUnknown"] = told(failed)
    return body


def agents(nodes: tuple[Json, ...]) -> list[Json]:
    """The agents' versions with the number of nodes that have each, the most frequent first; "" where one told none."""
    counted = Counter(str((node.get("status") or {}).get("agentVersion") or "") for node in nodes)
    return [{"version": name, "nodes": count} for name, count in sorted(counted.items(), key=lambda e: (-e[1], e[0]))]


def lines(body: Json) -> list[str]:
    printed = [f"client: {body['client']}"]
    if "controller" in body:
        controller = body["controller"] or {}
        printed.append(f"controller: {controller.get('version', 'unknown')}")
    if "agents" in body:
        shown = [
            f"{each['version'] or 'older, which tells none'} on {plural(each['nodes'], 'node')}"
            for each in body["agents"]
        ]
        printed.append(f"agents: {', '.join(shown) or 'no node has one'}")
    unknown = [what for what in ("controller", "agents") if f"{what}Unknown" in body]
    return printed + [f"{what}: not known: {body[f'{what}Unknown']}" for what in unknown]
