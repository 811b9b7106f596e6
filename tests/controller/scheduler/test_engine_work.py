"""Claims about the work of one decision: it does not grow with those who hold quota, nor with those who wait.

Work is counted, not timed: the instructions of the engine that one cycle executes.
"""

import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from controller.objects.decode import decode
from controller.objects.queues import Topology
from controller.objects.workload import Workload
from controller.scheduler.decisions.decisions import Admitted, Decision, Decisions, Evicted, Pending
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import (
    BackfillPolicy,
    EngineConfig,
    Extensions,
    FairSharing,
    MinimumRuntime,
    VictimOrder,
)
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, FlavorResource, ResourceName, WorkloadKey
from controller.scheduler.reservations.reservations import Preempts
from tests.support.engine.topologylab import BLOCK, HOST, RACK, node
from tests.support.engine.world import NOW_S, cluster_queue, flavor, local_queue, workload

FEW, MANY = 60, 500
QUEUES = 10
GPU = FlavorResource(FlavorName("default"), ResourceName("gpu"))
PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
CONFIGS = {
    "kueue": EngineConfig(),
    "fair sharing": EngineConfig(fair_sharing=FairSharing()),
    "tessera": EngineConfig(
        extensions=Extensions(
            reserve_for_preemptor=True,
            no_eviction_cycles=True,
            minimum_runtime=MinimumRuntime(),
            backfill=BackfillPolicy.CONSERVATIVE,
            victim_order=VictimOrder.LEAST_LOST,
        )
    ),
}


