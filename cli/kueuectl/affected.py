"""The workloads and queues affected when a queue or a flavor is deleted, or a patch drains one: read with the caller's
rights.

A ClusterQueue or a ResourceFlavor that is deleted stays until nothing uses it any more, and admits nothing meanwhile.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from cli.access.cluster import SERVICE, Where, told
from cli.access.kubeapi import opened
from cli.evictions import confirm
from cli.kubectlwords import KubectlWords
from cli.options import default_kubeconfigs
from cli.printing.console import Json
from cli.workload.holding import described_now, holding, workloads_of
from cli.workload.rows import state_of
from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES
from controller.objects.workload import Workload
from kube.client import Client, Selection
from kube.errors import KubeError
from kube.resources import Resource

_KINDS: Final = {"clusterqueue": CLUSTER_QUEUES, "localqueue": LOCAL_QUEUES, "resourceflavor": FLAVORS}
_DRAINS: Final = re.compile(r"\bHoldAndDrain\b")
_STOPS: Final = re.compile(r"[\"']?\bactive[\"']?\s*:\s*false\b")
_WAITS: Final = ("Pending", "Stopped")


async def ask_before_delete(kind: str, words: KubectlWords) -> None:
    """Ask before the objects are deleted. Raises click.Abort."""
    if words.keeps:
        return
    lines = await _lines(_KINDS[kind], words, _deleted)
    confirm(lines, what="object", fate="would be affected", question="Delete?")


async def ask_before_patch(kind: str, words: KubectlWords) -> None:
    """Ask before a patch that evicts running workloads: a queue's stopPolicy, a Workload's spec.active. Raises
    click.Abort.
    """
    patch = words.patch or ""
    drains, stops = kind in _KINDS and _DRAINS.search(patch), kind == "workload" and _STOPS.search(patch)
    if not (drains or stops) or words.keeps:
        return
    if stops:
        confirm(await _running(words))
    else:
        confirm(await _lines(_KINDS[kind], words, _drained))


def _where(words: KubectlWords) -> Where:
    files = (Path(words.kubeconfig),) if words.kubeconfig else default_kubeconfigs()
    return Where(kubeconfigs=files, context=words.context, server=None, controller=SERVICE, config=None, offline=True)


async def _lines(resource: Resource, words: KubectlWords, of: "Concern") -> list[str]:
    """The lines to show. Objects that cannot be read are a line as well: the question is asked all the same."""
    if words.elsewhere:
        return ["those of another cluster or user, which are not looked at"]
    if words.file:
        return [f"what {words.file} names, which is not looked at"]
    where = _where(words)
    space = None
    if resource.namespaced and not words.everywhere:
        space = words.namespace or where.cluster().namespace
    try:
        async with opened(where) as client:
            found = await _named(client, resource, space, words)
            return [line for each in found for line in await of(client, resource, each)]
    except KubeError as failed:
        return [f"those that run, which are not known: {told(failed)}"]


async def _running(words: KubectlWords) -> list[str]:
    where = _where(words)
    async with opened(where) as client:
        names = set(words.names)
        return await holding(
            client, words.namespace or where.cluster().namespace, lambda one: one.metadata.name in names
        )


async def _named(client: Client, resource: Resource, space: str | None, words: KubectlWords) -> list[Json]:
    """The objects that are meant and exist."""
    selection = Selection(space, words.selector, words.field_selector)
    every = (await client.list_all(resource, Json, selection)).items
    chosen = words.every or words.selector is not None or words.field_selector is not None
    return [each for each in every if chosen or each["metadata"]["name"] in words.names]


Concern = Callable[[Client, Resource, Json], Awaitable[list[str]]]


async def _drained(client: Client, resource: Resource, given: Json) -> list[str]:
    belongs, space = _belongs(resource, given)
    return await holding(client, space, belongs)


async def _deleted(client: Client, resource: Resource, given: Json) -> list[str]:
    name = str(given["metadata"]["name"])
    if resource == FLAVORS:
        return [*_users(name, (await client.list_all(CLUSTER_QUEUES, Json)).items)]
    belongs, space = _belongs(resource, given)
    lines = [f"{line}: it goes on{_STAYS[resource]}" for line in await holding(client, space, belongs)]
    doors = [(space, name)]
    if resource == CLUSTER_QUEUES:
        locals_ = [each for each in (await client.list_all(LOCAL_QUEUES, Json)).items if _leads_to(each, name)]
        doors = [(str(each["metadata"]["namespace"]), str(each["metadata"]["name"])) for each in locals_]
    waiting = [each for each in await workloads_of(client, space) if state_of(each) in _WAITS]
    lines += [
        f"{described_now(each)}: it waits, and is not admitted any more"
        for each in waiting
        if (each.metadata.namespace, each.spec.queue_name) in doors
    ]
    if resource == CLUSTER_QUEUES:
        lines += [f"LocalQueue {where}/{door}: it leads nowhere then" for where, door in doors]
    return lines


_STAYS: Final = {
    CLUSTER_QUEUES: ", and the queue stays until it has ended",
    LOCAL_QUEUES: "",
}


def _belongs(resource: Resource, given: Json) -> tuple[Callable[[Workload], bool], str | None]:
    """A function that tells whether a Workload is the queue's, and the namespace of these Workloads."""
    name, space = str(given["metadata"]["name"]), given["metadata"].get("namespace")
    if resource == CLUSTER_QUEUES:
        return lambda one: one.status.admission is not None and one.status.admission.cluster_queue == name, None
    return lambda one: one.spec.queue_name == name, space


def _leads_to(local: Json, name: str) -> bool:
    return bool((local.get("spec") or {}).get("clusterQueue") == name)


def _users(flavor: str, queues: Iterable[Json]) -> Iterator[str]:
    for queue in queues:
        groups = (queue.get("spec") or {}).get("resourceGroups") or ()
        names = {each.get("name") for group in groups for each in group.get("flavors") or ()}
        if flavor in names:
            yield f"ClusterQueue {queue['metadata']['name']}: it uses the flavor, which stays until it does not"
