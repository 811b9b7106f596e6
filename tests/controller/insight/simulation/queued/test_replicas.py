"""Deployments in a simulation: a workload a replica, and those above the minimum give way."""

from typing import Any

import pytest

from controller.insight.simulation.documents import InputError
from tests.controller.insight.simulation.test_podgroups import pod
from tests.support.controller.manifests import GPU, cluster_queue, kueue, local_queue, run, told


def deployment(
    name: str, replicas: int | None = None, *, queue: str = "main", minimum: str | None = None, **annotations: str
) -> dict[str, Any]:
    """``annotations``: of Tessera."""
    said = {f"tessera.dev/{key}": value for key, value in annotations.items()}
    if minimum is not None:
        said["tessera.dev/min-replicas"] = minimum
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}]},
    }
    spec = {"template": template, "selector": {"matchLabels": {"app": name}}}
    if replicas is not None:
        spec["replicas"] = replicas
    metadata = {"name": name, "namespace": "ns", "labels": labels, "annotations": said}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


FLAVOR = kueue("ResourceFlavor", "a100")
QUEUE = (FLAVOR, cluster_queue(), local_queue())


def test_each_replica_is_a_workload_of_its_own() -> None:
    result = run(FLAVOR, cluster_queue(gpus=2), local_queue(), deployment("web", 3, runtime="5s"))
    assert told(result) == [
        "0 Admitted web-0",
        "0 Admitted web-1",
        "0 Pending web-2",
        "5 Finished web-0",
        "5 Finished web-1",
        "5 Admitted web-2",
        "10 Finished web-2",
    ]


def test_training_takes_the_replicas_above_the_minimum_and_no_others() -> None:
    result = run(
        FLAVOR,
        cluster_queue(gpus=3, preemption={"withinClusterQueue": "LowerPriority"}),
        local_queue(),
        deployment("web", 3, minimum="1"),
        pod("train", 2, arrival="1s", runtime="4s"),
    )
    assert [line for line in told(result) if line.startswith("1 Preempted")] == [
        "1 Preempted web-1",
        "1 Preempted web-2",
    ]
    assert set(result.final.running) == {"ns/web-0", "ns/web-1", "ns/web-2"}


def test_one_without_a_queue_is_passed_over_and_one_replica_is_the_default() -> None:
    assert told(run(*QUEUE, deployment("web", queue=""))) == []
    assert told(run(*QUEUE, deployment("web"))) == ["0 Admitted web-0"]
    assert told(run(*QUEUE, deployment("web", 0))) == []


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (deployment("web", 1, minimum="x"), "expected a number of replicas of at least 0, found 'x'"),
        (deployment("web", -1), "spec.replicas: expected 0 to 100000, found -1"),
    ],
)
def test_what_cannot_be_is_refused_with_its_document(body: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=r"document \d+: Deployment web: ") as error:
        run(*QUEUE, body)
    assert sentence in str(error.value)
