"""The objects that the API server has at one instant of a record, and which of them belong together.

Pods and Workloads meet by handles: the uid of an owner (or of the pod itself), or the name of a Workload. A pod's
handles go from the nearest to the farthest, and the nearest that any Workload has counts.
"""

from typing import Any

from msgspec import Struct

from history import objects as api
from history.objects import Json, Key
from history.record import ApiFact
from history.settings import Settings

Handle = tuple[str, ...]
_DEPTH = 8
_GROUPED = ("ReplicaSet", "StatefulSet", "LeaderWorkerSet")
"""Owners whose pods are queued by the label of the pods."""


class Times(Struct):
    """The times of a Workload on the record's clock; None: it was so at the first line, or is not so.

    ``waits_s``: since when it waits at its present place in the queue. ``unready``: admission checks that were
    listed and not ready when it was admitted.
    """

    waits_s: float | None = None
    reserved_s: float | None = None
    admitted_s: float | None = None
    evicted_s: float | None = None
    was_admitted: bool = False
    unready: tuple[str, ...] = ()
    rank: tuple[Any, ...] = ()


class World:
    """``apply`` alone writes, except for what ``Judge`` takes from facts of other kinds: ``now_s``, the time of the
    last fact, ``settings``, and ``promised_s``, which changes with them. ``handles`` has the handles of each pod and of
    each Workload, and ``_by_handle`` says for each handle which have it: the two are inverse.
    """

    def __init__(self) -> None:
        self.settings = Settings()
        self.promised_s = float("-inf")
        """When the settings were told last."""
        self.first_s: float | None = None
        """The time of the record's first line, whatever it is about; ``Judge`` writes it, once."""
        self.now_s = 0.0
        self.objects: dict[Key, Json] = {}
        self.of_kind: dict[str, dict[Key, Json]] = {}
        self.by_uid: dict[str, Key] = {}
        self.gone: set[str] = set()
        """Uids of what was deleted."""
        self.was_gated: set[tuple[Key, str]] = set()
        """Pods, with their uids, that have waited behind the queue's gate."""
        self.times: dict[Key, Times] = {}
        self.handles: dict[Key, tuple[Handle, ...]] = {}
        self.were_whole = set[tuple[str, str]]()
        """PodGroups of Kubernetes' own, by namespace and name, whose pods have all had a node: ``HalfGang`` adds."""
        self._by_handle: dict[tuple[str, Handle], set[Key]] = {}

    def all(self, kind: str) -> dict[Key, Json]:
        return self.of_kind.get(kind, {})

    def _having(self, kind: str, *handle: str) -> set[Key]:
        return self._by_handle.get((kind, handle), set())

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        return self.objects.get(Key(kind, namespace, name))

    # -- changes -------------------------------------------------------------------------------------------------------

    def apply(self, fact: ApiFact) -> set[Key]:
        """The objects to be looked at again: this one, and those that belong to it now or did so before."""
        key = api.key_of(fact.object)
        touched = {key} | self._near(key)
        old, new = api.uid(self.objects.get(key, fact.object)), api.uid(fact.object)
        for each in {old, new} if fact.type == "DELETED" else {old} - {new}:
            self.gone.add(each)
            self.by_uid.pop(each, None)
            self.times.pop(key, None)
        if fact.type == "DELETED":
            self.objects.pop(key, None)
            self.of_kind.get(key.kind, {}).pop(key, None)
        else:
            self.objects[key] = fact.object
            self.of_kind.setdefault(key.kind, {})[key] = fact.object
            if new:
                self.by_uid[new] = key
            if key.kind == "Workload":
                self._time(key, fact.object)
            elif key.kind == "Pod" and api.is_gated(fact.object):
                self.was_gated.add((key, new))
        self._hold(key)
        for pod in [each for each in touched if each.kind == "Pod"]:
            self._hold(pod)  # its owners' owners may be others
        return touched | self._near(key)

    def _hold(self, key: Key) -> None:
        """Brings the handles of a pod or Workload up to date."""
        if key.kind not in ("Pod", "Workload"):
            return
        body = self.objects.get(key)
        new = () if body is None else self._pod_handles(body) if key.kind == "Pod" else _workload_handles(body)
        for handle in self.handles.pop(key, ()):
            having = self._by_handle[key.kind, handle]
            having.discard(key)
            if not having:
                del self._by_handle[key.kind, handle]
        if new:
            self.handles[key] = new
            for handle in new:
                self._by_handle.setdefault((key.kind, handle), set()).add(key)

    def _near(self, key: Key) -> set[Key]:
        near: set[Key] = set()
        body = self.objects.get(key)
        if key.kind == "Pod":
            near.update(self.workloads_of(key))
        elif key.kind == "Workload":
            near.update(self.pods_of(key))
            near.update(self.owners_of(key))
        elif body is not None and api.uid(body):
            near |= self._having("Pod", "uid", api.uid(body)) | self._having("Workload", "uid", api.uid(body))
        return near

    def _time(self, key: Key, workload: Json) -> None:
        """Keeps since when a Workload is what it is."""
        was_there = self.now_s == self.first_s
        times = self.times.setdefault(key, Times())
        now_s = float("-inf") if was_there else self.now_s
        if not api.is_admitted(workload) or times.admitted_s is None:
            times.unready = api.unready_checks(workload) if api.is_admitted(workload) and not was_there else ()
        times.was_admitted |= api.is_true(workload, "Admitted")
        times.reserved_s = _since_s(times.reserved_s, now_s, is_so=api.holds(workload))
        times.admitted_s = _since_s(times.admitted_s, now_s, is_so=api.is_admitted(workload))
        times.evicted_s = _since_s(times.evicted_s, now_s, is_so=api.is_true(workload, "Evicted"))
        placed = rank(workload)
        here_s = times.waits_s if times.rank == placed else None
        times.waits_s, times.rank = _since_s(here_s, self.now_s, is_so=api.waits(workload)), placed

    # -- who belongs to whom -------------------------------------------------------------------------------------------

    def chain(self, body: Json) -> list[Json]:
        """The object's owners that are in the record, the nearest first."""
        owners: list[Json] = []
        todo = [api.text(each, "uid") for each in api.owners(body)]
        while todo and len(owners) < _DEPTH:
            key = self.by_uid.get(todo.pop(0))
            owner = self.objects.get(key) if key is not None else None
            if owner is not None and owner not in owners:
                owners.append(owner)
                todo += [api.text(each, "uid") for each in api.owners(owner)]
        return owners

    def _pod_handles(self, pod: Json) -> tuple[Handle, ...]:
        space = api.text(pod, "metadata", "namespace")
        handles: list[Handle] = [("uid", api.uid(pod))]
        if api.label(pod, api.CAPACITY):
            handles.append(("name", space, api.note(pod, api.WORKLOAD)))
        if group := api.label(pod, api.GROUP) or api.note(pod, api.GROUP):
            handles.append(("name", space, group))
        for body in (pod, *self.chain(pod)):
            if api.label(body, api.PREBUILT):
                handles.append(("name", space, api.label(body, api.PREBUILT)))
            handles += [("uid", api.text(each, "uid")) for each in api.owners(body)]
        return tuple(dict.fromkeys(each for each in handles if each[-1]))

    def workloads_of(self, pod: Key) -> list[Key]:
        """The Workloads of the nearest handle that has any."""
        for handle in self.handles.get(pod, ()):
            if found := self._having("Workload", *handle):
                return sorted(found)
        return []

    def pods_of(self, workload: Key) -> list[Key]:
        """Those for which no other Workload is nearer."""
        near = set[Key]().union(*(self._having("Pod", *each) for each in self.handles.get(workload, ())))
        return sorted(pod for pod in near if workload in self.workloads_of(pod))

    def owners_of(self, workload: Key) -> list[Key]:
        """Objects in the record that the Workload stands for."""
        uids = [handle[1] for handle in self.handles.get(workload, ()) if handle[0] == "uid"]
        return [self.by_uid[each] for each in uids if each in self.by_uid]

    def is_of_same_job(self, workload: Json, other: Key) -> bool:
        """Whether the two have an owner in common."""
        uids = {api.text(each, "uid") for each in api.owners(workload)}
        return any(api.text(each, "uid") in uids for each in api.owners(self.objects.get(other, {})))

    def workloads_for(self, body: Json) -> set[Key]:
        """The Workloads of a job, or of one of its owners."""
        workloads: set[Key] = set()
        for each in (body, *self.chain(body)):
            space = api.text(each, "metadata", "namespace")
            workloads |= self._having("Workload", "uid", api.uid(each))
            workloads |= self._having("Workload", "name", space, api.label(each, api.PREBUILT))
        return workloads

    def is_queued(self, pod: Json) -> bool:
        """Whether the pod may not run before a Workload of it is admitted: by a queue's label on one of its owners; by
        its own, where pods are queued and no owner queues it; by a gate of the queue, also one that it has had.
        """
        if api.text(pod, "metadata", "namespace") in self.settings.unmanaged:
            return False
        chain = self.chain(pod)
        is_marked = api.label(pod, api.MANAGED) == "true" or (api.key_of(pod), api.uid(pod)) in self.was_gated
        if is_marked or any(api.label(each, api.QUEUE) for each in chain) or self.workloads_of(api.key_of(pod)):
            return True
        grouped = any(each.get("kind") in _GROUPED for each in api.owners(pod))
        return self.settings.queues_pods and bool(api.label(pod, api.QUEUE)) and (grouped or not api.owners(pod))

    def cluster_queue(self, workload: Json) -> str:
        """The ClusterQueue that it has quota of, or in which it waits; empty where there is none."""
        if api.queue_of(workload):
            return api.queue_of(workload)
        return api.text(self.get("LocalQueue", *api.local_queue(workload)), "spec", "clusterQueue")


def _workload_handles(workload: Json) -> tuple[Handle, ...]:
    meta = workload["metadata"]
    found: list[Handle] = [("name", api.text(meta, "namespace"), api.text(meta, "name"))]
    found += [("uid", api.text(each, "uid")) for each in api.owners(workload)]
    found.append(("uid", api.label(workload, api.JOB_UID)))
    return tuple(dict.fromkeys(each for each in found if each[-1]))


def _since_s(known_s: float | None, now_s: float, *, is_so: bool) -> float | None:
    return None if not is_so else now_s if known_s is None else known_s


def rank(workload: Json) -> tuple[Any, ...]:
    """The fields that the place of a Workload in its queue depends on, as they are written."""
    spec = workload.get("spec")
    boost = api.text(workload, "metadata", "annotations", "kueue.x-k8s.io/priority-boost")
    return (repr(spec.get("priority")) if isinstance(spec, dict) else "", boost, api.text(spec, "queueName"))
