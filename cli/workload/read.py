"""Reads Workloads and the objects that belong to them from the API server with the caller's rights."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from cli.access.kubeapi import namespaced
from cli.printing.console import Json, aside
from cli.workload.find import group_pods, owner_of
from cli.workload.rows import Row, row
from cli.workload.story import Moment, concerns, story
from controller.cluster.watching.kinds import LOCAL_QUEUES, WORKLOADS
from controller.jobs.framework.names import SLICE_NAME
from controller.jobs.framework.podview import workload_of
from controller.objects.core import Pod
from controller.objects.decode import DecodeError, decode
from controller.objects.workload import Workload
from kube.client import Client, Selection
from kube.errors import ForbiddenError, KubeError, NotFoundError
from kube.resources import EVENTS, PODS, Resource

PENDING: Final = Resource("visibility.kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue", namespaced=True)
_AT_ONCE: Final = 8
_MOST_QUEUES: Final = 200
"""The most LocalQueues that are asked for positions: a longer list shows none for the rest."""


class Listed(msgspec.Struct, frozen=True):
    """Objects as the API server has them, and the row of each."""

    objects: dict[str, Json]
    rows: list[Row]


async def listed(client: Client, selection: Selection) -> Listed:
    """The Workloads and their rows. Raises KubeError where Workloads may not be listed. Further columns are empty where
    their objects may not be read.
    """
    objects = (await client.list_all(WORKLOADS, Json, selection)).items
    typed = [workload for workload in map(_typed, objects) if workload is not None]
    queues = {(each.metadata.namespace, each.spec.queue_name) for each in typed}
    leads = await _leads(client, selection.namespace)
    positions = await _positions(client, sorted(queues))
    now = datetime.now(UTC)
    return Listed(
        {f"{each['metadata'].get('namespace')}/{each['metadata']['name']}": each for each in objects},
        [row(workload, leads, positions, now) for workload in typed],
    )


def _typed(given: Json) -> Workload | None:
    try:
        return decode(given, Workload)
    except DecodeError as wrong:
        aside(f"passed over: {wrong}")
        return None


async def _leads(client: Client, namespace: str | None) -> dict[tuple[str, str], str]:
    """The ClusterQueue of each LocalQueue, by namespace and name."""
    try:
        queues = await namespaced(client, LOCAL_QUEUES, namespace)
    except (ForbiddenError, NotFoundError):
        return {}
    return {
        (each["metadata"].get("namespace", ""), each["metadata"]["name"]): str(
            (each.get("spec") or {}).get("clusterQueue") or ""
        )
        for each in queues
    }


async def _positions(client: Client, queues: list[tuple[str, str]]) -> dict[str, int]:
    """The positions by key, from 0, from the visibility API; empty where it is not served or may not be asked."""
    asking = asyncio.Semaphore(_AT_ONCE)

    async def of(namespace: str, name: str) -> list[tuple[str, int]]:
        async with asking:
            body = await client.get(PENDING, name, Json, namespace=namespace, subresource="pendingworkloads")
        return [
            (f"{namespace}/{each['metadata']['name']}", int(each["positionInLocalQueue"]))
            for each in body.get("items") or []
        ]

    named = [queue for queue in queues if queue[0] and queue[1]][:_MOST_QUEUES]
    if not named or not await _is_served(client):
        return {}
    answers = await asyncio.gather(*(of(*queue) for queue in named), return_exceptions=True)
    failed = next((answer for answer in answers if isinstance(answer, BaseException)), None)
    if failed is not None and not isinstance(failed, (KubeError, LookupError, TypeError, ValueError)):
        raise failed
    return dict(pair for answer in answers if not isinstance(answer, BaseException) for pair in answer)


async def _is_served(client: Client) -> bool:
    try:
        return PENDING.api_version in await client.group_versions()
    except KubeError:
        return False


async def pods_of(client: Client, workload: Json) -> list[Json]:
    """The Workload's pods, by name; none where pods may not be read."""
    meta = workload["metadata"]
    first = (meta.get("annotations") or {}).get(SLICE_NAME, meta["name"])
    key = f"{meta.get('namespace')}/{first}"
    try:
        pods = await namespaced(client, PODS, meta.get("namespace"))
    except ForbiddenError as refused:
        aside(f"pods are not shown: {refused}")
        return []
    return sorted((pod for pod in pods if _key_of(pod) == key), key=lambda pod: str(pod["metadata"]["name"]))


def _key_of(pod: Json) -> str | None:
    try:
        return workload_of(decode(pod, Pod))
    except DecodeError:
        return None


async def job_of(client: Client, workload: Json) -> Json | None:
    """The object that the Workload stands for; None where there is none, or none that may be read."""
    try:
        owner = None if group_pods(workload) else await owner_of(client, workload)
        if owner is None:
            return None
        job = await client.get(owner[0], owner[1], Json, namespace=workload["metadata"].get("namespace"))
    except (KubeError, click.ClickException) as failed:
        aside(f"its job is not shown: {failed}")
        return None
    return {"kind": owner[0].kind, **job}


async def told(client: Client, workload: Json) -> list[Moment]:
    job, pods = await job_of(client, workload), await pods_of(client, workload)
    events = await _events(client, [workload, *([job] if job is not None else []), *pods], workload)
    return story(workload, job, pods, events)


async def _events(client: Client, objects: Iterable[Json], workload: Json) -> list[Json]:
    kinds = {id(workload): WORKLOADS.kind}
    metas = [(str(each.get("kind") or kinds.get(id(each), PODS.kind)), each["metadata"]) for each in objects]
    uids = frozenset(str(meta["uid"]) for _, meta in metas if meta.get("uid"))
    names = frozenset((kind, str(meta["name"])) for kind, meta in metas)
    try:
        events = await namespaced(client, EVENTS, workload["metadata"].get("namespace"))
    except (ForbiddenError, NotFoundError) as refused:
        aside(f"Events are not shown: {refused}")
        return []
    return [event for event in events if concerns(event, uids, names)]
