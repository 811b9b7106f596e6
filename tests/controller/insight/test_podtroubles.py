"""Why the pods of an admitted Workload do not run, and what happens next."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.insight.podtroubles import FailurePolicy, pods_shown, troubles, with_sizes
from controller.objects.decode import decode
from controller.objects.workload import Workload
from inventory.api.names import GANG_SCHEDULED, ON_GPU_FAILURE
from tests.support.controller.gpunodes import observed

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
NO_ROOM = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def pod(name: str, phase: str = "Pending", notes: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "team", "annotations": notes or {}}
    return {"metadata": meta, "spec": {}, "status": {"phase": phase, **status}}


def unscheduled(reason: str = "Unschedulable", at: datetime = AT) -> list[dict[str, Any]]:
    since = at.isoformat().replace("+00:00", "Z")
    said = {"type": "PodScheduled", "status": "False", "reason": reason, "message": NO_ROOM}
    return [{**said, "lastTransitionTime": since}]


def told(*pods: dict[str, Any], expected: int = 0, **policy: Any) -> list[tuple[str, str]]:
    found = troubles(pods, expected or len(pods), NODES, FailurePolicy(**policy), settled=True)
    return [(each.sentence, each.next) for each in found]


HEALTH = {"state": "Unhealthy", "reasons": ["XID 79: the GPU has fallen off the bus"], "since": AT.isoformat()}
NODES = (
    observed(
        "n-1",
        devices=[{"uuid": "GPU-0", "index": 0}, {"uuid": "GPU-3", "index": 3, "health": HEALTH}],
        holders=[
            {"device": "GPU-0", "namespace": "team", "pod": "well"},
            {"device": "GPU-3::1", "namespace": "team", "pod": "hit"},
        ],
    ),
)


def test_pods_that_run_or_have_ended_are_no_trouble() -> None:
    assert told(pod("well", "Running"), pod("done", "Succeeded", conditions=unscheduled())) == []


def test_pods_without_a_node_are_counted_with_the_schedulers_own_sentence_and_since_when() -> None:
    later = datetime(2026, 1, 1, 13, tzinfo=UTC)
    pods = (pod("b", conditions=unscheduled(at=later)), pod("a", conditions=unscheduled()), pod("well", "Running"))
    (found,) = troubles(pods, 3, NODES, FailurePolicy(ready_s=300), settled=True)
    assert found.sentence == f"2 of 3 pods find no node: {NO_ROOM}"
    assert (found.pods, found.since) == (("a", "b"), AT)
    assert found.next.endswith("Where its pods are not all ready 5m after admission, it is evicted and waits again")


NO_LABEL = (
    "0/3 nodes are available: {} node(s) didn't match Pod's node affinity/selector{}. no new claims to deallocate, "
    "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
)
"""As kube-scheduler 1.36 says it."""


@pytest.mark.parametrize(
    ("said", "then"),
    [
        (NO_LABEL.format(3, ""), "It starts once a node has gpu=h100: none has; its quota is kept meanwhile"),
        (NO_LABEL.format(2, ", 1 Insufficient nvidia.com/gpu"), "It starts once a node has room; its quota is kept"),
    ],
)
def test_where_no_node_has_the_labels_room_is_not_what_is_waited_for(said: str, then: str) -> None:
    waits = pod("a", conditions=[{**unscheduled()[0], "message": said}])
    waits["spec"] = {"nodeSelector": {"gpu": "h100"}}
    ((_, next_),) = told(waits)
    assert next_.startswith(then)


@pytest.mark.parametrize(
    ("annotation", "policy", "then"),
    [
        (None, None, "The controller's gpuFailures.policy decides"),
        (None, "notify", "Its pods keep what they have (policy notify)"),
        ("evict", "notify", "The pod is evicted"),
        ("requeue-gang", None, "The workload is evicted"),
        ("nonsense", "evict", "The pod is evicted"),
    ],
)
def test_a_failed_gpu_is_named_with_its_fault_and_what_the_policy_does(
    annotation: str | None, policy: str | None, then: str
) -> None:
    notes = {} if annotation is None else {ON_GPU_FAILURE: annotation}
    ((sentence, following),) = told(pod("hit", "Running", notes), pod("well", "Running"), on_gpu_failure=policy)
    assert sentence == ("1 of 2 pods has a GPU that failed: GPU 3 of n-1: XID 79: the GPU has fallen off the bus")
    assert following.startswith(then)


def test_a_gate_an_image_that_is_not_there_and_a_pod_that_is_not_made_are_told_too() -> None:
    gated = pod("g", conditions=unscheduled("SchedulingGated"))
    gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    starts = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
    image = pod("i", containerStatuses=[{"name": "main", "state": {"waiting": waiting}}, starts])
    assert [sentence for sentence, _ in told(gated, image, expected=3)] == [
        "1 of 3 pods is held by a gate: example.com/wait",
        "1 of 3 pods does not start: main: ImagePullBackOff: not found",
        "1 of 3 pods does not exist: its job has not made all of them",
    ]
    assert troubles((), 3, (), FailurePolicy(), settled=False) == ()


def test_gated_pods_beyond_those_that_were_admitted_are_not_counted() -> None:
    admitted = decode({"status": {"admission": {"podSetAssignments": [{"name": "main", "count": 2}]}}}, Workload)
    every = [pod(name, conditions=unscheduled("SchedulingGated")) for name in "abcd"]
    for each in every[1:]:
        each["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    every[0] = pod("a", "Running")
    shown = pods_shown(admitted, [pod("old", "Failed"), *every], NODES, FailurePolicy(), AT)
    assert shown is not None
    (held,) = shown["troubles"]
    assert held["pods"] == ("b",)


def test_a_gang_that_the_scheduler_refuses_is_told_when_its_quota_is_taken_back() -> None:
    def said(type_: str, status: str, reason: str, ago_s: int) -> dict[str, Any]:
        at = (AT - timedelta(seconds=ago_s)).isoformat()
        return {"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": at}

    placed = {"levels": ["kubernetes.io/hostname"], "slices": []}
    admission = {"podSetAssignments": [{"name": "main", "count": 1, "topologyAssignment": placed}]}
    conditions = [said("Admitted", "True", "Admitted", 30), said(GANG_SCHEDULED, "False", "Unschedulable", 20)]
    admitted = decode({"status": {"admission": admission, "conditions": conditions}}, Workload)
    shown = pods_shown(admitted, [pod("a", conditions=unscheduled())], NODES, FailurePolicy(), AT)
    assert shown is not None
    assert shown["troubles"][0]["next"].endswith("; its quota is taken back in 40s")


def test_a_pod_that_is_larger_than_every_node_does_not_wait_for_room() -> None:
    large = "No node of flavor gpu is large enough for a pod of main: it asks for 9, and the largest node has 8"
    (wait,) = troubles((pod("a", conditions=unscheduled()),), 1, NODES, FailurePolicy(ready_s=300), settled=True)
    (lost,) = troubles((pod("hit"),), 1, NODES, FailurePolicy(), settled=True)
    shown = {"troubles": [{"kind": each.kind, "next": each.next} for each in (wait, lost)]}
    told = with_sizes(shown, large)
    assert told is not None
    first, second = (each["next"] for each in told["troubles"])
    assert first.startswith(f"It never starts on these nodes. {large}; its quota is kept meanwhile. Where its pods")
    assert second == lost.next
    assert with_sizes(shown, None) == shown
