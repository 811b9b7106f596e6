"""``tessera create``: ClusterQueues, LocalQueues and ResourceFlavors, as ``kubectl kueue create`` makes them."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cli.access.cluster import Where, run
from cli.access.kubeapi import dry_run_option, kube_options, opened, space_option
from cli.access.spaces import namespace_told
from cli.kueuectl import bodies
from cli.kueuectl.kinds import Kinds
from cli.naming.meant import meant
from cli.naming.suggestions import names
from cli.printing.console import Json
from cli.printing.output import output_option, printed
from cli.words import queues as say
from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES
from kube.client import Client
from kube.errors import ForbiddenError, NotFoundError
from kube.resources import Resource

T = TypeVar("T")


@click.group(cls=Kinds, short_help="Create a ClusterQueue, a LocalQueue or a ResourceFlavor.")
def create() -> None:
    """Create a ClusterQueue (cq), a LocalQueue (lq) or a ResourceFlavor (rf).

    \b
    Examples:
      tessera create rf a100 --node-labels nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB
      tessera create cq research --cohort gpus --nominal-quota "a100:cpu=96;nvidia.com/gpu=8"
      tessera create lq jobs -n team-a -c research
    """


def _read(option: str, parse: Callable[..., T], *given: Any) -> T:
    """The value that ``parse`` makes of the words; its errors become usage errors of the option."""
    try:
        return parse(*given)
    except ValueError as wrong:
        raise click.UsageError(str(wrong) if str(wrong).startswith("--") else f"{option}: {wrong}") from None


@create.command("clusterqueue", short_help="Create a ClusterQueue with its quotas.")
@click.argument("name")
@click.option("--cohort", help="The cohort that it borrows from and lends to.", shell_complete=names("cohorts"))
@click.option(
    "--queuing-strategy",
    type=click.Choice(["StrictFIFO", "BestEffortFIFO"]),
    default="BestEffortFIFO",
    show_default=True,
    help="Whether the first that waits holds the others back.",
)
@click.option("--namespace-selector", multiple=True, metavar="KEY=VALUE", help="Of these namespaces; else of all.")
@click.option(
    "--reclaim-within-cohort",
    type=click.Choice(["Never", "LowerPriority", "Any"]),
    default="Never",
    show_default=True,
    help="Whether it preempts those who borrow its quota.",
)
@click.option(
    "--preemption-within-cluster-queue",
    type=click.Choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
    default="Never",
    show_default=True,
    help="Whether it preempts its own.",
)
@click.option("--nominal-quota", multiple=True, metavar="QUOTA", help="FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT")
@click.option("--borrowing-limit", multiple=True, metavar="QUOTA", help="The same, of what may be borrowed.")
@click.option("--lending-limit", multiple=True, metavar="QUOTA", help="The same, of what may be lent.")
@dry_run_option
@kube_options
@output_option
def cluster_queue(where: Where, name: str, dry_run: str, output: str, **given: Any) -> None:
    """Create the ClusterQueue NAME. Options that take a QUOTA may be repeated, flavor by flavor.

    \b
    Examples:
      tessera create clusterqueue research
      tessera create cq research --cohort gpus --nominal-quota "a100:cpu=96;nvidia.com/gpu=8" --dry-run server
      tessera create cq research --nominal-quota "a100:nvidia.com/gpu=8" --borrowing-limit "a100:nvidia.com/gpu=4"
    """
    limits = [
        _read(option, bodies.quotas, given[key])
        for option, key in (
            ("--nominal-quota", "nominal_quota"),
            ("--borrowing-limit", "borrowing_limit"),
            ("--lending-limit", "lending_limit"),
        )
    ]
    spec: Json = {
        "queueingStrategy": given["queuing_strategy"],
        "preemption": {
            "reclaimWithinCohort": given["reclaim_within_cohort"],
            "withinClusterQueue": given["preemption_within_cluster_queue"],
        },
        "resourceGroups": _read("--nominal-quota", bodies.groups, *limits),
    }
    if given["cohort"]:
        spec["cohortName"] = given["cohort"]
    selector = _read("--namespace-selector", bodies.pairs, given["namespace_selector"])
    run(_made(where, CLUSTER_QUEUES, bodies.cluster_queue(name, spec, selector), dry_run, output))


@create.command("localqueue", short_help="Create a LocalQueue that leads to a ClusterQueue.")
@click.argument("name")
@click.option(
    "-c",
    "--clusterqueue",
    "queue",
    required=True,
    help="The ClusterQueue that it leads to.",
    shell_complete=names("clusterqueues"),
)
@click.option("-i", "--ignore-unknown-cq", is_flag=True, help="Though there is no such ClusterQueue.")
@space_option
@dry_run_option
@kube_options
@output_option
def local_queue(
    where: Where, name: str, queue: str, ignore_unknown_cq: bool, namespace: str | None, dry_run: str, output: str
) -> None:
    """Create the LocalQueue NAME.

    \b
    Examples:
      tessera create localqueue jobs -n team-a -c research
      tessera create lq jobs -c research --ignore-unknown-cq
    """

    async def work() -> None:
        body = bodies.local_queue(name, namespace or where.cluster().namespace, queue)
        if not ignore_unknown_cq:
            async with opened(where) as client:
                await _known(client, queue)
        await _made(where, LOCAL_QUEUES, body, dry_run, output)

    run(work())


async def _known(client: Client, queue: str) -> None:
    try:
        await client.get(CLUSTER_QUEUES, queue, Json)
    except ForbiddenError:
        return  # an account that may not see ClusterQueues may still make LocalQueues
    except NotFoundError:
        near = await meant(client, CLUSTER_QUEUES, queue)
        raise click.ClickException(say.no_cluster_queue_yet(queue) + near) from None


@create.command("resourceflavor", short_help="Create a ResourceFlavor.")
@click.argument("name")
@click.option("--node-labels", multiple=True, metavar="KEY=VALUE", help="Of the nodes that are of this flavor.")
@click.option("--node-taints", multiple=True, metavar="KEY=VALUE:EFFECT", help="Of these nodes.")
@click.option("--tolerations", multiple=True, metavar="KEY=VALUE:EFFECT", help="Added to pods of this flavor.")
@dry_run_option
@kube_options
@output_option
def resource_flavor(where: Where, name: str, dry_run: str, output: str, **given: Any) -> None:
    """Create the ResourceFlavor NAME. Options may be repeated, or have several values behind commas.

    \b
    Examples:
      tessera create resourceflavor spot --node-labels cloud.example.com/spot=true
      tessera create rf spot --node-taints spot=true:NoSchedule --tolerations spot=true:NoSchedule
    """
    body = bodies.flavor(
        name,
        _read("--node-labels", bodies.pairs, given["node_labels"]),
        _read("--node-taints", bodies.taints, given["node_taints"]),
        _read("--tolerations", bodies.tolerations, given["tolerations"]),
    )
    run(_made(where, FLAVORS, body, dry_run, output))


async def _made(where: Where, resource: Resource, body: Json, dry_run: str, output: str) -> None:
    made = body
    if dry_run != "client":
        async with opened(where) as client:
            space = body["metadata"].get("namespace")
            async with namespace_told(client, "--namespace", space or ""):
                made = await client.create(resource, body, Json, namespace=space, dry_run=dry_run == "server")
    if output != "text":
        printed(made, output)
        return
    dry = "" if dry_run == "none" else f" ({dry_run} dry run)"
    click.echo(f"{resource.kind.lower()}.{resource.group}/{body['metadata']['name']} created{dry}")
