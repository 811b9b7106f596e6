"""``tessera remediation``: shows the repairs of GPUs and what would be done now, and gives a person's orders."""

from datetime import UTC, datetime
from typing import Final

import click

from cli.access.cluster import Where, awaited, is_kind_missing, run, told
from cli.access.gpunodes_shell import list_gpu_nodes
from cli.access.kubeapi import MANAGER, kube_options, opened
from cli.naming.meant import meant_or_there
from cli.naming.nearest import NearestGroup
from cli.naming.suggestions import gpus_of_node, names
from cli.options import Duration
from cli.printing.console import Json, aside, patience
from cli.printing.output import FOR_PEOPLE, output_option, printed, table_option
from cli.remediation import order_shell, tables
from cli.remediation.budgets_shell import read_guards
from cli.remediation.repairs import BreakerRow, FlavorBreaker, Hindrances, plans, rows
from cli.words import remediation as say
from controller.cluster.watching.kinds import FLAVORS, GPU_NODES, NODES
from controller.objects.decode import GpuNode
from inventory.api.names import (
    NO_FLAVOR,
    NVSENTINEL_MANAGED,
    REMEDIATION_BREAKER,
    REMEDIATION_TRIPPED,
    REPAIR_BREAKER,
    REPAIR_BREAKER_TRIPPED,
)
from kube.client import Client, Selection
from kube.errors import KubeError, NotFoundError
from kube.objects import Metadata

_ANSWER_S: Final = 60.0

nodes_option = click.option(
    "--node",
    "nodes",
    multiple=True,
    help="Only this node; may be given more than once.",
    shell_complete=names("gpunodes"),
)


@click.group(cls=NearestGroup, short_help="Repairs of GPUs: what is done and why not; orders of people.")
def remediation() -> None:
    """Repairs of GPUs over all nodes: what is done, what would be done now and why not; and a person's orders.

    \b
    Examples:
      tessera remediation list                   every GPU in repair, with what it waits for
      tessera remediation plan                   what would be done now about each GPU that is not well
      tessera remediation start gpu-7 3          repair GPU 3 of node gpu-7 now
      tessera remediation return gpu-7 3         give a retired GPU back
      tessera remediation resume h100            let the repairs of a flavor go on after its breaker tripped
    """


@remediation.command("list", short_help="Every GPU in repair, with what it waits for.")
@nodes_option
@kube_options
@table_option
def list_(where: Where, nodes: tuple[str, ...], output: str) -> None:
    """Every GPU in repair over all nodes: state, since when, which attempt, what is waited for, and what comes next;
    the disruption budgets that refuse a drain now; and each breaker that has tripped.

    \b
    Examples:
      tessera remediation list
      tessera remediation list --node gpu-7 -o wide
      tessera remediation list -o json | jq '.repairs[] | select(.state == "RebootWanted") | .node'
    """

    async def work() -> None:
        gpu_nodes, notes = await _read(where, nodes)
        async with opened(where) as client:
            breakers = await _breakers(client, notes)
            guards = await read_guards(client, gpu_nodes, notes)
            hindrances = await _hindrances(client, notes) if any(node.status.repairs for node in gpu_nodes) else None
        now = datetime.now(UTC)
        repairs = [row for node in gpu_nodes for row in rows(node, now, guards, hindrances)]
        if output in FOR_PEOPLE:
            tables.show_repairs(repairs, now, wide=output == "wide")
            tables.show_breakers(breakers)
        else:
            printed({"repairs": repairs, "breakers": breakers, "notes": notes}, output)

    run(work())


@remediation.command("plan", short_help="What would be done now about each GPU that is not well, and why not.")
@nodes_option
@kube_options
@table_option
def plan(where: Where, nodes: tuple[str, ...], output: str) -> None:
    """What would be done now about each GPU that has failed, is suspect or in repair; or why nothing is.

    Nothing is written. The answer is from GpuNodes, the breakers that flavors show, labels of nodes, and the disruption
    budgets of pods that are to leave: an agent also asks its kubelet and looks for processes that have the GPU open,
    immediately before a reset.

    \b
    Examples:
      tessera remediation plan
      tessera remediation plan --node gpu-7 -o json | jq '.gpus[] | select(.isDue | not) | .says'
    """

    async def work() -> None:
        gpu_nodes, notes = await _read(where, nodes)
        async with opened(where) as client:
            hindrances = await _hindrances(client, notes)
            guards = await read_guards(client, gpu_nodes, notes)
        planned = [row for node in gpu_nodes for row in plans(node, datetime.now(UTC), hindrances, guards)]
        if output in FOR_PEOPLE:
            tables.show_plans(planned, wide=output == "wide")
        else:
            printed({"gpus": planned, "notes": notes}, output)

    run(work())


