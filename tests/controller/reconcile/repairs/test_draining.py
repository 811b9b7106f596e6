"""Pods leave a GPU that is drained: by policy, after a time, each gang as a whole and once."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.config.settings import OnGpuFailure
from controller.reconcile.failures.gpufailures import Victim
from controller.reconcile.repairs.draining import (
    AGAIN_S,
    REFUSED_S,
    Drain,
    DrainAction,
    Draining,
    DrainKind,
    DrainReason,
)
from controller.scheduler.model.resources import WorkloadKey

JOB = WorkloadKey("ns/job")
NOTIFY, EVICT, REQUEUE = OnGpuFailure
WAIT_S = 3600.0


class World:
    """Nodes whose devices are drained; ``now_s`` is when the first drain began."""

    def __init__(self) -> None:
        self.core = Draining()
        self.now_s = 1000.0
        self.drains: dict[str, dict[str, Drain]] = {}
        self.held: dict[str, list[tuple[str, str]]] = {}

    def drain(self, *devices: str, node: str = "n", wait_s: float = WAIT_S, **more: Any) -> None:
        for device in devices:
            self.drains.setdefault(node, {})[device] = Drain(
                devices=frozenset({device}),
                reason=DrainReason.REPAIR,
                cause=f"GPU {device} is drained",
                until_s=self.now_s + wait_s,
                **more,
            )
        self.tell(node)

    def stop(self, node: str = "n") -> None:
        self.drains.pop(node, None)
        self.tell(node)

    def hold(self, pod: str, *devices: str, node: str = "n") -> None:
        self.held.setdefault(node, []).extend((device, pod) for device in devices)
        self.tell(node)

    def leave(self, pod: str) -> None:
        for node, held in self.held.items():
            self.held[node] = [each for each in held if each[1] != pod]
            self.tell(node)

    def tell(self, node: str) -> None:
        self.core.set_node(node, list(self.drains.get(node, {}).values()), self.held.get(node, []))
        self.core.validate()

    def pod(self, name: str, policy: OnGpuFailure, workload: WorkloadKey | None = JOB, uid: str = "") -> None:
        self.core.set_pod(name, Victim(uid=uid or f"uid-{name}", policy=policy, workload=workload))
        self.core.validate()

    def look(self, after_s: float = 0.0) -> list[tuple[str, tuple[str, ...]]]:
        return [(action.kind.value, tuple(pod for pod, _ in action.pods)) for action in self.actions(after_s)]

    def actions(self, after_s: float = 0.0) -> list[DrainAction]:
        self.now_s += after_s
        found = self.core.due_actions(self.now_s)
        self.core.validate()
        return found


def held(policy: OnGpuFailure, workload: WorkloadKey | None = JOB, **drain: Any) -> World:
    """One pod that holds the device that is drained."""
    world = World()
    world.hold("ns/a", "g0")
    world.drain("g0", **drain)
    world.pod("ns/a", policy, workload)
    return world


def test_only_pods_that_hold_something_that_is_drained_are_asked_about() -> None:
    world = World()
    world.hold("ns/a", "g0")
    world.hold("ns/b", "g1")
    assert world.core.unknown() == []
    world.drain("g1")
    assert world.core.unknown() == ["ns/b"]


def test_a_pod_that_its_policy_leaves_alone_is_told_once_until_when_it_may_stay() -> None:
    world = held(NOTIFY)
    (told,) = world.actions()
    assert (told.kind, told.pods, told.until_s) == (DrainKind.TELL, (("ns/a", "uid-ns/a"),), 1000.0 + WAIT_S)
    assert world.look(WAIT_S - 1.0) == []
    assert world.core.next_due_s() == 1000.0 + WAIT_S


def test_then_its_gang_is_requeued_as_a_whole_and_once() -> None:
    world = held(NOTIFY)
    world.hold("ns/b", "g1")
    world.drain("g1")
    world.pod("ns/b", NOTIFY)
    assert world.look() == [("tell", ("ns/a", "ns/b"))]
    assert world.look(WAIT_S) == [("requeue-gang", ("ns/a", "ns/b"))]
    assert world.look(1.0) == []


def test_a_bare_pod_is_evicted_then() -> None:
    world = held(NOTIFY, None)
    assert world.look() == [("tell", ("ns/a",))]
    assert world.look(WAIT_S) == [("evict", ("ns/a",))]


def test_without_a_time_to_wait_everybody_leaves_at_once() -> None:
    assert held(NOTIFY, wait_s=0.0).look() == [("requeue-gang", ("ns/a",))]


@pytest.mark.parametrize(
    ("policy", "workload", "kind"),
    [(EVICT, JOB, "evict"), (EVICT, None, "evict"), (REQUEUE, JOB, "requeue-gang"), (REQUEUE, None, "evict")],
)
def test_a_pod_whose_policy_lets_it_go_does_not_stay(
    policy: OnGpuFailure, workload: WorkloadKey | None, kind: str
) -> None:
    assert held(policy, workload).look() == [(kind, ("ns/a",))]


@pytest.mark.parametrize("policy", [EVICT, REQUEUE])
def test_what_is_done_about_a_failed_gpu_elsewhere_is_not_done_twice_before_the_time_is_over(
    policy: OnGpuFailure,
) -> None:
    world = held(policy, failed=True)
    assert world.look() == []
    assert world.look(WAIT_S) == [("requeue-gang", ("ns/a",))]


@pytest.mark.parametrize("policy", [*OnGpuFailure])
def test_a_pod_on_a_well_gpu_may_finish_whatever_its_policy_before_its_node_is_rebooted(policy: OnGpuFailure) -> None:
    world = held(policy, waits=True)
    assert world.look() == [("tell", ("ns/a",))]
    assert world.look(WAIT_S - 1.0) == []
    assert world.look(1.0) == [("requeue-gang", ("ns/a",))]


def test_a_gang_on_the_failed_gpu_and_on_well_ones_goes_by_what_is_done_about_the_failure() -> None:
    world = held(REQUEUE, failed=True, waits=True)
    world.hold("ns/b", "g1")
    world.drain("g1", waits=True)
    world.pod("ns/b", REQUEUE)
    assert world.look() == [("tell", ("ns/b",))]
    assert world.look(WAIT_S) == [("requeue-gang", ("ns/a", "ns/b"))]


def test_the_earliest_time_counts_for_a_gang_on_several_nodes() -> None:
    world = held(NOTIFY)
    world.hold("ns/b", "g0", node="m")
    world.drain("g0", node="m", wait_s=60.0)
    world.pod("ns/b", NOTIFY)
    assert world.look() == [("tell", ("ns/b", "ns/a"))]
    assert world.look(60.0) == [("requeue-gang", ("ns/b", "ns/a"))]


def test_one_pod_that_wants_its_gang_requeued_decides_for_it() -> None:
    world = held(NOTIFY)
    world.hold("ns/b", "g1")
    world.drain("g1")
    world.pod("ns/b", REQUEUE)
    assert world.look() == [("requeue-gang", ("ns/a", "ns/b"))]


def test_gangs_are_decided_on_apart() -> None:
    world = held(REQUEUE)
    world.hold("ns/b", "g0")
    world.pod("ns/b", NOTIFY, WorkloadKey("ns/other"))
    assert world.look() == [("requeue-gang", ("ns/a",)), ("tell", ("ns/b",))]


def test_a_pod_that_is_gone_or_leaves_already_is_left_alone() -> None:
    world = held(REQUEUE)
    world.core.set_pod("ns/a", None)
    assert world.look() == []


def test_what_is_not_drained_any_more_ends_the_wait() -> None:
    world = held(NOTIFY)
    world.look()
    world.stop()
    assert world.look(2 * WAIT_S) == []
    assert world.core.next_due_s() is None


def test_a_drain_holds_no_longer_than_its_grant() -> None:
    world = held(NOTIFY, wait_s=600.0, ends_s=1600.0)
    world.look()
    assert world.look(600.0) == [], "the grant is over"
    world.drains["n"]["g0"] = Drain(
        devices=frozenset({"g0"}), reason=DrainReason.REPAIR, cause="", until_s=1600.0, ends_s=2200.0
    )
    world.tell("n")
    assert world.look() == [("requeue-gang", ("ns/a",))], "it was granted anew"


def test_an_action_is_taken_once_more_where_the_pod_stays_for_long() -> None:
    world = held(EVICT)
    assert world.look() == [("evict", ("ns/a",))]
    assert world.core.next_due_s() == 1000.0 + AGAIN_S
    assert world.look(AGAIN_S) == [("evict", ("ns/a",))]


def test_an_action_that_failed_is_due_again_when_the_pod_was_read_anew() -> None:
    world = held(EVICT)
    (action,) = world.actions()
    world.core.failed(action)
    assert world.core.unknown() == ["ns/a"]
    assert world.look() == []
    world.pod("ns/a", EVICT)
    assert world.look() == [("evict", ("ns/a",))]


def test_an_eviction_that_a_budget_refuses_is_asked_for_on_and_told_once_after_a_while() -> None:
    world = held(EVICT)
    said = []
    for _ in range(6):
        (action,) = world.actions(REFUSED_S / 4)
        said.append(world.core.refused(action, world.now_s))
    assert said == [False, False, False, False, True, False]


def test_another_pod_of_the_name_is_another_pod() -> None:
    world = held(EVICT)
    world.look()
    world.pod("ns/a", EVICT, uid="new")
    assert [action.pods for action in world.actions()] == [(("ns/a", "new"),)]


# -- any order of events -----------------------------------------------------------------------------------------------

PODS = ("ns/a", "ns/b", "ns/c")
DEVICES = ("g0", "g1")
STEPS = st.one_of(
    st.tuples(
        st.just("drain"),
        st.sampled_from(DEVICES),
        st.sampled_from(["n", "m"]),
        st.sampled_from([0.0, 60.0, 3600.0]),
        st.booleans(),
    ),
    st.tuples(st.just("stop"), st.sampled_from(["n", "m"])),
    st.tuples(st.just("hold"), st.sampled_from(PODS), st.sampled_from(DEVICES), st.sampled_from(["n", "m"])),
    st.tuples(st.just("leave"), st.sampled_from(PODS)),
    st.tuples(st.just("pod"), st.sampled_from(PODS), st.sampled_from([*OnGpuFailure]), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 60.0, 3600.0])),
)


def carry_out(world: World, step: tuple[Any, ...]) -> None:
    match step:
        case ("drain", device, node, wait_s, waits):
            world.drain(device, node=node, wait_s=wait_s, waits=waits)
        case ("stop", node):
            world.stop(node)
        case ("hold", pod, device, node):
            world.hold(pod, device, node=node)
        case ("leave", pod):
            world.leave(pod)
        case ("pod", pod, policy, bare):
            world.pod(pod, policy, None if bare else JOB)
        case ("wait", seconds):
            world.now_s += seconds


@given(st.lists(STEPS, max_size=30))
def test_nobody_leaves_who_holds_nothing_drained_or_may_still_stay(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    for step in steps:
        carry_out(world, step)
        drained = {node: set(found) for node, found in world.drains.items()}
        holds = {pod: node for node, pairs in world.held.items() for d, pod in pairs if d in drained.get(node, ())}
        gangs: list[str] = []
        for action in world.actions():
            assert all(pod in holds for pod, _ in action.pods)
            if action.kind is DrainKind.REQUEUE:
                gangs.append(action.gang)
            policies = {world.core._pods[pod].policy for pod, _ in action.pods}  # type: ignore[union-attr]
            if action.kind is not DrainKind.TELL and (policies == {NOTIFY} or action.drain.waits):
                assert world.now_s >= action.until_s, "it may still stay"
        assert len(set(gangs)) == len(gangs), "a gang is requeued once"
        assert world.look() == [], "each action is taken once"


@given(st.lists(STEPS, max_size=20))
def test_in_the_end_everybody_leaves_what_is_drained(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    for step in steps:
        carry_out(world, step)
    world.now_s += 4000.0
    for _ in range(8):
        for pod in world.core.unknown():
            world.pod(pod, NOTIFY)
        for action in world.actions(AGAIN_S):
            if action.kind is not DrainKind.TELL:
                for pod, _ in action.pods:
                    world.leave(pod)
    assert world.core._all_pods() == set()


def lost_holders(core: Draining) -> None:
    core._holders.clear()


def stranger(core: Draining) -> None:
    core._holders["n"]["g9"] = ("ns/z",)


def forgotten(core: Draining) -> None:
    core._pods["ns/z"] = None


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lost_holders, "holders of nodes that are not drained"),
        (stranger, "holders of devices that are not drained"),
        (forgotten, "a pod is remembered that holds nothing"),
    ],
)
def test_drains_that_drift_are_seen(plant: Callable[[Draining], None], said: str) -> None:
    world = held(NOTIFY)
    plant(world.core)
    with pytest.raises(AssertionError, match=said):
        world.core.validate()
