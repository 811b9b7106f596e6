"""Reads the fleet once: GpuNodes and ClusterQueues from the API server, figures from the agents through its proxy."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final, TypeVar

from cli.access.cluster import told
from cli.access.gpunodes_shell import list_gpu_nodes, noting
from cli.printing.console import Json
from cli.top.fleet import Figures, Fleet, QueueRow, figures, gpus, queues, without_nodes
from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, NODES
from controller.objects.core import Node
from controller.objects.decode import decode
from controller.objects.queues import ResourceFlavor
from inventory.words.catalog import plural
from kube.client import Client, Selection
from kube.errors import KubeError
from kube.resources import PODS

T = TypeVar("T")

AGENTS: Final = "app.kubernetes.io/component=agent"
PORT_NAME: Final = "metrics"
PORT: Final = 9400
_AT_ONCE: Final = 16
"""The number of agents that are asked at the same time."""
_NAMED: Final = 3


async def read(client: Client, *, agents: str, only: frozenset[str], at_most: int | None) -> Fleet:
    """Read the fleet. ``agents``: their namespace; ``only``: nodes, none for all; ``at_most``: the number of nodes
    whose figures are asked for, None: all, a few at a time.

    Raises KubeError where GpuNodes may not be listed. Other objects that cannot be read are a note.
    """
    notes: list[str] = []
    listed = await list_gpu_nodes(client, notes)
    nodes = [node for node in listed if not only or node.metadata.name in only]
    names = sorted(node.metadata.name for node in nodes)[:at_most]
    measured = await _measured(client, agents, frozenset(names), notes)
    machines = await _machines(client, notes)
    rows = await _queues(client, machines, notes)
    if len(nodes) > len(names):
        asked = f"figures of {len(names)} of {plural(len(nodes), 'node')}"
        notes.append(f"{asked} are asked for (--at-most)")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    away = frozenset(node.metadata.name for node in machines if not node.takes_pods)
    return Fleet(at=at, gpus=gpus(nodes, measured, away), queues=rows, notes=tuple(notes))


async def _queues(client: Client, machines: Iterable[Node], notes: list[str]) -> tuple[QueueRow, ...]:
    try:
        objects = (await client.list_all(CLUSTER_QUEUES, Json)).items
    except KubeError as failed:
        notes.append(f"queues are not shown: {told(failed)}")
        return ()
    try:
        flavors = (await client.list_decoded(FLAVORS, _reader(ResourceFlavor, notes))).items
    except KubeError as failed:
        notes.append(f"whether queues have nodes is not known: {told(failed)}")
        flavors = ()
    labels = [node.metadata.labels for node in machines]
    return queues(objects, without_nodes(filter(None, flavors), labels))


def _reader(type_: type[T], notes: list[str]) -> Callable[[bytes], T | None]:
    """A decoder for which an object that cannot be read is a note."""
    return noting(lambda raw: decode(raw, type_), notes)


async def _machines(client: Client, notes: list[str]) -> tuple[Node, ...]:

    try:
        nodes = (await client.list_decoded(NODES, _reader(Node, notes))).items
    except KubeError as failed:
        notes.append(f"whether nodes are ready is not known: {told(failed)}")
        return ()
    return tuple(node for node in nodes if node is not None)


async def _measured(client: Client, namespace: str, nodes: frozenset[str], notes: list[str]) -> dict[str, Figures]:
    try:
        pods = (await client.list_all(PODS, Json, Selection(namespace, label_selector=AGENTS))).items
    except KubeError as failed:
        notes.append(f"figures are not shown: {told(failed)}")
        return {}
    paths = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node in nodes and (pod.get("status") or {}).get("phase") == "Running":
            name = f"{pod['metadata']['name']}:{_port(pod)}"
            paths[node] = PODS.path(name, namespace=namespace, subresource="proxy") + "/metrics"
    asking = asyncio.Semaphore(_AT_ONCE)

    async def of(path: str) -> dict[str, Figures]:
        async with asking:
            return figures((await client.text(path)).decode(errors="replace"))

    answers = await asyncio.gather(*(of(path) for path in paths.values()), return_exceptions=True)
    measured: dict[str, Figures] = {}
    failures = []
    for node, answer in zip(paths, answers, strict=True):
        if isinstance(answer, KubeError):
            failures.append(f"{node}: {told(answer)}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            measured |= answer
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        notes.append(f"figures are not shown: {failures[0]}{more}")
    missing = sorted(nodes - paths.keys())
    if missing:
        shown = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
        notes.append(f"no agent runs on {plural(len(missing), 'node')}: {shown}")
    return measured


def _port(pod: Json) -> int:
    containers = (pod.get("spec") or {}).get("containers") or []
    ports = [port for container in containers for port in container.get("ports") or []]
    return next((int(each["containerPort"]) for each in ports if each.get("name") == PORT_NAME), PORT)
