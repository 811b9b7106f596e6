"""Which pods take room on a node beside those that were placed: all that run there, whoever sent them."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.core import Pod
from controller.objects.decode import decode
from controller.scheduler.model.resources import FlavorName
from controller.scheduler.topology.nodes import PODS
from tests.support.engine.topologylab import BLOCK, GPU, HOST, RACK, Lab, ask, node

QUEUED: dict[str, Any] = {
    "labels": {"kueue.x-k8s.io/podset": "main"},
    "annotations": {"kueue.x-k8s.io/workload": "w"},
}


def pod(name: str, host: str, gpus: int, phase: str = "Running", *, sent: Any = None, **metadata: Any) -> Pod:
    containers = [{"name": "c", "resources": {"requests": {GPU: str(gpus)}}}]
    spec = {"nodeName": host, "nodeSelector": sent or {}, "containers": containers}
    return decode(
        {"metadata": {"name": name, "namespace": "x", **metadata}, "spec": spec, "status": {"phase": phase}}, Pod
    )


def free(lab: Lab, host: str) -> int:
    """The most that one pod can have there."""
    return max((gpus for gpus in range(1, 9) if lab.main(ask(1, gpus, required=HOST)) == {host: 1}), default=0)


def test_a_pod_that_is_told_to_go_takes_room_until_it_has_gone() -> None:
    lab = Lab({"b/r/a": 4})
    lab.topologies.set_pod(pod("p", "a", 3))
    lab.topologies.set_pod(pod("p", "a", 3, deletionTimestamp="2025-01-01T00:00:00Z"))
    assert free(lab, "a") == 1
    lab.topologies.remove_pod("x/p")
    assert free(lab, "a") == 4


def test_a_pod_of_the_same_name_on_another_node_leaves_the_first_one() -> None:
    lab = Lab({"b/r/a": 4, "b/r/b": 2})
    lab.topologies.set_pod(pod("p", "b", 1))
    lab.topologies.set_pod(pod("p", "a", 3))
    assert (lab.main(ask(2, required=HOST)), lab.main(ask(3, required=HOST))) == ({"b": 2}, None)


def test_a_pod_that_was_told_before_its_node_counts_and_one_without_a_node_does_not() -> None:
    lab = Lab({})
    lab.topologies.set_pod(pod("early", "a", 3))
    lab.topologies.set_pod(pod("waits", "", 1, "Pending"))
    lab.topologies.set_node(node("b/r/a", 4))
    assert free(lab, "a") == 1


def test_a_queues_pod_that_quota_alone_let_in_takes_room_and_a_placed_one_is_counted_by_its_assignment() -> None:
    lab = Lab({"b/r/a": 4})
    lab.topologies.set_pod(pod("unplaced", "a", 3, sent={"pool": "gpu"}, **QUEUED))
    assert free(lab, "a") == 1
    lab.topologies.set_pod(pod("unplaced", "a", 3, sent={"pool": "gpu", HOST: "a"}, **QUEUED))
    assert free(lab, "a") == 4


def test_a_queues_pod_that_was_sent_to_a_rack_was_placed_where_a_topology_ends_at_racks() -> None:
    lab = Lab({"b/r/a": 4})
    lab.topologies.set_pod(pod("p", "a", 3, sent={BLOCK: "b", RACK: "r"}, **QUEUED))
    assert free(lab, "a") == 1, "somebody else's selector"
    lab.topology(BLOCK, RACK, name="racks")
    assert free(lab, "a") == 4
    lab.topologies.remove_topology("racks")
    assert free(lab, "a") == 1
    lab.topologies.remove_pod("x/p")
    lab.topology(BLOCK, RACK, name="racks")
    lab.topologies.remove_topology("racks")
    assert free(lab, "a") == 4


OPS = st.lists(
    st.tuples(
        st.sampled_from(["run", "run", "end", "gone", "node", "drop"]),
        st.sampled_from("pqr"),
        st.sampled_from(["a", "b", ""]),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(OPS)
def test_what_a_node_offers_is_what_it_has_less_the_foreign_pods_that_are_there(
    ops: list[tuple[str, str, str, int, bool]],
) -> None:
    lab = Lab({"b/r/a": 8, "b/r/b": 8})
    nodes, pods = {"a": 8, "b": 8}, dict[str, tuple[str, int]]()
    tree = lab.topologies.tree(FlavorName("f"))
    assert tree is not None
    for what, name, host, amount, placed in ops:
        match what:
            case "run" | "end":
                more: dict[str, Any] = {"sent": {HOST: host}, **QUEUED} if placed else {}
                phase = "Running" if what == "run" else "Succeeded"
                lab.topologies.set_pod(pod(name, host, amount, phase, **more))
                pods.pop(name, None)
                if host and what == "run" and not placed:
                    pods[name] = host, amount
            case "gone":
                lab.topologies.remove_pod(f"x/{name}")
                pods.pop(name, None)
            case "node" if host:
                nodes[host] = 8 + amount
                lab.topologies.set_node(node(f"b/r/{host}", nodes[host]))
            case "drop" if host:
                nodes.pop(host, None)
                lab.topologies.remove_node(host)
        lab.topologies.validate_trees()
        for one, gpus in nodes.items():
            leaf = tree.leaf((one,))
            assert leaf is not None
            there = [taken for where, taken in pods.values() if where == one]
            assert (tree.free[leaf][GPU], tree.free[leaf][PODS]) == (gpus - sum(there), 110 - len(there))
