"""Jobs and pods of the manifests as workloads that arrive at a time and run for a time.

Annotations (durations as Go writes them): ``tessera.dev/arrival``, seconds from the start, 0 without it, and
``tessera.dev/runtime``, from admission to the end; without it the job runs for ever. The ages of jobs that arrive
together follow their order in the files. Plain pods are the workloads that the controller would make of them: single
ones, and groups. A group of pods arrives with its last pod, and runs as long as the pod that runs longest.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from controller.foreign.jobs.kind import ForeignJobKind
from controller.foreign.podgroups.group import GROUPS, MIN_MEMBER, as_member, in_part, subgroup_of
from controller.foreign.podgroups.native import read
from controller.foreign.podgroups.podsabove import whole
from controller.insight.forecast.refused import refused_by_rules
from controller.insight.simulation.bargained.requests import named_by, named_by_workload
from controller.insight.simulation.documents import Document, InputError
from controller.insight.simulation.groups import KINDS_OF_GROUPS
from controller.insight.simulation.groups import workload_body as serving_workload
from controller.insight.simulation.problems import shown
from controller.insight.simulation.start import saved_problem, yield_problem
from controller.jobs.framework import compose, names
from controller.jobs.framework.kind import JobKind, ObjectKind, api_version, completed
from controller.jobs.framework.marks import is_managed, priority_class, queue_name
from controller.jobs.framework.podview import GroupName, SeenPod, key_of
from controller.jobs.framework.raw import JobError, Json, annotations, labels, strings
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.jobs.kinds.table import JOB_KINDS
from controller.messages import jobs as words
from controller.objects.decode import DecodeError, decode
from controller.objects.meta import is_true
from controller.objects.nativegroups import NATIVE
from controller.objects.workload import Workload
from controller.reconcile.pods import compose as podcompose
from controller.reconcile.pods import group as podgroup
from controller.scheduler.decisions.reasons import REQUEUED, PendingReason
from controller.scheduler.flavors.spot import spot_problem
from controller.scheduler.model.nodetemplate import timeout_problem
from controller.scheduler.model.toldtimes import rfc3339_s
from controller.scheduler.preemption.price import Checkpoints, checkpoints_of
from inventory.api.names import (
    ABOVE_MINIMUM_OF,
    ABOVE_MINIMUM_SUBGROUP,
    ARRIVAL,
    CHECKPOINT_GRACE,
    CHECKPOINT_INTERVAL,
    LAST_CHECKPOINT,
    OF_CHECKPOINTS,
    OF_SIMULATED_JOBS,
    RESTART_COST,
    RUNTIME,
    SPOT,
    SUBGROUP,
)
from yamlfile.parsers import Unfit, go_duration

POD: Final = ("v1", "Pod")
PodGroups = Mapping[tuple[str, GroupName], Json]
"""Foreign PodGroups by namespace and name."""


def pod_group_of(document: Document) -> GroupName | None:
    """The name of the PodGroup that the document is; None for any other document."""
    group, name = document.group, document.data["metadata"]["name"]
    systems = (system for system, known in GROUPS.items() if (document.kind, known) == ("PodGroup", group))
    return next((GroupName(system, name) for system in systems), None)


def gathered(jobs: Iterable[Document]) -> list[list[Document]]:
    """Each job by itself, and pods of one group together, in the order of each one's first."""
    by_key: dict[object, list[Document]] = {}
    for at, document in enumerate(jobs):
        key: object = at
        if (document.version, document.kind) == POD:
            try:
                namespace, group = key_of(SeenPod(document.data))
                key = (namespace, group) if group else at
            except JobError as error:
                raise document.error(f"Pod {document.data['metadata']['name']}: {error}") from None
        by_key.setdefault(key, []).append(document)
    return list(by_key.values())


def apart(document: Document) -> str:
    """What its Workload is called, if a job of another kind has the same name: of pods by their PodGroup."""
    of = SeenPod(document.data).foreign_group if (document.version, document.kind) == ("v1", "Pod") else None
    if of is not None:
        kind = "compositepodgroup" if of.composite else "podgroup"
        return f"{of.name}.{kind}.{NATIVE if of.system is None else GROUPS[of.system]}"
    return ".".join(filter(None, (document.data["metadata"]["name"], document.kind.lower(), document.group)))


