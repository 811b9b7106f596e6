"""The finalizer ``kueue.x-k8s.io/resource-in-use``: an object is not deleted while others depend on it.

ClusterQueue: workloads that hold its quota. ResourceFlavor, AdmissionCheck: ClusterQueues that name them. Topology:
flavors that name it. It is Kueue's finalizer, so that objects pass from one controller to the other unchanged.
"""

from collections.abc import Callable
from typing import Any, Final

from controller.cluster.watching.kinds import CHECKS, CLUSTER_QUEUES, FLAVORS, TOPOLOGIES
from controller.cluster.writing.stampedwrites import stamped_write
from controller.jobs.framework.names import RESOURCE_IN_USE
from controller.objects.meta import KubernetesObject
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import ClusterQueueName
from failpoints.names import Failpoint
from kube.resources import Resource
from kube.writing.writes import Verb, Write

KINDS: Final = (CLUSTER_QUEUES, FLAVORS, CHECKS, TOPOLOGIES)


class Finalizers:
    """Keeps and removes the finalizer. ``put`` sends a write. ``_going``: objects that are being deleted and still have
    the finalizer.
    """

    def __init__(self, engine: Engine, put: Callable[[Write[Any]], Any]) -> None:
        self._engine = engine
        self._put = put
        self._going: dict[tuple[Resource, str], KubernetesObject] = {}

    def observed(self, resource: Resource, given: KubernetesObject) -> None:
        meta = given.metadata
        key = (resource, meta.name)
        held = RESOURCE_IN_USE in meta.finalizers
        if meta.deletion_timestamp is None:
            self._going.pop(key, None)
            if not held:
                self._write(resource, given, (*meta.finalizers, RESOURCE_IN_USE))
        elif held:
            self._going[key] = given
        else:
            self._going.pop(key, None)

    def gone(self, resource: Resource, name: str) -> None:
        self._going.pop((resource, name), None)

    @property
    def waiting(self) -> bool:
        """Whether an object that is being deleted still has the finalizer."""
        return bool(self._going)

    def release(self) -> None:
        """Removes the finalizer of deleted objects that are no longer in use."""
        for (resource, name), deleted in list(self._going.items()):
            if not self._used(resource, name):
                del self._going[resource, name]
                left = tuple(finalizer for finalizer in deleted.metadata.finalizers if finalizer != RESOURCE_IN_USE)
                self._write(resource, deleted, left)

    def _used(self, resource: Resource, name: str) -> bool:
        cluster = self._engine.state.cluster
        if resource is CLUSTER_QUEUES:
            queue = cluster.queues.get(ClusterQueueName(name))
            return queue is not None and bool(queue.holders)
        if resource is FLAVORS:
            return any(flavor == name for queue in cluster.queues.values() for flavor, _ in queue.flavor_resources)
        if resource is CHECKS:
            strategies = (queue.object.spec.admission_checks_strategy for queue in cluster.queues.values())
            return any(
                admission_check.name == name
                for found in strategies
                if found
                for admission_check in found.admission_checks
            )
        return any(flavor.spec.topology_name == name for flavor in cluster.flavors.values())

    def _write(self, resource: Resource, given: KubernetesObject, finalizers: tuple[str, ...]) -> None:
        meta = given.metadata
        tied = {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": list(finalizers) or None}
        self._put(
            stamped_write(
                Verb.MERGE_PATCH,
                resource,
                {"name": meta.name},
                {"metadata": tied},
                Failpoint.QUEUE_FINALIZER,
                slot="finalizers",
            )
        )
