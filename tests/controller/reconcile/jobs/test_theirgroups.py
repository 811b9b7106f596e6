"""Half of a gang that runs in a PodGroup of others: which of its pods have no node any more."""

from typing import Any

from controller.reconcile.jobs.theirgroups import without_node

SINCE_S = 1_767_225_600.0
"""The first second of 2026."""


def pod(name: str, *, node: str = "", phase: str = "Pending", **conditions: tuple[str, str, str]) -> dict[str, Any]:
    """A pod with conditions: status, reason and time of each."""
    said = [
        {"type": type_, "status": status, "reason": reason, "lastTransitionTime": at}
        for type_, (status, reason, at) in conditions.items()
    ]
    spec = {"nodeName": node} if node else {}
    return {"metadata": {"name": name, "uid": name}, "spec": spec, "status": {"phase": phase, "conditions": said}}


NOW = "2026-01-01T00:00:05Z"
WAITS = ("False", "Unschedulable", NOW)
RUNS = pod("runs", node="n", phase="Running")


def test_a_pod_without_a_node_beside_one_that_runs_is_half_of_a_gang() -> None:
    assert without_node([RUNS, pod("waits", PodScheduled=WAITS)], SINCE_S) == {"waits": False}


def test_pods_that_all_wait_are_no_half() -> None:
    assert without_node([pod("a", PodScheduled=WAITS), pod("b", PodScheduled=WAITS)], SINCE_S) == {}
    assert without_node([RUNS, pod("starts", node="n")], SINCE_S) == {}


def test_a_pod_that_kube_scheduler_has_preempted_is_lost_from_the_first_look_on() -> None:
    taken = ("True", "PreemptionByScheduler", NOW)
    lost = pod("lost", node="n", phase="Failed", DisruptionTarget=taken)
    assert without_node([RUNS, lost], SINCE_S) == {"lost": True}
    assert without_node([lost], SINCE_S) == {}, "nothing runs that could be half of it"
    before = ("True", "PreemptionByScheduler", "2025-12-31T23:59:59Z")
    assert without_node([RUNS, pod("old", node="n", DisruptionTarget=before)], SINCE_S) == {}
    other = ("True", "DeletionByTaintManager", NOW)
    assert without_node([RUNS, pod("moved", node="n", DisruptionTarget=other)], SINCE_S) == {}


def test_a_pod_that_waits_beside_as_many_as_the_gang_needs_is_no_half() -> None:
    waits, runs = pod("waits", PodScheduled=WAITS), [RUNS, pod("also", node="n", phase="Running")]
    assert without_node([*runs, waits], SINCE_S, 2) == {}
    assert without_node([*runs, waits], SINCE_S, 3) == {"waits": False}
    lost = pod("lost", node="n", phase="Failed", DisruptionTarget=("True", "PreemptionByScheduler", NOW))
    assert without_node([*runs, lost, waits], SINCE_S, 2) == {"lost": True}
