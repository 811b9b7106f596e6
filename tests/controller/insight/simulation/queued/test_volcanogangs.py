"""Volcano Jobs in a simulation: they start with their minimum and grow."""

from typing import Any

from tests.support.controller.manifests import GPU, cluster_queue, flavor, job, local_queue, run, told


def vcjob(*tasks: tuple[str, int], meta: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """``tasks``: their names and replicas; a GPU for each pod."""
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {GPU: "1"}}}]}}
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ns", "labels": labels, **(meta or {})},
        "spec": {"tasks": [{"name": name, "replicas": count, "template": template} for name, count in tasks], **spec},
    }


LIMITED = {"withinClusterQueue": "LowerPriority"}


def test_a_job_grows_and_gives_back_what_is_above_its_minimum() -> None:
    meta = {"annotations": {"tessera.dev/arrival": "1s", "tessera.dev/runtime": "10s"}}
    result = run(
        flavor(),
        cluster_queue(gpus=3, preemption=LIMITED),
        local_queue(),
        vcjob(("worker", 4), meta=meta, minAvailable=2),
        job("urgent", arrival="5s", runtime="2s"),
    )
    assert told(result) == [
        "1 Admitted train",
        "1 Admitted train-worker-2",
        "1 Pending train-worker-3",
        "5 Preempted train-worker-2",
        "5 Admitted urgent",
        "5 Pending train-worker-2",
        "7 Finished urgent",
        "7 Admitted train-worker-2",
        "11 Finished train",
        "11 Admitted train-worker-3",
        "17 Finished train-worker-2",
        "21 Finished train-worker-3",
    ]


def test_a_task_may_be_above_the_minimum_as_a_whole() -> None:
    result = run(flavor(), cluster_queue(gpus=2), local_queue(), vcjob(("master", 1), ("worker", 2), minAvailable=1))
    assert told(result) == ["0 Admitted train", "0 Admitted train-worker-0", "0 Pending train-worker-1"]


def test_a_job_of_slices_is_one_workload() -> None:
    meta = {
        "annotations": {"kueue.x-k8s.io/elastic-job": "true"},
        "labels": {"kueue.x-k8s.io/queue-name": "main"},
    }
    assert told(run(flavor(), cluster_queue(), local_queue(), vcjob(("worker", 4), meta=meta, minAvailable=2))) == [
        "0 Admitted train"
    ]
