"""The least that an admitting controller can do: each workload is admitted on sight with one write, without any quota.

What it costs is what the API server, the watch and the client cost; what a real controller takes beyond it is its own.
With ``--quota`` it keeps quota and priorities: what that takes beyond the first is theirs, whoever keeps them.
Started as the real one is: ``python -m hack.bench.throughput.nullcontroller --only core --kubeconfig FILE``.
"""

import argparse
import asyncio
import random
import signal
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hack.bench.throughput.drainload import WORKLOADS, Status
from hack.bench.throughput.drainshape import API, FLAVOR
from kube.client import Client
from kube.clock import Backoff, SystemClock
from kube.kubeconfig import from_kubeconfig
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Change, Changed, Reflector
from kube.resources import Resource
from kube.writing.writer import Tuning, Writer
from kube.writing.writes import Verb, Write

PARALLEL = 32
"""A busy server shares its time among the requests that it has: with fewer, admissions would wait for creations."""
QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue", namespaced=True)
CLUSTER_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False)


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
    priority: int = 0
    pod_sets: list[PodSet] = []


class Workload(Struct, frozen=True):
    spec: Spec
    status: Status = Status()


class QueueSpec(Struct, frozen=True, rename="camel"):
    cluster_queue: str


class LocalQueue(Struct, frozen=True):
    spec: QueueSpec


class Quota(Struct, frozen=True, rename="camel"):
    nominal_quota: str


class FlavorQuotas(Struct, frozen=True):
    resources: list[Quota]


class ResourceGroup(Struct, frozen=True):
    flavors: list[FlavorQuotas]


class ClusterQueueSpec(Struct, frozen=True, rename="camel"):
    cohort_name: str
    resource_groups: list[ResourceGroup]


class ClusterQueue(Struct, frozen=True):
    spec: ClusterQueueSpec


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
        self.mirrors: tuple[Reflector[Any], ...] = (self.queues,)
        """What must be known before the first workload."""

    def _hear(self, change: Change[Workload]) -> None:
        match change:
            case Added(key=key, new=new) | Changed(key=key, new=new) if new.object.status.admission is None:
                queue = self.queues.get(ObjectKey(key.namespace, new.object.spec.queue_name))
                if queue is not None and not new.object.status.conditions:
                    self._come(key, new.object, queue.object)
            case Changed(key=key, new=new) if new.object.status.holds("Finished"):
                self._go(key)

    def _come(self, key: ObjectKey, workload: Workload, cluster_queue: str) -> None:
        self._writer.put(admission(key, workload, cluster_queue))

    def _go(self, key: ObjectKey) -> None:
        """Its workload has finished."""


@dataclass
class Cohort:
    """``waiting``: by priority, the highest first, in order of arrival, with their sizes. In thousandths of a cpu."""

    quota: int = 0
    used: int = 0
    waiting: dict[int, deque[tuple[int, Callable[[], None]]]] = field(default_factory=lambda: defaultdict(deque))

    def admit(self) -> None:
        """No workload overtakes one of higher priority: without preemption it would wait while small ones come."""
        for _, queue in sorted(self.waiting.items()):
            while queue:
                size, admitted = queue[0]
                if self.used + size > self.quota:
                    return
                self.used += size
                queue.popleft()
                admitted()


class QuotaAdmitter(Admitter):
    """Admits into what is left of its cohort's quota, by priority. Nothing is preempted, nothing placed.

    ``_cohorts``: each ClusterQueue's. ``_held``: each workload that was heard of and has not finished, with what it
    uses or waits for; a workload that is heard of twice waits once.
    """

    def __init__(self, client: Client, writer: Writer) -> None:
        super().__init__(client, writer)
        decode = msgspec.json.Decoder(ClusterQueue).decode
        self._cohorts: dict[str, Cohort] = {}
        self._by_name: dict[str, Cohort] = defaultdict(Cohort)
        self._held: dict[ObjectKey, tuple[Cohort, int]] = {}
        backoff = Backoff(random=random.random)
        cluster_queues = Reflector(
            client,
            CLUSTER_QUEUES,
            lambda raw: decode(raw).spec,
            self._hear_of_quota,
            clock=SystemClock(),
            backoff=backoff,
        )
        self.mirrors = (self.queues, cluster_queues)

    def _hear_of_quota(self, change: Change[ClusterQueueSpec]) -> None:
        match change:
            case Added(key=key, new=new):
                cohort = self._cohorts[key.name] = self._by_name[new.object.cohort_name]
                cohort.quota += sum(
                    1000 * int(quota.nominal_quota)
                    for group in new.object.resource_groups
                    for flavor in group.flavors
                    for quota in flavor.resources
                )

    def _come(self, key: ObjectKey, workload: Workload, cluster_queue: str) -> None:
        if key in self._held:
            return
        cohort, size = self._cohorts[cluster_queue], sum(map(millicpus, workload.spec.pod_sets))
        self._held[key] = cohort, size
        come = super()._come
        cohort.waiting[-workload.spec.priority].append((size, lambda: come(key, workload, cluster_queue)))
        cohort.admit()

    def _go(self, key: ObjectKey) -> None:
        if key in self._held:
            cohort, size = self._held.pop(key)
            cohort.used -= size
            cohort.admit()


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


def millicpus(pod_set: PodSet) -> int:
    """One container, in thousandths, as the load has them."""
    return int(pod_set.template.spec.containers[0].resources.requests["cpu"].removesuffix("m")) * pod_set.count


async def run(kubeconfig: Path, kind: type[Admitter]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with (
        Client(from_kubeconfig(kubeconfig), user_agent="null-controller", connections=PARALLEL) as client,
        Writer(client, clock=SystemClock(), random=random.random, tuning=Tuning(parallel=PARALLEL)) as writer,
    ):
        admitter = kind(client, writer)
        tasks = [asyncio.create_task(mirror.run()) for mirror in admitter.mirrors]
        for mirror in admitter.mirrors:
            await mirror.wait_synced()
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
    parser.add_argument("--quota", action="store_true", help="no more than the quota of a cohort, by priority")
    options = parser.parse_args()
    asyncio.run(run(options.kubeconfig, QuotaAdmitter if options.quota else Admitter))
