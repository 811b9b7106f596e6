"""``tessera workload``: look at workloads, stop and resume them, move them, raise them."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import click

from cli.access.cluster import Where, run
from cli.access.kubeapi import (
    MANAGER,
    all_spaces_option,
    dry_run_option,
    kube_options,
    named_workload,
    opened,
    place,
    space_option,
)
from cli.evictions import asks, confirm, yes_option
from cli.naming.meant import meant
from cli.naming.nearest import NearestGroup
from cli.naming.suggestions import names, workloads
from cli.printing.console import Json
from cli.printing.output import FOR_PEOPLE, list_option, output_option, print_names, printed, table_option
from cli.words import queues as say
from cli.workload import read, tables
from cli.workload.changes import Change, RefusedError, activated, moved, raised
from cli.workload.find import find_workload, owner_of, typed
from cli.workload.holding import described, holds_quota
from cli.workload.rows import STATES, chosen, requests, state_of
from controller.cluster.watching.kinds import LOCAL_QUEUES, WORKLOAD_CLASSES, WORKLOADS
from controller.objects.decode import decode
from controller.objects.queues import WorkloadPriorityClass
from controller.objects.workload import Workload
from kube.client import Client, Selection
from kube.errors import ForbiddenError, NotFoundError

_STATES: Final = ("all", *(state.lower() for state in STATES))

Command = Callable[..., None]
Choose = Callable[[Client, Workload, Json], Awaitable[Change]]
"""A function to the change of a Workload, which it gets in its typed form and as the API server has it. Raises
RefusedError.
"""


@click.group(cls=NearestGroup, short_help="Look at workloads; stop, resume, move and raise them.")
def workload() -> None:
    """Look at workloads, stop and resume them, move them to another queue, raise them by a priority class.

    WORKLOAD is a Workload or a job, NAME or NAMESPACE/NAME. All is done with the caller's own rights.

    \b
    Examples:
      tessera workload list -A                            who waits and who runs, in all namespaces
      tessera workload show team-a/bert                   one workload: what it asks for, has, and where its pods are
      tessera workload story bert                         its time line
      tessera workload stop bert                          evict it, and try it no more
      tessera workload resume bert
      tessera workload move bert --to big-jobs            to another LocalQueue, while it waits
      tessera workload raise bert --class training-high   by a WorkloadPriorityClass
    """


def _argument(command: Command) -> Command:
    argument = click.argument("name", metavar="WORKLOAD", callback=named_workload, shell_complete=workloads)
    return argument(space_option(command))


def _changing(command: Command) -> Command:
    """A decorator with the argument and options of every command that changes a Workload."""
    return _argument(dry_run_option(kube_options(output_option(command))))


@workload.command("list", short_help="Workloads with their job, queue, state and age.")
@space_option
@all_spaces_option
@click.option("-c", "--clusterqueue", help="Those of one ClusterQueue.", shell_complete=names("clusterqueues"))
@click.option("-q", "--localqueue", help="Those of one LocalQueue.", shell_complete=names("localqueues"))
@click.option(
    "--status", "states", multiple=True, type=click.Choice(_STATES, case_sensitive=False), help="May be repeated."
)
@click.option("-l", "--selector", help="By labels, as kubectl takes them.")
@click.option("--field-selector", help="By fields, as kubectl takes them.")
@click.option(
    "--for", "job", metavar="TYPE/NAME", help="The one of this job: job/bert, or pytorchjob.kubeflow.org/bert."
)
@kube_options
@list_option
def list_(where: Where, output: str, **given: Any) -> None:
    """Workloads with their job, queue, state, place in the queue, run time and age.

    The place is told where the visibility API is served. -o json gives the objects.

    \b
    Examples:
      tessera workload list
      tessera workload list -A --status pending -o wide
      tessera workload list -n team-a -c research --for job/bert
      tessera workload list -A -o json | jq '.items[].metadata.name'
    """
    run(_list(where, output, given))


async def _list(where: Where, output: str, given: dict[str, Any]) -> None:
    space = None if given["everywhere"] else given["namespace"] or where.cluster().namespace
    selection = Selection(space, given["selector"], given["field_selector"])
    states = () if "all" in given["states"] else given["states"]
    async with opened(where) as client:
        listed = await read.listed(client, selection)
    rows = chosen(
        listed.rows, cluster_queue=given["clusterqueue"], local_queue=given["localqueue"], states=tuple(states)
    )
    if given["job"] is not None:
        kind, name = typed(given["job"])
        rows = [each for each in rows if (each.job_kind.lower(), each.job_name) == (kind, name)]
    if output in FOR_PEOPLE:
        tables.show_list(rows, everywhere=space is None, wide=output == "wide")
    elif output == "name":
        print_names(WORKLOADS, (each.key for each in rows))
    else:
        items = [listed.objects[each.key] for each in rows]
        printed({"apiVersion": WORKLOADS.api_version, "kind": "WorkloadList", "items": items}, output)


@workload.command(short_help="One workload: what it asks for, has, and where its pods are.")
@_argument
@kube_options
@table_option
def show(where: Where, name: str, namespace: str | None, output: str) -> None:
    """One workload: its job, what it asks for, its state and conditions, what it was given, and its pods.

    Why it waits, in numbers, is told by tessera explain.

    \b
    Examples:
      tessera workload show team-a/bert
      tessera workload show bert -o json | jq .pods
    """

    async def work() -> None:
        async with opened(where) as client:
            given = await find_workload(client, *place(where, name, namespace))
            typed = decode(given, Workload)
            pods = await read.pods_of(client, given)
        body = {"state": state_of(typed), "requests": requests(typed), "workload": given, "pods": pods}
        if output not in FOR_PEOPLE:
            printed(body, output)
        else:
            tables.show_one(typed, pods, wide=output == "wide")

    run(work())


@workload.command(short_help="The time line of one workload.")
@_argument
@kube_options
@table_option
def story(where: Where, name: str, namespace: str | None, output: str) -> None:
    """The time line of WORKLOAD: what its conditions, checks, job, pods and Events say, the oldest first.

    Events are kept by the API server for an hour, unless it is told otherwise; conditions say when they last changed.

    \b
    Examples:
      tessera workload story team-a/bert
      tessera workload story bert -o json | jq -r '.story[].what'
    """

    async def work() -> None:
        async with opened(where) as client:
            given = await find_workload(client, *place(where, name, namespace))
            moments = await read.told(client, given)
        key = f"{given['metadata'].get('namespace')}/{given['metadata']['name']}"
        if output not in FOR_PEOPLE:
            printed({"workload": key, "story": moments}, output)
        else:
            tables.show_story(key, moments, wide=output == "wide")

    run(work())


@workload.command(short_help="Evict a workload, and try it no more until it is resumed.")
@yes_option
@_changing
def stop(where: Where, name: str, namespace: str | None, dry_run: str, output: str, yes: bool) -> None:
    """Stop WORKLOAD: spec.active becomes false. One that runs is evicted; none is tried before it is resumed.

    On a terminal it asks before it evicts one that runs.

    \b
    Examples:
      tessera workload stop team-a/bert
      tessera workload stop bert --dry-run server
    """
    run(change(where, name, namespace, dry_run, output, switched(active=False), yes=yes))


@workload.command(short_help="Let a stopped workload wait in its queue again.")
@_changing
def resume(where: Where, name: str, namespace: str | None, dry_run: str, output: str) -> None:
    """Resume WORKLOAD: spec.active becomes true, and it waits in its queue again.

    \b
    Example:
      tessera workload resume team-a/bert
    """
    run(change(where, name, namespace, dry_run, output, switched(active=True)))


@workload.command(short_help="Put a workload that waits into another LocalQueue.")
@click.option(
    "--to",
    "queue",
    required=True,
    metavar="LOCALQUEUE",
    help="A LocalQueue of the same namespace.",
    shell_complete=names("localqueues"),
)
@_changing
def move(where: Where, name: str, namespace: str | None, queue: str, dry_run: str, output: str) -> None:
    """Put WORKLOAD into another LocalQueue of its namespace, by the label of its job; it is at the queue's end there.

    Only while it waits: one that holds quota is stopped first, moved, and resumed.

    \b
    Example:
      tessera workload move team-a/bert --to big-jobs
    """

    async def there(client: Client, typed: Workload, given: Json) -> Change:
        try:
            await client.get(LOCAL_QUEUES, queue, Json, namespace=typed.metadata.namespace)
        except ForbiddenError:
            pass  # the right to see queues is not that to use them
        except NotFoundError:
            near = await meant(client, LOCAL_QUEUES, queue, typed.metadata.namespace)
            raise click.ClickException(say.no_queue_to_move_to(queue, typed.metadata.namespace) + near) from None
        return moved(typed, await owner_of(client, given), queue)

    run(change(where, name, namespace, dry_run, output, there))


@workload.command("raise", short_help="Give a workload another priority by a class.")
@click.option(
    "--class",
    "class_",
    required=True,
    metavar="NAME",
    help="A WorkloadPriorityClass.",
    shell_complete=names("workloadpriorityclasses"),
)
@_changing
def raise_(where: Where, name: str, namespace: str | None, class_: str, dry_run: str, output: str) -> None:
    """Give WORKLOAD the priority of a WorkloadPriorityClass, higher or lower, by the label of its job.

    \b
    Examples:
      tessera workload raise team-a/bert --class training-high
      kubectl get workloadpriorityclasses; tessera workload raise bert --class development
    """

    async def under(client: Client, typed: Workload, given: Json) -> Change:
        try:
            priority_class = decode(await client.get(WORKLOAD_CLASSES, class_, Json), WorkloadPriorityClass)
        except NotFoundError:
            near = await meant(client, WORKLOAD_CLASSES, class_)
            raise click.ClickException(say.no_priority_class(class_) + near) from None
        return raised(typed, await owner_of(client, given), priority_class)

    run(change(where, name, namespace, dry_run, output, under))


def switched(*, active: bool) -> Choose:
    async def chosen_change(_client: Client, typed: Workload, _given: Json) -> Change:
        return activated(typed, active=active)

    return chosen_change


async def change(
    where: Where,
    name: str,
    namespace: str | None,
    dry_run: str,
    output: str,
    choose: Choose,
    *,
    yes: bool = True,
) -> None:
    """Find the Workload, make the change that ``choose`` chooses, and print it. Without ``yes`` it asks on a terminal
    before a Workload is evicted.
    """
    async with opened(where) as client:
        given = await find_workload(client, *place(where, name, namespace))
        typed = decode(given, Workload)
        try:
            wanted = await choose(client, typed, given)
        except RefusedError as refused:
            raise click.ClickException(str(refused)) from None
        space = typed.metadata.namespace
        if dry_run == "none" and holds_quota(typed) and asks(yes=yes):
            confirm([described(typed, datetime.now(UTC))])
        if dry_run != "client":
            dry = dry_run == "server"
            await client.merge_patch(
                wanted.resource, wanted.name, wanted.patch, Json, namespace=space, field_manager=MANAGER, dry_run=dry
            )
    sentence = wanted.said + ("" if dry_run == "none" else f" (dry run: {dry_run})")
    if output != "text":
        what = {"kind": wanted.resource.kind, "name": f"{space}/{wanted.name}", "patch": wanted.patch}
        printed({"workload": typed.key, **what, "dryRun": dry_run, "message": sentence}, output)
    else:
        click.echo(sentence)
