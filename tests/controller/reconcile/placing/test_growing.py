"""Jobs that begin with their minimum: which pods are in it and which above; none runs that nobody is charged for."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.writing.stampedwrites import Stamped
from controller.jobs.framework.names import WORKLOAD
from controller.jobs.framework.podview import MANAGED, workload_of
from controller.objects.core import Pod
from controller.objects.decode import decode
from controller.objects.workload import Workload
from controller.reconcile.placing.growing import Parts, parts
from controller.reconcile.placing.ungating import PlacedPod, PodSetPlaces, Ranks
from inventory.api.names import ABOVE_MINIMUM_OF
from kube.errors import ConflictError, KubeError
from kube.testing.store import Key, Store
from kube.writing.writes import Conflicted, Outcome, Refused, Written
from tests.support.controller.ungaterworld import UngaterWorld

HOST, INDEX, SET = "kubernetes.io/hostname", "training.kubeflow.org/replica-index", "kueue.x-k8s.io/podset"
GATES = [{"name": "kueue.x-k8s.io/topology"}]
WAIT_S = 6.0


def places(count: int, *, ranked: bool = True) -> PodSetPlaces:
    return PodSetPlaces(
        name="main", count=count, needed=count, ranks=Ranks(index_label=INDEX) if ranked else None, levels=()
    )


def placed(index: int, *, waits: bool = True, leaves: bool = False, name: str = "main", label: str = "") -> PlacedPod:
    labels = {INDEX: label or str(index)}
    return PlacedPod(uid=f"u{index}", pod_set=name, age=(float(index), ""), waits=waits, leaves=leaves, labels=labels)


def told(found: Parts) -> tuple[list[str], list[str], list[str]]:
    return sorted(found.above), sorted(found.back), sorted(found.short)


def test_the_lowest_ranks_are_the_minimum_whatever_their_age() -> None:
    pods = [placed(10), placed(2), placed(0)]
    assert told(parts([places(2)], pods, [], ())) == (["u10"], [], [])
    assert told(parts([places(2, ranked=False)], [*pods, placed(1)], [], ())) == (["u10", "u2"], [], [])
    assert told(parts([places(1)], [placed(0, label="x"), placed(1)], [], ())) == (["u0"], [], [])


def test_what_runs_stays_in_the_minimum() -> None:
    pods = [placed(0), placed(1), placed(7, waits=False)]
    assert told(parts([places(2)], pods, [], ())) == (["u1"], [], [])
    assert told(parts([places(1)], [placed(3, waits=False), placed(4, waits=False)], [], ())) == ([], [], [])


def test_a_pod_waits_in_the_minimum_for_one_that_leaves() -> None:
    pods = [placed(0, waits=False, leaves=True), placed(1, waits=False), placed(2)]
    assert told(parts([places(2)], pods, [placed(5)], ())) == ([], [], [])
    assert told(parts([places(2)], pods[:2], [placed(5)], {"main"})) == ([], [], []), "its place is not free yet"


def test_a_free_place_is_kept_for_a_while_and_then_taken_by_the_first_above() -> None:
    above = [placed(9), placed(4), placed(6), placed(1, name="other")]
    own = [placed(0, waits=False)]
    assert told(parts([places(3)], own, above, ())) == ([], [], ["main"])
    assert told(parts([places(3)], own, above, {"other"})) == ([], [], ["main"])
    assert told(parts([places(3)], own, above, {"main"})) == ([], ["u4", "u6"], ["main"])
    assert told(parts([places(3)], own, above[3:], {"main"})) == ([], [], []), "nobody is there for it"


def test_a_pod_set_without_a_place_is_above_as_a_whole() -> None:
    assert told(parts([places(0)], [placed(0)], [placed(1)], {"main"})) == (["u0"], [], [])


# -- the shell ---------------------------------------------------------------------------------------------------------


def workload(count: int, *, hosts: bool) -> Workload:
    assigned: dict[str, Any] = {"name": "main", "count": count}
    if hosts:
        values = [{"individual": {"roots": ["n0", "n1"]}}]
        counts = {"individual": [1, count - 1]}
        slices = [{"domainCount": 2, "valuesPerLevel": values, "podCounts": counts}]
        assigned["topologyAssignment"] = {"levels": [HOST], "slices": slices}
    pod_set = {"name": "main", "count": count, "template": {}, "topologyRequest": {"podIndexLabel": INDEX}}
    conditions = [{"type": "Admitted", "status": "True"}]
    status = {"admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]}, "conditions": conditions}
    metadata = {"name": "w", "namespace": "team", "uid": "w", "resourceVersion": "1"}
    return decode({"metadata": metadata, "spec": {"queueName": "q", "podSets": [pod_set]}, "status": status}, Workload)


@dataclass
class World(UngaterWorld):
    """A job of ``total`` pods that began with ``count``, an API server whose watch lags and whose answers get lost."""

    total: int
    count: int
    hosts: bool
    store: Store = field(default_factory=Store)
    observed: list[str] = field(default_factory=list)
    charged: set[str] = field(default_factory=set)
    """Uids of pods above the minimum that have quota of their own."""
    succeeded: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.ledger.observe(workload(self.count, hosts=self.hosts))
        self.begin()

    # The API server.

    def key(self, name: str) -> Key:
        return ("pods", "team", name)

    def pods(self) -> dict[str, dict[str, Any]]:
        return {raw["metadata"]["name"]: raw for raw in self.store.list_all("pods", "team")}

    async def answer(self, salt: int) -> None:
        """Written; or refused for nothing; or written with its answer lost, and refused the second time."""
        if not self.writes:
            return
        write, future = self.writes.pop(salt % len(self.writes))
        outcome: Outcome[Any] = Conflicted(ConflictError("not now"))
        if salt % 3:
            try:
                self.store.json_patch(self.key(write.name), write.body)
                self.observed.append(write.name)
                outcome = Written(Stamped()) if salt % 3 == 1 else outcome
            except KubeError as error:
                outcome = Refused(error, 2)
        future.set_result(outcome)
        await asyncio.sleep(0)
        self.check()

    # The job's controller.

    def make(self, salt: int) -> None:
        there = {int(raw["metadata"]["labels"][INDEX]) for raw in self.pods().values()}
        missing = [index for index in range(self.total) if index not in there | self.succeeded]
        if missing:
            index = missing[salt % len(missing) if salt % 2 else 0]
            labels = {SET: "main", INDEX: str(index)}
            notes = {WORKLOAD: "w", ABOVE_MINIMUM_OF: ""}
            body = {"metadata": {"name": f"p{index}", "namespace": "team", "labels": labels, "annotations": notes}}
            self.store.create(self.key(f"p{index}"), {**body, "spec": {"schedulingGates": GATES}, "status": {}})
            self.observed.append(f"p{index}")

    def lose(self, salt: int) -> None:
        """A pod is deleted, and will be made anew."""
        if there := sorted(self.pods()):
            self.store.delete(self.key(there[salt % len(there)]))
            self.observed.append(there[salt % len(there)])

    def succeed(self, salt: int) -> None:
        if running := sorted(name for name, raw in self.pods().items() if runs(raw)):
            name = running[salt % len(running)]
            self.succeeded.add(int(name[1:]))
            self.store.delete(self.key(name))
            self.observed.append(name)

    # The reconciler of pods.

    def admit(self, salt: int) -> None:
        """A pod above gets quota, and starts; it is seen as it is, else the API server refuses the patch."""
        waiting = sorted(name for name, raw in self.pods().items() if is_above(raw) and not runs(raw))
        if waiting and waiting[salt % len(waiting)] not in self.observed:
            name = waiting[salt % len(waiting)]
            self.charged.add(self.pods()[name]["metadata"]["uid"])
            self.store.merge_patch(self.key(name), {"spec": {"schedulingGates": []}})
            self.observed.append(name)

    def release(self) -> None:
        for name, raw in self.pods().items():
            if MANAGED in raw["metadata"]["labels"] and not is_above(raw):
                self.store.merge_patch(self.key(name), {"metadata": {"labels": {MANAGED: None}}})
                self.observed.append(name)

    # The controller's process.

    def show(self) -> None:
        if self.observed:
            name = self.observed.pop(0)
            self._tell(name)

    def _tell(self, name: str) -> None:
        raw = self.pods().get(name)
        self.see(name, None if raw is None else decode(raw, Pod))

    async def kill(self, salt: int) -> None:
        """What was under way went in, or did not; the next process sees all of it."""
        while self.writes:
            await self.answer(salt)
        self.observed.clear()
        self.begin()
        for name in self.pods():
            self._tell(name)

    def check(self) -> None:
        """What runs is what was charged."""
        running = [raw for raw in self.pods().values() if runs(raw)]
        assert sum(not is_above(raw) for raw in running) <= self.count
        assert {raw["metadata"]["uid"] for raw in running if is_above(raw)} <= self.charged


def runs(raw: dict[str, Any]) -> bool:
    return not raw["spec"].get("schedulingGates")


def is_above(raw: dict[str, Any]) -> bool:
    meta = raw["metadata"]
    assert bool(meta["annotations"][ABOVE_MINIMUM_OF]) <= (meta["labels"].get(MANAGED) == "true")
    return bool(meta["annotations"][ABOVE_MINIMUM_OF])


async def play(world: World, ops: list[tuple[str, int]]) -> None:
    for op, salt in ops:
        match op:
            case "show":
                world.show()
            case "look":
                world.ungater.reconcile()
            case "wait":
                world.clock.advance(salt / 10)
            case "release":
                world.release()
            case "answer":
                await world.answer(salt)
            case "kill":
                await world.kill(salt)
            case _:
                getattr(world, op)(salt)
        world.check()
    await settle(world)


async def settle(world: World) -> None:
    for turn in range(12):
        for _ in range(world.total):
            world.make(0)
        while world.observed:
            world.show()
        world.ungater.reconcile()
        while world.writes:
            await world.answer(1)
        world.release()
        world.clock.advance(WAIT_S * (1 + turn))
    pods = world.pods()
    assert len(pods) == world.total - len(world.succeeded)
    own = [raw for raw in pods.values() if not is_above(raw)]
    spare = [raw for raw in pods.values() if is_above(raw) and not runs(raw)]
    assert all(map(runs, own))
    assert len(own) == world.count or not spare, "a place that nobody takes is not kept from one that waits"
    assert not world.ungater._assigned, "what the watch has shown is forgotten"
    assert not world.ungater._short


KINDS = ["make", "make", "make", "lose", "succeed", "admit", "release", "show", "show", "look", "look", "answer"]
OPS = st.tuples(st.sampled_from([*KINDS, "answer", "kill", "wait"]), st.integers(0, 99))


@settings(max_examples=30, deadline=None)
@given(total=st.integers(2, 6), hosts=st.booleans(), data=st.data(), ops=st.lists(OPS, max_size=60))
def test_nothing_runs_that_nobody_is_charged_for_and_no_place_stays_empty(
    total: int, hosts: bool, data: st.DataObject, ops: list[tuple[str, int]]
) -> None:
    count = data.draw(st.integers(1, total - 1))
    asyncio.run(play(World(total, count, hosts), ops))


@pytest.mark.parametrize("waited_s", [4.9, 5.1])
def test_a_place_is_kept_for_five_seconds(waited_s: float) -> None:
    async def scene() -> None:
        world = World(3, 1, hosts=False)
        await settle(world)
        assert sorted(name for name, raw in world.pods().items() if is_above(raw)) == ["p1", "p2"]
        world.succeed(0)
        world.show()
        world.ungater.reconcile()
        world.clock.advance(waited_s)
        world.ungater.reconcile()
        assert [write.name for write, _ in world.writes] == ([] if waited_s < 5 else ["p1"])
        await settle(world)

    asyncio.run(scene())


def own(world: World, name: str, version: int, *, admitted: bool, gone: bool = False) -> None:
    """The pod's own Workload, which the engine gives quota or takes it from."""
    raw = world.pods()[name]
    key = workload_of(decode(raw, Pod))
    assert key is not None
    notes = {ABOVE_MINIMUM_OF: raw["metadata"]["annotations"][ABOVE_MINIMUM_OF]}
    meta = {"name": key.partition("/")[2], "namespace": "team", "uid": name, "annotations": notes}
    given = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]}
    body = {
        "metadata": {**meta, "resourceVersion": str(version)},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {}}]},
        "status": {"admission": given} if admitted else {},
    }
    found = decode(body, Workload)
    if gone:
        world.ledger.forget(key, name)
    else:
        world.ledger.observe(found)
    world.ungater.workload(found, gone)


