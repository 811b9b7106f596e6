"""A story on the real controller, and the judge's verdict on it."""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Final

from cli.playground.cluster import Machine
from hack.outside.story import FLAVORS, GPUS_OF_NODE, NODES, Act, Story
from hack.planted.nets import queueworld
from hack.planted.nets.queueworld import WORKLOADS, QueueWorld, config, controller, first, machines, play, world_of
from history.judge import Verdict
from kube.errors import KubeError
from kube.resources import Resource
from kube.testing import FakeApiServer

QUIET_S: Final = 12.0
"""After the last act: longer than the judge's longest bound, on a clock that goes six times as fast."""
COHORTS: Final = Resource("kueue.x-k8s.io", "v1beta2", "cohorts", "Cohort")
_KINDS: Final = {
    "Namespace": queueworld.NAMESPACES,
    "ResourceFlavor": queueworld.FLAVORS,
    "WorkloadPriorityClass": queueworld.PRIORITIES,
    "Cohort": COHORTS,
    "ClusterQueue": queueworld.CLUSTER_QUEUES,
    "LocalQueue": queueworld.LOCAL_QUEUES,
    "Job": queueworld.JOBS,
}


async def judged(story: Story) -> Verdict:
    """Raises what ends the controller."""
    async with FakeApiServer() as server:
        world = world_of(server, _nodes())
        todo = first(world, ((act.at_s, partial(carry_out, act=act)) for act in story.acts))
        async with controller(server, config(more="fairSharing: {}\n" if story.fair else "")):
            return await play(world, todo, (todo[-1][0] if todo else 0.0) + QUIET_S)


def carry_out(world: QueueWorld, act: Act) -> None:
    """What is there no more is passed over."""
    with contextlib.suppress(KubeError):
        if act.kind == "WorkloadOf":
            for name in _workloads_of(world, act):
                world.server.merge(WORKLOADS, name, act.body, namespace=act.namespace)
            return
        resource = _KINDS[act.kind]
        match act.verb:
            case "create":
                meta = {**act.body.get("metadata", {}), "name": act.name}
                if act.namespace:
                    meta["namespace"] = act.namespace
                world.create(resource, {**act.body, "metadata": meta})
            case "merge":
                world.server.merge(resource, act.name, act.body, namespace=act.namespace)
            case "delete":
                world.server.delete(resource, act.name, namespace=act.namespace)


def _workloads_of(world: QueueWorld, act: Act) -> Sequence[str]:
    owned = [(each["metadata"], each["metadata"].get("ownerReferences") or []) for each in world.all(WORKLOADS)]
    return [
        meta["name"]
        for meta, owners in owned
        if meta["namespace"] == act.namespace and any(owner["name"] == act.name for owner in owners)
    ]


def _nodes() -> dict[str, Machine]:
    found = {}
    for number, (name, machine) in enumerate(machines(NODES, GPUS_OF_NODE).items()):
        labels = {**machine.labels, "flavor": FLAVORS[number % len(FLAVORS)]}
        found[name] = Machine(labels, machine.gpus, machine.healthy)
    return found
