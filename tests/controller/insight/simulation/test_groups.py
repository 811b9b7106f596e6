"""StatefulSets and LeaderWorkerSets in a simulation: a workload a set, a workload a group."""

from typing import Any

from tests.support.controller.manifests import GPU, cluster_queue, kueue, local_queue, run, told

FLAVOR = kueue("ResourceFlavor", "a100")


def template(gpus: int = 1) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: str(gpus)}}}]}}


def serving(kind: str, version: str, name: str, spec: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """``annotations``: of Tessera, with dashes for underscores."""
    said = {f"tessera.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    metadata = {"name": name, "namespace": "ns", "labels": labels, "annotations": said}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def leader_worker_set(name: str, replicas: int, **annotations: str) -> dict[str, Any]:
    spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}}
    return serving("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", name, spec, **annotations)


def stateful_set(name: str, replicas: int, **annotations: str) -> dict[str, Any]:
    spec = {"replicas": replicas, "template": template()}
    return serving("StatefulSet", "apps/v1", name, spec, **annotations)


def test_a_set_runs_as_a_whole_and_groups_one_by_one() -> None:
    objects = (FLAVOR, cluster_queue(gpus=4), local_queue())
    assert told(run(*objects, leader_worker_set("llm", 3))) == [
        "0 Admitted llm-0",
        "0 Admitted llm-1",
        "0 Pending llm-2",
    ]
    assert told(run(*objects, stateful_set("model", 4))) == ["0 Admitted model"]
    assert told(run(*objects, stateful_set("model", 5))) == ["0 Pending model"]


def test_groups_above_the_minimum_give_way() -> None:
    preempting: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    objects = (FLAVOR, cluster_queue(gpus=4, **preempting), local_queue())
    late = stateful_set("late", 2, arrival="10s")
    result = told(run(*objects, leader_worker_set("llm", 2, min_replicas="1"), late))
    assert result[:2] == ["0 Admitted llm-0", "0 Admitted llm-1"]
    assert "10 Admitted late" in result
    assert not [line for line in result if line.endswith("llm-0") and "Admitted" not in line]


def test_a_set_at_zero_arrives_not() -> None:
    result = run(FLAVOR, cluster_queue(gpus=4), local_queue(), stateful_set("model", 0))
    assert told(result) == []
