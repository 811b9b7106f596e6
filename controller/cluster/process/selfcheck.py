"""``--check-installation``: checks from outside whether an installation works (``helm test``).

The check passes if a replica leads, each agent has written its node's GpuNode, and queues are answered in both versions
of Kueue's API, one of which the replicas convert.
"""

import logging
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from controller.cluster.process.controllers import LEASE
from controller.cluster.process.flags import VERSION
from controller.cluster.process.foreignsystems import is_held
from controller.cluster.watching.kinds import CLUSTER_QUEUES, GPU_NODES, PODS
from kube.client import Client, Selection
from kube.clock import Clock, sleep
from kube.election.candidate import Lease, LeaseSpec
from kube.errors import KubeError, NotFoundError
from kube.objects import Head, HeadMeta
from kube.resources import LEASES, Resource

log = logging.getLogger(__name__)

WITHIN_S: Final = 60.0
"""The time within which the check must pass: a rollout may end before all of it is written."""
_PAUSE_S: Final = 1.0
_AGENTS: Final = "app.kubernetes.io/component=agent"
_QUEUES: Final = tuple(
    Resource(CLUSTER_QUEUES.group, version, CLUSTER_QUEUES.plural, CLUSTER_QUEUES.kind)
    for version in ("v1beta1", "v1beta2")
)


class _PodSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(Struct, frozen=True):
    spec: _PodSpec = _PodSpec()


class _GpuNodeStatus(Struct, frozen=True, rename="camel"):
    agent_version: str = ""


class _GpuNode(Struct, frozen=True):
    metadata: HeadMeta
    status: _GpuNodeStatus = _GpuNodeStatus()


class Seen(Struct, frozen=True):
    """What the API server has. ``gpu_nodes``: version of the agent that wrote it, by node. ``queues``: names, or the
    API server's refusal.
    """

    lease: LeaseSpec
    agents: frozenset[str]
    """Nodes with an agent's pod."""
    gpu_nodes: dict[str, str]
    queues: dict[str, frozenset[str] | str]


def unmet(seen: Seen, now_s: float) -> Iterator[str]:
    """A line for each requirement that is not met."""
    if not is_held(seen.lease, now_s):
        yield f"no replica leads: the lease {LEASE} has no holder that renews it"
    for node in sorted(seen.agents):
        version = seen.gpu_nodes.get(node)
        if version is None:
            yield f"node {node}: an agent runs there, and there is no GpuNode of this name"
        elif version != VERSION:
            yield f"node {node}: its GpuNode was written by an agent of version {version or 'unknown'}, not {VERSION}"
    answers = {version: found for version, found in seen.queues.items() if not isinstance(found, str)}
    for version in seen.queues.keys() - answers.keys():
        yield f"ClusterQueues in version {version} are not answered: {seen.queues[version]}"
    if len(set(answers.values())) > 1:
        yield f"ClusterQueues are others in each version: {', '.join(f'{len(answers[v])} in {v}' for v in answers)}"


async def check_installation(client: Client, namespace: str, clock: Clock) -> bool:
    """Whether all requirements are met within a minute. Unmet ones are logged. Raises KubeError."""
    until_s = clock.monotonic() + WITHIN_S
    while True:
        seen = await _look(client, namespace)
        lines = sorted(unmet(seen, clock.wall()))
        if not lines:
            log.info("a replica leads; %d agents, each with its GpuNode; queues are answered", len(seen.agents))
            return True
        if clock.monotonic() >= until_s:
            for line in lines:
                log.error("%s", line)
            return False
        await sleep(clock, _PAUSE_S)


async def _look(client: Client, namespace: str) -> Seen:
    pods = await client.list_all(PODS, _Pod, Selection(namespace, _AGENTS))
    nodes = await client.list_all(GPU_NODES, _GpuNode)
    return Seen(
        lease=await _lease(client, namespace),
        agents=frozenset(pod.spec.node_name for pod in pods.items) - {""},
        gpu_nodes={node.metadata.name: node.status.agent_version for node in nodes.items},
        queues={resource.version: await _queues(client, resource) for resource in _QUEUES},
    )


async def _lease(client: Client, namespace: str) -> LeaseSpec:
    try:
        return (await client.get(LEASES, LEASE, Lease, namespace=namespace)).spec
    except NotFoundError:
        return LeaseSpec()


async def _queues(client: Client, resource: Resource) -> frozenset[str] | str:
    try:
        found = await client.list_all(resource, Head)
    except KubeError as refused:
        return str(refused)
    return frozenset(one.metadata.name for one in found.items)
