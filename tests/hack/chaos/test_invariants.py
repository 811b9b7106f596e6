"""Each invariant tells its own wrong, and a world in order tells none."""

from typing import Any

import pytest

from hack.chaos.invariants import Findings, JobUid, Json, Seen, judge, last_line

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


def seen(*jobs: Json, workloads: tuple[Json, ...] = (), **more: Any) -> Seen:
    accepted = {JobUid(one["metadata"]["uid"]): one["metadata"]["name"] for one in jobs}
    return Seen(**{"accepted": accepted, "jobs": jobs, "workloads": workloads, **more})


OVER = seen(job("x", done=True), workloads=(workload("x", "Admitted", "Finished"),))


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
    assert judge(seen(job("x", failed=2), workloads=(workload("x", "Admitted"),))).lines == []


def test_the_last_line_has_the_form_that_scripts_read() -> None:
    found = Findings(lost={"a"}, doubled={"b", "c"})
    expected = "chaos: seed 7, 12 kills, 9 kinds of fault, 1 lost, 2 doubled, 0 over quota, 0 unsettled"
    assert last_line(7, 12, 9, found) == expected
