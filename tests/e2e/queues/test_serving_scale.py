"""A Deployment that Kubernetes' own HorizontalPodAutoscaler scales by what its queue would admit, beside training.

The example is applied as it stands. The API server hands the autoscaler's questions to the controller.
"""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.incluster import InCluster
from tests.support.e2e.lab import EXAMPLES, ROOT, until
from tests.support.e2e.podlab import TEAM
from tests.support.e2e.servingsets import (
    LEADER_WORKER_SETS,
    NAME,
    install_leader_worker_sets,
    leader_worker_set,
    played,
)

pytestmark = pytest.mark.e2e

GPU = "nvidia.com/gpu"
GATE = "kueue.x-k8s.io/admission"
PERIOD_S: Final = 5
"""The autoscaler's own, in place of its 15 s."""
LATE_S: Final = 6.0
"""Seconds beside the period for the controllers and the API server: eviction, the answer, and the deletion of pods."""
SERIES = "/apis/external.metrics.k8s.io/v1beta1/namespaces/team/tessera_local_queue_usable_units"
VIEW = "/apis/view.tessera.dev/v1alpha1/namespaces/team/localqueueviews/chat"
CONFIG = {"tessera": {"pendingCondition": {"after": "1s"}}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    args = (f"--horizontal-pod-autoscaler-sync-period={PERIOD_S}s",)
    spec = Spec(nodes=(), kwok_nodes=1, kwok_capacity={GPU: "8"}, controller_manager_args=args)
    with Cluster.up(f"scale-{os.getpid()}", spec) as cluster:
        values = {"visibility": {"enabled": True, "externalMetrics": True}}
        controller = InCluster(cluster, tmp_path_factory.mktemp("scale"), CONFIG, visible=True, values=values)
        controller.install()
        with controller.running():
            cluster.kubectl("apply", "-f", str(EXAMPLES / "queues" / "team.yaml"))
            patch = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
            cluster.kubectl("patch", "clusterqueue", "research", "--type=merge", "-p", json.dumps(patch))
            yield cluster


class Pods:
    """The pods of the model by what the API server says, and for how long one of them waited at most."""

    def __init__(self, cluster: Cluster, labelled: str = "app=chat") -> None:
        self.cluster = cluster
        self.labelled = labelled
        self.longest_s = 0.0
        self._since: dict[str, float] = {}

    def look(self) -> tuple[int, int]:
        """Those that run, and those that wait."""
        text = self.cluster.kubectl("get", "pods", "-n", "team", "-l", self.labelled, "-o", "json")
        pods: list[dict[str, Any]] = [
            each for each in json.loads(text)["items"] if "deletionTimestamp" not in each["metadata"]
        ]
        waiting = {each["metadata"]["uid"] for each in pods if each["spec"].get("schedulingGates")}
        now_s = time.monotonic()
        self._since = {uid: self._since.get(uid, now_s) for uid in waiting}
        self.longest_s = max([self.longest_s, *(now_s - since_s for since_s in self._since.values())])
        return len(pods) - len(waiting), len(waiting)

    def until(self, running: int, what: str) -> None:
        until(lambda: self.look() == (running, 0), f"{what}: {self.look()}", timeout_s=90)


def stop(cluster: Cluster, policy: str) -> None:
    cluster.kubectl(
        "patch", "clusterqueue", "research", "--type=merge", "-p", json.dumps({"spec": {"stopPolicy": policy}})
    )


def value(cluster: Cluster) -> str:
    """The usable replicas as the autoscaler is told them."""
    (found,) = json.loads(cluster.kubectl("get", "--raw", f"{SERIES}?labelSelector=local_queue%3Dchat"))["items"]
    return str(found["value"])


def training(gpus: int) -> str:
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: str(gpus)}}}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "training", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "research"}},
        "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    return json.dumps(body)


