"""The playground's process: API server, agents, controller and page, until it is told to stop."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from cli.page.proxy import PageProxy
from cli.playground.agents_shell import NodeAgent, run_all
from cli.playground.cluster import Cluster, Create, Delete, Holder, Merge, Seen, Write, stamp
from cli.playground.world import Course, Fault, World
from controller.cluster.config.load import parse
from controller.cluster.config.settings import Address
from controller.cluster.process.flags import Flags
from controller.cluster.process.process import Process
from controller.cluster.watching.kinds import GPU_NODES, JOBS, NODES, PODS, TYPES, WORKLOADS
from controller.people.history.figures import Figures, FiguresOf
from kube import brokenpeers
from kube.client import Client
from kube.config import ClusterConfig
from kube.errors import KubeError
from kube.resources import EVENTS, Resource
from kube.testing import FakeApiServer, eventually

STEP_S: Final = 0.5
_STARTS_WITHIN_S: Final = 60.0
_KEPT_CHANGES: Final = 5_000
"""The number of changes that the API server's log keeps: a watch that is further behind lists anew."""
_KEPT_EVENTS: Final = 500
_BOOKMARK_STEPS: Final = 60
"""The number of steps after which watches get a bookmark."""
_FIGURES_STEPS: Final = 10
"""The number of steps after which GPUs are measured again."""
_CONFIG: Final = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
clientConnection: {qps: -1}
health: {healthProbeBindAddress: "0"}
integrations: {frameworks: [batch/job]}
tessera:
  policy: tessera
  pendingCondition: {after: 1s}
  gpuFailures: {policy: requeue-gang, budget: 100, window: 1m, coolDown: 10s}
"""
_NAMESPACE: Final = "tessera-system"
_VISITOR: Final = "visitor"

Shown = Callable[[str], Awaitable[None]]


class Stage:
    """The playground's parts. ``step`` takes all but the controller one step further."""

    def __init__(self, world: World, server: FakeApiServer, now_s: float) -> None:
        self._server = server
        self._steps = 0
        self._begun_s = now_s
        self._course = Course(world)
        self._cluster = Cluster()
        self.figures: FiguresOf = {}
        """The figures of all GPUs that answer, by UUID; another object whenever they changed."""
        self.agents = [NodeAgent(world.fleet, spec, server.config, now_s) for spec in world.fleet.nodes]
        for agent in self.agents:
            self._create(NODES, agent.body(), now_s)
        by_kind = {(resource.api_version, resource.kind): resource for resource in TYPES}
        for body in world.objects:
            resource = by_kind.get((body["apiVersion"], body["kind"]))
            if resource is not None:
                self._create(resource, body, now_s)

    def step(self, now_s: float) -> None:
        jobs = self._all(JOBS)
        there = {(job["metadata"]["namespace"], job["metadata"]["name"]) for job in jobs if not _is_over(job)}
        arriving, faults = self._course.due(now_s - self._begun_s, there)
        for body in arriving:
            # The API server's policy does this for each Job that names a queue.
            self._create(JOBS, {**body, "spec": {**body["spec"], "suspend": True}}, now_s)
        for fault in faults:
            self._happens(fault, now_s)
        nodes = {agent.name: agent.node for agent in self.agents}
        seen = Seen(self._all(JOBS), self._all(PODS), self._all(WORKLOADS), nodes)
        for write in self._cluster.step(seen, now_s):
            self._write(write, now_s)
        for agent in self.agents:
            agent.look(self._server, self.holders(agent.name), now_s)
        if self._steps % _FIGURES_STEPS == 0:
            self._measure(now_s)
        self._steps += 1
        self._forget()
        if self._steps % _BOOKMARK_STEPS == 0:
            self._server.bookmark()

    def _measure(self, now_s: float) -> None:
        """Measure all GPUs. In a cluster Prometheus has these figures from the agents."""
        figures: dict[str, Figures] = {}
        for agent in self.agents:
            figures |= agent.figures(self.holders(agent.name), now_s)
        if figures != self.figures:
            self.figures = figures

    def holders(self, node: str) -> dict[str, Holder]:
        """The pods and the GPUs of a node that each has, as its kubelet knows them."""
        return self._cluster.holders(node)

    def _happens(self, fault: Fault, now_s: float) -> None:
        for agent in self.agents:
            if agent.name == fault.node:
                agent.happens(fault.order, now_s)

    def _all(self, resource: Resource) -> list[dict[str, Any]]:
        return self._server.list_all(resource)

    def _write(self, write: Write, now_s: float) -> None:
        with suppress(KubeError):  # gone meanwhile: the next step sees the objects that exist
            match write:
                case Create(resource=resource, body=body):
                    self._create(resource, body, now_s)
                case Merge(resource=resource, namespace=namespace, name=name, patch=patch):
                    self._server.merge(resource, name, patch, namespace=namespace)
                case Delete(resource=resource, namespace=namespace, name=name):
                    self._server.delete(resource, name, namespace=namespace)

    def _create(self, resource: Resource, body: dict[str, Any], now_s: float) -> None:
        meta = {"creationTimestamp": stamp(now_s), **body["metadata"]}
        self._server.create(resource, meta["name"], {**body, "metadata": meta}, namespace=meta.get("namespace", ""))

    def _forget(self) -> None:
        """Forget old requests, changes and Events, which the API server for tests would collect for ever."""
        self._server.requests.clear()
        self._server.reviewed.clear()
        del self._server.store.changes[:-_KEPT_CHANGES]
        if self._steps % _BOOKMARK_STEPS == 0:
            # In a cluster Events are gone after an hour.
            events = sorted(self._all(EVENTS), key=lambda one: str(one["metadata"].get("creationTimestamp")))
            for old in events[:-_KEPT_EVENTS]:
                self._server.delete(EVENTS, old["metadata"]["name"], namespace=old["metadata"]["namespace"])


