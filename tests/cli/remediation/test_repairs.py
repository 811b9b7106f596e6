"""What GpuNodes tell of repairs: a row for each, and what would be done now."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.remediation.repairs import Hindrances, find, grant, plans, rows
from controller.objects.decode import GpuNode
from inventory.api.gpunode import GRANT_LASTS_S
from tests.support.controller.gpunodes import observed

NOW: Final = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def stamp(before_s: float = 0.0) -> str:
    return (NOW - timedelta(seconds=before_s)).isoformat().replace("+00:00", "Z")


def device(index: int, state: str = "Unhealthy", **more: Any) -> dict[str, Any]:
    return {"uuid": f"GPU-{index}", "index": index, "health": {"state": state, "reasons": ["XID 119"]}, **more}


def repair(index: int, state: str = "Draining", **more: Any) -> dict[str, Any]:
    return {"gpu": f"GPU-{index}", "state": state, "generation": 4, **more}


def granted(index: int, action: str, *, generation: int = 4, before_s: float = 0.0) -> dict[str, Any]:
    return {"gpu": f"GPU-{index}", "generation": generation, "action": action, "granted": stamp(before_s)}


def held(device: str, pod: str = "bert-0") -> dict[str, Any]:
    return {"device": device, "namespace": "team", "pod": pod}


def says(node: GpuNode) -> list[tuple[str, bool, str]]:
    return [(row.action, row.is_due, row.says) for row in plans(node, NOW)]


@pytest.mark.parametrize(
    ("hindrances", "said"),
    [
        (Hindrances(unmanaged=frozenset({"n"})), "the node's label k8saas.nvidia.com/ManagedByNVSentinel=false"),
        (Hindrances(tripped={"n": "h100"}), "the breaker of flavor h100 has tripped"),
    ],
)
def test_what_keeps_a_grant_back_is_named_until_it_is_granted(hindrances: Hindrances, said: str) -> None:
    asking = {"devices": [device(0)], "repairs": [repair(0, asks="reset")]}
    (row,) = plans(observed("n", **asking), NOW, hindrances)
    assert said in row.says
    assert not row.is_due
    (row,) = plans(observed("other", **asking), NOW, hindrances)
    assert said not in row.says
    (row,) = plans(observed("n", **asking, remediationGrants=[granted(0, "reset")]), NOW, hindrances)
    assert row.is_due


def test_a_row_has_what_the_agent_told_and_the_grant_that_holds() -> None:
    told = repair(3, since=stamp(90), attempt=1, reason="Xid119", asks="reset", note="nobody has it", next="a reset")
    node = observed("gpu-7", devices=[device(3)], repairs=[told], remediationGrants=[granted(3, "reset", before_s=5)])
    (row,) = rows(node, NOW)
    assert (row.node, row.index, row.uuid, row.state, row.attempt) == ("gpu-7", 3, "GPU-3", "Draining", 1)
    assert (row.asks, row.note, row.next) == ("reset", "nobody has it", "a reset")
    assert row.since == NOW - timedelta(seconds=90)
    assert row.granted == NOW - timedelta(seconds=5)


def test_a_gpu_that_is_not_repaired_says_why_as_its_agent_tells() -> None:
    sick = device(0)
    sick["health"]["unrepaired"] = "it is not repaired: its board is to be replaced"
    (first, second) = says(observed("n", devices=[sick, device(1)]))
    assert first == ("nothing", False, "nothing is done: it is not repaired: its board is to be replaced")
    assert "remediation.reset is never" in second[2], "an older agent does not tell"
    ((_, _, never),) = says(observed("n", devices=[device(0)], resetMode="never"))
    assert never.startswith("nothing is done: its agent repairs no GPU, found remediation.reset: never there")


def test_pods_on_boards_that_a_reset_takes_along_are_waited_for_too() -> None:
    along = repair(0, takesAlong=["GPU-1"])
    (row, _) = plans(observed("n", devices=[device(0), device(1)], repairs=[along], holders=[held("GPU-1")]), NOW)
    assert row.holders == ("team/bert-0",)
    assert "Now: team/bert-0" in row.says


def test_rows_stand_by_index_and_a_gpu_that_is_gone_stands_last_without_one() -> None:
    node = observed("n", devices=[device(0), device(2)], repairs=[repair(9), repair(2), repair(0)])
    assert [(row.uuid, row.index) for row in rows(node, NOW)] == [("GPU-0", 0), ("GPU-2", 2), ("GPU-9", None)]


@pytest.mark.parametrize(
    "other",
    [
        granted(0, "reset", before_s=GRANT_LASTS_S),
        granted(0, "reset", generation=3),
        granted(0, "drain"),
        granted(1, "reset"),
    ],
)
def test_a_grant_that_lapsed_or_is_for_something_else_is_none(other: dict[str, Any]) -> None:
    node = observed("n", devices=[device(0)], repairs=[repair(0, asks="reset")], remediationGrants=[other])
    assert [row.granted for row in rows(node, NOW)] == [None]
    assert says(node) == [("reset", False, "it is reset once the controller grants it")]


def test_what_comes_next_is_said_as_the_agent_says_it() -> None:
    planned = repair(0, "RebootWanted", asks="reboot", next="the controller is asked for a reboot")
    asked = repair(1, asks="reset", next="it is reset some day")
    said = [row[2] for row in says(observed("n", devices=[device(0), device(1)], repairs=[planned, asked]))]
    assert said == [
        "nothing is done to the GPU, since only a reboot helps: the controller is asked for a reboot",
        "it is reset some day",
    ]


def test_a_gpu_that_nobody_has_is_reset_with_its_grant() -> None:
    node = observed(
        "n", devices=[device(0)], repairs=[repair(0, asks="reset")], remediationGrants=[granted(0, "reset")]
    )
    assert says(node) == [("reset", True, "it is reset")]


def test_without_a_controller_no_grant_is_waited_for() -> None:
    assert says(observed("n", devices=[device(0)], repairs=[repair(0)])) == [("reset", True, "it is reset")]
    opened = repair(0, note="its device file is open in dcgm (12)")
    assert says(observed("n", devices=[device(0)], repairs=[opened])) == [
        ("reset", False, "it is not reset yet: its device file is open in dcgm (12)")
    ]


def test_pods_on_a_mig_instance_hold_the_gpu() -> None:
    cut = device(0, mig={"instances": [{"uuid": "MIG-1"}]})
    node = observed("n", devices=[cut], repairs=[repair(0)], holders=[held("MIG-1::0"), held("GPU-8", "other")])
    assert says(node) == [("reset", False, "it is reset once nobody has it. Now: team/bert-0")]


def test_a_drain_waits_for_its_grant_and_then_names_who_leaves() -> None:
    asking: dict[str, Any] = {
        "devices": [device(0)],
        "repairs": [repair(0, asks="drain")],
        "holders": [held("GPU-0", f"p{at}") for at in range(9)],
    }
    named = ", ".join(f"team/p{at}" for at in range(8)) + " and 1 more"
    assert says(observed("n", **asking)) == [
        ("drain", False, f"once the controller grants it, these pods leave: {named}")
    ]
    asking["remediationGrants"] = [granted(0, "drain")]
    ((action, is_due, said),) = says(observed("n", **asking))
    assert (action, is_due) == ("drain", True)
    assert said == f"these pods are asked to leave, and then it is reset: {named}"


def test_states_in_which_a_person_or_time_is_waited_for_do_nothing() -> None:
    for state, due, part in (
        ("RebootWanted", False, "only a reboot helps"),
        ("Retired", False, "tessera remediation return n 0"),
        ("Verifying", True, "its repair is in Verifying"),
    ):
        ((action, is_due, said),) = says(observed("n", devices=[device(0)], repairs=[repair(0, state)]))
        assert (action, is_due) == ("nothing", due)
        assert part in said


def test_a_failed_gpu_without_a_repair_says_that_none_is_made_and_healthy_ones_are_left_out() -> None:
    node = observed("n", devices=[device(at, state) for at, state in enumerate(("Unhealthy", "Suspect", "Healthy"))])
    assert [row.index for row in plans(node, NOW)] == [0, 1]
    assert [said.partition(":")[2][:20] for _, _, said in says(node)] == [
        " its agent repairs n",
        " containers still ge",
    ]
    (trial,) = says(observed("n", devices=[device(0, "Probation")]))
    assert trial == ("nothing", False, "nothing is done: it is on probation")


def test_a_gpu_is_found_by_index_and_by_uuid_in_any_case() -> None:
    node = observed("n", devices=[device(0), device(12)])
    assert [getattr(find(node, word), "index", None) for word in ("12", "gpu-12", "GPU-0", "1", "")] == [
        12, 12, 0, None, None,
    ]  # fmt: skip


STATES: Final = st.sampled_from(["Draining", "Resetting", "Verifying", "Probation", "RebootWanted", "Retired", "Odd"])
ASKS: Final = st.sampled_from(["", "drain", "reset", "reboot"])


@given(
    state=STATES,
    asks=ASKS,
    action=st.sampled_from(["drain", "reset"]),
    generation=st.integers(3, 5),
    age_s=st.integers(0, 1200),
    pods=st.integers(0, 3),
)
def test_a_reset_is_never_due_while_a_pod_has_the_gpu_nor_without_the_grant_that_was_asked_for(
    state: str, asks: str, action: str, generation: int, age_s: int, pods: int
) -> None:
    node = observed(
        "n",
        devices=[device(0)],
        repairs=[repair(0, state, asks=asks)],
        holders=[held("GPU-0", f"p{at}") for at in range(pods)],
        remediationGrants=[granted(0, action, generation=generation, before_s=age_s)],
    )
    (row,) = plans(node, NOW)
    holds = grant(node, node.status.repairs[0], NOW) is not None
    assert holds == (action == asks and generation == 4 and age_s < GRANT_LASTS_S)
    if row.action == "reset" and row.is_due:
        assert not pods
        assert holds or not asks
    if row.action == "drain":
        assert pods
        assert row.is_due == holds
    assert row.says
