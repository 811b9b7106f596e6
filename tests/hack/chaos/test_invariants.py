"""Each invariant tells its own wrong, and a world in order tells none."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.chaos.invariants import JOB_UID, Findings, JobUid, Json, Seen, judge, last_line, over_quota

GPU = "nvidia.com/gpu"


def job(name: str, *, done: bool = False, given_up: bool = False, suspend: bool = False, **status: Any) -> Json:
    ends = {"Complete": done, "Failed": given_up}
    conditions = [{"type": type_, "status": "True"} for type_, is_so in ends.items() if is_so]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"suspend": suspend},
        "status": {"conditions": conditions, **status},
    }


def workload(of: str, *conditions: str, queue: str = "a", gpus: int = 1, count: int = 1) -> Json:
    assignment = {"name": "main", "count": count, "flavors": {GPU: "gpus"}, "resourceUsage": {GPU: str(gpus)}}
    return {
        "metadata": {"name": f"job-{of}", "ownerReferences": [{"uid": f"uid-{of}"}]},
        "status": {
            "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]},
            "conditions": [{"type": one, "status": "True"} for one in conditions],
        },
    }


def pod(of: str, phase: str = "Running") -> Json:
    meta = {"name": f"{of}-0", "labels": {JOB_UID: f"uid-{of}"}}
    return {"metadata": meta, "spec": {"nodeName": "node-1"}, "status": {"phase": phase}}


def queue(name: str, gpus: int, cohort: str = "") -> Json:
    flavors = [{"name": "gpus", "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}]
    spec = {"cohortName": cohort, "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}]}
    return {"metadata": {"name": name}, "spec": spec}


def seen(*jobs: Json, workloads: tuple[Json, ...] = (), pods: tuple[Json, ...] = (), **more: Any) -> Seen:
    accepted = {JobUid(one["metadata"]["uid"]): one["metadata"]["name"] for one in jobs}
    return Seen(**{"accepted": accepted, "jobs": jobs, "workloads": workloads, "pods": pods, **more})


OVER = seen(job("x", done=True), workloads=(workload("x", "Admitted", "Finished"),), queues=(queue("a", 0),))


def asking(one: Json, **resources: Any) -> Json:
    return {**one, "spec": {**one["spec"], "template": {"spec": {"containers": [{"resources": resources}]}}}}


def test_what_waits_behind_the_job_controllers_back_off_is_not_the_queues_either() -> None:
    """A job whose pods failed holds what it asked for, until the Job controller makes others."""
    held = asking(job("held", failed=2), limits={"mig": "1"})
    behind = asking(job("behind", suspend=True), limits={"mig": "1"})
    other = asking(job("other", suspend=True), claims=[{"name": "gpu"}])
    admitted = (workload("held", "Admitted"),)

    def told(*jobs: Json) -> list[str]:
        return [line for line in judge(seen(*jobs, workloads=admitted)).lines if line.startswith("unsettled")]

    assert told(held, behind) == []
    assert told(held, behind, other) == ["unsettled: job other waits"]
    running = asking(job("held", failed=2, active=1), limits={"mig": "1"})
    assert told(running, behind) == ["unsettled: job behind waits", "unsettled: job held is not over"]


def test_a_world_in_order_has_nothing_to_tell() -> None:
    assert judge(OVER).lines == []


@pytest.mark.parametrize(
    ("given_", "line"),
    [
        (seen(accepted={JobUid("uid-x"): "x"}), "lost: job x was accepted and is gone"),
        (seen(job("x")), "lost: job x runs and has no Workload"),
        (seen(job("x", given_up=True), workloads=(workload("x", "Finished"),)), "lost: job x was given up"),
        (seen(job("x", given_up=True, failed=1), workloads=(workload("x", "Admitted"),)), "lost: job x was given up"),
        (seen(twice=["GPU-1: a and b"]), "doubled: GPU-1: a and b"),
        (
            seen(job("x"), workloads=(workload("x", "Admitted", gpus=3),), queues=(queue("a", 2),)),
            "quota: a alone: 3 of nvidia.com/gpu in flavor gpus are held, 2 may be",
        ),
        (
            seen(job("x"), workloads=(workload("x", "QuotaReserved"),), pods=(pod("x"),)),
            "quota: pod x-0 runs and is not admitted",
        ),
        (seen(job("x", suspend=True), workloads=(workload("x"),)), "unsettled: job x waits"),
        (seen(job("x", suspend=True)), "unsettled: job x waits"),
        (seen(job("x", active=1), workloads=(workload("x", "Admitted"),)), "unsettled: job x is not over"),
        (
            seen(job("x", done=True), workloads=(workload("x", "Admitted"),)),
            "unsettled: job x is complete, its Workload is not finished",
        ),
        (seen(unwell=["GPU 3 is Unhealthy"]), "unsettled: GPU 3 is Unhealthy"),
    ],
)
def test_each_wrong_is_told(given_: Seen, line: str) -> None:
    assert line in judge(given_).lines


def test_a_job_that_the_job_controller_holds_back_is_nobodys_fault() -> None:
    assert judge(seen(job("x", failed=2), workloads=(workload("x", "Admitted"),), queues=(queue("a", 1),))).lines == []


def test_a_pod_that_has_ended_needs_no_admission() -> None:
    given_ = seen(job("x", failed=1), workloads=(workload("x"),), pods=(pod("x", "Failed"),))
    assert not [line for line in judge(given_).lines if "not admitted" in line and "pod" in line]


@given(st.lists(st.integers(1, 9), max_size=6), st.lists(st.integers(0, 20), min_size=1, max_size=3))
def test_queues_of_one_cohort_may_hold_what_all_have_and_no_more(held: list[int], given_: list[int]) -> None:
    queues = [queue(f"q{number}", gpus, "all") for number, gpus in enumerate(given_)]
    workloads = [workload(f"w{number}", "Admitted", queue="q0", gpus=gpus) for number, gpus in enumerate(held)]
    assert bool(list(over_quota(workloads, queues))) == (sum(held) > sum(given_))


def test_pods_that_have_ended_for_good_hold_nothing() -> None:
    one = workload("x", "Admitted", gpus=4, count=4)
    assert list(over_quota([one], [queue("a", 2)]))
    less = copy.deepcopy(one)
    less["status"]["reclaimablePods"] = [{"name": "main", "count": 2}]
    assert not list(over_quota([less], [queue("a", 2)]))


def test_the_last_line_has_the_form_that_scripts_read() -> None:
    found = Findings(lost={"a"}, doubled={"b", "c"})
    expected = "chaos: seed 7, 12 kills, 9 kinds of fault, 1 lost, 2 doubled, 0 over quota, 0 unsettled"
    assert last_line(7, 12, 9, found) == expected
