"""``docs/scheduler/preemption.md``: the engine decides the worked example as the page says."""

import re
from pathlib import Path
from typing import Any

import pytest

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, FlavorResource, ResourceName
from controller.scheduler.preemption.search import Preemption
from controller.scheduler.quota.queuestate import Holder
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload
from tests.support.pagetables import Row, table

PAGE = Path(__file__).resolve().parents[3] / "docs/scheduler/preemption.md"
GPUS = FlavorResource(FlavorName("default"), ResourceName("gpu"))
REASON = "evicted for train, reason"


def come(world: World, row: Row) -> None:
    name, queue, gpus = row["workload"], row["ClusterQueue"], int(row["GPUs"])
    world.put(workload(name, queue, gpus, priority=int(row["priority"]), created_s=int(row["created, s"])))
    world.settle()
    world.now_s += 10


def example(*, reserve: bool = True) -> World:
    """The page's queues and workloads, up to the preemptor, which is yet to come."""
    world = World(EngineConfig(extensions=Extensions(reserve_for_preemptor=reserve)))
    world.put(flavor())
    for row in table(PAGE, "ClusterQueue"):
        policies = {key: row[key] for key in ("withinClusterQueue", "reclaimWithinCohort")}
        queue = cluster_queue(
            row["ClusterQueue"],
            int(row["GPUs of its own"]),
            cohort="all",
            preemption=policies,
            queueingStrategy=row["queueingStrategy"],
        )
        world.put(queue, local_queue(row["ClusterQueue"]))
    *holders, _ = table(PAGE, "workload")
    for row in holders:
        come(world, row)
    assert world.running() == {row["workload"] for row in holders}
    return world


def preemptor() -> Row:
    return table(PAGE, "workload")[-1]


def older() -> Row:
    """The workload that the page's text describes."""
    told = re.search(
        r"`older` is in `(\w)` as well:\n(\d+) GPUs, priority (\d+), created at (\d+) s\.", PAGE.read_text()
    )
    assert told is not None
    columns = ("ClusterQueue", "GPUs", "priority", "created, s")
    return {"workload": "older", **dict(zip(columns, told.groups(), strict=True))}


def test_the_trial_releases_and_charges_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, ...]] = []
    searching: list[bool] = []
    search, release, charge = Preemption.targets, Cluster.release, Cluster.charge

    def note(cluster: Cluster, change: str, holder: Holder) -> None:
        a, b = (cluster.quota.cluster_queue(ClusterQueueName(name)) for name in "ab")
        gpus = int(preemptor()["GPUs"])
        fits = a.available(GPUS) >= gpus and not a.borrowing_with(GPUS, gpus)
        name = holder.info.workload.metadata.name
        if searching:
            made.append((f"{change} {name}", str(a.usage(GPUS)), str(b.usage(GPUS)), "yes" if fits else "no"))

    def searched(preemption: Preemption, *asked: Any) -> Any:
        searching.append(True)
        try:
            return search(preemption, *asked)
        finally:
            searching.clear()

    def released(cluster: Cluster, holder: Holder) -> None:
        release(cluster, holder)
        note(cluster, "release", holder)

    def charged(cluster: Cluster, holder: Holder) -> None:
        charge(cluster, holder)
        note(cluster, "charge", holder)

    world = example()
    monkeypatch.setattr(Preemption, "targets", searched)
    monkeypatch.setattr(Cluster, "release", released)
    monkeypatch.setattr(Cluster, "charge", charged)
    come(world, preemptor())
    assert made == [tuple(row.values())[:4] for row in table(PAGE, "change")]


def test_the_victims_and_their_reasons_are_those_of_the_page() -> None:
    world = example()
    come(world, preemptor())
    for row in table(PAGE, "workload"):
        condition = world.condition(row["workload"], "Preempted")
        assert condition == ("" if row[REASON] == "-" else f"True/{row[REASON]}"), row["workload"]


def after_each_event(world: World) -> list[tuple[str, str, str]]:
    """Free GPUs, reserved ones, and who holds quota, after each event of the table of the reservation."""
    state = world.engine.state
    seen = []
    for act in (
        lambda: come(world, preemptor()),
        lambda: come(world, older()),
        lambda: world.stop_evicted(1),
        lambda: world.stop_evicted(1),
    ):
        act()
        world.settle()
        used = sum(queue.node.usage(GPUS) for queue in state.cluster.queues.values())
        reserved = sum(reservation.kept_quota(state.cluster.holders).get(GPUS, 0) for reservation in state.reservations)
        holding = ", ".join(name for name in map(_name, world.workloads.values()) if name in world.running())
        seen.append((str(8 - used), str(reserved), holding))
    return seen


def _name(one: Any) -> str:
    return str(one.metadata.name)


def test_the_reservation_is_what_the_page_says_after_each_event() -> None:
    told = [(row["free GPUs"], row["reserved"], row["hold quota"]) for row in table(PAGE, "event")]
    assert after_each_event(example()) == told


def test_without_the_reservation_the_older_one_starts_in_between() -> None:
    before, after = after_each_event(example(reserve=False))[1:3]
    assert "older" not in before[2]
    assert "older" in after[2]
