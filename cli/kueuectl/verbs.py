"""``tessera stop``, ``resume`` and ``delete`` of queues and Workloads, as ``kubectl kueue`` has them."""

from contextlib import suppress

import click

from cli.access.cluster import Where, run
from cli.access.kubeapi import dry_run_option, kube_options, named_workload, namespaced, opened, place, space_option
from cli.evictions import asks, confirm, yes_option
from cli.kueuectl.kinds import Kinds, handed_over
from cli.naming.suggestions import names, workloads
from cli.printing.output import one_line, output_option, printed
from cli.queue.policy import DRAIN, HOLD, set_policy
from cli.words import given, queues
from cli.workload.command import change, switched
from cli.workload.find import find_workload, group_pods, owner_of, uid_of
from controller.cluster.watching.kinds import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from kube.client import Client
from kube.errors import ConflictError, NotFoundError
from kube.resources import PODS, Resource


@click.group(cls=Kinds, short_help="Stop a ClusterQueue, a LocalQueue or a workload.")
def stop() -> None:
    """Stop a ClusterQueue (cq), a LocalQueue (lq) or a workload (wl), and evict what runs, as kubectl kueue stop does.

    tessera queue stop NAME lets it run. On a terminal it is told who would go, and asked.

    \b
    Examples:
      tessera stop workload bert -n team-a
      tessera stop cq research                          what runs is evicted
      tessera stop lq jobs -n team-a --keep-already-running
    """


@click.group(cls=Kinds, short_help="Resume a ClusterQueue, a LocalQueue or a workload.")
def resume() -> None:
    """Resume a ClusterQueue (cq), a LocalQueue (lq) or a workload (wl) that was stopped.

    \b
    Examples:
      tessera resume workload bert -n team-a
      tessera resume cq research
      tessera resume lq jobs -n team-a
    """


def _policy(group: click.Group, kind: str, resource: Resource) -> None:
    """Add the command ``stop KIND`` or ``resume KIND`` of queues."""
    stops = group is stop

    @click.argument("name", shell_complete=names(resource.plural))
    @dry_run_option
    @kube_options
    @output_option
    def command(
        where: Where,
        name: str,
        dry_run: str,
        output: str,
        namespace: str | None = None,
        keep_already_running: bool = False,
        yes: bool = True,
    ) -> None:
        policy = (HOLD if keep_already_running else DRAIN) if stops else "None"
        run(set_policy(where, resource, (namespace, name), policy, dry_run=dry_run, output=output, yes=yes))

    if stops:
        keep = click.option(
            "--keep-already-running", is_flag=True, help="What runs goes on; without it, it is evicted."
        )
        command = yes_option(keep(command))
    if resource.namespaced:
        command = space_option(command)
    verb, space = ("stop" if stops else "resume"), (" -n team-a" if resource.namespaced else "")
    what = "admits nothing more, and what runs is evicted" if stops else "admits again"
    line = f"{verb.capitalize()} a {resource.kind}: it {what}."
    path = "NAMESPACE/NAME" if resource.namespaced else "NAME"
    more = f"\n\ntessera queue stop {path} lets go on what runs, as --keep-already-running does here." if stops else ""
    command.__doc__ = f"{line}{more}\n\n\b\nExample:\n  tessera {verb} {kind} research{space}\n"
    group.command(kind, short_help=line)(command)


def _of_workload(group: click.Group) -> None:
    verb = "stop" if group is stop else "resume"

    @click.argument("name", metavar="WORKLOAD", callback=named_workload, shell_complete=workloads)
    @space_option
    @dry_run_option
    @kube_options
    @output_option
    def command(where: Where, name: str, namespace: str | None, dry_run: str, output: str, yes: bool = True) -> None:
        run(change(where, name, namespace, dry_run, output, switched(active=group is resume), yes=yes))

    if group is stop:
        command = yes_option(command)
    line = "Evict a workload, and try it no more." if group is stop else "Let a stopped workload wait again."
    command.__doc__ = f"{line}\n\n\b\nExample:\n  tessera {verb} workload team-a/bert\n"
    group.command("workload", short_help=line)(command)


