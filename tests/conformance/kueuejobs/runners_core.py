"""Runners of the suites about one Workload on its way: its checks, time limits, evictions, back-offs."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from controller.jobs.framework.raw import Json
from controller.objects.decode import decode
from controller.objects.meta import find_condition, to_json
from controller.objects.queues import ClusterQueue
from controller.objects.workload import AdmissionCheckState, Workload
from controller.reconcile.lifecycle.lifecycle import due_s
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.status import checks_for, synced_checks
from controller.scheduler.model.config import EngineConfig, WaitForPodsReady
from controller.scheduler.model.resources import FlavorName
from tests.conformance.kueue.runners_workload import duration_s
from tests.conformance.kueuejobs.runners_podsets import filled
from tests.conformance.replay import Case, Difference, first_difference, runner


def now_s(case: Case) -> float:
    return datetime.fromisoformat(case.input["now"]).timestamp()


def _states(listed: Any) -> list[Json]:
    return [{"name": one["name"], "state": one["state"]} for one in listed or ()]


@runner("jobs-core-TestSyncCheckStates")
def check_states(case: Case) -> Difference | None:
    before = tuple(decode(one, AdmissionCheckState) for one in case.input.get("states") or ())
    after = synced_checks(before, tuple(case.input.get("list") or ()), now_s(case))
    return first_difference(_states(case.expect.get("wantStates")), _states(to_json(after))) or first_difference(
        bool(case.expect.get("wantChange")), after != before, "changed"
    )


@runner("jobs-core-TestReconcileSyncAdmissionChecks")
def checks_of_a_queue(case: Case) -> Difference | None:
    queue, workload = decode(case.input["cq"], ClusterQueue), decode(case.input["wl"], Workload)
    admission, after = workload.status.admission, workload.status.admission_checks
    if admission is not None:
        assigned = {
            FlavorName(flavor) for assignment in admission.pod_set_assignments for flavor in assignment.flavors.values()
        }
        after = synced_checks(after, checks_for(queue, assigned), now_s(case))
    return first_difference(_states(case.expect["wantChecks"]), _states(to_json(after)))


def rules(given: Mapping[str, Any] | None) -> WaitForPodsReady | None:
    if given is None:
        return None
    recovery = given.get("recoveryTimeout")
    return WaitForPodsReady(
        timeout_s=duration_s(given["timeout"]),
        recovery_timeout_s=None if recovery is None else duration_s(recovery),
        backoff_base_s=float(given.get("requeuingBackoffBaseSeconds") or 0),
        backoff_limit_count=given.get("requeuingBackoffLimitCount"),
        backoff_max_s=duration_s(given.get("requeuingBackoffMaxDuration") or "0s"),
    )


@runner("jobs-core-TestAdmittedNotReadyWorkload")
def not_ready(case: Case) -> Difference | None:
    workload = decode(case.input["workload"], Workload)
    config = EngineConfig(gates=case.gates, wait_for_pods_ready=rules(case.input.get("waitForPodsReady")))
    due = due_s(workload, config)
    left = 0.0 if due is None else max(0.0, due - now_s(case))
    wanted = duration_s(case.expect["wantRecheckAfter"] or "0s")
    ready = find_condition(workload.status.conditions, reasons.PODS_READY)
    waits_again = ready is not None and ready.reason == "WaitForRecovery"
    cause = "" if due is None else "WaitForRecovery" if waits_again else "WaitForStart"
    return first_difference(wanted, left, "recheck") or first_difference(
        case.expect.get("wantUnderlyingCause") or "", cause, "cause"
    )


def workload_json(raw: Mapping[str, Any], *, requeued: bool) -> Any:
    """No times, no texts; ``requeued``: with the condition Requeued, which an eviction sets at once here."""
    status = dict(raw.get("status") or {})
    conditions = {
        one["type"]: {"status": one["status"], "reason": one.get("reason", "")}
        for one in status.pop("conditions", None) or ()
        if (requeued or one["type"] != reasons.REQUEUED)
        and (one["type"], one["status"]) != (reasons.ADMITTED, "False")  # as good as none
    }
    checks = _states(status.pop("admissionChecks", None))
    state = {key: value for key, value in (status.pop("requeueState", None) or {}).items() if key != "requeueAt"}
    active = (raw.get("spec") or {}).get("active", True)
    kept = {key: value for key, value in status.items() if key != "schedulingStats"}
    return filled({**kept, "conditions": conditions, "checks": checks, "requeueState": state, "inactive": not active})
