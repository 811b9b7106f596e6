"""One agent's traffic, by a proxy between it and a real API server; an hour of rest is computed from what was seen.

The agent is its own program on simulated GPUs under a kubelet that is played; its pods are objects that nothing runs.
"""

import asyncio
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from agent.cluster.publisher import RESYNC_S
from agent.config.settings import Settings
from agent.process.spread import Spread
from hack.bench.agents.exchanges import Connection, Exchange, Span, span
from hack.bench.node.agent import GPU, Bench
from hack.bench.table import Row
from hack.chaos.proxy import Proxy
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.pki import Pki
from inventory.devices import NodeName

NODE: Final = "node-1"
STARTED_S: Final = 20.0
POD_S: Final = 3.0
"""What a pod's steps are apart: longer than any pause of the agent's writers."""
PODS: Final = 4
FAULTS: Final = 3
WATCHED: Final = {"Node": "WATCH nodes", "GpuLayouts": "WATCH gpulayouts", "Pods": "WATCH pods"}
OWN: Final = {"own GpuNode": "WATCH gpunodes"}
"""The watch that an agent has beside these while it may reset GPUs."""
COMPARED: Final = {"labels": "GET nodes", "GpuNode": "GET gpunodes", "conditions": "GET nodes"}
"""Kinds of exchanges by which objects are compared, and ``WATCHED`` those by which they are watched, by the names that
``Spread`` knows.
"""
RESETS: Final = "version: v1\nremediation: {reset: when-free}\n"


class Recorder:
    """What a proxy passes on, as exchanges. Called from the proxy's thread alone; read when it is quiet."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._connections: dict[int, Connection] = {}

    def passed(self, number: int, up: bool, data: bytes) -> None:
        connection = self._connections.setdefault(number, Connection(self.exchanges))
        (connection.up if up else connection.down)(data, time.monotonic())


@contextmanager
def recorded(cluster: Cluster, folder: Path) -> Iterator[tuple[Recorder, Path]]:
    """A recorder, and the kubeconfig of the proxy that feeds it."""
    target, recorder = urlsplit(cluster.server), Recorder()
    assert target.hostname is not None, "the API server has an address"
    assert target.port is not None, "and a port"
    with Proxy((target.hostname, target.port), Pki(cluster.paths.pki), recorder.passed) as proxy:
        config: dict[str, Any] = json.loads(cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
        path = folder / "proxied.kubeconfig"
        path.write_text(json.dumps(config))
        yield recorder, path


@dataclass(frozen=True)
class Seen:
    """What one agent asked. ``pods`` and ``faults`` are of as many as their names' constants say."""

    start: Span
    rest: Span
    pods: Span
    faults: Span
    exchanges: Sequence[Exchange]


async def see(cluster: Cluster, folder: Path, rest_s: float, *, resets: bool = False) -> Seen:
    """An agent's start, its rest of that many seconds, pods that come and go, GPUs that fail and recover. ``resets``:
    it may reset GPUs.
    """
    with recorded(cluster, folder) as (recorder, kubeconfig):
        marks = [time.monotonic()]
        async with Bench(folder / "agent", kubeconfig=str(kubeconfig), config=RESETS if resets else None) as bench:
            for seconds, work in ((STARTED_S, None), (rest_s, None), (POD_S, _pods), (POD_S, _faults)):
                if work is not None:
                    await work(cluster, bench)
                await asyncio.sleep(seconds)
                marks.append(time.monotonic())
        start, rest, pods, faults = (span(recorder.exchanges, *pair) for pair in itertools.pairwise(marks))
        return Seen(start, rest, pods, faults, recorder.exchanges)


