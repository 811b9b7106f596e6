"""Runners of the suites about pods that hang while they end."""

from typing import Any

from controller.jobs.framework.raw import Json
from controller.objects.core import Node
from controller.objects.decode import decode
from controller.reconcile.failures.stuckpods import REASON, is_candidate, recovery
from tests.conformance.kueue.runners_workload import duration_s
from tests.conformance.kueuejobs.runners_core import now_s
from tests.conformance.kueuejobs.runners_podsets import filled
from tests.conformance.replay import Case, Difference, first_difference, runner


@runner("jobs-failurerecovery-TestCreateEventFilter")
def comes(case: Case) -> Difference | None:
    return first_difference(case.expect["wantResult"], is_candidate(case.input["pod"]))


@runner("jobs-failurerecovery-TestUpdateEventFilter")
def changes(case: Case) -> Difference | None:
    """A pod that was to be looked at before the change is looked at again anyway."""
    begins = is_candidate(case.input["newPod"]) and not is_candidate(case.input["oldPod"])
    return first_difference(case.expect["wantResult"], begins)


@runner("jobs-failurerecovery-TestReconciler")
def given_up(case: Case) -> Difference | None:
    pod, at_s = case.input["testPod"], now_s(case)
    nodes = {raw["metadata"]["name"]: decode(raw, Node) for raw in case.input["apiObjects"] if raw["kind"] == "Node"}
    found = recovery(pod, nodes.get(pod["spec"].get("nodeName", "")))
    is_due = found is not None and found.due_s <= at_s
    after = {**pod, "status": {**pod["status"], **found.status}} if found is not None and is_due else pod
    left_s = 0.0 if found is None or is_due else found.due_s - at_s
    wanted = case.expect["wantResult"] or {}
    events = [event["reason"] for event in case.expect["wantEvents"] or ()]
    return (
        first_difference(_shown(case.expect["wantPod"]), _shown(after), "pod")
        or first_difference(duration_s(wanted.get("requeueAfter") or "0s"), left_s, "requeueAfter")
        or first_difference(events, [REASON] if is_due else [], "events")
    )


def _shown(pod: Json) -> Any:
    status = dict(pod["status"])
    hidden = ("lastTransitionTime", "lastProbeTime", "message")
    conditions = [
        {key: value for key, value in one.items() if key not in hidden} for one in status.pop("conditions", ())
    ]
    return filled({"spec": pod["spec"], "status": {**status, "conditions": conditions}})
