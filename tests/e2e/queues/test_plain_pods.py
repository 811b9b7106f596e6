"""Plain pods and pod groups through a queue on a real control plane, with the chart's policies and rights."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, NAMESPACES, PODS
from controller.jobs.framework.topologyrequest import GROUP_NAME as PODSET_GROUP
from controller.jobs.framework.topologyrequest import REQUIRED
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.cluster.waiting import until as wait_until
from tests.support.e2e.charttext import rendered
from tests.support.e2e.lab import EXAMPLES, ROOT
from tests.support.e2e.podlab import (
    GPU,
    HOLDING,
    HOST,
    MANAGED,
    PLACED,
    QUEUE,
    TEAM,
    Gang,
    PodLab,
    deployment,
    is_held,
    may_run,
    node,
    pod_body,
    pod_lab,
    pods_installed,
    refused,
)
from tests.support.e2e.queuelab import CONFIG, NAMESPACE, admission, as_controller, is_true, until
from tests.support.e2e.servingsets import (
    ServingExamples,
    a_tree_runs,
    charged,
    install_leader_worker_sets,
    leader_worker_set,
    played,
    running,
    stateful_set,
    waits,
)

pytestmark = pytest.mark.e2e

PARENT = "kueue.x-k8s.io/pod-suspending-parent"
GANGS = EXAMPLES / "gangs"
VOLCANO = "scheduling.volcano.sh_podgroups.yaml"
FLAGS = ("--no-leader-elect",)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    spec = Spec(nodes=(), kwok_nodes=2, kwok_capacity={GPU: "8"})
    with Cluster.up(f"plainpods-{os.getpid()}", spec) as cluster, pods_installed(cluster):
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
    assert is_held(made(started, by_job))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    started["metadata"]["ownerReferences"] = [owner]
    assert not is_held(made(started, by_job))
    cluster.kubectl("create", "rolebinding", "jane", "--clusterrole=admin", "--user=jane", "-n", TEAM)
    asked = ("auth", "can-i", "create", "pods", "-n", TEAM, "--as=jane")
    wait_until(lambda: not refused(cluster, *asked), "the rights of jane", timeout_s=30)
    assert is_held(made(started, "--as=jane")), "a label and an owner reference prove nothing"
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
    minimum = "tessera.dev/min-replicas"
    body["metadata"]["annotations"] = {minimum: "many"}
    wrong = ("replace", "--dry-run=server", "-f", "-")

    def said() -> str:
        return refused(cluster, *wrong, input=json.dumps(body))

    wait_until(lambda: bool(said()), "the policy for minimums in effect", timeout_s=120, every_s=0.2)
    assert f"metadata.annotations[{minimum}]: expected a number of replicas of at least 0, found many" in said()
    body["metadata"]["annotations"] = {minimum: "0"}
    assert not said()
    cluster.kubectl("delete", "deployment", "stamped", "-n", TEAM, "--cascade=foreground", "--timeout=120s")
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


async def test_a_model_is_served_beside_training_from_one_full_queue(
    cluster: Cluster, tmp_path: Path, account: tuple[str, ...]
) -> None:
    """Scaled past its quota and back, rolled out with none to spare, and training takes what is above the minimum."""
    async with pod_lab(cluster) as scene:
        scene.config(tmp_path)
        scene.watcher.at_most = 4
        await _serving(scene, gpus=4)
        with scene.queues.controllers(tmp_path, "one", flags=account) as (controller,):
            _apply(cluster, EXAMPLES / "kinds" / "deployment.yaml")
            model = Served(scene, "llama")
            await scene.until(lambda: model.running() == 3, "all replicas run")
            model.change({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}})
            model.scale(6)
            await scene.until(lambda: (model.running(), model.waiting()) == (4, 2), "as many run as the quota allows")
            await scene.until(model.is_exact, "what runs is charged")
            await scene.until(lambda: len(model.told("WaitsForQuota")) >= 2, "those that wait say why")
            controller.kill()
            model.scale(4)
            await scene.until(lambda: model.waiting() == 0, "Kubernetes takes those that wait first")
            controller.start()
            await scene.until(lambda: model.running() == 4 and model.is_exact(), "the others go on")
            first = model.names()
            cluster.kubectl("rollout", "restart", "deployment", "llama", "-n", TEAM)
            await scene.until(lambda: bool(model.names() - first), "the rollout has begun")
            controller.kill()
            controller.start()
            await scene.until(lambda: not model.names() & first and model.running() == 4, "the rollout is through")
            await scene.until(model.is_exact, "what runs is charged")
            model.change({"metadata": {"annotations": {"tessera.dev/min-replicas": "2"}}})
            await scene.until(lambda: model.spare() == 2, "two are above the minimum")
            await scene.create(*Gang("training", 2, 1, "research").bodies())
            await scene.until(lambda: scene.runs("training-0", "training-1"), "training has its GPUs", timeout_s=120)
            await scene.until(lambda: (model.running(), model.waiting()) == (2, 2), "the minimum goes on")
            await scene.until(model.is_exact, "what runs is charged")
            await scene.finish(["training-0", "training-1"])
            await scene.until(lambda: model.running() == 4 and model.is_exact(), "it grows again")
            cluster.kubectl("delete", "deployment", "llama", "-n", TEAM, "--wait=false")
            await scene.until(lambda: not model.names(), "its pods are gone")
            await scene.clean()


@dataclass(frozen=True)
class Served:
    """A Deployment of the team, and what has become of its pods."""

    scene: PodLab
    name: str

    def change(self, patch: dict[str, Any]) -> None:
        command = ("patch", "deployment", self.name, "-n", TEAM, "--type=merge", "-p", json.dumps(patch))
        self.scene.cluster.kubectl(*command)

    def scale(self, replicas: int) -> None:
        self.scene.cluster.kubectl("scale", "deployment", self.name, "-n", TEAM, f"--replicas={replicas}")

    def pods(self) -> list[dict[str, Any]]:
        pods = self.scene.watcher.pods.values()
        return [pod for pod in pods if pod["metadata"]["labels"].get("app") == self.name]

    def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods()}

    def running(self) -> int:
        live = [pod for pod in self.pods() if "deletionTimestamp" not in pod["metadata"]]
        return sum(pod["status"].get("phase") == "Running" for pod in live)

    def waiting(self) -> int:
        return sum(map(is_held, self.pods()))

    def workloads(self) -> list[dict[str, Any]]:
        found = self.scene.queues.watcher.workloads.values()
        return [each for each in found if each["metadata"]["name"].startswith(f"pod-{self.name}-")]

    def spare(self) -> int:
        marks = (each["metadata"].get("annotations", {}) for each in self.workloads())
        return sum("tessera.dev/above-min-replicas" in found for found in marks)

    def is_exact(self) -> bool:
        """The pods that may run are those that are charged."""
        charged = {
            each["metadata"]["ownerReferences"][0]["name"]
            for each in self.workloads()
            if admission(each) and not is_true(each, "Finished")
        }
        return charged == {pod["metadata"]["name"] for pod in self.pods() if may_run(pod)}

    def told(self, reason: str) -> set[str]:
        """The pods that Events of this reason are about."""
        found = self.scene.cluster.kubectl("get", "events.events.k8s.io", "-n", TEAM, "-o", "json")
        events = [each for each in json.loads(found)["items"] if each["reason"] == reason]
        return {each["regarding"]["name"] for each in events} & self.names()


async def _serving(scene: PodLab, gpus: int) -> None:
    await scene.queues.share(FLAVORS, "gpus", spec={"nodeLabels": {"type": "kwok"}})
    quotas = {GPU: str(gpus), "cpu": "100", "memory": "100Gi"}
    quota = [{"name": name, "nominalQuota": amount} for name, amount in quotas.items()]
    groups = [{"coveredResources": list(quotas), "flavors": [{"name": "gpus", "resources": quota}]}]
    preemption = {"withinClusterQueue": "LowerPriority"}
    spec = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption}
    await scene.queues.make(CLUSTER_QUEUES, "research", spec=spec)
    await scene.queues.make(LOCAL_QUEUES, "research", namespace=TEAM, spec={"clusterQueue": "research"})


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


@pytest.fixture
def lws(cluster: Cluster) -> None:
    install_leader_worker_sets(cluster, Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds")


SETS = "integrations: {frameworks: [batch/job, pod, statefulset, leaderworkerset.x-k8s.io/leaderworkerset]}\n"
PREEMPTS: dict[str, Any] = {"preemption": {"withinClusterQueue": "LowerPriority"}}
URGENT = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "WorkloadPriorityClass",
    "metadata": {"name": "urgent"},
    "value": 1000,
}


async def agreed(scene: PodLab, gpus: int, what: str) -> None:
    """Until as many GPUs are charged, and the pods that can run have just these."""
    found: list[Any] = []

    async def look() -> None:
        found[:] = [await charged(scene.client), await running(scene.client)]

    def same() -> bool:
        return bool(found) and +found[0] == +found[1] and found[0].total() == gpus

    try:
        await scene.until(same, what, timeout_s=120, meanwhile=look)
    except AssertionError as error:
        raise AssertionError(f"charged {found[0]}, running {found[1]}: {error}") from None


def images(scene: PodLab, *names: str) -> set[str]:
    return {scene.pod(name)["spec"]["containers"][0]["image"] for name in names if scene.pod(name)}


def urgent(name: str, queue: str, gpus: int) -> dict[str, Any]:
    return pod_body(name, queue=queue, gpus=gpus, labels={"kueue.x-k8s.io/priority-class": "urgent"})


def workloads_of(scene: PodLab, kind: str) -> dict[str, str]:
    """Names and uids."""
    found = scene.queues.watcher.workloads.values()
    return {
        one["metadata"]["name"]: one["metadata"]["uid"] for one in found if one["metadata"]["name"].startswith(kind)
    }


async def test_a_stateful_set_runs_as_a_whole_through_rollout_preemption_and_scaling(
    cluster: Cluster, tmp_path: Path, account: tuple[str, ...]
) -> None:
    def patched(patch: dict[str, Any]) -> None:
        cluster.kubectl("patch", "statefulset", "model", "-n", TEAM, "--type=merge", "-p", json.dumps(patch))

    names = ("model-0", "model-1", "model-2")
    cluster.kubectl("apply", "-f", "-", input=json.dumps(URGENT))
    async with pod_lab(cluster) as scene:
        (tmp_path / "controller.yaml").write_text(CONFIG + SETS)
        await scene.queue("sets", 3, **PREEMPTS)
        with scene.queues.controllers(tmp_path, "one", flags=account) as (controller,):
            await scene.create(pod_body("front", queue="sets"))
            await agreed(scene, 1, "a pod is there first")
            cluster.kubectl("create", "-f", "-", input=json.dumps(stateful_set("model", 3, "sets")))
            await scene.until(lambda: bool(workloads_of(scene, "statefulset-")), "the set is queued")
            await scene.until(lambda: waits(scene, "model-0"), "its first pod waits")
            controller.kill()
            await scene.delete("front")
            controller.start()
            await scene.until(lambda: scene.runs(*names), "the set runs")
            await agreed(scene, 3, "as many as it is charged with")
            before = workloads_of(scene, "statefulset-")
            await scene.create(pod_body("next", queue="sets"))
            container = stateful_set("model", 3, "sets")["spec"]["template"]["spec"]["containers"][0]
            patched({"spec": {"template": {"spec": {"containers": [{**container, "image": "two"}]}}}})
            await scene.until(lambda: images(scene, *names) == {"two"} and scene.runs(*names), "it has rolled out")
            assert workloads_of(scene, "statefulset-") == before, "in the same Workload"
            assert is_held(scene.pod("next")), "nobody else got its quota meanwhile"
            await agreed(scene, 3, "as many as before")
            await scene.delete("next")
            await scene.create(urgent("urgent", "sets", 1))
            await scene.until(lambda: scene.runs("urgent"), "something urgent takes its quota")
            await agreed(scene, 1, "no pod of the set is left running")
            await scene.until(lambda: waits(scene, "model-0"), "it waits again")
            await scene.delete("urgent")
            await scene.until(lambda: scene.runs(*names), "it runs again")
            assert workloads_of(scene, "statefulset-") == before
            patched({"spec": {"replicas": 0}})
            await agreed(scene, 0, "scaled to nothing")
            (name,) = before
            await scene.until(lambda: scene.condition(name, "QuotaReserved") == "False/OnHold", "it is on hold")
            controller.kill()
            patched({"spec": {"replicas": 2}})
            controller.start()
            await scene.until(lambda: scene.runs("model-0", "model-1"), "two of it run")
            await agreed(scene, 2, "scaled up again")
            cluster.kubectl("delete", "statefulset", "model", "-n", TEAM, "--wait=false")
            await scene.clean()


@pytest.mark.usefixtures("lws")
async def test_groups_of_a_leader_worker_set_come_and_go_as_the_quota_allows(
    cluster: Cluster, tmp_path: Path, account: tuple[str, ...]
) -> None:
    def patched(patch: dict[str, Any]) -> None:
        cluster.kubectl("patch", "leaderworkerset", "llm", "-n", TEAM, "--type=merge", "-p", json.dumps(patch))

    def members(index: int) -> list[str]:
        return [f"llm-{index}", f"llm-{index}-1", f"llm-{index}-2"]

    cluster.kubectl("apply", "-f", "-", input=json.dumps(URGENT))
    async with pod_lab(cluster) as scene, played(cluster):
        (tmp_path / "controller.yaml").write_text(CONFIG + SETS)
        await scene.queue("groups", 6, placed=True, **PREEMPTS)
        body = leader_worker_set("llm", 2, 3, "groups", {REQUIRED: HOST, PODSET_GROUP: "replica"})
        with scene.queues.controllers(tmp_path, "one", flags=account) as (controller,):
            cluster.kubectl("create", "-f", "-", input=json.dumps(body))
            both = [*members(0), *members(1)]
            await scene.until(lambda: scene.runs(*both), "both groups run")
            await agreed(scene, 6, "as many as they are charged with")
            for index in (0, 1):
                assert len({node(scene.pod(name)) for name in members(index)}) == 1, "a group is on one node"
            before = workloads_of(scene, "leaderworkerset-")
            patched({"spec": {"replicas": 3}})
            await scene.until(lambda: len(workloads_of(scene, "leaderworkerset-")) == 3, "a third is queued")
            await scene.until(lambda: waits(scene, "llm-2"), "its leader waits")
            made = body["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
            made["spec"]["containers"][0]["image"] = "two"
            patched({"spec": {"leaderWorkerTemplate": {"leaderTemplate": made, "workerTemplate": made}, "replicas": 2}})
            controller.kill()
            controller.start()
            rolled = lambda: images(scene, *both) == {"two"} and scene.runs(*both)  # noqa: E731
            await scene.until(rolled, "both have rolled out")
            await agreed(scene, 6, "as many as before")
            await scene.until(lambda: workloads_of(scene, "leaderworkerset-") == before, "in the same Workloads")
            await scene.create(urgent("urgent", "groups", 2))
            await scene.until(lambda: scene.runs("urgent"), "something urgent takes a group's quota")
            await agreed(scene, 5, "the other group runs on")
            await scene.delete("urgent")
            await scene.until(lambda: scene.runs(*both), "both run again")
            patched({"spec": {"replicas": 1}})
            await agreed(scene, 3, "one group is left")
            await scene.until(lambda: len(workloads_of(scene, "leaderworkerset-")) == 1, "and one Workload")
            assert scene.runs(*members(0))
            await a_tree_runs(scene, "groups")
            await agreed(scene, 3, "its quota is free")
            cluster.kubectl("delete", "leaderworkerset", "llm", "-n", TEAM, "--wait=false")
            await scene.clean()
        cluster.kubectl("delete", "resourceflavors.kueue.x-k8s.io", "placed", "--wait=false")


@pytest.mark.usefixtures("lws")
async def test_the_examples_that_serve_as_a_whole_are_deleted_in_every_state(
    cluster: Cluster, tmp_path: Path, account: tuple[str, ...]
) -> None:
    """Neither of them ever finishes."""
    cluster.kubectl("apply", "-f", "-", input=json.dumps(URGENT))
    kwok = cluster.state.processes["kwok"].pid
    async with pod_lab(cluster) as scene, played(cluster):
        (tmp_path / "controller.yaml").write_text(CONFIG + SETS)
        examples = ServingExamples(scene)
        with scene.queues.controllers(tmp_path, "one", flags=account) as (controller,):
            examples.apply()
            await scene.until(examples.wait, "all are queued, and held")
            examples.delete()
            await examples.gone("held")
            await _serving(scene, gpus=7)
            os.kill(kwok, signal.SIGSTOP)
            try:
                examples.apply()
                await scene.until(examples.are_admitted, "all are admitted, and no pod begins")
                controller.kill()
                examples.delete()
            finally:
                os.kill(kwok, signal.SIGCONT)
            controller.start()
            await examples.gone("admitted")
            examples.apply()
            await agreed(scene, 7, "all run")
            examples.delete()
            await examples.gone("running")
            examples.apply()
            await agreed(scene, 7, "all run")
            await scene.create(urgent("urgent", "research", 7))
            await scene.until(lambda: scene.runs("urgent"), "something urgent takes all quota")
            await scene.until(examples.wait, "they wait again")
            examples.delete()
            await scene.until(lambda: set(scene.watcher.pods) == {"urgent"}, "what was preempted has no pod")
            await scene.delete("urgent")
            await examples.gone("preempted")
            await scene.clean()


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
        cluster.kubectl("delete", "-f", "-", input=rendered(*HOLDING))
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
        change = ("patch", "pod", "waits-0", "-n", TEAM, "--type=merge", "-p", free)
        await scene.until(lambda: not refused(cluster, *change) and scene.runs("waits-0"), "a person has let it go")
        for name in ("pods", "localqueues.kueue.x-k8s.io"):
            cluster.kubectl("delete", name, "-n", TEAM, "--all", "--wait=false")
        cluster.kubectl("delete", "clusterqueues.kueue.x-k8s.io", "--all", "--timeout=180s")
        await until(lambda: not scene.watcher.pods, "everything goes without us")
        pods = await scene.client.list_all(PODS, dict[str, Any])
        assert not pods.items
