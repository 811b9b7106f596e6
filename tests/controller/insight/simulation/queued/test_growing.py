"""Jobs in queues of KAI's in a simulation: they begin with their minimum and grow."""

from typing import Any

import pytest

from controller.insight.simulation.documents import InputError
from tests.controller.insight.simulation.test_mirroredqueues import kai_queue, node, used
from tests.support.controller.manifests import GPU, job, run, told

LABELS = {"kai.scheduler/queue": "team"}
QUEUES = (kai_queue("dept"), kai_queue("team", "dept", quota=8))


def kais(name: str, pods: int, least: int = 1, **more: Any) -> dict[str, Any]:
    """A Job of KAI's: a GPU for each of its pods."""
    body = job(name, 1, queue="", **more)
    body["metadata"]["labels"] = LABELS
    body["metadata"]["annotations"] |= {"kai.scheduler/batch-min-member": str(least)}
    body["spec"] |= {"parallelism": pods, "completions": pods}
    return body


def test_a_job_grows_as_there_is_room() -> None:
    first, other = kais("a", 3, 2, arrival="1s", runtime="10s"), kais("b", 2, 2, runtime="5s")
    assert told(run(node(gpus=4), *QUEUES, first, other)) == [
        "0 Admitted b",
        "1 Admitted a",
        "1 Pending a-2",
        "5 Finished b",
        "5 Admitted a-2",
        "11 Finished a",
        "15 Finished a-2",
    ]


def test_a_job_starts_whole_where_the_configuration_queues_no_pods() -> None:
    result = run(node(gpus=4), *QUEUES, kais("a", 3, 2), using="tessera: {}\nintegrations: {frameworks: [batch/job]}")
    assert told(result) == ["0 Admitted a"]


def test_pods_above_are_called_by_their_pod_set_where_there_are_several() -> None:
    pod = {"containers": [{"name": "pytorch", "resources": {"limits": {GPU: "1"}}}]}
    specs = {type_: {"replicas": count, "template": {"spec": pod}} for type_, count in (("Master", 1), ("Worker", 3))}
    spec = {"pytorchReplicaSpecs": specs, "runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}
    meta = {"name": "train", "namespace": "ns", "labels": LABELS}
    given = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}
    machine = node(gpus=3)
    machine["status"]["allocatable"]["memory"] = "1Gi"
    result = run(machine, *QUEUES, given)
    assert told(result) == ["0 Admitted train", "0 Admitted train-worker-1", "0 Pending train-worker-2"]
    assert used(result)["team"] == (3, 0)


def test_so_many_pods_that_nobody_could_look_at_them_are_refused() -> None:
    with pytest.raises(InputError, match="Job a: expected at most 100000 pods above its minimum, found 100001"):
        run(node(), *QUEUES, kais("a", 100_002))
