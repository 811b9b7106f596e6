"""Claims about one scheduling cycle and the next."""

from typing import Any

import msgspec
import pytest

from controller.objects.decode import KUEUE, decode_object
from controller.objects.meta import OwnerReference
from controller.objects.queues import ClusterQueue
from controller.objects.workload import Admission, PreemptionGateState, Workload
from controller.scheduler.decisions.decisions import Admitted, Evicted, Pending, SliceReplaced
from controller.scheduler.decisions.records import Rule
from controller.scheduler.decisions.status import moment
from controller.scheduler.kueue.cycle import Cycle
from controller.scheduler.model.config import BackfillPolicy, EngineConfig, Extensions, FairSharing, WaitForPodsReady
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.queues.entry import Entry
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

LOWER = {"withinClusterQueue": "LowerPriority"}


def world(*queues: object, config: EngineConfig | None = None) -> World:
    made = World(config)
    made.put(flavor())
    for queue in queues:
        made.put(queue, local_queue(queue.metadata.name))  # type: ignore[attr-defined, arg-type]
    return made


def test_a_workload_that_fits_is_reserved_and_admitted_in_one_decision() -> None:
    it = world(cluster_queue("a", 4))
    it.put(workload("w", "a", 4))
    made = it.cycle().made
    assert [type(one) for one in made] == [Admitted]
    assert it.condition("w") == "True/QuotaReserved"
    assert it.condition("w", "Admitted") == "True/Admitted"
    assert [event.reason for event in made[0].events()] == ["QuotaReserved", "Admitted"]


def test_a_resource_that_a_flavor_leaves_out_has_no_quota_there() -> None:
    """The API refuses such a queue; a file may hold one, and an engine that raises serves nobody else either."""
    groups = [{"coveredResources": ["gpu", "cpu"], "flavors": [{"name": "default", "resources": []}]}]
    it = world(cluster_queue("a", resourceGroups=groups), cluster_queue("b", 4))
    it.put(workload("w", "a", 1), workload("other", "b", 1))
    it.cycle()
    assert it.condition("w") == "False/ExceedsMaxQuota"
    assert it.condition("other") == "True/QuotaReserved"


def test_an_admission_that_no_condition_vouches_for_counts_for_nothing() -> None:
    it = world(cluster_queue("a", 4))
    stale = workload("w", "a", 3)
    admission = Admission(cluster_queue="elsewhere")
    it.put(msgspec.structs.replace(stale, status=msgspec.structs.replace(stale.status, admission=admission)))
    it.cycle()
    assert it.condition("w") == "True/QuotaReserved"
    (made,) = it.engine.state.cluster.holders.values()
    assert sum(made.usage.values()) == 3


def test_a_cycle_that_breaks_half_way_leaves_nothing_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    it = world(cluster_queue("a", 4), cluster_queue("b", 4))
    it.put(workload("first", "a", 4), workload("second", "b", 4, created_s=1))
    decide = Cycle._decide

    def breaks(self: Cycle, entry: Entry) -> None:
        decide(self, entry)
        if entry.key == "ns/second":
            raise RuntimeError("broken")

    monkeypatch.setattr(Cycle, "_decide", breaks)
    with pytest.raises(RuntimeError, match="broken"):
        it.engine.cycle(0.0)
    it.engine.state.cluster.validate()


def test_a_question_leaves_nothing_charged() -> None:
    it = world(cluster_queue("a", 4))
    it.put(workload("w", "a", 4))
    found = it.engine.explain(WorkloadKey("ns/w"), 0.0)
    assert found is not None
    assert found.record.rule is Rule.FITS
    it.engine.validate()


def test_one_head_of_each_queue_is_tried_by_priority_then_age() -> None:
    it = world(cluster_queue("a", 2))
    it.put(workload("old", "a", created_s=1), workload("new", "a", created_s=2), workload("high", "a", priority=1))
    it.cycle()
    assert it.running() == {"high"}
    it.cycle()
    assert it.running() == {"high", "old"}


def test_two_heads_that_fit_alone_do_not_both_borrow_the_same_quota() -> None:
    it = world(
        cluster_queue("a", 0, cohort="c"), cluster_queue("b", 0, cohort="c"), cluster_queue("bank", 3, cohort="c")
    )
    it.put(workload("x", "a", 2, created_s=1), workload("y", "b", 2, created_s=2))
    made = it.cycle().made
    assert it.running() == {"x"}
    assert [one.record.rule for one in made if isinstance(one, Pending)] == [Rule.NO_LONGER_FITS]


