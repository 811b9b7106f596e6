"""What the reconcilers of jobs, pods and serving objects share: a queue of keys, and what each is decided from.

A key is reconciled after each change of its objects, and of what all of them are read with: flavors, priority classes
and the labels of namespaces. The watches may lag, so what is gone is asked of the API server before it counts.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import FLAVORS, NAMESPACES, POD_CLASSES, WORKLOAD_CLASSES, RawWorkloads
from controller.cluster.watching.ledger import Ledger
from controller.cluster.watching.workqueue import WorkQueue
from controller.jobs.framework.podsets import SeenWorkload
from controller.objects.meta import ObjectMeta
from controller.reconcile.jobshell.watched import seen_workload
from controller.scheduler.model.resources import WorkloadKey
from kube.client import Client
from kube.errors import NotFoundError
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Changed
from kube.resources import Resource

K = TypeVar("K", bound=tuple[str, ...])


class Reconciler(ABC, Generic[K]):
    """``run`` works on keys until cancelled."""

    _queue: WorkQueue[K]
    """The keys that are to be reconciled. Each subclass makes it, of its own way to reconcile one, and all put keys."""

    def __init__(self, client: Client, feeds: Feeds, ledger: Ledger, raws: RawWorkloads) -> None:
        self._client = client
        self._feeds = feeds
        self._ledger = ledger
        self._raws = raws

    async def run(self) -> None:
        await self._queue.run()

    @abstractmethod
    def _keys(self) -> Iterable[tuple[str, K]]:
        """All keys, each with its namespace."""

    def _hear_surroundings(self, observed: ObjectChange) -> None:
        """Enqueues all keys, or those of a namespace, when that changes which they are read with."""
        match observed.change:
            case Added() | Changed() if observed.resource in (FLAVORS, POD_CLASSES, WORKLOAD_CLASSES):
                for _, due in list(self._keys()):
                    self._queue.put(due)
            case Changed(key=key, old=old, new=new) if observed.resource == NAMESPACES:
                if _told_by(old.object.metadata) != _told_by(new.object.metadata):
                    for namespace, due in list(self._keys()):
                        if namespace == key.name:
                            self._queue.put(due)

    def _seen(self, keys: Iterable[WorkloadKey]) -> tuple[SeenWorkload, ...]:
        """Those of the Workloads that are known, in the order of their keys."""
        found = (seen_workload(self._ledger, self._raws, key) for key in sorted(keys))
        return tuple(workload for workload in found if workload is not None)

    def _namespace(self, name: str) -> ObjectMeta:
        """The metadata of a namespace; one without labels while the watch does not show it."""
        entry = self._feeds[NAMESPACES].get(ObjectKey("", name))
        return ObjectMeta(name=name) if entry is None else entry.object.metadata

    async def _exists(self, resource: Resource, key: ObjectKey, known_uid: str = "") -> bool:
        """Whether there is an object of that name, other than the one with that uid, which the watch does not show."""
        try:
            found = await self._client.get(resource, key.name, dict[str, Any], namespace=key.namespace)
        except NotFoundError:
            return False
        return bool(found["metadata"].get("uid") != known_uid)


def _told_by(namespace: ObjectMeta) -> tuple[object, ...]:
    """The parts of a namespace by which its jobs and pods are decided."""
    return (namespace.labels, namespace.deletion_timestamp)