for _group in (stop, resume):
    _policy(_group, "clusterqueue", CLUSTER_QUEUES)
    _policy(_group, "localqueue", LOCAL_QUEUES)
    _of_workload(_group)


@click.group(cls=Kinds, short_help="Delete workloads with their jobs; queues and flavors.")
def delete() -> None:
    """Delete workloads (wl) with the jobs that they stand for; other kinds as kubectl deletes them.

    On a terminal it is told who would be affected, and asked.

    \b
    Examples:
      tessera delete workload bert -n team-a            with its job
      tessera delete wl --all -n team-a --dry-run client
      tessera delete cq research
    """


handed_over(delete, "delete", ("clusterqueue", "localqueue", "resourceflavor"))


@delete.command("workload", short_help="Delete workloads with the jobs that they stand for.")
@click.argument("named", nargs=-1, metavar="[WORKLOAD]...", shell_complete=workloads)
@click.option("--all", "every", is_flag=True, help="All of the namespace.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask on a terminal before they are deleted.")
@space_option
@dry_run_option
@kube_options
@output_option
def delete_workload(
    where: Where, named: tuple[str, ...], every: bool, yes: bool, namespace: str | None, dry_run: str, output: str
) -> None:
    """Delete WORKLOADs with the jobs that they stand for: a job that stays would make its Workload anew.

    On a terminal it names them, and asks.

    \b
    Examples:
      tessera delete workload team-a/bert --yes
      tessera delete workload --all -n team-a --dry-run client
    """
    if every is bool(named):
        found = "both" if named else "neither"
        raise click.UsageError(given.workloads_or_all(found))
    for name in named:
        named_workload(click.get_current_context(), delete_workload.params[0], name)

    async def work() -> None:
        async with opened(where) as client:
            gone = await _marked(client, where, named, namespace)
            if dry_run == "none" and asks(yes=yes):
                confirm([*map(_shown, gone)], what="object", fate="would be deleted", question="Delete?")
            for (resource, space, name), uid in gone.items() if dry_run != "client" else ():
                dry = dry_run == "server"
                with suppress(NotFoundError):  # gone meanwhile, or before its Workload
                    try:
                        await client.delete(resource, name, namespace=space, uid=uid, background=True, dry_run=dry)
                    except ConflictError:
                        raise click.ClickException(queues.another_meanwhile(_shown((resource, space, name)))) from None
        if output != "text":
            items = [{"kind": resource.kind, "namespace": space, "name": name} for resource, space, name in gone]
            printed({"deleted": items, "dryRun": dry_run}, output)
            return
        dry_word = "" if dry_run == "none" else f" ({dry_run} dry run)"
        for each in gone:
            click.echo(f"{_shown(each)} deleted{dry_word}")
        if not gone:
            click.echo("No workload is found.")

    run(work())


Marked = tuple[Resource, str, str]
"""The kind, namespace and name of an object to delete."""


async def _marked(
    client: Client, where: Where, named: tuple[str, ...], namespace: str | None
) -> dict[Marked, str | None]:
    """Each job, each pod of a group, and each Workload that stands for none; with the uid that is meant."""
    if named:
        workloads = [await find_workload(client, *place(where, name, namespace)) for name in named]
    else:
        workloads = list(await namespaced(client, WORKLOADS, namespace or where.cluster().namespace))
    marked: dict[Marked, str | None] = {}
    for workload in workloads:
        space = str(workload["metadata"]["namespace"])
        if members := group_pods(workload):
            marked |= {(PODS, space, member): uid_of(workload, member) for member in members}
            continue
        owner = await owner_of(client, workload)
        if owner is not None:
            marked[owner[0], space, owner[1]] = uid_of(workload, owner[1])
        else:
            meta = workload["metadata"]
            marked[WORKLOADS, space, str(meta["name"])] = meta.get("uid")
    return marked


def _shown(marked: Marked) -> str:
    resource, space, name = marked
    return one_line(f"{'.'.join(filter(None, (resource.kind.lower(), resource.group)))}/{name} in {space}")
