"""The breaker of repairs in any order of asks, grants, failures, leaders, and nodes that go and come."""

from collections.abc import Set as AbstractSet
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.cluster.config.settings import RemediationRules, RepairBudget
from controller.reconcile.repairs.grants import Grant
from inventory.api.gpunode import GRANT_LASTS_S
from tests.support.controller.repairfleet import Fleet

NODES = ("n1", "n2", "n3", "n4")
LABELS = {
    "n1": {"pool": "a", "rack": "r1"},
    "n2": {"pool": "a", "rack": "r1"},
    "n3": {"pool": "a", "rack": "r2"},
    "n4": {"rack": "r2"},
}
STEPS = st.one_of(
    st.tuples(
        st.just("asks"), st.sampled_from(NODES), st.integers(0, 2), st.sampled_from(["drain", "reset", "reboot"])
    ),
    st.tuples(st.just("well"), st.sampled_from(NODES), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 299.0, 301.0, 600.0])),
    st.tuples(st.just("land"), st.sampled_from(NODES)),
    st.tuples(st.just("lose"), st.sampled_from(NODES)),
    st.tuples(st.just("leader")),
    st.tuples(st.just("leaves"), st.sampled_from(NODES), st.booleans()),
    st.tuples(st.just("comes"), st.sampled_from(NODES)),
    st.tuples(st.just("resume")),
)


def carry_out(fleet: Fleet, step: tuple[Any, ...]) -> None:
    match step:
        case ("asks", node, gpu, action) if node not in fleet.away:
            fleet.asks(node, gpu, action)
        case ("leaves", node, gpunode_first) if node not in fleet.away:
            fleet.leaves(node, gpunode_first=gpunode_first)
        case ("comes", node) if node in fleet.away:
            fleet.comes(node)
        case ("well", node, gpu):
            fleet.well(node, gpu)
        case ("wait", seconds):
            fleet.now_s += seconds
        case ("land", node) if node in fleet.pending:
            fleet.land(node)
        case ("lose", node) if node in fleet.pending:
            lost = fleet.pending.pop(node)
            fleet.core.failed(node, lost)
            stored = fleet.lists.get(node, ())
            fleet.log = [each for each in fleet.log if each[0] != node or each[1] not in lost or each[1] in stored]
        case ("leader",):
            fleet.take_over()
        case ("resume",):
            fleet.flavors["a"] = replace(fleet.flavors["a"], resumed_s=float(int(fleet.now_s) + 1))
            fleet.now_s += 1.0
            fleet.core.set_flavor("a", fleet.flavors["a"])


def in_action(
    fleet: Fleet, *, since_s: float = 0.0, but: AbstractSet[tuple[str, Grant]] = frozenset()
) -> set[tuple[str, str]]:
    """The GPUs that were granted a step less than a window ago, by the log alone, ``but`` for some grants."""
    return {
        (node, grant.gpu)
        for node, grant in fleet.log
        if (node, grant) not in but and fleet.now_s < grant.granted_s + GRANT_LASTS_S and grant.granted_s >= since_s
    }


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=40), st.integers(1, 3), st.booleans())
def test_no_order_of_asks_grants_and_leaders_exceeds_a_budget(
    steps: list[tuple[Any, ...]], budget: int, by_rack: bool
) -> None:
    rules = RemediationRules(budget=RepairBudget(gpus=budget), levels=("rack",) if by_rack else ())
    fleet = Fleet(rules, NODES)
    fleet.labels = {name: dict(labels) for name, labels in LABELS.items()}
    fleet.take_over()
    for step in steps:
        carry_out(fleet, step)
        asked = {(node, each.gpu): (each.generation, each.asks) for (node, _), each in fleet.repairs.items()}
        found = fleet.decide()
        for node, grant in found.granted:
            assert asked[node, grant.gpu] == (grant.generation, grant.action), "a grant that nobody asked for"
        counted = in_action(fleet, since_s=fleet.flavors["a"].resumed_s)
        assert len({each for each in counted if each[0] != "n4"}) <= budget
        assert len({each for each in in_action(fleet) if each[0] == "n4"}) <= budget
        if by_rack:
            racks = {node: LABELS[node]["rack"] for node, _ in in_action(fleet, but=fleet.unplaced)}
            assert len(set(racks.values())) == len(racks), "two nodes of a rack"


@given(st.lists(STEPS, max_size=30))
def test_every_ask_is_granted_once_the_others_are_over(steps: list[tuple[Any, ...]]) -> None:
    fleet = Fleet(RemediationRules(budget=RepairBudget(gpus=1), levels=("rack",)), NODES)
    fleet.labels = {name: dict(labels) for name, labels in LABELS.items()}
    fleet.take_over()
    for step in steps:
        carry_out(fleet, step)
        fleet.decide()
    waiting = {gpu for (_, gpu), each in fleet.repairs.items() if each.asks}
    for _ in range(3 * len(NODES) + 1):
        for gpu in fleet.step(GRANT_LASTS_S + 1.0):
            waiting.discard(gpu)
            fleet.well(gpu.partition("-")[0], int(gpu[-1]))
    assert waiting == set()
