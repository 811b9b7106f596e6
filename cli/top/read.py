"""The fleet read once: GpuNodes and ClusterQueues from the API server, figures from the agents through its proxy."""

import asyncio
from datetime import UTC, datetime
from typing import Final

from cli.cluster import told
from cli.console import Json
from cli.top.fleet import Figures, Fleet, figures, gpus, queues
from controller.objects.core import Node
from controller.objects.decode import DecodeError, GpuNode, decode, read_gpu_node
from controller.watching.kinds import CLUSTER_QUEUES, GPU_NODES, NODES
from inventory.words.plural import plural
from kube.client import Client, Selection
from kube.errors import KubeError
from kube.resources import PODS

AGENTS: Final = "app.kubernetes.io/component=agent"
PORT_NAME: Final = "metrics"
PORT: Final = 9400
_AT_ONCE: Final = 16
"""Agents that are asked at the same time."""
_NAMED: Final = 3


async def read(client: Client, *, agents: str, only: frozenset[str], at_most: int | None) -> Fleet:
    """``agents``: their namespace; ``only``: nodes, none for all; ``at_most``: of so many nodes figures are asked for,
    None: of all, a few at a time.

    Raises KubeError where GpuNodes may not be listed. All else that cannot be read is a note.
    """
    notes: list[str] = []

    def read_one(raw: bytes) -> GpuNode | None:
        try:
            return read_gpu_node(raw)
        except DecodeError as wrong:
            notes.append(f"passed over: {wrong}")
            return None

    listed = (await client.list_decoded(GPU_NODES, read_one)).items
    nodes = [node for node in listed if node is not None and (not only or node.metadata.name in only)]
    names = sorted(node.metadata.name for node in nodes)[:at_most]
    measured = await _measured(client, agents, frozenset(names), notes)
    try:
        found = queues((await client.list_all(CLUSTER_QUEUES, Json)).items)
    except KubeError as failed:
        notes.append(f"queues are not shown: {told(failed)}")
        found = ()
    if len(nodes) > len(names):
        asked = f"figures of {len(names)} of {plural(len(nodes), 'node')}"
        notes.append(f"{asked} are asked for (--at-most)")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    away = await _away(client, notes)
    return Fleet(at=at, gpus=gpus(nodes, measured, away), queues=found, notes=tuple(notes))


async def _away(client: Client, notes: list[str]) -> frozenset[str]:
    """Nodes that take no pods: not ready, or cordoned."""

    def read_node(raw: bytes) -> Node | None:
        try:
            return decode(raw, Node)
        except DecodeError as wrong:
            notes.append(f"passed over: {wrong}")
            return None

    try:
        nodes = (await client.list_decoded(NODES, read_node)).items
    except KubeError as failed:
        notes.append(f"whether nodes are ready is not known: {told(failed)}")
        return frozenset()
    return frozenset(node.metadata.name for node in nodes if node is not None and not node.takes_pods)


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
    found: dict[str, Figures] = {}
    failures = []
    for node, answer in zip(paths, answers, strict=True):
        if isinstance(answer, KubeError):
            failures.append(f"{node}: {told(answer)}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found |= answer
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        notes.append(f"figures are not shown: {failures[0]}{more}")
    missing = sorted(nodes - paths.keys())
    if missing:
        shown = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
        notes.append(f"no agent runs on {plural(len(missing), 'node')}: {shown}")
    return found


def _port(pod: Json) -> int:
    containers = (pod.get("spec") or {}).get("containers") or []
    ports = [port for container in containers for port in container.get("ports") or []]
    return next((int(each["containerPort"]) for each in ports if each.get("name") == PORT_NAME), PORT)
