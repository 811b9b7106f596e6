"""The objects that a Volcano Job is made of: its pods and volume claims, as JSON for the API. Pure.

Names follow from the job, so that an object that is made twice is the same object.
"""

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from controller.foreign.jobs import podfacts
from controller.foreign.jobs.gang import NewPod, Seen, with_up
from controller.foreign.jobs.lifecycle import FINAL, Decision, ended
from controller.foreign.jobs.placement import Placement, scaled, written
from controller.foreign.jobs.plugins import table as plugins
from controller.foreign.jobs.plugins.plugin import Kept
from controller.foreign.jobs.spec import DEFAULT_QUEUE, JobPlan
from controller.foreign.objects.volcanojob import JOB_VERSION as API_VERSION
from controller.foreign.objects.volcanojob import VolcanoJobStatus
from controller.foreign.rules.schedulers import bound_by
from controller.jobs.framework.kind import Patch
from controller.jobs.framework.names import PRIORITY_CLASS, QUEUE_NAME
from controller.jobs.framework.podsets import started_template
from controller.jobs.framework.podview import ADMISSION_GATE, MANAGED, POD_INDEX_LABEL
from controller.jobs.framework.raw import JobError, Json, annotations, copied, labels, mapping, sequence, text
from controller.objects.meta import Struct
from inventory.api.names import ABOVE_MINIMUM_OF, PLACEMENT, RUNTIME

_COPIED: Final = (
    "volcano.sh/preemptable",
    "volcano.sh/cooldown-time",
    "volcano.sh/revocable-zone",
    "volcano.sh/jdb-min-available",
    "volcano.sh/jdb-max-unavailable",
)
_QUEUED: Final = (QUEUE_NAME, PRIORITY_CLASS)
_CLAIM: Final = "volume-pvc-"


class Keeping(Struct, frozen=True, kw_only=True):
    """Objects beside the pods: made or written now, or deleted. ``controlled``: ``status.controlledResources``
    afterwards. ``complaints``: a sentence for each plugin of the job with an argument that cannot be read, told once.
    """

    made: tuple[Kept, ...] = ()
    removed: tuple[Kept, ...] = ()
    controlled: dict[str, str]
    complaints: tuple[str, ...] = ()


def keeping(job: Json, seen: Seen, decision: Decision) -> Keeping:
    """The objects beside the pods that a decision takes. They exist before the first pod and follow the job's size; the
    job's end deletes all but the volumes.

    ``job``: as its plugins read it, see ``job_here``. Raises JobError.
    """
    had = seen.status.controlled_resources
    if decision.status.state.phase in (*FINAL, "Aborted"):
        left = {key: value for key, value in had.items() if key.startswith(_CLAIM)}
        return Keeping(removed=plugins.objects(job) if left != had else (), controlled=left)
    if not decision.created and not decision.deleted:
        return Keeping(controlled=had)
    claims = _claims(job)
    wanted = plugins.controlled(job) | {
        f"{_CLAIM}{each['metadata']['name']}": each["metadata"]["name"] for each in claims
    }
    if had != wanted and not decision.created:
        return Keeping(controlled=had)
    new = had != wanted
    objects = tuple(kept for kept in plugins.objects(job) if new or kept.follows)
    return Keeping(
        made=(*(tuple(Kept(body=claim) for claim in claims) if new else ()), *objects),
        controlled=wanted,
        complaints=plugins.complaints(job) if new else (),
    )


def job_here(job: Json, plan: JobPlan) -> Json:
    """The job as its pods read it: with as many pods as were admitted."""
    tasks = [
        {**task, "replicas": here.replicas}
        for task, here in zip(sequence(job, "spec", "tasks"), plan.tasks, strict=True)
    ]
    return {**job, "spec": {**job["spec"], "tasks": tasks}}


