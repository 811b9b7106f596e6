"""The least that starts a job: its Workload is made, admitted on sight and finished with it, without any quota.

The objects are those that the reconciler composes, with the fewest writes that say all of it: four a job. What it costs
is what API server, watches and client cost with objects of this size.
Started as the real controller is: ``python -m hack.bench.throughput.nulljobs --kubeconfig FILE``.
"""

import argparse
import asyncio
import random
import signal
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.raw import Json
from controller.jobs.kinds.table import JOB_KINDS
from controller.reconcile.jobshell.watched import read_job, resource_of
from hack.bench.throughput.drainload import WORKLOADS
from hack.bench.throughput.jobshape import KINDS, PRIORITIES
from hack.bench.throughput.nullcontroller import PARALLEL
from hack.bench.throughput.startedjobs import Starts, condition
from kube.client import Client
from kube.clock import Backoff, SystemClock
from kube.kubeconfig import from_kubeconfig
from kube.reading.reflector import Added, Change, Changed, Reflector
from kube.resources import Resource
from kube.writing.writer import Tuning, Writer
from kube.writing.writes import Verb, Write, Written


class Starter:
    """``_names``: the Workload of each job that was seen, by the job's uid; empty while it is being started."""

    def __init__(self, client: Client, writer: Writer, kinds: Iterable[Resource], tasks: asyncio.TaskGroup) -> None:
        """``tasks`` fails with the first write that does."""
        clock = SystemClock()
        self._writer = writer
        self._starts = Starts(priorities=PRIORITIES)
        self._names: dict[str, str] = {}
        self._ended: set[str] = set()
        self._tasks = tasks
        by_resource = {resource_of(kind): kind for kind in JOB_KINDS}
        self.mirrors = [
            Reflector(
                client,
                resource,
                read_job,
                partial(self._hear, by_resource[resource]),
                clock=clock,
                backoff=Backoff(random=random.random),
            )
            for resource in kinds
        ]

    def _hear(self, kind: JobKind, change: Change[Json]) -> None:
        match change:
            case Added(new=entry) | Changed(new=entry):
                job, uid = entry.object, entry.uid
                if uid not in self._names:
                    self._names[uid] = ""
                    self._tasks.create_task(self._start(kind, job))
                elif self._names[uid] and uid not in self._ended and kind.finished(job) is not None:
                    self._ended.add(uid)
                    done = {"conditions": [condition("Finished")]}
                    namespace = job["metadata"]["namespace"]
                    self._tasks.create_task(self._status(namespace, self._names[uid], done, Verb.APPLY))

    async def _start(self, kind: JobKind, job: Json) -> None:
        body, namespace = self._starts.composed(kind, job), job["metadata"]["namespace"]
        made = await self._write(WORKLOADS, namespace, body["metadata"]["name"], body, Verb.CREATE)
        status = self._starts.admission(made, kind, job, cluster_queue=namespace)
        admitted = await self._status(namespace, made["metadata"]["name"], status, Verb.MERGE_PATCH)
        self._names[job["metadata"]["uid"]] = made["metadata"]["name"]
        while patches := self._starts.start(kind, job, admitted):
            for patch in patches:
                job = await self._write(
                    resource_of(kind), namespace, job["metadata"]["name"], patch.body, Verb.MERGE_PATCH
                )

    async def _status(self, namespace: str, name: str, status: Json, verb: Verb) -> Json:
        head = {"apiVersion": WORKLOADS.api_version, "kind": "Workload"} if verb is Verb.APPLY else {}
        meta = {"name": name, "namespace": namespace} if verb is Verb.APPLY else {}
        body = {**head, **({"metadata": meta} if meta else {}), "status": status}
        return await self._write(WORKLOADS, namespace, name, body, verb, "status")

    async def _write(
        self, resource: Resource, namespace: str, name: str, body: Json, verb: Verb, subresource: str | None = None
    ) -> Json:
        write = Write(
            verb=verb,
            resource=resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            body=body,
            kind=dict[str, Any],
        )
        match await self._writer.put(write):
            case Written(object=dict() as answer):
                return answer
            case outcome:
                raise RuntimeError(f"{verb.value} {name}: {outcome}")


async def run(kubeconfig: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    kinds = dict.fromkeys(played.resource for some in KINDS.values() for played in some)
    async with (
        Client(from_kubeconfig(kubeconfig), user_agent="null-controller", connections=PARALLEL) as client,
        Writer(client, clock=SystemClock(), random=random.random, tuning=Tuning(parallel=PARALLEL)) as writer,
        asyncio.TaskGroup() as tasks,
    ):
        following = [tasks.create_task(mirror.run()) for mirror in Starter(client, writer, kinds, tasks).mirrors]
        await stop.wait()
        for task in following:
            task.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Starts every job on sight.")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    asyncio.run(run(parser.parse_args().kubeconfig))
