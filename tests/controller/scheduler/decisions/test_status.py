"""What decisions make of a Workload's status."""

import msgspec
import pytest

from controller.objects.meta import Condition, find_condition
from controller.objects.workload import Admission, AdmissionCheckState, PodSetAssignment, Workload
from controller.scheduler.decisions import status
from controller.scheduler.decisions.evictionstatus import evicted
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.workload import PodSetRequests
from tests.support.engine.world import NOW_S, cluster_queue, workload

GATES = FeatureGates()
COARSE = FeatureGates({"UnadmittedWorkloadsObservability": False})
ADMISSION = Admission(cluster_queue="a", pod_set_assignments=(PodSetAssignment(name="main", count=1),))


def reserved(given: Workload, *checks: str, now_s: float = NOW_S, gates: FeatureGates = GATES) -> Workload:
    return status.reserved(given, ADMISSION, checks=checks, now_s=now_s, gates=gates)


def shown(given: Workload, type_: str) -> str:
    found = find_condition(given.status.conditions, type_)
    return "" if found is None else f"{found.status}/{found.reason}"


def with_conditions(given: Workload, *conditions: Condition) -> Workload:
    return msgspec.structs.replace(given, status=msgspec.structs.replace(given.status, conditions=conditions))


def test_a_reservation_without_checks_is_an_admission() -> None:
    after = reserved(workload("w", "a"))
    assert (shown(after, "QuotaReserved"), shown(after, "Admitted")) == ("True/QuotaReserved", "True/Admitted")
    assert after.status.admission == ADMISSION


def test_checks_are_attached_and_hold_the_admission_up() -> None:
    after = reserved(workload("w", "a"), "one")
    assert shown(after, "Admitted") == "False/UnsatisfiedAdmissionChecks"
    assert [(one.name, one.state) for one in after.status.admission_checks] == [("one", "Pending")]
    assert shown(reserved(workload("w", "a"), "one", gates=COARSE), "Admitted") == ""


def test_places_that_are_still_to_be_chosen_hold_the_admission_up() -> None:
    waits = PodSetAssignment(name="main", count=1, delayed_topology_request="Pending")
    later = msgspec.structs.replace(ADMISSION, pod_set_assignments=(waits,))
    after = status.reserved(workload("w", "a"), later, checks=(), now_s=NOW_S, gates=GATES)
    assert shown(after, "Admitted") == "False/PendingDelayedTopologyRequests"


@pytest.mark.parametrize("type_", ["Evicted", "Preempted", "BlockedOnPreemptionGates"])
def test_what_ended_an_earlier_stay_is_over_with_a_new_reservation(type_: str) -> None:
    before = with_conditions(workload("w", "a"), Condition(type=type_, status="True", reason="R", message="why"))
    after = reserved(before)
    assert shown(after, type_) == "False/QuotaReserved"
    found = find_condition(after.status.conditions, type_)
    assert found is not None
    assert "why" in found.message


def test_giving_quota_back_adds_up_the_time_it_was_admitted_for() -> None:
    first = reserved(workload("w", "a"))
    back = status.unreserved(first, PendingReason.PENDING_EVALUATION, "x", now_s=NOW_S + 90.0, gates=GATES)
    assert back.status.admission is None
    assert back.status.accumulated_past_execution_time_seconds == 90
    second = reserved(back, now_s=NOW_S + 100.0)
    assert status.executed_s(second, NOW_S + 110.0) == 100
    again = status.unreserved(second, PendingReason.PENDING_EVALUATION, "x", now_s=NOW_S + 110.0, gates=GATES)
    assert again.status.accumulated_past_execution_time_seconds == 100


def test_a_workload_that_was_admitted_is_said_to_be_no_longer_whatever_the_gate() -> None:
    back = status.unreserved(reserved(workload("w", "a")), PendingReason.SUSPENDED, "x", now_s=NOW_S, gates=COARSE)
    assert (shown(back, "QuotaReserved"), shown(back, "Admitted")) == ("False/Inadmissible", "False/NoReservation")


def test_who_waits_says_what_it_asks_for_and_since_when() -> None:
    sets = (PodSetRequests(name="main", count=2, requests={"cpu": 1500, "memory": 1024}, flavors={}),)  # type: ignore[dict-item]
    first = status.pending(
        workload("w", "a"), PendingReason.WAITING_FOR_QUOTA, "x", pod_sets=sets, now_s=NOW_S, gates=GATES
    )
    later = status.pending(first, PendingReason.EXCEEDS_MAX_QUOTA, "y", pod_sets=sets, now_s=NOW_S + 5, gates=GATES)
    assert {name: str(amount) for name, amount in later.status.resource_requests[0].resources.items()} == {
        "cpu": "1500m",
        "memory": "1Ki",
    }
    condition = find_condition(later.status.conditions, "QuotaReserved")
    assert condition is not None
    assert (condition.reason, condition.last_transition_time) == ("ExceedsMaxQuota", status.moment(NOW_S))


def test_evictions_are_counted_by_their_reason_and_what_is_behind_it() -> None:
    after = workload("w", "a")
    for reason in ("Preempted", "PodsReadyTimeout", "Preempted", "DeactivatedDueToMaximumExecutionTimeExceeded"):
        after = evicted(after, reason, "why", now_s=NOW_S)
    stats = after.status.scheduling_stats
    assert stats is not None
    assert [(one.reason, one.underlying_cause, one.count) for one in stats.evictions] == [
        ("Preempted", "", 2),
        ("PodsReadyTimeout", "WaitForStart", 1),
        ("Deactivated", "MaximumExecutionTimeExceeded", 1),
    ]


def test_checks_hold_for_their_flavors_alone() -> None:
    strategy = {"admissionChecks": [{"name": "all"}, {"name": "some", "onFlavors": ["spot"]}]}
    queue = cluster_queue("a", admissionChecksStrategy=strategy)
    assert status.checks_for(queue, ["default"]) == ("all",)  # type: ignore[arg-type, list-item]
    assert status.checks_for(queue, ["spot"]) == ("all", "some")  # type: ignore[arg-type, list-item]


def test_synced_checks_keep_what_is_known_and_drop_what_no_longer_holds() -> None:
    known = (AdmissionCheckState(name="a", state="Ready"), AdmissionCheckState(name="gone", state="Ready"))
    assert [(one.name, one.state) for one in status.synced_checks(known, ("a", "b"), NOW_S)] == [
        ("a", "Ready"),
        ("b", "Pending"),
    ]


def test_conditions_say_which_generation_they_saw() -> None:
    given = workload("w", "a")
    seventh = msgspec.structs.replace(given, metadata=msgspec.structs.replace(given.metadata, generation=7))
    assert {one.observed_generation for one in reserved(seventh).status.conditions} == {7}