def parts(documents: list[Document], pod_groups: PodGroups) -> list[list[Document]]:
    """The pods of an elastic group's minimum, which arrive first, and the parts above it; any other documents as they
    are.

    A part above the minimum is one pod by itself, or a subgroup with its own minimum and the parts above that. A group
    that cannot be read is one part: the composer of its Workload says what is wrong.
    """
    if len(documents) == 1:
        return [documents]
    try:
        arrived = sorted(documents, key=lambda document: _duration(document.data, ARRIVAL) or 0.0)
        group, seen = _grouped([document.data for document in arrived], pod_groups)
    except JobError:
        return [documents]
    foreign = group.foreign
    if group.declared or foreign is None:
        return [documents]
    counted = podgroup.filling(group, seen)
    names_ = {pod.name for pod in counted}
    there = {subgroup_of(pod) for pod in counted}
    minimum = [document for document, pod in zip(arrived, seen, strict=True) if pod.name in names_]
    wholes = foreign.above(map(subgroup_of, seen), there)
    above: dict[str, list[Document]] = {}
    for document, pod in zip(arrived, seen, strict=True):
        if pod.name not in names_:
            part = wholes[subgroup_of(pod)]
            above.setdefault(f"/{part}" if part else pod.name, []).append(_above(document, foreign.title, pod, part))
    return [minimum, *(part for each in above.values() for part in parts(each, pod_groups))]


def _grouped(pods: Sequence[Json], pod_groups: PodGroups) -> tuple[podgroup.Group, list[SeenPod]]:
    """The pods' group, and the pods as the group completes them. Raises JobError."""
    runtime = _longest(pods)
    seen = [SeenPod(_told(pod, age, runtime)) for age, pod in enumerate(pods)]
    namespace, _ = key_of(seen[0])
    foreign, name = None, seen[0].foreign_group
    if name is not None:
        foreign = read(name, pod_groups.get((namespace, name)), seen[-1].annotations.get(MIN_MEMBER, ""))
        foreign = in_part(foreign, key_of(seen[0])[1], seen) if seen[0].part else foreign
        foreign = whole(foreign, _come_first(pods, seen, foreign.minimum), pod_groups.get((namespace, name)))
        seen = [as_member(pod, foreign) for pod in seen]
    return podgroup.group_of(seen, foreign), seen


def _come_first(pods: Sequence[Json], seen: Sequence[SeenPod], minimum: int) -> tuple[SeenPod, ...]:
    """The pods that are there when the minimum is. Raises JobError."""
    arrivals = [_duration(pod, ARRIVAL) or 0.0 for pod in pods]
    by_s = sorted(arrivals)[min(minimum, len(arrivals)) - 1]
    return tuple(pod for pod, arrival in zip(seen, arrivals, strict=True) if arrival <= by_s)


def _above(document: Document, minimum: str, pod: SeenPod, part: str) -> Document:
    """The document of a part above its group's minimum. ``pod``: as its group completes it. ``part``: the subgroup that
    it starts with as a whole, empty for none.
    """
    body = document.data
    metadata = {**body["metadata"], "labels": pod.labels}
    metadata["annotations"] = {**annotations(body), ABOVE_MINIMUM_OF: minimum}
    metadata["annotations"].pop(ABOVE_MINIMUM_SUBGROUP, None)
    if part:
        metadata["annotations"][ABOVE_MINIMUM_SUBGROUP] = part
    if SUBGROUP in pod.annotations:
        metadata["annotations"][SUBGROUP] = pod.annotations[SUBGROUP]
    return document.having({**body, "metadata": metadata})


def workload_of(pods: Sequence[Json], pod_groups: PodGroups, settings: JobSettings, cluster: ClusterObjects) -> Json:
    """The complete Workload. ``pods``: one, or all of a group, the oldest first. Raises JobError."""
    group, seen = _grouped(pods, pod_groups)
    if group.name:
        seen = podgroup.filling(group, seen)
    sets = podgroup.pod_sets(group, seen, settings.tiers)
    if not sets:
        raise JobError(podgroup.short(group, seen))
    body = podcompose.workload_body(group, seen, sets, settings, cluster)
    body["metadata"]["name"] = (group.foreign.title if group.foreign else group.name) or seen[0].name
    del body["metadata"]["finalizers"], body["metadata"]["ownerReferences"]
    return body