def _is_over(job: dict[str, Any]) -> bool:
    return any(each["type"] == "Complete" for each in job.get("status", {}).get("conditions", []))


async def played(world: World, port: int, shown: Shown, stop: asyncio.Event) -> None:
    """Run until ``stop``. ``shown`` gets the page's address once it answers. Raises OSError for a port that is
    taken.
    """
    # The terminal is a person's: a controller's log is about this process' own parts.
    logging.disable(logging.CRITICAL)
    brokenpeers.install()
    try:
        async with FakeApiServer() as server:
            server.token = secrets.token_urlsafe()
            server.store.stamp = lambda: stamp(time.time())
            server.install(GPU_NODES)
            ticket = secrets.token_urlsafe()
            server.users[ticket] = {"username": _VISITOR, "groups": []}
            stage = Stage(world, server, time.time())
            stage.step(time.time())
            await _served(stage, server, ticket, port, shown, stop)
    finally:
        logging.disable(logging.NOTSET)


async def _served(
    stage: Stage, server: FakeApiServer, ticket: str, port: int, shown: Shown, stop: asyncio.Event
) -> None:
    config = server.config
    flags = Flags(
        kubeconfig="none",  # no webhooks: no Service leads here
        metrics=(None,),
        web=Address("127.0.0.1", 0),
        leader_elect=False,
        namespace=_NAMESPACE,
    )
    process = Process(
        parse(_CONFIG, "the playground's configuration"), flags, connect=lambda: config, figures=lambda: stage.figures
    )
    ended = asyncio.Event()
    controller = asyncio.create_task(process.run(ended), name="controller")
    others = [
        asyncio.create_task(run_all(stage.agents), name="agents"),
        asyncio.create_task(_going_on(stage), name="time"),
        asyncio.create_task(_page(process, ticket, port, shown, stop), name="page"),
    ]
    try:
        done, _ = await asyncio.wait([controller, *others], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        ended.set()
        for task in others:
            task.cancel()
        await asyncio.gather(controller, *others, return_exceptions=True)


async def _going_on(stage: Stage) -> None:
    while True:
        await asyncio.sleep(STEP_S)
        stage.step(time.time())


async def _page(process: Process, ticket: str, port: int, shown: Shown, stop: asyncio.Event) -> None:
    await eventually(lambda: _is_up(process), within_s=_STARTS_WITHIN_S, what="the controller does not start")
    assert process.view is not None
    view = process.view.server
    where = ClusterConfig(server=f"https://127.0.0.1:{view.port}", ca_pem=view.trust.own.decode(), token=ticket)
    async with Client(where) as client:
        proxy = PageProxy(client, guarded=False)
        try:
            await shown(await proxy.start(port))
            await stop.wait()
        finally:
            await proxy.stop()


def _is_up(process: Process) -> bool:
    core, view = process.core, process.view
    return core is not None and core.loaded.is_set() and view is not None and view.server.serving
