"""In which order the entries of a cycle take their turns."""

from collections.abc import Mapping

import msgspec

from controller.objects.queues import ClusterQueue, Cohort
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.decisions import status
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.flavors.assignment import Assignment, Mode
from controller.scheduler.kueue.ordering import classical_order, fair_order
from controller.scheduler.model.config import EngineConfig, FairSharing
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.limitrange import LimitSummary
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, FlavorResource, ResourceName, WorkloadKey
from controller.scheduler.queues.entry import Entry
from controller.scheduler.state.intake import Shapes, holder_of
from tests.support.engine.world import cluster_queue, cohort, workload

GPU = FlavorResource(FlavorName("default"), ResourceName("gpu"))
SPOT = FlavorResource(FlavorName("spot"), ResourceName("gpu"))


def cluster(*objects: object, gates: Mapping[str, bool] | None = None) -> Cluster:
    made = Cluster(EngineConfig(gates=FeatureGates(gates), fair_sharing=FairSharing()))
    for one in objects:
        if isinstance(one, ClusterQueue):
            made.set_cluster_queue(one)
        elif isinstance(one, Cohort):
            made.set_cohort(one)
    return made


def entry(
    of: Cluster, queue: str, name: str, gpus: int = 1, *, priority: int = 0, created_s: int = 0, level: int = 0
) -> Entry:
    given = workload(name, queue, gpus, priority=priority, created_s=created_s)
    pending, _ = Shapes().pending_of(
        WorkloadKey(given.key),
        given,
        of.config,
        limits=LimitSummary(),
        overheads={},
    )
    made = Entry(pending.incoming(of.queue(ClusterQueueName(queue))), pending=pending)
    made.assignment = Assignment(pod_sets=(), mode=Mode.FIT, usage={GPU: gpus}, borrowing=level)
    return made


def names(entries: object) -> list[str]:
    return [one.key.removeprefix("ns/") for one in entries]  # type: ignore[attr-defined]


def test_classical_order_goes_by_borrow_level_then_priority_then_time() -> None:
    it = cluster(*(cluster_queue(name, 4) for name in "abcd"))
    far = entry(it, "a", "far", priority=9, level=2)
    near = entry(it, "b", "near", priority=1, level=1)
    late = entry(it, "c", "late", priority=1, created_s=5)
    early = entry(it, "d", "early", priority=1, created_s=2)
    assert names(classical_order([far, near, late, early], it.config.gates)) == ["early", "late", "near", "far"]
    high = entry(it, "c", "high", priority=2, created_s=9)
    assert names(classical_order([early, high], it.config.gates)) == ["high", "early"]


def test_without_priority_sorting_time_alone_decides_between_equal_levels() -> None:
    it = cluster(cluster_queue("a", 4), cluster_queue("b", 4), gates={"PrioritySortingWithinCohort": False})
    high = entry(it, "a", "high", priority=2, created_s=9)
    early = entry(it, "b", "early", created_s=2)
    assert names(classical_order([high, early], it.config.gates)) == ["early", "high"]


def test_who_holds_quota_goes_first() -> None:
    it = cluster(cluster_queue("a", 4), cluster_queue("b", 4))
    high = entry(it, "a", "high", priority=9)
    again = Entry(entry(it, "b", "again", created_s=9).incoming, holder=holder_of(workload("again", "b"), it.config))
    assert names(classical_order([high, again], it.config.gates)) == ["again", "high"]


def test_a_preemptor_goes_first_where_the_gate_says_so() -> None:
    it = cluster(cluster_queue("a", 4), cluster_queue("b", 4), gates={"PrioritizePreemptorWorkloads": True})
    high = entry(it, "a", "high", priority=9)
    waits = entry(it, "b", "waits")
    assert waits.pending is not None
    waits.pending.sticky = True
    assert names(classical_order([high, waits], it.config.gates)) == ["waits", "high"]


