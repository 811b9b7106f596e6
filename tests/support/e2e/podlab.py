"""Plain pods and gangs on a real control plane, and a watcher that notes what may never be of them.

Pods are played by kwok, and a gang gets on only while all of it runs, as one that trains does: who watches it says when
it is done. The scheduler, the API server with its policies, and the garbage collector are real.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, NAMESPACES, PODS, TOPOLOGIES
from controller.cluster.webhooks.jobs import SuspendPaths
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.stages import COMPLETE_AFTER
from hack.cluster.errors import ClusterError
from hack.cluster.waiting import until as wait_until
from kube.clock import Backoff, SystemClock
from kube.errors import NotFoundError
from kube.reading.reflector import Added, Change, Changed, Reflector, Removed
from tests.support.e2e.charttext import rendered
from tests.support.e2e.kubernetes import POLICIES, SUSPEND_BY
from tests.support.e2e.queuelab import CONFIG, Json, QueueLab, _json, install, lab
from tests.support.e2e.webhooklab import Webhook

QUEUE, GATE = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/admission"
GROUP, TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
INDEX, MANAGED = "kueue.x-k8s.io/pod-group-pod-index", "kueue.x-k8s.io/managed"
GPU, HOST = "nvidia.com/gpu", "kubernetes.io/hostname"
HOLDING = (f"pod-gate-{SUSPEND_BY}", "pod-policy")
SERVING = (f"serving-{SUSPEND_BY}", "serving-minimum-policy")
WEBHOOK = () if POLICIES else ("webhook",)
"""Templates of the chart; the last are its Service and what the controller may do for it."""
PLACED = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
TEAM = "team"
DEADLOCK_S = 20.0
"""Two halves that last as long are neither a race between two watches any more, nor pods that are slow to go: the
scheduler looks at a pod that had no room again within ten seconds.
"""
READY = "waitForPodsReady: {{timeout: {timeout}, requeuingStrategy: {{backoffBaseSeconds: 1}}}}\n"


@contextmanager
def pods_installed(cluster: Cluster) -> Iterator[None]:
    """Everything of the chart that plain pods need, in effect. Where the API server has no policies that change
    objects, the controller's webhook answers meanwhile, whatever becomes of controllers.
    """
    install(cluster)
    cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered(*HOLDING, *SERVING, *WEBHOOK))
    cluster.kubectl("create", "namespace", TEAM)
    with answering(cluster):
        _await_effect(cluster)
        yield


@contextmanager
def answering(cluster: Cluster, paths: SuspendPaths | None = None) -> Iterator[None]:
    """The controller's webhook, where no policies stand in its place. ``paths``: of a site's own kinds."""
    with nullcontext() if POLICIES else Webhook(cluster, defaults=(), paths=paths):
        yield


def _await_effect(cluster: Cluster) -> None:
    probe = json.dumps(pod_body("probe", queue="any"))

    def held() -> bool:
        with suppress(ClusterError):  # refused without its marks: of two policies one takes effect first
            found = json.loads(cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=probe))
            return bool(found["spec"].get("schedulingGates"))
        return False

    wait_until(held, "the policies in effect", timeout_s=120, every_s=0.1)
    served = json.dumps(deployment("probe", queue="any"))

    def stamped() -> bool:
        with suppress(ClusterError):  # refused while the webhook is not called yet
            found = json.loads(cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=served))
            return MANAGED in found["spec"]["template"]["metadata"]["labels"]
        return False

    wait_until(stamped, "the policies for Deployments in effect", timeout_s=120, every_s=0.1)
    wrong = ("create", "--dry-run=server", "-f", "-")
    bad = json.dumps(pod_body("probe", queue="No_Queue"))
    said = "expected the name of a LocalQueue"
    wait_until(lambda: said in refused(cluster, *wrong, input=bad), "the policy for marks", timeout_s=120, every_s=0.1)
    update = ("label", "pod", "probe", "-n", TEAM, f"{QUEUE}=", "--overwrite", "--dry-run=server")
    cluster.kubectl("create", "-f", "-", input=probe)
    wait_until(lambda: bool(refused(cluster, *update)), "the policy for updates in effect", timeout_s=120, every_s=0.1)
    cluster.kubectl("patch", "pod", "probe", "-n", TEAM, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
    cluster.kubectl("delete", "pod", "probe", "-n", TEAM, "--now")


def refused(cluster: Cluster, *command: str, **more: Any) -> str:
    """What the API server says to it; empty if it does it."""
    try:
        cluster.kubectl(*command, **more)
    except ClusterError as error:
        return str(error)
    return ""


def pod_body(
    name: str,
    *,
    queue: str = "",
    gpus: int = 1,
    labels: dict[str, str] | None = None,
    notes: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: str(gpus)}}}
    marks = {**({QUEUE: queue} if queue else {}), **(labels or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": TEAM, "labels": marks, "annotations": notes or {}},
        "spec": {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def deployment(name: str, *, queue: str, replicas: int = 1, **spec: Any) -> Json:
    """Of pods with one GPU each; ``spec``: more of the Deployment's own."""
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: "1"}}}
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    labels = {QUEUE: queue} if queue else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": TEAM, "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, **spec},
    }