def executed(act: Callable[[], Any]) -> int:
    """The instructions of Python that ``act`` executes; a loop over everybody shows in them, however it is written."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def crowd(config: EngineConfig, *, holding: int, waiting: int) -> Engine:
    """Queues of one cohort, each with 10 devices left beside those who hold one; who waits asks for more than that."""
    engine = Engine(config)
    engine.put(flavor(), NOW_S)
    for place in range(QUEUES):
        quota = holding // QUEUES + 10
        engine.put(cluster_queue(f"q{place}", quota, cohort="all", borrow=0, lend=0, preemption=PREEMPTION), NOW_S)
        engine.put(local_queue(f"q{place}"), NOW_S)
    for index in range(holding):
        engine.put(workload(f"w{index}", f"q{index % QUEUES}", 1, priority=5), NOW_S)
    rest(engine)
    for index in range(waiting):
        gpus = holding // QUEUES + 10 + index // QUEUES % 3
        engine.put(workload(f"w{holding + index}", f"q{index % QUEUES}", gpus, priority=0), NOW_S)
    rest(engine)
    assert (len(engine.state.cluster.holders), len(engine.state.queues)) == (holding, waiting)
    return engine


def rest(engine: Engine) -> None:
    while not engine.settled(NOW_S):
        for one in engine.cycle(NOW_S).made:
            if isinstance(one, Admitted):
                engine.put(one.status(), NOW_S)


def asked(engine: Engine, gpus: int, priority: int, *, expected: type[Decision], number: int = 1) -> int:
    """The work of the cycle that decides on one more workload, of whom nothing is left afterwards.

    Asked twice, because what is compiled for a new queue stays.
    """
    found: list[Decisions] = []
    for name in ("first", "again"):
        # Of a shape that was refused a second one would not be tried.
        size = gpus + (expected is Pending and name == "again")
        engine.put(workload(name, "q0", size, priority=priority), NOW_S)
        work = executed(lambda: found.append(engine.cycle(NOW_S)))
        assert found[-1].tried == 1
        assert [type(one) for one in found[-1].made].count(expected) == number
        for one in found[-1].made:
            if isinstance(one, Evicted):
                assert engine.failed(one, NOW_S, "taken back")
        engine.drop(Workload, "ns", name, NOW_S)
        rest(engine)
    return work


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("growing", ["holding", "waiting"])
def test_a_decision_is_as_much_work_beside_many_as_beside_few(config: EngineConfig, growing: str) -> None:
    few, many = (crowd(config, **{"holding": FEW, "waiting": FEW, growing: count}) for count in (FEW, MANY))
    asks: dict[str, Callable[[Engine], int]] = {
        "it fits": lambda engine: asked(engine, 2, 1, expected=Admitted),
        "it never fits": lambda engine: asked(engine, 10_000, 1, expected=Pending),
        "it preempts": lambda engine: asked(engine, 13, 9, expected=Evicted, number=3),
    }
    grown = {name: ask(many) / ask(few) for name, ask in asks.items()}
    # A factor of 1.5 is allowed from 100 to 100,000; steps of a binary search are all that may be more here.
    assert max(grown.values()) < 1.25, grown


@pytest.mark.parametrize("policy", ["tessera", "fair sharing"])
def test_what_another_policy_asks_for_beside_the_peers_own_work_is_little(policy: str) -> None:
    """Where nobody has a reservation, a backfill reservation or a run time, and nobody borrows, that is a tenth at
    most.
    """
    more, peer = (crowd(CONFIGS[name], holding=FEW, waiting=FEW) for name in (policy, "kueue"))
    for gpus, expected in ((2, Admitted), (10_000, Pending)):
        assert asked(more, gpus, 1, expected=expected) < 1.1 * asked(peer, gpus, 1, expected=expected)


def reserve(engine: Engine, name: ClusterQueueName) -> None:
    """A preemptor that is not tried itself, because it stands in a back-off, reserves one GPU of the queue."""
    key = WorkloadKey("ns/preemptor")
    engine.put(workload("preemptor", name, 1), NOW_S)
    pending = engine.state.queues.remove(key)
    assert pending is not None
    pending.due_s = math.inf
    engine.state.queues.put(pending, NOW_S)
    engine.state.reservations.apply(Preempts(key, name, {GPU: 1}, frozenset({WorkloadKey("ns/w0")}), (), None))


def test_a_reservation_costs_those_of_its_own_cohort_only() -> None:
    """Tried a second time, without the claims of others, is who could reclaim what they claim."""
    work: dict[str, int] = {}
    for reserved in ("nobody", "there", "here"):
        engine = crowd(CONFIGS["tessera"], holding=FEW, waiting=FEW)
        for name, tree in (("there", "another"), ("here", "all")):
            engine.put(cluster_queue(name, 2, cohort=tree, preemption=PREEMPTION), NOW_S)
            engine.put(local_queue(name), NOW_S)
        rest(engine)
        if reserved != "nobody":
            reserve(engine, ClusterQueueName(reserved))
        work[reserved] = asked(engine, 10_000, 1, expected=Pending)
    assert work["there"] < 1.2 * work["nobody"] < work["here"]


def dc() -> Topology:
    levels = [{"nodeLabel": level} for level in (BLOCK, RACK, HOST)]
    return decode({"metadata": {"name": "dc"}, "spec": {"levels": levels}}, Topology)


def news_of_nodes(queues: int) -> int:
    """The work of taking in a hundred nodes, which all of these queues may have workloads on."""
    engine = Engine(CONFIGS["tessera"])
    engine.put(dc(), NOW_S)
    engine.put(flavor(topologyName="dc"), NOW_S)
    for place in range(queues):
        engine.put(cluster_queue(f"q{place}", 10), NOW_S)
        engine.put(local_queue(f"q{place}"), NOW_S)
        engine.put(workload(f"w{place}", f"q{place}", 1_000), NOW_S)
    rest(engine)
    found = [node(f"b/r/h{number}", 8) for number in range(100)]

    def tell() -> None:
        for one in found:
            engine.put(one, NOW_S)

    work = executed(tell)
    assert engine.state.queues.busy(open_for=lambda _: True), "they are tried again"
    engine.validate()
    return work


def test_news_of_a_node_costs_the_same_beside_many_queues() -> None:
    """A fleet's nodes all come at the start, and each wakes those who wait for its flavor."""
    assert news_of_nodes(50) < 1.25 * news_of_nodes(5)


def test_what_is_parked_between_two_nodes_is_woken_by_the_second() -> None:
    engine = Engine(CONFIGS["tessera"])
    for one in (dc(), flavor(topologyName="dc"), cluster_queue("q", 100), local_queue("q")):
        engine.put(one, NOW_S)
    engine.put(workload("w", "q", 8), NOW_S)
    for name, gpus, admitted in (("b/r/h1", 4, 0), ("b/r/h2", 4, 0), ("b/r/h3", 8, 1)):
        engine.put(node(name, gpus), NOW_S)
        rest(engine)
        assert len(engine.state.cluster.holders) == admitted


def test_the_count_sees_a_loop_over_everybody() -> None:
    engine = crowd(EngineConfig(), holding=FEW, waiting=MANY)
    assert executed(lambda: [one.key for one in engine.state.queues]) > 5 * MANY
