"""Runners of the suites in which pods and groups of pods are reconciled, and of single questions about them."""

from collections.abc import Sequence
from typing import Any, Final

from controller.jobs.framework import compose
from controller.jobs.framework.podview import TERMINATION_TARGET, SeenPod
from controller.jobs.framework.raw import JobError, Json
from controller.reconcile.pods import group
from controller.reconcile.pods.actions import holds_quota
from tests.conformance.kueuejobs.differences import ADDED_TO_TEMPLATES
from tests.conformance.kueuejobs.podgroups import PodsWorld, is_behind, pods_world, with_given_uids
from tests.conformance.kueuejobs.runners_podsets import filled
from tests.conformance.kueuejobs.runners_reconcile import without, workloads_json
from tests.conformance.kueuejobs.world import reaches
from tests.conformance.replay import Case, Difference, first_difference, runner

_KEPT: Final = ("name", "namespace", "uid", "labels", "annotations", "finalizers", "ownerReferences")


def pods_json(listed: Sequence[Json]) -> list[Any]:
    """Pods in the order of their names, without times and texts."""
    found = []
    for raw in sorted(listed, key=lambda one: str(one["metadata"]["name"])):
        own = with_given_uids(raw)
        status = own.get("status") or {}
        stopped = [one for one in status.get("conditions") or () if one["type"] == TERMINATION_TARGET]
        found.append(
            filled(
                {
                    "metadata": {key: own["metadata"].get(key) for key in _KEPT},
                    "spec": own["spec"],
                    "phase": status.get("phase"),
                    "stopped": [{key: one[key] for key in ("status", "reason")} for one in stopped],
                }
            )
        )
    return list(without(found, ADDED_TO_TEMPLATES))


def _compared(case: Case, state: PodsWorld) -> Difference | None:
    wanted = case.expect
    if "workloadCmpOpts" in case.input:
        one, other = (
            workloads_json([with_given_uids(raw) for raw in each], owners=True, metadata=True, templates=True)
            for each in (wanted.get("wantWorkloads") or (), list(state.workloads.values()))
        )
        if difference := first_difference(one, other, "workloads"):
            return difference
    if wanted.get("wantPods") is None:
        return None
    return first_difference(pods_json(wanted["wantPods"]), pods_json(list(state.pods.values())), "pods")


@runner("jobs-pod-TestReconciler")
def reconciled(case: Case) -> Difference | None:
    state = pods_world(case)
    if is_behind(case, state.pods):
        return _compared(case, state)
    return reaches(state, lambda: _compared(case, state))


@runner("jobs-pod-TestPodSets")
def pod_sets(case: Case) -> Difference | None:
    given = case.input["pod"]
    members = [SeenPod(raw) for raw in (given["list"]["items"] if given["isGroup"] else [given["pod"]])]
    found = compose.gated(group.pod_sets(group.group_of(members, None), members), case.gates)
    return first_difference(filled(case.expect["wantPodSets"]), filled([one.as_json() for one in found]))


@runner("jobs-pod-TestPod_IsActive")
def is_active(case: Case) -> Difference | None:
    """Whether a pod still holds the quota that an eviction takes."""
    fields = case.input["fields"]
    listed = (fields.get("list") or {}).get("items") or [fields["pod"]]
    fast = bool(case.input["enableFastQuotaRelease"])
    found = any(holds_quota(SeenPod(raw), fast=fast) for raw in listed)
    return first_difference(case.expect["want"], found)


@runner("jobs-pod-TestPodsReady")
def pods_ready(case: Case) -> Difference | None:
    given = case.input["pod"]
    first = SeenPod(given["pod"])
    members = [SeenPod(raw) for raw in given["list"]["items"] or ()] if given["isGroup"] else [first]
    try:
        found = group.all_ready(members, group.group_of([first], None).total)
    except JobError:
        found = False
    return first_difference(case.expect["want"], found)