@dataclass
class Gang:
    """``pods`` of ``gpus`` GPUs each."""

    name: str
    pods: int
    gpus: int
    queue: str
    """Empty: nobody queues it, the scheduler takes its pods as they come."""
    notes: dict[str, str] = field(default_factory=dict)

    def bodies(self, suffix: str = "") -> list[Json]:
        return [self.member(rank, suffix) for rank in range(self.pods)]

    def member(self, rank: int, suffix: str = "", **spec: Any) -> Json:
        labels = {GROUP: self.name, INDEX: str(rank)}
        notes = {TOTAL: str(self.pods), **self.notes}
        name = f"{self.name}-{rank}{suffix}"
        return pod_body(name, queue=self.queue, gpus=self.gpus, labels=labels, notes=notes, **spec)


@dataclass
class PodWatcher:
    """Follows all pods of the team. ``broken``: a gang whose pods were let go while some were not there, or two gangs
    that hold capacity and wait for each other's, or more pods that may run than ``at_most`` GPUs (0: any number) allow.
    """

    pods: dict[str, Json] = field(default_factory=dict)
    at_most: int = 0
    broken: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    """Names of all pods that ever were."""
    _since_s: float | None = None

    def hear(self, change: Change[Json]) -> None:
        match change:
            case Added(key=key, new=new):
                self.pods[key.name] = new.object
                self.seen.add(key.name)
            case Changed(key=key, old=old, new=new):
                self.pods[key.name] = new.object
                if is_held(old.object) and not is_held(new.object):
                    self._let_go(new.object)
            case Removed(key=key):
                self.pods.pop(key.name, None)
        self.look()
        if 0 < self.at_most < (gpus := sum(map(gpus_of, filter(may_run, self.pods.values())))):
            self.broken.append(f"pods with {gpus} GPUs may run")

    def _let_go(self, pod: Json) -> None:
        group = pod["metadata"]["labels"].get(GROUP)
        total = int(pod["metadata"]["annotations"].get(TOTAL, "0"))
        if group and "deletionTimestamp" not in pod["metadata"] and len(self.live(group)) < total:
            self.broken.append(f"{group}: let go with {len(self.live(group))} of {total} pods")

    def look(self) -> None:
        """Deadlock is seen when nothing happens any more: call it while waiting too."""
        groups = {one["metadata"]["labels"].get(GROUP, "") for one in self.pods.values()} - {""}
        halves = [group for group in sorted(groups) if self.is_half_placed(group)]
        if len(halves) < 2:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = time.monotonic()
        elif time.monotonic() - self._since_s > DEADLOCK_S and f"deadlock: {halves}" not in self.broken:
            self.broken.append(f"deadlock: {halves}")

    def is_half_placed(self, group: str) -> bool:
        """It holds capacity, and the scheduler has no room for the rest."""
        live = self.live(group)
        return any(map(node, live)) and any(is_stuck(one) for one in live)

    def live(self, group: str) -> list[Json]:
        return [
            one
            for one in self.pods.values()
            if one["metadata"]["labels"].get(GROUP) == group and one["status"].get("phase") != "Failed"
        ]


def is_held(pod: Json) -> bool:
    return any(one["name"] == GATE for one in pod["spec"].get("schedulingGates", []))


def may_run(pod: Json) -> bool:
    return not is_held(pod) and pod["status"].get("phase") not in ("Succeeded", "Failed")


def gpus_of(pod: Json) -> int:
    limits = (each["resources"].get("limits", {}) for each in pod["spec"]["containers"])
    return sum(int(found.get(GPU, "0")) for found in limits)


