"""KAI's queues and manifests on a real control plane: all of the chart is in effect, and KAI's CRDs are there.

Manifests are KAI's and name nothing of ours. Most pods are played by kwok; the Job controller, the scheduler and the
API server with its policies are real.
"""

import asyncio
import json
import os
import signal
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client.parser import text_string_to_metric_families

from controller.cluster.watching.kinds import JOBS, KAI_POD_GROUPS, KAI_QUEUES
from controller.objects.quantity import parse_quantity
from hack.cluster.cluster import Cluster
from hack.cluster.waiting import until as wait_until
from inventory.api.names import QUEUE_USAGE
from kube.clock import Backoff, SystemClock
from kube.reading.reflector import Added, Change, Changed, Reflector, Removed
from kube.resources import Resource
from tests.support.e2e.charttext import rendered
from tests.support.e2e.lab import Lab
from tests.support.e2e.podlab import GPU, HOST, QUEUE, TEAM, PodLab, node, pod_lab
from tests.support.e2e.queuelab import ALONE, CONFIG, CRDS, NAMESPACE, ROOT, Controller, Json, _json
from tests.support.e2e.trainingoperator import PLURALS

KAI: Final = "kai.scheduler/queue"
CLASS: Final = "priorityClassName"
DEVICES, CLASS_NAME, CLAIM_DRIVER = 6, "gpu.example.com", "gpu.example.com"
_NAMED: Final = ("batch.kubernetes.io/job-name", "training.kubeflow.org/job-name")
LEAST: Final = "kai.scheduler/batch-min-member"
EXAMPLES: Final = ROOT / "examples" / "kai"
_SERVED: Final = "scheduling.run.ai/v2/Queue"
_NOT_RUN: Final = frozenset(("DaemonSet", "Deployment", "Job", "PodDisruptionBudget", "Service"))
"""Kinds of the chart that are left out: agent and controller run beside the cluster."""
_MOVES: Final = "consolidation: {minimumRuntime: 1s}"


def configured(*keys: str) -> str:
    """The controller's configuration: ``keys`` of the ``tessera:`` block, in place of what says when jobs move."""
    rest = CONFIG.replace("policy: tessera, ", "") if any(key.startswith("policy:") for key in keys) else CONFIG
    text = rest.replace("pendingCondition", f"{', '.join(keys or (_MOVES,))}, pendingCondition")
    return text + "integrations: {frameworks: [batch/job, pod, deployment, kubeflow.org/pytorchjob]}\n"


def install(cluster: Cluster) -> None:
    """CRDs, and all of the chart's policies, rights and accounts, in effect."""
    theirs = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds" / "kai"
    assert theirs.is_dir(), f"KAI's CRDs not found: {theirs} is no folder; set TESSERA_SHARED"
    files = [*sorted(CRDS.glob("*.yaml")), *sorted(theirs.glob("*.yaml"))]
    cluster.kubectl("apply", "--server-side", *(word for file in files for word in ("-f", str(file))))
    listed = cluster.kubectl("get", "crd", "-o", "name").split()
    converted = [name for name in listed if name.endswith(".kueue.x-k8s.io")]
    # No client here speaks v1beta1, and no replica can be reached to convert it.
    patch = '{"spec": {"conversion": {"strategy": "None", "webhook": null}}}'
    cluster.kubectl("patch", *converted, "--type=merge", "-p", patch)
    cluster.kubectl("wait", "--for=condition=Established", *listed, "--timeout=120s")
    for namespace in (NAMESPACE, TEAM):
        cluster.kubectl("create", "namespace", namespace)
    objects = [one for one in yaml.safe_load_all(rendered(served=(_SERVED,))) if one and one["kind"] not in _NOT_RUN]
    cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(objects))
    wait_until(lambda: _in_effect(cluster), "the policies in effect", timeout_s=120, every_s=0.2)


def _in_effect(cluster: Cluster) -> bool:
    """Whether a Job waits, and a pod that asks for a part of a GPU too, bound by the default scheduler."""

    def created(body: Json) -> Json:
        found: Json = json.loads(
            cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(body))
        )
        return found

    made_job = created(job("probe", "any"))
    pod = created({**yaml.safe_load((EXAMPLES / "pod-fraction.yaml").read_text())})
    (container,) = pod["spec"]["containers"]
    return (
        made_job["spec"].get("suspend", False)
        and bool(pod["spec"].get("schedulingGates"))
        and pod["spec"]["schedulerName"] == "default-scheduler"
        and bool(container.get("resources", {}).get("limits"))
    )


