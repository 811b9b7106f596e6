"""The status of a PodGroup of Volcano or KAI, as its own scheduler would write it. Pure.

Source: volcano-sh/volcano, pkg/scheduler/framework/job_updater.go. A group is Pending while it waits for quota, Inqueue
while its pods are awaited or start, Running once its minimum is on nodes, Completed when all of those have ended, and
Unknown while some run and others cannot. A group that lacks pods is not Pending: operators make no pods while it is.

Conditions have no times here: a new one gets its time when it is written.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import Json, condition, mapping, sequence
from controller.objects.meta import Struct
from controller.objects.workload import Workload
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.podrequests import amounts, one_pod, scaled
from controller.scheduler.model.resources import UNLIMITED, Amount, ClusterQueueName, ResourceName
from controller.scheduler.model.workload import WorkloadInfo
from controller.scheduler.quota.queueusage import quantity_of
from controller.scheduler.volcano.tree import is_preemptible
from inventory.words.catalog import plural

SCHEDULED: Final = "Scheduled"
UNSCHEDULABLE: Final = "Unschedulable"
KAI_UNSCHEDULABLE: Final = "UnschedulableOnNodePool"
KAI_NODE_POOL: Final = "default"

_KAI_REASONS: Final = ("NonPreemptibleOverQuota", "OverLimit", "QueueDoesNotExist")
_NOT_ENOUGH: Final = {False: "NotEnoughResources", True: "NotEnoughTasks"}


class Counts(Struct, frozen=True, kw_only=True):
    """The number of pods of a group by phase. ``scheduled``: pods that are on a node, or have ended on one."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    scheduled: int = 0


class Standing(Struct, frozen=True, kw_only=True):
    """The progress of a group. ``missing``: why its pods are too few; ``waits``: why they may not start; ``stuck``: why
    one that may start is on no node. Each is empty if that is not so.
    """

    minimum: int
    counts: Counts
    missing: str = ""
    waits: str = ""
    stuck: str = ""

    @property
    def phase(self) -> str:
        counts = self.counts
        if counts.scheduled and counts.scheduled >= self.minimum:
            return "Completed" if counts.succeeded + counts.failed >= counts.scheduled else "Running"
        if counts.running and (self.missing or self.waits or self.stuck):
            return "Unknown"
        return "Pending" if self.waits and not self.missing else "Inqueue"

    @property
    def condition(self) -> Json | None:
        """The condition's type, reason and message; None while the pods are on their way to their nodes."""
        counts, ready = self.counts, self.phase in ("Running", "Completed")
        if ready:
            message = f"{plural(counts.scheduled, 'pod is', 'pods are')} scheduled, of at least {self.minimum}"
            return {"type": SCHEDULED, "status": "True", "reason": SCHEDULED, "message": message}
        why = self.missing or self.waits or self.stuck
        if not why:
            return None
        reason = _NOT_ENOUGH[bool(self.missing)]
        return {"type": UNSCHEDULABLE, "status": "True", "reason": reason, "message": why}


def counts_of(pods: Iterable[SeenPod]) -> Counts:
    phases, scheduled = Counter[str](), 0
    for pod in pods:
        phases[pod.phase] += 1
        scheduled += bool(pod.node_name) or pod.phase in ("Succeeded", "Failed")
    return Counts(
        pending=phases["Pending"],
        running=phases["Running"],
        succeeded=phases["Succeeded"],
        failed=phases["Failed"],
        scheduled=scheduled,
    )


def stuck(pods: Iterable[SeenPod]) -> str:
    """The scheduler's message about the first ungated pod for which it finds no node; empty if there is none."""
    for pod in pods:
        said = condition(pod.raw, "PodScheduled")
        if not pod.gates and said.get("status") == "False" and said.get("reason") == UNSCHEDULABLE:
            return str(said.get("message") or f"pod {pod.name} has no node")
    return ""


