"""What Nodes say about repairs, as lists of taints and conditions: ours alone are changed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.messages import repairs as words
from controller.reconcile.repairs.maintenance import conditions_due, reboot_name, taints_due

NOW = "2026-01-02T00:00:00Z"
BEFORE = "2026-01-01T00:00:00Z"
OTHERS = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, {"key": "site/x", "value": "1"}]
OURS = {"key": "tessera.dev/repair", "effect": "NoSchedule"}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": BEFORE, "lastHeartbeatTime": BEFORE}


def said(type_: str, status: str, reason: str, message: str = "", since: str = BEFORE) -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def due(*conditions: dict[str, Any], planned: str = "", away: str = "") -> dict[str, tuple[str, str, str]] | None:
    found = conditions_due(conditions, planned=planned, away=away, now=NOW)
    if found is None:
        return None
    return {each["type"]: (each["status"], each.get("reason", ""), each["lastTransitionTime"]) for each in found}


def test_a_plan_that_is_over_says_so() -> None:
    conditions = said("MaintenancePlanned", "True", "GpuRepair", "GPU g")
    (over,) = conditions_due([conditions], planned="", away="", now=NOW) or []
    assert over["message"] == words.reboot_over()


def test_the_taint_is_set_and_removed_beside_those_of_others() -> None:
    assert taints_due(OTHERS, wanted=True) == [*OTHERS, OURS]
    assert taints_due([OTHERS[0], OURS, OTHERS[1]], wanted=False) == OTHERS
    assert taints_due([*OTHERS, OURS], wanted=True) is None
    assert taints_due(OTHERS, wanted=False) is None


def test_a_reboot_that_is_planned_is_said_once_and_others_conditions_stay() -> None:
    found = due(READY, planned="GPU g")
    assert found == {"Ready": ("True", "", BEFORE), "MaintenancePlanned": ("True", "GpuRepair", NOW)}
    assert due(READY, said("MaintenancePlanned", "True", "GpuRepair", "GPU g"), planned="GPU g") is None


def test_another_message_is_no_transition() -> None:
    found = due(said("MaintenancePlanned", "True", "GpuRepair", "GPU g"), planned="GPU h")
    assert found == {"MaintenancePlanned": ("True", "GpuRepair", BEFORE)}


def test_it_is_over_when_nobody_wants_it_any_more() -> None:
    assert due(said("MaintenancePlanned", "True", "GpuRepair", "GPU g")) == {
        "MaintenancePlanned": ("False", "GpuRepairOver", NOW)
    }
    assert due(said("MaintenancePlanned", "False", "GpuRepairOver")) is None


@pytest.mark.parametrize("planned", ["", "GPU g"])
def test_a_maintenance_that_others_have_planned_is_left_to_them(planned: str) -> None:
    assert due(said("MaintenancePlanned", "True", "CloudMaintenance"), planned=planned) is None


def test_the_agents_conditions_are_unknown_once_it_is_away() -> None:
    ready, healthy = said("nvidia.com/GPUReady", "True", "Ready"), said("tessera.dev/GPUsHealthy", "False", "Xid79")
    assert due(ready, healthy, READY, away="gone") == {
        "nvidia.com/GPUReady": ("Unknown", "AgentAway", NOW),
        "tessera.dev/GPUsHealthy": ("Unknown", "AgentAway", NOW),
        "Ready": ("True", "", BEFORE),
    }
    assert due(ready, healthy) is None
    assert due(READY, away="gone") is None, "no agent ever said them"


@given(
    st.lists(st.sampled_from(["True", "False", "Unknown"]), min_size=3, max_size=3),
    st.sampled_from(["", "GPU g"]),
    st.sampled_from(["", "gone"]),
)
def test_what_is_written_is_not_due_again(statuses: list[str], planned: str, away: str) -> None:
    types = ("MaintenancePlanned", "nvidia.com/GPUReady", "tessera.dev/GPUsHealthy")
    given_ = [said(type_, status, "GpuRepair") for type_, status in zip(types, statuses, strict=True)]
    found = conditions_due(given_, planned=planned, away=away, now=NOW)
    if found is not None:
        assert conditions_due(found, planned=planned, away=away, now="later") is None
        assert [each["type"] for each in found] == list(types)


def test_a_node_has_one_name_for_its_reboot_which_is_never_too_long() -> None:
    assert reboot_name("n1") == "tessera-n1"
    names = [reboot_name("n" * 253), reboot_name("n" * 252 + "m")]
    assert len(set(names)) == 2
    assert all(len(name) <= 253 for name in names)
