"""Queues, Jobs and controllers on a real control plane; what may never happen is looked for all the time.

Pods are played by kwok: the Job controller, the scheduler and the API server are real.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, JOBS, LOCAL_QUEUES, NAMESPACES, WORKLOADS
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.stages import COMPLETE_AFTER
from hack.cluster.layout import MARK_ENV
from hack.cluster.programs import binaries
from kube.client import Client
from kube.clock import Backoff, SystemClock
from kube.errors import ConflictError
from kube.kubeconfig import from_kubeconfig
from kube.reading.reflector import Added, Change, Changed, Reflector, Removed
from kube.resources import Resource
from tests.support.e2e import diagnosis
from tests.support.e2e.judged import promise
from tests.support.e2e.outage import api_server_away

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "tessera"
CRDS = CHART / "crds"
API = "kueue.x-k8s.io/v1beta2"
QUEUE = "kueue.x-k8s.io/queue-name"
CONFIG = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: "0"}
leaderElection: {leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}
tessera: {policy: tessera, pendingCondition: {after: 1s}}
"""
ALONE = ("--no-leader-elect",)
"""Of a replica that is the only one: it waits for nobody's lease, and an API server that takes 4 s to answer, as on a
busy machine, stops no decision.
"""

NAMESPACE = "tessera-system"
ACCOUNT = "t-tessera-controller"

Json = dict[str, Any]


def install(cluster: Cluster) -> None:
    """CRDs, and the controller's account with the chart's rights and no others."""
    files = [word for file in sorted(CRDS.glob("*.yaml")) for word in ("-f", str(file))]
    cluster.kubectl("apply", "--server-side", *files)
    # No client here speaks v1beta1, and no replica can be reached to convert it.
    patch = '{"spec": {"conversion": {"strategy": "None", "webhook": null}}}'
    cluster.kubectl("patch", *cluster.kubectl("get", "crd", "-o", "name").split(), "--type=merge", "-p", patch)
    grant(cluster)


def grant(cluster: Cluster) -> None:
    """The controller's account, with the chart's rights."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    command = [str(binaries.binary("helm")), "template", "t", str(CHART), "--namespace", NAMESPACE]
    files = ("controller-rbac", "controller-rbac-kinds", "controller-rbac-foreign")
    shown = [word for file in files for word in ("--show-only", f"templates/{file}.yaml")]
    rights = subprocess.run([*command, *shown], capture_output=True, text=True, check=True, timeout=60).stdout
    cluster.kubectl("apply", "--server-side", "-f", "-", input=rights)


def as_controller(cluster: Cluster) -> str:
    """A kubeconfig of the controller's account."""
    config = json.loads(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE, "--duration=1h").strip()
    config["users"][0]["user"] = {"token": token}
    return json.dumps(config)