def _longest(pods: Sequence[Json]) -> str | None:
    """The runtime of the pod that runs longest; None if one of them runs for ever. Raises JobError."""
    said = [annotations(pod).get(RUNTIME) for pod in pods]
    known = [statement for statement in said if statement is not None]
    return max(known, key=_seconds) if known and len(known) == len(said) else None


def _seconds(text: str) -> float:
    """The seconds of a duration; 0 for a text that is none: its reader reports it."""
    try:
        return 0.0 if text == "0" else go_duration(text)
    except Unfit:
        return 0.0


def _told(pod: Json, age: int, runtime: str | None) -> Json:
    """The pod without what may differ between pods of one group: how it behaves in a simulation is left out, and its
    runtime becomes the group's.
    """
    shared = {key: value for key, value in annotations(pod).items() if key not in OF_SIMULATED_JOBS}
    if runtime is not None:
        shared[RUNTIME] = runtime
    created = datetime.fromtimestamp(age, UTC).isoformat()
    return {**pod, "metadata": {**pod["metadata"], "annotations": shared, "creationTimestamp": created}}


KINDS_OF_JOBS: Final[Mapping[tuple[str, str], JobKind]] = {
    (api_version(job_kind), job_kind.kind): job_kind for job_kind in (*JOB_KINDS, ForeignJobKind())
}
"""Kinds of jobs by ``apiVersion`` and ``kind`` of their objects."""
READ_KINDS: Final[Mapping[tuple[str, str], ObjectKind]] = {
    (f"{kind.group}/{kind.version}", kind.kind): kind for one in JOB_KINDS for kind in one.reads
}
"""Other kinds that jobs are read together with, by ``apiVersion`` and ``kind``."""
REFUSED_KINDS: Final[Mapping[tuple[str, str], str]] = {
    (f"{job_kind.group}/{version}", job_kind.kind): sentence
    for job_kind in JOB_KINDS
    for version, sentence in job_kind.refused_versions.items()
}
"""Why objects of other versions do not queue, by ``apiVersion`` and ``kind``."""
DEFAULT_QUEUE: Final = "default"

_ON_HOLD: Final = {
    "type": REQUEUED,
    "status": "False",
    "reason": PendingReason.ON_HOLD.value,
    "message": words.on_hold(),
}
"""The condition of a job whose owner lets it wait without quota."""
_KEEPING: Final = (CHECKPOINT_INTERVAL, CHECKPOINT_GRACE, RESTART_COST)
_UID: Final = "00000000"
"""The uid of an object that is checked before it has its place in the order."""
_TIEBREAK_MAX: Final = 999_999


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A workload and the time of its arrival. ``runtime_s`` None: it runs for ever. ``order``: its place in the
    files.
    """

    order: int
    arrival_s: float
    runtime_s: float | None
    workload: Workload
    checkpoints: Checkpoints = Checkpoints()
    spot: str = ""
    """The job's own annotation: see ``inventory.api.names.SPOT``; empty for none."""
    grant: str = ""
    """The CapacityRequest of its namespace that the job runs inside of; empty for none."""

    @property
    def key(self) -> str:
        return self.workload.key

    def renamed(self, name: str) -> "Submission":
        metadata = msgspec.structs.replace(self.workload.metadata, name=name)
        return msgspec.structs.replace(self, workload=msgspec.structs.replace(self.workload, metadata=metadata))


