"""The net of repairs: GPUs ask for a reset while one controller leads, and while another one does after it.

Judged by what the API server had: of a flavor no more GPUs are granted a step within the window than the budget says,
whoever leads.
"""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct, structs

from controller.cluster.config.load import parse
from controller.cluster.process.flags import Flags
from controller.cluster.process.process import Process
from controller.cluster.watching.kinds import FLAVORS, GPU_NODES, NODES
from hack.planted.nets import reported
from kube.testing import FakeApiServer, eventually

BUDGET: Final = 1
WINDOW_S: Final = 600.0
CONFIG: Final = f"""\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
clientConnection: {{qps: -1}}
health: {{healthProbeBindAddress: "0"}}
tessera:
  policy: tessera
  remediation: {{budget: {BUDGET}, window: {WINDOW_S:g}s}}
"""
LED_S: Final = 60.0
"""The longest time in seconds until a controller has granted what it may, on a machine that others keep busy."""
MOMENT_S: Final = 2.0
"""The seconds for which the net looks for a grant that should not come."""
FIRST, SECOND, OTHER = "node-1", "node-2", "node-3"
POOLS: Final = {FIRST: "h100", SECOND: "h100", OTHER: "a100"}
"""The flavor of each node, which has one GPU, ``GPU-<node>``."""

Json = dict[str, Any]


class Granted(Struct, frozen=True):
    """A grant as a GpuNode had it first, at ``at_s``."""

    at_s: float
    node: str
    gpu: str


def over_budget(
    history: Iterable[Granted], flavors: Mapping[str, str], budget: int = BUDGET, window_s: float = WINDOW_S
) -> list[str]:
    """Sentences, one for each grant that is beyond the budget of its flavor in the window before it."""
    sentences, known = [], list[Granted]()
    for grant in sorted(history, key=lambda one: one.at_s):
        flavor = flavors[grant.node]
        recent = {one.gpu for one in known if flavors[one.node] == flavor and grant.at_s - one.at_s < window_s}
        if grant.gpu not in recent and len(recent) >= budget:
            others = ", ".join(sorted(recent))
            sentences.append(
                f"over-budget: ResourceFlavor {flavor}: {grant.gpu} was granted a step within {window_s:g} s of "
                f"{others}, and the budget is {budget}"
            )
        known.append(grant)
    return sentences


class Watch:
    """Notes each grant when a GpuNode has it first."""

    def __init__(self, server: FakeApiServer) -> None:
        self._server, self._version = server, server.store.version
        self._seen: set[tuple[str, str, int]] = set()
        self.history: list[Granted] = []

    async def run(self) -> None:
        while True:
            for change in self._server.store.since(self._version):
                self._version = change.version
                if change.collection == GPU_NODES.path() and change.type != "DELETED":
                    self._note(change.body)
            await asyncio.sleep(0.01)

    def _note(self, body: Json) -> None:
        node = body["metadata"]["name"]
        for grant in body.get("status", {}).get("remediationGrants", ()):
            key = (node, grant["gpu"], grant["generation"])
            if key not in self._seen:
                self._seen.add(key)
                self.history.append(Granted(time.monotonic(), node, grant["gpu"]))

    def has(self, node: str) -> bool:
        return any(each.node == node for each in self.history)


def furnish(server: FakeApiServer) -> None:
    server.install(GPU_NODES)
    for flavor in sorted(set(POOLS.values())):
        server.create(FLAVORS, flavor, {"spec": {"nodeLabels": {"pool": flavor}}})
    for node, flavor in POOLS.items():
        server.create(NODES, node, {"metadata": {"labels": {"pool": flavor}}, "spec": {}, "status": {}})
        device = {"uuid": f"GPU-{node}", "index": 0, "product": "", "memoryMiB": 0, "pciBusId": ""}
        summary = {"gpus": 1, "healthy": 0, "product": ""}
        server.create(GPU_NODES, node, {"status": {"summary": summary, "devices": [device]}})


def ask(server: FakeApiServer, node: str) -> None:
    """The agent of the node asks for the reset of its GPU."""
    entry = {"gpu": f"GPU-{node}", "state": "Draining", "generation": 1, "asks": "reset", "since": stamp()}
    server.merge(GPU_NODES, node, {"status": {"repairs": [entry]}})


def return_(server: FakeApiServer, node: str) -> None:
    """The agent has reset the GPU, and it is healthy again."""
    server.merge(GPU_NODES, node, {"status": {"repairs": []}})


def stamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@asynccontextmanager
async def leading(server: FakeApiServer) -> AsyncIterator[None]:
    """A controller leads."""
    flags = Flags(kubeconfig="none", metrics=(None,), web=None, leader_elect=False, namespace="tessera-system")
    found = parse(CONFIG)
    found = structs.replace(found, webhook=structs.replace(found.webhook, port=0))  # others run on this machine
    process, stop = Process(found, flags, connect=lambda: server.config), asyncio.Event()
    running = asyncio.create_task(process.run(stop))
    try:
        yield
    finally:
        stop.set()
        await running


async def judged() -> list[str]:
    async with FakeApiServer() as server:
        furnish(server)
        watch = Watch(server)
        watching = asyncio.create_task(watch.run())
        async with leading(server):
            ask(server, FIRST)
            await eventually(lambda: watch.has(FIRST), within_s=LED_S, what="the first GPU is not granted its reset")
        return_(server, FIRST)
        async with leading(server):
            ask(server, SECOND)
            ask(server, OTHER)
            # A grant in another flavor shows that the new leader decides.
            await eventually(lambda: watch.has(OTHER), within_s=LED_S, what="the new leader grants nothing")
            await asyncio.sleep(MOMENT_S)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        return over_budget(watch.history, POOLS)


def main() -> int:
    return reported("history", asyncio.run(judged()))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
