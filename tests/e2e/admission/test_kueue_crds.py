"""Where the CRDs of a Kueue that is gone are left: the controller takes their conversion over, and decides."""

import json
import os
from collections.abc import Iterator

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.conformance.crds import crdfiles
from tests.support.e2e.incluster import NAMESPACE, SERVICE, InCluster
from tests.support.e2e.lab import until

pytestmark = pytest.mark.e2e

CONFIG = {"tessera": {"policy": "kueue", "pendingCondition": {"after": "1s"}}}
GROUP = "kueue.x-k8s.io"


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InCluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    with Cluster.up(f"kueue-{os.getpid()}", Spec(nodes=(), kwok_nodes=1)) as cluster:
        folder = tmp_path_factory.mktemp("controller")
        controller = InCluster(cluster, folder, CONFIG, crds=crdfiles.peers())
        controller.install()
        foreign = {"namespace": "kueue-system", "name": "kueue-webhook-service", "path": "/convert", "port": 443}
        webhook = {"clientConfig": {"service": foreign}, "conversionReviewVersions": ["v1"]}
        patch = json.dumps({"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}})
        for plural in ("clusterqueues", "cohorts", "localqueues", "workloads"):
            cluster.kubectl("patch", "crd", f"{plural}.{GROUP}", "--type=merge", "-p", patch)
        with controller.running():
            yield controller


def queue(version: str, **spec: object) -> str:
    quota = {"name": "cpu", "nominalQuota": "2"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [quota]}]}
    objects = [
        {"apiVersion": f"{GROUP}/{version}", "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {
            "apiVersion": f"{GROUP}/{version}",
            "kind": "ClusterQueue",
            "metadata": {"name": "all"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group], **spec},
        },
        {
            "apiVersion": f"{GROUP}/{version}",
            "kind": "LocalQueue",
            "metadata": {"name": "lq", "namespace": "default"},
            "spec": {"clusterQueue": "all"},
        },
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def job(name: str, cpus: int) -> str:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(cpus)}}}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {f"{GROUP}/queue-name": "lq"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    return json.dumps(body)


def test_conversion_of_kueue_s_crds_is_the_controller_s(controller: InCluster) -> None:
    crd = json.loads(controller.cluster.kubectl("get", "crd", f"workloads.{GROUP}", "-o", "json"))
    conversion = crd["spec"]["conversion"]
    assert conversion["strategy"] == "Webhook"
    service = conversion["webhook"]["clientConfig"]["service"]
    assert (service["namespace"], service["name"]) == (NAMESPACE, SERVICE)
    assert conversion["webhook"]["clientConfig"]["caBundle"]
    # Theirs throughout: what ours does not carry is still there.
    assert "fieldRef" in json.dumps(crd["spec"]["versions"])


def test_queues_of_the_older_version_admit_jobs_up_to_their_quota_and_say_why_others_wait(
    controller: InCluster,
) -> None:
    kubectl = controller.cluster.kubectl
    kubectl("apply", "-f", "-", input=queue("v1beta1", cohort="both"))
    assert kubectl("get", f"clusterqueues.v1beta2.{GROUP}", "all", "-o", "jsonpath={.spec.cohortName}") == "both"
    kubectl("apply", "-f", "-", input=job("fits", 2))
    until(lambda: kubectl("get", "job", "fits", "-o", "jsonpath={.spec.suspend}") == "false", "the job is started")
    kubectl("apply", "-f", "-", input=job("waits", 1))
    said = 'jsonpath={.items[*].status.conditions[?(@.reason=="WaitingForQuota")].message}'
    until(lambda: "cpu" in kubectl("get", f"workloads.v1beta1.{GROUP}", "-o", said), "the other says why it waits")
    assert kubectl("get", "job", "waits", "-o", "jsonpath={.spec.suspend}") == "true"
    until(
        lambda: kubectl("get", f"clusterqueues.{GROUP}", "all", "-o", "jsonpath={.status.admittedWorkloads}") == "1",
        "the queue's status",
    )
    kubectl("delete", "job", "fits", "--wait", "--timeout=120s")
    until(lambda: kubectl("get", "job", "waits", "-o", "jsonpath={.spec.suspend}") == "false", "its turn comes")
