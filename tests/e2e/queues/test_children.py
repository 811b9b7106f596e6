"""Queued work starts within its quota alone, whatever an account of the namespace writes.

The API server with the chart's policies and rights, the controller and the Job controller are real; kwok plays pods.
"""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.cluster.waiting import until as wait_until
from tests.support.e2e.charttext import rendered
from tests.support.e2e.kubernetes import SUSPEND_BY
from tests.support.e2e.podlab import GPU, HOLDING, QUEUE, TEAM, pod_body, pod_lab, pods_installed, refused
from tests.support.e2e.queuelab import ALONE, until

pytestmark = pytest.mark.e2e

ACCOUNT = f"system:serviceaccount:{TEAM}:builder"
CONFIG_MAP: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap"}
BUILDER = f"--as={ACCOUNT}"
"""A service account whose token an administrator of the namespace may mint."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    spec = Spec(nodes=(), kwok_nodes=2, kwok_capacity={GPU: "8"})
    with Cluster.up(f"children-{os.getpid()}", spec) as cluster, pods_installed(cluster):
        text = rendered(f"job-suspend-{SUSPEND_BY}", "job-policy", "job-rules-policy")
        cluster.kubectl("apply", "--server-side", "-f", "-", input=text)
        cluster.kubectl("create", "serviceaccount", "builder", "-n", TEAM)
        for role in ("admin", "edit"):
            binding = ("create", "rolebinding", role, f"--clusterrole={role}", f"--user={ACCOUNT}")
            cluster.kubectl(*binding, "-n", TEAM)
        wait_until(lambda: _held(cluster), "the policies in effect", timeout_s=60)
        yield cluster


def _held(cluster: Cluster) -> bool:
    try:
        found = _create(cluster, job("probe"), "--dry-run=server")
    except ClusterError:
        return False  # the policy that refuses acts before the one that suspends
    return bool(found["spec"].get("suspend"))


def job(name: str, gpus: int = 1, *, owners: tuple[dict[str, Any], ...] = (), queue: str = "one") -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"limits": {GPU: str(gpus)}}}
    pods = {"spec": {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0}}
    meta = {"name": name, "namespace": TEAM, "labels": {QUEUE: queue}, "ownerReferences": list(owners)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": pods}}


def _create(cluster: Cluster, body: dict[str, Any], *flags: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        cluster.kubectl("create", "-o", "json", "-f", "-", *flags, input=json.dumps(body))
    )
    return found


@contextmanager
def all_wait(cluster: Cluster) -> Iterator[None]:
    """The chart's policies for pods where work without a queue waits, too."""
    wait = "controller.jobs.manageWithoutQueueName=true"

    def gated() -> bool:
        """The policy that refuses a pod without its gate may be in effect before the one that puts it there."""
        with suppress(ClusterError):
            return "schedulingGates" in _create(cluster, pod_body("probe"), "--dry-run=server")["spec"]
        return False

    def apply(*values: str) -> None:
        cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered(*HOLDING, values=values))

    apply(wait)
    try:
        wait_until(gated, "the policy in effect", timeout_s=120)
        yield
    finally:
        apply()