@dataclass
class Controller:
    """One replica, a process beside the cluster, by the controller's account."""

    cluster: Cluster
    folder: Path
    name: str
    flags: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    port: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of its next start, over those of the test."""

    def start(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        config = self.folder / "controller.yaml"
        if not config.exists():
            config.write_text(CONFIG)
        promise(self.cluster, config.read_text())
        command = [
            sys.executable,
            "-m",
            "controller",
            "--config",
            str(config),
            "--identity",
            f"{self.name}-{time.time_ns()}",
        ]
        command += ["--kubeconfig", str(self._account()), "--metrics-address", f"127.0.0.1:{self.port}"]
        command += ["--web-address", "0", *self.flags]
        with self.log.open("ab") as out:
            own = {MARK_ENV: str(self.cluster.paths.home), "TESSERA_NAMESPACE": NAMESPACE}
            env = {**os.environ, **own, **self.environment}
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=env)

    def _account(self) -> Path:
        """It has the chart's rights and no others."""
        path = self.folder / f"{self.name}.kubeconfig"
        if not path.exists():
            path.write_text(as_controller(self.cluster))
        return path

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def kill(self) -> None:
        """As a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> float:
        """Seconds that it took to end as asked."""
        assert self.process is not None
        started_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 0, self.log.read_text()[-2000:]
        return time.monotonic() - started_s

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None


class _Judged(Reflector[Json]):
    """After a watch broke off, what happened meanwhile is known by its outcome alone: objects of the new list come by
    name, and one may hold quota beside the former state of another.
    """

    watcher: "Watcher"

    def _replace(self, items: Any) -> None:
        with self.watcher.whole_list():
            super()._replace(items)


@dataclass
class Watcher:
    """Follows Workloads and Jobs, and notes whatever may never be: quota exceeded, a workload admitted twice."""

    limits: dict[str, int]
    """Cpus that may be held at most, by ClusterQueue; ``*``: by all of them together."""
    workloads: dict[str, Json] = field(default_factory=dict)
    jobs: dict[str, Json] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    most: int = 0
    lists: bool = False
    """Whether a list is being taken in: what it says is of one moment, and is judged as a whole."""

    def hear_workload(self, change: Change[Json]) -> None:
        match change:
            case Added(key=key, new=new):
                self.workloads["/".join(key)] = new.object
            case Changed(key=key, old=old, new=new):
                self.workloads["/".join(key)] = new.object
                before, after = admission(old.object), admission(new.object)
                if before and after and before != after and not _gets_places(before, after):
                    self.broken.append(f"{key}: admitted twice: {before} then {after}")
            case Removed(key=key):
                self.workloads.pop("/".join(key), None)
        if not self.lists:
            self._count()

    @contextmanager
    def whole_list(self) -> Iterator[None]:
        self.lists = True
        try:
            yield
        finally:
            self.lists = False
            self._count()

    def hear_job(self, change: Change[Json]) -> None:
        match change:
            case Added(key=key, new=new) | Changed(key=key, new=new):
                self.jobs["/".join(key)] = new.object
            case Removed(key=key):
                self.jobs.pop("/".join(key), None)

    def _count(self) -> None:
        held: dict[str, int] = {}
        for one in self.workloads.values():
            if queue := holds(one):
                held[queue] = held.get(queue, 0) + cpus_of(one)
        held["*"] = sum(held.values())
        self.most = max(self.most, held["*"])
        for name, cpus in held.items():
            if cpus > self.limits.get(name, cpus):
                self.broken.append(f"{name}: {cpus} cpus are held, {self.limits[name]} may be: {self._holders()}")

    def _holders(self) -> str:
        found = [(int(each["metadata"]["resourceVersion"]), each) for each in self.workloads.values() if holds(each)]
        told = [
            f"{_owner(each)} {cpus_of(each)} since {reserved(each)} at {at}"
            for at, each in sorted(found, key=itemgetter(0))
        ]
        return "; ".join(told)

    def of_job(self, name: str) -> Json:
        """The workload of a job of namespace ``team``; empty while there is none."""
        return next((one for one in self.workloads.values() if _owner(one) == name), {})


class QueueLab:
    """Open it with ``async with lab(...)``."""

    def __init__(self, cluster: Cluster, client: Client, watcher: Watcher) -> None:
        self.cluster = cluster
        self.client = client
        self.watcher = watcher
        self.logs: list[Path] = []
        """Of all controllers that ever ran here."""

    async def make(self, resource: Resource, name: str, *, namespace: str | None = None, **parts: Any) -> None:
        """One that nobody made before: what an earlier test left is not what this one asks for."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **parts}
        await self.client.create(resource, body, dict[str, Any], namespace=namespace)

    async def share(self, resource: Resource, name: str, *, namespace: str | None = None, **parts: Any) -> None:
        """One that all tests of a module use: the first makes it, and whoever finds it wants it as it is."""
        try:
            await self.make(resource, name, namespace=namespace, **parts)
        except ConflictError as error:
            if error.reason != "AlreadyExists":
                raise
            there = await self.client.get(resource, name, dict[str, Any], namespace=namespace)
            assert _holds(there, parts), f"{resource.kind} {name}: expected {parts}, found {there}"

    async def queue(self, name: str, cpus: int, *, cohort: str = "", **spec: Any) -> None:
        """A ClusterQueue, and a LocalQueue of its name in namespace ``team``."""
        await self.share(NAMESPACES, "team")
        await self.share(FLAVORS, "plain")
        group = {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "plain", "resources": [{"name": "cpu", "nominalQuota": str(cpus)}]}],
        }
        body = {
            "namespaceSelector": {},
            "resourceGroups": [group],
            **({"cohortName": cohort} if cohort else {}),
            **spec,
        }
        await self.make(CLUSTER_QUEUES, name, spec=body)
        await self.make(LOCAL_QUEUES, name, namespace="team", spec={"clusterQueue": name})

    async def job(
        self,
        name: str,
        queue: str,
        *,
        pods: int = 1,
        runs: str = "1h",
        priority: str | None = None,
        gpus: int = 0,
        notes: dict[str, str] | None = None,
    ) -> None:
        """``gpus``: of each pod. ``notes``: the job's annotations."""
        limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}, **limits}}
        template = {
            "metadata": {"annotations": {COMPLETE_AFTER: runs}},
            "spec": {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0},
        }
        labels = {QUEUE: queue, **({"kueue.x-k8s.io/priority-class": priority} if priority else {})}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": labels, "annotations": notes or {}},
            "spec": {"suspend": True, "parallelism": pods, "completions": pods, "template": template},
        }
        await self.client.create(JOBS, body, dict[str, Any], namespace="team")

    def runs(self, name: str) -> bool:
        """Whether its pods are ready, by what the Job controller says."""
        job = self.watcher.jobs.get(f"team/{name}", {})
        return not job.get("spec", {}).get("suspend", True) and job.get("status", {}).get("ready", 0) > 0

    def suspended(self, name: str) -> bool:
        job = self.watcher.jobs.get(f"team/{name}", {})
        return bool(job.get("spec", {}).get("suspend", False)) and not job.get("status", {}).get("active", 0)

    def complete(self, name: str) -> bool:
        job = self.watcher.jobs.get(f"team/{name}", {})
        return is_true(job, "Complete")

    def condition(self, name: str, type_: str) -> str:
        found = self.watcher.of_job(name).get("status", {}).get("conditions", [])
        return next((f"{one['status']}/{one['reason']}" for one in found if one["type"] == type_), "")

    def finish(self, name: str) -> None:
        self.cluster.kubectl(
            "annotate",
            "pod",
            "-n",
            "team",
            "-l",
            f"batch.kubernetes.io/job-name={name}",
            "--overwrite",
            f"{COMPLETE_AFTER}=0s",
        )

    async def clean(self) -> None:
        """No job, workload or queue is left."""
        for kinds in ("jobs", "workloads.kueue.x-k8s.io"):
            self.cluster.kubectl("delete", kinds, "-n", "team", "--all", "--wait=false", "--cascade=background")
        await until(lambda: not self.watcher.workloads, "no workload is left")
        self.cluster.kubectl("delete", "localqueues.kueue.x-k8s.io", "-n", "team", "--all")
        self.cluster.kubectl("delete", "clusterqueues.kueue.x-k8s.io", "--all", "--timeout=120s")

    @contextmanager
    def controllers(self, folder: Path, *names: str, flags: tuple[str, ...] = ()) -> Iterator[list[Controller]]:
        made = [Controller(self.cluster, folder, name, flags) for name in names]
        self.logs += [one.log for one in made if one.log not in self.logs]
        for one in made:
            one.start()
        try:
            yield made
        finally:
            for one in made:
                if one.runs:
                    one.kill()

    def restart_apiserver(self) -> None:
        """Ends it without a word and starts it again as it was."""
        with api_server_away(self.cluster):
            pass


