"""Claims about events: what wakes whom, objects in any order, queues that close, what is kept of whom."""

import msgspec
import pytest

from controller.objects.decode import KUEUE, decode_object
from controller.objects.meta import Condition, KubernetesObject, to_json
from controller.objects.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from controller.objects.workload import ReclaimablePod
from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.model.config import AdmissionFairSharing, EngineConfig, Extensions, MinimumRuntime
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.scheduler.state.activity import local_queue_problem
from tests.support.engine.world import World, cluster_queue, cohort, flavor, local_queue, workload

A = ClusterQueueName("a")


def full() -> World:
    """Queue a (4 devices) is full of ``first``; ``second`` waits."""
    it = World()
    it.put(flavor(), cluster_queue("a", 4), local_queue("a"), workload("first", "a", 4))
    it.settle()
    it.put(workload("second", "a", 2, created_s=1))
    it.settle()
    assert it.running() == {"first"}
    assert len(it.engine.state.queues.parked(A)) == 1
    return it


def test_a_finished_workload_makes_room() -> None:
    it = full()
    it.finish("first")
    it.settle()
    assert it.running() == {"second"}


def test_a_deleted_workload_makes_room() -> None:
    it = full()
    it.delete("first")
    it.settle()
    assert it.running() == {"second"}


def test_more_quota_makes_room() -> None:
    it = full()
    it.put(cluster_queue("a", 6))
    it.settle()
    assert it.running() == {"first", "second"}


def test_pods_that_are_done_make_room() -> None:
    it = World()
    it.put(flavor(), cluster_queue("a", 4), local_queue("a"), workload("first", "a", 1, count=4))
    it.settle()
    it.put(workload("second", "a", 2, created_s=1))
    it.settle()
    first = it.workloads[WorkloadKey("ns/first")]
    done = (ReclaimablePod(name="main", count=2),)
    it.put(msgspec.structs.replace(first, status=msgspec.structs.replace(first.status, reclaimable_pods=done)))
    it.settle()
    assert it.running() == {"first", "second"}


def test_a_queue_that_leaves_its_cohort_gives_back_what_it_borrowed() -> None:
    it = World()
    it.put(flavor(), cluster_queue("a", 2, cohort="c"), cluster_queue("b", 2, cohort="c"))
    it.put(local_queue("a"), local_queue("b"), workload("x", "a", 4))
    it.settle()
    it.put(workload("y", "b", 2, created_s=1))
    it.settle()
    assert it.running() == {"x"}
    it.put(cluster_queue("a", 2))
    it.settle()
    assert it.running() == {"x", "y"}


def test_quota_of_a_cohort_above_counts_as_soon_as_it_is_told() -> None:
    it = World()
    it.put(flavor(), cluster_queue("a", 0, cohort="low"), local_queue("a"), cluster_queue("bank", 2, cohort="high"))
    it.put(workload("w", "a", 2))
    it.settle()
    assert it.running() == set()
    it.put(cohort("low", "high"))
    it.settle()
    assert it.running() == {"w"}
    it.engine.drop(Cohort, "", "low", it.now_s)
    it.engine.validate()
    it.put(workload("v", "a", 1, created_s=1))
    it.settle()
    assert it.running() == {"w"}


def test_a_failed_write_wakes_those_that_its_room_would_have_kept_out() -> None:
    it = World()
    it.put(flavor(), cluster_queue("a", 4), local_queue("a"), workload("big", "a", 4))
    decision = it.engine.cycle(it.now_s).made[0]
    it.put(workload("small", "a", 1, created_s=1))
    it.settle()
    assert it.running() == set()
    it.engine.failed(decision, it.now_s, "refused")
    it.delete("big")
    it.settle()
    assert it.running() == {"small"}


def test_those_who_hold_quota_in_a_queue_that_comes_later_are_charged_when_it_comes() -> None:
    it = full()
    again = World()
    again.put(*it.workloads.values(), local_queue("a"))
    assert again.engine.state.cluster.holders == {}
    again.put(flavor(), cluster_queue("a", 4))
    again.settle()
    assert again.running() == {"first"}
    assert WorkloadKey("ns/first") in again.engine.state.cluster.holders