def replica_set(name: str) -> dict[str, Any]:
    """Of no pod yet."""
    pod = pod_body(name, restartPolicy="Always")
    template = {"metadata": {"labels": {"of": name}}, "spec": pod["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": {"of": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "namespace": TEAM}, "spec": spec}


def _get(cluster: Cluster, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", kind, name, "-n", TEAM, "-o", "json"))
    return found


def owner(found: dict[str, Any]) -> dict[str, Any]:
    meta = found["metadata"]
    return {
        "apiVersion": found["apiVersion"],
        "kind": found["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


def told(cluster: Cluster, name: str) -> str:
    listed = json.loads(cluster.kubectl("get", "events.events.k8s.io", "-n", TEAM, "-o", "json"))["items"]
    return " ".join(each.get("note", "") for each in listed if each["regarding"].get("name") == name)


def waits_beside(cluster: Cluster, name: str) -> bool:
    """Whether the pod, which a Job did not make, has been told that the Job's charge has no room for it.

    The Job controller may have taken its name off the pod before that, as off all pods that its selector does not
    match: then the pod waits in its own queue.
    """
    pod = _get(cluster, "pod", name)
    released = "ownerReferences" not in pod["metadata"]
    assert pod["spec"]["schedulingGates"]
    return released or "no room for 1 more" in told(cluster, name)


@asynccontextmanager
async def running(cluster: Cluster, folder: Path, queue: str = "one") -> AsyncIterator[None]:
    """A controller, a queue of one GPU, and one of none."""
    async with pod_lab(cluster) as lab:
        lab.config(folder)
        await lab.queue(queue, 1)
        await lab.queue(f"{queue}-empty", 0)
        with lab.queues.controllers(folder, "one", flags=ALONE):
            yield


async def test_an_account_of_the_namespace_starts_no_queued_work_beside_a_job_that_runs(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The quota of one GPU is all that ever runs: no Job and no pod starts by naming a job that was admitted."""
    async with running(cluster, tmp_path):
        first = _create(cluster, job("first"), BUILDER)
        await until(lambda: _get(cluster, "job", "first")["status"].get("active") == 1, "the first Job runs")
        waiting = _create(cluster, job("waiting"), BUILDER)
        for number, above in enumerate((first, waiting)):
            made = _create(cluster, job(f"child-{number}", owners=(owner(above),)), BUILDER)
            assert made["spec"]["suspend"] is True
            assert made["metadata"]["annotations"]["tessera.dev/awaits-owner"] == "true"
            body = pod_body(f"pod-{number}", queue="one-empty", labels={"kueue.x-k8s.io/podset": "main"})
            body["metadata"]["ownerReferences"] = [owner(above)]
            assert _create(cluster, body, BUILDER)["spec"]["schedulingGates"]
        await until(lambda: "which makes no Job" in told(cluster, "child-0"), "the child told why it waits")
        await until(lambda: waits_beside(cluster, "pod-0"), "the pod told why it waits")
        for name in ("waiting", "child-0", "child-1"):
            patch = ("patch", "job", name, "-n", TEAM, BUILDER, "--type=merge", "-p")
            assert "only the controller" in refused(cluster, *patch, '{"spec": {"suspend": false}}')
            off = json.dumps({"metadata": {"labels": {QUEUE: None}}})
            assert "delete the Job to withdraw it" in refused(cluster, *patch, off)
            assert _get(cluster, "job", name)["spec"]["suspend"] is True
        for name in ("pod-0", "pod-1"):
            assert _get(cluster, "pod", name)["spec"]["schedulingGates"]
        cluster.kubectl("delete", "job", "first", "-n", TEAM, "--cascade=foreground", "--timeout=120s")
        await until(lambda: _get(cluster, "job", "waiting")["status"].get("active") == 1, "the next in the queue runs")
        assert _get(cluster, "job", "child-1")["spec"]["suspend"] is True


async def test_room_is_kept_for_the_pods_that_a_job_is_yet_to_make(cluster: Cluster, tmp_path: Path) -> None:
    """A Job whose service account comes later makes its pods later; a child beside it changes nothing of that."""
    async with running(cluster, tmp_path, "two"):
        body = job("later", queue="two")
        body["spec"]["template"]["spec"]["serviceAccountName"] = "comes-later"
        above = owner(_create(cluster, body, BUILDER))
        await until(lambda: not _get(cluster, "job", "later")["spec"]["suspend"], "the Job started")
        _create(cluster, job("dummy", owners=(above,), queue="two"), BUILDER)
        await until(lambda: "which makes no Job" in told(cluster, "dummy"), "the child told why it waits")
        beside = pod_body("beside", queue="two-empty", labels={"kueue.x-k8s.io/podset": "main"})
        beside["metadata"]["ownerReferences"] = [above]
        _create(cluster, beside, BUILDER)
        await until(lambda: waits_beside(cluster, "beside"), "the pod told why it waits")
        cluster.kubectl("create", "serviceaccount", "comes-later", "-n", TEAM)
        await until(lambda: _get(cluster, "job", "later")["status"].get("active") == 1, "the Job makes its pod")
        assert _get(cluster, "pod", "beside")["spec"]["schedulingGates"]


async def test_a_pod_keeps_the_mark_by_which_it_is_counted(cluster: Cluster, tmp_path: Path) -> None:
    """Whoever may edit pods could hide them from the count otherwise."""
    async with running(cluster, tmp_path, "three"):
        _create(cluster, job("counted", queue="three"), BUILDER)
        await until(lambda: _get(cluster, "job", "counted")["status"].get("active") == 1, "the Job runs")
        found = json.loads(cluster.kubectl("get", "pods", "-n", TEAM, "-l", "job-name=counted", "-o", "json"))["items"]
        patch = ("patch", "pod", found[0]["metadata"]["name"], "-n", TEAM, BUILDER, "--type=merge", "-p")
        for mark in (
            {"annotations": {"kueue.x-k8s.io/workload": None}},
            {"annotations": {"kueue.x-k8s.io/workload": "another"}},
            {"labels": {"kueue.x-k8s.io/podset": None}},
        ):
            said = refused(cluster, *patch, json.dumps({"metadata": mark}))
            assert "only the controller says by which workload a pod runs" in said
        assert not refused(cluster, *patch, json.dumps({"metadata": {"labels": {"own": "label"}}}))


async def test_where_all_pods_wait_no_word_of_an_owner_lets_one_pass(cluster: Cluster, tmp_path: Path) -> None:
    """Pods that their owner's own controller made pass: here those of a ReplicaSet."""
    async with running(cluster, tmp_path, "four"):
        settings = _create(cluster, {**CONFIG_MAP, "metadata": {"name": "settings", "namespace": TEAM}}, BUILDER)
        replicas = _create(cluster, replica_set("replicas"), BUILDER)
        with all_wait(cluster):
            for above in (settings, replicas):
                body = pod_body(f"of-{above['kind'].lower()}")
                body["metadata"]["ownerReferences"] = [owner(above)]
                made = _create(cluster, body, BUILDER)
                assert made["spec"]["schedulingGates"]
                assert made["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
            cluster.kubectl("scale", "replicaset", "replicas", "-n", TEAM, "--replicas=1")
            await until(lambda: _get(cluster, "rs", "replicas")["status"].get("readyReplicas") == 1, "its own pod runs")
