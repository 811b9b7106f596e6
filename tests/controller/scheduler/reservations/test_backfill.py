"""What may pass a blocked head, against the definition itself: with it or without it, the head starts no later."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.decode import decode
from controller.objects.queues import ClusterQueue, ResourceFlavor
from controller.objects.workload import Workload
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.flavors.assignment import Assignment, Possibility
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.podrequests import RequestRules
from controller.scheduler.model.resources import Amount, ClusterQueueName, FlavorResource, LocalQueueKey, WorkloadKey
from controller.scheduler.model.toldtimes import runtime_s
from controller.scheduler.model.workload import WorkloadInfo
from controller.scheduler.queues.pending import OrderKey
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.reservations.backfill import Backfill, BackfillReservation
from controller.scheduler.reservations.runtimes import ends_at_s
from inventory.api.names import RUNTIME

NOW_S = 1_000_000.0


class NoOracle:
    is_monotonic = False

    def simulate(self, incoming: Incoming, fr: FlavorResource, amount: Amount) -> tuple[Possibility, int]:  # noqa: ARG002
        return Possibility.NO_CANDIDATES, 0


class Lab:
    """GPUs in one flavor; run times in seconds."""

    def __init__(self, **nominal: int) -> None:
        self.cluster = Cluster()
        self.assigner = FlavorAssigner(self.cluster, NoOracle())
        self.cluster.set_flavor(decode({"metadata": {"name": "default"}}, ResourceFlavor))
        for name, gpus in nominal.items():
            quota = {"name": "default", "resources": [{"name": "gpu", "nominalQuota": str(gpus)}]}
            spec = {"cohortName": "all", "resourceGroups": [{"coveredResources": ["gpu"], "flavors": [quota]}]}
            self.cluster.set_cluster_queue(decode({"metadata": {"name": name}, "spec": spec}, ClusterQueue))
        self.backfill = Backfill(self.cluster, self.assigner)

    def info(self, name: str, gpus: int, runs_s: float | None) -> WorkloadInfo:
        annotations = {} if runs_s is None else {RUNTIME: f"{runs_s}s"}
        containers = [{"name": "c", "resources": {"requests": {"gpu": str(gpus)}}}]
        data: dict[str, Any] = {
            "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": annotations},
            "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}]},
        }
        return WorkloadInfo.of(decode(data, Workload), rules=RequestRules(), gates=FeatureGates())

    def run(self, name: str, queue: str, gpus: int, runs_s: float | None = None, *, since_s: float = NOW_S) -> Holder:
        incoming = self.incoming(name, queue, gpus, runs_s)
        holder = Holder(
            info=incoming.info,
            cluster_queue=ClusterQueueName(queue),
            local_queue=incoming.local_queue,
            usage=self.assign(incoming).usage,
            priority=0,
            reserved_at_s=since_s,
            queued_at_s=since_s,
            admitted=True,
        )
        self.cluster.add_holder(holder)
        return holder

    def incoming(self, name: str, queue: str, gpus: int, runs_s: float | None = None) -> Incoming:
        return Incoming(
            info=self.info(name, gpus, runs_s),
            queue=self.cluster.queue(ClusterQueueName(queue)),
            local_queue=LocalQueueKey("ns/lq"),
            priority=0,
            queued_at_s=NOW_S,
        )

    def assign(self, incoming: Incoming) -> Assignment:
        return self.assigner.assign(incoming)

    def block(self, name: str, queue: str, gpus: int, position: int = 0) -> BackfillReservation | None:
        return self.backfill.block(self.incoming(name, queue, gpus), order(position), NOW_S)

    def passes(self, name: str, queue: str, gpus: int, runs_s: float | None = None, position: int = 9) -> bool:
        incoming = self.incoming(name, queue, gpus, runs_s)
        return self.backfill.held_back_by(incoming, order(position), self.assign(incoming), NOW_S) is None


def order(position: int) -> OrderKey:
    return (1, 0, float(position), "", "")


def test_the_head_starts_when_enough_of_those_that_run_have_ended() -> None:
    lab = Lab(a=8)
    lab.run("r1", "a", 4, 100)
    lab.run("r2", "a", 2, 50)
    head = lab.block("head", "a", 6)
    assert head is not None
    assert head.start_s == NOW_S + 100
    lab.cluster.validate()


def test_behind_it_pass_those_that_end_in_time_or_leave_it_room() -> None:
    lab = Lab(a=8)
    lab.run("r1", "a", 6, 100)
    lab.block("head", "a", 7)
    assert lab.passes("short", "a", 2, 100)
    assert not lab.passes("long", "a", 2, 101)
    assert lab.passes("small", "a", 1, 10_000)
    assert not lab.passes("unknown", "a", 2)
    assert lab.passes("small and unknown", "a", 1)
    lab.cluster.validate()


def test_who_is_before_it_in_the_queue_is_not_held_back() -> None:
    lab = Lab(a=8)
    lab.run("r1", "a", 6, 100)
    lab.block("head", "a", 7, position=5)
    assert lab.passes("earlier", "a", 2, position=4)
    assert not lab.passes("later", "a", 2, position=6)


def test_another_queue_may_use_what_is_its_own_and_must_not_borrow_what_is_promised() -> None:
    lab = Lab(a=4, b=4)
    lab.run("r1", "a", 3, 100)
    lab.run("r2", "b", 3)
    lab.block("head", "a", 5)
    assert lab.passes("own", "b", 1)
    assert not lab.passes("borrows", "b", 2)
    assert lab.passes("borrows shortly", "b", 2, 10)


def test_a_head_whose_start_cannot_be_known_reserves_nothing() -> None:
    lab = Lab(a=8)
    lab.run("r1", "a", 6)
    assert lab.block("head", "a", 7) is None
    assert lab.passes("anybody", "a", 2)


def test_only_the_first_of_a_queue_has_a_reservation_and_the_next_gets_it_once_it_has_gone() -> None:
    lab = Lab(a=8)
    lab.run("r1", "a", 6, 100)
    lab.block("second", "a", 3, position=2)
    lab.block("first", "a", 7, position=1)
    lab.block("second", "a", 3, position=2)
    held = lab.backfill.of(ClusterQueueName("a"))
    assert held is not None
    assert held.key == "ns/first"
    assert lab.backfill.drop(WorkloadKey("ns/first")) == "a"
    lab.block("second", "a", 3, position=2)
    held = lab.backfill.of(ClusterQueueName("a"))
    assert held is not None
    assert held.key == "ns/second"


def test_other_trees_have_nothing_to_do_with_it() -> None:
    lab = Lab(a=8)
    quota = {"name": "default", "resources": [{"name": "gpu", "nominalQuota": "8"}]}
    spec = {"resourceGroups": [{"coveredResources": ["gpu"], "flavors": [quota]}]}
    lab.cluster.set_cluster_queue(decode({"metadata": {"name": "alone"}, "spec": spec}, ClusterQueue))
    lab.run("r1", "a", 6, 100)
    lab.run("r2", "alone", 1, 5)
    head = lab.block("head", "a", 7)
    assert head is not None
    assert head.start_s == NOW_S + 100
    assert lab.passes("elsewhere", "alone", 7)


def test_who_outlives_what_was_said_is_taken_to_go_on_for_a_tenth_more() -> None:
    lab = Lab(a=8)
    late = lab.run("late", "a", 6, 100, since_s=NOW_S - 1000)
    assert ends_at_s(late, NOW_S) == NOW_S + 100
    head = lab.block("head", "a", 7)
    assert head is not None
    assert head.start_s == NOW_S + 100


@pytest.mark.parametrize(
    ("annotation", "limit_s", "past_s", "deadlines", "expected"),
    [
        ("2h30m", 10, None, [5], 9000.0),
        (None, 100, 30, [5], 70.0),
        (None, 10, 30, [], 0.0),
        (None, None, None, [5, 9], 9.0),
        (None, None, None, [5, None], None),
        (None, None, None, [], None),
        ("soon", 100, None, [], 100.0),
        ("1h" * 100, None, None, [], None),
    ],
)
def test_the_run_time_is_what_was_said_else_the_limits(
    annotation: str | None, limit_s: int | None, past_s: int | None, deadlines: list[int | None], expected: float | None
) -> None:
    data = {
        "metadata": {"name": "w", "annotations": {} if annotation is None else {RUNTIME: annotation}},
        "spec": {
            "maximumExecutionTimeSeconds": limit_s,
            "podSets": [
                {"name": str(n), "template": {"spec": {"activeDeadlineSeconds": d}}} for n, d in enumerate(deadlines)
            ],
        },
        "status": {"accumulatedPastExecutionTimeSeconds": past_s},
    }
    assert runtime_s(decode(data, Workload)) == expected


JOBS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.none() | st.integers(1, 200).map(float)), max_size=8
)


@settings(max_examples=60, deadline=None)
@given(running=JOBS, size=st.integers(1, 12), arrivals=JOBS)
def test_nobody_behind_the_head_ever_delays_it(
    running: list[tuple[str, int, float | None]], size: int, arrivals: list[tuple[str, int, float | None]]
) -> None:
    lab = Lab(a=6, b=6)
    for index, (queue, gpus, runs_s) in enumerate(running):
        if lab.assign(lab.incoming("r", queue, gpus)).representative == "Fit":
            lab.run(f"r{index}", queue, gpus, runs_s)
    if lab.assign(lab.incoming("head", "a", size)).representative == "Fit":
        return
    promised = lab.block("head", "a", size)
    if promised is None:
        return
    for index, (queue, gpus, runs_s) in enumerate(arrivals):
        incoming = lab.incoming("x", queue, gpus, runs_s)
        assignment = lab.assign(incoming)
        own = queue == "b" and assignment.borrowing == 0
        if assignment.representative != "Fit" or own or not lab.passes(f"x{index}", queue, gpus, runs_s):
            continue
        lab.run(f"x{index}", queue, gpus, runs_s)
        now = lab.block("head", "a", size)
        assert now is not None
        assert now.start_s <= promised.start_s
        lab.cluster.validate()
