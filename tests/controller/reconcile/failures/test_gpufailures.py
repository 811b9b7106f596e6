"""What becomes of pods whose GPU failed: their policy, a budget for everybody, a cool-down for each workload."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.config.settings import GpuFailureRules, OnGpuFailure
from controller.reconcile.failures.gpufailures import (
    REFUSED_AGAIN_S,
    REFUSED_S,
    TOGETHER_S,
    GpuFailureAction,
    GpuFailures,
    RecentActions,
    Victim,
)
from controller.scheduler.model.resources import WorkloadKey

JOB = WorkloadKey("ns/job")


class World:
    def __init__(self, **rules: Any) -> None:
        self.core = GpuFailures(GpuFailureRules(**rules))
        self.now_s = 1000.0
        self.failed: dict[str, dict[str, str]] = {}
        self.held: dict[str, list[tuple[str, str]]] = {}

    def fail(self, *devices: str, node: str = "n") -> None:
        self.failed.setdefault(node, {}).update(dict.fromkeys(devices, "Xid79"))
        self.tell(node)

    def hold(self, pod: str, *devices: str, node: str = "n") -> None:
        self.held.setdefault(node, []).extend((device, pod) for device in devices)
        self.tell(node)

    def tell(self, node: str = "n") -> None:
        self.core.set_node(node, self.failed.get(node, {}), self.held.get(node, []))
        self.core.validate()

    def pod(self, name: str, policy: OnGpuFailure, workload: WorkloadKey | None = JOB, uid: str = "") -> None:
        self.core.set_pod(name, Victim(uid=uid or f"uid-{name}", policy=policy, workload=workload))

    def look(self, after_s: float = 0.0) -> list[GpuFailureAction]:
        self.now_s += after_s
        found = self.core.due_actions(self.now_s)
        self.core.validate()
        return found


def done(actions: list[GpuFailureAction]) -> list[tuple[str, str]]:
    return [(str(one.kind), one.pod) for one in actions if not one.held_back]


def test_only_pods_that_hold_a_failed_device_are_asked_about() -> None:
    world = World()
    world.hold("ns/a", "g0")
    world.hold("ns/b", "g1")
    assert world.core.unknown() == []
    world.fail("g1")
    assert world.core.unknown() == ["ns/b"]


def test_people_are_told_once() -> None:
    world = World()
    world.hold("ns/a", "g0")
    world.fail("g0")
    world.pod("ns/a", OnGpuFailure.NOTIFY)
    (told,) = world.look()
    assert (told.kind, told.pod, told.node, told.device, told.cause) == (
        OnGpuFailure.NOTIFY,
        "ns/a",
        "n",
        "g0",
        "Xid79",
    )
    world.tell()
    assert world.look(1000.0) == []


def test_a_pod_is_evicted_once_though_all_its_gpus_fail() -> None:
    world = World()
    world.hold("ns/a", "g0", "g1")
    world.fail("g0", "g1")
    world.pod("ns/a", OnGpuFailure.EVICT)
    assert done(world.look()) == [("evict", "ns/a")]


def test_a_gang_goes_back_once_though_several_of_its_pods_are_hit() -> None:
    world = World()
    for node in ("n", "m"):
        world.hold(f"ns/{node}", "g0", node=node)
        world.fail("g0", node=node)
        world.pod(f"ns/{node}", OnGpuFailure.REQUEUE_GANG)
    assert done(world.look()) == [("requeue-gang", "ns/m")]


def test_a_pod_that_was_hit_and_is_gone_is_left_alone() -> None:
    world = World()
    world.hold("ns/a", "g0")
    world.fail("g0")
    world.core.set_pod("ns/a", None)
    assert world.look() == []


def test_a_gpu_that_is_well_again_before_anything_was_done_closes_the_case() -> None:
    world = World(budget=0)
    world.hold("ns/a", "g0")
    world.fail("g0")
    world.pod("ns/a", OnGpuFailure.EVICT)
    (told,) = world.look()
    assert told.held_back
    world.failed.clear()
    world.tell()
    assert world.look(10_000.0) == []


def test_no_more_than_the_budget_is_done_in_its_window_and_the_rest_later() -> None:
    world = World(budget=2, window_s=60.0)
    for number in range(4):
        world.hold(f"ns/p{number}", f"g{number}")
        world.fail(f"g{number}")
        world.pod(f"ns/p{number}", OnGpuFailure.EVICT, WorkloadKey(f"ns/w{number}"))
    first = world.look()
    assert done(first) == [("evict", "ns/p0"), ("evict", "ns/p1")]
    assert [one.pod for one in first if "budget of 2" in one.held_back] == ["ns/p2", "ns/p3"]
    assert world.core.next_due_s() == world.now_s + 60.0
    assert world.look(30.0) == [], "told once"
    assert done(world.look(30.0)) == [("evict", "ns/p2"), ("evict", "ns/p3")]


def test_a_workload_pays_for_one_failure_in_its_cool_down() -> None:
    world = World(cool_down_s=300.0)
    world.hold("ns/a", "g0")
    world.hold("ns/b", "g1")
    world.pod("ns/a", OnGpuFailure.REQUEUE_GANG)
    world.fail("g0")
    world.pod("ns/a", OnGpuFailure.REQUEUE_GANG)
    assert done(world.look()) == [("requeue-gang", "ns/a")]
    world.fail("g1")
    world.pod("ns/b", OnGpuFailure.REQUEUE_GANG)
    (held,) = world.look(60.0)
    assert "less than 5m ago" in held.held_back
    assert done(world.look(241.0)) == [("requeue-gang", "ns/b")]


def test_what_fails_together_is_one_failure() -> None:
    world = World(cool_down_s=300.0)
    for number in range(2):
        world.hold(f"ns/p{number}", f"g{number}")
    world.fail("g0")
    world.pod("ns/p0", OnGpuFailure.EVICT)
    assert done(world.look()) == [("evict", "ns/p0")]
    world.fail("g1")
    world.pod("ns/p1", OnGpuFailure.EVICT)
    assert done(world.look(TOGETHER_S)) == [("evict", "ns/p1")]


def test_another_pod_of_the_same_name_is_another_pod() -> None:
    world = World(cool_down_s=0.0)
    world.hold("ns/a", "g0")
    world.fail("g0")
    world.pod("ns/a", OnGpuFailure.EVICT)
    assert done(world.look()) == [("evict", "ns/a")]
    world.pod("ns/a", OnGpuFailure.EVICT, uid="another")
    assert done(world.look(100.0)) == [("evict", "ns/a")]


def test_an_action_that_failed_is_done_again_and_did_not_count() -> None:
    world = World(budget=1)
    world.hold("ns/a", "g0")
    world.fail("g0")
    world.pod("ns/a", OnGpuFailure.EVICT)
    (action,) = world.look()
    world.core.failed(action)
    assert done(world.look()) == [("evict", "ns/a")]
    assert world.look(1.0) == []


def test_whoever_takes_over_goes_on_with_the_budget_and_the_cool_downs_as_they_are() -> None:
    world = World(budget=2, window_s=60.0, cool_down_s=300.0)
    world.hold("ns/a", "g0")
    world.fail("g0")
    world.pod("ns/a", OnGpuFailure.EVICT)
    assert done(world.look()) == [("evict", "ns/a")]
    next_ = World(budget=2, window_s=60.0, cool_down_s=300.0)
    next_.core.recall(world.core.recent(), next_.now_s)
    for name, workload in (("ns/a2", JOB), ("ns/b", WorkloadKey("ns/other")), ("ns/c", WorkloadKey("ns/third"))):
        next_.hold(name, f"g-{name}")
        next_.fail(f"g-{name}")
        next_.pod(name, OnGpuFailure.EVICT, workload)
    found = next_.look(TOGETHER_S + 1)
    assert done(found) == [("evict", "ns/b")]
    assert {one.pod: one.held_back for one in found if one.held_back} == {
        "ns/a2": "another failure of the workload was acted on less than 5m ago",
        "ns/c": "the budget of 2 in 1m is spent",
    }
    assert done(next_.look(60.0 - TOGETHER_S - 1)) == [("evict", "ns/c")], "the first has left the window"


def test_a_clock_that_was_ahead_holds_nobody_back_for_longer_than_the_limits() -> None:
    world = World(budget=1, window_s=60.0)
    world.core.recall(RecentActions(actions=(1e12, 2e12), paid={"workload ns/job": 1e12}), world.now_s)
    world.core.validate()
    assert world.core.recent() == RecentActions(actions=(1000.0,), paid={"workload ns/job": 1000.0})


def test_a_pod_of_no_workload_is_its_own_gang() -> None:
    world = World()
    for number in range(2):
        world.hold(f"ns/p{number}", f"g{number}")
        world.fail(f"g{number}")
        world.pod(f"ns/p{number}", OnGpuFailure.REQUEUE_GANG, None)
    assert done(world.look()) == [("requeue-gang", "ns/p0"), ("requeue-gang", "ns/p1")]


_NAMES = st.sampled_from(["ns/a", "ns/b", "ns/c"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("node"),
            st.sampled_from("nm"),
            st.sets(st.sampled_from(["g0", "g1", "g2"])),
            st.lists(st.tuples(st.sampled_from(["g0", "g1", "g2"]), _NAMES), max_size=4),
        ),
        st.tuples(st.just("pod"), _NAMES, st.sampled_from([*OnGpuFailure]), st.sampled_from([None, "ns/v", "ns/w"])),
        st.tuples(st.just("gone"), _NAMES),
        st.tuples(st.just("take over")),
        st.tuples(st.just("look"), st.sampled_from([0.0, 1.0, 20.0, 70.0])),
    ),
    max_size=40,
)


@given(steps=_STEPS, budget=st.integers(0, 3))
def test_whatever_fails_the_budget_and_the_cool_down_hold(steps: Any, budget: int) -> None:
    rules = GpuFailureRules(budget=budget, window_s=60.0, cool_down_s=50.0)
    core, now_s = GpuFailures(rules), 0.0
    acted: list[tuple[float, str]] = []
    told: dict[str, Any] = {}
    for step in steps:
        match step:
            case ("node", node, failed, holders):
                told[node] = dict.fromkeys(failed, "why"), holders
                core.set_node(node, *told[node])
            case ("take over",):
                kept, core = msgspec.json.encode(core.recent()), GpuFailures(rules)
                for node, known in told.items():
                    core.set_node(node, *known)
                core.recall(msgspec.json.decode(kept, type=RecentActions), now_s)
            case ("pod", name, policy, workload):
                core.set_pod(name, Victim(uid=name, policy=policy, workload=workload and WorkloadKey(workload)))
            case ("gone", name):
                core.set_pod(name, None)
            case ("look", seconds):
                now_s += seconds
                for action in core.due_actions(now_s):
                    if action.held_back or action.kind is OnGpuFailure.NOTIFY:
                        continue
                    acted.append((now_s, str(action.victim.workload or action.pod)))
        core.validate()
    for at_s, gang in acted:
        assert sum(at_s - 60.0 < other_s <= at_s for other_s, _ in acted) <= budget
        began_s = next(first_s for first_s, one in acted if one == gang and at_s - 50.0 < first_s <= at_s)
        assert at_s - began_s <= TOGETHER_S or any(
            one == gang and first_s <= at_s and first_s - began_s >= 50.0 for first_s, one in acted
        )


def test_a_refused_eviction_is_due_again_counts_for_nothing_and_is_told_after_its_time() -> None:
    world = World(budget=1, cool_down_s=3600.0)
    world.hold("ns/a", "g0")
    world.fail("g0")
    world.pod("ns/a", OnGpuFailure.EVICT)
    (action,) = world.look()
    assert not world.core.refused(action, world.now_s)
    assert world.look(REFUSED_AGAIN_S - 1.0) == []
    assert world.core.next_due_s() == world.now_s + 1.0
    assert done(world.look(1.0)) == [("evict", "ns/a")], "neither budget nor cool-down holds it back"
    told = [
        world.core.refused(action, world.now_s + REFUSED_S),
        world.core.refused(action, world.now_s + 2 * REFUSED_S),
    ]
    assert told == [True, False]
    world.pod("ns/a", OnGpuFailure.EVICT, uid="another")
    assert done(world.look()) == [("evict", "ns/a")], "another pod of that name was refused nothing"
    world.failed = {}
    world.tell()
