"""Plain pods and pod groups through a queue on a real control plane, with the chart's policies and rights."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.watching.kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, NAMESPACES, PODS
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.lab import EXAMPLES, ROOT
from tests.support.e2e.podlab import (
    GPU,
    MANAGED,
    PLACED,
    QUEUE,
    TEAM,
    Gang,
    PodLab,
    deployment,
    install_pods,
    is_held,
    node,
    pod_body,
    pod_lab,
    refused,
    rendered,
)
from tests.support.e2e.queuelab import NAMESPACE, as_controller, until

pytestmark = pytest.mark.e2e

PARENT = "kueue.x-k8s.io/pod-suspending-parent"
GANGS = EXAMPLES / "gangs"
VOLCANO = "scheduling.volcano.sh_podgroups.yaml"
FLAGS = ("--no-leader-elect",)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    with Cluster.up(f"plainpods-{os.getpid()}", Spec(nodes=(), kwok_nodes=2, kwok_capacity={GPU: "8"})) as cluster:
        install_pods(cluster)
        yield cluster


@pytest.fixture
def account(cluster: Cluster, tmp_path: Path) -> tuple[str, ...]:
    """Flags that have the controller use the chart's rights and no others."""
    path = tmp_path / "account.kubeconfig"
    path.write_text(as_controller(cluster))
    return (*FLAGS, "--kubeconfig", str(path))


def test_what_goes_to_a_queue_is_held_and_nobody_but_the_controller_lets_it_go(cluster: Cluster) -> None:
    def made(body: dict[str, Any], *flags: str) -> dict[str, Any]:
        command = ("create", "--dry-run=server", "-o", "json", "-f", "-", *flags)
        found: dict[str, Any] = json.loads(cluster.kubectl(*command, input=json.dumps(body)))
        return found

    held = made(pod_body("a", queue="q", labels={"app": "x"}))
    assert is_held(held)
    assert held["metadata"]["finalizers"] == [MANAGED]
    assert held["metadata"]["labels"] == {QUEUE: "q", MANAGED: "true", "app": "x"}
    for free in (pod_body("b"), pod_body("b", labels={QUEUE: ""})):
        assert not made(free)["spec"].get("schedulingGates")
    elsewhere = pod_body("c", queue="q")
    elsewhere["metadata"]["namespace"] = "kube-system"
    assert not is_held(made(elsewhere))
    assert "expected the name of a LocalQueue" in refused(
        cluster, "create", "--dry-run=server", "-f", "-", input=json.dumps(pod_body("d", queue="No_Queue"))
    )
    named = pod_body("d", queue="q", nodeName="kwok-0")
    assert "nodeName" in refused(cluster, "create", "--dry-run=server", "-f", "-", input=json.dumps(named))
    # What the Job controller makes of a queued Job that was started has been through the queue; no person's pod has.
    started = pod_body("e", queue="q", labels={"kueue.x-k8s.io/podset": "main"})
    assert is_held(made(started))
    by_job = "--as=system:serviceaccount:kube-system:job-controller"
    assert not is_held(made(started, by_job, "--as-group=system:masters"))
    cluster.kubectl("create", "-f", "-", input=json.dumps(pod_body("mine", queue="q")))
    change = ("patch", "pod", "mine", "-n", TEAM, "--type=merge", "-p")
    assert "only the controller lets a queued pod go" in refused(cluster, *change, '{"spec":{"schedulingGates":[]}}')
    label = json.dumps({"metadata": {"labels": {MANAGED: None}}})
    assert "only the controller changes it" in refused(cluster, *change, label)
    assert "while the pod waits" in refused(cluster, *change, json.dumps({"metadata": {"labels": {QUEUE: None}}}))
    assert not refused(cluster, *change, json.dumps({"metadata": {"labels": {QUEUE: "other"}}}))
    assert not refused(cluster, *change, '{"metadata":{"annotations":{"note":"x"},"finalizers":null}}')
    cluster.kubectl("delete", "pod", "mine", "-n", TEAM, "--now")


def test_the_pod_template_of_a_queued_deployment_is_stamped_whenever_it_is_written(cluster: Cluster) -> None:
    def stamped(body: dict[str, Any], *command: str) -> dict[str, Any]:
        found = cluster.kubectl(*command, "-o", "json", "-f", "-", input=json.dumps(body))
        template: dict[str, Any] = json.loads(found)["spec"]["template"]["metadata"]
        return template

    body = deployment("stamped", queue="")
    free = stamped(body, "create", "--dry-run=server")
    assert (free["labels"], free.get("annotations")) == ({"app": "stamped"}, None)
    body["metadata"]["labels"] = {QUEUE: "q", "kueue.x-k8s.io/priority-class": "high"}
    wanted = {"app": "stamped", MANAGED: "true", QUEUE: "q", "kueue.x-k8s.io/priority-class": "high"}
    made = stamped(body, "create")
    assert (made["labels"], made["annotations"]) == (wanted, {PARENT: "deployment"})
    body["metadata"]["labels"][QUEUE] = "other"
    assert stamped(body, "replace", "--dry-run=server")["labels"] == {**wanted, QUEUE: "other"}
    cluster.kubectl("delete", "deployment", "stamped", "-n", TEAM, "--cascade=foreground", "--timeout=60s")
    pod = pod_body("replica", queue="q")
    pod["metadata"]["annotations"] = {PARENT: "deployment"}
    found = json.loads(cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(pod)))
    assert is_held(found)
    assert "finalizers" not in found["metadata"]