class Composer:
    """Composes the workloads of jobs. ``base_s``: seconds since 1970 of the simulation's start, a whole number.
    ``max_grace_s``: a job's grace is believed up to it, see ``checkpoints_of``.

    ``kinds``: the kinds of jobs that are read. ``default_queues``: namespaces with a LocalQueue ``default``, where jobs
    without a queue go.
    """

    def __init__(
        self,
        settings: JobSettings,
        cluster: ClusterObjects,
        base_s: float,
        default_queues: frozenset[str] = frozenset(),
        pod_groups: PodGroups | None = None,
        kinds: Mapping[tuple[str, str], JobKind] = KINDS_OF_JOBS,
        *,
        max_grace_s: float,
    ) -> None:
        self.kinds = kinds
        self.pod_groups: PodGroups = pod_groups or {}
        self._default_queues = default_queues
        self.settings = settings
        self.cluster = cluster
        self._base_s = base_s
        self._max_grace_s = max_grace_s

    def check(self, document: Document, namespace_labels: Mapping[str, str]) -> None:
        """Checks a job. Raises InputError if a cluster refuses it by rules of its kind, or if its times cannot be
        read.
        """
        problems: list[str] = []
        if document.kind != "Workload":
            try:
                job = self._as_new(document.data, _UID)
                kind = self.kinds.get((document.version, document.kind))
                if not self._is_queued(kind, job, namespace_labels):
                    return
                problems += refused_by_rules(kind, job, self.settings.gates, self.cluster.look)
            except JobError as error:
                problems.append(str(error))
        for key in (ARRIVAL, RUNTIME, *_KEEPING):
            try:
                _duration(document.data, key)
            except JobError as error:
                problems.append(str(error))
        said = annotations(document.data)
        problems += filter(None, (each(said) for each in (spot_problem, saved_problem, timeout_problem, yield_problem)))
        if problems:
            what = f"{document.kind} {document.data['metadata']['name']}"
            raise InputError.of(str(document.error(f"{what}: {each}")) for each in dict.fromkeys(problems))

    def is_queued(self, document: Document, namespace_labels: Mapping[str, str]) -> bool:
        """Whether a job, a pod or a serving object has a Workload of its own; false for one that cannot be read."""
        try:
            job = self._as_new(document.data, _UID)
            return self._is_queued(self.kinds.get((document.version, document.kind)), job, namespace_labels)
        except JobError:
            return False

    def _is_queued(self, kind: JobKind | None, job: Json, namespace_labels: Mapping[str, str]) -> bool:
        """Whether the job is queued. Raises JobError."""
        return is_managed(job, namespace_labels, self.settings) and not (kind is not None and kind.is_skipped(job))

    def submission(
        self, documents: Sequence[Document], order: int, namespace_labels: Mapping[str, str]
    ) -> Submission | None:
        """The submission of one job, or of the pods of a group, which are ``documents``.

        None for a job that does not queue: it is finished, names no queue, or its namespace is not managed. Raises
        InputError.
        """
        document = documents[0]
        try:
            body = self._body([each.data for each in documents], order, namespace_labels)
            if body is None:
                return None
            _check_template(annotations(body), annotations(document.data))
            arrival_s = max(_duration(each.data, ARRIVAL) or 0.0 for each in documents)
            dated = self._dated(body, order, arrival_s)
            dated["metadata"]["annotations"] = {**annotations(dated), **_checkpoints(each.data for each in documents)}
            workload = decode(dated, Workload)
            runtimes = [_duration(each.data, RUNTIME) for each in documents]
        except (JobError, DecodeError) as error:
            name = document.data["metadata"]["name"]
            raise document.error(f"{document.kind} {name}: {error}") from None
        known = [runtime for runtime in runtimes if runtime is not None]
        runtime_s = max(known) if len(known) == len(runtimes) else None
        return Submission(
            order=order,
            arrival_s=arrival_s,
            runtime_s=runtime_s,
            workload=workload,
            checkpoints=checkpoints_of(workload.metadata.annotations, workload.spec.pod_sets, self._max_grace_s)
            or Checkpoints(),
            spot=next(filter(None, (annotations(each.data).get(SPOT, "") for each in documents)), ""),
            grant=next(filter(None, (named_by(each.data) for each in documents)), named_by_workload(workload)),
        )

    def _body(self, every: Sequence[Json], order: int, namespace_labels: Mapping[str, str]) -> Json | None:
        first = every[0]
        if first["kind"] == "Workload":
            # Its status was decided on another cluster, and has no part in this run.
            over = is_true(decode(first, Workload).status.conditions, "Finished")
            return None if over else {k: v for k, v in first.items() if k != "status"}
        jobs = [self._as_new(document, f"{order:08d}") for document in every]
        if not all(is_managed(job, namespace_labels, self.settings) for job in jobs):
            return None
        serving = KINDS_OF_GROUPS.get((first["apiVersion"], first["kind"]))
        if serving is not None:
            return serving_workload(serving, jobs[0], self.settings, self.cluster)
        kind = self.kinds.get((first["apiVersion"], first["kind"]))
        if kind is None:
            return workload_of(jobs, self.pod_groups, self.settings, self.cluster)
        if kind.is_skipped(jobs[0]):
            return None
        job = completed(kind, kind.defaulted(jobs[0], self.settings.gates), self.cluster.look)
        body = compose.workload_body(kind, job, self.settings, self.cluster)
        body["metadata"]["name"] = first["metadata"]["name"]
        del body["metadata"]["finalizers"]
        return {**body, "status": {"conditions": [_ON_HOLD]}} if kind.is_on_hold(job) else body

    def _as_new(self, given: Json, uid: str) -> Json:
        """The job as if it had just been created; in the namespace's default queue if it names none."""
        job = {**given, "metadata": {**given["metadata"], "uid": uid}}
        job.pop("status", None)
        if not queue_name(job) and job["metadata"]["namespace"] in self._default_queues:
            job["metadata"]["labels"] = {**labels(job), names.QUEUE_NAME: DEFAULT_QUEUE}
        return job

    def _dated(self, body: Json, order: int, arrival_s: float) -> Json:
        """The Workload created at its arrival; of jobs that arrive together each is a microsecond older than the next
        in the files.
        """
        at = datetime.fromtimestamp(self._base_s, UTC) + timedelta(
            seconds=arrival_s, microseconds=min(order, _TIEBREAK_MAX)
        )
        metadata = {**body["metadata"], "uid": f"{order:08d}", "creationTimestamp": at.isoformat()}
        return {**body, "metadata": metadata}