def test_a_queue_that_goes_and_comes_back_finds_its_workloads() -> None:
    it = full()
    it.engine.drop(ClusterQueue, "", "a", it.now_s)
    it.engine.validate()
    it.settle()
    it.put(cluster_queue("a", 4))
    it.settle()
    assert it.running() == {"first"}
    it.finish("first")
    it.settle()
    assert it.running() == {"second"}


def test_a_queue_without_its_flavor_takes_nothing_and_says_why() -> None:
    it = World()
    it.put(cluster_queue("a", 4), local_queue("a"), workload("w", "a"))
    it.settle()
    assert [one.reason for one in it.engine.inactive(A)] == ["FlavorNotFound"]
    assert it.running() == set()
    it.put(flavor())
    it.settle()
    assert it.engine.inactive(A) == ()
    assert it.running() == {"w"}
    it.engine.drop(ResourceFlavor, "", "default", it.now_s)
    assert [one.reason for one in it.engine.inactive(A)] == ["FlavorNotFound"]


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_stopped_cluster_queue_takes_nothing_until_it_goes_on(policy: str) -> None:
    it = World()
    it.put(flavor(), cluster_queue("a", 4, stopPolicy=policy), local_queue("a"), workload("w", "a"))
    it.settle()
    assert (it.running(), [one.reason for one in it.engine.inactive(A)]) == (set(), ["Stopped"])
    it.put(cluster_queue("a", 4))
    it.settle()
    assert it.running() == {"w"}


def test_a_stopped_local_queue_takes_nothing_until_it_goes_on() -> None:
    it = World()
    stopped = local_queue("a", stopPolicy="Hold")
    it.put(flavor(), cluster_queue("a", 4), stopped, workload("w", "a"))
    it.settle()
    assert it.running() == set()
    assert isinstance(stopped, LocalQueue)
    problem = local_queue_problem(stopped, it.engine.state.cluster, queue_active=True)
    assert problem is not None
    assert problem.reason == "Stopped"
    it.put(local_queue("a"))
    it.settle()
    assert it.running() == {"w"}


def check(name: str, *, active: bool, controller: str = "example.com/check") -> KubernetesObject:
    conditions = [{"type": "Active", "status": "True" if active else "False", "reason": "Known"}]
    return decode_object(
        {
            "apiVersion": KUEUE,
            "kind": "AdmissionCheck",
            "metadata": {"name": name},
            "spec": {"controllerName": controller},
            "status": {"conditions": conditions},
        }
    )


def checked(*rules: dict[str, object]) -> KubernetesObject:
    return cluster_queue("a", 4, admissionChecksStrategy={"admissionChecks": list(rules)})


def test_checks_must_be_there_and_active_before_their_queue_takes_anything() -> None:
    it = World()
    it.put(flavor(), checked({"name": "one"}, {"name": "two"}), local_queue("a"), workload("w", "a"))
    assert [one.reason for one in it.engine.inactive(A)] == ["AdmissionCheckNotFound"]
    it.put(check("one", active=True), check("two", active=False))
    assert [one.reason for one in it.engine.inactive(A)] == ["AdmissionCheckInactive"]
    it.put(check("two", active=True))
    it.settle()
    assert it.engine.inactive(A) == ()
    assert it.running() == {"w"}
    it.engine.drop(AdmissionCheck, "", "one", it.now_s)
    assert [one.reason for one in it.engine.inactive(A)] == ["AdmissionCheckNotFound"]


