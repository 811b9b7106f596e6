"""Gangs in PodGroups of Kubernetes' own on a real control plane."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controller.cluster.watching.kinds import JOBS
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.cluster.waiting import until
from inventory.api.names import POD_GROUP
from tests.support.e2e.charttext import rendered
from tests.support.e2e.podlab import GPU, QUEUE, TEAM, PodLab, pod_body, pods_installed
from tests.support.e2e.queuelab import CONFIG

GATES = "--feature-gates=GenericWorkload=true"
SERVED = "--runtime-config=scheduling.k8s.io/v1beta1=true"
ALPHA = ",scheduling.k8s.io/v1alpha3=true"
GROUPS = "podgroups.scheduling.k8s.io"
HOLD = "example.com/hold"
"""A scheduling gate that nobody but the test lifts."""
REQUEUED_SOON = "waitForPodsReady: {timeout: 10m, requeuingStrategy: {backoffBaseSeconds: 1}}\n"


@contextmanager
def native_cluster(name: str, *gates: str, alpha: bool = False) -> Iterator[Cluster]:
    """Two nodes of eight GPUs that kwok plays, and all that pods need of the chart; ``gates`` are of all parts. Without
    any the API of PodGroups is off. ``alpha``: v1alpha3 is served too, which alone has CompositePodGroups.
    """
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    spec = Spec(
        nodes=(),
        kwok_nodes=2,
        kwok_capacity={GPU: "8"},
        apiserver_args=(*gates, SERVED + (ALPHA if alpha else "")) if gates else (),
        controller_manager_args=gates,
        scheduler_args=gates,
    )
    with Cluster.up(f"{name}-{os.getpid()}", spec) as cluster, pods_installed(cluster):
        cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered("pod-native-group-policy"))
        if gates:
            await_grouped(cluster)
        yield cluster


def await_grouped(cluster: Cluster) -> None:
    body = pod_body("probe", labels={"kueue.x-k8s.io/podset": "main"}, notes={POD_GROUP: "any"})

    def grouped() -> bool:
        command = ("create", "--dry-run=server", "-o", "json", "-f", "-")
        found = json.loads(cluster.kubectl(*command, input=json.dumps(body)))
        return bool(found["spec"].get("schedulingGroup", {}).get("podGroupName") == "any")

    until(grouped, "the policy for groups in effect", timeout_s=120, every_s=0.1)


def group(
    cluster: Cluster, name: str, queue: str, minimum: int | None, notes: dict[str, str] | None = None, **more: Any
) -> None:
    """A PodGroup. ``minimum`` None: with the policy basic; ``more``: fields of its spec."""
    policy: dict[str, Any] = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
    body = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": TEAM, "labels": {QUEUE: queue}, "annotations": notes or {}},
        "spec": {"schedulingPolicy": policy, **more},
    }
    cluster.kubectl("create", "-f", "-", input=json.dumps(body))


def give(cluster: Cluster, queue: str, gpus: int, *, placed: bool = False) -> None:
    """The quota of a ClusterQueue from ``PodLab.queue`` from now on."""
    flavor = "placed" if placed else "gpus"
    quota = {"flavors": [{"name": flavor, "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}]}
    groups = json.dumps({"spec": {"resourceGroups": [{"coveredResources": [GPU], **quota}]}})
    cluster.kubectl("patch", "clusterqueue", queue, "--type=merge", "-p", groups)


def member(name: str, of: str, queue: str) -> dict[str, Any]:
    return pod_body(name, queue=queue, schedulingGroup={"podGroupName": of})


async def start(
    scene: PodLab, name: str, queue: str, *, gpus: int = 4, held: bool = False, of_class: str = "", **more: Any
) -> None:
    """A Job of four pods. ``held``: they wait behind a gate of the test's; ``of_class``: their PriorityClass; ``more``:
    fields of its spec.
    """
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: str(gpus)}}}
    gates = {"schedulingGates": [{"name": HOLD}]} if held else {}
    priority = {"priorityClassName": of_class} if of_class else {}
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        **gates,
        **priority,
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": TEAM, "labels": {QUEUE: queue}},
        "spec": {
            "suspend": True,
            "parallelism": 4,
            "completions": 4,
            "template": {"spec": spec},
            **more,
        },
    }
    await scene.client.create(JOBS, body, dict[str, Any], namespace=TEAM)


def pods_of(scene: PodLab, job: str) -> dict[str, dict[str, Any]]:
    """Those that are not being deleted."""
    return {
        name: each
        for name, each in scene.watcher.pods.items()
        if each["metadata"]["labels"].get("job-name") == job and "deletionTimestamp" not in each["metadata"]
    }


def running(scene: PodLab, job: str) -> int:
    return sum(each["status"].get("phase") == "Running" for each in pods_of(scene, job).values())


def group_of(scene: PodLab, job: str) -> str:
    """The one that all pods of the job name; empty where they differ, or are not there."""
    named = {each["spec"].get("schedulingGroup", {}).get("podGroupName", "") for each in pods_of(scene, job).values()}
    return named.pop() if len(named) == 1 else ""


def lift(cluster: Cluster, scene: PodLab, job: str) -> None:
    for name in pods_of(scene, job):
        cluster.kubectl("patch", "pod", name, "-n", TEAM, "--type=merge", "-p", '{"spec": {"schedulingGates": null}}')


def configure(folder: Path) -> None:
    (folder / "controller.yaml").write_text(CONFIG + "integrations: {frameworks: [batch/job, pod]}\n" + REQUEUED_SOON)
