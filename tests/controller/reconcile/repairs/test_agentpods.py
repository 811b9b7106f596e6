"""Whether an agent runs on a node, by its pods alone."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.watching.kinds import reader
from controller.objects.core import AgentPod
from controller.reconcile.repairs.agentpods import AgentPods

OURS = "tessera-system"


def pod(node: str = "n1", *states: str, phase: str = "Running") -> AgentPod:
    statuses: list[Any] = [{"state": {state: {}}} for state in states or ("running",)]
    body: dict[str, Any] = {"spec": {"nodeName": node}, "status": {"phase": phase, "containerStatuses": statuses}}
    return reader(AgentPod)(msgspec.json.encode(body))


def test_a_node_misses_its_agent_from_when_its_last_pod_ends() -> None:
    pods = AgentPods(OURS)
    assert pods.set_pod(OURS, "a", pod(), 1.0) == {"n1"}
    assert pods.missing_since_s("n1", 2.0) is None
    assert pods.set_pod(OURS, "b", pod(), 3.0) == set(), "an upgrade that starts the new one first"
    assert pods.set_pod(OURS, "a", None, 4.0) == set()
    assert pods.set_pod(OURS, "b", pod("n1", "waiting"), 5.0) == {"n1"}
    assert pods.missing_since_s("n1", 9.0) == 5.0
    assert pods.set_pod(OURS, "b", pod(), 10.0) == {"n1"}
    assert pods.missing_since_s("n1", 11.0) is None


@pytest.mark.parametrize(
    "found", [pod("n1", "waiting"), pod("n1", "running", "terminated"), pod(phase="Failed"), pod(phase="Pending")]
)
def test_a_pod_whose_containers_do_not_all_run_is_no_agent(found: AgentPod) -> None:
    pods = AgentPods(OURS)
    pods.set_pod(OURS, "a", found, 1.0)
    assert pods.missing_since_s("n1", 2.0) == 2.0


def test_where_agents_are_no_pods_nothing_is_concluded() -> None:
    pods = AgentPods(OURS)
    assert pods.set_pod("elsewhere", "a", pod("n2"), 1.0) == set()
    assert pods.missing_since_s("n1", 2.0) is None
    pods.set_pod(OURS, "a", pod("n2"), 3.0)
    assert pods.missing_since_s("n1", 4.0) == 4.0
    assert pods.missing_since_s("n1", 9.0) == 4.0, "from when it was asked first"


def test_a_pod_of_another_namespace_stands_for_no_agent() -> None:
    pods = AgentPods(OURS)
    pods.set_pod(OURS, "a", pod(), 1.0)
    pods.set_pod(OURS, "a", None, 2.0)
    assert pods.set_pod("team", "a", pod(), 3.0) == set()
    assert pods.missing_since_s("n1", 4.0) == 2.0


NODES = st.sampled_from(["n1", "n2"])
STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.tuples(NODES, st.sampled_from(["running", "waiting"]))),
    max_size=30,
)


@given(STEPS)
def test_in_any_order_a_node_misses_its_agent_exactly_while_none_of_its_pods_runs(steps: list[Any]) -> None:
    pods, there = AgentPods(OURS), dict[str, tuple[str, str]]()
    for now_s, (name, found) in enumerate(steps):
        before = {node for node, state in there.values() if state == "running"}
        pods.set_pod(OURS, "z", pod("n9"), 0.0)
        changed = pods.set_pod(OURS, name, pod(*found) if found is not None else None, float(now_s))
        there.pop(name, None)
        if found is not None:
            there[name] = found
        runs = {node for node, state in there.values() if state == "running"}
        assert changed == runs ^ before
        for node in ("n1", "n2"):
            assert (pods.missing_since_s(node, float(now_s)) is None) == (node in runs)
        pods.validate()