async def test_a_pod_and_a_group_wait_run_and_end_and_nothing_is_left(
    cluster: Cluster, tmp_path: Path, account: tuple[str, ...]
) -> None:
    async with pod_lab(cluster) as scene:
        scene.config(tmp_path)
        await scene.queue("small", 3)
        await scene.queue("other", 3)
        with scene.queues.controllers(tmp_path, "one", flags=account):
            await scene.create(pod_body("single", queue="small", gpus=1))
            await scene.until(lambda: scene.runs("single"), "the pod runs")
            gang = Gang("pair", 2, 1, "small")
            first, second = gang.bodies()
            await scene.create(first, Gang("big", 1, 3, "small").member(0))
            await scene.create(second)
            await scene.until(lambda: scene.runs("pair-0", "pair-1"), "the group runs beside it")
            await scene.until(lambda: scene.condition("pair", "PodsReady") == "True/Started", "known to be ready")
            assert is_held(scene.pod("big-0")), "there is no room for it"
            await scene.finish(["single", "pair-0", "pair-1"])
            await scene.until(lambda: scene.runs("big-0"), "the next has its turn")
            await scene.until(lambda: scene.condition("pair", "Finished") == "True/Succeeded", "the group is over")

            def finalized() -> list[str]:
                return [name for name in ("single", "pair-0") if scene.pod(name)["metadata"].get("finalizers")]

            await scene.until(lambda: not finalized(), "nothing holds its pods")
            await scene.clean()


async def test_a_lost_pod_is_replaced_at_its_own_place_and_one_too_many_goes(
    cluster: Cluster, tmp_path: Path, account: tuple[str, ...]
) -> None:
    async with pod_lab(cluster) as scene:
        scene.config(tmp_path)
        await scene.queue("places", 16, placed=True)
        gang = Gang("ranked", 4, 4, "places", notes=PLACED)
        names = [f"ranked-{rank}" for rank in range(4)]
        with scene.queues.controllers(tmp_path, "one", flags=account) as (controller,):
            await scene.create(*reversed(gang.bodies()))
            await scene.until(lambda: scene.runs(*names), "all four run")
            at = [node(scene.pod(name)) for name in names]
            assert at in (["kwok-0", "kwok-0", "kwok-1", "kwok-1"], ["kwok-1", "kwok-1", "kwok-0", "kwok-0"])
            controller.kill()
            await scene.delete("ranked-1")
            controller.start()
            waiting = "WaitingForReplacementPods"
            await scene.until(lambda: scene.condition("ranked", waiting) == "True/PodsFailed", "one is missing")
            await scene.create(gang.member(1, "-again"))
            await scene.until(lambda: scene.runs("ranked-1-again"), "the replacement runs")
            assert node(scene.pod("ranked-1-again")) == at[1]
            await scene.create(gang.member(2, "-too-many"))
            extra = "ranked-2-too-many"
            await scene.until(lambda: extra in scene.watcher.seen and not scene.pod(extra), "the one too many is gone")
            assert scene.runs("ranked-0", "ranked-1-again", "ranked-2", "ranked-3")
            await scene.clean()
        cluster.kubectl("delete", "resourceflavors.kueue.x-k8s.io", "placed", "--wait=false")


@pytest.fixture
def volcano(cluster: Cluster) -> None:
    crd = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds" / "volcano" / VOLCANO
    assert crd.exists(), f"Volcano's CRDs not found: {crd} is no file; set TESSERA_SHARED"
    cluster.kubectl("apply", "--server-side", "-f", str(crd))
    cluster.kubectl("wait", "--for=condition=Established", "crd/podgroups.scheduling.volcano.sh", "--timeout=180s")