def job(
    name: str,
    queue: str,
    *,
    pods: int = 1,
    gpus: int = 1,
    least: int = 0,
    marks: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A Job as KAI's users write it, of pods with ``gpus`` each; ``marks``: more labels, ``spec``: of its pods.

    ``least``: pods that start together, 0 for all.
    """
    labels = {KAI: queue, **(marks or {})}
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: str(gpus)}}}
    pod = {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": labels}, "spec": {**pod, "containers": [container], **spec}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": TEAM, "labels": labels, "annotations": {LEAST: str(least or pods)}},
        "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template},
    }


class KaiLab:
    """Jobs, pod groups and queues by their names, as the API server last told of them."""

    def __init__(self, scene: PodLab, controller: Controller) -> None:
        self.scene = scene
        self.controller = controller
        self.queues: dict[str, Json] = {}
        self.groups: dict[str, Json] = {}

    def follow(self, resource: Resource, into: dict[str, Json]) -> Reflector[Json]:
        def hear(change: Change[Json]) -> None:
            match change:
                case Added(key=key, new=new) | Changed(key=key, new=new):
                    into[key.name] = new.object
                case Removed(key=key):
                    into.pop(key.name, None)

        backoff = Backoff(random=lambda: 0.5, initial_s=0.2, maximum_s=1.0)
        return Reflector(self.scene.client, resource, _json, hear, clock=SystemClock(), backoff=backoff)

    # What is made.

    async def apply(self, *given: Path | Json) -> None:
        """Files as they are, or objects."""
        text = "---\n".join(each.read_text() if isinstance(each, Path) else yaml.safe_dump(each) for each in given)
        await asyncio.to_thread(self.scene.cluster.kubectl, "apply", "-n", TEAM, "-f", "-", input=text)

    async def applied(self, given: Path) -> None:
        """A file of a kind that has just come: at the first time that it is queued."""
        await self.scene.until(lambda: self._queues(given), "it is queued")
        await self.apply(given)

    def _queues(self, given: Path) -> bool:
        words = ("create", "-n", TEAM, "--dry-run=server", "-o", "json", "-f", str(given))
        found = json.loads(self.scene.cluster.kubectl(*words))
        return bool(found["metadata"]["labels"].get(QUEUE) == found["metadata"]["labels"][KAI])

    async def create(self, *bodies: Json) -> None:
        for body in bodies:
            await self.scene.client.create(JOBS, body, dict[str, Any], namespace=TEAM)

    async def finish(self, *names: str) -> None:
        """The pods of these jobs end well."""
        chosen = [one["metadata"]["name"] for name in names for one in self.pods(name)]
        await self.scene.finish(chosen)

    async def finish_running(self, job_name: str) -> None:
        """Those of its pods end well that run."""
        await self.scene.finish(self.running_pods(job_name))

    async def delete(self, *what: str) -> None:
        """Objects of the team, as ``kind/name``."""
        await asyncio.to_thread(self.scene.cluster.kubectl, "delete", "-n", TEAM, "--wait=false", *what)

    # What is there.

    def pods(self, job_name: str) -> list[Json]:
        """Those of the job that are not going, and have not ended."""
        return [
            one
            for one in self.scene.watcher.pods.values()
            if job_name in (one["metadata"].get("labels", {}).get(key) for key in _NAMED)
            and "deletionTimestamp" not in one["metadata"]
            and one["status"].get("phase") not in ("Succeeded", "Failed")
        ]

    def nodes(self, job_name: str) -> set[str]:
        return set(map(node, self.pods(job_name)))

    def runs(self, *names: str) -> bool:
        """Whether all pods of these jobs run, and no more."""
        return all(self._runs(name) for name in names)

    def _runs(self, name: str) -> bool:
        spec = self.scene.queues.watcher.jobs.get(f"{TEAM}/{name}", {}).get("spec", {})
        pods = self.pods(name)
        running = [one for one in pods if one["status"].get("phase") == "Running"]
        return spec.get("suspend") is False and len(running) == len(pods) == spec["parallelism"]

    def size(self, job_name: str) -> tuple[int, int]:
        """How many pods of the job run, and how many wait behind a gate."""
        waiting = sum(bool(one["spec"].get("schedulingGates")) for one in self.pods(job_name))
        return len(self.running_pods(job_name)), waiting

    def running_pods(self, job_name: str) -> set[str]:
        found = (one for one in self.pods(job_name) if one["status"].get("phase") == "Running")
        return {one["metadata"]["name"] for one in found}

    def running(self, names: list[str]) -> list[str]:
        """Those that run as a whole; the others hold nothing: they are suspended, without a pod."""
        found = [name for name in names if self._runs(name)]
        return found if all(self.waits(name) for name in names if name not in found) else []

    def waits(self, name: str) -> bool:
        """Whether it is suspended, and no pod of it is left."""
        return self.scene.queues.suspended(name) and not self.pods(name)

    def told(self, name: str, type_: str) -> str:
        """The message of a condition of the job's workload; empty where there is none of the type."""
        found = self.scene.queues.watcher.of_job(name).get("status", {}).get("conditions", [])
        return next((str(one["message"]) for one in found if one["type"] == type_), "")

    def evictions(self, name: str) -> dict[str, int]:
        """How often the job's workload has been evicted, by reason."""
        stats = self.scene.queues.watcher.of_job(name).get("status", {}).get("schedulingStats", {})
        return {one["reason"]: int(one["count"]) for one in stats.get("evictions", [])}

    def group(self, name: str) -> Json:
        """The status of a pod group; empty while there is none."""
        return dict(self.groups.get(name, {}).get("status", {}))

    def gpus(self, queue: str, what: str = "allocated") -> float:
        """By the queue's status; -1 while it says nothing."""
        said = self.queues.get(queue, {}).get("status", {}).get(what, {}).get(GPU, "-1")
        return parse_quantity(said).nanos / 10**9

    def complete(self, *names: str) -> bool:
        """Whether these jobs have ended, and nothing of them is left."""
        return all(self.scene.queues.complete(name) and not self.pods(name) for name in names)

    # What happens.

    async def kill(self, config: str = "") -> None:
        """The controller ends as at a power cut, and another begins; ``config``: with this configuration."""
        await asyncio.to_thread(self.controller.kill)
        if config:
            (self.controller.folder / "controller.yaml").write_text(config)
        self.controller.start()

    @asynccontextmanager
    async def configured(self, *keys: str) -> AsyncIterator[None]:
        """A controller with these keys; as it was after the block."""
        await self.kill(configured(*keys))
        try:
            yield
        finally:
            await self.kill(configured())

    async def passes_by(self, name: str, queue: str) -> None:
        """A small job comes, runs and goes: whatever was to be decided meanwhile has been."""
        await self.create(queued(name, queue))
        await self.scene.until(lambda: self.runs(name), "a small job runs")
        await self.finish(name)
        await self.scene.until(lambda: self.complete(name), "it has ended")

    def counted(self, metric: str) -> dict[str, float]:
        """What the controller has counted, by ClusterQueue; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.controller.port}/metrics", timeout=30) as answer:
                families = text_string_to_metric_families(answer.read().decode())
        except OSError:
            return {}
        samples = (sample for family in families for sample in family.samples if sample.name == metric)
        return {sample.labels["cluster_queue"]: sample.value for sample in samples}

    @contextmanager
    def no_pod_goes(self) -> Iterator[None]:
        """Pods are not played meanwhile: none begins, and none that is deleted is gone."""
        pid = self.scene.cluster.state.processes["kwok"].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    async def clean(self) -> None:
        """Nothing of the team is left, and no queue."""
        await self.delete("jobs,deployments,pods,podgroups.scheduling.run.ai", "--all")
        watcher = self.scene.queues.watcher
        await self.scene.until(lambda: not self.scene.watcher.pods, "no pod is left")
        await self.scene.until(lambda: not watcher.workloads, "no workload is left")
        while self.queues:
            await self.scene.until(lambda: bool(self._lowest()), "departments have lost their leaves")
            words = ("delete", f"{KAI_QUEUES.plural}.{KAI_QUEUES.group}", *self._lowest())
            await asyncio.to_thread(self.scene.cluster.kubectl, *words)
            await self.scene.until(lambda gone=words[2:]: not self.queues.keys() & gone, "they are gone")  # type: ignore[misc]

    def _lowest(self) -> list[str]:
        """Those that nothing is below: others cannot be deleted."""
        return [name for name, one in self.queues.items() if not one.get("status", {}).get("childQueues")]


def start(cluster: Cluster, folder: Path) -> Controller:
    (folder / "controller.yaml").write_text(configured())
    controller = Controller(cluster, folder, "one", ALONE)
    controller.start()
    return controller


def queued(name: str, queue: str, gpus: int = 1, *, host: str = "", notes: dict[str, str] | None = None) -> Json:
    """A Job of one pod for a LocalQueue; ``host``: where its pod has to be, ``notes``: its annotations."""
    place: Json = {"nodeSelector": {HOST: host}} if host else {}
    made = job(name, queue, gpus=gpus, **place)
    made["metadata"]["labels"] = {QUEUE: queue}
    made["spec"]["template"]["metadata"] = {"annotations": notes or {}}
    del made["spec"]["template"]["spec"]["schedulerName"]
    return made


@asynccontextmanager
async def kai_lab(cluster: Cluster, controller: Controller) -> AsyncIterator[KaiLab]:
    """Follows everything until the block ends; nothing is left after it."""
    async with pod_lab(cluster) as scene:
        scene.queues.logs.append(controller.log)
        made = KaiLab(scene, controller)
        followed = [made.follow(KAI_QUEUES, made.queues), made.follow(KAI_POD_GROUPS, made.groups)]
        tasks = [asyncio.create_task(each.run()) for each in followed]
        for each in followed:
            await each.wait_synced()
        try:
            if made.queues:
                await made.clean()  # a scene that failed left them
            yield made
            await made.clean()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def install_training(cluster: Cluster) -> None:
    """CRDs of Kubeflow's training operator."""
    folder = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds" / "kubeflow"
    files = [folder / f"{plural}.yaml" for plural in PLURALS]
    cluster.kubectl("apply", "--server-side", *(word for file in files for word in ("-f", str(file))))


def training(cluster: Cluster, name: str) -> list[str]:
    """Types of the conditions that a PyTorchJob has."""
    found = json.loads(cluster.kubectl("get", "pytorchjob", name, "-n", TEAM, "-o", "json"))
    return [each["type"] for each in found["status"].get("conditions", []) if each["status"] == "True"]


def kai_queue(name: str, parent: str = "") -> dict[str, Any]:
    """Without a quota of GPUs."""
    free = {"quota": -1, "overQuotaWeight": 1, "limit": -1}
    resources = {"gpu": {**free, "quota": 0}, "cpu": free, "memory": free}
    spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def devices() -> list[dict[str, Any]]:
    """A class, and devices of a driver that any node reaches."""
    selectors = [{"cel": {"expression": f"device.driver == '{CLAIM_DRIVER}'"}}]
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
    listed = [{"name": f"gpu-{at}"} for at in range(DEVICES)]
    given = {
        "DeviceClass": (CLASS_NAME, {"selectors": selectors}),
        "ResourceSlice": ("fabric", {"driver": CLAIM_DRIVER, "allNodes": True, "pool": pool, "devices": listed}),
    }
    version = "resource.k8s.io/v1"
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        for kind, (name, spec) in given.items()
    ]


