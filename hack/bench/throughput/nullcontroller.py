"""The least that an admitting controller can do: each workload is admitted on sight with one write, without any quota.

What it costs is what the API server, the watch and the client cost; what a real controller takes beyond it is its own.
Started as the real one is: ``python -m hack.bench.throughput.nullcontroller --only core --kubeconfig FILE``.
"""

import argparse
import asyncio
import random
import signal
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hack.bench.throughput.drainload import WORKLOADS, Status
from hack.bench.throughput.drainshape import API, FLAVOR
from kube.client import Client
from kube.clock import Backoff, SystemClock
from kube.config import from_kubeconfig
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Change, Changed, Reflector
from kube.resources import Resource
from kube.writing.writer import Tuning, Writer
from kube.writing.writes import Verb, Write

PARALLEL = 32
"""A busy server shares its time among the requests that it has: with fewer, admissions would wait for creations."""
QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue", namespaced=True)


class Requests(Struct, frozen=True):
    requests: dict[str, str] = {}


class Container(Struct, frozen=True):
    resources: Requests = Requests()


class PodSpec(Struct, frozen=True):
    containers: list[Container] = []


class Template(Struct, frozen=True):
    spec: PodSpec = PodSpec()


class PodSet(Struct, frozen=True):
    name: str
    template: Template
    count: int = 1


class Spec(Struct, frozen=True, rename="camel"):
    queue_name: str = ""
    pod_sets: list[PodSet] = []


class Workload(Struct, frozen=True):
    spec: Spec
    status: Status = Status()


class QueueSpec(Struct, frozen=True, rename="camel"):
    cluster_queue: str


class LocalQueue(Struct, frozen=True):
    spec: QueueSpec


class _Nothing(Struct, frozen=True):
    pass


class Admitter:
    def __init__(self, client: Client, writer: Writer) -> None:
        clock = SystemClock()
        self._writer = writer
        queues, workloads = msgspec.json.Decoder(LocalQueue).decode, msgspec.json.Decoder(Workload).decode

        def backoff() -> Backoff:
            return Backoff(random=random.random)

        self.queues = Reflector(
            client, QUEUES, lambda raw: queues(raw).spec.cluster_queue, lambda _: None, clock=clock, backoff=backoff()
        )
        self.workloads = Reflector(client, WORKLOADS, workloads, self._hear, clock=clock, backoff=backoff())

    def _hear(self, change: Change[Workload]) -> None:
        match change:
            case Added(key=key, new=new) | Changed(key=key, new=new) if new.object.status.admission is None:
                queue = self.queues.get(ObjectKey(key.namespace, new.object.spec.queue_name))
                if queue is not None and not new.object.status.conditions:
                    self._writer.put(admission(key, new.object, queue.object))


def admission(key: ObjectKey, workload: Workload, cluster_queue: str) -> Write[_Nothing]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assigned = [assignment(pod_set) for pod_set in workload.spec.pod_sets]
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "on sight", "lastTransitionTime": now}
        for kind in ("QuotaReserved", "Admitted")
    ]
    body = {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "status": {
            "admission": {"clusterQueue": cluster_queue, "podSetAssignments": assigned},
            "conditions": conditions,
        },
    }
    return Write(
        verb=Verb.APPLY,
        resource=WORKLOADS,
        namespace=key.namespace,
        name=key.name,
        subresource="status",
        body=body,
        kind=_Nothing,
    )


def assignment(pod_set: PodSet) -> dict[str, Any]:
    """All on the one flavor, without a place. One container, in thousandths, as the load has them."""
    requests = pod_set.template.spec.containers[0].resources.requests
    usage = {name: f"{int(amount.removesuffix('m')) * pod_set.count}m" for name, amount in requests.items()}
    return {
        "name": pod_set.name,
        "count": pod_set.count,
        "flavors": dict.fromkeys(usage, FLAVOR),
        "resourceUsage": usage,
    }


async def run(kubeconfig: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with (
        Client(from_kubeconfig(kubeconfig), user_agent="null-controller", connections=PARALLEL) as client,
        Writer(client, clock=SystemClock(), random=random.random, tuning=Tuning(parallel=PARALLEL)) as writer,
    ):
        admitter = Admitter(client, writer)
        tasks = [asyncio.create_task(admitter.queues.run())]
        await admitter.queues.wait_synced()
        tasks.append(asyncio.create_task(admitter.workloads.run()))
        await stop.wait()
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Admits every workload on sight.")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--only", choices=["core"], help="taken for the real controller's sake")
    asyncio.run(run(parser.parse_args().kubeconfig))