@pytest.mark.usefixtures("volcano")
async def test_the_examples_run_and_a_volcano_group_needs_all_its_members(
    cluster: Cluster, tmp_path: Path, account: tuple[str, ...]
) -> None:
    files = {path.name: path for path in GANGS.glob("pod-*.yaml")}
    async with pod_lab(cluster) as scene:
        scene.config(tmp_path)
        await _research(scene, gpus=8)
        with scene.queues.controllers(tmp_path, "one", flags=account):
            _apply(cluster, files.pop("pod-group-pytorch.yaml"))
            workers = [f"resnet50-classify-{rank}" for rank in range(8)]
            await scene.until(lambda: scene.runs(*workers), "all workers run")
            _apply(cluster, files.pop("pod-group-volcano.yaml"))
            _apply(cluster, files.pop("pod-notebook.yaml"))
            tasks = [f"pytorch-distributed-{task}" for task in ("master-0", "worker-0", "worker-1", "worker-2")]
            queued = scene.queues.watcher.workloads
            await scene.until(lambda: "ml-research/pytorch-distributed" in queued, "Volcano's group is queued")
            assert queued["ml-research/pytorch-distributed"]["spec"]["podSets"][0]["count"] == 4
            await scene.until(lambda: {*tasks, "notebook"} <= scene.watcher.seen, "its pods are heard of")
            assert all(is_held(scene.pod(name)) for name in (*tasks, "notebook")), "all GPUs are taken"
            cluster.kubectl("delete", "pods", "-n", "ml-research", *workers, "--wait=false")
            await scene.until(lambda: scene.runs(*tasks, "notebook"), "the others have their turn")
            cluster.kubectl("delete", "pods", "-n", "ml-research", "--all", "--wait=false")
            await scene.until(lambda: not scene.watcher.pods and not queued, "nothing is left")
            assert not files, "an example that is not tried"
            cluster.kubectl("delete", "localqueues.kueue.x-k8s.io", "-n", "ml-research", "--all")
            cluster.kubectl("delete", "clusterqueues.kueue.x-k8s.io", "--all", "--timeout=180s")


async def _research(scene: PodLab, gpus: int) -> None:
    await scene.queues.share(NAMESPACES, "ml-research")
    await scene.queues.share(FLAVORS, "gpus", spec={"nodeLabels": {"type": "kwok"}})
    quota = {"name": "gpus", "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}
    groups = [{"coveredResources": [GPU], "flavors": [quota]}]
    await scene.queues.make(CLUSTER_QUEUES, "research", spec={"namespaceSelector": {}, "resourceGroups": groups})
    spec = {"clusterQueue": "research"}
    await scene.queues.make(LOCAL_QUEUES, "ml-research-queue", namespace="ml-research", spec=spec)


def _apply(cluster: Cluster, file: Path) -> None:
    cluster.kubectl("apply", "-f", str(file))


async def test_an_uninstall_leaves_no_finalizer(cluster: Cluster, tmp_path: Path, account: tuple[str, ...]) -> None:
    documents = [one for one in yaml.safe_load_all(rendered("controller-uninstall")) if one and one["kind"] != "Job"]
    cluster.kubectl("apply", "-f", "-", input="---\n".join(json.dumps(one) + "\n" for one in documents))
    async with pod_lab(cluster) as scene:
        scene.config(tmp_path)
        await scene.queue("left", 2)
        with scene.queues.controllers(tmp_path, "one", flags=account) as (controller,):
            await scene.create(*Gang("runs", 2, 1, "left").bodies())
            await scene.until(lambda: scene.runs("runs-0", "runs-1"), "one group runs")
            await scene.create(*Gang("waits", 2, 1, "left").bodies())
            await scene.until(lambda: bool(scene.workload("waits")), "the other waits")
            controller.stop()
        config = json.loads(cluster.kubeconfig.read_text())
        token = cluster.kubectl("create", "token", "t-tessera-controller-uninstall", "-n", NAMESPACE).strip()
        config["users"][0]["user"] = {"token": token}
        remover = tmp_path / "uninstall.kubeconfig"
        remover.write_text(json.dumps(config))
        cluster.kubectl("delete", "-f", "-", input=rendered("pod-gate-policy", "pod-policy"))
        command = [sys.executable, "-m", "controller", "--remove-finalizers", "--kubeconfig", str(remover)]
        run = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
        done = await asyncio.to_thread(run, command)
        assert done.returncode == 0, done.stderr
        kinds = "pods,workloads.kueue.x-k8s.io,clusterqueues.kueue.x-k8s.io,resourceflavors.kueue.x-k8s.io"
        found = json.loads(cluster.kubectl("get", kinds, "-A", "-o", "json"))["items"]
        assert len(found) >= 8
        assert not [one["metadata"]["name"] for one in found if one["metadata"].get("finalizers")]
        assert scene.runs("runs-0", "runs-1"), "what runs goes on"
        free = '{"spec": {"schedulingGates": []}, "metadata": {"finalizers": null}}'
        cluster.kubectl("patch", "pod", "waits-0", "-n", TEAM, "--type=merge", "-p", free)
        await scene.until(lambda: scene.runs("waits-0"), "a person has let it go")
        for name in ("pods", "localqueues.kueue.x-k8s.io"):
            cluster.kubectl("delete", name, "-n", TEAM, "--all", "--wait=false")
        cluster.kubectl("delete", "clusterqueues.kueue.x-k8s.io", "--all", "--timeout=180s")
        await until(lambda: not scene.watcher.pods, "everything goes without us")
        pods = await scene.client.list_all(PODS, dict[str, Any])
        assert not pods.items
