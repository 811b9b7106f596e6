"""The order of pending workloads: which are tried, which are parked, and what wakes them. The model is a plain list."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from controller.objects.meta import ObjectMeta
from controller.objects.queues import (
    AdmissionScope,
    ClusterQueue,
    ClusterQueueSpec,
    LocalQueue,
    LocalQueueSpec,
    QueueingStrategy,
)
from controller.objects.workload import PodSet, Workload, WorkloadSpec
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.flavors.assignment import Bookmark
from controller.scheduler.model.config import AdmissionFairSharing, BackfillPolicy, EngineConfig, Extensions
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.limitrange import LimitSummary
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, ResourceName, WorkloadKey
from controller.scheduler.model.workload import WorkloadInfo
from controller.scheduler.queues.pending import PendingState, PendingWorkload, RequeueReason
from controller.scheduler.queues.pendingqueues import PendingQueues
from controller.scheduler.quota.usagehistory import UsageHistory
from controller.scheduler.state.intake import Shapes

CQ = ClusterQueueName("cq")


def cluster_queue(
    name: str = "cq", strategy: QueueingStrategy = "BestEffortFIFO", *, by_usage: bool = False, cohort: str = ""
) -> ClusterQueue:
    scope = AdmissionScope(admission_mode="UsageBasedAdmissionFairSharing") if by_usage else None
    spec = ClusterQueueSpec(queueing_strategy=strategy, admission_scope=scope, cohort_name=cohort)
    return ClusterQueue(metadata=ObjectMeta(name=name), spec=spec)


def local_queue(name: str = "lq", leads_to: str = "cq") -> LocalQueue:
    return LocalQueue(metadata=ObjectMeta(name=name, namespace="ns"), spec=LocalQueueSpec(cluster_queue=leads_to))


def pending(
    name: str, *, priority: int = 0, queued_at_s: float = 0.0, shape: str = "a", queue: str = "lq", due_s: float = 0.0
) -> PendingWorkload:
    workload = Workload(metadata=ObjectMeta(name=name, namespace="ns", uid=name), spec=WorkloadSpec(queue_name=queue))
    info = WorkloadInfo(workload=workload, cluster_queue=ClusterQueueName(""), pod_sets=())
    return PendingWorkload(
        info,
        local_queue=LocalQueueKey(f"ns/{queue}"),
        priority=priority,
        queued_at_s=queued_at_s,
        shape=shape,
        due_s=due_s,
    )


def queues_of(*objects: ClusterQueue | LocalQueue, config: EngineConfig | None = None) -> PendingQueues:
    cluster = Cluster(config)
    for one in objects:
        if isinstance(one, ClusterQueue):
            cluster.set_cluster_queue(one)
        else:
            cluster.set_local_queue(one)
    return PendingQueues(cluster, lambda _: 0.0)


def names(some: list[PendingWorkload]) -> list[str]:
    return [one.info.workload.metadata.name for one in some]


def heads(queues: PendingQueues, now_s: float = 0.0) -> list[PendingWorkload]:
    found = queues.heads(now_s, open_for=lambda _: True)
    queues.validate()
    return found


def drained(queues: PendingQueues) -> list[str]:
    order = []
    while found := heads(queues):
        order += names(found)
    return order


def test_more_priority_goes_first_then_the_older_then_the_uid() -> None:
    queues = queues_of(cluster_queue(), local_queue())
    for one in (
        pending("b", queued_at_s=2),
        pending("c", queued_at_s=1),
        pending("high", priority=5, queued_at_s=9),
        pending("a", queued_at_s=2),
    ):
        queues.put(one, 0.0)
    assert drained(queues) == ["high", "c", "a", "b"]


def test_what_cannot_fit_parks_its_whole_shape_and_what_arrives_with_it() -> None:
    queues = queues_of(cluster_queue(), local_queue())
    for name, shape in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        queues.put(pending(name, shape=shape), 0.0)
    [head] = heads(queues)
    queues.requeue(head, RequeueReason.NO_FIT, 0.0)
    queues.put(pending("a3", shape="a"), 0.0)
    assert names(queues.active(CQ)) == ["b1"]
    assert names(queues.parked(CQ)) == ["a1", "a2", "a3"]
    assert queues.counts(CQ) == (1, 3)
    queues.wake(CQ)
    assert names(queues.active(CQ)) == ["a1", "a2", "a3", "b1"]


def test_what_cannot_fit_is_parked_whatever_its_run_time_and_what_is_held_back_only_with_its_shape() -> None:
    queues = queues_of(cluster_queue(), local_queue())
    for name, shape in (("a1", "a/60"), ("a2", "a/3600"), ("b1", "b/60"), ("b2", "b/3600")):
        queues.put(pending(name, shape=shape), 0.0)
    queues.requeue(heads(queues)[0], RequeueReason.NO_FIT, 0.0)
    assert names(queues.active(CQ)) == ["b1", "b2"]
    queues.requeue(heads(queues)[0], RequeueReason.HELD_BACK, 0.0)
    queues.put(pending("a3", shape="a/9"), 0.0)
    queues.put(pending("b3", shape="b/60"), 0.0)
    assert names(queues.active(CQ)) == ["b2"]
    queues.wake(CQ)
    assert len(queues.active(CQ)) == 6


def test_what_quota_alone_keeps_out_is_parked_whatever_places_it_asks_for() -> None:
    queues = queues_of(cluster_queue(), local_queue())
    for name, shape in (("a1", "k.a"), ("a2", "k.a/60"), ("b1", "k.b"), ("c1", "c/0.5"), ("d1", "j.a")):
        queues.put(pending(name, shape=shape), 0.0)
    queues.requeue(heads(queues)[0], RequeueReason.NO_FIT, 0.0)
    assert names(queues.active(CQ)) == ["b1", "c1", "d1"], "places may be there for another shape"
    queues.wake(CQ)
    queues.requeue(heads(queues)[0], RequeueReason.NO_QUOTA, 0.0)
    queues.put(pending("e1", shape="k.e/9"), 0.0)
    assert names(queues.active(CQ)) == ["c1", "d1"]
    queues.requeue(heads(queues)[0], RequeueReason.NO_QUOTA, 0.0)
    queues.put(pending("c2", shape="c/9"), 0.0)
    assert names(queues.active(CQ)) == ["d1"]
    queues.wake(CQ)
    assert len(queues.active(CQ)) == 7


def test_a_quota_shape_is_parked_though_a_shape_of_the_same_name_has_more_workloads() -> None:
    queues = queues_of(cluster_queue(), local_queue())
    for name, shape in (("a1", "k"), ("a2", "k"), ("b1", "k.b"), ("c1", "c")):
        queues.put(pending(name, shape=shape), 0.0)
    queues.requeue(heads(queues)[0], RequeueReason.NO_QUOTA, 0.0)
    assert names(queues.active(CQ)) == ["c1"]


def test_what_sums_alone_keep_out_is_parked_however_it_is_divided() -> None:
    queues = queues_of(cluster_queue(), local_queue())
    for name, shape in (("a1", "s:a"), ("a2", "s:a/60"), ("b1", "s:b"), ("c1", "c"), ("d1", "t:a"), ("e1", "s")):
        queues.put(pending(name, shape=shape), 0.0)
    queues.requeue(heads(queues)[0], RequeueReason.NO_QUOTA, 0.0)
    assert names(queues.active(CQ)) == ["b1", "c1", "d1", "e1"], "divided so it may fit"
    queues.wake(CQ)
    queues.requeue(heads(queues)[0], RequeueReason.NO_SUMS, 0.0)
    queues.put(pending("f1", shape="s:f.g/9"), 0.0)
    assert names(queues.active(CQ)) == ["c1", "d1"]
    queues.requeue(heads(queues)[0], RequeueReason.NO_SUMS, 0.0)
    assert names(queues.active(CQ)) == ["d1"], "one without a sum shape is its own"
    queues.wake(CQ)
    assert len(queues.active(CQ)) == 7


def test_without_shapes_only_the_one_that_failed_is_parked() -> None:
    config = EngineConfig(gates=FeatureGates({"SchedulingEquivalenceHashing": False}))
    queues = queues_of(cluster_queue(), local_queue(), config=config)
    for name in ("a1", "a2"):
        queues.put(pending(name), 0.0)
    queues.requeue(heads(queues)[0], RequeueReason.NO_FIT, 0.0)
    assert (names(queues.active(CQ)), names(queues.parked(CQ))) == (["a2"], ["a1"])


@pytest.mark.parametrize("reason", [one for one in RequeueReason if one is not RequeueReason.NAMESPACE_MISMATCH])
def test_a_strict_queue_is_blocked_by_its_head_whatever_the_reason(reason: RequeueReason) -> None:
    queues = queues_of(cluster_queue(strategy="StrictFIFO"), local_queue())
    for name in ("a1", "a2"):
        queues.put(pending(name), 0.0)
    queues.requeue(heads(queues)[0], reason, 0.0)
    assert names(heads(queues)) == ["a1"]


def test_even_a_strict_queue_parks_what_its_namespace_may_not_use() -> None:
    queues = queues_of(cluster_queue(strategy="StrictFIFO"), local_queue())
    for name in ("a1", "a2"):
        queues.put(pending(name), 0.0)
    queues.requeue(heads(queues)[0], RequeueReason.NAMESPACE_MISMATCH, 0.0)
    assert (names(queues.active(CQ)), names(queues.parked(CQ))) == (["a2"], ["a1"])


def test_a_preemptor_stays_at_the_head_before_more_priority_until_it_comes_back_otherwise() -> None:
    queues = queues_of(cluster_queue(), local_queue())
    queues.put(pending("preemptor"), 0.0)
    queues.requeue(heads(queues)[0], RequeueReason.PENDING_PREEMPTION, 0.0)
    queues.put(pending("late", priority=9, shape="b"), 0.0)
    [head] = heads(queues)
    assert names([head]) == ["preemptor"]
    queues.requeue(head, RequeueReason.FAILED_AFTER_NOMINATION, 0.0)
    assert names(heads(queues)) == ["late"]


def test_a_wake_up_while_it_was_out_tries_it_again() -> None:
    queues = queues_of(cluster_queue(), local_queue())
    queues.put(pending("a1"), 0.0)
    [head] = heads(queues)
    queues.wake(CQ)
    queues.requeue(head, RequeueReason.NO_FIT, 0.0)
    assert names(heads(queues)) == ["a1"]


def test_flavors_left_to_try_bring_it_back_at_once() -> None:
    queues = queues_of(cluster_queue(), local_queue())
    queues.put(pending("a1"), 0.0)
    [head] = heads(queues)
    head.bookmark = Bookmark(tried=({ResourceName("cpu"): 0},))
    queues.requeue(head, RequeueReason.NO_FIT, 0.0)
    [head] = heads(queues)
    head.bookmark = Bookmark(tried=({ResourceName("cpu"): -1},))
    queues.requeue(head, RequeueReason.NO_FIT, 0.0)
    assert heads(queues) == []


def test_a_backoff_is_sat_out_through_every_wake_up() -> None:
    queues = queues_of(cluster_queue(), local_queue())
    queues.put(pending("later", due_s=10.0), 0.0)
    queues.put(pending("never", due_s=math.inf), 0.0)
    queues.wake_all()
    assert heads(queues, 9.9) == []
    assert queues.next_due_s() == 10.0
    assert names(queues.parked(CQ)) == ["later", "never"]
    assert names(heads(queues, 10.0)) == ["later"]
    assert queues.next_due_s() is None


def test_nothing_is_kept_of_back_offs_that_are_over_though_nobody_is_tried() -> None:
    """As in an engine that follows for weeks: each time the workload comes again with another back-off."""
    queues = queues_of(cluster_queue(), local_queue())
    for hour in range(1000):
        queues.put(pending("a", due_s=3600.0 * hour + 60.0), 3600.0 * hour)
        queues.release_due(3600.0 * (hour + 1))
    assert len(queues._due) == 0
    assert drained(queues) == ["a"]
    queues.validate()


def test_a_wake_up_reaches_the_whole_tree_and_no_other() -> None:
    ours = [cluster_queue(name, cohort="root") for name in ("cq", "sibling")]
    queues = queues_of(*ours, cluster_queue("other"), *(local_queue(f"lq-{n}", n) for n in ("cq", "sibling", "other")))
    for name in ("cq", "sibling", "other"):
        queues.put(pending(name, queue=f"lq-{name}"), 0.0)
    for head in heads(queues):
        queues.requeue(head, RequeueReason.GENERIC, 0.0)
    queues.wake(CQ)
    assert names(heads(queues)) == ["cq", "sibling"]


def test_a_closed_queue_keeps_its_workloads_in_order() -> None:
    queues = queues_of(cluster_queue(), local_queue())
    queues.put(pending("a1"), 0.0)
    assert queues.heads(0.0, open_for=lambda _: False) == []
    assert names(queues.active(CQ)) == ["a1"]
    assert names(heads(queues)) == ["a1"]


def test_workloads_wait_for_their_queues_in_any_order_of_arrival_and_move_with_them() -> None:
    cluster = Cluster()
    queues = PendingQueues(cluster, lambda _: 0.0)
    queues.put(pending("a1"), 0.0)
    assert heads(queues) == []
    cluster.set_local_queue(local_queue())
    queues.local_queue_changed(LocalQueueKey("ns/lq"), 0.0)
    assert heads(queues) == []
    cluster.set_cluster_queue(cluster_queue())
    queues.cluster_queue_changed(CQ, 0.0)
    assert names(queues.active(CQ)) == ["a1"]
    cluster.set_cluster_queue(cluster_queue("other"))
    cluster.set_local_queue(local_queue(leads_to="other"))
    queues.local_queue_changed(LocalQueueKey("ns/lq"), 0.0)
    queues.validate()
    assert (names(queues.active(CQ)), names(queues.active(ClusterQueueName("other")))) == ([], ["a1"])
    cluster.remove_cluster_queue(ClusterQueueName("other"))
    queues.cluster_queue_changed(ClusterQueueName("other"), 0.0)
    assert heads(queues) == []
    assert len(queues) == 1


def test_our_own_status_writes_wake_nobody() -> None:
    queues = queues_of(cluster_queue(), local_queue())
    queues.put(pending("a1"), 0.0)
    queues.requeue(heads(queues)[0], RequeueReason.NO_FIT, 0.0)
    queues.put(pending("a1"), 0.0)
    assert heads(queues) == []
    queues.put(pending("a1", priority=1, shape="a with priority"), 0.0)
    assert names(heads(queues)) == ["a1"]


def test_local_queues_take_turns_by_past_usage_before_priority() -> None:
    config = AdmissionFairSharing(half_life_s=3600.0)
    cluster = Cluster(EngineConfig(admission_fair_sharing=config))
    history = UsageHistory(config)
    cluster.set_cluster_queue(cluster_queue(by_usage=True))
    for name in ("heavy", "light"):
        cluster.set_local_queue(local_queue(name))
    history.restore(LocalQueueKey("ns/heavy"), {ResourceName("cpu"): 8.0}, 0.0)
    queues = PendingQueues(cluster, history.usage)
    queues.put(pending("h", priority=9, queue="heavy"), 0.0)
    queues.put(pending("l", queue="light"), 0.0)
    [head] = heads(queues)
    assert names([head]) == ["l"]
    history.penalise(LocalQueueKey("ns/light"), head.key, {ResourceName("cpu"): 900_000_000})
    queues.requeue(head, RequeueReason.FAILED_AFTER_NOMINATION, 0.0)
    assert names(heads(queues)) == ["h"]


def test_a_shape_parked_for_one_local_queue_is_parked_for_all_of_its_cluster_queue() -> None:
    config = EngineConfig(admission_fair_sharing=AdmissionFairSharing(half_life_s=3600.0))
    queues = queues_of(cluster_queue(by_usage=True), local_queue("one"), local_queue("two"), config=config)
    queues.put(pending("a1", queue="one"), 0.0)
    queues.put(pending("a2", queue="two"), 0.0)
    queues.requeue(heads(queues)[0], RequeueReason.NO_FIT, 0.0)
    queues.put(pending("a3", queue="two"), 0.0)
    assert heads(queues) == []
    assert queues.counts(CQ) == (0, 3)


def test_a_workload_whose_pod_sets_are_shared_already_is_not_copied() -> None:
    shapes, pod_sets = Shapes(), (PodSet(name="m", count=2),)
    for name in ("one", "two"):
        one = Workload(metadata=ObjectMeta(name=name), spec=WorkloadSpec(pod_sets=pod_sets))
        found, kept = shapes.pending_of(WorkloadKey(one.key), one, EngineConfig(), limits=LimitSummary(), overheads={})
        assert kept is one
        assert found.info.workload is one


def test_shapes_tell_apart_what_may_fare_differently_and_share_what_is_equal() -> None:
    def given(name: str, count: int, runs: str = "1h", priority: int = 0) -> Workload:
        spec = WorkloadSpec(pod_sets=(PodSet(name="m", count=count),), priority=priority)
        return Workload(metadata=ObjectMeta(name=name, annotations={"tessera.dev/runtime": runs}), spec=spec)

    def put(one: Workload, config: EngineConfig) -> PendingWorkload:
        return shapes.pending_of(WorkloadKey(one.key), one, config, limits=LimitSummary(), overheads={})[0]

    shapes, plain = Shapes(), EngineConfig()
    one, same = put(given("one", 2), plain), put(given("same", 2, "2h"), plain)
    assert one.shape == same.shape
    assert one.info.pod_sets is same.info.pod_sets
    assert one.info.workload.spec.pod_sets is same.info.workload.spec.pod_sets
    assert same.info.workload.metadata.name == "same"
    others = [put(given("other", 3), plain), put(given("high", 2, priority=1), plain)]
    timed = EngineConfig(extensions=Extensions(backfill=BackfillPolicy.CONSERVATIVE))
    others += [put(given("short", 2), timed), put(given("long", 2, "2h"), timed)]
    assert len({one.shape, *(other.shape for other in others)}) == 5


SHAPES = ("a", "b", "b/0.5", "k.a", "k.b", "k.b/0.5", "k.b/90", "s:k.a", "s:l")


@dataclass
class Modelled:
    pending: PendingWorkload
    parked: bool = False


def shapes_of(pending: PendingWorkload) -> set[str]:
    return {pending.shape, pending.untimed_shape, pending.quota_shape, pending.sum_shape}


@dataclass
class Model:
    """BestEffortFIFO as one would write it down without caring for speed."""

    waiting: dict[WorkloadKey, Modelled] = field(default_factory=dict)
    parked_shapes: set[str] = field(default_factory=set)
    sticky: WorkloadKey | None = None

    def active(self) -> list[WorkloadKey]:
        some = [
            one.pending
            for one in self.waiting.values()
            if not one.parked and self.parked_shapes.isdisjoint(shapes_of(one.pending))
        ]
        some.sort(key=lambda one: (one.key != self.sticky, -one.priority, one.queued_at_s, one.key))
        return [one.key for one in some]


class QueueMachine(RuleBasedStateMachine):
    """Any sequence of arrivals, departures, cycles and wake-ups leaves the queue where the model says."""

    out = Bundle("out")

    @initialize()
    def start(self) -> None:
        self.queues = queues_of(cluster_queue(), local_queue())
        self.model = Model()
        self.flying: set[WorkloadKey] = set()
        self.number = 0

    @rule(priority=st.integers(0, 2), at=st.integers(0, 3), shape=st.sampled_from(SHAPES))
    def arrive(self, priority: int, at: int, shape: str) -> None:
        self.number += 1
        one = pending(f"w{self.number:03}", priority=priority, queued_at_s=float(at), shape=shape)
        self.queues.put(one, 0.0)
        self.model.waiting[one.key] = Modelled(one)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.model.waiting:
            key = data.draw(st.sampled_from(sorted(self.model.waiting)))
            self.queues.remove(key)
            del self.model.waiting[key]
            self.model.sticky = None if self.model.sticky == key else self.model.sticky

    @rule(target=out)
    def pop(self) -> PendingWorkload | None:
        expected = self.model.active()[:1]
        found = self.queues.heads(0.0, open_for=lambda _: True)
        assert [one.key for one in found] == expected
        if not found:
            return None
        del self.model.waiting[found[0].key]
        self.flying.add(found[0].key)
        return found[0]

    @rule(one=consumes(out), reason=st.sampled_from(RequeueReason))
    def come_back(self, one: PendingWorkload | None, reason: RequeueReason) -> None:
        if one is None:
            return
        woken = one.key not in self.flying
        self.flying.discard(one.key)
        self.queues.requeue(one, reason, 0.0)
        modelled = self.model.waiting[one.key] = Modelled(one)
        if reason is RequeueReason.PENDING_PREEMPTION:
            self.model.sticky = one.key
        elif self.model.sticky == one.key:
            self.model.sticky = None
        if reason is RequeueReason.NAMESPACE_MISMATCH:
            modelled.parked = True
        elif not (reason.immediate or woken):
            alike = {
                RequeueReason.NO_FIT: one.untimed_shape,
                RequeueReason.NO_QUOTA: one.quota_shape,
                RequeueReason.NO_SUMS: one.sum_shape,
                RequeueReason.HELD_BACK: one.shape,
                RequeueReason.NO_TIME: one.shape,
            }
            if reason in alike:
                self.model.parked_shapes.add(alike[reason])
            else:
                modelled.parked = True

    @rule()
    def wake(self) -> None:
        self.queues.wake(CQ)
        self.model.parked_shapes.clear()
        self.flying.clear()
        for one in self.model.waiting.values():
            one.parked = False

    @invariant()
    def agree(self) -> None:
        self.queues.validate()
        assert [one.key for one in self.queues.active(CQ)] == self.model.active()
        parked = {one.key for one in self.queues.parked(CQ)}
        assert parked == self.model.waiting.keys() - set(self.model.active())
        assert all(self.queues.get(key).state is not PendingState.IN_FLIGHT for key in parked)  # type: ignore[union-attr]


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
