"""What a pod is charged and where it finds room is what the API server makes of its template."""

from typing import Any

import pytest

from controller.insight.simulation.manifests import scenario
from tests.support.controller.manifests import cluster_queue, config, given, job, kueue, local_queue, plain, run

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"
RANGE = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "l", "namespace": "ns"},
    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]},
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {HOST: "n", "pool": "a"}},
    "status": {
        "allocatable": {"cpu": "5", "memory": "64Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
QUOTA = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 100}]}]}
QUEUES = (
    kueue("Topology", "t", spec={"levels": [{"nodeLabel": HOST}]}),
    kueue("ResourceFlavor", "f", spec={"nodeLabels": {"pool": "a"}, "topologyName": "t"}),
    cluster_queue(resourceGroups=[QUOTA]),
    local_queue(),
    NODE,
)


def asking(container: Json, pods: int = 2, **pod: Any) -> Json:
    found = job("j", pods=pods)
    template = found["spec"]["template"]
    template["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-required-topology": HOST}}
    template["spec"] |= {"containers": [{"name": "main", "resources": container}], **pod}
    return found


def cpu(result: Json) -> float:
    return float(result["final"]["clusterQueues"]["main"]["usage"]["cpu"])


@pytest.mark.parametrize(
    ("asked", "each"),
    [
        (asking({"limits": {"cpu": "2"}}), 2),
        (asking({}), 1),
        (asking({"requests": {"cpu": "500m"}, "limits": {"cpu": "4"}}), 0.5),
        (asking({"requests": {"cpu": "1"}}, resources={"limits": {"cpu": "5"}}), 1),
        (asking({}, resources={"limits": {"cpu": "2"}}), 2),
        (asking({"requests": {"cpu": "1"}}, resources={"requests": {"cpu": "2"}}), 2),
    ],
)
def test_two_pods_run_and_are_charged_as_they_will_be(asked: Json, each: float) -> None:
    found = plain(run(*QUEUES, RANGE, asked))
    assert found["final"]["running"] == ["ns/j"]
    assert cpu(found) == 2 * each
    (placed,) = found["timeline"][0]["placement"]
    assert (placed["node"], placed["pods"]) == ("n", 2)


def test_two_pods_whose_limits_are_more_than_a_node_has_wait_beside_a_default_request() -> None:
    assert plain(run(*QUEUES, RANGE, asking({"limits": {"cpu": "3"}})))["final"]["running"] == []


def test_under_kueues_policy_the_default_request_comes_first() -> None:
    found = plain(run(*QUEUES, RANGE, asking({"limits": {"cpu": "3"}}), using="tessera: {policy: kueue}\n"))
    assert cpu(found) == 2


def test_a_train_job_of_a_present_trainer_is_charged_with_its_initializer_and_its_patches() -> None:
    def replicated(name: str, step: str, requests: Json) -> Json:
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step}
        container = {"name": name, "resources": {"requests": requests}}
        return {
            "name": name,
            "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": {"containers": [container]}}}},
        }

    steps = replicated("dataset-initializer", "dataset-initializer", {"cpu": "1"}), replicated("node", "trainer", {})
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "r"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": list(steps)}}},
    }
    pod = {"spec": {"nodeSelector": {"zone": "z"}}}
    patched = [{"name": "node", "template": {"spec": {"template": pod}}}]
    patches = {"template": {"metadata": {"labels": {"team": "blue"}}, "spec": {"replicatedJobs": patched}}}
    spec = {
        "runtimeRef": {"name": "r"},
        "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "2"}}},
        "initializer": {"dataset": {"storageUri": "s3://bucket/data"}},
        "activeDeadlineSeconds": 60,
        "runtimePatches": [{"manager": "a.example/b", "trainingRuntimeSpec": patches}],
    }
    asked = {**job("t"), "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec}
    (submission,) = scenario(given(runtime, asked), config()).submissions
    found = submission.workload.spec.pod_sets
    assert [(each.name, each.count) for each in found] == [("dataset-initializer", 1), ("node", 2)]
    assert found[1].template.spec.node_selector == {"zone": "z"}
    everywhere = {**QUEUES[1], "spec": {}}
    assert cpu(plain(run(everywhere, *QUEUES[2:4], runtime, asked))) == 5


@pytest.mark.parametrize("resources", [{"limits": {"nvidia.com/gpu": 4}}, {"requests": {"ephemeral-storage": "1Gi"}}])
def test_what_a_pod_as_a_whole_cannot_ask_for_is_not_charged_as_nothing(resources: Json) -> None:
    final = run(*QUEUES, asking({}, 1, resources=resources)).final
    ((reason, message),) = [(one.reason, one.message) for one in final.pending]
    assert reason == "Misconfigured"
    assert "a pod as a whole may ask for cpu, memory and hugepages alone" in message
    assert final.running == ()
