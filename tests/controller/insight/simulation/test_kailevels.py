"""KAI's annotations for levels of a topology: on jobs, pod templates and pods in its queues."""

from typing import Any

import pytest

from controller.insight.simulation.documents import InputError
from controller.insight.simulation.timeline import SimulationResult
from tests.controller.insight.simulation.test_mirroredqueues import kai_queue, pod
from tests.controller.insight.simulation.test_podgroups import RACK
from tests.controller.insight.simulation.test_podgroups import node as racked
from tests.support.controller.manifests import GPU, job, run, told

LABELS = {"kai.scheduler/queue": "team"}
REQUIRED, PREFERRED = "kai.scheduler/topology-required-placement", "kai.scheduler/topology-preferred-placement"
MINIMUM = "kai.scheduler/batch-min-member"


def node(name: str, rack: str, gpus: int) -> dict[str, Any]:
    found = racked(name, rack, gpus)
    found["status"]["allocatable"] |= {"cpu": "64", "memory": "1Gi"}
    return found


NODES = (node("a", "r1", 1), node("b", "r2", 1), node("c", "r2", 1), node("d", "r3", 1))
WORLD = (kai_queue("dept"), kai_queue("team", "dept", quota=8), *NODES)


def kais(pods: int, marks: dict[str, str], least: int | None = None) -> dict[str, Any]:
    body = job("j", 1, queue="")
    body["metadata"]["labels"] = LABELS
    body["metadata"]["annotations"] |= {"kai.scheduler/topology": "dc", MINIMUM: str(least or pods), **marks}
    body["spec"] |= {"parallelism": pods, "completions": pods}
    return body


def nodes(result: SimulationResult, name: str = "j") -> set[str]:
    entries = [one for one in result.timeline if one.event == "Admitted" and one.workload == f"ns/{name}"]
    return {each.node for one in entries for each in one.placement}


def why(result: SimulationResult, name: str = "j") -> str:
    assert f"0 Pending {name}" in told(result)
    return next(one.message for one in result.timeline if one.workload == f"ns/{name}")


def training(marks: dict[str, str], **counts: int) -> dict[str, Any]:
    """A PyTorchJob whose workers say ``marks``."""
    spec = {"containers": [{"name": "pytorch", "resources": {"limits": {GPU: "1"}}}]}
    meta = {"Worker": {"annotations": marks}}
    specs = {
        name: {"replicas": pods, "template": {"metadata": meta.get(name, {}), "spec": spec}}
        for name, pods in counts.items()
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "namespace": "ns", "labels": LABELS},
        "spec": {"pytorchReplicaSpecs": specs, "runPolicy": {"schedulingPolicy": {"minAvailable": 1}}},
    }


def test_a_job_lies_in_one_domain_of_the_level_that_it_requires() -> None:
    assert nodes(run(*WORLD, kais(2, {REQUIRED: RACK}))) == {"b", "c"}
    assert nodes(run(*WORLD, kais(2, {PREFERRED: RACK}))) == {"b", "c"}


def test_it_waits_where_no_domain_is_large_enough_and_a_wish_does_not() -> None:
    result = run(*WORLD, kais(3, {REQUIRED: RACK}))
    assert RACK in why(result)
    assert nodes(run(*WORLD, kais(3, {PREFERRED: RACK}))) != set()


def test_a_level_that_no_node_has_is_told() -> None:
    assert "example.com/row" in why(run(*WORLD, kais(1, {REQUIRED: "example.com/row"})))


def test_a_level_that_is_no_label_is_refused() -> None:
    with pytest.raises(InputError, match=r"\[kai.scheduler/topology-required-placement\]: expected a label of nodes"):
        run(*WORLD, kais(1, {REQUIRED: "a rack"}))


def test_pods_above_the_minimum_join_its_domain() -> None:
    result = run(*WORLD, kais(3, {REQUIRED: RACK}, least=2))
    assert nodes(result) == {"b", "c"}
    assert "0 Pending j-2" in told(result)


def test_levels_of_one_pod_template_bind_its_pods_and_the_job_starts_whole() -> None:
    result = run(*WORLD, training({REQUIRED: RACK}, Master=1, Worker=2))
    assert told(result) == ["0 Admitted j"]
    assert {"b", "c"} < nodes(result)
    assert "0 Pending j" in told(run(*WORLD, training({REQUIRED: RACK}, Master=1, Worker=3)))


def test_a_pod_by_itself_is_on_a_node_of_the_level() -> None:
    bare = node("x", "", 2)
    del bare["metadata"]["labels"][RACK]
    meta = {"labels": LABELS, "annotations": {REQUIRED: RACK}}
    assert why(run(*WORLD[:2], bare, pod("p", meta=meta)), "p")
    assert nodes(run(*WORLD[:3], bare, pod("p", meta=meta)), "p") == {"a"}


def test_each_group_of_a_leader_worker_set_lies_in_a_domain() -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}]}}
    given = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "s", "namespace": "ns", "labels": LABELS, "annotations": {REQUIRED: RACK}},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}},
    }
    result = run(*WORLD, node("e", "r3", 1), given)
    groups = [one.placement for one in result.timeline if one.event == "Admitted"]
    assert sorted(sorted(each.node for each in group) for group in groups) == [["b", "c"], ["d", "e"]]


def test_in_a_queue_of_kueues_the_annotations_say_nothing() -> None:
    body = kais(2, {REQUIRED: "a rack"})
    body["metadata"]["labels"] = {}
    assert told(run(*WORLD, body)) == []