def node(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


def is_stuck(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return not node(pod) and any(one.get("reason") == "Unschedulable" for one in conditions)


class PodLab:
    """A QueueLab with pods."""

    def __init__(self, queues: QueueLab, watcher: PodWatcher) -> None:
        self.queues = queues
        self.client = queues.client
        self.cluster = queues.cluster
        self.watcher = watcher

    def config(self, folder: Path, *, ready: str = "") -> None:
        """The controller's configuration; ``ready``: how long a gang's pods may take to become ready."""
        text = CONFIG + "integrations: {frameworks: [batch/job, pod, deployment]}\n"
        (folder / "controller.yaml").write_text(text + (READY.format(timeout=ready) if ready else ""))

    async def queue(self, name: str, gpus: int, *, placed: bool = False, **spec: Any) -> None:
        """A ClusterQueue and a LocalQueue of its name; ``placed``: its pods are sent to nodes one by one."""
        flavor = "placed" if placed else "gpus"
        if placed:
            await self.queues.share(TOPOLOGIES, "hosts", spec={"levels": [{"nodeLabel": HOST}]})
        topology = {"topologyName": "hosts"} if placed else {}
        await self.queues.share(FLAVORS, flavor, spec={"nodeLabels": {"type": "kwok"}, **topology})
        quota = {"name": flavor, "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}
        group = {"coveredResources": [GPU], "flavors": [quota]}
        await self.queues.make(CLUSTER_QUEUES, name, spec={"namespaceSelector": {}, "resourceGroups": [group], **spec})
        await self.queues.make(LOCAL_QUEUES, name, namespace=TEAM, spec={"clusterQueue": name})

    async def create(self, *bodies: Json) -> None:
        for body in bodies:
            await self.client.create(PODS, body, dict[str, Any], namespace=body["metadata"]["namespace"])

    async def delete(self, name: str) -> None:
        with suppress(NotFoundError):
            await self.client.delete(PODS, name, namespace=TEAM)

    def pod(self, name: str) -> Json:
        """Empty while there is none."""
        return self.watcher.pods.get(name, {})

    def runs(self, *names: str) -> bool:
        return all(self.pod(name).get("status", {}).get("phase") == "Running" for name in names)

    def members(self, group: str) -> list[Json]:
        return self.watcher.live(group)

    async def finish(self, names: Iterable[str]) -> None:
        """What they were running for is done."""
        patch = {"metadata": {"annotations": {COMPLETE_AFTER: "0s"}}}
        for name in names:
            await self.client.merge_patch(PODS, name, patch, dict[str, Any], namespace=TEAM)

    def workload(self, name: str) -> Json:
        return self.queues.watcher.workloads.get(f"{TEAM}/{name}", {})

    def condition(self, name: str, type_: str) -> str:
        found = self.workload(name).get("status", {}).get("conditions", [])
        return next((f"{one['status']}/{one['reason']}" for one in found if one["type"] == type_), "")

    async def until(
        self,
        condition: Callable[[], bool],
        what: str,
        timeout_s: float = 180.0,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            self.watcher.look()
            if meanwhile is not None:
                await meanwhile()
            assert time.monotonic() < deadline_s, f"not within {timeout_s:.0f} s: {what}: {self._shown()}"
            await asyncio.sleep(0.05)

    def _shown(self) -> str:
        states = {
            name: (one["status"].get("phase"), is_held(one), node(one), sorted(one["metadata"].get("finalizers", [])))
            for name, one in sorted(self.watcher.pods.items())
            if one["status"].get("phase") != "Succeeded" or one["metadata"].get("finalizers")
        }
        workloads = {
            name: [f"{each['type']}={each['status']}/{each['reason']}" for each in one["status"].get("conditions", [])]
            for name, one in sorted(self.queues.watcher.workloads.items())
            if "status" in one
        }
        return f"{workloads}, {states}"[:6000]

    async def clean(self) -> None:
        """Nothing is left, and nothing had to be forced."""
        self.cluster.kubectl("delete", "pods", "-n", TEAM, "--all", "--wait=false")
        await self.until(lambda: not self.watcher.pods, "no pod is left")
        await self.until(lambda: not self.queues.watcher.workloads, "no workload is left")
        self.cluster.kubectl("delete", "localqueues.kueue.x-k8s.io", "-n", TEAM, "--all")
        self.cluster.kubectl("delete", "clusterqueues.kueue.x-k8s.io", "--all", "--timeout=180s")


@asynccontextmanager
async def pod_lab(cluster: Cluster, limits: dict[str, int] | None = None) -> AsyncIterator[PodLab]:
    """Follows everything until the block ends, and fails if anything happened that may never happen."""
    watcher = PodWatcher()
    async with lab(cluster, limits or {}) as queues:
        await queues.share(NAMESPACES, TEAM)
        reflector = Reflector(
            queues.client,
            PODS,
            _json,
            watcher.hear,
            clock=SystemClock(),
            backoff=Backoff(random=lambda: 0.5, initial_s=0.2, maximum_s=1.0),
        )
        task = asyncio.create_task(reflector.run())
        await reflector.wait_synced()
        try:
            yield PodLab(queues, watcher)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert not watcher.broken, watcher.broken[:5]