def rescaled(job: Json, seen: Seen, now_s: float) -> Patch | None:
    """The patch that a started job needs first when it asks for fewer pods: their quota is another job's from then on.
    None if nothing changes.
    """
    if seen.placed is None or seen.sliced:
        return None
    new = scaled(seen.placed, {task.name: task.replicas for task in seen.plan.tasks}, (seen.status.version, now_s))
    return None if new is seen.placed else _placed(job, new)


def given_back(job: Json, seen: Seen, decision: Decision) -> Patch | None:
    """The patch that a job with pods above its minimum needs first when more of its Workload's pods have ended. None if
    nothing changes.
    """
    new = ended(seen, decision)
    return None if new is None else _placed(job, new)


def told_ready(job: Json, seen: Seen) -> Patch | None:
    """The patch of a job with pods above its minimum when those of its minimum begin to run, or cease to. None if
    nothing changes.
    """
    new = with_up(seen)
    return None if new is None else _placed(job, new)


def _placed(job: Json, new: Placement) -> Patch:
    version = {key: text(job, "metadata", key) for key in ("uid", "resourceVersion")}
    return Patch(body={"metadata": {**version, "annotations": {PLACEMENT: written(new)}}})


# -- pods --------------------------------------------------------------------------------------------------------------


Binds = Callable[[str], str]
"""Returns the scheduler that binds a pod whose template, or else its job, names this one."""


def pod_bodies(
    job: Json, seen: Seen, status: VolcanoJobStatus, new: Iterable[NewPod], binds: Binds = bound_by
) -> Iterator[Json]:
    """The bodies of new pods. ``job``: see ``job_here``. Raises JobError and StartConflictError."""
    apply: plugins.Writer | None = None
    for pod in new:
        apply = apply or plugins.writer(job)
        yield apply(pod.task, pod.index, _pod_body(job, seen, status, pod, binds))


def _pod_body(job: Json, seen: Seen, status: VolcanoJobStatus, new: NewPod, binds: Binds) -> Json:
    """The body of a new pod before plugins write into it."""
    place = next(index for index, task in enumerate(seen.plan.tasks) if task.name == new.task)
    task = seen.plan.tasks[place]
    if seen.placed is None:
        raise JobError(f"metadata.annotations[{PLACEMENT}]: expected what the controller wrote, found none")
    info = seen.placed[new.task].info
    template = _above(job, task.template, new) if new.above else started_template(task.template, info)
    metadata, spec = mapping(template, "metadata"), mapping(template, "spec")
    partition = task.partition(new.index)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{text(job, 'metadata', 'name')}-{new.task}-{new.index}",
            "namespace": text(job, "metadata", "namespace"),
            "labels": {**labels(template), **_copied(job), **_labels(job, new, partition)},
            "annotations": {**(metadata.get("annotations") or {}), **_annotations(job, status, new)},
            "ownerReferences": [owner_reference(job)],
            **{key: metadata[key] for key in ("finalizers",) if key in metadata},
        },
        "spec": _spec(job, spec, binds),
    }


def _above(job: Json, template: Json, new: NewPod) -> Json:
    """The template of a pod that is queued by itself, as a plain pod is: behind its gate, with its queue and group."""
    own, job_annotations = labels(job), annotations(job)
    marked = copied(template)
    metadata: Json = marked.setdefault("metadata", {})
    spec: Json = marked.setdefault("spec", {})
    metadata["labels"] = {**labels(template), MANAGED: "true", **{key: own[key] for key in _QUEUED if key in own}}
    metadata["annotations"] = {
        **annotations(template),
        **({RUNTIME: job_annotations[RUNTIME]} if RUNTIME in job_annotations else {}),
        ABOVE_MINIMUM_OF: new.above,
        POD_INDEX_LABEL: podfacts.TASK_INDEX,
    }
    metadata["finalizers"] = [*sequence(template, "metadata", "finalizers"), MANAGED]
    spec["schedulingGates"] = [*sequence(template, "spec", "schedulingGates"), {"name": ADMISSION_GATE}]
    return marked