def test_a_preemptor_waits_for_its_victims_and_takes_their_place() -> None:
    it = world(cluster_queue("a", 4, preemption=LOWER))
    it.put(workload("low", "a", 4))
    it.cycle()
    it.put(workload("high", "a", 3, priority=5))
    made = it.cycle().made
    assert [type(one) for one in made] == [Evicted, Pending]
    assert it.condition("low", "Evicted") == "True/Preempted"
    assert it.condition("low", "Preempted") == "True/InClusterQueue"
    assert it.condition("high") == "False/WaitingForPreemptedWorkloads"
    assert [event.reason for event in made[0].events()] == ["EvictedDueToPreempted", "Preempted", "PreemptedWorkload"]
    it.settle()
    assert it.running() == {"low"}
    it.stop_evicted()
    it.settle()
    assert it.running() == {"high"}
    assert it.condition("low", "Admitted") == "False/NoReservation"


def test_a_victim_is_told_once() -> None:
    it = world(cluster_queue("a", 4, preemption=LOWER))
    it.put(workload("low", "a", 4))
    it.cycle()
    it.put(workload("high", "a", 3, priority=5))
    for _ in range(4):
        it.cycle()
    assert it.log.count(("Evicted", WorkloadKey("ns/low"))) == 1


def test_an_eviction_whose_write_fails_is_decided_again() -> None:
    it = world(cluster_queue("a", 4, preemption=LOWER))
    it.put(workload("low", "a", 4))
    it.cycle()
    it.put(workload("high", "a", 3, priority=5))
    it.cycle(refuse=[Evicted])
    assert it.condition("low", "Evicted") == ""
    it.cycle()
    assert it.condition("low", "Evicted") == "True/Preempted"


def test_an_admission_whose_write_fails_gives_its_quota_back_and_is_tried_again() -> None:
    it = world(cluster_queue("a", 4))
    it.put(workload("w", "a", 4))
    it.cycle(refuse=[Admitted])
    assert it.running() == set()
    assert it.engine.state.cluster.queues["a"].node.used() == {}  # type: ignore[index]
    assert not it.engine.settled(it.now_s)
    it.cycle()
    assert it.running() == {"w"}


def test_an_old_view_of_a_workload_does_not_undo_the_admission_under_way() -> None:
    it = world(cluster_queue("a", 4))
    before = workload("w", "a", 4)
    it.put(before)
    decisions = it.engine.cycle(it.now_s)
    it.put(before)
    assert WorkloadKey("ns/w") in it.engine.state.cluster.holders
    assert it.engine.failed(decisions.made[0], it.now_s, "refused")
    assert WorkloadKey("ns/w") not in it.engine.state.cluster.holders


def test_a_failure_that_comes_after_the_object_went_on_takes_nothing_back() -> None:
    it = world(cluster_queue("a", 4))
    it.put(workload("w", "a", 4))
    decision = it.cycle().made[0]
    assert not it.engine.failed(decision, it.now_s, "late")
    assert it.running() == {"w"}


def test_blocked_capacity_is_kept_for_who_would_reclaim_it_only_by_preempting() -> None:
    """A head above priority cannot evict its equals; the queue beside it must not borrow what is left of its quota."""
    it = world(cluster_queue("a", 4, cohort="c", preemption=LOWER), cluster_queue("b", 0, cohort="c"))
    it.put(workload("first", "a", 3))
    it.cycle()
    it.put(workload("blocked", "a", 2, created_s=1), workload("lender", "b", 1, created_s=2))
    it.cycle()
    assert it.running() == {"first"}
    assert it.condition("lender") == "False/WaitingForQuota"


def test_fewer_pods_are_admitted_where_all_do_not_fit() -> None:
    it = world(cluster_queue("a", 5))
    it.put(workload("w", "a", 1, count=8, least=2))
    decision = it.cycle().made[0]
    assert isinstance(decision, Admitted)
    assert [one.count for one in decision.admission.pod_set_assignments] == [5]


