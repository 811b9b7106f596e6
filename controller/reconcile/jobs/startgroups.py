"""PodGroups of ``scheduling.k8s.io`` that the controller makes for the jobs that it starts: kube-scheduler then starts
such a gang whole. Pure.

A group is of one start: its verdict is final, and the next start has a group with another name. The pods of the job get
it by an annotation of their template, since ``spec.schedulingGroup`` of a template never changes (decision 149).

What kube-scheduler 1.37 does (pkg/scheduler/framework/plugins/gangscheduling): while fewer pods of a group exist than
its ``minCount`` none is tried, also after the group has started. Pods that have ended do not count, so a pod that is
made anew could wait for ever beside sisters that have ended: the minimum of a group that has started is lowered.
"""

import hashlib
from collections.abc import Iterator
from typing import Final

from controller.jobs.framework.actions import (
    Action,
    LowerGroup,
    MakeGroup,
    RemoveGroup,
    SetGangScheduled,
)
from controller.jobs.framework.context import Context
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import Json, mapping, sequence, text
from controller.objects.decode import KUEUE
from controller.objects.meta import epoch_s, find_condition, is_true
from controller.objects.nativegroups import NativeGroup
from controller.objects.workload import admitted_pods
from controller.reconcile.jobs.theirgroups import of_others
from controller.reconcile.lifecycle.schedulerverdict import INITIALLY_SCHEDULED, halved, verdict
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.gangverdict import gang_verdict
from inventory.api.names import START_OF

_DEFAULT_SCHEDULER: Final = "default-scheduler"
_LONGEST: Final = 253
_DIGITS: Final = 8


def group_of_start(context: Context, workload: SeenWorkload) -> str:
    """The name of the PodGroup with which the job starts by this admission; empty if its pods start one by one."""
    return _name(workload) if _pods_of_start(context, workload) > 1 else ""


def made(context: Context, workload: SeenWorkload, name: str) -> list[Action]:
    """The action that makes the group of a start, if there is to be one and it is not known yet."""
    if not name or any(each.metadata.name == name for each in _of(context, workload)):
        return []
    spec: Json = {
        "schedulingPolicy": {"gang": {"minCount": _pods_of_start(context, workload)}},
        "disruptionMode": {"all": {}},
    }
    # The API server computes the number from the class, as it does for the pods.
    if class_ := _common(context, "priorityClassName"):
        spec["priorityClassName"] = class_
    owner = {"apiVersion": KUEUE, "kind": "Workload", "name": workload.name, "uid": workload.uid}
    metadata = {
        "name": name,
        "namespace": workload.typed.metadata.namespace,
        "labels": {START_OF: workload.uid},
        "ownerReferences": [owner],
    }
    earlier = gang_verdict(workload.typed)
    return [
        MakeGroup(
            body={"kind": "PodGroup", "metadata": metadata, "spec": spec},
            refused=SetGangScheduled(
                name=workload.name, uid=workload.uid, status="False", reason=reasons.POD_GROUP_NOT_MADE, message=""
            ),
            told=earlier.message if earlier is not None and earlier.reason == reasons.POD_GROUP_NOT_MADE else "",
        )
    ]


def followed(context: Context, workload: SeenWorkload) -> list[Action]:
    """Actions about the groups of a job's starts: those of earlier starts are removed, of the one that runs the verdict
    is told, and its minimum lowered.
    """
    groups = _of(context, workload)
    name = _name(workload) if groups and workload.is_admitted else ""
    over = (each for each in groups if each.metadata.name != name and each.metadata.deletion_timestamp is None)
    actions: list[Action] = [RemoveGroup(name=each.metadata.name, uid=each.metadata.uid) for each in over]
    group = next((each for each in groups if each.metadata.name == name), None)
    if context.kind.is_suspended(context.job) or workload.eviction is not None or not workload.is_admitted:
        return actions
    theirs = of_others(context)
    if theirs is not None and context.seen.stranded:
        return [*actions, *halved(workload, context.seen.stranded)]
    if theirs is not None:
        return [*actions, *verdict(workload, theirs)]
    return actions if group is None else [*actions, *_lowered(context, group), *verdict(workload, group)]


def _of(context: Context, workload: SeenWorkload) -> list[NativeGroup]:
    return [each for each in context.seen.groups or () if each.metadata.labels.get(START_OF) == workload.uid]


def _name(workload: SeenWorkload) -> str:
    """The name of the group of this admission: the number of evictions tells two admissions of one second apart."""
    admitted = find_condition(workload.typed.status.conditions, reasons.ADMITTED)
    since_s = 0.0 if admitted is None else epoch_s(admitted.last_transition_time)
    stats = workload.typed.status.scheduling_stats
    evictions = sum(each.count for each in stats.evictions) if stats is not None else 0
    digits = hashlib.sha256(f"{workload.uid}/{since_s}/{evictions}".encode()).hexdigest()[:_DIGITS]
    return f"{workload.name[: _LONGEST - _DIGITS - 1].rstrip('-.')}-{digits}"


def _pods_of_start(context: Context, workload: SeenWorkload) -> int:
    """The number of pods that the job's controller makes when the job starts; 0 if they are not to be one group."""
    kind, job = context.kind, context.job
    admission = workload.typed.status.admission
    if context.seen.groups is None or admission is None or context.elastic or not kind.makes_all_at_once(job):
        return 0
    if kind.counts_above(job) or any(_is_grouped(spec) for spec in _pod_specs(context)):
        return 0
    # kube-scheduler refuses a group whose pods differ in either; another scheduler may not know groups.
    if _common(context, "priorityClassName") is None:
        return 0
    if _common(context, "schedulerName") not in ("", _DEFAULT_SCHEDULER):
        return 0
    sets = {each.name: each for each in workload.typed.spec.pod_sets}
    spare = kind.reclaimable(job, workload)
    return sum(
        min(admitted_pods(sets[one.name], one), sets[one.name].count - spare.get(one.name, 0))
        for one in admission.pod_set_assignments
        if one.name in sets
    )


def _is_grouped(spec: Json) -> bool:
    """Whether pods of this spec are in a group already, or can be in none."""
    return bool(mapping(spec, "schedulingGroup") or sequence(spec, "evictionResponders"))


def _common(context: Context, field: str) -> str | None:
    """The field's value in all pod templates, empty where they have none; None if they differ."""
    found = {text(spec, field) for spec in _pod_specs(context)}
    return found.pop() if len(found) == 1 else None


def _pod_specs(context: Context) -> Iterator[Json]:
    return (mapping(each, "spec") for each in context.kind.templates(context.job).values())


def _lowered(context: Context, group: NativeGroup) -> list[Action]:
    """The action that lowers the minimum to the pods that are left, while one of them does not run.

    Never lower: after a preemption all pods are made anew, and must start together again.
    """
    gang, left = group.spec.scheduling_policy.gang, context.kind.pods_left(context.job)
    started = is_true(group.status.conditions, INITIALLY_SCHEDULED)
    if gang is None or left is None or not started or not 1 <= left < (gang.min_count or 1):
        return []
    meta = group.metadata
    tie = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    patch = {"metadata": tie, "spec": {"schedulingPolicy": {"gang": {"minCount": left}}}}
    return [LowerGroup(name=meta.name, patch=patch)]
