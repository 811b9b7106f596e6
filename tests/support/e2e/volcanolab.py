"""Volcano's Jobs and Queues on a real control plane, and a watcher that notes what may never be of their pods.

Pods are played by kwok, and end where a test says so. API server, scheduler, garbage collector, Volcano's CRDs and the
chart's policies and rights are real.
"""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from controller.cluster.watching.kinds import NAMESPACES, POD_GROUPS, PODS, VOLCANO_COMMANDS, VOLCANO_QUEUES, WORKLOADS
from controller.foreign.jobs.podfacts import JOB_NAME
from controller.foreign.jobs.reconcile_shell import JOBS as VOLCANO_JOBS
from controller.jobs.framework.marks import controller_of
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.stages import COMPLETE_AFTER
from hack.cluster.errors import ClusterError
from hack.cluster.waiting import until as wait_until
from kube.clock import Backoff, SystemClock
from kube.errors import NotFoundError
from kube.reading.reflector import Added, Change, Changed, Reflector, Removed
from kube.resources import Resource
from tests.support.e2e.charttext import rendered
from tests.support.e2e.podlab import GPU, refused
from tests.support.e2e.queuelab import ALONE, CONFIG, ROOT, Controller, Json, QueueLab, _json, install, is_true, lab

TEAM = "team"
VOLCANO_CRDS = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds" / "volcano"
SWITCHED_ON = "controller.volcano.enabled=true"
VOLCANO_CONFIG = CONFIG.replace(
    "tessera: {",
    "integrations: {frameworks: [batch/job, pod, batch.volcano.sh/job]}\ntessera: {volcano: {enabled: true}, ",
)
_POLICIES = ("foreign-defaults-policy", "foreign-rules-policy", "foreign-queue-policy", "pod-gate-policy", "pod-policy")
_RIGHTS = ("controller-rbac-foreign", "controller-rbac-volcano")
_WHOLE = ["pods", "jobs.batch.volcano.sh", "workloads.kueue.x-k8s.io"]


def install_volcano(cluster: Cluster, *values: str) -> None:
    """Volcano's CRDs, and all that the chart with ``values`` has for them, in effect."""
    assert VOLCANO_CRDS.is_dir(), f"Volcano's CRDs not found: {VOLCANO_CRDS} is no folder; set TESSERA_SHARED"
    install(cluster)
    files = [word for file in sorted(VOLCANO_CRDS.glob("*.yaml")) for word in ("-f", str(file))]
    cluster.kubectl("apply", "--server-side", *files)
    listed = cluster.kubectl("get", "crd", "-o", "name").split()
    cluster.kubectl("wait", "--for=condition=Established", *listed, "--timeout=120s")
    printed = rendered(*_RIGHTS, *_POLICIES, values=(SWITCHED_ON, *values))
    cluster.kubectl("apply", "--server-side", "-f", "-", input=printed)
    cluster.kubectl("create", "namespace", TEAM)
    _await_policies(cluster)


