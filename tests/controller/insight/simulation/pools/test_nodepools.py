"""The core of node pools: what comes and goes by itself, whatever workloads take and give back in between."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.insight.simulation.pools.nodepools import NodeEvent, NodePhase, NodePools
from controller.insight.simulation.pools.specs import Interruption, Pool, PoolFleet
from controller.scheduler.model.resources import WorkloadKey

A, B = WorkloadKey("ns/a"), WorkloadKey("ns/b")
ZERO_S = 1000.0


def pools(*interruptions: Interruption, most: int = 2, **other: Any) -> NodePools:
    names = tuple(f"p-{at}" for at in range(1, most + 1))
    terms = {"delay_s": 100.0, "remove_after_s": 50.0, "cooldown_s": 500.0, **other}
    fleet = PoolFleet(pools=(Pool(name="p", nodes=names, **terms),), interruptions=interruptions)
    return NodePools(fleet, ["fixed"], ZERO_S)


def passed(given: NodePools, until_s: float) -> list[WorkloadKey]:
    """Everything that is due until then, at its own time. Returns who got the last of its nodes, or was evicted."""
    found: list[WorkloadKey] = []
    while (due_s := given.due_s(jobs_left=True)) is not None and due_s <= ZERO_S + until_s:
        for hit in given.interrupt(due_s):
            given.give_back(hit.key, due_s)
            found.append(hit.key)
        found += given.advance(due_s)
        given.remove_idle(due_s)
        given.validate(due_s)
    return found


def told(given: NodePools) -> list[str]:
    return [f"{change.at_s - ZERO_S:g} {change.event.value} {change.node}" for change in given.log if change.pool]


def test_a_node_comes_after_the_delay_and_goes_after_its_last_pod() -> None:
    given = pools()
    given.take(A, ["p-1", "fixed"], ZERO_S)
    assert given.missing(A) == ("p-1",)
    assert given.ready_s(given.missing(A)) == ZERO_S + 100
    assert passed(given, 100) == [A]
    given.give_back(A, ZERO_S + 130)
    passed(given, 1000)
    assert told(given) == ["0 Ordered p-1", "100 Ready p-1", "180 Removed p-1"]
    assert given.node_seconds(ZERO_S + 1000) == {"p": 80}
    assert given.phase("fixed") is NodePhase.PRESENT


def test_whoever_comes_later_shares_the_order() -> None:
    given = pools()
    given.take(A, ["p-1"], ZERO_S)
    given.take(B, ["p-1"], ZERO_S + 40)
    assert passed(given, 100) == [A, B]
    given.give_back(A, ZERO_S + 110)
    passed(given, 300)
    assert given.phase("p-1") is NodePhase.PRESENT, "B still has pods on it"


def test_an_order_whose_workload_is_gone_comes_all_the_same() -> None:
    given = pools()
    given.take(A, ["p-1"], ZERO_S)
    given.give_back(A, ZERO_S + 10)
    passed(given, 1000)
    assert told(given) == ["0 Ordered p-1", "100 Ready p-1", "150 Removed p-1"]


def test_an_interruption_leaves_the_time_of_its_notice() -> None:
    given = pools(Interruption(at_s=200, notice_s=30, pool="p"))
    given.take(A, ["p-1"], ZERO_S)
    passed(given, 100)
    (hit,) = given.interrupt(ZERO_S + 200)
    assert (hit.key, hit.nodes) == (A, ("p-1",))
    assert given.phase("p-1") is NodePhase.LEAVING
    given.give_back(A, ZERO_S + 200)
    passed(given, 10_000)
    assert told(given)[2:] == ["200 Interrupted p-1", "230 Removed p-1"]
    assert given.node_seconds(ZERO_S + 10_000) == {"p": 130}


def test_nobody_is_told_twice_of_two_interruptions_at_once() -> None:
    both = (Interruption(at_s=200, notice_s=30, pool="p"), Interruption(at_s=200, notice_s=10, node="p-1"))
    given = pools(*both)
    given.take(A, ["p-1"], ZERO_S)
    passed(given, 100)
    assert [hit.key for hit in given.interrupt(ZERO_S + 200)] == [A]
    given.give_back(A, ZERO_S + 200)
    passed(given, 300)
    assert "210 Removed p-1" in told(given), "the shorter notice counts"


def test_of_two_interruptions_the_longer_one_keeps_the_pool_closed() -> None:
    long, short = (Interruption(at_s=at, notice_s=notice, pool="p") for at, notice in ((100, 300), (110, 0)))
    given = pools(long, short)
    passed(given, 899)
    assert given.phase("p-1") is NodePhase.CLOSED
    passed(given, 900)
    assert given.phase("p-1") is NodePhase.ABSENT, "100 + 300 + 500"


def test_an_interruption_in_the_notice_of_another_keeps_the_pool_closed_for_its_own_time_too() -> None:
    first, second = (Interruption(at_s=at, notice_s=notice, pool="p") for at, notice in ((300, 60), (330, 100)))
    given = pools(first, second)
    given.take(A, ["p-1"], ZERO_S)
    assert passed(given, 360) == [A, A]
    assert told(given)[-1] == "360 Removed p-1"
    passed(given, 929)
    assert given.phase("p-1") is NodePhase.CLOSED
    passed(given, 930)
    assert given.phase("p-1") is NodePhase.ABSENT, "330 + 100 + 500"


def test_a_node_that_is_not_there_is_not_interrupted_by_itself() -> None:
    given = pools(Interruption(at_s=100, notice_s=0, node="p-1"))
    passed(given, 200)
    given.take(A, ["p-1"], ZERO_S + 200)
    assert told(given) == ["200 Ordered p-1"]


def test_a_node_that_takes_no_pods_is_no_place() -> None:
    given = pools(Interruption(at_s=0, notice_s=30, pool="p"))
    given.interrupt(ZERO_S)
    with pytest.raises(AssertionError, match="p-1 takes no pods"):
        given.take(A, ["p-1"], ZERO_S)


def test_of_idle_nodes_the_one_that_has_been_idle_longest_goes_first() -> None:
    given = pools(most=3, min_nodes=1)
    given.take(A, ["p-2"], ZERO_S)
    given.take(B, ["p-3"], ZERO_S)
    passed(given, 100)
    assert given.phase("p-1") is NodePhase.ABSENT, "idle since the start, and not needed for the minimum"
    given.give_back(A, ZERO_S + 120)
    given.give_back(B, ZERO_S + 110)
    passed(given, 1000)
    assert (given.phase("p-2"), given.phase("p-3")) == (NodePhase.PRESENT, NodePhase.ABSENT)


def test_without_jobs_only_what_is_on_its_way_is_of_interest() -> None:
    given = pools(Interruption(at_s=5000, notice_s=30, pool="p"))
    assert given.due_s(jobs_left=True) == ZERO_S + 5000
    assert given.due_s(jobs_left=False) is None
    given.take(A, ["p-1"], ZERO_S)
    assert given.due_s(jobs_left=False) == ZERO_S + 100


KEYS = tuple(WorkloadKey(f"ns/{name}") for name in "abcd")
NAMES = ("p-1", "p-2", "p-3", "q-1", "q-2", "fixed")


class Histories(RuleBasedStateMachine):
    """Workloads come and go as they like; an independent reading of the log says when each node was there."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = ZERO_S
        interruptions = (
            Interruption(at_s=150, notice_s=40, pool="p"),
            Interruption(at_s=300, notice_s=0, node="q-1"),
            Interruption(at_s=310, notice_s=10, node="fixed"),
            Interruption(at_s=900, notice_s=100, pool="q"),
        )
        fleet = PoolFleet(
            pools=(
                Pool(name="p", nodes=NAMES[:3], min_nodes=1, delay_s=70, remove_after_s=30, cooldown_s=200),
                Pool(name="q", nodes=NAMES[3:5], delay_s=0, remove_after_s=0, cooldown_s=100),
            ),
            interruptions=interruptions,
        )
        self.pools = NodePools(fleet, ["fixed"], ZERO_S)
        self.held: dict[WorkloadKey, tuple[str, ...]] = {}

    @rule(key=st.sampled_from(KEYS), names=st.sets(st.sampled_from(NAMES), min_size=1))
    def takes(self, key: WorkloadKey, names: set[str]) -> None:
        given = [name for name in sorted(names) if self.pools.phase(name) not in (NodePhase.CLOSED, NodePhase.LEAVING)]
        if key in self.held or not given:
            return
        self.pools.take(key, given, self.now_s)
        self.held[key] = tuple(given)

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data())
    def gives_back(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.held)))
        self.pools.give_back(key, self.now_s)
        del self.held[key]

    @rule(seconds=st.sampled_from((0.0, 1.0, 30.0, 70.0, 250.0)))
    def time_passes(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while True:
            for hit in self.pools.interrupt(self.now_s):
                self.pools.give_back(hit.key, self.now_s)
                assert set(hit.nodes) <= set(self.held.pop(hit.key)), "the whole workload leaves"
            ready = self.pools.advance(self.now_s)
            assert all(not self.pools.missing(key) for key in ready)
            self.pools.remove_idle(self.now_s)
            due_s = self.pools.due_s(jobs_left=True)
            assert due_s is None or due_s > self.now_s, "nothing is due twice"
            if due_s is None or due_s > until_s:
                break
            self.now_s = due_s
        self.now_s = until_s

    @invariant()
    def what_is_kept_twice_agrees(self) -> None:
        self.pools.validate(self.now_s)

    @invariant()
    def nodes_with_pods_are_there_or_coming(self) -> None:
        for key, names in self.held.items():
            missing = self.pools.missing(key)
            assert all((self.pools.phase(name) is NodePhase.PRESENT) is (name not in missing) for name in names)

    @invariant()
    def node_hours_are_those_of_the_log(self) -> None:
        for pool, kept in self.pools.node_seconds(self.now_s).items():
            up: dict[str, float] = {}
            counted = 0.0
            for change in self.pools.log:
                if change.pool != pool:
                    continue
                if change.event is NodeEvent.READY:
                    assert change.node not in up, "nothing comes twice"
                    up[change.node] = change.at_s
                elif change.event is NodeEvent.REMOVED:
                    counted += change.at_s - up.pop(change.node)
            counted += sum(self.now_s - since_s for since_s in up.values())
            assert kept == pytest.approx(counted)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
