"""The shell around the pure reconciler of serving objects: one object at a time, its actions carried out in order.

    serving objects, their pods, Workloads -> a queue of objects -> controller.reconcile.serving.reconcile -> actions

Pods come by two watches: those that were created behind the gate and are in no group yet, and all that are queued.
"""

from typing import Any, Final, NamedTuple

from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import (
    FLAVORS,
    JOINING_PODS,
    NAMESPACES,
    POD_CLASSES,
    QUEUED_PODS,
    WORKLOAD_CLASSES,
    RawWorkloads,
)
from controller.cluster.watching.ledger import Ledger
from controller.cluster.watching.workqueue import WorkQueue
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import JobError
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.objects.workload import Workload
from controller.reconcile.jobshell.watched import ServingKinds, seen_workload
from controller.reconcile.pods.actions_shell import PodActions
from controller.reconcile.pods.reconcile_shell import QueuedPod
from controller.reconcile.serving.reconcile import SeenServing, reconcile_serving
from controller.scheduler.model.resources import WorkloadKey
from kube.client import Client
from kube.errors import NotFoundError
from kube.objects import ObjectReference
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Added, Changed, Removed
from kube.resources import Resource

_POD_FEEDS: Final = (QUEUED_PODS, JOINING_PODS)


class ServingKey(NamedTuple):
    """A serving object. ``kind`` is its name in the configuration."""

    kind: str
    namespace: str
    name: str


class ServingController:
    """``hear`` and ``workload`` take changes; ``run`` works on them until cancelled.

    ``_pods`` and ``_of`` are inverse to each other and follow both watches of pods: only ``_see`` and ``_leave`` write
    them. ``_workloads`` has the Workloads that name an object as an owner, by the object; only ``workload`` writes it.
    Sets in them are never empty.
    """

    def __init__(
        self,
        client: Client,
        kinds: ServingKinds,
        feeds: Feeds,
        ledger: Ledger,
        raws: RawWorkloads,
        actions: PodActions,
        settings: JobSettings,
        cluster: ClusterObjects,
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._resources = {kind.framework: resource for resource, kind in kinds.items()}
        self._feeds = feeds
        self._ledger = ledger
        self._raws = raws
        self._actions = actions
        self._settings = settings
        self._cluster = cluster
        self._queue: WorkQueue[ServingKey] = WorkQueue("serving", self._reconcile)
        self._pods: dict[ServingKey, set[ObjectKey]] = {}
        self._of: dict[ObjectKey, ServingKey] = {}
        self._workloads: dict[ServingKey, set[WorkloadKey]] = {}

    async def run(self) -> None:
        await self._queue.run()

    # -- what changes ------------------------------------------------------------------------------------------------

    def hear(self, observed: ObjectChange) -> None:
        kind = self._kinds.get(observed.resource)
        match observed.change:
            case Added(key=key) | Changed(key=key) | Removed(key=key) if kind is not None:
                self._queue.put(ServingKey(kind.framework, *key))
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource in _POD_FEEDS:
                self._see(key, entry.object)
            case Removed(key=key) if observed.resource in _POD_FEEDS:
                self._left(key)
            case Added() | Changed() if observed.resource in (FLAVORS, POD_CLASSES, WORKLOAD_CLASSES):
                self._put_all()
            case Changed(key=key, old=old, new=new) if observed.resource == NAMESPACES:
                if old.object.metadata.labels != new.object.metadata.labels:
                    self._put_all(key.name)

    def workload(self, workload: Workload, gone: bool) -> None:
        """Takes a Workload that was created, changed or deleted: its object is reconciled."""
        meta = workload.metadata
        owners = {(reference.api_version, reference.kind): reference.name for reference in meta.owner_references}
        for kind in self._kinds.values():
            name = owners.get((kind.api_version, kind.kind))
            if name is None:
                continue
            key = ServingKey(kind.framework, meta.namespace, name)
            own = self._workloads.setdefault(key, set())
            (own.discard if gone else own.add)(WorkloadKey(workload.key))
            if not own:
                del self._workloads[key]
            self._queue.put(key)

    def _see(self, key: ObjectKey, pod: QueuedPod) -> None:
        kind = next((kind for kind in self._kinds.values() if kind.framework == pod.parent), None)
        if kind is None:
            return
        try:
            name = kind.owner_name(pod.seen().raw)
        except JobError:
            return
        if not name:
            return
        owner = ServingKey(kind.framework, key.namespace, name)
        self._of[key] = owner
        self._pods.setdefault(owner, set()).add(key)
        self._queue.put(owner)

    def _left(self, key: ObjectKey) -> None:
        """Handles a pod that left one of the watches: it is gone, or joined its group and is in the other."""
        owner = self._of.get(key)
        if owner is None:
            return
        if all(self._feeds[feed].get(key) is None for feed in _POD_FEEDS):
            del self._of[key]
            self._pods[owner].discard(key)
            if not self._pods[owner]:
                del self._pods[owner]
            self._actions.written.forget(key)
        self._queue.put(owner)

    def _put_all(self, namespace: str | None = None) -> None:
        for resource, kind in self._kinds.items():
            for key in self._feeds[resource]:
                if namespace in (None, key.namespace):
                    self._queue.put(ServingKey(kind.framework, *key))

    # -- the work ----------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: ServingKey) -> None:
        resource = self._resources[key.kind]
        kind, entry = self._kinds[resource], self._feeds[resource].get(ObjectKey(key.namespace, key.name))
        pods = self._seen_pods(key)
        if pods is None:
            return  # the watch brings what was written, and with it the next reconciliation
        keys = sorted(self._workloads.get(key, ()))
        found = (seen_workload(self._ledger, self._raws, workload) for workload in keys)
        workloads = tuple(workload for workload in found if workload is not None)
        if entry is None and (not workloads or await self._exists(resource, key)):
            return
        namespace = self._feeds[NAMESPACES].get(ObjectKey("", key.namespace))
        seen = SeenServing(
            kind=kind,
            owner=None if entry is None else entry.object,
            workloads=workloads,
            pods=pods,
            namespace_labels={} if namespace is None else namespace.object.metadata.labels,
        )
        uid = "" if entry is None else entry.uid
        about = ObjectReference(kind.api_version, kind.kind, key.name, uid, key.namespace)
        actions = reconcile_serving(seen, self._settings, self._cluster)
        owners = () if seen.owner is None else (seen.owner,)
        await self._actions.carry_out(about, {pod.name: pod.raw for pod in pods}, actions, made_for=owners)

    def _seen_pods(self, key: ServingKey) -> tuple[SeenPod, ...] | None:
        """The object's pods; None while a watch does not show yet what was written to one of them."""
        found = []
        for pod in sorted(self._pods.get(key, ())):
            # A pod that joins is in neither watch for a moment, or in both: the later view counts.
            entries = (self._feeds[feed].get(pod) for feed in _POD_FEEDS)
            views = [entry for entry in entries if entry is not None and not self._is_old(pod, entry)]
            if not views:
                return None
            found.append(views[0].object.seen())
        return tuple(found)

    def _is_old(self, key: ObjectKey, entry: CachedObject[QueuedPod]) -> bool:
        return self._actions.written.behind(key, entry.uid, entry.resource_version)

    async def _exists(self, resource: Resource, key: ServingKey) -> bool:
        """Whether the object exists and the watch does not show it yet."""
        try:
            await self._client.get(resource, key.name, dict[str, Any], namespace=key.namespace)
        except NotFoundError:
            return False
        return True
