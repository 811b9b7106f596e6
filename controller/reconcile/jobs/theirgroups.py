"""PodGroups of ``scheduling.k8s.io`` that others made and that the pods of a queued job are in. Pure.

The Job controller of 1.37 (gate WorkloadWithJob, pkg/controller/job/job_scheduling_manager.go) makes a PodGroup for
each Job that has no controller, of the policy basic where the Job has no ``spec.scheduling``. It makes none any more
once the Job was suspended: if the group is gone then, its pods are in none. A user may name a group in the template.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from math import inf
from typing import Final

from msgspec import Struct

from controller.jobs.framework.actions import Action, RemoveGroup
from controller.jobs.framework.context import Context
from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import (
    JobError,
    Json,
    annotations,
    condition,
    mapping,
    sequence,
    shown,
    strings,
    text,
)
from controller.jobs.framework.steps import event
from controller.jobs.framework.topologyrequest import REQUIRED
from controller.messages import jobs as words
from controller.objects.core import ENDED_PHASES
from controller.objects.meta import is_true
from controller.objects.nativegroups import NATIVE, NativeGroup
from controller.reconcile.lifecycle.schedulerverdict import INITIALLY_SCHEDULED, was_preempted

_FIELD = "spec.schedulingGroup.podGroupName"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
LOOKS_EVERY_S: Final = 3.0
"""The pause between two looks at the pods of a gang of others that is not wholly ready: half of one is to last for less
than 30 seconds.
"""
HALF_S: Final = 20.0
"""The time for which pods of a gang that runs may be missing. The Job controller makes a pod that was deleted anew
after 10 to 20 seconds; several after 10 s, doubled with each further one, and up to 10 minutes.
"""


class Look(Struct, frozen=True, kw_only=True):
    """What a look at the pods of a gang found.

    ``waiting``: the uids of those without a node. ``missing_since_s``: the time since which each look missed pods; None
    where none is missing. ``lost``: the number of pods that make the others half of a gang.
    """

    at_s: float
    waiting: frozenset[str] = frozenset()
    missing_since_s: float | None = None
    lost: int = 0


def groups_named(kind: JobKind, job: Json) -> set[str]:
    """The PodGroups that the job's pod templates name; none for a job that cannot be read: its reader says why."""
    try:
        return {name for each in kind.templates(job).values() if (name := _named(each))}
    except JobError:
        return set()


def check_named(kind: JobKind, job: Json, known: Mapping[str, NativeGroup | None]) -> None:
    """Checks the PodGroups that the templates of a job name: with quota its pods could not start otherwise. ``known``:
    these groups, None for one that is not there. Raises JobError.
    """
    counts = kind.counts(job) if known else {}
    for name, group in known.items():
        mine = {key: each for key, each in kind.templates(job).items() if _named(each) == name}
        if group is None:
            raise JobError(f"{_FIELD} of the pod template: no PodGroup {shown(name)} of {NATIVE}")
        gang = group.spec.scheduling_policy.gang
        pods = sum(counts.get(key, 0) for key in mine)
        if gang is not None and (gang.min_count or 1) > pods:
            found = f"spec.schedulingPolicy.gang.minCount is {gang.min_count}, and the job makes {pods} of its pods"
            raise JobError(
                f"PodGroup {name}: {found}. A group of several jobs starts only if no queue holds one of them"
            )
        level = group.spec.level
        if level and any(strings(each, "metadata", "annotations").get(REQUIRED) != level for each in mine.values()):
            wanted = f"expected the annotation {REQUIRED}: {level} in the pod template of the job, found none"
            raise JobError(f"PodGroup {name}: its pods are to be in one domain of {level}: {wanted}")


def unwanted(context: Context) -> list[Action]:
    """Actions that remove what the Job controller made for a Job that says nothing of a gang, before the Job starts in
    a group of Tessera's: a pod is in one group.
    """
    found = [each.metadata for each in context.seen.controlled if _basic(each)]
    gone = [each for each in found if each.deletion_timestamp is None]
    removed: list[Action] = [RemoveGroup(name=each.name, uid=each.uid) for each in gone]
    return [*removed, *(event("GroupRemoved", words.group_removed(each.name)) for each in found)]


def may_be_halved(
    kind: JobKind, job: Json, workloads: Iterable[SeenWorkload], groups: Iterable[NativeGroup | None]
) -> bool:
    """Whether pods of the job may have lost their nodes, or be gone, while others run: it runs in a gang of others that
    once had nodes for all. kube-scheduler's verdict on that gang is final, so the pods have to be looked at.
    """
    gangs = [each for each in groups if each is not None and not _basic(each)]
    if len(gangs) != 1 or not is_true(gangs[0].status.conditions, INITIALLY_SCHEDULED) or kind.is_suspended(job):
        return False
    runs = any(each.is_live and each.is_admitted and each.eviction is None for each in workloads)
    return runs and kind.pods_left(job) is not None


