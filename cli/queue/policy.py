"""Sets whether a queue admits: its ``stopPolicy``, which ``tessera queue`` and ``tessera stop`` write.

``tessera queue stop`` holds: running workloads go on. ``tessera stop cq`` drains, as ``kubectl kueue stop`` does. Each
names the other.
"""

import click

from cli.access.cluster import Where, is_kind_missing
from cli.access.kubeapi import MANAGER, opened
from cli.evictions import asks, confirm
from cli.naming.meant import meant
from cli.printing.console import Json, aside
from cli.printing.output import printed
from cli.words import queues as say
from cli.workload.holding import holding
from controller.objects.workload import Workload
from kube.client import Client
from kube.errors import NotFoundError
from kube.resources import Resource

HOLD, DRAIN = "Hold", "HoldAndDrain"


async def set_policy(
    where: Where,
    resource: Resource,
    named: tuple[str | None, str],
    policy: str,
    *,
    dry_run: str,
    output: str,
    yes: bool = True,
) -> None:
    """Set the policy of a queue. ``named``: namespace and name; no namespace is the context's where the kind has
    namespaces. Without ``yes`` it asks on a terminal before running workloads are evicted.
    """
    space, name = named
    if resource.namespaced:
        space = space or where.cluster().namespace
    shown = f"{space}/{name}" if space else name
    async with opened(where) as client:
        try:
            before = await client.get(resource, name, Json, namespace=space)
            if policy == DRAIN and dry_run == "none" and asks(yes=yes):
                confirm(await _leaving(client, resource, space, name), f"{_held(shown)} evicts nobody.")
            if dry_run != "client":
                body, dry = {"spec": {"stopPolicy": policy}}, dry_run == "server"
                await client.merge_patch(
                    resource, name, body, Json, namespace=space, field_manager=MANAGER, dry_run=dry
                )
        except NotFoundError as failed:
            if is_kind_missing(failed):
                raise
            near = await meant(client, resource, name, space)
            raise click.ClickException(say.none_of_that_name(shown, resource.kind) + near) from None
    was = (before.get("spec") or {}).get("stopPolicy") or "None"
    if output != "text":
        told = {"kind": resource.kind, "name": shown, "stopPolicy": policy, "before": was}
        printed(told | ({} if dry_run == "none" else {"dryRun": dry_run}), output)
        return
    dry_word = "" if dry_run == "none" else f" (dry run: {dry_run})"
    change = f" (was {was})" if was != policy else " already"
    click.echo(f"{resource.kind} {shown}: stopPolicy {policy}{change}{dry_word}")
    if policy == HOLD:
        aside(f"what runs goes on; {_drained(resource, space, name)} evicts it, too")


def _held(shown: str) -> str:
    """The command that stops the queue and lets running workloads go on."""
    return f"tessera queue stop {shown}"


def _drained(resource: Resource, space: str | None, name: str) -> str:
    return f"tessera stop lq {name} -n {space}" if resource.namespaced else f"tessera stop cq {name}"


async def _leaving(client: Client, resource: Resource, space: str | None, name: str) -> list[str]:
    """The workloads that hold quota by the queue."""

    def by_local(workload: Workload) -> bool:
        return workload.spec.queue_name == name

    def by_cluster(workload: Workload) -> bool:
        return workload.status.admission is not None and workload.status.admission.cluster_queue == name

    return await holding(client, space, by_local if resource.namespaced else by_cluster)
