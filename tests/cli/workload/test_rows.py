"""What a list says of a Workload, and which change a person may make of it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cli.workload.changes import RefusedError, activated, moved, raised
from cli.workload.rows import chosen, owner, row, state_of
from controller.cluster.watching.kinds import JOBS, WORKLOADS
from controller.jobs.framework import names
from controller.objects.decode import decode
from controller.objects.queues import WorkloadPriorityClass
from controller.objects.workload import Workload
from kube.resources import PODS

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HIGH = decode({"metadata": {"name": "high"}, "value": 1000}, WorkloadPriorityClass)
OWN = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "low"}
PODS_CLASS = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "low"}


def made(name: str = "w", *true: str, created: str = "2026-11-21T11:00:00Z", **spec: Any) -> Workload:
    """``true``: conditions that are True, each set five minutes after the one before, from 11:10 on."""
    conditions = [
        {"type": type_, "status": "True", "reason": "R", "lastTransitionTime": f"2026-11-21T11:{10 + 5 * at}:00Z"}
        for at, type_ in enumerate(true)
    ]
    metadata = {"name": name, "namespace": "team", "creationTimestamp": created}
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "nvidia.com/gpu": "2"}}}]}}
    body = {"queueName": "q", "podSets": [{"name": "main", "count": 4, "template": template}], **spec}
    return decode({"metadata": metadata, "spec": body, "status": {"conditions": conditions}}, Workload)


@pytest.mark.parametrize(
    ("true", "active", "state"),
    [
        ((), True, "Pending"),
        ((), False, "Stopped"),
        (("Evicted",), True, "Pending"),
        (("QuotaReserved",), True, "QuotaReserved"),
        (("QuotaReserved", "Admitted"), True, "Admitted"),
        (("QuotaReserved", "Admitted"), False, "Admitted"),
        (("QuotaReserved", "Admitted", "Evicted"), True, "Evicting"),
        (("QuotaReserved", "Admitted", "Finished"), True, "Finished"),
    ],
)
def test_a_state_follows_from_the_conditions(true: tuple[str, ...], active: bool, state: str) -> None:
    assert state_of(made("w", *true, active=active)) == state


def test_a_row_has_what_all_pods_request_and_how_long_it_ran() -> None:
    waits = row(made(priority=7, priorityClassRef=OWN), {("team", "q"): "cq"}, {"team/w": 0}, NOW)
    assert (waits.requests, waits.pods, waits.cluster_queue, waits.position) == ("cpu 2, nvidia.com/gpu 8", 4, "cq", 1)
    assert (waits.exec_s, waits.age_s, waits.priority, waits.priority_class) == (None, 3600.0, 7, "low")
    runs = row(made("w", "QuotaReserved", "Admitted"), {}, {"team/w": 3}, NOW)
    assert (runs.exec_s, runs.position, runs.reason) == (45 * 60.0, None, "")
    assert row(made("w", "QuotaReserved", "Admitted", "Finished"), {}, {}, NOW).exec_s == 5 * 60.0


def test_queues_and_states_choose_and_the_oldest_comes_first() -> None:
    given = [
        made("young", created="2026-11-21T11:59:00Z"),
        made("old", active=False),
        made("runs", "QuotaReserved", "Admitted"),
        made("other", queueName="r"),
    ]
    rows = [row(each, {("team", "q"): "a", ("team", "r"): "b"}, {}, NOW) for each in given]

    def names_of(queue: str | None, local: str | None, *states: str) -> list[str]:
        return [each.name for each in chosen(rows, cluster_queue=queue, local_queue=local, states=states)]

    assert names_of(None, None) == ["old", "other", "runs", "young"]
    assert names_of("a", None, "pending") == ["old", "young"]
    assert names_of(None, "r") == ["other"]
    assert names_of(None, None, "admitted", "finished") == ["runs"]
    assert names_of("b", "q") == []


def test_the_owner_is_the_controller_else_the_first() -> None:
    references = [{"kind": "Pod", "name": "p"}, {"kind": "Job", "name": "j", "controller": True}]
    for given, expected in ((references, ("Job", "j")), (references[:1], ("Pod", "p")), ([], ("", ""))):
        assert owner(decode({"metadata": {"name": "w", "ownerReferences": given}}, Workload)) == expected


def test_a_workload_is_stopped_and_resumed_by_its_own_field() -> None:
    change = activated(made(), active=False)
    assert (change.resource, change.patch) == (WORKLOADS, {"spec": {"active": False}})
    assert change.said == "Workload team/w: stopped"
    assert activated(made(), active=True).said == "Workload team/w: already resumed"
    with pytest.raises(RefusedError, match="is finished, expected one that waits or runs"):
        activated(made("w", "Finished"), active=False)


def test_a_queue_is_changed_on_the_job_and_on_a_workload_without_one_itself() -> None:
    change = moved(made(), (JOBS, "j"), "r")
    assert (change.resource, change.name) == (JOBS, "j")
    assert change.patch == {"metadata": {"labels": {names.QUEUE_NAME: "r"}}}
    assert change.said == "Workload team/w: moved to LocalQueue r (was q)"
    assert moved(made(active=False), None, "r").patch == {"spec": {"queueName": "r"}}


@pytest.mark.parametrize(
    ("true", "queue", "said"),
    [
        (("QuotaReserved",), "r", "found a Workload that holds quota, expected one that waits: stop it"),
        (("QuotaReserved", "Admitted", "Evicted"), "r", "holds quota"),
        (("Finished",), "r", "is finished, expected one that waits"),
        ((), "q", "found in LocalQueue q already, expected another one's name"),
    ],
)
def test_what_does_not_wait_is_not_moved(true: tuple[str, ...], queue: str, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        moved(made("w", *true), (JOBS, "j"), queue)


def test_a_priority_is_changed_by_a_class_of_workloads() -> None:
    change = raised(made(priority=1, priorityClassRef=PODS_CLASS), (JOBS, "j"), HIGH)
    assert change.patch == {"metadata": {"labels": {names.PRIORITY_CLASS: "high"}}}
    assert change.said == "Workload team/w: priority 1000 by high (was 1 by low)"
    own = raised(made("w", "QuotaReserved", priority=1, priorityClassRef=OWN), None, HIGH)
    assert own.patch == {"spec": {"priorityClassRef": {**OWN, "name": "high"}, "priority": 1000}}
    for reference, found in ((PODS_CLASS, "found PriorityClass low"), (None, "found no class")):
        spec: dict[str, Any] = {} if reference is None else {"priorityClassRef": reference, "priority": 1}
        with pytest.raises(RefusedError, match=f"{found} on a Workload that holds quota, expected a WorkloadPriority"):
            raised(made("w", "QuotaReserved", **spec), (JOBS, "j"), HIGH)
    with pytest.raises(RefusedError, match="is finished"):
        raised(made("w", "Finished"), None, HIGH)


def test_a_group_of_pods_is_labelled_pod_by_pod() -> None:
    references = [{"kind": "Pod", "name": name, "uid": name} for name in ("p", "q")]
    group = decode({"metadata": {"name": "w", "namespace": "team", "ownerReferences": references}}, Workload)
    with pytest.raises(RefusedError, match="found a group of 2 pods, expected a job"):
        moved(group, (PODS, "p"), "r")
    alone = decode({"metadata": {"name": "w", "namespace": "team", "ownerReferences": references[:1]}}, Workload)
    assert moved(alone, (PODS, "p"), "r").resource == PODS
