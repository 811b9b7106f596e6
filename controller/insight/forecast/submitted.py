"""The Workload that would be made of an object that does not exist yet: a job of any kind that is queued, a single pod,
the first group of a serving object, or a Workload itself.

The object may be a user's manifest, so nothing of it is sure before it is read. Pure.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from controller.foreign.jobs.kind import ForeignJobKind, queued
from controller.foreign.rules.servinggangs import in_queue
from controller.foreign.rules.table import job_defaulted
from controller.insight.forecast.refused import refused_by_rules
from controller.jobs.framework import compose, names
from controller.jobs.framework.foreignmarks import as_queued, foreign_queue
from controller.jobs.framework.kind import JobKind, completed
from controller.jobs.framework.marks import is_managed, queue_name
from controller.jobs.framework.podview import SCHEDULERS, SeenPod
from controller.jobs.framework.raw import JobError, Json, labels
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.jobs.framework.templated import MAX_POD_SETS
from controller.jobs.serving.table import SERVING_KINDS
from controller.objects.decode import DecodeError, decode
from controller.objects.workload import Workload
from controller.reconcile.pods import compose as podcompose
from controller.reconcile.pods import group as podgroup
from controller.reconcile.serving import compose as servingcompose
from controller.scheduler.mirror.specs import Adoption, System

_SERVING: Final = {(kind.api_version, kind.kind): kind for kind in SERVING_KINDS}
_WORKLOAD: Final = "kueue.x-k8s.io/"
_POD: Final = ("v1", "Pod")
_DEFAULT_QUEUE: Final = "default"
_VALUES: Final = 5_000
"""Values of an object: a job of ten roles has less than a thousand, and this many are composed in 50 ms."""
NAME: Final = "forecast"
"""The name of an object that leaves its name to the API server."""


class NotQueuedError(ValueError):
    """No Workload would be made of the object: one sentence."""

    def __init__(self, *told: str) -> None:
        super().__init__("; ".join(told))
        self.told = told


class NoQueueError(NotQueuedError):
    """The object names no queue."""


class Others(msgspec.Struct, frozen=True):
    """``adopted``: the systems whose objects Tessera decides on. ``schedulers``: the systems by the names of their
    schedulers.
    """

    adopted: Mapping[System, Adoption] = {}
    schedulers: Mapping[str, System] = msgspec.field(default_factory=lambda: SCHEDULERS)


class Reader(msgspec.Struct, frozen=True):
    """Composes Workloads. ``kinds``: queued kinds of jobs, by ``apiVersion`` and ``kind``. ``namespace_labels``: the
    labels of a namespace by its name. ``has_default_queue``: whether a namespace has a LocalQueue ``default``.
    ``others``: the foreign systems that are decided for.
    """

    kinds: Mapping[tuple[str, str], JobKind]
    settings: JobSettings
    cluster: ClusterObjects
    namespace_labels: Callable[[str], Mapping[str, str]]
    has_default_queue: Callable[[str], bool]
    others: Others = Others()

    def workload(self, given: Any, namespace: str, now_s: float) -> Workload:
        """The Workload of the object as if it were created now. Raises NotQueuedError."""
        with _told():
            return self._workload(self.created(given, namespace), namespace, now_s)

    def created(self, given: Any, namespace: str) -> Json:
        """The object as it is after its creation, with the queue that it waits in. Raises NotQueuedError."""
        with _told():
            _check_size(given)
            return self._created(_identified(given, namespace), namespace)

    def _workload(self, job: Json, namespace: str, now_s: float) -> Workload:
        body = self._body(job, namespace)
        created = datetime.fromtimestamp(now_s, UTC).isoformat()
        metadata = {**body["metadata"], "name": job["metadata"]["name"], "uid": NAME, "creationTimestamp": created}
        found = decode({**body, "metadata": metadata}, Workload)
        if (count := len(found.spec.pod_sets)) > MAX_POD_SETS:
            raise NotQueuedError(f"spec.podSets: found {count}, expected at most {MAX_POD_SETS}")
        return found

    def _created(self, job: Json, namespace: str) -> Json:
        """The object in the foreign queue that it is for, else in the namespace's default queue if it names none."""
        if isinstance(self.kinds.get((job["apiVersion"], job["kind"])), ForeignJobKind):
            return queued(job_defaulted(job))
        found = foreign_queue(job, schedulers=self.others.schedulers)
        how = self.others.adopted.get(found.system) if found is not None else None
        if found is not None and how is not None and how.namespaces.matches(self.namespace_labels(namespace)):
            return as_queued(in_queue(job, found), schedulers=self.others.schedulers)
        if queue_name(job) or not self.has_default_queue(namespace):
            return job
        return {
            **job,
            "metadata": {**job["metadata"], "labels": {**labels(job), names.QUEUE_NAME: _DEFAULT_QUEUE}},
        }

    def _body(self, job: Json, namespace: str) -> Json:
        of = job["apiVersion"], job["kind"]
        if of[0].startswith(_WORKLOAD) and of[1] == "Workload":
            return job
        kind, serving = self.kinds.get(of), _SERVING.get(of)
        if kind is None and serving is None and of != _POD:
            raise NotQueuedError(f"objects of kind {of[1][:63]} in {of[0][:63]} are not queued")
        if not is_managed(job, self.namespace_labels(namespace), self.settings):
            failure = NotQueuedError if queue_name(job) else NoQueueError
            raise failure("it names no queue, or its namespace is not managed")
        if kind is not None and kind.is_skipped(job):
            raise NotQueuedError("another object is queued in its place")
        if told := refused_by_rules(kind, job, self.settings.gates, self.cluster.look):
            raise NotQueuedError(*told)
        if serving is not None:
            first = serving.first_group(job)
            if first is None:
                raise NotQueuedError("it has no replicas")
            return servingcompose.workload_body(serving, job, first, self.settings, self.cluster)
        if kind is None:
            return self._of_pod(job)
        whole = completed(kind, kind.defaulted(job, self.settings.gates), self.cluster.look)
        return compose.workload_body(kind, whole, self.settings, self.cluster)

    def _of_pod(self, pod: Json) -> Json:
        seen = [SeenPod(pod)]
        group = podgroup.group_of(seen)
        if group.name:
            raise NotQueuedError("it is one of a group of pods, which is queued as a whole")
        sets = podgroup.pod_sets(group, seen, self.settings.tiers)
        return podcompose.workload_body(group, seen, sets, self.settings, self.cluster)


