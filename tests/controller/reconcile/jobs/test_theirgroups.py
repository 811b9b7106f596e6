"""Half of a gang that runs in a PodGroup of others: which of its pods have no node any more."""

from typing import Any

from controller.reconcile.jobs.theirgroups import HALF_S, Look, looked, missing, without_node

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


def failed(name: str, ended: str = "", *, index: str = "") -> dict[str, Any]:
    """A pod that has failed of itself; ``ended``: the time at which its container did."""
    found = pod(name, node="n", phase="Failed")
    found["status"]["containerStatuses"] = [{"state": {"terminated": {"finishedAt": ended}}}] if ended else []
    return created(found, "2026-01-01T00:00:01Z", index=index)


def created(of: dict[str, Any], at: str, *, index: str = "") -> dict[str, Any]:
    notes = {"batch.kubernetes.io/job-completion-index": index} if index else {}
    return {**of, "metadata": {**of["metadata"], "creationTimestamp": at, "annotations": notes}}


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


def test_pods_that_all_end_are_no_half() -> None:
    ends = {**RUNS, "metadata": {**RUNS["metadata"], "deletionTimestamp": NOW}}
    assert without_node([ends, pod("waits", PodScheduled=WAITS)], SINCE_S) == {}
    assert missing([ends], SINCE_S, 4) == 0


def test_pods_that_were_deleted_beside_one_that_runs_are_missing() -> None:
    assert missing([RUNS], SINCE_S, 4) == 3
    assert missing([RUNS, pod("made")], SINCE_S, 2) == 0, "one that has just been made gets its node"
    assert missing([], SINCE_S, 4) == 0, "a gang whose pods are not made yet"
    assert missing([pod("a"), pod("b")], SINCE_S, 4) == 0, "a gang of which kube-scheduler has started none"
    assert missing([RUNS], SINCE_S, 1) == 0, "the last of the completions"


def test_a_pod_that_failed_of_itself_and_waits_for_its_retry_is_not_missing() -> None:
    runs = created(RUNS, "2026-01-01T00:00:02Z")
    assert missing([runs, failed("f", NOW)], SINCE_S, 2) == 0
    assert missing([runs, failed("f")], SINCE_S, 2) == 0, "nothing says when it ended"
    assert missing([runs, failed("f", NOW)], SINCE_S, 4) == 2, "two others were deleted"


def test_a_pod_that_was_retried_excuses_no_pod_that_is_missing() -> None:
    retry = created(RUNS, "2026-01-01T00:00:20Z")
    assert missing([retry, failed("f", NOW)], SINCE_S, 2) == 1
    other = created(RUNS, "2026-01-01T00:00:20Z", index="1")
    assert missing([other, failed("f", NOW, index="0")], SINCE_S, 2) == 0, "another index was made anew"


def lost(*looks: tuple[float, list[dict[str, Any]]]) -> list[int]:
    """The pods that each look tells as lost; a look is a time and the pods that are there."""
    found: list[int] = []
    before: Look | None = None
    for now_s, pods in looks:
        before = looked(pods, SINCE_S, 4, before, now_s)
        found.append(before.lost)
    return found


def test_a_gang_of_which_pods_are_missing_is_half_after_twenty_seconds() -> None:
    assert lost((0, [RUNS]), (3, [RUNS]), (HALF_S - 0.1, [RUNS]), (HALF_S, [RUNS])) == [0, 0, 0, 3]
    assert HALF_S < 30


def test_a_gang_whose_missing_pods_come_again_is_no_half() -> None:
    whole = [RUNS, pod("b", node="n"), pod("c", node="n"), pod("d", node="n")]
    assert lost((0, [RUNS]), (11, whole), (HALF_S, whole), (HALF_S + 3, [RUNS])) == [0, 0, 0, 0]


def test_a_pod_that_waits_is_lost_at_the_second_look() -> None:
    half = [RUNS, pod("b", node="n"), pod("c", node="n"), pod("waits", PodScheduled=WAITS)]
    assert lost((0, half), (1, half), (3, half)) == [0, 0, 1]


def test_a_gang_that_is_half_is_that_at_a_look_before_the_pause_is_over() -> None:
    """The reconciliation that its own verdict brings comes at once, and before the gang is evicted."""
    half = [RUNS, pod("b", node="n"), pod("c", node="n"), pod("waits", PodScheduled=WAITS)]
    assert lost((0, half), (3, half), (3.02, half), (3.04, half)) == [0, 1, 1, 1]
    gone = (HALF_S, [RUNS])
    assert lost((0, [RUNS]), gone, (HALF_S + 0.02, [RUNS])) == [0, 3, 3]


def test_a_gang_whose_pods_have_nodes_again_is_no_half_before_the_pause_is_over() -> None:
    whole = [RUNS, pod("b", node="n"), pod("c", node="n"), pod("d", node="n")]
    half = [*whole[:3], pod("waits", PodScheduled=WAITS)]
    assert lost((0, half), (3, half), (3.02, whole)) == [0, 1, 0]
