"""The net of leadership: two candidates for one Lease, and a network that delays what the first of them writes.

Judged by what the API server had: a Lease that somebody holds and renews goes to nobody else before its time is over,
and a holder that was followed by another does not come back by a write from before.
"""

import asyncio
import itertools
import logging
import random
import sys
import time
from typing import Any, Final

from msgspec import Struct

from hack.planted.nets import reported
from hack.planted.nets.relay import Relay
from kube.client import Client
from kube.clock import SystemClock
from kube.config import ClusterConfig
from kube.election.candidate import Identity, LeaseTiming
from kube.election.lease import Leadership, LeaseRef
from kube.resources import Resource
from kube.testing import FakeApiServer, eventually

LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
TIMING: Final = LeaseTiming(lease_s=3.0, renew_s=2.0, retry_s=0.3)
_REF: Final = LeaseRef("system", "leader")
_SLACK_S: Final = 0.5
"""Of the clock here against that of the API server's answers."""


class Held(Struct, frozen=True):
    """A Lease as the API server had it from ``at_s`` on."""

    at_s: float
    holder: str
    lease_s: float


def taken_early(history: list[Held]) -> list[str]:
    """Sentences, one for each time that a Lease went from one holder to another before it had run out."""
    sentences = []
    for before, after in itertools.pairwise(history):
        passed_s = after.at_s - before.at_s
        if before.holder and after.holder not in ("", before.holder) and passed_s < before.lease_s - _SLACK_S:
            sentences.append(
                f"two-leaders: Lease {_REF}: {after.holder} took it {passed_s:.1f} s after {before.holder} had renewed "
                f"it for {before.lease_s:g} s"
            )
    return sentences


class Watch:
    """Notes the Lease at each of its changes."""

    def __init__(self, server: FakeApiServer) -> None:
        self._server, self._version = server, server.store.version
        self.history: list[Held] = []

    async def run(self) -> None:
        while True:
            for change in self._server.store.since(self._version):
                self._version = change.version
                if change.collection == LEASES.path() and change.type != "DELETED":
                    self.history.append(_held(change.body))
            await asyncio.sleep(0.01)

    @property
    def holder(self) -> str:
        return self.history[-1].holder if self.history else ""


def _held(body: dict[str, Any]) -> Held:
    spec = body["spec"]
    return Held(time.monotonic(), spec.get("holderIdentity") or "", float(spec.get("leaseDurationSeconds") or 0))


async def judged() -> list[str]:
    async with FakeApiServer() as server:
        watch = Watch(server)
        watching = asyncio.create_task(watch.run())
        to_port = int(server.config.server.rpartition(":")[2])
        async with Relay(to_port) as relay:
            slow = ClusterConfig(server=f"http://127.0.0.1:{relay.port}")
            first = asyncio.create_task(_candidate(slow, "first"))
            await eventually(lambda: watch.holder == "first", within_s=30.0, what="the first does not lead")
            second = asyncio.create_task(_candidate(server.config, "second"))
            relay.stalled = True
            await eventually(lambda: watch.holder == "second", within_s=60.0, what="the second does not follow")
            relay.stalled = False
            await asyncio.sleep(TIMING.lease_s)
            for task in (first, second, watching):
                task.cancel()
            await asyncio.gather(first, second, watching, return_exceptions=True)
        return taken_early(watch.history)


async def _candidate(config: ClusterConfig, name: str) -> None:
    async with Client(config) as client:
        leadership = Leadership(
            client, [_REF], me=Identity(name), clock=SystemClock(), random=random.random, timing=TIMING
        )
        while True:
            await leadership.lead(_forever)


async def _forever() -> None:
    await asyncio.Event().wait()


def main() -> int:
    return reported("history", asyncio.run(judged()))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