def test_who_says_that_it_waits_for_victims_is_a_preemptor_though_nothing_here_remembers_it() -> None:
    it = cluster(cluster_queue("a", 4), cluster_queue("b", 4), gates={"PrioritizePreemptorWorkloads": True})
    for reason, expected in (
        ("WaitingForPreemptedWorkloads", ["waits", "high"]),
        ("WaitingForQuota", ["high", "waits"]),
    ):
        high, waits = entry(it, "a", "high", priority=9), entry(it, "b", "waits")
        assert waits.pending is not None
        info = waits.pending.info
        said = status.unreserved(info.workload, PendingReason(reason), "waits", now_s=0.0, gates=it.config.gates)
        waits.pending.info = msgspec.structs.replace(info, workload=said)
        assert names(classical_order([high, waits], it.config.gates)) == expected


def test_fair_order_prefers_who_stays_within_quota_whatever_it_borrows_elsewhere() -> None:
    queues = [cluster_queue("a", 4, cohort="c", flavors=("default", "spot")), cluster_queue("b", 1, cohort="c")]
    for gate, expected in ((True, ["within", "beyond"]), (False, ["beyond", "within"])):
        it = cluster(*queues, gates={"FairSharingPrioritizeNonBorrowing": gate})
        it.quota.add_usage(ClusterQueueName("a"), {SPOT: 8})
        within, beyond = entry(it, "a", "within", 4), entry(it, "b", "beyond", 2)
        assert names(fair_order([within, beyond], it)) == expected


def test_equal_shares_are_decided_by_priority_where_the_gate_says_so_and_else_by_time() -> None:
    for gate, expected in ((True, ["high", "early"]), (False, ["early", "high"])):
        queues = [cluster_queue(name, 4, cohort="c") for name in "ab"]
        it = cluster(*queues, gates={"PrioritySortingWithinCohort": gate})
        high, early = entry(it, "a", "high", priority=2, created_s=9), entry(it, "b", "early", created_s=2)
        assert names(fair_order([high, early], it)) == expected


def test_the_smaller_share_wins_with_its_own_request_in_it() -> None:
    it = cluster(*(cluster_queue(name, 2, cohort="c") for name in "ab"), cluster_queue("bank", 9, cohort="c"))
    it.quota.add_usage(ClusterQueueName("a"), {GPU: 1})
    big, small = entry(it, "b", "big", 6), entry(it, "a", "small", 3)
    assert names(fair_order([big, small], it)) == ["small", "big"]


def test_shares_are_played_anew_after_what_a_winner_took() -> None:
    """Left's two queues take turns with right: after its first win the left cohort's share is the larger one."""
    it = cluster(
        cohort("left", "root"),
        cohort("right", "root"),
        cluster_queue("l1", 0, cohort="left"),
        cluster_queue("l2", 0, cohort="left"),
        cluster_queue("r", 0, cohort="right"),
        cluster_queue("bank", 12, cohort="root"),
    )
    entries = [entry(it, "l1", "l1", 2), entry(it, "l2", "l2", 2, created_s=1), entry(it, "r", "r", 3)]
    order = []
    for one in fair_order(entries, it):
        order.append(one)
        it.quota.add_usage(one.incoming.queue.name, one.assignment.usage)
    assert names(order) == ["l1", "r", "l2"]


def test_inside_a_cohort_the_winner_of_each_side_meets_the_others() -> None:
    """The best of the left is not the best of all: it is the cohorts' shares that decide at the root."""
    it = cluster(
        cohort("left", "root"),
        cohort("right", "root"),
        cluster_queue("l1", 0, cohort="left"),
        cluster_queue("l2", 0, cohort="left"),
        cluster_queue("r", 0, cohort="right"),
        cluster_queue("bank", 12, cohort="root"),
    )
    it.quota.add_usage(ClusterQueueName("l2"), {GPU: 4})
    entries = [entry(it, "l1", "l1", 1), entry(it, "r", "r", 3)]
    assert names(fair_order(entries, it)) == ["r", "l1"]
