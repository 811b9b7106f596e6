"""GPUResets: which GPUs are meant, what becomes of the orders, and the status as the janitor's API has it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.reconcile.repairs.gpuresets import ResetOrder, ResetStep, reset_order, status_of, step
from inventory.api.gpunode import GpuNodeStatus
from tests.controller.cluster.process.test_gpunodes import gpu_node

STARTED_S = 1767225600.0
STARTED = "2026-01-01T00:00:00Z"
G0, G1 = "GPU-n1-0", "GPU-n1-1"


def order(**fields: Any) -> ResetOrder:
    return msgspec.structs.replace(ResetOrder(name="r", uid="u", version="1", node="n1", started_s=STARTED_S), **fields)


def gpus(
    repairs: dict[str, str] | None = None,
    answers: dict[str, str] | None = None,
    at: str = STARTED,
    *,
    refused: bool = True,
) -> Any:
    body = gpu_node("n1", "Healthy", "Healthy")["status"]
    for index, device in enumerate(body["devices"]):
        device["pciBusId"] = f"0000:0{index}:00.0"
    entries = [{"gpu": gpu, "state": state, "note": "why"} for gpu, state in (repairs or {}).items()]
    given_ = [
        {"gpu": gpu, "order": "start", "answer": text, "at": at, "refused": refused}
        for gpu, text in (answers or {}).items()
    ]
    return msgspec.convert({**body, "repairs": entries, "orderAnswers": given_}, GpuNodeStatus)


def look(of: ResetOrder, seen: Any, annotated: tuple[str, ...] = (), after_s: float = 60.0) -> ResetStep:
    return step(of, seen, annotated, STARTED_S + after_s)


@pytest.mark.parametrize(
    ("selector", "meant"),
    [
        ({}, (G0, G1)),
        ({"uuids": (G1,)}, (G1,)),
        ({"pci_bus_ids": ("0000:00:00.0",)}, (G0,)),
        ({"pci_bus_ids": ("00000000:00:00.0", "00000000:01:00.0")}, (G0, G1)),
        ({"uuids": (G0,), "pci_bus_ids": ("0000:00:00.0", "0000:01:00.0")}, (G0, G1)),
    ],
)
def test_the_gpus_of_the_selector_are_ordered_and_all_without_one(
    selector: dict[str, Any], meant: tuple[str, ...]
) -> None:
    assert look(order(**selector), gpus()) == ResetStep(orders=meant)


def test_an_order_that_waits_is_not_written_over() -> None:
    assert look(order(), gpus(), (G0,)).orders == (G1,)


@pytest.mark.parametrize(
    ("selector", "seen", "note"),
    [
        ({}, None, "Found n1 in spec.nodeName, expected a node with an agent"),
        ({"uuids": ("GPU-x",)}, gpus(), "Found GPU-x in spec.selector.uuids, expected a GPU of node n1"),
        ({"pci_bus_ids": ("9",)}, gpus(), "Found 9 in spec.selector.pciBusIDs, expected a GPU of node n1"),
    ],
)
def test_what_is_not_there_fails_in_a_line(selector: dict[str, Any], seen: Any, note: str) -> None:
    due = look(order(**selector), seen)
    assert (due.phase, due.orders, due.note) == ("Failed", (), note)


def test_it_succeeds_once_every_gpu_was_repaired() -> None:
    running = order(phase="InProgress", uuids=(G0, G1))
    assert look(running, gpus({G0: "Draining"}), (G1,)) == ResetStep(begun=frozenset({G0}))
    half = order(phase="InProgress", uuids=(G0, G1), begun=frozenset({G0}))
    assert look(half, gpus({G1: "Resetting"})) == ResetStep(begun=frozenset({G0, G1}))
    both = order(phase="InProgress", uuids=(G0, G1), begun=frozenset({G0, G1}))
    assert look(both, gpus({G1: "Probation"})).phase == "Succeeded"


@pytest.mark.parametrize("state", ["RebootWanted", "Retired"])
def test_a_gpu_that_no_reset_brings_back_fails_it(state: str) -> None:
    due = look(order(phase="InProgress", uuids=(G0,)), gpus({G0: state}))
    assert (due.phase, due.note) == ("Failed", f"GPU {G0} is in {state}: why")


def test_a_refusal_of_the_agent_fails_it_and_an_older_answer_does_not() -> None:
    running = order(phase="InProgress", uuids=(G0,))
    due = look(running, gpus(answers={G0: "Never"}))
    assert (due.phase, due.note) == ("Failed", f"GPU {G0}, the agent says: Never")
    assert look(running, gpus(answers={G0: "Never"}, at="2025-12-31T00:00:00Z")).phase == "InProgress"
    assert look(running, gpus({G0: "Draining"}, answers={G0: "Begun"})).phase == "InProgress"


def test_a_repair_that_was_over_before_anybody_looked_succeeds() -> None:
    running = order(phase="InProgress", uuids=(G0,))
    obeyed = gpus(answers={G0: "It is reset once nobody has it"}, refused=False)
    assert look(running, obeyed) == ResetStep(phase="Succeeded", begun=frozenset({G0}))
    earlier = gpus(answers={G0: "It is reset once nobody has it"}, at="2025-12-31T23:00:00Z", refused=False)
    assert look(running, earlier).phase == "InProgress"


def test_it_fails_after_the_janitors_time() -> None:
    running = order(phase="InProgress", uuids=(G0,), begun=frozenset({G0}))
    assert look(running, gpus({G0: "Draining"}), after_s=1499.0).phase == "InProgress"
    assert look(running, gpus({G0: "Draining"}), after_s=1500.0).note == "The reset has taken longer than 25m"


def test_the_status_is_read_back_as_it_was_written() -> None:
    due = ResetStep(begun=frozenset({G0, G1}))
    status = status_of(due, STARTED, STARTED)
    spec = {"nodeName": "n1", "selector": {"uuids": [G0]}}
    body = {"metadata": {"name": "r", "uid": "u", "resourceVersion": "1"}, "spec": spec, "status": status}
    assert reset_order(body, STARTED_S) == order(phase="InProgress", uuids=(G0,), begun=frozenset({G0, G1}))
    over = status_of(ResetStep(phase="Succeeded", begun=due.begun), STARTED, STARTED)
    assert over["completionTime"] == STARTED
    assert {each["type"]: each["status"] for each in over["conditions"]} == dict.fromkeys(
        ("Ready", "ServicesTornDown", "ResetJobCreated", "ResetJobCompleted", "ServicesRestored", "Complete"), "True"
    )


def test_a_reset_that_others_have_begun_is_left_to_them() -> None:
    spec = {"nodeName": "n1"}
    theirs = {"phase": "InProgress", "conditions": [{"type": "Ready", "status": "True", "reason": "Janitor"}]}
    body = {"metadata": {"name": "r", "uid": "u", "resourceVersion": "1"}, "spec": spec, "status": theirs}
    found = reset_order(body, STARTED_S)
    assert found is not None
    assert found.is_over
    waiting = reset_order({**body, "status": {"phase": "Pending"}}, STARTED_S)
    assert waiting is not None
    assert not waiting.is_over


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "status", "name", "uid", "nodeName", "selector", "uuids", "conditions"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), JSON, max_size=3))
def test_hostile_objects_are_read_or_left(given_: dict[str, Any]) -> None:
    found = reset_order(given_, 0.0)
    if found is not None:
        assert found.name
        assert found.node
        look(found, gpus())