async def _read(where: Where, nodes: tuple[str, ...]) -> tuple[list[GpuNode], list[str]]:
    """The GpuNodes by name, and a note for each that cannot be read. Raises click.ClickException for a node that has
    none.
    """
    notes: list[str] = []
    async with opened(where) as client:
        every = await list_gpu_nodes(client, notes)
        known = {each.metadata.name for each in every}
        for name in nodes:
            if name not in known:
                raise click.ClickException(say.no_gpu_node(name) + await meant_or_there(client, GPU_NODES, name))
    for note in notes:
        aside(note)
    wanted = [each for each in every if not nodes or each.metadata.name in nodes]
    return sorted(wanted, key=lambda each: each.metadata.name), notes


async def _hindrances(client: Client, notes: list[str]) -> Hindrances:
    """What Nodes, ResourceFlavors and GpuNodes say about grants; a note where they may not be read."""
    try:
        unmanaged = await _names(client, f"{NVSENTINEL_MANAGED}=false")
        flavors = await _flavors(client)
        tripped: dict[str, str] = {}
        for flavor in flavors:
            if flavor.since is not None:
                labels = ",".join(f"{key}={value}" for key, value in flavor.node_labels.items())
                tripped |= dict.fromkeys(await _names(client, labels), flavor.name)
        if await _shown_by(client) is not None:
            for node in (await client.list_all(NODES, Metadata)).items:
                labelled = node.metadata.labels.items()
                if not any(flavor.node_labels.items() <= labelled for flavor in flavors):
                    tripped[node.metadata.name] = NO_FLAVOR
    except KubeError as failed:
        notes.append(f"what keeps repairs from being granted is not known: {told(failed)}")
        aside(notes[-1])
        return Hindrances()
    return Hindrances(unmanaged=frozenset(unmanaged), tripped=tripped)


async def _breakers(client: Client, notes: list[str]) -> list[BreakerRow]:
    """The breakers that have tripped, as flavors show them, and a GpuNode that of the nodes of none; a note where they
    may not be read.
    """
    try:
        tripped = [BreakerRow(flavor=each.name, since=each.since) for each in await _flavors(client) if each.since]
        shows = await _shown_by(client)
    except KubeError as failed:
        notes.append(f"whether a breaker of repairs has tripped is not known: {told(failed)}")
        aside(notes[-1])
        return []
    if shows is not None:
        tripped.append(BreakerRow(flavor=NO_FLAVOR, since=shows.metadata.annotations[REPAIR_BREAKER_TRIPPED]))
    return sorted(tripped, key=lambda each: each.flavor)


async def _flavors(client: Client) -> list[FlavorBreaker]:
    return [
        FlavorBreaker(
            name=flavor["metadata"]["name"],
            node_labels=(flavor.get("spec") or {}).get("nodeLabels") or {},
            since=(flavor["metadata"].get("annotations") or {}).get(REMEDIATION_TRIPPED),
        )
        for flavor in (await client.list_all(FLAVORS, Json)).items
    ]


async def _shown_by(client: Client) -> Metadata | None:
    """The GpuNode that shows the breaker of the nodes of no flavor; None where that has not tripped."""
    found = (await client.list_all(GPU_NODES, Metadata)).items
    return next((each for each in found if REPAIR_BREAKER_TRIPPED in each.metadata.annotations), None)


async def _names(client: Client, labels: str) -> list[str]:
    """The Nodes with these labels."""
    found = await client.list_all(NODES, Metadata, Selection(label_selector=labels))
    return [node.metadata.name for node in found.items]


# -- orders


def _order(name: str, line: str, text: str) -> click.Command:
    """A command that gives the order ``name``."""

    @click.argument("node", shell_complete=names("gpunodes"))
    @click.argument("gpu", shell_complete=gpus_of_node)
    @click.option("--no-wait", is_flag=True, help="Do not wait for the agent's answer.")
    @click.option(
        "--timeout", type=Duration(), default=_ANSWER_S, help="Wait for the answer so long (30s, 5m); else 1m."
    )
    @click.option("--replace", is_flag=True, help="Though somebody's other order waits for its answer.")
    @kube_options
    @output_option
    def command(where: Where, node: str, gpu: str, no_wait: bool, timeout: float, replace: bool, output: str) -> None:
        timeout_s = None if no_wait else timeout
        run(_give(where, node, gpu, name, output, timeout_s=timeout_s, replace=replace), patiently=False)

    return click.command(name, short_help=line, help=text)(command)