def status_patch(
    system: System, given: Json, standing: Standing, resources: Mapping[str, Mapping[str, str]] | None = None
) -> Json:
    """The merge patch of the PodGroup's ``status``; empty if nothing changes.

    ``resources``: KAI's ``resourcesStatus``.
    """
    now = mapping(given, "status")
    counts = standing.counts
    wanted: Json = {
        "phase": standing.phase,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "conditions": _conditions(sequence(now, "conditions"), standing),
    }
    if system is System.KAI:
        wanted["pending"] = counts.pending
        wanted["schedulingConditions"] = _scheduling_conditions(sequence(now, "schedulingConditions"), standing)
        wanted["resourcesStatus"] = {key: dict(amounts) for key, amounts in (resources or {}).items()}
    return {key: value for key, value in wanted.items() if _bare(now.get(key)) != _bare(value)}


def stamped(status: Json, now: str) -> Json:
    """The status with the time ``now`` on each condition that has none."""
    lists = ("conditions", "schedulingConditions")
    timed = {
        key: [each if each.get("lastTransitionTime") else {**each, "lastTransitionTime": now} for each in status[key]]
        for key in lists
        if status.get(key)
    }
    return {**status, **timed}


def _conditions(had: Sequence[Any], standing: Standing) -> list[Json]:
    """The conditions of the PodGroup: at most one of these two types, and all of other types."""
    others = [each for each in had if isinstance(each, dict) and each.get("type") not in (SCHEDULED, UNSCHEDULABLE)]
    wanted = standing.condition
    return others if wanted is None else [*others, _kept(had, wanted)]


def _scheduling_conditions(had: Sequence[Any], standing: Standing) -> list[Json]:
    condition = standing.condition
    if condition is None or condition["type"] != UNSCHEDULABLE:
        return []
    message = condition["message"]
    reason = next((known for known in _KAI_REASONS if f"{known}:" in message), condition["reason"])
    explained = {"reason": reason, "message": message}
    wanted = {"type": KAI_UNSCHEDULABLE, "nodePool": KAI_NODE_POOL, "status": "True", **explained}
    return [_kept(had, {**wanted, "reasons": [explained]})]


def _kept(had: Sequence[Any], wanted: Json) -> Json:
    """The existing condition, with its time, if it says the same; else the wanted one."""
    same = (each for each in had if isinstance(each, dict) and {**each, **wanted} == each)
    return next(same, wanted)


def _bare(value: Any) -> Any:
    """The value without zero values, which may be left out."""
    if isinstance(value, dict):
        return {key: bare for key, item in value.items() if (bare := _bare(item)) is not None} or None
    return value or None


def resources_of(workload: Workload) -> dict[str, dict[str, str]]:
    """KAI's ``resourcesStatus`` of a workload."""
    requested: dict[ResourceName, Amount] = {}
    for pod_set in workload.spec.pod_sets:
        _add(requested, scaled(one_pod(pod_set.template.spec), pod_set.count))
    allocated: dict[ResourceName, Amount] = {}
    admission = workload.status.admission
    for assignment in () if admission is None else admission.pod_set_assignments:
        _add(allocated, amounts(assignment.resource_usage))
    info = WorkloadInfo(workload=workload, cluster_queue=ClusterQueueName(""), pod_sets=())
    preemptible = is_preemptible(info, workload.spec.priority or 0, System.KAI)
    return {
        "requested": _shown(requested),
        "allocated": _shown(allocated),
        "allocatedNonPreemptible": {} if preemptible else _shown(allocated),
    }


def _add(total: dict[ResourceName, Amount], more: Mapping[ResourceName, Amount]) -> None:
    for name, amount in more.items():
        total[name] = min(total.get(name, 0) + amount, UNLIMITED)


def _shown(total: Mapping[ResourceName, Amount]) -> dict[str, str]:
    return {name: str(quantity_of(name, amount)) for name, amount in sorted(total.items()) if amount}