def owner_reference(job: Json) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "name": text(job, "metadata", "name"),
        "uid": text(job, "metadata", "uid"),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def group_name(job: Json) -> str:
    """The name of the PodGroup that Volcano's tools expect."""
    return f"{text(job, 'metadata', 'name')}-{text(job, 'metadata', 'uid')}"


def _copied(job: Json) -> dict[str, str]:
    own = labels(job)
    return {key: own[key] for key in _COPIED if key in own}


def _labels(job: Json, new: NewPod, partition: int | None) -> dict[str, str]:
    return {
        podfacts.TASK_INDEX: str(new.index),
        podfacts.TASK_SPEC: new.task,
        podfacts.JOB_NAME: text(job, "metadata", "name"),
        podfacts.JOB_NAMESPACE: text(job, "metadata", "namespace"),
        podfacts.QUEUE_NAME: text(job, "spec", "queue") or DEFAULT_QUEUE,
        **({} if partition is None else {podfacts.PARTITION_ID: str(partition)}),
    }


def _annotations(job: Json, status: VolcanoJobStatus, new: NewPod) -> dict[str, str]:
    return {
        podfacts.TASK_INDEX: str(new.index),
        podfacts.TASK_SPEC: new.task,
        podfacts.GROUP_NAME: group_name(job),
        podfacts.JOB_NAME: text(job, "metadata", "name"),
        podfacts.QUEUE_NAME: text(job, "spec", "queue") or DEFAULT_QUEUE,
        podfacts.JOB_VERSION: str(status.version),
        podfacts.TEMPLATE_UID: f"{text(job, 'metadata', 'uid')}-{new.task}",
        podfacts.JOB_RETRY_COUNT: str(status.retry_count),
    }


def _spec(job: Json, template: Json, binds: Binds) -> Json:
    """The pod's spec: the template's, with the job's values for what it leaves out."""
    spec = copy.deepcopy(template)
    spec["schedulerName"] = binds(text(spec, "schedulerName") or text(job, "spec", "schedulerName"))
    if not spec.get("priorityClassName") and (priority := text(job, "spec", "priorityClassName")):
        spec["priorityClassName"] = priority
    if spec.get("hostNetwork") and not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    for index, (path, claim) in enumerate(_mounts(job)):
        name = f"volcano-volume-{index}"
        source: Json = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
        spec.setdefault("volumes", []).append({"name": name, **source})
        for container in (*sequence(spec, "containers"), *sequence(spec, "initContainers")):
            container.setdefault("volumeMounts", []).append({"name": name, "mountPath": path})
    return spec


# -- volumes -----------------------------------------------------------------------------------------------------------


def _volumes(job: Json) -> list[Json]:
    return [volume for volume in sequence(job, "spec", "volumes") if isinstance(volume, dict)]


def _mounts(job: Json) -> list[tuple[str, str]]:
    """The mount path and the claim's name of each volume."""
    return [(text(volume, "mountPath"), _claim_name(job, index, volume)) for index, volume in enumerate(_volumes(job))]


def _claim_name(job: Json, index: int, volume: Json) -> str:
    """The claim's name as written, else ``<job>-pvc-`` and twelve characters that are the same each time."""
    name = text(volume, "volumeClaimName")
    if name or not volume.get("volumeClaim"):
        return name
    uid = text(job, "metadata", "uid")
    digest = hashlib.sha256(f"{uid}/{index}".encode()).hexdigest()[:12]
    return f"{text(job, 'metadata', 'name')}-pvc-{digest}"


def _claims(job: Json) -> list[Json]:
    """The volume claims that the job itself specifies."""
    volume_claims: list[Json] = []
    for index, volume in enumerate(_volumes(job)):
        spec: Any = volume.get("volumeClaim")
        if spec:
            metadata = {
                "name": _claim_name(job, index, volume),
                "namespace": text(job, "metadata", "namespace"),
                "ownerReferences": [owner_reference(job)],
            }
            volume_claims.append(
                {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
            )
    return volume_claims
