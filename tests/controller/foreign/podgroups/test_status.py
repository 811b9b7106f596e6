"""What ``kubectl get podgroups`` says."""

from typing import Any

import pytest

from controller.foreign.podgroups.status import Counts, Standing, counts_of, stamped, status_patch, stuck
from controller.jobs.framework.podview import SeenPod
from controller.scheduler.mirror.specs import System
from tests.support.controller.podworld import pod


def standing(running: int = 0, ended: int = 0, *, minimum: int = 2, bound: int = 0, **why: str) -> Standing:
    counts = Counts(running=running, succeeded=ended, scheduled=running + ended + bound)
    return Standing(minimum=minimum, counts=counts, **why)


@pytest.mark.parametrize(
    ("given", "phase", "condition"),
    [
        (standing(missing="1 of 2 pods"), "Inqueue", ("Unschedulable", "NotEnoughTasks", "1 of 2 pods")),
        (standing(missing="m", waits="w"), "Inqueue", ("Unschedulable", "NotEnoughTasks", "m")),
        (standing(waits="w"), "Pending", ("Unschedulable", "NotEnoughResources", "w")),
        (standing(), "Inqueue", None),
        (standing(running=1), "Inqueue", None),
        (standing(stuck="no node"), "Inqueue", ("Unschedulable", "NotEnoughResources", "no node")),
        (standing(running=1, stuck="no node"), "Unknown", ("Unschedulable", "NotEnoughResources", "no node")),
        (standing(running=1, waits="w"), "Unknown", ("Unschedulable", "NotEnoughResources", "w")),
        (standing(running=1, missing="m"), "Unknown", ("Unschedulable", "NotEnoughTasks", "m")),
        (standing(bound=2), "Running", ("Scheduled", "Scheduled", "2 pods are scheduled, of at least 2")),
        (standing(running=1, ended=1), "Running", ("Scheduled", "Scheduled", "2 pods are scheduled, of at least 2")),
        (standing(ended=2), "Completed", ("Scheduled", "Scheduled", "2 pods are scheduled, of at least 2")),
        (standing(minimum=0), "Inqueue", None),
    ],
)
def test_the_phase_and_its_condition(given: Standing, phase: str, condition: tuple[str, ...] | None) -> None:
    assert given.phase == phase
    found = given.condition
    assert (None if found is None else (found["type"], found["reason"], found["message"])) == condition


def seen(name: str, phase: str, node: str = "", **more: Any) -> SeenPod:
    raw = pod(name, schedulingGates=more.pop("gates", []), nodeName=node)
    raw["status"] = {"phase": phase, **more}
    return SeenPod(raw)


def test_pods_count_by_their_phase_and_as_scheduled_once_they_have_a_node() -> None:
    pods = [seen("a", "Running", "n"), seen("b", "Pending", "n"), seen("c", "Pending"), seen("d", "Succeeded")]
    found = counts_of([*pods, seen("e", "Failed"), seen("f", "Running", "n")])
    assert found == Counts(pending=2, running=2, succeeded=1, failed=1, scheduled=5)


def test_a_pod_behind_its_gate_is_not_stuck() -> None:
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    assert stuck([seen("a", "Pending"), seen("b", "Pending", conditions=[told])]) == "0/3 nodes"
    assert stuck([seen("a", "Pending", conditions=[told], gates=[{"name": "g"}])]) == ""
    assert stuck([seen("a", "Pending", conditions=[{**told, "message": ""}])]) == "pod a has no node"
    assert stuck([seen("a", "Pending", conditions=[{**told, "status": "True"}])]) == ""


def test_the_status_is_written_once_and_conditions_of_others_stay() -> None:
    own = {"type": "Other", "status": "True"}
    group = {"status": {"phase": "Pending", "conditions": [own]}}
    waits = standing(waits="the queue is full")
    patch = status_patch(System.VOLCANO, group, waits)
    assert [each["type"] for each in patch["conditions"]] == ["Other", "Unschedulable"]
    assert set(patch) == {"conditions"}, "counts that are 0 are left out as they came"
    written = {"status": {**group["status"], **stamped(patch, "2026-01-01T00:00:00Z")}}
    assert status_patch(System.VOLCANO, written, waits) == {}
    again = status_patch(System.VOLCANO, written, standing(running=2))
    assert again["phase"] == "Running"
    assert [each["type"] for each in again["conditions"]] == ["Other", "Scheduled"]
    assert (again["running"], "lastTransitionTime" in again["conditions"][1]) == (2, False)


def test_a_condition_that_says_the_same_keeps_its_time() -> None:
    once = stamped(status_patch(System.KAI, {}, standing(waits="OverLimit: Queue q has all")), "then")
    assert once["conditions"][0]["lastTransitionTime"] == "then"
    assert stamped(once, "now") == once
    (explained,) = once["schedulingConditions"]
    assert (explained["type"], explained["nodePool"]) == ("UnschedulableOnNodePool", "default")
    assert (explained["reason"], explained["lastTransitionTime"]) == ("OverLimit", "then")
    assert explained["reasons"] == [{"reason": "OverLimit", "message": "OverLimit: Queue q has all"}]
    assert status_patch(System.KAI, {"status": once}, standing(waits="OverLimit: Queue q has all")) == {}
    later = status_patch(System.KAI, {"status": once}, standing(running=2), {"allocated": {"cpu": "2"}})
    assert (later["schedulingConditions"], later["resourcesStatus"]) == ([], {"allocated": {"cpu": "2"}})


def test_kai_has_no_other_reason_than_its_own_or_volcanos() -> None:
    (told,) = status_patch(System.KAI, {}, standing(waits="full"))["schedulingConditions"]
    assert told["reason"] == "NotEnoughResources"
    assert status_patch(System.KAI, {}, Standing(minimum=1, counts=Counts(pending=3)))["pending"] == 3