def _await_policies(cluster: Cluster) -> None:
    create = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    probe, wrong = volcano_job("probe", task("a", 1)), volcano_job("probe", task("a", 1), plugins={"none": []})
    wrong["metadata"]["namespace"] = probe["metadata"]["namespace"] = TEAM
    annotations = {"scheduling.volcano.sh/queue-name": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", **pod_of(schedulerName="volcano")}
    pod["metadata"] = {"name": "probe", "namespace": TEAM, "annotations": annotations}

    def in_effect() -> bool:
        with suppress(ClusterError):  # of two policies one takes effect first
            made, of_pod = (json.loads(cluster.kubectl(*create, input=json.dumps(each))) for each in (probe, pod))
            defaulted = made["spec"].get("minAvailable") == 1
            gated = bool(of_pod["spec"].get("schedulingGates")) and of_pod["spec"]["schedulerName"] != "volcano"
            return defaulted and gated and "spec.plugins" in refused(cluster, *create, input=json.dumps(wrong))
        return False

    wait_until(in_effect, "the policies in effect", timeout_s=120, every_s=0.1)


@contextmanager
def controlling(cluster: Cluster, folder: Path, config: str = VOLCANO_CONFIG) -> Iterator[Controller]:
    """The controller's process, with the chart's rights."""
    (folder / "controller.yaml").write_text(config)
    controller = Controller(cluster, folder, "one", ALONE)
    controller.start()
    try:
        yield controller
    finally:
        if controller.runs:
            controller.kill()


@contextmanager
def still(cluster: Cluster) -> Iterator[None]:
    """kwok does nothing: no pod begins, ends or goes."""
    kwok = cluster.state.processes["kwok"].pid
    os.kill(kwok, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kwok, signal.SIGCONT)


# -- objects -----------------------------------------------------------------------------------------------------------


def pod_of(gpus: int = 0, **spec: Any) -> Json:
    """A pod template. It runs for as long as a test wants, and stays until kwok says that it went."""
    resources = {"limits": {GPU: str(gpus)}} if gpus else {"requests": {"cpu": "1"}}
    container = {"name": "main", "image": "none", "resources": resources}
    return {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def task(name: str, replicas: int, *, gpus: int = 0, **more: Any) -> Json:
    return {"name": name, "replicas": replicas, "template": pod_of(gpus), **more}


def volcano_job(name: str, *tasks: Json, **spec: Any) -> Json:
    body = {"apiVersion": VOLCANO_JOBS.api_version, "kind": "Job", "metadata": {"name": name}}
    return {**body, "spec": {"schedulerName": "volcano", "tasks": list(tasks), **spec}}


# -- what is seen ------------------------------------------------------------------------------------------------------


class Made(NamedTuple):
    """A pod of a Volcano Job, as it was created at ``revision``."""

    job: str
    name: str
    owner: str
    revision: int


@dataclass
class VolcanoWatcher:
    """``admissions``: by the uid of a job, when its Workload was admitted and when it ceased to be. Revisions are the
    store's: they order what two watches tell.
    """

    known: dict[Resource, dict[str, Json]] = field(default_factory=dict)
    made: list[Made] = field(default_factory=list)
    admissions: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)

    def hearing(self, resource: Resource) -> Callable[[Change[Json]], None]:
        known = self.known.setdefault(resource, {})

        def hear(change: Change[Json]) -> None:
            match change:
                case Added(key=key, new=new) | Changed(key=key, new=new):
                    is_new = key.name not in known or known[key.name]["metadata"]["uid"] != new.uid
                    known[key.name] = new.object
                    if resource == WORKLOADS:
                        self._admitted(new.object)
                    if resource == PODS and is_new:
                        self._made(new.object)
                case Removed(key=key):
                    known.pop(key.name, None)

        return hear

    def _admitted(self, workload: Json) -> None:
        for owner in workload["metadata"].get("ownerReferences", ()):
            told = self.admissions.setdefault(owner["uid"], [])
            now = is_true(workload, "Admitted") and not is_true(workload, "Finished")
            if now != (bool(told) and told[-1][1]):
                told.append((int(workload["metadata"]["resourceVersion"]), now))

    def _made(self, pod: Json) -> None:
        owner = controller_of(pod)
        if owner is not None and JOB_NAME in pod["metadata"].get("labels", {}):
            meta = pod["metadata"]
            self.made.append(Made(owner.name, meta["name"], owner.uid, int(meta["resourceVersion"])))

    def unadmitted(self) -> list[Made]:
        """Pods that were made while their job was not admitted."""

        def was(made: Made) -> bool:
            before = [admitted for at, admitted in self.admissions.get(made.owner, ()) if at < made.revision]
            return bool(before) and before[-1]

        return [made for made in self.made if not was(made)]


class VolcanoLab:
    """Objects go by their names: all that have a namespace are in ``team``, but for those of the examples."""

    def __init__(self, queues: QueueLab, watcher: VolcanoWatcher) -> None:
        self.client, self.cluster, self.watcher = queues.client, queues.cluster, watcher
        self._commands = 0

    # What is made.

    async def create(self, job: Json) -> None:
        await self.client.create(VOLCANO_JOBS, job, dict[str, Any], namespace=TEAM)

    def apply(self, **body: Any) -> None:
        """An object that all tests of a cluster share."""
        self.cluster.kubectl("apply", "-f", "-", input=json.dumps(body))

    def namespace(self, name: str) -> None:
        self.apply(apiVersion="v1", kind="Namespace", metadata={"name": name})

    def priority_class(self, name: str, value: int) -> None:
        self.apply(apiVersion="scheduling.k8s.io/v1", kind="PriorityClass", metadata={"name": name}, value=value)

    async def queue(self, name: str, **spec: Any) -> None:
        body = {"apiVersion": VOLCANO_QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        await self.client.create(VOLCANO_QUEUES, body, dict[str, Any])

    async def command(self, action: str, job: str) -> None:
        """As ``vcctl job suspend`` and ``resume`` write it."""
        await self._command(action, VOLCANO_JOBS, self.job(job)["metadata"], TEAM)

    async def queue_command(self, action: str, queue: str) -> None:
        """As ``vcctl queue operate`` writes it."""
        await self._command(action, VOLCANO_QUEUES, self.watcher.known[VOLCANO_QUEUES][queue]["metadata"], "default")

    async def _command(self, action: str, resource: Resource, meta: Json, namespace: str) -> None:
        self._commands += 1
        target = {"apiVersion": resource.api_version, "kind": resource.kind, "name": meta["name"], "uid": meta["uid"]}
        body = {
            "apiVersion": VOLCANO_COMMANDS.api_version,
            "kind": "Command",
            "metadata": {
                "name": f"{meta['name']}-{self._commands}",
                "ownerReferences": [{**target, "controller": True}],
            },
            "action": action,
            "target": target,
        }
        await self.client.create(VOLCANO_COMMANDS, body, dict[str, Any], namespace=namespace)

    # What happens to pods.

    async def finish(self, *pods: str) -> None:
        """What they were running for is done."""
        patch = {"metadata": {"annotations": {COMPLETE_AFTER: "0s"}}}
        for name in pods:
            await self.client.merge_patch(PODS, name, patch, dict[str, Any], namespace=self._namespace(name))

    async def fail(self, pod: str, exit_code: int = 1) -> None:
        ended = {"exitCode": exit_code, "reason": "Error"}
        container = {"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
        statuses = [{**container, "state": {"terminated": ended}}]
        status = {"status": {"phase": "Failed", "containerStatuses": statuses}}
        space = self._namespace(pod)
        await self.client.merge_patch(PODS, pod, status, dict[str, Any], namespace=space, subresource="status")

    def evict(self, pod: str) -> None:
        """As ``kubectl drain`` does."""
        meta = {"name": pod, "namespace": self._namespace(pod)}
        body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta})
        path = f"{PODS.path(pod, namespace=meta['namespace'])}/eviction"
        self.cluster.kubectl("create", "--raw", path, "-f", "-", input=body)

    def _namespace(self, pod: str) -> str:
        return str(self.watcher.known[PODS][pod]["metadata"]["namespace"])

    # What is there.

    def job(self, name: str) -> Json:
        """Empty while there is none."""
        return self.watcher.known[VOLCANO_JOBS].get(name, {})

    def status(self, name: str) -> Json:
        found: Json = self.job(name).get("status", {})
        return found

    def phase(self, name: str) -> str:
        return str(self.status(name).get("state", {}).get("phase", ""))

    def phases(self, name: str) -> list[str]:
        """All that it went through."""
        return [each["status"] for each in self.status(name).get("conditions", [])]

    def pods(self, name: str) -> dict[str, Json]:
        """Of a Volcano Job, by name."""
        known = self.watcher.known[PODS]
        return {
            key: pod for key, pod in sorted(known.items()) if pod["metadata"].get("labels", {}).get(JOB_NAME) == name
        }

    def uids(self, name: str) -> dict[str, str]:
        return {key: pod["metadata"]["uid"] for key, pod in self.pods(name).items()}

    def running(self, name: str) -> int:
        return sum(pod["status"].get("phase") == "Running" for pod in self.pods(name).values())

    def going(self, name: str) -> set[str]:
        """Pods of a job that are being deleted."""
        return {key for key, pod in self.pods(name).items() if "deletionTimestamp" in pod["metadata"]}

    def runs(self, name: str, pods: int) -> bool:
        """Whether so many pods run, by themselves and by the job's status."""
        return self.phase(name) == "Running" and self.running(name) == pods == self.status(name).get("running")

    def workload(self, name: str) -> Json:
        """The job's; empty while there is none."""
        uid = self.job(name).get("metadata", {}).get("uid", "")
        owned = (
            each
            for each in self.watcher.known[WORKLOADS].values()
            if uid in [owner["uid"] for owner in each["metadata"].get("ownerReferences", ())]
        )
        return next(owned, {})

    def condition(self, name: str, type_: str) -> str:
        """``True/Reason`` of its Workload; empty where there is none."""
        found = self.workload(name).get("status", {}).get("conditions", [])
        return next((f"{each['status']}/{each['reason']}" for each in found if each["type"] == type_), "")

    def waits(self, name: str) -> bool:
        """It has been decided about, and has neither quota nor pods."""
        return self.condition(name, "QuotaReserved").startswith("False") and not self.pods(name)

    def times_made(self, name: str) -> dict[str, int]:
        """How often each of its pods was created."""
        return dict(Counter(made.name for made in self.watcher.made if made.job == name))

    def gpus(self, queue: str) -> int:
        """Allocated, by the status of a Volcano Queue; -1 while it has none."""
        status = self.queue_status(queue)
        return int(status.get("allocated", {}).get(GPU, "0")) if "state" in status else -1

    def queue_status(self, name: str) -> Json:
        found: Json = self.watcher.known[VOLCANO_QUEUES].get(name, {}).get("status", {})
        return found

    def pod_groups(self) -> dict[str, str]:
        """Their phases."""
        known = self.watcher.known[POD_GROUPS]
        return {name: group.get("status", {}).get("phase", "") for name, group in known.items()}

    def printed(self, kind: str, name: str, namespace: str = TEAM) -> dict[str, str]:
        """What ``kubectl get KIND NAME -o wide`` shows, by column."""
        head, row = self.cluster.kubectl("get", kind, name, "-n", namespace, "-o", "wide").splitlines()
        starts = [at for at, sign in enumerate(head) if sign != " " and (at == 0 or head[at - 1] == " ")]
        ends = [*starts[1:], max(len(head), len(row))]
        return {head[start:end].strip(): row[start:end].strip() for start, end in zip(starts, ends, strict=True)}

    async def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, f"not within {timeout_s:.0f} s: {what}: {self._shown()}"
            await asyncio.sleep(0.02)

    def _shown(self) -> str:
        known = self.watcher.known
        jobs = {name: job.get("status", {}) for name, job in known[VOLCANO_JOBS].items()}
        pods = {
            name: (pod["status"].get("phase"), pod["spec"].get("nodeName"), pod["spec"].get("schedulingGates"))
            for name, pod in known[PODS].items()
        }
        queues = {name: queue.get("status", {}) for name, queue in known[VOLCANO_QUEUES].items()}
        return json.dumps({"pods": pods, "jobs": jobs, "queues": queues})[:6000]

    async def clean(self) -> None:
        """No job, pod or Workload is left, and no Queue."""
        for kind in _WHOLE[:2]:
            self.cluster.kubectl("delete", kind, "--all", "-A", "--wait=false")
        known = self.watcher.known
        left = (VOLCANO_JOBS, PODS, WORKLOADS)
        await self.until(lambda: not any(known[resource] for resource in left), "nothing is left")
        queues = known[VOLCANO_QUEUES]
        counted = ("running", "pending")
        await self.until(
            lambda: not any(self.queue_status(name).get(key) for name in queues for key in counted), "told"
        )
        for name in list(queues):
            with suppress(NotFoundError):
                await self.client.delete(VOLCANO_QUEUES, name)


@asynccontextmanager
async def volcano_lab(cluster: Cluster) -> AsyncIterator[VolcanoLab]:
    """Follows everything until the block ends, and fails if a pod was made of a job that was not admitted."""
    watcher = VolcanoWatcher()
    async with lab(cluster, {}) as queues:
        await queues.share(NAMESPACES, TEAM)
        backoff = Backoff(random=lambda: 0.5, initial_s=0.2, maximum_s=1.0)
        followed = (WORKLOADS, VOLCANO_JOBS, PODS, VOLCANO_QUEUES, POD_GROUPS)
        clock = SystemClock()
        reflectors = [
            Reflector(queues.client, each, _json, watcher.hearing(each), clock=clock, backoff=backoff)
            for each in followed
        ]
        tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
        for reflector in reflectors:
            await reflector.wait_synced()
        scene = VolcanoLab(queues, watcher)
        try:
            yield scene
            await scene.clean()
        finally:
            for running in tasks:
                running.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    assert not watcher.unadmitted(), watcher.unadmitted()