def test_victims_for_all_pods_come_before_fewer_pods() -> None:
    it = world(cluster_queue("a", 5, preemption=LOWER))
    it.put(workload("low", "a", 2))
    it.cycle()
    it.put(workload("w", "a", 1, count=5, least=1, priority=3))
    it.cycle()
    assert it.condition("low", "Evicted") == "True/Preempted"


def test_a_slice_takes_the_place_of_the_one_it_replaces() -> None:
    it = world(cluster_queue("a", 5))
    it.put(workload("one", "a", 1, count=3))
    it.cycle()
    replaces = {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/one"}
    it.put(workload("two", "a", 1, count=5, annotations=replaces))
    made = it.cycle().made
    assert [type(one) for one in made] == [Admitted, SliceReplaced]
    assert it.engine.state.cluster.queues["a"].node.used() == {("default", "gpu"): 5}  # type: ignore[index]
    assert it.condition("one", "Finished") == "True/WorkloadSliceReplaced"


@pytest.mark.parametrize("backfill", list(BackfillPolicy))
def test_what_takes_over_quota_and_asks_for_nothing_new_passes_a_blocked_head(backfill: BackfillPolicy) -> None:
    it = strict(backfill=backfill)
    it.put(workload("new", "a", 3, annotations=REPLACES_ONE, priority=-1))
    it.settle()
    assert it.condition("new") == "True/QuotaReserved"
    assert it.condition("one", "Finished") == "True/WorkloadSliceReplaced"
    assert it.engine.state.cluster.queues["a"].node.used() == {("default", "gpu"): 3}  # type: ignore[index]


def test_what_takes_over_and_asks_for_more_waits_behind_the_head() -> None:
    it = strict()
    it.put(workload("new", "a", 4, annotations=REPLACES_ONE))
    it.settle()
    assert it.running() == {"one"}


def test_what_takes_over_and_is_refused_holds_up_nobody() -> None:
    """The flavor of what it replaces is not the queue's any more: it had its try, and waits behind the head."""
    it = strict()
    it.put(flavor("small"), cluster_queue("a", 2, flavors=["small"], queueingStrategy="StrictFIFO"))
    it.put(workload("new", "a", 3, annotations=REPLACES_ONE))
    it.settle()
    assert it.running() == {"one"}
    it.put(cluster_queue("a", 4, flavors=["small"], queueingStrategy="StrictFIFO"))
    it.settle()
    assert it.running() == {"one", "head"}


def test_under_kueue_s_policy_nothing_passes_the_head() -> None:
    it = strict(takeovers_first=False)
    it.put(workload("new", "a", 3, annotations=REPLACES_ONE))
    it.settle()
    assert it.running() == {"one"}


REPLACES_ONE = {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/one"}


def strict(**extensions: Any) -> World:
    """3 of the 5 GPUs of a StrictFIFO queue are in use, and its head waits for 4."""
    it = World(EngineConfig(extensions=Extensions(**{"takeovers_first": True, **extensions})))
    it.put(flavor(), cluster_queue("a", 5, queueingStrategy="StrictFIFO"), local_queue("a"))
    it.put(workload("one", "a", 3))
    it.cycle()
    it.put(workload("head", "a", 4))
    it.settle()
    assert it.running() == {"one"}
    return it


def test_a_slice_whose_write_fails_leaves_the_old_one_in_place() -> None:
    it = world(cluster_queue("a", 5))
    it.put(workload("one", "a", 1, count=3))
    it.cycle()
    replaces = {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/one"}
    it.put(workload("two", "a", 1, count=5, annotations=replaces))
    it.cycle(refuse=[Admitted, SliceReplaced])
    assert it.engine.state.cluster.queues["a"].node.used() == {("default", "gpu"): 3}  # type: ignore[index]
    it.settle()
    assert it.condition("one", "Finished") == "True/WorkloadSliceReplaced"
    assert it.condition("two") == "True/QuotaReserved"


def test_a_slice_whose_end_was_not_written_is_ended_after_a_restart() -> None:
    it = world(cluster_queue("a", 5))
    it.put(workload("one", "a", 1, count=3))
    it.cycle()
    replaces = {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/one"}
    it.put(workload("two", "a", 1, count=5, annotations=replaces))
    it.engine.cycle(it.now_s)
    again = world(cluster_queue("a", 5))
    admitted = it.engine.state.unwritten.admissions[WorkloadKey("ns/two")].status()
    again.put(it.workloads[WorkloadKey("ns/one")], admitted)
    assert not again.engine.settled(again.now_s)
    assert [type(one) for one in again.cycle().made] == [SliceReplaced]
    assert again.engine.state.cluster.queues["a"].node.used() == {("default", "gpu"): 5}  # type: ignore[index]


def test_nobody_is_admitted_while_admitted_pods_are_not_ready() -> None:
    config = EngineConfig(wait_for_pods_ready=WaitForPodsReady(block_admission=True))
    it = world(cluster_queue("a", 4), cluster_queue("b", 4), config=config)
    it.put(workload("x", "a", created_s=1), workload("y", "b", created_s=2))
    it.settle()
    assert it.running() == {"x"}
    assert it.condition("y") == "False/WaitingForPodsReady"
    ready = decode_object(
        {
            "apiVersion": KUEUE,
            "kind": "Workload",
            "status": {"conditions": [{"type": "PodsReady", "status": "True", "reason": "Started"}]},
        }
    )
    x = it.workloads[WorkloadKey("ns/x")]
    conditions = (*x.status.conditions, *ready.status.conditions)  # type: ignore[attr-defined]
    it.put(msgspec.structs.replace(x, status=msgspec.structs.replace(x.status, conditions=conditions)))
    it.settle()
    assert it.running() == {"x", "y"}


def test_coarse_reasons_where_the_gate_is_off() -> None:
    config = EngineConfig(gates=FeatureGates({"UnadmittedWorkloadsObservability": False}))
    it = world(cluster_queue("a", 1), config=config)
    it.put(workload("w", "a", 2))
    made = it.cycle().made
    assert it.condition("w") == "False/Pending"
    assert it.condition("w", "Admitted") == ""
    assert [event.reason for event in made[0].events()] == ["Pending"]


def test_fair_sharing_gives_the_turn_to_the_smaller_share() -> None:
    config = EngineConfig(fair_sharing=FairSharing())
    queues = [cluster_queue(name, 2, cohort="c") for name in "ab"]
    it = world(*queues, cluster_queue("bank", 8, cohort="c"), config=config)
    it.put(workload("big", "a", 6))
    it.cycle()
    it.put(workload("older", "a", 4, created_s=1), workload("newer", "b", 4, created_s=2))
    it.cycle()
    assert it.running() == {"big", "newer"}


def test_a_pending_decision_says_what_would_let_it_in() -> None:
    it = world(cluster_queue("a", 3))
    it.put(workload("w", "a", 2, created_s=1), workload("v", "a", 2, created_s=2))
    it.settle()
    explained = it.engine.explain(WorkloadKey("ns/v"), it.now_s)
    assert explained is not None
    missing = explained.record.missing()
    assert missing is not None
    assert [(one.needed, one.available) for one in missing.shortfalls] == [(2, 1)]
    assert "1 more" in explained.events()[0].message
    assert [record.rule for record in it.engine.stories.of(WorkloadKey("ns/v"))] == [Rule.NO_CANDIDATES]


def test_explaining_changes_nothing() -> None:
    it = world(cluster_queue("a", 3, preemption=LOWER))
    it.put(workload("w", "a", 2))
    it.cycle()
    it.put(workload("v", "a", 3, priority=1))
    changes = it.engine.state.changes
    it.engine.explain(WorkloadKey("ns/v"), it.now_s)
    it.engine.validate()
    assert it.engine.state.changes == changes
    assert not it.engine.settled(it.now_s)


def test_nobody_is_evicted_for_two_and_the_second_is_counted_as_skipped() -> None:
    gates = FeatureGates({"RecomputeAssignmentUponPreemptionTargetsOverlap": False})
    reclaim = {"reclaimWithinCohort": "Any"}
    queues = [cluster_queue(name, 2, cohort="c", preemption=reclaim) for name in "ab"]
    it = world(*queues, cluster_queue("guest", 0, cohort="c"), config=EngineConfig(gates=gates))
    it.put(workload("borrower", "guest", 4))
    it.cycle()
    it.put(workload("x", "a", 2, created_s=1), workload("y", "b", 2, created_s=2))
    decisions = it.cycle()
    assert [type(one) for one in decisions.made] == [Evicted, Pending, Pending]
    assert dict(decisions.skipped_preemptions) == {"b": 1}


def test_who_fits_once_anothers_victims_are_gone_waits_for_them() -> None:
    reclaim = {"reclaimWithinCohort": "Any"}
    queues = [cluster_queue(name, 2, cohort="c", preemption=reclaim) for name in "ab"]
    it = world(*queues, cluster_queue("guest", 0, cohort="c"))
    it.put(workload("borrower", "guest", 4))
    it.cycle()
    it.put(workload("x", "a", 2, created_s=1), workload("y", "b", 2, created_s=2))
    decisions = it.cycle()
    assert dict(decisions.recomputations) == {"b": {"deferred_fit": 1}}
    assert it.condition("y") == "False/WaitingForPreemptedWorkloads"
    it.settle()
    it.stop_evicted()
    it.settle()
    assert it.running() == {"x", "y"}


def variant(name: str, flavors: str, created_s: int = 0) -> Workload:
    made = workload(
        name, "a", 2, annotations={"kueue.x-k8s.io/workload-allowed-resource-flavors": flavors}, created_s=created_s
    )
    owner = OwnerReference(api_version=KUEUE, kind="Workload", name="job", uid="job", controller=True)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=(owner,)))


def variants_world(**spec: object) -> World:
    config = EngineConfig(gates=FeatureGates({"ConcurrentAdmission": True}))
    it = World(config)
    it.put(flavor("best"), flavor("good"), flavor("poor"), local_queue("a"))
    it.put(cluster_queue("a", 2, flavors=("best", "good", "poor"), **spec))  # type: ignore[arg-type]
    return it


def test_a_better_variant_makes_the_worse_one_go_and_a_worse_one_stays_out() -> None:
    it = variants_world()
    it.put(variant("good", "good"))
    it.settle()
    it.put(variant("poor", "poor", 1))
    it.settle()
    assert it.condition("poor") == "False/PendingEvaluation"
    it.delete("poor")
    it.put(variant("best", "best", 2))
    it.settle()
    assert it.condition("good", "Evicted") == "True/FlavorMigration"
    assert it.condition("best") == "False/WaitingForPreemptedWorkloads"
    it.stop_evicted()
    it.settle()
    assert it.running() == {"best"}


def test_two_variants_on_the_same_flavor_do_not_run_side_by_side() -> None:
    it = variants_world()
    it.put(workload("other", "a", 1, created_s=1))
    it.put(msgspec.structs.replace(variant("one", "poor"), spec=workload("one", "a", 1).spec))
    it.put(msgspec.structs.replace(variant("two", "poor"), spec=workload("two", "a", 1).spec))
    it.settle()
    assert it.running() == {"other", "one"}


def test_a_variant_below_the_last_acceptable_flavor_moves_nobody() -> None:
    constraints = {"lastAcceptableFlavorName": "best"}
    policy = {"migration": {"mode": "TryPreferredFlavors", "constraints": constraints}}
    it = variants_world(concurrentAdmissionPolicy=policy)
    it.put(variant("poor", "poor"))
    it.settle()
    it.put(variant("good", "good", 1))
    it.settle()
    assert it.condition("poor", "Evicted") == ""
    it.put(variant("best", "best", 2))
    it.settle()
    assert it.condition("poor", "Evicted") == "True/FlavorMigration"


def test_closed_preemption_gates_hold_back_victims_and_say_so() -> None:
    config = EngineConfig(gates=FeatureGates({"MultiKueueOrchestratedPreemption": True}))
    it = world(cluster_queue("a", 4, preemption=LOWER), config=config)
    it.put(workload("low", "a", 4))
    it.cycle()
    gated = workload("high", "a", 3, priority=5, preemptionGates=[{"name": "gate"}])
    it.put(gated)
    it.settle()
    assert it.condition("low", "Evicted") == ""
    assert it.condition("high", "BlockedOnPreemptionGates") == "True/PreemptionGated"
    opened = (PreemptionGateState(name="gate", position="Open"),)
    status = it.workloads[WorkloadKey("ns/high")].status
    it.put(msgspec.structs.replace(gated, status=msgspec.structs.replace(status, preemption_gates=opened)))
    it.settle()
    assert it.condition("low", "Evicted") == "True/Preempted"


def test_an_old_view_of_a_victim_does_not_call_it_back() -> None:
    it = world(cluster_queue("a", 4, preemption=LOWER))
    it.put(workload("low", "a", 4))
    it.cycle()
    it.put(workload("high", "a", 3, priority=5))
    it.engine.cycle(it.now_s)
    it.put(it.workloads[WorkloadKey("ns/low")])
    assert it.engine.state.cluster.holders[WorkloadKey("ns/low")].evicted
    assert [type(one) for one in it.engine.cycle(it.now_s).made] == [Pending]


def test_an_old_view_of_a_replaced_slice_is_charged_for_nothing() -> None:
    it = world(cluster_queue("a", 5))
    it.put(workload("one", "a", 1, count=3))
    it.cycle()
    replaces = {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/one"}
    it.put(workload("two", "a", 1, count=5, annotations=replaces))
    it.engine.cycle(it.now_s)
    it.put(it.workloads[WorkloadKey("ns/one")])
    assert it.engine.state.cluster.queues["a"].node.used() == {("default", "gpu"): 5}  # type: ignore[index]


def test_a_blocked_head_keeps_the_quota_that_it_had_lent() -> None:
    """3 of its 4 are lent and nobody may be made to give them back; the last one is not lent as well."""
    it = world(cluster_queue("a", 4, cohort="c", preemption=LOWER), cluster_queue("b", 0, cohort="c"))
    it.put(workload("borrower", "b", 3))
    it.cycle()
    it.put(workload("blocked", "a", 4, priority=1), workload("other", "b", 1))
    it.cycle()
    assert it.running() == {"borrower"}


def test_a_blocked_head_that_may_always_reclaim_keeps_nothing() -> None:
    """The workloads in its way hold their own quota; what the head gets can be reclaimed at any time."""
    reclaims = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    it = world(cluster_queue("a", 5, cohort="c", preemption=reclaims), cluster_queue("b", 0, cohort="c"))
    it.put(workload("first", "a", 3))
    it.cycle()
    it.put(workload("blocked", "a", 5, created_s=1), workload("other", "b", 2, created_s=2))
    it.cycle()
    assert it.running() == {"first", "other"}


def test_a_blocked_head_that_borrows_keeps_no_more_than_it_may_borrow() -> None:
    """2 more is all that its limit leaves it: of the 7 that are free, 5 are for others."""
    borrows = {"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority"}}
    it = world(
        cluster_queue("a", 4, cohort="c", borrow=1, preemption=borrows),
        cluster_queue("b", 0, cohort="c"),
        cluster_queue("bank", 6, cohort="c"),
    )
    it.put(workload("first", "a", 3))
    it.cycle()
    it.put(workload("blocked", "a", 5, priority=1), workload("other", "b", 5))
    it.cycle()
    assert it.running() == {"first", "other"}


def test_a_queue_without_a_namespace_selector_takes_nobody() -> None:
    it = World()
    queue = cluster_queue("a", 4)
    assert isinstance(queue, ClusterQueue)
    bare = msgspec.structs.replace(queue, spec=msgspec.structs.replace(queue.spec, namespace_selector=None))
    it.put(flavor(), bare, local_queue("a"), workload("w", "a"))
    it.settle()
    assert it.condition("w") == "False/Misconfigured"


def test_a_queue_that_is_being_deleted_takes_nobody() -> None:
    it = World()
    queue = cluster_queue("a", 4)
    going = msgspec.structs.replace(queue.metadata, deletion_timestamp=moment(it.now_s))
    it.put(flavor(), queue, local_queue("a"), workload("before", "a"))
    it.settle()
    it.put(msgspec.structs.replace(queue, metadata=going), workload("after", "a"))
    it.settle()
    assert it.running() == {"before"}


@pytest.mark.parametrize(("on", "small"), [(True, "True/QuotaReserved"), (False, "")])
def test_without_flavor_fungibility_a_head_that_chose_a_flavor_is_tried_before_those_behind_it(
    on: bool, small: str
) -> None:
    """As in Kueue, which takes that flavor for one before others."""
    gates = FeatureGates({"FlavorFungibility": on, "FlavorFungibilityPreserveScanProgress": on})
    world = World(EngineConfig(gates=gates))
    world.put(flavor(), cluster_queue("a", 4), local_queue("a"), workload("old", "a", 2, priority=9))
    world.settle()
    world.put(workload("big", "a", 4, priority=5), workload("small", "a", 1, priority=1))
    assert world.settle() < 10
    assert (world.condition("big"), world.condition("small")) == ("False/WaitingForQuota", small)
