"""Resets that are due: ordered in a window, once, one at a time in a flavor, and after everything that has failed."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.objects.decode import GpuNode
from controller.reconcile.repairs.planned import PlannedOrder, planned_orders
from inventory.api.names import REMEDIATION_ORDER
from tests.support.controller.gpunodes import observed

BEGUN_S = 1_800_000_000.0
BEFORE, SINCE = (datetime.fromtimestamp(BEGUN_S + at, UTC).isoformat() for at in (-60, 60))
WAITS = {"state": "Suspect", "reasons": ["a memory row remap waits for a reset"], "resetDue": True}


def gpu(node: str, index: int, **health: Any) -> dict[str, Any]:
    return {"uuid": f"{node}-{index}", "index": index, "health": {"state": "Healthy", **health}}


def made(
    name: str, *devices: dict[str, Any], mode: str = "drain", notes: dict[str, str] | None = None, **status: Any
) -> GpuNode:
    found = observed(name, devices=list(devices), resetMode=mode, **status)
    return found if notes is None else with_notes(found, notes)


def with_notes(node: GpuNode, notes: dict[str, str]) -> GpuNode:
    return replace(node, metadata=replace(node.metadata, annotations=notes))


def orders(*nodes: GpuNode, refused: tuple[str, ...] = (), flavors: dict[str, str] | None = None) -> list[PlannedOrder]:
    named = {node.metadata.name: node for node in nodes}
    of_node = flavors or {}
    return planned_orders(
        named, BEGUN_S, lambda name: (of_node.get(name, "gpus"),), lambda name, gpu: f"{name}/{gpu}" not in refused
    )


def test_the_gpu_that_has_waited_longest_is_ordered_and_no_other_of_the_flavor() -> None:
    old, new = (WAITS | {"since": at} for at in (BEFORE, SINCE))
    assert orders(made("a", gpu("a", 0, **new), gpu("a", 1, **old)), made("b", gpu("b", 0, **old))) == [("a", "a-1")]


def test_each_flavor_has_an_order() -> None:
    nodes = made("a", gpu("a", 0, **WAITS)), made("b", gpu("b", 0, **WAITS)), made("c", gpu("c", 0))
    assert orders(*nodes, flavors={"a": "x", "b": "y", "c": "z"}) == [("a", "a-0"), ("b", "b-0")]


def test_nothing_is_ordered_where_nothing_is_due_or_the_agent_resets_nothing() -> None:
    assert orders(made("a", gpu("a", 0))) == []
    for mode in ("never", ""):
        assert orders(made("a", gpu("a", 0, **WAITS), mode=mode)) == []
    assert orders(made("a", gpu("a", 0, **WAITS | {"state": "Unhealthy"}))) == []
    assert orders(made("a", gpu("a", 0, **WAITS)), refused=("a/a-0",)) == []


def test_nothing_is_ordered_while_an_order_of_the_flavor_waits() -> None:
    due = made("b", gpu("b", 0, **WAITS))
    asked = made("a", gpu("a", 0), notes={f"{REMEDIATION_ORDER}a-0": "stop"})
    assert orders(asked, due) == []
    ordered = made("a", gpu("a", 0), repairs=[{"gpu": "a-0", "state": "Draining", "reason": "Ordered"}])
    assert orders(ordered, due) == []
    under_way = made("a", gpu("a", 0), repairs=[{"gpu": "a-0", "state": "Resetting", "reason": "Ordered"}])
    assert orders(under_way, due) == [("b", "b-0")]


@pytest.mark.parametrize("state", ["Draining", "Resetting", "Verifying", "RebootWanted", "Probation", "Retired"])
def test_a_node_has_one_repair_at_a_time_that_does_something(state: str) -> None:
    beside = made("a", gpu("a", 0, **WAITS), repairs=[{"gpu": "a-1", "state": state, "reason": "Xid119"}])
    assert orders(beside) == ([("a", "a-0")] if state in ("Probation", "Retired") else [])


def test_a_gpu_is_ordered_once_in_a_window_whatever_came_of_it() -> None:
    def answered(at: str, **more: Any) -> GpuNode:
        answer = {"gpu": "a-0", "order": "start", "answer": "told", "at": at, **more}
        return made("a", gpu("a", 0, **WAITS), orderAnswers=[answer])

    assert orders(answered(SINCE)) == []
    assert orders(answered(SINCE, refused=True)) == []
    assert orders(answered(BEFORE)) == [("a", "a-0")]


@pytest.mark.parametrize("order", ["stop", "retire", "return"])
def test_a_gpu_about_which_a_person_has_ordered_something_in_the_window_is_left_alone_in_it(order: str) -> None:
    def answered(at: str) -> GpuNode:
        answer = {"gpu": "a-0", "order": order, "answer": "told", "at": at}
        return made("a", gpu("a", 0, **WAITS), orderAnswers=[answer])

    assert orders(answered(SINCE)) == []
    assert orders(answered(BEFORE)) == [("a", "a-0")]


@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.lists(st.tuples(st.booleans(), st.booleans()), max_size=3), st.booleans()),
        max_size=8,
    )
)
def test_orders_are_due_allowed_and_one_in_a_flavor(given_: list[tuple[str, list[tuple[bool, bool]], bool]]) -> None:
    nodes, flavors, refused, due = [], {}, [], set()
    for number, (flavor, gpus, repaired) in enumerate(given_):
        name = f"n{number}"
        flavors[name] = flavor
        devices = [gpu(name, index, **WAITS if waits else {}) for index, (waits, _) in enumerate(gpus)]
        more: dict[str, Any] = (
            {"repairs": [{"gpu": "other", "state": "Draining", "reason": "Xid119"}]} if repaired else {}
        )
        nodes.append(made(name, *devices, **more))
        refused += [f"{name}/{name}-{index}" for index, (_, refuses) in enumerate(gpus) if refuses]
        due |= {(name, f"{name}-{index}") for index, (waits, _) in enumerate(gpus) if waits and not repaired}
    found = orders(*nodes, refused=tuple(refused), flavors=flavors)
    assert set(found) <= due
    assert not {f"{name}/{gpu}" for name, gpu in found} & set(refused)
    of = [flavors[name] for name, _ in found]
    assert len(of) == len(set(of))
