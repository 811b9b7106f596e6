"""A plain pod as the queue sees it, and the labels and annotations that tie pods to queues and groups.

Labels, annotations, gate and finalizer are Kueue's (KEP 976, "Plain Pods"); PodGroups, and the annotations that name
them, are Volcano's and KAI's; ``spec.schedulingGroup`` names a PodGroup of Kubernetes' own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final, NamedTuple

from controller.jobs.framework import names
from controller.jobs.framework.raw import (
    JobError,
    Json,
    annotations,
    condition,
    has_condition,
    integer,
    labels,
    parsed_flag,
    parsed_integer,
    sequence,
    shown,
    strings,
    text,
)
from controller.objects.core import ENDED_PHASES, Pod
from controller.objects.meta import ZERO_TIME_S, object_key
from controller.objects.nativegroups import NATIVE
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import (
    ABOVE_MINIMUM_OF,
    ABOVE_MINIMUM_SUBGROUP,
    COMPOSITE_GROUP,
    OUT_OF_GROUP,
    SCHEDULER_NAME,
)

ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"
MANAGED: Final = "kueue.x-k8s.io/managed"
"""A label with the value "true", and a finalizer of the same name."""
GROUP_NAME: Final = "kueue.x-k8s.io/pod-group-name"
GROUP_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
FAST_ADMISSION: Final = "kueue.x-k8s.io/pod-group-fast-admission"
SERVING: Final = "kueue.x-k8s.io/pod-group-serving"
RETRIABLE: Final = "kueue.x-k8s.io/retriable-in-group"
POD_INDEX: Final = "kueue.x-k8s.io/pod-group-pod-index"
POD_INDEX_LABEL: Final = "kueue.x-k8s.io/pod-group-pod-index-label"
INDEX_OFFSET: Final = "kueue.x-k8s.io/pod-index-offset"
SUSPENDING_PARENT: Final = "kueue.x-k8s.io/pod-suspending-parent"
"""Annotation of a serving kind's pods: the kind, by its name as a job kind."""
ROLE_HASH: Final = "kueue.x-k8s.io/role-hash"
IS_GROUP_WORKLOAD: Final = "kueue.x-k8s.io/is-group-workload"
VOLCANO_GROUPS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
KAI_GROUP: Final = "pod-group-name"
"""Annotation that names a pod's KAI group. The key alone, without KAI's scheduler name or queue label, does not make a
pod KAI's."""
_OF_GROUPER: Final = re.compile(r"pg-.+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Names of groups that KAI's pod grouper makes of an owner, and writes into existing pods: no user asks for one."""
KAI_QUEUE: Final = "kai.scheduler/queue"
SCHEDULERS: Final = {"volcano": System.VOLCANO, "kai-scheduler": System.KAI}
"""The systems by the names of their schedulers."""
_OF_NAMES: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_MOST_OF_NAME: Final = 40
TERMINATION_TARGET: Final = "TerminationTarget"
"""The condition that the queue sets on a pod before it deletes it; a pod that a user deletes has none."""

OWN_GATES: Final = (ADMISSION_GATE, names.TOPOLOGY_GATE)


class GroupName(NamedTuple):
    """A PodGroup in the pod's namespace: of another system, or (``system`` None) Kubernetes' own; ``composite``: a
    CompositePodGroup of the latter.
    """

    system: System | None
    name: str
    composite: bool = False

    @property
    def workload(self) -> str:
        """The name of its Workload. Kubernetes' own have one that no group of another system has beside them."""
        if self.system is not None:
            return self.name
        return names.workload_name("CompositePodGroup" if self.composite else "PodGroup", NATIVE, self.name, "")


def foreign_group(
    own_labels: Mapping[str, str],
    said: Mapping[str, str],
    scheduler: str,
    schedulers: Mapping[str, System] = SCHEDULERS,
    native: str = "",
) -> GroupName | None:
    """The PodGroup of a pod with these labels, annotations and ``schedulerName``; None if it is in none. ``native``:
    the name in its ``spec.schedulingGroup``, which goes before annotations.

    If the pod names one of ``schedulers``, only a group of that scheduler's system counts.
    """
    system = schedulers.get(said.get(SCHEDULER_NAME) or scheduler)
    if native and system is None:
        top = said.get(COMPOSITE_GROUP, "")
        return None if said.get(OUT_OF_GROUP) == "true" else GroupName(None, top or native, composite=bool(top))
    for key in VOLCANO_GROUPS if system is not System.KAI else ():
        if said.get(key):
            return GroupName(System.VOLCANO, said[key])
    for_kai = system is System.KAI or (system is None and KAI_QUEUE in own_labels)
    name = said.get(KAI_GROUP, "")
    return GroupName(System.KAI, name) if for_kai and name and not _OF_GROUPER.fullmatch(name) else None


@dataclass(frozen=True)
class SeenPod:
    """A pod as a watch showed it; ``raw`` is its JSON. Every property may raise JobError for JSON that is no pod's."""

    raw: Json

    @cached_property
    def name(self) -> str:
        return text(self.raw, "metadata", "name")

    @cached_property
    def uid(self) -> str:
        return text(self.raw, "metadata", "uid")

    @cached_property
    def created_s(self) -> float:
        """The creation time in seconds since 1970; Go's zero time if it has none."""
        time = text(self.raw, "metadata", "creationTimestamp")
        try:
            return datetime.fromisoformat(time).timestamp() if time else ZERO_TIME_S
        except (ValueError, OverflowError):
            raise JobError(f"metadata.creationTimestamp: expected a time, found {shown(time)}") from None

    @cached_property
    def age_key(self) -> tuple[float, str]:
        """The sort key of pods from the oldest to the newest, the same each time."""
        return (self.created_s, self.name)

    @cached_property
    def labels(self) -> dict[str, str]:
        return labels(self.raw)

    @cached_property
    def annotations(self) -> dict[str, str]:
        return annotations(self.raw)

    @cached_property
    def node_selector(self) -> dict[str, str]:
        return strings(self.raw, "spec", "nodeSelector")

    @cached_property
    def node_name(self) -> str:
        return text(self.raw, "spec", "nodeName")

    @cached_property
    def gates(self) -> tuple[str, ...]:
        listed = sequence(self.raw, "spec", "schedulingGates")
        return tuple(str(gate.get("name", "")) for gate in listed if isinstance(gate, dict))

    @cached_property
    def phase(self) -> str:
        return text(self.raw, "status", "phase")

    @cached_property
    def is_managed(self) -> bool:
        return self.labels.get(MANAGED) == "true"

    @cached_property
    def has_parent(self) -> bool:
        """Whether the pod is of a serving kind, and so has no finalizer."""
        return SUSPENDING_PARENT in self.annotations

    @cached_property
    def has_finalizer(self) -> bool:
        return MANAGED in sequence(self.raw, "metadata", "finalizers")

    @cached_property
    def is_gated(self) -> bool:
        """Whether the pod has the admission gate; for a job's pod above its minimum, the gate of the job's pods."""
        return ADMISSION_GATE in self.gates or self.waits_with_its_job

    @cached_property
    def waits_with_its_job(self) -> bool:
        """Whether the pod is above the minimum of a job that makes its pods behind a gate, and still has that gate."""
        return bool(self.above_minimum_of) and names.TOPOLOGY_GATE in self.gates

    @cached_property
    def is_terminating(self) -> bool:
        return bool(text(self.raw, "metadata", "deletionTimestamp"))

    @cached_property
    def has_succeeded(self) -> bool:
        return self.phase == "Succeeded"

    @cached_property
    def is_over(self) -> bool:
        """Whether the pod does not run and never will: it has ended, or only a finalizer keeps its object.

        The second case has a grace period of 0: the API server sets it on a pod without a node (no kubelet will report
        on it), the kubelet when all has ended, and a user who forces the deletion.
        """
        forced = integer(self.raw, "metadata", "deletionGracePeriodSeconds", default=-1) == 0
        nowhere = not self.node_name and self.phase != "Running"
        return self.phase in ENDED_PHASES or (self.is_terminating and (forced or nowhere))

    @cached_property
    def inactive_key(self) -> tuple[bool, str, float]:
        """The sort key of pods that have ended: pods with the queue's finalizer first, of these the longest inactive.

        A pod is inactive since it was deleted, or since its containers are no longer ready, whichever came first.
        """
        unready = (condition(self.raw, type_) for type_ in ("ContainersReady", "Ready"))
        times = [str(found.get("lastTransitionTime", "")) for found in unready if found.get("status") == "False"]
        times.append(text(self.raw, "metadata", "deletionTimestamp"))
        return (not self.has_finalizer, min(filter(None, times), default="~"), self.created_s)

    @cached_property
    def has_failed(self) -> bool:
        return self.is_over and not self.has_succeeded

    @cached_property
    def stays(self) -> bool:
        """Whether the pod runs or may run, and is not being deleted."""
        return not self.is_over and not self.is_terminating

    @cached_property
    def may_run(self) -> bool:
        """Whether the pod may be on a node now: it is not gated, and has not ended."""
        return not self.is_over and not self.is_gated

    @cached_property
    def is_ready(self) -> bool:
        return self.has_succeeded or (self.stays and has_condition(self.raw, "Ready"))

    @cached_property
    def is_deleted_by_queue(self) -> bool:
        """Whether the queue, and not a user, deleted the pod."""
        return condition(self.raw, TERMINATION_TARGET).get("status") == "True"

    @cached_property
    def is_retriable(self) -> bool:
        """Whether the group waits for a replacement when the pod fails. A value that cannot be read counts as none."""
        return not self.is_flagged(RETRIABLE, "false")

    def is_flagged(self, key: str, value: str = "true") -> bool:
        """Whether the annotation, or label, ``key`` has the value ``value``."""
        return self.annotations.get(key, self.labels.get(key, "")).lower() == value

    @cached_property
    def group(self) -> str:
        """The name of the pod's Kueue group, in an annotation or label; empty if it is in none."""
        return self.annotations.get(GROUP_NAME) or self.labels.get(GROUP_NAME, "")

    @cached_property
    def above_minimum_of(self) -> str:
        """The name of the Workload with the minimum of its group, if the pod is above that; empty for any other pod."""
        return self.annotations.get(ABOVE_MINIMUM_OF, "")

    @cached_property
    def part(self) -> str:
        """The subgroup that a pod above a minimum starts with as a whole; empty for a pod by itself."""
        return self.annotations.get(ABOVE_MINIMUM_SUBGROUP, "") if self.above_minimum_of and not self.group else ""

    @cached_property
    def native_group(self) -> str:
        """The PodGroup in the pod's ``spec.schedulingGroup``; empty for none."""
        return text(self.raw, "spec", "schedulingGroup", "podGroupName")

    @cached_property
    def foreign_group(self) -> GroupName | None:
        """The pod's PodGroup of Volcano, KAI or Kubernetes; None for a pod of a Kueue group, of no group, or by itself
        above the minimum of one.
        """
        if self.group or (self.above_minimum_of and not self.part):
            return None
        scheduler = text(self.raw, "spec", "schedulerName")
        return foreign_group(self.labels, self.annotations, scheduler, native=self.native_group)

    def flag(self, key: str) -> bool:
        """Whether an annotation says yes. Raises JobError."""
        found = self.annotations.get(key)
        return found is not None and parsed_flag(found, f"metadata.annotations[{key}]")

    def total(self) -> int:
        """The number of pods that the group is to have. Raises JobError."""
        found, where = self.annotations.get(GROUP_TOTAL, ""), f"metadata.annotations[{GROUP_TOTAL}]"
        if not found:
            raise JobError(f"{where}: expected the number of pods of group {self.group}, found none")
        total = parsed_integer(found, where)
        if not 1 <= total < 2**31:
            raise JobError(f"{where}: expected at least 1, found {total}")
        return total


def part_name(minimum: str, subgroup: str) -> str:
    """The name of a subgroup above the minimum that the Workload ``minimum`` has, and of the subgroup's own
    Workload.
    """
    found = "".join(letter if letter in _OF_NAMES else "-" for letter in subgroup.lower()).strip("-")
    return names.part_name(minimum, found[:_MOST_OF_NAME], subgroup)


def key_of(pod: SeenPod) -> tuple[str, str]:
    """``(namespace, name)`` of the owner set of the pod's Workload: the group's name, or ``""`` for a pod on its
    own.
    """
    theirs, namespace = pod.foreign_group, text(pod.raw, "metadata", "namespace")
    if pod.part:
        return namespace, part_name(pod.above_minimum_of, pod.part)
    return namespace, pod.group if theirs is None else theirs.workload


def started_by(pod: Pod) -> str:
    """The name of the workload by which the pod's job was started, of an elastic job that of its first slice; empty for
    a pod of no job.
    """
    notes = pod.metadata.annotations
    return notes.get(names.SLICE_NAME) or notes.get(names.WORKLOAD, "")


def workload_of(pod: Pod) -> WorkloadKey | None:
    """The key of the pod's workload; None if it has none. Pods of an elastic job name its first slice, whichever of its
    slices holds quota (``Ledger.current``).

    A job's pod names it in an annotation. A plain queued pod belongs to its group's Workload, or to its own.
    """
    meta = pod.metadata
    name = started_by(pod)
    if not name and meta.labels.get(MANAGED) == "true":
        group = meta.annotations.get(GROUP_NAME) or meta.labels.get(GROUP_NAME, "")
        native = "" if pod.spec.scheduling_group is None else pod.spec.scheduling_group.pod_group_name
        theirs = foreign_group(meta.labels, meta.annotations, pod.spec.scheduler_name, native=native)
        minimum, part = (meta.annotations.get(key, "") for key in (ABOVE_MINIMUM_OF, ABOVE_MINIMUM_SUBGROUP))
        if minimum:
            name = group or (part_name(minimum, part) if part else "")
        else:
            name = group or (theirs.workload if theirs else "")
        name = name or names.workload_name("Pod", "", meta.name, meta.uid)
    return WorkloadKey(object_key(meta.namespace, name)) if name else None
