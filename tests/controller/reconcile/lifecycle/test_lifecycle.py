"""What happens to a workload outside of cycles, one step at a time."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.meta import Condition, ObjectMeta, find_condition, is_true
from controller.objects.queues import StopPolicy
from controller.objects.workload import (
    Admission,
    AdmissionCheckState,
    CheckState,
    PodSetAssignment,
    ReclaimablePod,
    RequeueState,
    TopologyAssignment,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from controller.reconcile.lifecycle.lifecycle import (
    NodesAwaited,
    QueuePolicies,
    Step,
    backoff_s,
    due_s,
    led_since,
    step,
)
from controller.reconcile.lifecycle.pendingcause import PendingCause
from controller.scheduler.decisions.gangverdict import PATIENCE_S, with_gang_verdict
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.model.config import EngineConfig, WaitForPodsReady
from controller.scheduler.model.gangshape import GangShape, written
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import GANG, GANG_SCHEDULED

NOW_S = 1_000_000.0
RULES = WaitForPodsReady(timeout_s=300.0, recovery_timeout_s=60.0, backoff_base_s=10.0, backoff_max_s=100.0)
CONFIG = EngineConfig(wait_for_pods_ready=RULES)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def condition(type_: str, status: str = "True", reason: str = "", since_s: float = NOW_S) -> Condition:
    return Condition(type=type_, status=status, reason=reason, last_transition_time=at(since_s))


def workload(*conditions: Condition, active: bool = True, limit_s: int | None = None, **status: Any) -> Workload:
    held = any(one.type == "QuotaReserved" and one.status == "True" for one in conditions)
    return Workload(
        metadata=ObjectMeta(name="job", namespace="ns"),
        spec=WorkloadSpec(active=active, maximum_execution_time_seconds=limit_s),
        status=WorkloadStatus(
            conditions=conditions, admission=Admission(cluster_queue="cq") if held else None, **status
        ),
    )


def running(**changes: Any) -> Workload:
    return workload(condition("QuotaReserved"), condition("Admitted"), **changes)


def took(
    given: Workload, around: QueuePolicies | None = None, now_s: float = NOW_S, config: EngineConfig = CONFIG
) -> Step:
    found = step(given, around or QueuePolicies(), config, now_s)
    assert found is not None
    return found


def reason_of(given: Workload, type_: str) -> str:
    found = find_condition(given.status.conditions, type_)
    assert found is not None
    return f"{found.status} {found.reason}"


def test_a_running_workload_with_nothing_outstanding_is_left_alone() -> None:
    ready = workload(condition("QuotaReserved"), condition("Admitted"), condition("PodsReady"))
    assert step(ready, QueuePolicies(), CONFIG, NOW_S + 1e9) is None
    assert due_s(ready, CONFIG) is None


def test_a_finished_workload_is_never_touched() -> None:
    gone = workload(condition("Finished"), condition("QuotaReserved"), condition("Admitted"), active=False)
    assert step(gone, QueuePolicies(cluster_queue_stop="HoldAndDrain"), CONFIG, NOW_S + 1e9) is None


def test_an_inactive_workload_is_evicted_and_then_kept_from_the_queue() -> None:
    first = took(running(active=False))
    assert reason_of(first.after, "Evicted") == "True Deactivated"
    assert [event.reason for event in first.events] == ["EvictedDueToDeactivated"]
    second = took(first.after)
    assert reason_of(second.after, "Requeued") == "False Deactivated"
    assert step(second.after, QueuePolicies(), CONFIG, NOW_S) is None


def test_activating_it_again_lets_it_queue_and_forgets_why_it_was_marked() -> None:
    held_back = workload(
        condition("Requeued", "False", "DeactivatedDueToRequeuingLimitExceeded"),
        condition("DeactivationTarget", "False", "RequeuingLimitExceeded"),
        requeue_state=RequeueState(count=3),
    )
    after = took(held_back).after
    assert reason_of(after, "Requeued") == "True Reactivated"
    assert after.status.requeue_state is None
    assert find_condition(after.status.conditions, "DeactivationTarget") is None


def test_missing_checks_are_added_and_those_that_no_longer_hold_dropped() -> None:
    held = workload(condition("QuotaReserved"), admission_checks=(AdmissionCheckState(name="old", state="Ready"),))
    after = took(held, QueuePolicies(checks=("new",))).after
    assert [(one.name, one.state) for one in after.status.admission_checks] == [("new", "Pending")]


def test_the_last_ready_check_admits() -> None:
    held = workload(condition("QuotaReserved"), admission_checks=(AdmissionCheckState(name="a", state="Ready"),))
    found = took(held, QueuePolicies(checks=("a",)))
    assert is_true(found.after.status.conditions, "Admitted")
    assert [event.reason for event in found.events] == ["Admitted"]


def test_a_check_that_retries_evicts_and_delays_as_it_asks_and_all_checks_start_over() -> None:
    states = (
        AdmissionCheckState(name="a", state="Retry", requeue_after_seconds=30, retry_count=1),
        AdmissionCheckState(name="b", state="Ready"),
    )
    held = workload(condition("QuotaReserved"), admission_checks=states)
    after = took(held, QueuePolicies(checks=("a", "b"))).after
    assert reason_of(after, "Evicted") == "True AdmissionCheck"
    assert reason_of(after, "Requeued") == "False AdmissionCheck"
    assert [(one.state, one.retry_count) for one in after.status.admission_checks] == [
        ("Pending", 2),
        ("Pending", None),
    ]
    assert due_s(after, CONFIG) == NOW_S + 30
    assert step(after, QueuePolicies(checks=("a", "b")), CONFIG, NOW_S + 29) is None
    assert reason_of(took(after, QueuePolicies(checks=("a", "b")), NOW_S + 30).after, "Requeued") == (
        "True BackoffFinished"
    )


def test_a_check_that_rejects_deactivates_the_workload() -> None:
    held = workload(condition("QuotaReserved"), admission_checks=(AdmissionCheckState(name="a", state="Rejected"),))
    around = QueuePolicies(checks=("a",))
    marked = took(held, around)
    assert [event.reason for event in marked.events] == ["AdmissionCheckRejected"]
    deactivating = took(marked.after, around)
    assert deactivating.deactivate
    spec = msgspec.structs.replace(deactivating.after.spec, active=False)
    evicted = took(msgspec.structs.replace(deactivating.after, spec=spec), around).after
    assert reason_of(evicted, "Evicted") == "True DeactivatedDueToAdmissionCheck"
    stats = evicted.status.scheduling_stats
    assert stats is not None
    assert [(one.reason, one.underlying_cause, one.count) for one in stats.evictions] == [
        ("Deactivated", "AdmissionCheck", 1)
    ]


@pytest.mark.parametrize(("stop", "goes"), [("None", False), ("Hold", False), ("HoldAndDrain", True)])
@pytest.mark.parametrize("which", ["cluster_queue_stop", "local_queue_stop"])
def test_holdanddrain_evicts_what_runs(which: str, stop: StopPolicy, goes: bool) -> None:
    given = workload(condition("QuotaReserved"), condition("Admitted"))
    around = msgspec.structs.replace(QueuePolicies(), **{which: stop})
    found = step(given, around, EngineConfig(), NOW_S)
    evicted = found is not None and is_true(found.after.status.conditions, "Evicted")
    assert evicted is goes
    if found is not None and evicted:
        assert step(found.after, around, EngineConfig(), NOW_S + 1e6) is None
        name = "ClusterQueue" if which == "cluster_queue_stop" else "LocalQueue"
        again = step(found.after, QueuePolicies(checks=around.checks), EngineConfig(), NOW_S)
        assert again is not None
        assert reason_of(again.after, "Requeued") == f"True {name}Restarted"


@pytest.mark.parametrize(
    ("cause", "stop"),
    [
        (PendingReason.ADMISSION_GATED, "None"),
        (PendingReason.SUSPENDED, "Hold"),
        (PendingReason.SUSPENDED, "HoldAndDrain"),
        (PendingReason.MISCONFIGURED, "None"),
    ],
)
def test_a_reservation_is_taken_back_before_the_admission_and_not_after_it(
    cause: PendingReason, stop: StopPolicy
) -> None:
    states = (AdmissionCheckState(name="a", state="Ready"), AdmissionCheckState(name="b", state="Pending"))
    given = workload(condition("QuotaReserved"), admission_checks=states)
    around = QueuePolicies(cluster_queue_stop=stop, checks=("a", "b"), blocked=PendingCause(cause, "why"))
    after = took(given, around).after
    assert reason_of(after, "QuotaReserved") == f"False {cause}"
    assert after.status.admission is None
    assert [state.state for state in after.status.admission_checks] == ["Pending", "Pending"]
    assert not is_true(after.status.conditions, "Evicted")
    running = workload(condition("QuotaReserved"), condition("Admitted"))
    found = step(running, QueuePolicies(blocked=PendingCause(cause, "why")), EngineConfig(), NOW_S)
    assert found is None


def test_one_whose_checks_are_ready_is_admitted_although_its_queue_is_gone() -> None:
    given = workload(condition("QuotaReserved"), admission_checks=(AdmissionCheckState(name="a", state="Ready"),))
    gone = QueuePolicies(checks=("a",), blocked=PendingCause(PendingReason.MISCONFIGURED, "There is no LocalQueue"))
    after = took(given, gone).after
    assert is_true(after.status.conditions, "Admitted")


def test_pods_that_are_not_ready_in_time_send_it_back_each_time_for_longer() -> None:
    given = running(requeue_state=RequeueState(count=1))
    assert due_s(given, CONFIG) == NOW_S + 300
    assert step(given, QueuePolicies(), CONFIG, NOW_S + 299) is None
    after = took(given, now_s=NOW_S + 300).after
    assert reason_of(after, "Evicted") == "True PodsReadyTimeout"
    state = after.status.requeue_state
    assert state is not None
    assert state.count == 2
    due = due_s(after, CONFIG)
    assert due is not None
    assert due - (NOW_S + 300) == pytest.approx(20.0, rel=1e-3)


def test_pods_that_fail_have_the_recovery_time_and_no_limit_without_one() -> None:
    failed = workload(
        condition("QuotaReserved"), condition("Admitted"), condition("PodsReady", "False", "WaitForRecovery", NOW_S + 9)
    )
    assert due_s(failed, CONFIG) == NOW_S + 69
    patient = EngineConfig(wait_for_pods_ready=msgspec.structs.replace(RULES, recovery_timeout_s=None))
    assert due_s(failed, patient) is None


def test_pods_that_nobody_has_looked_at_have_the_time_from_when_somebody_does() -> None:
    """Kueue writes no PodsReady where it waits for none: what it admitted long ago is taken over as it runs."""
    config = EngineConfig(wait_for_pods_ready=msgspec.structs.replace(RULES, looks_since_s=NOW_S + 9_000))
    assert due_s(running(), config) == NOW_S + 9_300
    assert step(running(), QueuePolicies(), config, NOW_S + 9_000) is None
    waiting = condition("PodsReady", "False", "WaitForStart")
    looked_at = workload(condition("QuotaReserved"), condition("Admitted"), waiting)
    assert due_s(looked_at, config) == NOW_S + 300


@pytest.mark.parametrize(("ahead_s", "over"), [(0, False), (50, False), (7_200, True)])
def test_a_back_off_that_a_clock_set_which_ran_hours_ahead_is_over(ahead_s: float, over: bool) -> None:
    late_s = NOW_S + 300 + ahead_s
    evicted = took(running(), now_s=late_s, config=EngineConfig(wait_for_pods_ready=RULES)).after
    unreserved = msgspec.structs.replace(evicted, status=msgspec.structs.replace(evicted.status, admission=None))
    found = step(unreserved, QueuePolicies(), EngineConfig(wait_for_pods_ready=RULES), NOW_S + 300)
    assert (found is not None and reason_of(found.after, "Requeued") == "True BackoffFinished") is over


def test_the_last_send_back_deactivates() -> None:
    config = EngineConfig(wait_for_pods_ready=msgspec.structs.replace(RULES, backoff_limit_count=2))
    found = took(running(requeue_state=RequeueState(count=2)), now_s=NOW_S + 300, config=config)
    assert reason_of(found.after, "DeactivationTarget") == "True RequeuingLimitExceeded"
    assert took(found.after, now_s=NOW_S + 300, config=config).deactivate


def test_the_maximum_execution_time_counts_all_stays_together() -> None:
    given = running(limit_s=100, accumulated_past_execution_time_seconds=40)
    assert due_s(given, EngineConfig()) == NOW_S + 60
    assert step(given, QueuePolicies(), EngineConfig(), NOW_S + 59) is None
    found = took(given, now_s=NOW_S + 60, config=EngineConfig())
    assert reason_of(found.after, "DeactivationTarget") == "True MaximumExecutionTimeExceeded"
    assert [event.reason for event in found.events] == ["MaximumExecutionTimeExceeded"]


def gang(staleness_s: float | None, *conditions: Condition, said: str | None = None, **status: Any) -> Workload:
    """Admitted now; its annotation says how long it may run below its minimum, or ``said``."""
    given = workload(condition("QuotaReserved"), condition("Admitted"), *conditions, **status)
    told = said or written(GangShape(minimum=2, staleness_s=staleness_s))
    return msgspec.structs.replace(given, metadata=msgspec.structs.replace(given.metadata, annotations={GANG: told}))


def missing(reason: str = "PodsFailed", status: str = "True", since_s: float = NOW_S + 10) -> Condition:
    return condition("WaitingForReplacementPods", status, reason, since_s)


def test_a_gang_that_runs_below_its_minimum_for_too_long_is_evicted_as_a_whole() -> None:
    for patience_s in (60.0, 0.0):
        given = gang(patience_s, missing())
        assert due_s(given, EngineConfig()) == NOW_S + 10 + patience_s
        assert step(given, QueuePolicies(), EngineConfig(), NOW_S + 9.5 + patience_s) is None
        found = took(given, now_s=NOW_S + 10 + patience_s, config=EngineConfig())
        assert reason_of(found.after, "Evicted") == "True StaleGang"
        assert [event.reason for event in found.events] == ["EvictedDueToStaleGang"]
        assert due_s(found.after, EngineConfig()) is None
    message = msgspec.structs.replace(missing(), message="1 of 2 pods have failed")
    (event,) = took(gang(60.0, message), now_s=NOW_S + 70, config=EngineConfig()).events
    assert event.message == "It has run below its minimum for 1m: 1 of 2 pods have failed"


def test_a_gang_is_a_job_whose_pods_were_ready_once() -> None:
    def ready(status: str, reason: str) -> Condition:
        return msgspec.structs.replace(condition("PodsReady", status, reason, NOW_S + 10), message="A pod was lost")

    given = gang(60.0, ready("False", "WaitForRecovery"))
    assert due_s(given, EngineConfig()) == NOW_S + 70
    (event,) = took(given, now_s=NOW_S + 70, config=EngineConfig()).events
    assert event.message == "It has run below its minimum for 1m: A pod was lost"
    for other in (ready("False", "WaitForStart"), ready("True", "Recovered"), ready("True", "WaitForRecovery")):
        assert due_s(gang(60.0, other), EngineConfig()) is None


def test_patience_begins_anew_with_each_admission() -> None:
    given = gang(60.0, missing(since_s=NOW_S - 500))
    assert due_s(given, EngineConfig()) == NOW_S + 60


@pytest.mark.parametrize(
    "given",
    [
        gang(None, missing()),
        gang(-1.0, missing()),
        gang(60.0),
        gang(60.0, missing(status="False")),
        gang(60.0, missing("Preempted")),
        gang(60.0, missing(), condition("Evicted", "True", "Preempted")),
        gang(60.0, missing(), reclaimable_pods=(ReclaimablePod(name="main", count=1),)),
        gang(60.0, missing(), said="nonsense"),
        gang(60.0, missing(), said='{"staleness_s": "soon"}'),
        workload(condition("QuotaReserved"), condition("Admitted"), missing()),
    ],
)
def test_no_other_gang_is_stale(given: Workload) -> None:
    """Of Volcano, patient for ever, whole, waiting since an eviction, leaving, about to end, or not to be read."""
    assert due_s(given, EngineConfig()) is None
    assert step(given, QueuePolicies(), EngineConfig(), NOW_S + 1e9) is None


def test_a_gang_that_lost_its_admission_is_not_stale() -> None:
    lost = workload(condition("Admitted", "False"), missing())
    given = msgspec.structs.replace(lost, metadata=gang(60.0).metadata)
    assert due_s(given, EngineConfig()) is None


@given(st.integers(1, 10_000), st.text(min_size=1, max_size=20))
def test_a_backoff_doubles_is_bounded_and_always_the_same(count: int, name: str) -> None:
    key = WorkloadKey(f"ns/{name}")
    wait_s = backoff_s(key, count, RULES)
    assert wait_s == backoff_s(key, count, RULES)
    doubled = 10.0 * 2 ** min(count - 1, 50)
    assert min(doubled, 100.0) <= wait_s <= min(doubled * 1.0001, 100.0)


STATES = st.sampled_from(["True", "False"])
MANY_CONDITIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["QuotaReserved", "Admitted", "Evicted", "Requeued", "DeactivationTarget", "PodsReady", "Preempted"]
        ),
        STATES,
        st.sampled_from(
            ["", "Deactivated", "ClusterQueueStopped", "AdmissionCheck", "WaitForRecovery", "PodsReadyTimeout"]
        ),
    ),
    max_size=7,
    unique_by=lambda one: one[0],
)
CHECK_STATES: list[CheckState] = ["Pending", "Ready", "Retry", "Rejected"]
STOPS: list[StopPolicy] = ["None", "Hold", "HoldAndDrain"]


@given(
    conditions=MANY_CONDITIONS,
    active=st.booleans(),
    limit_s=st.none() | st.integers(1, 1000),
    checks=st.lists(st.sampled_from(CHECK_STATES), max_size=2),
    wanted=st.integers(0, 2),
    stops=st.tuples(st.sampled_from(STOPS), st.sampled_from(STOPS)),
    now_s=st.floats(0.0, 1e5),
)
def test_whatever_state_it_starts_in_it_settles_in_a_few_steps(
    conditions: list[tuple[str, str, str]],
    active: bool,
    limit_s: int | None,
    checks: list[CheckState],
    wanted: int,
    stops: tuple[StopPolicy, StopPolicy],
    now_s: float,
) -> None:
    states = tuple(AdmissionCheckState(name=f"c{index}", state=state) for index, state in enumerate(checks))
    given = workload(*(condition(*one) for one in conditions), active=active, limit_s=limit_s, admission_checks=states)
    around = QueuePolicies(
        cluster_queue_stop=stops[0], local_queue_stop=stops[1], checks=tuple(f"c{n}" for n in range(wanted))
    )
    evictions = 0
    for _ in range(8):
        found = step(given, around, CONFIG, NOW_S + now_s)
        if found is None:
            return
        before, after = given.status.conditions, found.after.status.conditions
        evictions += is_true(after, "Evicted") and not is_true(before, "Evicted")
        spec = msgspec.structs.replace(given.spec, active=False) if found.deactivate else given.spec
        assert found.deactivate or found.after != given, "a step changes something"
        given = msgspec.structs.replace(found.after, spec=spec)
    pytest.fail(f"does not settle: {given.status}")


def refused(
    *, placed: bool = True, reason: str = "Unschedulable", since_s: float = NOW_S + 5, **status: Any
) -> Workload:
    """A gang of which kube-scheduler starts none. ``placed``: its nodes were chosen here."""
    told = msgspec.structs.replace(condition(GANG_SCHEDULED, "False", reason, since_s), message="no room")
    given = running(**status)
    assignment = TopologyAssignment() if placed else None
    admission = Admission(
        cluster_queue="cq", pod_set_assignments=(PodSetAssignment(name="main", topology_assignment=assignment),)
    )
    conditions = (*given.status.conditions, told)
    after = msgspec.structs.replace(given.status, conditions=conditions, admission=admission)
    return msgspec.structs.replace(given, status=after)


def test_places_of_a_gang_that_kube_scheduler_does_not_start_are_taken_back_with_the_back_off_of_readiness() -> None:
    due = NOW_S + 5 + PATIENCE_S
    assert due_s(refused(), EngineConfig()) == due
    assert step(refused(), QueuePolicies(), EngineConfig(), due - 0.5) is None
    found = took(refused(), now_s=due, config=EngineConfig())
    assert reason_of(found.after, "Evicted") == "True GangNotScheduled"
    assert reason_of(found.after, "Requeued") == "False GangNotScheduled"
    (event,) = found.events
    assert event.message == "no room: its places are taken back after 1m"
    state = found.after.status.requeue_state
    assert state is not None
    assert state.count == 1
    assert state.requeue_at is not None
    assert 60 <= state.requeue_at.timestamp() - due <= 61
    assert due_s(found.after, EngineConfig()) == state.requeue_at.timestamp(), "only its back-off is due"


def test_a_gang_without_places_of_ours_may_wait_for_nodes_that_an_autoscaler_adds() -> None:
    assert due_s(refused(placed=False), EngineConfig()) is None
    assert step(refused(placed=False), QueuePolicies(), EngineConfig(), NOW_S + 1e6) is None


def test_a_gang_that_kube_scheduler_has_preempted_is_requeued_at_once_also_without_places() -> None:
    given = refused(placed=False, reason="PreemptedByScheduler")
    found = took(given, now_s=NOW_S + 5, config=EngineConfig())
    assert reason_of(found.after, "Evicted") == "True PreemptedByScheduler"


def test_the_budget_of_such_requeues_is_that_of_readiness() -> None:
    rules = msgspec.structs.replace(RULES, backoff_limit_count=2, timeout_s=1e6)
    config = EngineConfig(wait_for_pods_ready=rules)
    found = took(refused(requeue_state=RequeueState(count=2)), now_s=NOW_S + 100, config=config)
    assert reason_of(found.after, "DeactivationTarget") == "True RequeuingLimitExceeded"
    (told,) = (one for one in found.after.status.conditions if one.type == "DeactivationTarget")
    assert told.message.startswith("The scheduler did not start its pods, and it was requeued 2 times already.")


def test_a_verdict_of_an_earlier_admission_takes_nothing_back() -> None:
    assert due_s(refused(since_s=NOW_S - 1), EngineConfig()) is None
    anew = with_gang_verdict(refused(since_s=NOW_S - 1), "False", "Unschedulable", "again", NOW_S + 7)
    assert due_s(anew, EngineConfig()) == NOW_S + 7 + PATIENCE_S, "its time begins anew"
    later = with_gang_verdict(refused(), "False", "SchedulerError", "again", NOW_S + 50)
    assert due_s(later, EngineConfig()) == NOW_S + 5 + PATIENCE_S, "of one admission it goes on"
    assert due_s(with_gang_verdict(refused(), "True", "Scheduled", "", NOW_S + 50), EngineConfig()) is None


def test_a_workload_whose_nodes_do_not_come_in_time_gives_its_quota_back() -> None:
    waits = workload(condition("QuotaReserved"))
    awaited = NodesAwaited(flavors=("spot", "more"), until_s=NOW_S + 900.0, limit_s=900.0)
    queues = QueuePolicies(nodes=awaited)
    assert due_s(waits, CONFIG, queues) == NOW_S + 900.0
    assert evicted_for(step(waits, queues, CONFIG, NOW_S + 899.0)) is None
    found = step(waits, queues, CONFIG, NOW_S + 900.0)
    assert evicted_for(found) == ("NodesDidNotCome", "Nodes of spot, more did not come within 15m")
    admitted = workload(condition("QuotaReserved"), condition("Admitted"))
    assert evicted_for(step(admitted, queues, EngineConfig(), NOW_S + 900.0)) is None


def test_a_new_leader_looks_for_nodes_before_it_says_that_they_did_not_come() -> None:
    waits = workload(condition("QuotaReserved"))
    queues = QueuePolicies(nodes=NodesAwaited(flavors=("spot",), until_s=NOW_S + 900.0, limit_s=900.0))
    early, late = led_since(queues, NOW_S + 100.0), led_since(queues, NOW_S + 2000.0)
    assert early is queues
    assert evicted_for(step(waits, late, CONFIG, NOW_S + 2009.0)) is None
    assert due_s(waits, CONFIG, late) == NOW_S + 2010.0
    assert evicted_for(step(waits, late, CONFIG, NOW_S + 2010.0)) is not None
    assert led_since(QueuePolicies(), NOW_S) == QueuePolicies()


def evicted_for(found: Step | None) -> tuple[str, str] | None:
    gone = find_condition(found.after.status.conditions, "Evicted") if found is not None else None
    return None if gone is None else (gone.reason, gone.message)