async def _pods(cluster: Cluster, bench: Bench) -> None:
    for number in range(PODS):
        name = f"train-{number}"
        limits = {"limits": {GPU: "1"}}
        container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": limits}
        pod = {"metadata": {"name": name}, "spec": {"nodeName": NODE, "containers": [container]}}
        await _kubectl(cluster, "create", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "Pod", **pod}))
        await bench.kubelet.allocate(GPU, 1, pod=name)
        for status in ({"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}, {"phase": "Running"}):
            words = ("patch", "pod", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
            await _kubectl(cluster, *words)
        await asyncio.sleep(POD_S)
        bench.kubelet.delete(name)
        await _kubectl(cluster, "delete", "pod", name, "--grace-period=0", "--force")
        await asyncio.sleep(POD_S)


async def _faults(_cluster: Cluster, bench: Bench) -> None:
    for gpu in range(FAULTS):
        await asyncio.to_thread(bench.agent.sim, gpu=gpu, xid=48)
        await asyncio.sleep(POD_S)
        await asyncio.to_thread(bench.agent.sim, gpu=gpu, reset=True)
        await asyncio.sleep(POD_S)


async def _kubectl(cluster: Cluster, *words: str, text: str | None = None) -> None:
    await asyncio.to_thread(lambda: cluster.kubectl(*words, input=text))


@dataclass(frozen=True)
class Hour:
    """An agent's hour at rest: requests and bytes (both ways), with what each of its parts asks."""

    watches: float
    comparisons: float
    sent: float
    received: float

    @property
    def requests(self) -> float:
        return self.watches + self.comparisons


def hour(node: str, exchanges: Sequence[Exchange], rest: Span, *, resets: bool = False) -> Hour:
    """What an hour's rest comes to: each watch is taken up and each comparison made once in its period, with the bytes
    that they were seen to have; between them watches have their bookmarks, as many as the rest has shown.
    """
    spread = Spread(node, Settings(node_name=NodeName(node)).api_spread_s)
    watched = WATCHED | (OWN if resets else {})
    watches = {what: 3600 / spread.pace(what).lasts_s for what in watched}
    comparisons = {what: 3600 / spread.every_s(what, *RESYNC_S) for what in COMPARED}
    calls = [(times, watched[what]) for what, times in watches.items()]
    calls += [(times, COMPARED[what]) for what, times in comparisons.items()]
    quiet = 3600 / rest.seconds
    sizes = _sizes(exchanges)
    return Hour(
        sum(watches.values()),
        sum(comparisons.values()),
        sum(times * sizes.get(kind, (0.0, 0.0))[0] for times, kind in calls) + quiet * rest.sent,
        sum(times * sizes.get(kind, (0.0, 0.0))[1] for times, kind in calls) + quiet * rest.received,
    )


def _sizes(exchanges: Sequence[Exchange]) -> Mapping[str, tuple[float, float]]:
    """Bytes sent and received by kind: the last of each; of a watch what passed within its first second."""
    sizes = {}
    for each in exchanges:
        ended_s = each.begun_s + 1.0 if each.watches else float("inf")
        sizes[each.kind] = each.bytes_between(each.begun_s, ended_s)
    return sizes


def rows(seen: Seen, *, resets: bool = False) -> list[Row]:
    """The table of one agent."""
    an_hour = hour(NODE, seen.exchanges, seen.rest, resets=resets)
    minutes = seen.rest.seconds / 60
    return [
        Row("start: requests; KiB sent and received", f"{seen.start.requests}; {_kib(seen.start)}", ""),
        Row(
            f"at rest, an hour (computed; {seen.rest.requests} requests came in the {minutes:.0f} minutes measured)",
            f"{an_hour.requests:.1f} requests",
            "20",
        ),
        Row(
            "  of which watches taken up again; comparisons",
            f"{an_hour.watches:.1f}; {an_hour.comparisons:.1f}",
            "",
        ),
        Row("  KiB sent and received", f"{an_hour.sent / 1024:.0f} and {an_hour.received / 1024:.0f}", ""),
        Row("  of which watches received between", _kinds(seen.rest), ""),
        Row(
            "a pod that comes, runs and goes: requests; KiB sent and received",
            f"{seen.pods.requests / PODS:.1f}; {_kib(seen.pods, PODS)}",
            "",
        ),
        Row(
            "a GPU that fails and recovers: requests; KiB sent and received",
            f"{seen.faults.requests / FAULTS:.1f}; {_kib(seen.faults, FAULTS)}",
            "",
        ),
    ]


def _kinds(rest: Span) -> str:
    """KiB an hour by kind."""
    return ", ".join(
        f"{kind} {size / rest.seconds * 3600 / 1024:.0f} KiB" for kind, size in rest.bytes_of.most_common() if size
    )


def _kib(seen: Span, count: int = 1) -> str:
    return f"{seen.sent / count / 1024:.1f} and {seen.received / count / 1024:.1f}"
