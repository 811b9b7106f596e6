"""Whatever comes in whatever order, be it late or lost: no place is taken twice, and in the end everybody has one."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.writing.stampedwrites import Stamped
from controller.objects.core import Pod
from controller.objects.decode import decode
from controller.objects.workload import Workload
from inventory.api.names import DEVICES
from kube.errors import ConflictError, InvalidError
from kube.writing.writes import Conflicted, Outcome, Refused, Write, Written
from tests.support.controller.ungaterworld import UngaterWorld

HOST = "kubernetes.io/hostname"
GATES = [{"name": "kueue.x-k8s.io/topology"}]
INDEX = "batch.kubernetes.io/job-completion-index"


def workload(hosts: dict[str, int], *, lost: str = "", version: int = 1) -> Workload:
    roots, counts = {"roots": list(hosts)}, {"individual": list(hosts.values())}
    slices = [{"domainCount": len(hosts), "valuesPerLevel": [{"individual": roots}], "podCounts": counts}]
    assigned = {
        "name": "main",
        "count": sum(hosts.values()),
        "topologyAssignment": {"levels": [HOST], "slices": slices},
    }
    asked = {"podIndexLabel": INDEX, "unconstrained": True}
    pod_set = {"name": "main", "count": sum(hosts.values()), "template": {}, "topologyRequest": asked}
    status = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
        "conditions": [{"type": "Admitted", "status": "True"}],
        "unhealthyNodes": [{"name": lost}] if lost else [],
    }
    metadata = {"name": "w", "namespace": "team", "uid": "w", "resourceVersion": str(version)}
    return decode({"metadata": metadata, "spec": {"podSets": [pod_set]}, "status": status}, Workload)


@dataclass
class World(UngaterWorld):
    """An API server with a watch that lags behind, and answers that get lost."""

    hosts: dict[str, int]
    ranked: bool
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    observed: list[tuple[str, dict[str, Any] | None]] = field(default_factory=list)
    lost: str = ""
    made: int = 0

    def __post_init__(self) -> None:
        self.ledger.observe(workload(self.hosts))
        self.begin(device_plan=self._plan)

    def _plan(self, _key: Any, _pod_set: str, node: str) -> list[tuple[str, str]]:
        return [(f"{node}-{i}a", f"{node}-{i}b") for i in range(self.hosts[node])]

    def put(self, write: Write[Any]) -> asyncio.Future[Outcome[Any]]:
        assert _sent(write)[HOST] != self.lost
        return super().put(write)

    def create(self, salt: int) -> None:
        free = [one for one in range(sum(self.hosts.values())) if all(p["rank"] != one for p in self.pods.values())]
        if not free:
            return
        self.made += 1
        name = f"{salt % 10}-{self.made}"
        self.pods[name] = {"rank": free[salt % len(free)], "host": "", "phase": "Pending"}
        self._tell(name)

    def end(self, salt: int) -> None:
        if self.pods:
            name = sorted(self.pods)[salt % len(self.pods)]
            del self.pods[name]
            self._tell(name)

    def _tell(self, name: str) -> None:
        self.observed.append((name, dict(self.pods[name]) if name in self.pods else None))

    def show(self) -> None:
        if self.observed:
            name, state = self.observed.pop(0)
            self.see(name, None if state is None else _pod(name, state, ranked=self.ranked))

    async def answer(self, salt: int) -> None:
        """Written; or refused for nothing; or written with its answer lost, and refused the second time."""
        if not self.writes:
            return
        write, future = self.writes.pop(salt % len(self.writes))
        pod = self.pods.get(write.name)
        outcome: Outcome[Any] = Refused(InvalidError("the test failed"), 2)
        if salt % 3 == 0:
            outcome = Conflicted(ConflictError("not now"))
        elif pod is not None and not pod["host"]:
            pod["host"], pod["devices"] = _sent(write)[HOST], _sent(write)[DEVICES]
            self._tell(write.name)
            if salt % 3 == 1:
                outcome = Written(Stamped())
        future.set_result(outcome)
        await asyncio.sleep(0)
        self.check()

    def lose(self, salt: int) -> None:
        """A node is lost, or comes back."""
        self.lost = "" if self.lost else sorted(self.hosts)[salt % len(self.hosts)]
        self._decide()

    def arrive(self, salt: int) -> None:
        """Pods that are seen and looked at as soon as they are there."""
        for more in range(1 + salt % 5):
            self.create(salt + 7 * more)
        while self.observed:
            self.show()
        self.ungater.reconcile()

    def _decide(self) -> None:
        entry = self.ledger.get(self._key())
        assert entry is not None
        after = workload(self.hosts, lost=self.lost, version=entry.version + 1)
        self.ledger.observe(after)
        self.ungater.workload(after, False)

    def _key(self) -> Any:
        return "team/w"

    def check(self) -> None:
        taken = Counter(pod["host"] for pod in self.pods.values() if pod["host"])
        assert all(taken[host] <= self.hosts[host] for host in taken), taken
        carried = [pod["devices"] for pod in self.pods.values() if pod["host"]]
        assert len(set(carried)) == len(carried), carried
        assert all(pod["devices"].startswith(f"{pod['host']}-") for pod in self.pods.values() if pod["host"])


def _sent(write: Write[Any]) -> dict[str, str]:
    """The host and the devices that a patch puts on its pod."""
    found = {one["path"]: one["value"] for one in write.body if one["op"] == "add"}
    return {HOST: found["/spec/nodeSelector"][HOST], DEVICES: found["/metadata/annotations/tessera.dev~1devices"]}


def _pod(name: str, state: dict[str, Any], *, ranked: bool) -> Pod:
    labels = {"kueue.x-k8s.io/podset": "main", **({INDEX: str(state["rank"])} if ranked else {})}
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "labels": labels,
        "annotations": {"kueue.x-k8s.io/workload": "w", **({DEVICES: state["devices"]} if state["host"] else {})},
    }
    spec = {"nodeSelector": {HOST: state["host"]}} if state["host"] else {"schedulingGates": GATES}
    return decode({"metadata": metadata, "spec": spec, "status": {"phase": state["phase"]}}, Pod)


KINDS = ["create", "arrive", "arrive", "end", "show", "look", "answer", "answer", "lose", "wait"]
OPS = st.tuples(st.sampled_from(KINDS), st.integers(0, 99))


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    ranked=st.booleans(),
    ops=st.lists(OPS, max_size=40),
)
def test_no_place_is_taken_twice_and_everybody_gets_one(
    counts: list[int], ranked: bool, ops: list[tuple[str, int]]
) -> None:
    asyncio.run(_play(World({f"n{i}": count for i, count in enumerate(counts)}, ranked), ops))


async def _play(world: World, ops: list[tuple[str, int]]) -> None:
    for op, salt in ops:
        match op:
            case "show":
                world.show()
            case "look":
                world.ungater.reconcile()
            case "answer":
                await world.answer(salt)
            case "wait":
                world.clock.advance(salt / 10)
            case _:
                getattr(world, op)(salt)
    if world.lost:
        world.lost = ""
        world._decide()
    for _ in range(60):
        while world.observed:
            world.show()
        world.ungater.reconcile()
        while world.writes:
            await world.answer(1)
        world.clock.advance(31.0)
    assert all(pod["host"] for pod in world.pods.values())
    assert not world.ungater._assigned, "what the watch has shown is forgotten"


@pytest.mark.parametrize("tried", [False, True])
def test_what_is_not_sent_yet_is_decided_anew_when_its_node_is_lost(tried: bool) -> None:
    async def play() -> None:
        world = World({"n0": 20}, ranked=False)
        for salt in range(10):
            world.create(salt)
        while world.observed:
            world.show()
        world.ungater.reconcile()
        under_way = len(world.writes)
        assert under_way < 10, "some have to wait"
        if tried:
            while world.writes:
                await world.answer(0)
        world.lose(0)
        world.clock.advance(31.0)
        world.ungater.reconcile()
        for _ in range(under_way):
            if world.writes:
                await world.answer(1)
        assert sum(bool(pod["host"]) for pod in world.pods.values()) == (0 if tried else under_way)

    asyncio.run(play())
