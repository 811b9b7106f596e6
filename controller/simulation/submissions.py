"""Jobs and pods of the manifests as workloads that arrive at a time and run for a time.

Annotations (durations as Go writes them): ``tessera.dev/arrival``, seconds from the start, 0 without it, and
``tessera.dev/runtime``, from admission to the end; without it the job runs for ever. Jobs that arrive together are
as old as their order in the files says.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from controller.conversion import HUB
from controller.engine.runtimes import RUNTIME
from controller.jobs import compose, names
from controller.jobs.batchjob import BatchJob
from controller.jobs.kind import JobKind
from controller.jobs.marks import passed_on, priority_class, queue_name
from controller.jobs.owners import is_managed
from controller.jobs.raw import JobError, labels, shown, strings
from controller.jobs.settings import JobSettings, Lookups
from controller.objects.decode import DecodeError, decode
from controller.objects.meta import is_true
from controller.objects.workload import Workload
from controller.simulation.documents import Document, Json
from yamlfile.parsers import Unfit, go_duration

ARRIVAL: Final = "tessera.dev/arrival"
JOB_KINDS: Final[Mapping[tuple[str, str], JobKind]] = {("batch/v1", "Job"): BatchJob()}
POD: Final = ("v1", "Pod")
DEFAULT_QUEUE: Final = "default"
POD_GROUP: Final = "kueue.x-k8s.io/pod-group-name"

_TIEBREAK_MAX: Final = 999_999


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A workload and when it comes. ``runtime_s`` None: it runs for ever. ``order``: its place in the files."""

    order: int
    arrival_s: float
    runtime_s: float | None
    workload: Workload

    @property
    def key(self) -> str:
        return self.workload.key


class Composer:
    """``base_s``: seconds since 1970 of the simulation's start, a whole number.

    ``default_queues``: namespaces with a LocalQueue ``default``, where jobs without a queue go.
    """

    def __init__(
        self, settings: JobSettings, lookups: Lookups, base_s: float, default_queues: frozenset[str] = frozenset()
    ) -> None:
        self._default_queues = default_queues
        self._settings = settings
        self._lookups = lookups
        self._base_s = base_s

    def submission(self, document: Document, order: int, namespace_labels: Mapping[str, str]) -> Submission | None:
        """None for what does not queue: it is finished, names no queue, or its namespace is not managed. InputError."""
        try:
            body = self._body(document.data, order, namespace_labels)
            if body is None:
                return None
            arrival_s = _duration(document.data, ARRIVAL) or 0.0
            workload = decode(self._dated(body, order, arrival_s), Workload)
            runtime_s = _duration(document.data, RUNTIME)
        except (JobError, DecodeError) as error:
            name = document.data["metadata"]["name"]
            raise document.error(f"{document.kind} {name}: {error}") from None
        return Submission(order=order, arrival_s=arrival_s, runtime_s=runtime_s, workload=workload)

    def _body(self, given: Json, order: int, namespace_labels: Mapping[str, str]) -> Json | None:
        if given["kind"] == "Workload":
            # What had been decided about it elsewhere is no part of this run.
            return None if _is_over(decode(given, Workload)) else {k: v for k, v in given.items() if k != "status"}
        job = {**given, "metadata": {**given["metadata"], "uid": f"{order:08d}"}}
        job.pop("status", None)
        if not queue_name(job) and job["metadata"]["namespace"] in self._default_queues:
            job["metadata"]["labels"] = {**labels(job), names.QUEUE_NAME: DEFAULT_QUEUE}
        if not is_managed(job, namespace_labels, self._settings):
            return None
        kind = JOB_KINDS.get((given["apiVersion"], given["kind"]))
        if kind is None:
            return self._pod(job)
        body = compose.workload_body(kind, job, self._settings, self._lookups)
        body["metadata"]["name"] = job["metadata"]["name"]
        del body["metadata"]["finalizers"]
        return body

    def _pod(self, pod: Json) -> Json:
        """A single pod is a workload of one pod set with one pod."""
        if POD_GROUP in strings(pod, "metadata", "labels"):
            raise JobError(f"metadata.labels[{POD_GROUP}]: groups of pods are not simulated, expected a single pod")
        spec = dict(pod.get("spec") or {})
        pod_sets = [{"name": "main", "count": 1, "template": {"spec": spec}}]
        labelled = compose.priority(_PodPriority(spec), pod, self._settings, self._lookups)
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
        return {
            "apiVersion": HUB,
            "kind": "Workload",
            "metadata": {**metadata, "annotations": passed_on(pod), "labels": {names.JOB_UID: pod["metadata"]["uid"]}},
            "spec": {"queueName": queue_name(pod), "podSets": pod_sets, **labelled},
        }

    def _dated(self, body: Json, order: int, arrival_s: float) -> Json:
        """Created on arrival; of those that come together each is a microsecond older than the next in the files."""
        at = datetime.fromtimestamp(self._base_s, UTC) + timedelta(
            seconds=arrival_s, microseconds=min(order, _TIEBREAK_MAX)
        )
        metadata = {**body["metadata"], "uid": f"{order:08d}", "creationTimestamp": at.isoformat()}
        return {**body, "metadata": metadata}


class _PodPriority(BatchJob):
    """A pod names its own PriorityClass."""

    def __init__(self, spec: Json) -> None:
        self._spec = spec

    def pod_priority_class(self, job: Json) -> str:  # noqa: ARG002 - a job kind's signature
        found = self._spec.get("priorityClassName") or ""
        if not isinstance(found, str):
            raise JobError(f"spec.priorityClassName: expected a string, found {type(found).__name__}")
        return found


def names_queue(document: Document) -> bool:
    """Whether the object asks to be queued. Labels that cannot be read ask for nothing."""
    try:
        return bool(queue_name(document.data) or priority_class(document.data))
    except JobError:
        return False


def _is_over(workload: Workload) -> bool:
    return is_true(workload.status.conditions, "Finished")


def _duration(given: Json, key: str) -> float | None:
    """Seconds. Raises JobError."""
    text: Any = strings(given, "metadata", "annotations").get(key)
    if text is None:
        return None
    try:
        return 0.0 if text == "0" else go_duration(text)
    except Unfit:
        raise JobError(f'metadata.annotations[{key}]: found {shown(text)}, expected a duration such as "90s"') from None
