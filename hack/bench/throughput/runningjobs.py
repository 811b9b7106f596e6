"""Memory of the controller with many running jobs of all kinds: ``python -m hack.bench running-jobs``.

The jobs are those of ``examples/kinds``, admitted and started as the reconciler itself does it. The API server is a
stand-in in this process: what is measured is the controller, which lists them all and writes what it has to say.
"""

import argparse
import asyncio
import copy
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil
import yaml

from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, NAMESPACES, WORKLOADS
from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.raw import Json, merged
from controller.jobs.kinds.table import JOB_KINDS
from controller.reconcile.jobshell.watched import read_resource, resource_of
from hack.agents import plain_kubeconfig
from hack.bench.table import Row, show
from hack.bench.throughput.drainshape import API
from hack.bench.throughput.measuring import ROOT, cpu_s, memory_mib, started
from hack.bench.throughput.startedjobs import Starts, now
from kube.testing import FakeApiServer

EXAMPLES: Final = ROOT / "examples"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
COMMAND: Final = (sys.executable, "-m", "controller", "--no-leader-elect", "--metrics-address", "0", "--web-address")
_NOW: Final = now()
"""Nothing has run for too long yet."""
_START_S: Final = 1800.0
_QUIET_S, _FEW = 5.0, 10
"""It is done when it writes less than that in this time: statuses of queues and the like."""


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.bench running-jobs", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--jobs", type=int, default=10_000, help="default %(default)s")
    options = parser.parse_args(words)
    asyncio.run(_measure(options.jobs))


class Fleet:
    """An object of each kind from its example, and the others that it names."""

    def __init__(self) -> None:
        kinds = {(kind.kind, f"{kind.group}/{kind.version}".lstrip("/")): kind for kind in JOB_KINDS}
        self.jobs: list[tuple[JobKind, Json]] = []
        self.others: list[Json] = []
        for path in [EXAMPLES / "queues" / "job-four-workers.yaml", *sorted((EXAMPLES / "kinds").glob("*.yaml"))]:
            for body in yaml.safe_load_all(path.read_text()):
                kind = kinds.get((body["kind"], body["apiVersion"]))
                if kind is not None:
                    self.jobs.append((kind, body))
                elif body["kind"] in _READ:
                    self.others.append(body)
        self._starts = Starts(
            look=lambda _kind, _namespace, name: next(
                (other for other in self.others if other["metadata"]["name"] == name), None
            )
        )

    def running(self, count: int) -> Iterator[tuple[JobKind, Json, Json]]:
        """So many jobs, started, each with its admitted Workload."""
        for number in range(count):
            kind, example = self.jobs[number % len(self.jobs)]
            job = copy.deepcopy(example)
            meta = {"name": f"{example['metadata']['name']}-{number}", "namespace": "team", "uid": f"uid-{number}"}
            labels = {**example["metadata"].get("labels", {}), QUEUE: "research"}
            job["metadata"] = {**example["metadata"], **meta, "labels": labels, "creationTimestamp": _NOW}
            job = merged(kind.defaulted(job), kind.suspend(job).body)
            yield kind, *self._started(kind, job)

    def _started(self, kind: JobKind, job: Json) -> tuple[Json, Json]:
        made = self._starts.composed(kind, job)
        workload = {**made, "status": self._starts.admission(made, kind, job, "cq")}
        workload["metadata"] = {**made["metadata"], "uid": f"w-{job['metadata']['uid']}", "creationTimestamp": _NOW}
        while patches := self._starts.start(kind, job, workload):
            for patch in patches:
                job = merged(job, patch.body)
        return job, workload


_READ: Final = {other.kind: read_resource(other) for kind in JOB_KINDS for other in kind.reads}


def fill(server: FakeApiServer, count: int) -> None:
    """Queues with room for all of it, and the jobs."""
    fleet = Fleet()
    quotas = [{"name": name, "nominalQuota": "10M"} for name in ("cpu", "memory", "nvidia.com/gpu")]
    group = {
        "coveredResources": [quota["name"] for quota in quotas],
        "flavors": [{"name": "default", "resources": quotas}],
    }
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    head: Json = {"apiVersion": API, "metadata": {}}
    server.create(FLAVORS, "default", {**head, "kind": "ResourceFlavor"})
    server.create(NAMESPACES, "team", {"metadata": {"labels": {"kubernetes.io/metadata.name": "team"}}})
    server.create(CLUSTER_QUEUES, "cq", {**head, "kind": "ClusterQueue", "spec": spec})
    local = {**head, "kind": "LocalQueue", "spec": {"clusterQueue": "cq"}}
    server.create(LOCAL_QUEUES, "research", local, namespace="team")
    for other in fleet.others:
        resource = _READ[other["kind"]]
        namespace = "team" if resource.namespaced else ""
        server.create(resource, other["metadata"]["name"], other, namespace=namespace)
    for kind, job, workload in fleet.running(count):
        body = server.create(resource_of(kind), job["metadata"]["name"], job, namespace="team")
        for owner in workload["metadata"]["ownerReferences"]:
            owner["uid"] = body["metadata"]["uid"]
        workload["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": body["metadata"]["uid"]}
        server.create(WORKLOADS, workload["metadata"]["name"], workload, namespace="team")


async def _measure(count: int) -> None:
    async with FakeApiServer() as server:
        fill(server, count)
        with tempfile.TemporaryDirectory(prefix="tessera-running-") as folder:
            kubeconfig = Path(folder) / "kubeconfig"
            kubeconfig.write_text(plain_kubeconfig(server.config.server))
            command = [*COMMAND, "0", "--kubeconfig", str(kubeconfig), "--namespace", "tessera-system"]
            with started("running", command, Path(folder) / "log") as process:
                spent_s = await settled(server, process, count)
                peak, now = memory_mib(process, "VmHWM"), memory_mib(process, "VmRSS")
            written = len([each for each in server.requests if each.method != "GET"])
    rows = [
        Row("resident memory", f"{now:.0f} MiB", "300 MiB with 10,000"),
        Row("its peak", f"{peak:.0f} MiB", ""),
        Row("CPU until all is read and written", f"{spent_s:.1f} s", ""),
        Row("writes", f"{written}", ""),
    ]
    show(f"{count} running jobs of {len(Fleet().jobs)} kinds", rows)


async def settled(server: FakeApiServer, process: psutil.Process, count: int) -> float:
    """Until it has said of each whether its pods are ready, and writes no more; its CPU so far."""
    until_s, seen, since_s = time.monotonic() + _START_S, -_FEW - 1, 0.0
    while time.monotonic() < until_s:
        await asyncio.sleep(0.25)
        asked = sum(each.method != "GET" for each in server.requests)
        if asked - seen > _FEW or asked < count:
            seen, since_s = asked, time.monotonic()
        elif time.monotonic() - since_s > _QUIET_S:
            return cpu_s(process)
    raise TimeoutError(f"the controller was not done within {_START_S:.0f} s")
