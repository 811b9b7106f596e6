"""Which workloads lost a node: the first is to be replaced, a second one evicts, and what runs on is left alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.core import Taint, Toleration
from controller.reconcile.failures.nodefailures import (
    FIXED_TIME_S,
    NodeFailures,
    NodeState,
    PlacedWorkload,
    PodOnHost,
    PodState,
    Verdict,
)
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import WorkloadKey

JOB = WorkloadKey("ns/job")
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class World:
    """Three ready nodes with one pod each of JOB, under some gates."""

    def __init__(self, **gates: bool) -> None:
        self.core = NodeFailures(FeatureGates(gates))
        for name in "abc":
            self.node(name)
            self.pod(name, PodState.RUNNING)
        self.placed()
        assert self.look() == []

    def node(self, name: str, *, ready: bool | None = True, since_s: float = 0.0, taints: Any = ()) -> None:
        self.core.set_node(name, NodeState(host=name, ready=ready, since_s=since_s, taints=tuple(taints)))

    def pod(self, host: str, state: PodState, name: str = "") -> None:
        self.core.set_pod(f"ns/{name or host}", PodOnHost(JOB, host, state))

    def placed(self, hosts: str = "abc", *unhealthy: str, tolerations: Any = ()) -> None:
        pods = dict.fromkeys(hosts, 1)
        said = dict.fromkeys(hosts, tuple(tolerations))
        self.core.set_workload(JOB, PlacedWorkload(pods=pods, unhealthy=unhealthy, tolerations=said))

    def look(self, now_s: float = 100.0) -> list[Verdict]:
        self.core.validate()
        found = self.core.verdicts(now_s)
        self.core.validate()
        return found


def lost(*hosts: str, **more: Any) -> list[Verdict]:
    return [Verdict(workload=JOB, unhealthy=hosts, **more)]


def test_a_node_that_is_gone_is_lost_at_once() -> None:
    world = World()
    world.core.remove_node("b")
    assert world.look() == lost("b")


def test_a_node_of_which_nobody_says_whether_it_is_ready_is_lost_at_once() -> None:
    world = World()
    world.node("b", ready=None)
    assert world.look() == lost("b")


def test_a_node_that_is_not_ready_is_lost_when_the_pods_there_are_going() -> None:
    world = World()
    world.node("b", ready=False)
    assert world.look() == []
    world.pod("b", PodState.TERMINATING)
    assert world.look() == lost("b")


def test_a_node_that_never_had_the_pods_is_lost_as_soon_as_it_is_not_ready() -> None:
    world = World()
    world.core.set_pod("ns/b", None)
    world.node("b", ready=False)
    assert world.look() == lost("b")


def test_pods_that_wait_for_a_lost_node_are_stuck() -> None:
    world = World()
    world.pod("b", PodState.WAITING)
    world.node("b", ready=False)
    assert world.look() == lost("b", stuck=("ns/b",))


def test_pods_that_wait_for_a_node_that_was_replaced_meanwhile_are_stuck_too() -> None:
    world = World()
    world.core.remove_node("b")
    world.placed("acd")
    world.node("d")
    world.pod("b", PodState.WAITING)
    assert world.look() == [Verdict(workload=JOB, unhealthy=(), stuck=("ns/b",))]


def test_what_has_succeeded_needs_no_other_node() -> None:
    world = World()
    world.pod("b", PodState.SUCCEEDED)
    world.core.remove_node("b")
    assert world.look() == []


def test_a_taint_that_the_pods_do_not_tolerate_counts_once_they_are_gone() -> None:
    world = World()
    world.node("b", taints=[CORDON])
    assert world.look() == []
    world.pod("b", PodState.TERMINATING)
    assert world.look() == lost("b")


def test_a_taint_that_they_tolerate_does_not_count() -> None:
    world = World()
    world.placed("abc", tolerations=[Toleration(key=CORDON.key, operator="Exists")])
    world.pod("b", PodState.TERMINATING)
    world.node("b", taints=[CORDON])
    assert world.look() == []


def test_a_second_lost_node_evicts() -> None:
    world = World()
    world.core.remove_node("b")
    assert world.look() == lost("b")
    world.placed("abc", "b")
    world.core.remove_node("a")
    assert world.look() == lost("b", "a", evict=True)


def test_two_nodes_lost_together_evict() -> None:
    world = World()
    world.core.remove_node("b")
    world.core.remove_node("a")
    assert world.look() == lost("a", "b", evict=True)


def test_a_node_that_comes_back_before_it_was_replaced_is_named_no_more() -> None:
    world = World()
    world.placed("abc", "b")
    assert world.look() == lost()


def test_once_it_is_replaced_nothing_is_left_to_say() -> None:
    world = World()
    world.core.remove_node("b")
    assert world.look() == lost("b")
    world.node("d")
    world.placed("acd")
    assert world.look() == []


def test_a_verdict_that_could_not_be_written_comes_again_when_asked_for() -> None:
    world = World()
    world.core.remove_node("b")
    assert world.look() == lost("b")
    assert world.look() == []
    world.core.touch(JOB)
    assert world.look() == lost("b")


def test_half_a_minute_is_enough_where_the_gate_says_so() -> None:
    world = World(TASReplaceNodeDueToNotReadyOverFixedTime=True, TASReplaceNodeOnPodTermination=False)
    world.node("b", ready=False, since_s=100.0)
    assert world.look(101.0) == []
    assert world.core.next_due_s() == 100.0 + FIXED_TIME_S
    assert world.look(100.0 + FIXED_TIME_S) == lost("b")


def test_a_node_that_was_ready_again_in_time_is_forgiven() -> None:
    world = World(TASReplaceNodeDueToNotReadyOverFixedTime=True, TASReplaceNodeOnPodTermination=False)
    world.node("b", ready=False, since_s=100.0)
    assert world.look(101.0) == []
    world.node("b")
    assert world.look(200.0) == []
    assert world.core.next_due_s() is None


def test_with_the_gate_of_replacement_off_things_are_left_as_they_are() -> None:
    world = World(TASFailedNodeReplacement=False)
    world.pod("b", PodState.TERMINATING)
    world.node("b", ready=False)
    assert world.look() == []


def test_without_the_gate_of_ending_pods_an_unready_node_is_lost_by_time_alone() -> None:
    world = World(TASReplaceNodeOnPodTermination=False)
    world.pod("b", PodState.TERMINATING)
    world.node("b", ready=False, since_s=100.0)
    assert world.look(101.0) == []
    world.pod("b", PodState.RUNNING)
    assert world.look(100.0 + FIXED_TIME_S) == lost("b")


def test_without_the_gate_of_ending_pods_a_taint_loses_the_node_at_once() -> None:
    world = World(TASReplaceNodeOnPodTermination=False)
    world.node("b", taints=[CORDON])
    assert world.look() == lost("b")


@pytest.mark.parametrize("by_pods", [True, False])
def test_a_taint_that_is_tolerated_for_a_time_loses_the_node_when_the_pods_go(by_pods: bool) -> None:
    world = World(TASReplaceNodeOnPodTermination=by_pods)
    leave = Taint(key="leave", effect="NoExecute")
    world.placed(tolerations=[Toleration(key="leave", operator="Exists", toleration_seconds=300)])
    world.node("b", taints=[leave])
    assert world.look() == []
    world.core.set_pod("ns/b", None)
    assert world.look() == [], "pods may still come to it"
    world.pod("b", PodState.TERMINATING)
    assert world.look() == lost("b")


def stray(state: PodState, pod_set: str = "main", *, placed: bool = True) -> PodOnHost:
    return PodOnHost(JOB, "d", state, pod_set, placed)


@pytest.mark.parametrize(
    "placed", [PlacedWorkload(pods={}), PlacedWorkload(pods={"a": 1}, pod_sets=frozenset({"main"}))]
)
def test_a_pod_that_waits_for_a_host_its_workload_does_not_have_waits_in_vain(placed: PlacedWorkload) -> None:
    world = World()
    world.node("d")
    world.core.set_workload(JOB, placed)
    world.core.set_pod("ns/stray", stray(PodState.WAITING))
    assert world.look() == lost(stuck=("ns/stray",))
    world.core.set_pod("ns/stray", stray(PodState.RUNNING))
    assert world.look() == []


@pytest.mark.parametrize("pod", [stray(PodState.WAITING, "other"), stray(PodState.WAITING, placed=False)])
def test_a_pod_whose_host_was_chosen_otherwise_waits_on(pod: PodOnHost) -> None:
    world = World()
    world.node("d")
    world.core.set_workload(JOB, PlacedWorkload(pods={"a": 1}, pod_sets=frozenset({"main"})))
    world.core.set_pod("ns/other", pod)
    assert world.look() == []


def test_a_workload_that_is_over_is_not_judged() -> None:
    world = World()
    world.core.set_workload(JOB, None)
    world.core.remove_node("b")
    assert world.look() == []


_KEYS = [WorkloadKey(f"ns/{name}") for name in "xyz"]
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from("abc"), st.sampled_from([True, False, None]), st.booleans()),
        st.tuples(st.just("gone"), st.sampled_from("abc")),
        st.tuples(
            st.just("placed"), st.sampled_from(_KEYS), st.sets(st.sampled_from("abc")), st.sampled_from(["", "a", "d"])
        ),
        st.tuples(st.just("over"), st.sampled_from(_KEYS)),
        st.tuples(
            st.just("pod"),
            st.integers(0, 4),
            st.sampled_from(_KEYS),
            st.sampled_from("abc"),
            st.sampled_from([None, *PodState]),
        ),
    ),
    max_size=30,
)


@given(steps=_STEPS)
def test_whatever_is_to_be_said_at_the_end_was_said_on_the_way(steps: Any) -> None:
    """A change has those judged again whom it concerns: looking after each step misses nothing."""
    core, anew, told = NodeFailures(FeatureGates()), NodeFailures(FeatureGates()), dict[WorkloadKey, Verdict]()
    for step in steps:
        _apply(core, step)
        _apply(anew, step)
        core.validate()
        told |= {verdict.workload: verdict for verdict in core.verdicts(1000.0)}
    for verdict in anew.verdicts(1000.0):
        assert told.get(verdict.workload) == verdict


def _apply(core: NodeFailures, step: Any) -> None:
    match step:
        case ("node", name, ready, cordoned):
            core.set_node(name, NodeState(host=name, ready=ready, taints=(CORDON,) if cordoned else ()))
        case ("gone", name):
            core.remove_node(name)
        case ("placed", key, hosts, unhealthy):
            core.set_workload(key, PlacedWorkload(pods=dict.fromkeys(hosts, 1), unhealthy=tuple(unhealthy)))
        case ("over", key):
            core.set_workload(key, None)
        case ("pod", number, key, host, state):
            core.set_pod(f"ns/{number}", None if state is None else PodOnHost(key, host, state))