def asks(kind: str, name: str, count: int) -> dict[str, Any]:
    """A ResourceClaim, or a template of claims."""
    exactly = {"deviceClassName": CLASS_NAME, "count": count}
    spec = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
    whole = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": whole}


def by_claim(made: dict[str, Any], **claim: str) -> dict[str, Any]:
    """The job's pods ask for no GPU, and have a claim."""
    pod = made["spec"]["template"]["spec"]
    pod["resourceClaims"] = [{"name": "gpus", **claim}]
    pod["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
    return made


def part_of_time(queue: dict[str, Any]) -> float:
    """Of all GPUs and all seconds that were counted, what the queue's annotation says that it had."""
    record = json.loads(queue["metadata"].get("annotations", {}).get(QUEUE_USAGE, "{}"))
    used = record.get("used", {}).get(GPU, {})
    return float(sum(used.values()) / sum(record["observed"].values())) if used else 0.0


def nowhere(cluster: Cluster, folder: Path) -> Path:
    """A kubeconfig of a server that is not there."""
    config = json.loads(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (folder / "nowhere.kubeconfig").write_text(json.dumps(config))
    return folder / "nowhere.kubeconfig"


def quota_of(bench: Lab, queue: str) -> str:
    """The GPUs that a ClusterQueue says it has given."""
    found = bench.get(f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{queue}").get("status", {})
    used = [each for flavor in found.get("flavorsUsage", ()) for each in flavor["resources"] if each["name"] == GPU]
    return str(used[0]["total"]) if used else ""


def two_shapes(manifest: Path, path: Path) -> Path:
    """``path`` with the manifest's objects; the last of its pods tolerates what the others do not."""
    objects = list(yaml.safe_load_all(manifest.read_text(encoding="utf-8")))
    objects[-1]["spec"]["tolerations"] = [{"key": "example.com/other-shape", "operator": "Exists"}]
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return path


def pod_sets(bench: Lab, name: str) -> list[int]:
    """How many pods each pod set of a Workload has; empty where there is none of this name."""
    listed = bench.get("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads")["items"]
    found = [each["spec"]["podSets"] for each in listed if each["metadata"]["name"] == name]
    return [pod_set["count"] for pod_set in found[0]] if found else []


def waits(bench: Lab, prefix: str) -> str:
    """Why the team's workload of this name holds no quota."""
    listed = bench.get(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{TEAM}/workloads")["items"]
    found = [each.get("status", {}) for each in listed if each["metadata"]["name"].startswith(prefix)]
    conditions = [each for status in found for each in status.get("conditions", [])]
    return "".join(each["message"] for each in conditions if each["type"] == "QuotaReserved")