def test_checks_that_cannot_stand_together_close_the_queue() -> None:
    it = World()
    remote, nodes = "kueue.x-k8s.io/multikueue", "kueue.x-k8s.io/provisioning-request"
    it.put(flavor(), check("r1", active=True, controller=remote), check("r2", active=True, controller=remote))
    it.put(check("p", active=True, controller=nodes))
    it.put(checked({"name": "r1"}, {"name": "r2", "onFlavors": ["default"]}, {"name": "p"}))
    assert [one.reason for one in it.engine.inactive(A)] == [
        "MultipleMultiKueueAdmissionChecks",
        "MultiKueueAdmissionCheckAppliedPerFlavor",
        "MultiKueueWithProvisioningRequest",
    ]


def test_cohorts_in_a_circle_close_the_queues_below_them() -> None:
    it = World()
    it.put(flavor(), cluster_queue("a", 4, cohort="x"), local_queue("a"), cohort("x", "y"), cohort("y", "x"))
    it.put(workload("w", "a"))
    it.settle()
    assert it.running() == set()
    it.put(cohort("y"))
    it.settle()
    assert it.running() == {"w"}


def test_quota_with_a_check_outstanding_is_reserved_and_not_admitted() -> None:
    it = World()
    it.put(flavor(), check("one", active=True), checked({"name": "one"}), local_queue("a"), workload("w", "a"))
    it.settle()
    assert it.condition("w") == "True/QuotaReserved"
    assert it.condition("w", "Admitted") == "False/UnsatisfiedAdmissionChecks"
    states = it.workloads[WorkloadKey("ns/w")].status.admission_checks
    assert [(one.name, one.state) for one in states] == [("one", "Pending")]


@pytest.mark.parametrize(
    "held_back",
    [
        workload("w", "a", active=False),
        workload("w", "a", annotations={"kueue.x-k8s.io/admission-gated-by": "somebody"}),
    ],
)
def test_what_may_not_queue_is_kept_out_until_it_may(held_back: KubernetesObject) -> None:
    it = World()
    it.put(flavor(), cluster_queue("a", 4), local_queue("a"), held_back)
    it.settle()
    assert it.running() == set()
    it.put(workload("w", "a"))
    it.settle()
    assert it.running() == {"w"}


def test_a_workload_in_its_back_off_is_tried_by_nobody_however_often_its_queue_is_woken() -> None:
    it = full()
    second = it.workloads[WorkloadKey("ns/second")]
    waits = Condition(type="Requeued", status="False", reason="PodsReadyTimeout")
    status = msgspec.structs.replace(second.status, conditions=(*second.status.conditions, waits))
    it.put(msgspec.structs.replace(second, status=status))
    it.finish("first")
    it.settle()
    assert it.running() == set()
    it.put(workload("second", "a", 2, created_s=1))
    it.settle()
    assert it.running() == {"second"}


def test_an_echo_of_what_was_written_wakes_nobody() -> None:
    it = full()
    before = it.engine.state.changes
    it.put(*it.workloads.values(), cluster_queue("a", 4), local_queue("a"), flavor())
    assert it.engine.state.changes == before
    assert it.engine.settled(it.now_s)


def test_a_reservation_made_within_a_second_is_as_old_as_its_condition_will_say() -> None:
    it = World()
    it.now_s += 0.75
    it.put(flavor(), cluster_queue("a", 4), local_queue("a"), workload("w", "a"))
    (decision,) = it.engine.cycle(it.now_s).made
    key = WorkloadKey("ns/w")
    decided = it.engine.state.cluster.holders[key].reserved_at_s
    it.put(decode_object({"apiVersion": KUEUE, "kind": "Workload", **to_json(decision.status())}))
    assert it.engine.state.cluster.holders[key].reserved_at_s == decided == it.now_s - 0.75