@contextmanager
def _told() -> Iterator[None]:
    """Turns errors of reading an object into NotQueuedError."""
    try:
        yield
    except (JobError, DecodeError) as error:
        raise NotQueuedError(str(error)) from None
    except RecursionError:
        raise NotQueuedError("it is nested too deeply") from None


def _check_size(given: Any) -> None:
    """Checks the number of an object's values. Raises NotQueuedError for more than ``_VALUES``."""
    count, left = 0, [given]
    while left:
        value = left.pop()
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        count += len(inside)
        if count > _VALUES:
            raise NotQueuedError(f"it has more than {_VALUES} values")
        left += inside


def _identified(given: Any, namespace: str) -> Json:
    """The object with an identity, in the namespace. Raises NotQueuedError."""
    if not isinstance(given, dict):
        raise NotQueuedError("found no object, expected one with apiVersion, kind and metadata")
    for key in ("apiVersion", "kind"):
        if not isinstance(given.get(key), str):
            raise NotQueuedError(f"{key}: expected a text")
    metadata = given.get("metadata")
    if not isinstance(metadata, dict):
        raise NotQueuedError("metadata: expected an object")
    if metadata.get("namespace", namespace) != namespace:
        raise NotQueuedError(f"metadata.namespace: found another one, expected {namespace}")
    name = metadata.get("name") or metadata.get("generateName") or NAME
    created = {**metadata, "namespace": namespace, "name": name, "uid": NAME}
    return {key: value for key, value in given.items() if key != "status"} | {"metadata": created}
