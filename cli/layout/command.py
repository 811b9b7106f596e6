"""``tessera layout``: shows what a layout would change, node by node, and whom it would disturb; and applies it."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from agent.cluster import gpulayouts
from agent.cluster.gpulayouts import GPU_LAYOUTS, Found
from agent.cluster.gpunode import GPU_NODES
from agent.config.load import parse
from cli.access.cluster import Where, cluster_options, run
from cli.evictions import asks, confirm, yes_option
from cli.fleetnodes import hardware
from cli.layout.plan import NodePlan, Seen, planned, seen
from cli.manifests import WrongInputError
from cli.naming.nearest import NearestGroup
from cli.naming.suggestions import names
from cli.printing.output import output_option, printed
from cli.words import given, servers
from inventory.layout.entries import GpuLayoutSpec, WhenBusy
from kube.client import Client
from kube.errors import NotFoundError
from kube.resources import NODES
from simulator.fleet.fleetfile import load_fleet
from simulator.reading import InputError
from yamlfile import ConfigError, YamlKind, parse_text, read_text

EXIT_REFUSED = 1
MANAGER = "tessera-cli"


class Wanted(msgspec.Struct, frozen=True):
    """The content of a layout file: a layout, and the nodes it is for (by labels; for a config file: all that are asked
    for).

    ``manifest`` is the GpuLayout as it stands in the file, None for a config file.
    """

    found: Found
    manifest: dict[str, Any] | None

    @property
    def layout(self) -> GpuLayoutSpec:
        return self.found.layout or GpuLayoutSpec()


class _Labels(msgspec.Struct):
    labels: dict[str, str] = {}
    name: str = ""


class _Node(msgspec.Struct):
    metadata: _Labels


file_option = click.option(
    "-f",
    "--file",
    "file",
    required=True,
    type=click.Path(path_type=Path),
    help="A GpuLayout manifest, or an agent's configuration file with its layout.",
)
fleet_option = click.option(
    "--fleet", type=click.Path(path_type=Path), envvar="TESSERA_FLEET", help="Plan for this fleet file's nodes instead."
)
nodes_option = click.option(
    "--node", "nodes", multiple=True, help="Only this node; may be given more than once.", shell_complete=names("nodes")
)


@click.group(cls=NearestGroup, short_help="How GPUs are cut and shared: plan a layout, apply it.")
def layout() -> None:
    """How GPUs are cut and shared, GPU by GPU: see what a layout would change, then apply it.

    \b
    Examples:
      tessera layout plan -f layout.yaml                      against the cluster, as its agents see it
      tessera layout plan -f layout.yaml --fleet fleet.yaml   from files alone
      tessera layout apply -f layout.yaml                     plan, and write the GpuLayout if nobody is in the way
    """


@layout.command("plan")
@file_option
@fleet_option
@nodes_option
@cluster_options
@output_option
def plan_command(file: Path, fleet: Path | None, nodes: tuple[str, ...], where: Where, output: str) -> None:
    """Print what would change and which pods are in the way.

    Exits with 0 where the layout would be applied, with 1 where it would be refused, with 2 where the file is wrong.

    \b
    Examples:
      tessera layout plan -f layout.yaml --node gpu-7
      tessera layout plan -f layout.yaml --fleet fleet.yaml -o json | jq '.nodes[] | select(.refused)'
    """
    wanted = _read(file)
    if fleet is not None:
        _show(_offline(wanted, fleet, nodes), output)
        return
    run(_plan(wanted, nodes, where, output))


@layout.command("apply")
@file_option
@click.option("--force", is_flag=True, help="Write it although pods are in the way: it is applied once they are gone.")
@yes_option
@cluster_options
@output_option
def apply_command(file: Path, force: bool, yes: bool, where: Where, output: str) -> None:
    """Plan, print, and write the GpuLayout. Exits with 1 and writes nothing where it would be refused.

    On a terminal it asks before a layout with whenBusy: drain evicts pods.

    \b
    Examples:
      tessera layout apply -f layout.yaml
      tessera layout apply -f layout.yaml --force      it comes into force once the pods in the way are gone
    """
    wanted = _read(file)
    if wanted.manifest is None:
        raise WrongInputError(given.agents_read_it(file))
    run(_apply(wanted, where, output, force=force, yes=yes))


def _read(file: Path) -> Wanted:
    """Read the layout file. Raises WrongInputError with one line."""
    try:
        text = read_text(file)
        root = parse_text(text, str(file), forgiving=True)
        if root.kind is YamlKind.NULL:
            raise WrongInputError(given.empty_layout(file))
        kind = root.entries["kind"].text if "kind" in root.entries else None
        if kind is not None and kind != GPU_LAYOUTS.kind:
            raise WrongInputError(given.no_layout(file, kind))
        if kind is not None:
            parse_text(text, str(file))  # the strict reader names the line of a mistake
            content = yaml.safe_load(text)
            found = gpulayouts.read(msgspec.json.encode(content))
            if found.problem:
                raise WrongInputError(given.bad_layout(file, found.problem))
            return Wanted(found, content)
        values, _ = parse(text, str(file))
    except ConfigError as wrong:
        raise WrongInputError(str(wrong)) from None
    except (yaml.YAMLError, msgspec.MsgspecError) as wrong:
        raise WrongInputError(given.bad_layout(file, " ".join(str(wrong).split()))) from None
    return Wanted(Found("", {}, values.get("gpu_layout", GpuLayoutSpec())), None)


def _offline(wanted: Wanted, fleet: Path, names: tuple[str, ...]) -> list[NodePlan]:
    try:
        loaded = load_fleet(fleet)
    except InputError as wrong:
        raise WrongInputError(str(wrong)) from None
    known = {each.name for each in loaded.nodes}
    for name in names:
        if name not in known:
            raise WrongInputError(servers.not_in_fleet(name, fleet, ", ".join(sorted(known))))
    specs = [each for each in loaded.nodes if each.name in names or not names]
    labelled = ((spec, {"kubernetes.io/hostname": spec.name, **spec.labels}) for spec in specs)
    chosen = [hardware(loaded, spec) for spec, labels in labelled if wanted.found.selects(labels)]
    return [planned(Seen(node), wanted.layout) for node in chosen]


async def _plan(wanted: Wanted, names: tuple[str, ...], where: Where, output: str) -> None:
    async with Client(where.cluster(), user_agent=MANAGER) as client:
        _show(await _online(client, wanted, names), output)


async def _apply(wanted: Wanted, where: Where, output: str, *, force: bool, yes: bool) -> None:
    async with Client(where.cluster(), user_agent=MANAGER) as client:
        plans = await _online(client, wanted, ())
        refused = any(plan.problems or (plan.refused and not force) for plan in plans)
        _print(plans, output)
        if refused:
            click.echo("not applied", err=True)
            raise SystemExit(EXIT_REFUSED)
        drained = [change for plan in plans for change in plan.changes if change.when_busy is WhenBusy.DRAIN]
        if asks(yes=yes):
            confirm(sorted({pod for change in drained for pod in change.disturbs}), what="pod")
        body = wanted.manifest
        await client.apply(GPU_LAYOUTS, wanted.found.name, body, _Node, field_manager=MANAGER, force=True)
        click.echo(f"GpuLayout {wanted.found.name} applied", err=True)


async def _online(client: Client, wanted: Wanted, names: tuple[str, ...]) -> list[NodePlan]:
    """The plans of the nodes that the layout selects and that have a GpuNode. Two layouts for one node are a problem of
    that node.
    """
    nodes, gpu_nodes, others = await asyncio.gather(
        client.list_decoded(NODES, msgspec.json.Decoder(_Node).decode),
        client.list_decoded(GPU_NODES, seen),
        _layouts(client),
    )
    labels = {node.metadata.name: node.metadata.labels for node in nodes.items}
    told = {gpu_node.node.name for gpu_node in gpu_nodes.items}
    for name in names:
        if name not in told:
            raise click.ClickException(servers.no_gpu_node(name))
    plans = []
    for gpu_node in sorted(gpu_nodes.items, key=lambda gpu_node: gpu_node.node.name):
        own = labels.get(gpu_node.node.name)
        if own is None or not wanted.found.selects(own) or (names and gpu_node.node.name not in names):
            continue
        made = planned(gpu_node, wanted.layout)
        rivals = [other.name for other in others if other.name != wanted.found.name and other.selects(own)]
        if rivals and wanted.manifest is not None:
            problem = f"the GpuLayout {', '.join(rivals)} selects this node too, expected one"
            made = msgspec.structs.replace(made, problems=(*made.problems, problem))
        plans.append(made)
    return plans


async def _layouts(client: Client) -> Iterable[Found]:
    try:
        return (await client.list_decoded(GPU_LAYOUTS, gpulayouts.read)).items
    except NotFoundError:
        return ()


def _show(plans: list[NodePlan], output: str) -> None:
    _print(plans, output)
    if any(plan.refused for plan in plans):
        raise SystemExit(EXIT_REFUSED)


def _print(plans: list[NodePlan], output: str) -> None:
    if output != "text":
        printed({"nodes": [msgspec.to_builtins(plan) | {"refused": plan.refused} for plan in plans]}, output)
        return
    if not plans:
        click.echo("no node with GPUs is selected")
    for plan in plans:
        for line in _lines(plan):
            click.echo(line)


_ENDS = {
    WhenBusy.REFUSE: "refused until they are gone",
    WhenBusy.WAIT: "waits for them, and the GPU is given to nobody else",
    WhenBusy.DRAIN: "they are evicted",
}


def _lines(made: NodePlan) -> Iterable[str]:
    if made.problems:
        yield f"{made.node}: refused"
        yield from (f"  {problem}" for problem in made.problems)
        return
    word = "refused" if made.refused else "changes" if made.changes else "nothing changes"
    yield f"{made.node}: {word}"
    for change in made.changes:
        yield f"  GPU {change.gpu}: {change.before} -> {change.after} (enforced by {change.enforcement})"
        if change.disturbs:
            yield f"    in the way: {', '.join(change.disturbs)}: {_ENDS[change.when_busy]}"
    for name in sorted({*made.before, *made.after}):
        before, after = made.before.get(name, 0), made.after.get(name, 0)
        if before != after:
            yield f"  {name}: {before} -> {after}"