def test_a_namespace_that_comes_to_match_lets_its_workloads_in() -> None:
    it = World()
    selector = {"matchLabels": {"team": "blue"}}
    it.put(flavor(), cluster_queue("a", 4, namespaceSelector=selector), local_queue("a"), workload("w", "a"))
    it.settle()
    assert it.condition("w") == "False/Misconfigured"
    labels = {"team": "blue"}
    it.put(decode_object({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": labels}}))
    it.settle()
    assert it.running() == {"w"}


def test_requests_beyond_a_limit_range_wait_until_it_allows_them() -> None:
    def limits(gpus: str) -> KubernetesObject:
        item = {"type": "Container", "max": {"gpu": gpus}}
        metadata = {"name": "l", "namespace": "ns"}
        return decode_object(
            {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [item]}}
        )

    it = World()
    it.put(flavor(), cluster_queue("a", 4), local_queue("a"), limits("1"), workload("w", "a", 2))
    it.settle()
    assert it.condition("w") == "False/Misconfigured"
    it.put(limits("2"))
    it.settle()
    assert it.running() == {"w"}
    it.put(limits("0"), workload("v", "a", 2, created_s=1))
    it.settle()
    assert it.condition("v") == "False/Misconfigured"


def test_local_queues_take_turns_by_what_they_used_and_a_reservation_counts_at_once() -> None:
    config = EngineConfig(admission_fair_sharing=AdmissionFairSharing(half_life_s=600.0, sampling_interval_s=300.0))
    it = World(config)
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    it.put(flavor(), cluster_queue("a", 6, admissionScope=scope), local_queue("heavy", "a"), local_queue("light", "a"))
    it.put(*(workload(f"h{number}", "heavy", 2, created_s=number) for number in range(3)))
    it.put(workload("l", "light", 2, created_s=9))
    it.cycle()
    it.cycle()
    assert it.running() == {"h0", "l"}
    usage = it.engine.state.usage
    assert usage.usage(LocalQueueKey("ns/heavy")) == usage.usage(LocalQueueKey("ns/light")) > 0
    it.now_s += 300.0
    taken = it.engine.sample_usage(it.now_s)
    assert set(taken) == {"ns/heavy", "ns/light"}
    assert it.engine.sample_usage(it.now_s) == {}


def test_a_refused_admission_is_not_held_against_its_local_queue() -> None:
    config = EngineConfig(admission_fair_sharing=AdmissionFairSharing(half_life_s=600.0))
    it = World(config)
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    it.put(flavor(), cluster_queue("a", 6, admissionScope=scope), local_queue("a"), workload("w", "a"))
    decision = it.engine.cycle(it.now_s).made[0]
    assert it.engine.state.usage.usage(LocalQueueKey("ns/a")) > 0
    it.engine.failed(decision, it.now_s, "refused")
    assert it.engine.state.usage.usage(LocalQueueKey("ns/a")) == 0


def test_untried_flavors_keep_a_run_from_being_settled() -> None:
    it = World()
    fungible = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
    lower = {"withinClusterQueue": "LowerPriority"}
    two = cluster_queue("a", 4, flavors=("default", "spot"), flavorFungibility=fungible, preemption=lower)
    it.put(flavor(), flavor("spot"), two, local_queue("a"), workload("x", "a", 4), workload("y", "a", 4, created_s=1))
    it.settle()
    assert it.running() == {"x", "y"}


def test_the_end_of_a_minimum_runtime_is_a_time_to_wake_at() -> None:
    it = World(EngineConfig(extensions=Extensions(minimum_runtime=MinimumRuntime(default_s=600.0))))
    lower = {"withinClusterQueue": "LowerPriority"}
    it.put(flavor(), cluster_queue("a", 4, preemption=lower), local_queue("a"), workload("low", "a", 4))
    it.settle()
    it.put(workload("high", "a", 4, priority=1, created_s=1))
    it.settle()
    assert it.condition("low", "Evicted") == ""
    assert it.engine.next_wakeup_s() == it.now_s + 600.0
    it.now_s += 600.0
    assert not it.engine.settled(it.now_s)
    it.settle()
    assert it.condition("low", "Evicted") == "True/Preempted"


def test_a_lost_workload_is_drift() -> None:
    it = full()
    it.engine.state.queues.remove(WorkloadKey("ns/second"))
    with pytest.raises(DriftError, match="ns/second"):
        it.engine.validate()
