"""Whatever changes on nodes wakes whom it could help.

Nodes are cordoned, tainted, moved, made larger or smaller, lost and found again, pods outside queues come and go, and
topologies and flavors change; at rest nobody waits whom an engine that starts anew would start.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controller.objects.core import Node, Pod
from controller.objects.decode import KUEUE, decode_object
from controller.objects.meta import KubernetesObject, to_json
from controller.scheduler.model.config import EngineConfig, Extensions, FairSharing, VictimOrder
from tests.support.engine.contention import (
    ASKS,
    HOST,
    PREEMPTING,
    RACK,
    Act,
    Arrival,
    Leaving,
    begins_anew,
    on_nodes,
)
from tests.support.engine.world import World, cluster_queue, flavor, local_queue

QUEUES = ("a", "b")
BASE = on_nodes(racks=2, nodes=3)
NODES = [one for one in BASE if isinstance(one, Node)]
TAINT = {"key": "reserved", "value": "yes", "effect": "NoSchedule"}
NOT_READY = {"conditions": [{"type": "Ready", "status": "False"}]}
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"spec": {"unschedulable": True}},
    {"spec": {"taints": [TAINT]}},
    {"status": {"allocatable": {"gpu": "0", "pods": "20"}}},
    {"status": {"allocatable": {"gpu": "1", "pods": "20"}}},
    {"status": {"allocatable": {"gpu": "4", "pods": "20"}}},
    {"status": NOT_READY},
    {"metadata": {"labels": {RACK: "another"}}},
)
EXTENSIONS = (
    Extensions(whole_searches=True),
    Extensions(whole_searches=True, reserve_for_preemptor=True),
    Extensions(
        whole_searches=True, reserve_for_preemptor=True, victim_order=VictimOrder.LEAST_LOST, takeovers_first=True
    ),
)


def puts(given: KubernetesObject) -> Act:
    return lambda world: world.put(given)


def merged(data: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """As a JSON merge patch, without removals (RFC 7386)."""
    found = dict(data)
    for key, value in change.items():
        found[key] = merged(found.get(key, {}), value) if isinstance(value, dict) else value
    return found


def node(draw: st.DrawFn) -> Act:
    data = merged(to_json(draw(st.sampled_from(NODES))), draw(st.sampled_from(CHANGES)))
    return puts(decode_object({"apiVersion": "v1", "kind": "Node", **data}))


def goes(kind: type[KubernetesObject], key: str) -> Act:
    return lambda world: world.drop(kind, key) if (kind, key) in world.others else None


def lost(draw: st.DrawFn) -> Act:
    return goes(Node, draw(st.sampled_from(NODES)).metadata.name)


def pod(draw: st.DrawFn) -> Act:
    """One that no queue knows."""
    name = f"pod-{draw(st.integers(0, 3))}"
    if draw(st.booleans()):
        return goes(Pod, f"kube-system/{name}")
    container = {"name": "main", "resources": {"requests": {"gpu": str(draw(st.integers(1, 2)))}}}
    spec = {"nodeName": draw(st.sampled_from(NODES)).metadata.name, "containers": [container]}
    phase = draw(st.sampled_from(("Running", "Running", "Succeeded")))
    metadata = {"name": name, "namespace": "kube-system"}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}
    return puts(decode_object(made))


def arrives(draw: st.DrawFn) -> Act:
    gpus, priority, pods = draw(st.integers(1, 2)), draw(st.integers(0, 2)), draw(st.integers(1, 4))
    return Arrival(draw(st.sampled_from(QUEUES)), gpus, priority, pods, ask=draw(st.sampled_from(ASKS)))


def leaves(draw: st.DrawFn) -> Act:
    return Leaving(draw(st.sampled_from(("stop", "finish", "delete"))), draw(st.integers(0, 9)))


def cycles(_draw: st.DrawFn) -> Act:
    return World.cycle


def queue(draw: st.DrawFn) -> Act:
    policy, strategy = (
        draw(st.sampled_from((None, *PREEMPTING))),
        draw(st.sampled_from(("StrictFIFO", "BestEffortFIFO"))),
    )
    name, nominal = draw(st.sampled_from(QUEUES)), draw(st.integers(0, 12))
    return puts(cluster_queue(name, nominal, cohort="one", preemption=policy, queueingStrategy=strategy))


def topology(draw: st.DrawFn) -> Act:
    levels = [{"nodeLabel": level} for level in draw(st.sampled_from(((RACK, HOST), (HOST,))))]
    made = {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "racks"}, "spec": {"levels": levels}}
    return puts(decode_object(made))


def tolerant(draw: st.DrawFn) -> Act:
    tolerations = [{"key": TAINT["key"], "operator": "Exists"}] if draw(st.booleans()) else []
    return puts(flavor(nodeLabels={"gpu": "yes"}, topologyName="racks", tolerations=tolerations))


_EVENTS: tuple[Callable[[st.DrawFn], Act], ...] = (
    arrives,
    arrives,
    arrives,
    arrives,
    leaves,
    cycles,
    node,
    node,
    lost,
    pod,
    pod,
    queue,
    topology,
    tolerant,
)


@st.composite
def events(draw: st.DrawFn) -> Act:
    return draw(st.sampled_from(_EVENTS))(draw)


@given(st.booleans(), st.sampled_from(EXTENSIONS), st.lists(events(), min_size=3, max_size=22))
@settings(max_examples=60, deadline=None)
def test_no_change_of_nodes_leaves_anybody_asleep_whom_a_fresh_look_would_start(
    fair: bool, extensions: Extensions, history: list[Act]
) -> None:
    config = EngineConfig(fair_sharing=FairSharing() if fair else None, extensions=extensions)
    world = World(config)
    world.put(*BASE, *map(local_queue, QUEUES))
    world.put(*(cluster_queue(name, 6, cohort="one", preemption=PREEMPTING[1]) for name in QUEUES))
    for act in history:
        act(world)
    assume(world.rest())
    assert begins_anew(world, config, unless_woken=True) == []


def test_the_claim_above_would_see_an_engine_that_forgets_a_node() -> None:
    world = World()
    world.put(*BASE, local_queue("a"), cluster_queue("a", 12))
    Arrival("a", 2, pods=4, ask={"required": RACK})(world)
    world.settle()
    assert world.running() == set()
    larger = merged(to_json(NODES[0]), {"status": {"allocatable": {"gpu": "4", "pods": "20"}}})
    forgotten = decode_object({"apiVersion": "v1", "kind": "Node", **larger})
    world.others[Node, forgotten.metadata.name] = forgotten
    assert begins_anew(world, EngineConfig(), unless_woken=True) == [("Admitted", "ns/w1")]
    world.put(forgotten)
    world.settle()
    assert begins_anew(world, EngineConfig(), unless_woken=True) == []
