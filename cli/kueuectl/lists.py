"""``tessera list``: the kinds that ``kubectl kueue list`` lists, with its columns, in all formats."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from cli.access.cluster import Where, run
from cli.access.kubeapi import all_spaces_option, kube_options, opened, place, space_option
from cli.kueuectl.kinds import Kinds
from cli.naming.suggestions import names
from cli.printing.console import Json, ago, show, titled
from cli.printing.output import FOR_PEOPLE, list_option, print_names, printed
from cli.printing.table import Column, less, prose
from cli.workload.command import list_ as workload_list
from cli.workload.find import find_workload, typed
from cli.workload.read import pods_of
from cli.workload.story import time_of
from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES
from kube.client import Selection
from kube.resources import PODS, Resource

Cells = Callable[[Json], Sequence[str]]


@click.group(cls=Kinds, short_help="List queues, workloads, flavors and the pods of a job.")
def list_() -> None:
    """List ClusterQueues (cq), LocalQueues (lq), ResourceFlavors (rf), workloads (wl) and the pods of a job.

    What queues have and use in numbers is told by tessera queue list.

    \b
    Examples:
      tessera list cq --active true
      tessera list lq -A -c research
      tessera list rf -o wide
      tessera list workload -n team-a --status pending
      tessera list pods -n team-a --for job/bert
    """


list_.add_command(workload_list, "workload")

_SELECTORS = (
    click.option("-l", "--selector", help="By labels, as kubectl takes them."),
    click.option("--field-selector", help="By fields, as kubectl takes them."),
)


def _selectable(command: Callable[..., None]) -> Callable[..., None]:
    for option in _SELECTORS:
        command = option(command)
    return command


@list_.command("clusterqueue", short_help="ClusterQueues.")
@click.option("--active", type=click.Choice(["true", "false", "*"]), default="*", help="Those that admit, or do not.")
@_selectable
@kube_options
@list_option
def cluster_queues(where: Where, active: str, selector: str | None, field_selector: str | None, output: str) -> None:
    """ClusterQueues with their cohort, and how many workloads wait and are admitted.

    \b
    Examples:
      tessera list clusterqueue --active true
      tessera list cq -o wide
    """

    def wanted(queue: Json) -> bool:
        return active == "*" or (_is_active(queue) == "True") == (active == "true")

    columns = ("name", less("cohort", 2), "pending", "admitted", "active", less("age"))
    more = (less("strategy", 4), less("stop policy", 3), prose("flavors", 5))
    run(
        _listed(
            where, CLUSTER_QUEUES, Selection(None, selector, field_selector), output, (columns, more, _queue), wanted
        )
    )


def _is_active(queue: Json) -> str:
    conditions = (queue.get("status") or {}).get("conditions") or []
    return next((str(each.get("status")) for each in conditions if each.get("type") == "Active"), "Unknown")


def _queue(queue: Json) -> Sequence[str]:
    spec = queue.get("spec") or {}
    groups = spec.get("resourceGroups") or []
    flavors = ", ".join(str(each.get("name")) for group in groups for each in group.get("flavors") or [])
    cells = (_name(queue), spec.get("cohortName") or "-", *_counts(queue), _is_active(queue), _age(queue))
    return (*cells, spec.get("queueingStrategy") or "-", spec.get("stopPolicy") or "None", flavors or "-")


def _counts(queue: Json) -> tuple[str, str]:
    status = queue.get("status") or {}
    return str(status.get("pendingWorkloads", 0)), str(status.get("admittedWorkloads", 0))


@list_.command("localqueue", short_help="LocalQueues.")
@click.option(
    "-c", "--clusterqueue", "queue", help="Those that lead to one ClusterQueue.", shell_complete=names("clusterqueues")
)
@space_option
@all_spaces_option
@_selectable
@kube_options
@list_option
def local_queues(where: Where, output: str, **given: Any) -> None:
    """LocalQueues with the ClusterQueue that they lead to, and how many workloads wait and are admitted.

    \b
    Examples:
      tessera list localqueue -n team-a
      tessera list lq -A -c research
    """

    def wanted(queue: Json) -> bool:
        return given["queue"] is None or (queue.get("spec") or {}).get("clusterQueue") == given["queue"]

    columns = ("namespace", "name", less("ClusterQueue", 2), "pending", "admitted", less("age"))
    parts = (columns, (less("stop policy", 3), less("active", 4)), _local_queue)
    run(_listed(where, LOCAL_QUEUES, _selection(where, given), output, parts, wanted))


def _selection(where: Where, given: dict[str, Any]) -> Selection:
    space = None if given["everywhere"] else given["namespace"] or where.cluster().namespace
    return Selection(space, given["selector"], given["field_selector"])


def _local_queue(queue: Json) -> Sequence[str]:
    spec = queue.get("spec") or {}
    cells = (str(queue["metadata"].get("namespace")), _name(queue), str(spec.get("clusterQueue", "-")))
    return (*cells, *_counts(queue), _age(queue), spec.get("stopPolicy") or "None", _is_active(queue))


@list_.command("resourceflavor", short_help="ResourceFlavors.")
@_selectable
@kube_options
@list_option
def resource_flavors(where: Where, selector: str | None, field_selector: str | None, output: str) -> None:
    """ResourceFlavors with the labels of their nodes.

    \b
    Examples:
      tessera list resourceflavor
      tessera list rf -o wide
    """
    parts = (("name", prose("node labels"), less("age")), (prose("node taints", 2), less("topology", 3)), _flavor)
    run(_listed(where, FLAVORS, Selection(None, selector, field_selector), output, parts, lambda _: True))


def _flavor(flavor: Json) -> Sequence[str]:
    spec = flavor.get("spec") or {}
    labels = ", ".join(f"{key}={value}" for key, value in sorted((spec.get("nodeLabels") or {}).items()))
    taints = ", ".join(
        f"{each.get('key')}={each.get('value') or ''}:{each.get('effect')}" for each in spec.get("nodeTaints") or []
    )
    return (_name(flavor), labels or "-", _age(flavor), taints or "-", spec.get("topologyName") or "-")


@list_.command("pods", short_help="The pods of a job.")
@click.option("--for", "job", required=True, metavar="TYPE/NAME", help="The job: job/bert; or workload/NAME.")
@space_option
@kube_options
@list_option
def pods(where: Where, job: str, namespace: str | None, output: str) -> None:
    """The pods of a job that is queued, whatever its kind.

    \b
    Examples:
      tessera list pods --for job/bert
      tessera list pods -n team-a --for workload/job-bert-4f1c2 -o wide
    """
    kind, name = typed(job)

    async def work() -> None:
        async with opened(where) as client:
            found = await pods_of(client, await find_workload(client, *place(where, name, namespace), kind))
        _told(PODS, found, output, (("name", "phase", less("age")), (less("node", 2), less("IP", 3)), _pod))

    run(work())


def _pod(pod: Json) -> Sequence[str]:
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    phase = str(status.get("phase") or "-")
    return (_name(pod), phase, _age(pod), spec.get("nodeName") or "-", status.get("podIP") or "-")


Columns = tuple[str | Column, ...]
Parts = tuple[Columns, Columns, Cells]
"""The columns, the further columns of ``wide``, and the cells of an object for both."""


async def _listed(
    where: Where, resource: Resource, selection: Selection, output: str, parts: Parts, wanted: Callable[[Json], bool]
) -> None:
    async with opened(where) as client:
        found = (await client.list_all(resource, Json, selection)).items
    _told(resource, filter(wanted, found), output, parts)


def _told(resource: Resource, objects: Iterable[Json], output: str, parts: Parts) -> None:
    ordered = sorted(objects, key=lambda each: (str(each["metadata"].get("namespace", "")), _name(each)))
    columns, more, cells = parts
    if output == "name":
        print_names(resource, map(_name, ordered))
    elif output not in FOR_PEOPLE:
        printed({"apiVersion": resource.api_version, "kind": f"{resource.kind}List", "items": ordered}, output)
    elif not ordered:
        click.echo(f"No {resource.kind} is found.")
    else:
        shown = (*columns, *(more if output == "wide" else ()))
        made = titled(f"{resource.kind}s", *shown)
        for each in ordered:
            made.add_row(*(str(cell) for cell in cells(each)[: len(shown)]))
        show(made, wide=output == "wide")


def _name(given: Json) -> str:
    return str(given["metadata"]["name"])


def _age(given: Json) -> str:
    created = time_of(given["metadata"].get("creationTimestamp"))
    return ago((datetime.now(UTC) - created).total_seconds()) if created is not None else "-"