def test_a_deployment_scaled_by_its_queue_keeps_no_pod_waiting_longer_than_one_period(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", str(EXAMPLES / "serving-scale" / "hpa.yaml"))
    pods = Pods(cluster)
    pods.until(8, "it grows to all that its queue would admit")
    first = json.loads(cluster.kubectl("get", "--raw", f"{SERIES}?labelSelector=local_queue%3Dchat"))
    assert [(each["metricLabels"]["unit"], each["value"]) for each in first["items"]] == [("replica", "8")]
    assert not json.loads(cluster.kubectl("get", "--raw", f"{SERIES}?labelSelector=local_queue%3Dother"))["items"]
    (row,) = json.loads(cluster.kubectl("get", "--raw", VIEW))["status"]["units"]
    assert (row["unit"], row["flavor"], row["admissible"], row["held"]) == ("replica", "gpus", 0, 8)
    cluster.kubectl("create", "-f", "-", input=training(5))
    pods.until(3, "it gives way to training, one by one")
    cluster.kubectl("delete", "job", "training", "-n", "team", "--wait=false")
    pods.until(8, "it grows again")
    cluster.kubectl("create", "-f", "-", input=training(8))
    waits = 'jsonpath={.items[*].status.conditions[?(@.reason=="WaitingForQuota")].message}'
    until(lambda: GPU in cluster.kubectl("get", "workloads", "-n", "team", "-o", waits), "training waits")
    assert pods.look()[0] >= 1, "the minimum stays"
    cluster.kubectl("delete", "job", "training", "-n", "team", "--wait=false")
    pods.until(8, "all of it runs in the end")
    cluster.kubectl("create", "-f", "-", input=training(5))
    pods.until(3, "it gives way again")
    stop(cluster, "Hold")
    cluster.kubectl("delete", "job", "training", "-n", "team", "--wait=false")
    stays_s = time.monotonic() + 3 * PERIOD_S
    until(lambda: pods.look() == (3, 0) and value(cluster) == "3", "what runs stays, no more is told", timeout_s=60)
    while time.monotonic() < stays_s:
        assert pods.look() == (3, 0), "a stopped queue gets no pods, whatever has become free"
    stop(cluster, "None")
    pods.until(8, "it grows once its queue is resumed")
    assert pods.longest_s <= PERIOD_S + LATE_S, f"a pod waited for {pods.longest_s:.1f} s"
    cluster.kubectl("delete", "-f", str(EXAMPLES / "serving-scale" / "hpa.yaml"), "--wait=false")


async def test_groups_of_a_leader_worker_set_scaled_by_their_queue_wait_no_longer_either(cluster: Cluster) -> None:
    """Groups of two pods; the controller of LeaderWorkerSets is played, the autoscaler and StatefulSets are real."""
    shared = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared")
    await asyncio.to_thread(install_leader_worker_sets, cluster, shared / "crds")
    autoscaler = list(yaml.safe_load_all((EXAMPLES / "serving-scale" / "hpa.yaml").read_text()))[-1]
    autoscaler["metadata"]["name"] = "groups"
    target = {"apiVersion": LEADER_WORKER_SETS.api_version, "kind": LEADER_WORKER_SETS.kind, "name": "groups"}
    autoscaler["spec"] |= {"scaleTargetRef": target}
    wanted = autoscaler["spec"]["metrics"][0]["external"]["metric"]["selector"]
    wanted["matchLabels"] = {"local_queue": "groups", "unit": "group"}
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {
            "name": "groups",
            "namespace": TEAM,
            "annotations": {"tessera.dev/units": json.dumps({"group": {GPU: 2}})},
        },
        "spec": {"clusterQueue": "research"},
    }
    made = leader_worker_set("groups", 1, 2, "groups")
    made["metadata"]["annotations"] = {"tessera.dev/min-replicas": "1"}
    pods = Pods(cluster, f"{NAME}=groups")
    async with played(cluster):
        for body in (queue, made, autoscaler):
            await asyncio.to_thread(cluster.kubectl, "create", "-f", "-", input=json.dumps(body))
        await asyncio.to_thread(pods.until, 8, "four groups of two have all GPUs")
        await asyncio.to_thread(cluster.kubectl, "create", "-f", "-", input=training(5))
        await asyncio.to_thread(pods.until, 2, "one group is left beside training")
        await asyncio.to_thread(cluster.kubectl, "delete", "job", "training", "-n", TEAM, "--wait=false")
        await asyncio.to_thread(pods.until, 8, "they grow again")
        assert pods.longest_s <= PERIOD_S + LATE_S, f"a pod waited for {pods.longest_s:.1f} s"
        for kind in ("hpa", "leaderworkerset", "localqueue"):
            await asyncio.to_thread(cluster.kubectl, "delete", kind, "groups", "-n", TEAM, "--wait=false")
        await asyncio.to_thread(pods.until, 0, "they are gone")


def test_the_status_of_a_queue_tells_its_units_and_a_wrong_annotation(cluster: Cluster) -> None:
    cluster.kubectl("annotate", "localqueue", "research", "-n", "team", "tessera.dev/units={")
    said = 'jsonpath={.status.conditions[?(@.type=="tessera.dev/Units")].message}'
    told = ("get", "localqueue", "research", "-n", "team", "-o", said)
    until(lambda: 'found "{", expected JSON such as' in cluster.kubectl(*told), "the condition says so", timeout_s=60)
    view = VIEW.replace("chat", "research")
    assert "expected JSON" in json.loads(cluster.kubectl("get", "--raw", view))["status"]["problem"]
    units = f"tessera.dev/units={json.dumps({'one': {GPU: 1}})}"
    cluster.kubectl("annotate", "localqueue", "research", "-n", "team", "--overwrite", units)
    until(
        lambda: cluster.kubectl(*told).startswith("Would be admitted now at priority 0: one on "),
        "the condition tells what it would admit",
        timeout_s=90,
    )
    cluster.kubectl("annotate", "localqueue", "research", "-n", "team", "tessera.dev/units-")
    until(lambda: cluster.kubectl(*told) == "", "the condition is gone", timeout_s=60)