_HOW: Final = "GPU is an index or a UUID. The order is an annotation of the GpuNode, and the node's agent answers it."

for _command in (
    _order(
        "start",
        "Repair a GPU now.",
        f"""Repair GPU of NODE now, though no fault asks for it: it is reset once nobody has it, and verified.

        {_HOW}

        \b
        Examples:
          tessera remediation start gpu-7 3
          tessera remediation start gpu-7 3 --no-wait
        """,
    ),
    _order(
        "stop",
        "End the repair of a GPU.",
        f"""End the repair of GPU of NODE, until its faults are gone and come again. Refused during its reset.

        {_HOW}

        \b
        Example:
          tessera remediation stop gpu-7 3
        """,
    ),
    _order(
        "retire",
        "Take a GPU out of service until a person gives it back.",
        f"""Take GPU of NODE out of service: no new container gets it until tessera remediation return.

        {_HOW}

        \b
        Example:
          tessera remediation retire gpu-7 GPU-8d5a1c52-6f0c-4a57-9b0b-0d2d5a7c1f10
        """,
    ),
    _order(
        "return",
        "Give a retired GPU back.",
        f"""Give GPU of NODE, which is retired, back into service. Its faults are counted anew.

        {_HOW}

        \b
        Example:
          tessera remediation return gpu-7 3
        """,
    ),
):
    remediation.add_command(_command)


async def _give(
    where: Where, node: str, gpu: str, order: str, output: str, *, timeout_s: float | None, replace: bool
) -> None:
    async with opened(where) as client:
        async with patience(awaited):
            made = await order_shell.write(client, node, gpu, order, replace=replace)
        answer = None if timeout_s is None else await order_shell.answered(client, made, timeout_s)
    sentence = say.ordered(made.name, order) if answer is None else say.answered(made.name, order, answer.answer)
    refused = answer is not None and answer.refused
    if output == "text":
        if refused:
            raise click.ClickException(sentence)
        click.echo(sentence)
        return
    done = {"node": node, "index": made.device.index, "uuid": made.device.uuid, "order": order}
    printed(
        {**done, "answer": None if answer is None else answer.answer, "refused": refused, "message": sentence}, output
    )
    click.get_current_context().exit(int(refused))


@remediation.command(short_help="Let the repairs of a flavor go on after its breaker tripped.")
@click.argument("flavor", shell_complete=names("resourceflavors"))
@kube_options
@output_option
def resume(where: Where, flavor: str, output: str) -> None:
    """Let the repairs of FLAVOR's GPUs go on, whose breaker has tripped: too many of them were in repair at a time.

    The order is an annotation of the ResourceFlavor, which the controller takes off. The nodes that no ResourceFlavor
    selects have one breaker together, named no-flavor.tessera.dev; the GpuNode that shows it takes the annotation.

    \b
    Examples:
      tessera remediation resume h100
      tessera remediation resume no-flavor.tessera.dev
    """
    run(_resume(where, flavor, output))


async def _resume(where: Where, flavor: str, output: str) -> None:
    async with opened(where) as client:
        if flavor == NO_FLAVOR:
            await _resume_without_flavor(client)
        else:
            await _annotate(client, flavor)
    sentence = say.resumed_without_flavor() if flavor == NO_FLAVOR else say.resumed(flavor)
    if output == "text":
        click.echo(sentence)
    else:
        printed({"flavor": flavor, "message": sentence}, output)


async def _annotate(client: Client, flavor: str) -> None:
    body = {"metadata": {"annotations": {REMEDIATION_BREAKER: "resume"}}}
    try:
        await client.merge_patch(FLAVORS, flavor, body, Json, field_manager=MANAGER)
    except NotFoundError as failed:
        if is_kind_missing(failed):
            raise
        raise click.ClickException(say.no_flavor(flavor) + await meant_or_there(client, FLAVORS, flavor)) from None


async def _resume_without_flavor(client: Client) -> None:
    shows = await _shown_by(client)
    if shows is None:
        raise click.ClickException(say.nothing_to_resume(NO_FLAVOR))
    body = {"metadata": {"annotations": {REPAIR_BREAKER: "resume"}}}
    await client.merge_patch(GPU_NODES, shows.metadata.name, body, Json, field_manager=MANAGER)
