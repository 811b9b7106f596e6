"""Rules about Deployments, StatefulSets and LeaderWorkerSets."""

import copy
from typing import Any

import pytest

from controller.jobs.framework.topologyrequest import GROUP_NAME, REQUIRED
from controller.jobs.rules import serving
from controller.scheduler.model.gates import FeatureGates

GATES = FeatureGates()
QUEUE = "kueue.x-k8s.io/queue-name"
RACK = "example.com/rack"


def sts(replicas: int, *, left: int = 0, ready: int = 0, queue: str | None = "q", parent: str | None = None) -> Any:
    stamp = {} if parent is None else {"kueue.x-k8s.io/pod-suspending-parent": parent}
    template = {"metadata": {"annotations": stamp}, "spec": {"containers": [{"name": "c"}]}}
    labels = {} if queue is None else {QUEUE: queue}
    status = {"replicas": left, "readyReplicas": ready}
    return {"metadata": {"labels": labels}, "spec": {"replicas": replicas, "template": template}, "status": status}


def changed(old: Any, new: Any, **more: Any) -> list[tuple[str, str]]:
    return [(one.type, one.field) for one in serving.statefulset_updated(old, new, GATES, **more)]


def test_a_queued_statefulset_has_all_its_replicas_or_none() -> None:
    assert changed(sts(3), sts(0)) == []
    assert changed(sts(0), sts(3)) == []
    assert changed(sts(3), sts(4)) == [("Invalid", "spec.replicas")]
    assert changed(sts(3, queue=None), sts(4, queue=None)) == []
    assert changed(sts(3), sts(4), is_owned=True) == []


def test_a_statefulset_comes_back_when_its_old_pods_and_their_quota_are_gone() -> None:
    held = {"status": {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "OnHold"}]}}
    assert changed(sts(0), sts(3, left=1)) == [("Forbidden", "spec.replicas")]
    assert changed(sts(0), sts(3), workload={}) == [("Forbidden", "spec.replicas")]
    assert changed(sts(0), sts(3), workload=held) == []


def test_a_queue_changes_while_no_replica_is_ready_and_is_never_removed() -> None:
    path = f"metadata.labels[{QUEUE}]"
    assert changed(sts(1), sts(1, queue="r")) == []
    assert changed(sts(1, ready=1), sts(1, ready=1, queue="r")) == [("Invalid", path)]
    assert changed(sts(1), sts(1, queue=None)) == [("Invalid", path)]


def test_a_statefulset_of_another_kind_is_left_to_that_kind() -> None:
    assert serving.statefulset_created(sts(1, queue="no queue", parent="other"), GATES) == []
    assert changed(sts(1, parent="other"), sts(2, parent="other")) == []
    assert len(serving.statefulset_created(sts(1, queue="no queue", parent="statefulset"), GATES)) == 1


def test_requests_of_a_queued_statefulset_stay() -> None:
    new = sts(1)
    new["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    assert changed(sts(1), new) == [("Invalid", "spec.template.spec.containers[0].resources.requests")]


def lws(replicas: int = 1, size: int = 3, *, leader: Any = None, worker: Any = None, queue: str = "q") -> Any:
    template = {"size": size, "workerTemplate": {"metadata": {"annotations": worker or {}}, "spec": {}}}
    if leader is not None:
        template["leaderTemplate"] = {"metadata": {"annotations": leader}, "spec": {}}
    return {"metadata": {"labels": {QUEUE: queue}}, "spec": {"replicas": replicas, "leaderWorkerTemplate": template}}


@pytest.mark.parametrize(("replicas", "allowed"), [(-1, False), (0, True), (1_000_000, True), (1_000_001, False)])
def test_a_leaderworkerset_has_a_million_groups_at_most(replicas: int, *, allowed: bool) -> None:
    found = [one.field for one in serving.leaderworkerset_created(lws(replicas), GATES)]
    assert found == ([] if allowed else ["spec.replicas"])


def test_a_leader_and_its_workers_are_a_group_only_together() -> None:
    member = {GROUP_NAME: "g", REQUIRED: RACK}
    assert serving.leaderworkerset_created(lws(leader=member, worker=member), GATES) == []
    found = [one.field for one in serving.leaderworkerset_created(lws(worker=member), GATES)]
    assert found == [f"spec.leaderWorkerTemplate.workerTemplate.metadata.annotations[{GROUP_NAME}]"]


def test_a_queued_group_keeps_its_size_unless_the_gate_is_off() -> None:
    old, new = lws(size=2), lws(size=4)
    assert [one.field for one in serving.leaderworkerset_updated(old, new, GATES)] == ["spec.leaderWorkerTemplate.size"]
    off = FeatureGates({"LWSImmutableGroupSize": False})
    assert serving.leaderworkerset_updated(old, new, off) == []
    assert serving.leaderworkerset_updated(old, copy.deepcopy(old), GATES) == []


def test_a_deployment_names_a_queue_that_can_be() -> None:
    named = {"metadata": {"labels": {QUEUE: "a/b"}}}
    assert [one.field for one in serving.deployment_created(named, GATES)] == [f"metadata.labels[{QUEUE}]"]
    found = [one.field for one in serving.deployment_updated(named, {"metadata": {}}, GATES)]
    assert found == [f"metadata.labels[{QUEUE}]"]


@pytest.mark.parametrize(("minimum", "fits"), [("0", True), ("3", True), ("-1", False), ("many", False), ("", False)])
def test_a_minimum_of_replicas_is_a_number_and_a_statefulset_has_none(minimum: str, *, fits: bool) -> None:
    body = {"metadata": {"labels": {QUEUE: "q"}, "annotations": {"tessera.dev/min-replicas": minimum}}, "spec": {}}
    field = "metadata.annotations[tessera.dev/min-replicas]"
    wanted = [] if fits else [("Invalid", field)]
    for found in (
        serving.deployment_created(body, GATES),
        serving.deployment_updated(body, body, GATES),
        serving.leaderworkerset_created(body, GATES),
    ):
        assert [(refusal.type, refusal.field) for refusal in found] == wanted
    for found in (serving.statefulset_created(body, GATES), serving.statefulset_updated(body, body, GATES)):
        assert [(refusal.type, refusal.field) for refusal in found] == [("Forbidden", field)]


@pytest.mark.parametrize("changed_", [serving.deployment_updated, serving.leaderworkerset_updated])
def test_nothing_that_serves_becomes_elastic_later_and_what_was_said_before_may_stay(changed_: Any) -> None:
    one, elastic = sts(3), sts(3)
    elastic["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    field = "metadata.annotations[kueue.x-k8s.io/elastic-job]"
    for of_kind in (changed_, serving.statefulset_updated):
        assert [(each.type, each.field) for each in of_kind(one, elastic, GATES)] == [("Forbidden", field)]
        assert of_kind(elastic, elastic, GATES) == of_kind(elastic, one, GATES) == []
        assert of_kind(one, elastic, FeatureGates({"ElasticJobsViaWorkloadSlices": False})) == []
