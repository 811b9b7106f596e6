"""Records a history under load for the judge's tests: ``python -m hack.recordedhistory --minutes 10 FILE``.

The controller is the real one, before an API server in this process; Job controller, scheduler and kubelets are the
playground's. Jobs of all sizes come every few seconds, queues change their quotas, a GPU fails. The record has what a
watch of every object said (by the recorder of ``tessera audit``), what the kubelets have given, and the GPUs.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import random
import time
from pathlib import Path
from typing import Any, Final

from cli.audit.files import judged, written
from cli.audit.promises import promises
from cli.audit.recorder import Recorder
from cli.audit.watching_shell import first, record
from cli.playground import world as worlds
from cli.playground.agents_shell import run_all
from cli.playground.cluster import GPU, stamp
from cli.playground.stage_shell import STEP_S, Stage
from cli.simulate.reading import inputs
from controller.cluster.config.load import parse
from controller.cluster.process.flags import Flags
from controller.cluster.process.process import Process
from controller.cluster.watching.kinds import CLUSTER_QUEUES, GPU_NODES, JOBS
from inventory.words.catalog import plural
from kube.client import Client
from kube.clock import Backoff, SystemClock
from kube.testing import FakeApiServer, eventually
from simulator.fleet.fleetfile import load_fleet

CONFIG: Final = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
clientConnection: {qps: -1}
health: {healthProbeBindAddress: "0"}
integrations: {frameworks: [batch/job]}
tessera:
  policy: tessera
  minimumRuntimeBeforePreemption: {default: 20s}
  gpuFailures: {policy: requeue-gang, budget: 100, window: 1m, coolDown: 10s}
"""
TEAMS: Final = ("research", "production", "notebooks")
EVERY_S: Final = 5.0
QUOTA_EVERY_S: Final = 45.0


class Load:
    """Jobs and quotas as ``seed`` draws them."""

    def __init__(self, server: FakeApiServer, seed: int) -> None:
        self._server, self._rng, self._made = server, random.Random(seed), 0

    def submit(self, now_s: float) -> None:
        self._made += 1
        rng, team = self._rng, self._rng.choice(TEAMS)
        count, gpus = rng.choice([(1, 1), (1, 1), (1, 2), (2, 1), (2, 4), (4, 1), (2, 8)])
        resources = {"limits": {GPU: str(gpus)}}
        template = {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i", "resources": resources}]}
        }
        spec = {"suspend": True, "parallelism": count, "completions": count, "template": template}
        labels = {"kueue.x-k8s.io/queue-name": "jobs"}
        if rng.random() < 0.2:  # noqa: PLR2004 - a fifth
            labels["kueue.x-k8s.io/priority-class"] = "urgent"
        notes = {"tessera.dev/runtime": f"{rng.randint(5, 60)}s"}
        meta = {"namespace": team, "labels": labels, "annotations": notes, "creationTimestamp": stamp(now_s)}
        name = f"load-{self._made}"
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {**meta, "name": name}, "spec": spec}
        self._server.create(JOBS, name, body, namespace=team)

    def change_quota(self) -> None:
        name = self._rng.choice(TEAMS)
        body = self._server.get(CLUSTER_QUEUES, name)
        groups = body["spec"]["resourceGroups"]
        groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = str(self._rng.randint(6, 14))
        self._server.merge(CLUSTER_QUEUES, name, {"spec": {"resourceGroups": groups}})


class Kubelets:
    """What they give, told when it has changed."""

    def __init__(self, stage: Stage, sink: Any, began_s: float) -> None:
        self._stage, self._sink, self._began_s = stage, sink, began_s
        self._told: dict[str, Any] = {}

    def look(self, now_s: float) -> None:
        for agent in self._stage.agents:
            pods: dict[tuple[str, str], dict[str, list[str]]] = {}
            for gpu, holder in sorted(self._stage.holders(agent.name).items()):
                pods.setdefault((holder.namespace, holder.pod), {}).setdefault(holder.container, []).append(gpu)
            if self._told.get(agent.name) == pods:
                continue
            self._told[agent.name] = pods
            listed = [
                {
                    "namespace": namespace,
                    "name": name,
                    "containers": [
                        {"name": each, "devices": [{"resource": GPU, "ids": ids}]} for each, ids in containers.items()
                    ],
                }
                for (namespace, name), containers in pods.items()
            ]
            line = {"source": "kubelet", "node": agent.name, "call": "PodResources", "pods": listed}
            self._sink({"t": round(now_s - self._began_s, 3), **line})


async def recorded(path: Path, minutes: float, seed: int) -> None:
    fleet_file, manifests = worlds.packaged()
    world = worlds.world(load_fleet(fleet_file), inputs(manifests, fleet_file, events_count=True).documents)
    async with FakeApiServer() as server:
        server.store.stamp = lambda: stamp(time.time())
        server.install(GPU_NODES)
        stage = Stage(world, server, time.time())
        stage.step(time.time())
        flags = Flags(kubeconfig="none", metrics=(None,), web=None, leader_elect=False, namespace="tessera-system")
        process = Process(parse(CONFIG), flags, connect=lambda: server.config)
        stop, clock = asyncio.Event(), SystemClock()
        controller = asyncio.create_task(process.run(stop))
        agents = asyncio.create_task(run_all(stage.agents))
        await eventually(lambda: process.core is not None and process.core.loaded.is_set())
        async with Client(server.config) as client:
            initial, lines = await first(client), list[tuple[float, int, bytes]]()

            def sink(line: bytes) -> None:
                lines.append((json.loads(line)["t"], len(lines), line))

            began_s, wall_s = clock.monotonic(), time.time()
            for agent in stage.agents:
                gpus = [{"uuid": each} for each in agent.node.gpus]
                sink(json.dumps({"t": 0, "source": "hardware", "node": agent.name, "gpus": gpus}).encode() + b"\n")
            kubelets = Kubelets(stage, lambda line: sink(json.dumps(line).encode() + b"\n"), began_s)
            going = asyncio.create_task(_going_on(stage, kubelets, Load(server, seed), clock, wall_s))
            backoffs = [Backoff(random=random.random) for _ in initial.listed]
            settings, _ = promises(CONFIG, "tessera-system", [])
            await record(client, initial, Recorder(sink, began_s), settings, backoffs, clock, stop, minutes * 60)
            for task in (going, agents):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        stop.set()
        await controller
    with written(path) as file:
        for _, _, line in sorted(lines, key=lambda each: each[:2]):
            file.write(line)


async def _going_on(stage: Stage, kubelets: Kubelets, load: Load, clock: SystemClock, wall_s: float) -> None:
    next_s, quota_s = wall_s, wall_s + QUOTA_EVERY_S
    while True:
        stage.step(time.time())
        kubelets.look(clock.monotonic())
        if time.time() >= next_s:
            load.submit(time.time())
            next_s += EVERY_S
        if time.time() >= quota_s:
            load.change_quota()
            quota_s += QUOTA_EVERY_S
        await asyncio.sleep(STEP_S)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("file", type=Path)
    asked.add_argument("--minutes", type=float, default=10.0)
    asked.add_argument("--seed", type=int, default=1)
    options = asked.parse_args()
    logging.disable(logging.CRITICAL)
    asyncio.run(recorded(options.file, options.minutes, options.seed))
    verdict = judged(options.file)
    findings = plural(len(verdict.findings), "finding")
    print(f"{plural(verdict.facts, 'fact')}, {findings}, {options.file.stat().st_size} bytes")
    for each in verdict.findings:
        print(each)


if __name__ == "__main__":
    main()