def has_queue(document: Document) -> bool:
    """Whether the object names a queue. Labels that cannot be read count as none."""
    try:
        return bool(queue_name(document.data))
    except JobError:
        return False


def names_queue(document: Document) -> bool:
    """Whether the object names a queue or a priority class. Labels that cannot be read count as none."""
    try:
        return has_queue(document) or bool(priority_class(document.data))
    except JobError:
        return False


def _duration(given: Json, key: str) -> float | None:
    """The annotation as seconds; None if it is missing. Raises JobError."""
    text: Any = strings(given, "metadata", "annotations").get(key)
    if text is None:
        return None
    try:
        duration_s = 0.0 if text == "0" else go_duration(text)
    except Unfit:
        duration_s = -1.0
    if duration_s < 0.0 or (duration_s == 0.0 and key == CHECKPOINT_INTERVAL):
        more = "above 0s, " if key == CHECKPOINT_INTERVAL else ""
        raise JobError(
            f'metadata.annotations[{key}]: found {shown(text)}, expected a duration {more}such as "90s". Correct it'
        )
    return duration_s


def _check_template(told: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Check what the Workload of a job has from the pod template about checkpoints. Raises JobError."""
    from_template = {key: told[key] for key in OF_CHECKPOINTS if key in told and key not in own}
    problem = saved_problem(from_template)
    try:
        for key in _KEEPING:
            _duration({"metadata": {"annotations": from_template}}, key)
    except JobError as error:
        problem = str(error)
    if problem:
        raise JobError(f"its pod template: {problem}")


def _checkpoints(jobs: Iterable[Json]) -> dict[str, str]:
    """The annotations that say how a job, or the pods of a group, keep their work: of several durations the greatest,
    and the last checkpoint that all have written. Raises JobError.
    """
    given = [annotations(job) for job in jobs]
    said = {key: [each[key] for each in given if key in each] for key in (*_KEEPING, LAST_CHECKPOINT)}
    found = {key: max(said[key], key=_seconds) for key in _KEEPING if said[key]}
    if given and len(said[LAST_CHECKPOINT]) == len(given):
        found[LAST_CHECKPOINT] = min(said[LAST_CHECKPOINT], key=lambda text: rfc3339_s(text) or 0.0)
    return found
