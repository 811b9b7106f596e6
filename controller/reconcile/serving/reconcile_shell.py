"""The shell around the pure reconciler of serving objects: one object at a time, its actions carried out in order.

    serving objects, their pods, Workloads -> a queue of objects -> controller.reconcile.serving.reconcile -> actions

Pods come by two watches: those that were created behind the gate and are in no group yet, and all that are queued.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import JOINING_PODS, QUEUED_PODS, RawWorkloads
from controller.cluster.watching.ledger import Ledger
from controller.cluster.watching.workqueue import WorkQueue
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import JobError
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.objects.workload import Workload
from controller.reconcile.jobshell.indexes import Index, note
from controller.reconcile.jobshell.reconciler_shell import Reconciler
from controller.reconcile.jobshell.watched import ServingKinds
from controller.reconcile.pods.actions_shell import PodActions
from controller.reconcile.pods.reconcile_shell import QueuedPod
from controller.reconcile.serving.reconcile import SeenServing, reconcile_serving
from controller.scheduler.model.resources import WorkloadKey
from kube.client import Client
from kube.objects import ObjectReference
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Added, Changed, Removed

_POD_FEEDS: Final = (QUEUED_PODS, JOINING_PODS)


class ServingKey(NamedTuple):
    """A serving object. ``kind`` is its name in the configuration."""

    kind: str
    namespace: str
    name: str


class ServingController(Reconciler[ServingKey]):
    """``hear`` and ``workload`` take changes; ``run`` works on them until cancelled.

    ``_pods`` follows both watches of pods: only ``_see`` and ``_left`` write it. ``_workloads`` has the Workloads that
    name an object as an owner, by the object; only ``workload`` writes it, and its sets are never empty.
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
        super().__init__(client, feeds, ledger, raws)
        self._queue: WorkQueue[ServingKey] = WorkQueue("serving", self._reconcile)
        self._kinds = kinds
        self._resources = {kind.framework: resource for resource, kind in kinds.items()}
        self._actions = actions
        self._settings = settings
        self._cluster = cluster
        self._pods = Index[ServingKey, ObjectKey]()
        self._workloads: dict[ServingKey, set[WorkloadKey]] = {}

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
            case _:
                self._hear_surroundings(observed)

    def workload(self, workload: Workload, gone: bool) -> None:
        """Takes a Workload that was created, changed or deleted: its object is reconciled."""
        meta = workload.metadata
        owners = {(reference.api_version, reference.kind): reference.name for reference in meta.owner_references}
        for kind in self._kinds.values():
            name = owners.get((kind.api_version, kind.kind))
            if name is None:
                continue
            key = ServingKey(kind.framework, meta.namespace, name)
            note(self._workloads, key, WorkloadKey(workload.key), gone=gone)
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
        self._pods.put(key, owner)
        self._queue.put(owner)

    def _left(self, key: ObjectKey) -> None:
        """Handles a pod that left one of the watches: it is gone, or joined its group and is in the other."""
        owner = self._pods.key(key)
        if owner is None:
            return
        if all(self._feeds[feed].get(key) is None for feed in _POD_FEEDS):
            self._pods.drop(key)
            self._actions.written.forget(key)
        self._queue.put(owner)

    def _keys(self) -> Iterable[tuple[str, ServingKey]]:
        for resource, kind in self._kinds.items():
            for key in self._feeds[resource]:
                yield key.namespace, ServingKey(kind.framework, *key)

    # -- the work ----------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: ServingKey) -> None:
        resource, at = self._resources[key.kind], ObjectKey(key.namespace, key.name)
        kind, entry = self._kinds[resource], self._feeds[resource].get(at)
        pods = self._seen_pods(key)
        if pods is None:
            return  # the watch brings what was written, and with it the next reconciliation
        workloads = self._seen(self._workloads.get(key, ()))
        if entry is None and (not workloads or await self._exists(resource, at)):
            return
        seen = SeenServing(
            kind=kind,
            owner=None if entry is None else entry.object,
            workloads=workloads,
            pods=pods,
            namespace_labels=self._namespace(key.namespace).labels,
        )
        uid = "" if entry is None else entry.uid
        about = ObjectReference(kind.api_version, kind.kind, key.name, uid, key.namespace)
        actions = reconcile_serving(seen, self._settings, self._cluster)
        owners = () if seen.owner is None else (seen.owner,)
        await self._actions.carry_out(about, {pod.name: pod.raw for pod in pods}, actions, made_for=owners)

    def _seen_pods(self, key: ServingKey) -> tuple[SeenPod, ...] | None:
        """The object's pods; None while a watch does not show yet what was written to one of them."""
        pods = []
        for pod in sorted(self._pods.of(key)):
            # A pod that joins is in neither watch for a moment, or in both: the later view counts.
            entries = (self._feeds[feed].get(pod) for feed in _POD_FEEDS)
            views = [entry for entry in entries if entry is not None and not self._is_old(pod, entry)]
            if not views:
                return None
            pods.append(views[0].object.seen())
        return tuple(pods)

    def _is_old(self, key: ObjectKey, entry: CachedObject[QueuedPod]) -> bool:
        return self._actions.written.behind(key, entry.uid, entry.resource_version)