@asynccontextmanager
async def lab(cluster: Cluster, limits: dict[str, int]) -> AsyncIterator[QueueLab]:
    """Follows everything until the block ends, and fails if anything happened that may never happen.

    It begins when nodes take pods; a failure inside says what the cluster, its workloads and the controllers do.
    """
    await asyncio.to_thread(diagnosis.await_fit, cluster)
    watcher = Watcher(limits)
    async with Client(from_kubeconfig(cluster.kubeconfig), timeout_s=20.0) as client:
        backoff = Backoff(random=lambda: 0.5, initial_s=0.2, maximum_s=1.0)
        clock = SystemClock()
        workloads = _Judged(client, WORKLOADS, _json, watcher.hear_workload, clock=clock, backoff=backoff)
        workloads.watcher = watcher
        jobs = Reflector(client, JOBS, _json, watcher.hear_job, clock=clock, backoff=backoff)
        tasks = [asyncio.create_task(workloads.run()), asyncio.create_task(jobs.run())]
        await workloads.wait_synced()
        await jobs.wait_synced()
        made = QueueLab(cluster, client, watcher)
        try:
            yield made
            assert not watcher.broken, watcher.broken[:5]
        except Exception as error:
            error.add_note(await asyncio.to_thread(diagnosis.told, cluster, watcher.workloads, made.logs))
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    # TLS connections that were cut in the middle of a watch close a moment after their session (aiohttp's own advice).
    await asyncio.sleep(0.25)