def least_of(groups: Iterable[NativeGroup | None]) -> int:
    """The pods that the one gang among these groups starts with; 0 where that is not one number."""
    gangs = [each.spec.scheduling_policy.gang for each in groups if each is not None and not _basic(each)]
    return (gangs[0].min_count or 0) if len(gangs) == 1 and gangs[0] is not None else 0


def looked(pods: Iterable[Json], since_s: float, needed: int, before: Look | None, now_s: float) -> Look:
    """The look at the pods of a gang that was admitted at ``since_s``. ``needed``: those that have to run together;
    ``before``: the last look that a pause preceded.

    Pods that wait count from the second look on, those that are not there after ``HALF_S``. What the last look found
    holds until the pause is over while pods still wait or are not there: a reconciliation that comes before the gang is
    evicted must not take the verdict back.
    """
    pods = list(pods)
    nodeless, gone = without_node(pods, since_s, needed), missing(pods, since_s, needed)
    again = before is None or now_s >= before.at_s + LOOKS_EVERY_S
    known = before.waiting if before is not None and again else frozenset[str]()
    missing_since_s = None
    if gone:
        earlier_s = None if before is None else before.missing_since_s
        missing_since_s = now_s if earlier_s is None else earlier_s
    lost = sum(preempted or uid in known for uid, preempted in nodeless.items())
    if missing_since_s is not None and now_s >= missing_since_s + HALF_S:
        lost = gone + len(nodeless)
    if before is not None and not again and (nodeless or gone):
        lost = max(lost, before.lost)
    kept = now_s if before is None or again else before.at_s
    waiting = frozenset(nodeless) if before is None or again else before.waiting
    return Look(at_s=kept, waiting=waiting, missing_since_s=missing_since_s, lost=lost)


def without_node(pods: Iterable[Json], since_s: float, least: int = 0) -> dict[str, bool]:
    """The pods for which kube-scheduler finds no node, and those that it has preempted since then (True), by uid; empty
    where none of the others has a node: then it is no half of a gang. Neither are ``least`` pods with a node, beside
    which others still wait: these are more than the gang needs.
    """
    pods = list(pods)
    taken = {text(pod, "metadata", "uid"): True for pod in pods if was_preempted(pod, since_s)}
    waits = {text(pod, "metadata", "uid"): False for pod in pods if _is_there(pod) and _is_unschedulable(pod)}
    lost = taken | waits
    stay = [pod for pod in pods if _runs_on(pod) and text(pod, "metadata", "uid") not in lost]
    lost = taken if 0 < least <= len(stay) else lost
    return lost if stay else {}


def missing(pods: Iterable[Json], since_s: float, needed: int) -> int:
    """How many of the ``needed`` pods are not there, while others have nodes; kube-scheduler starts none before all are
    there, so these were deleted.

    A pod that has failed of itself stays until its Job ends: one that the Job controller has not replaced yet is not
    missing, because its retry waits in a back-off.
    """
    pods = list(pods)
    if not any(map(_runs_on, pods)):
        return 0
    newest: dict[str, float] = {}
    for pod in pods:
        index = annotations(pod).get(_INDEX, "")
        newest[index] = max(newest.get(index, 0.0), _time_s(text(pod, "metadata", "creationTimestamp")))
    retried = (
        pod
        for pod in pods
        if text(pod, "status", "phase") == "Failed" and not was_preempted(pod, since_s)
        if _ended_s(pod) >= newest[annotations(pod).get(_INDEX, "")]
    )
    return max(0, needed - sum(map(_is_there, pods)) - sum(1 for _ in retried))


def _is_there(pod: Json) -> bool:
    return text(pod, "status", "phase") not in ENDED_PHASES


def _runs_on(pod: Json) -> bool:
    """Whether the pod has a node and stays there."""
    return _is_there(pod) and bool(text(pod, "spec", "nodeName")) and not text(pod, "metadata", "deletionTimestamp")


def _ended_s(pod: Json) -> float:
    """The second since 1970 at which the last container of the pod ended; ``inf`` where none says so."""
    ends = (mapping(each, "state", "terminated") for each in sequence(pod, "status", "containerStatuses"))
    return max((_time_s(text(each, "finishedAt")) for each in ends if each), default=inf)


def _time_s(written: str) -> float:
    try:
        return datetime.fromisoformat(written).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _is_unschedulable(pod: Json) -> bool:
    said = condition(pod, "PodScheduled")
    return said.get("status") == "False" and said.get("reason") == "Unschedulable"


def of_others(context: Context) -> NativeGroup | None:
    """The PodGroup of others in which the job's pods are; None if there is none, or several."""
    found = [*_controlled(context), *(each for each in context.seen.named.values() if each is not None)]
    return found[0] if len(found) == 1 else None


def _controlled(context: Context) -> Iterator[NativeGroup]:
    return (each for each in context.seen.controlled if each.metadata.deletion_timestamp is None)


def _basic(group: NativeGroup) -> bool:
    return group.spec.scheduling_policy.gang is None


def _named(template: Json) -> str:
    return text(mapping(template, "spec"), "schedulingGroup", "podGroupName")