@pytest.mark.parametrize("gone", [False, True])
def test_a_free_place_is_for_a_pod_above_as_soon_as_that_holds_no_quota(gone: bool) -> None:
    async def scene() -> None:
        world = World(3, 1, hosts=False)
        await settle(world)
        for name in ("p1", "p2"):
            own(world, name, 2, admitted=True)
        world.succeed(0)
        world.show()
        world.ungater.reconcile()
        world.clock.advance(6)
        world.ungater.reconcile()
        assert not world.writes, "both hold quota of their own"
        own(world, "p1", 3, admitted=gone, gone=gone)
        world.ungater.reconcile()
        world.clock.advance(6)
        world.ungater.reconcile()
        assert [write.name for write, _ in world.writes] == ["p1"]
        await settle(world)

    asyncio.run(scene())


@pytest.mark.parametrize("back", [False, True])
def test_a_move_that_is_refused_again_and_again_is_told_of_and_made_ever_more_seldom(back: bool) -> None:
    told: list[tuple[str, str, str]] = []

    async def scene() -> int:
        world = World(3, 1, hosts=False)
        world.ungater._tell = lambda _about, *said: told.append(said)
        if back:
            await settle(world)
            world.succeed(0)
        else:
            for salt in (0, 0, 0):
                world.make(salt)
        refused = 0
        for _ in range(120):
            while world.observed:
                world.show()
            world.ungater.reconcile()
            for write, future in world.writes:
                refused += write.name == "p1"
                future.set_result(Refused(KubeError("no"), 2))
            world.writes.clear()
            await asyncio.sleep(0)
            world.clock.advance(1)
        return refused

    refused = asyncio.run(scene())
    assert 3 < refused < 15
    assert ("Warning", "PodNotPlaced", "A pod cannot be ungated: no") in told