@asynccontextmanager
async def autoscaled(
    cluster: Cluster,
    folder: Path,
    limits: dict[str, int],
    loop: Callable[[QueueLab], Coroutine[Any, Any, None]],
    none_left: Callable[[QueueLab], Awaitable[None]],
) -> AsyncIterator[QueueLab]:
    """A controller and an autoscaler, ``loop``, run. At the end nothing is left, and the nodes of pools go."""
    async with lab(cluster, limits) as scene:
        task = asyncio.create_task(loop(scene))
        try:
            with scene.controllers(folder, "one", flags=ALONE):
                yield scene
                await scene.clean()
                await none_left(scene)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            cluster.kubectl("delete", "nodes", "-l", "pool", "--wait=false")


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:.0f} s: {what}"
        await asyncio.sleep(0.05)


def is_true(given: Json, type_: str) -> bool:
    found = given.get("status", {}).get("conditions", [])
    return any(one["type"] == type_ and one["status"] == "True" for one in found)


def holds(workload: Json) -> str:
    """The ClusterQueue whose quota it holds; empty for none."""
    given = admission(workload)
    return str(given["clusterQueue"]) if given and not is_true(workload, "Finished") else ""


def cpus_of(workload: Json) -> int:
    """Those that it was given, less those of pods that have ended and are not made again."""
    given = admission(workload) or {"podSetAssignments": []}
    over = {each["name"]: int(each["count"]) for each in workload["status"].get("reclaimablePods", ())}
    total = 0
    for each in given["podSetAssignments"]:
        count, cpus = int(each["count"]), int(each.get("resourceUsage", {}).get("cpu", "0"))
        total += cpus * (count - min(over.get(each["name"], 0), count)) // count
    return total


def reserved(workload: Json) -> str:
    """When it was given its quota."""
    found = workload.get("status", {}).get("conditions", [])
    return next((str(one["lastTransitionTime"]) for one in found if one["type"] == "QuotaReserved"), "")


def admission(workload: Json) -> Json | None:
    found: Json | None = workload.get("status", {}).get("admission")
    return found


def _gets_places(before: Json, after: Json) -> bool:
    """Whether the admission differs by the places alone that pods wait for whose nodes are made first."""

    def quota(admission: Json, *, waits: list[bool]) -> list[Json]:
        places = ("topologyAssignment", "delayedTopologyRequest")
        return [
            {key: value for key, value in each.items() if not (late and key in places)}
            for each, late in zip(admission["podSetAssignments"], waits, strict=False)
        ]

    waits = [each.get("delayedTopologyRequest") == "Pending" for each in before["podSetAssignments"]]
    return any(waits) and quota(before, waits=waits) == quota(after, waits=waits)


def _owner(workload: Json) -> str:
    return next((one["name"] for one in workload["metadata"].get("ownerReferences", [])), "")


def _holds(there: Any, given: Any) -> bool:
    """Whether everything that is given stands there too; the API server adds defaults."""
    if isinstance(given, dict):
        return isinstance(there, dict) and all(_holds(there.get(key), value) for key, value in given.items())
    if isinstance(given, list):
        same = isinstance(there, list) and len(there) == len(given)
        return same and all(map(_holds, there, given))
    return bool(there == given)


def _json(raw: bytes) -> Json:
    found: Json = msgspec.json.decode(raw)
    return found
