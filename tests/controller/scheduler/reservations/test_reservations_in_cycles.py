"""What Kueue does not have, through whole cycles: what happens with it, and what happens without."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.messages.spans import moment
from controller.objects.meta import KubernetesObject
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assignment import Assignment
from controller.scheduler.kueue import nomination
from controller.scheduler.kueue.cycle import Cycle
from controller.scheduler.model.config import (
    BackfillPolicy,
    EngineConfig,
    Extensions,
    FairSharing,
    MinimumRuntime,
    VictimOrder,
)
from controller.scheduler.model.resources import FlavorName, FlavorResource, ResourceName, WorkloadKey
from controller.scheduler.queues.entry import Entry
from tests.controller.scheduler.test_engine_properties import Act, Run, begun, histories, setups
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, workload

EVERYTHING = Extensions(
    reserve_for_preemptor=True,
    no_eviction_cycles=True,
    minimum_runtime=MinimumRuntime(),
    backfill=BackfillPolicy.CONSERVATIVE,
    victim_order=VictimOrder.LEAST_LOST,
    quota_from_capacity=True,
)
WITHIN = {"withinClusterQueue": "LowerPriority"}
BORROWING = {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}


def world_with(*objects: KubernetesObject, on: bool = True, **beyond: object) -> World:
    world = World(EngineConfig(extensions=Extensions(**beyond) if on else Extensions()))  # type: ignore[arg-type]
    world.put(flavor(), *objects)
    return world


def runs(seconds: int) -> dict[str, str]:
    return {"tessera.dev/runtime": f"{seconds}s"}


@pytest.mark.parametrize(("reserve", "starts"), [(True, "preemptor"), (False, "newcomer")])
def test_what_victims_leave_is_the_preemptors_even_where_another_is_at_the_head(reserve: bool, starts: str) -> None:
    queue = cluster_queue("a", 4, preemption=WITHIN, queueingStrategy="StrictFIFO")
    world = world_with(queue, local_queue("a"), on=reserve, reserve_for_preemptor=True)
    world.put(workload("low", "a", 4))
    world.settle()
    world.put(workload("preemptor", "a", 4, priority=1))
    world.settle()
    assert world.condition("low", "Evicted") == "True/Preempted"
    world.put(workload("newcomer", "a", 4, priority=2))
    world.stop_evicted()
    world.cycle()
    assert world.running() == {starts}


def test_a_reservation_ends_with_its_workload() -> None:
    world = world_with(cluster_queue("a", 4, preemption=WITHIN), local_queue("a"), reserve_for_preemptor=True)
    world.put(workload("low", "a", 4))
    world.settle()
    world.put(workload("preemptor", "a", 4, priority=1))
    world.settle()
    reservations = world.engine.state.reservations
    assert [reservation.key for reservation in reservations] == ["ns/preemptor"]
    world.delete("preemptor")
    assert not len(reservations)
    world.stop_evicted()
    world.settle()
    assert world.running() == {"low"}


def preemptor_on_borrowed_quota() -> World:
    """Its victim has gone, it is to be tried again, and ``owner`` has come for the quota that it would borrow."""
    world = world_with(
        cluster_queue("a", 0, cohort="all", preemption=WITHIN | BORROWING),
        cluster_queue("b", 4, cohort="all", preemption={"reclaimWithinCohort": "Any"}),
        local_queue("a"),
        local_queue("b"),
        reserve_for_preemptor=True,
    )
    world.put(workload("low", "a", 4))
    world.settle()
    world.put(workload("preemptor", "a", 4, priority=1))
    world.settle()
    assert world.condition("low", "Evicted") == "True/Preempted"
    world.put(workload("owner", "b", 4))
    world.stop_evicted()
    return world


def test_a_reservation_does_not_keep_a_queue_from_its_own_quota() -> None:
    """The owner would take its quota back from the preemptor as soon as that ran."""
    world = preemptor_on_borrowed_quota()
    world.settle()
    assert "owner" in world.running()
    assert "preemptor" not in world.running()


@pytest.mark.parametrize(
    ("backfill", "running"),
    [(BackfillPolicy.CONSERVATIVE, {"r", "short"}), (BackfillPolicy.NONE, {"r", "short", "long"})],
)
def test_a_blocked_head_is_passed_only_by_those_who_do_not_delay_it(
    backfill: BackfillPolicy, running: set[str]
) -> None:
    world = world_with(cluster_queue("a", 8), local_queue("a"), backfill=backfill)
    world.put(workload("r", "a", 4, annotations=runs(100)))
    world.settle()
    world.put(workload("head", "a", 8, priority=1, annotations=runs(50)))
    world.settle()
    world.put(workload("long", "a", 2, annotations=runs(1000)), workload("short", "a", 2, annotations=runs(50)))
    world.settle()
    assert world.running() == running
    if backfill is BackfillPolicy.CONSERVATIVE:
        told = world.engine.stories.last(WorkloadKey("ns/long"))
        assert told is not None
        assert "ns/head" in told.detail


@pytest.mark.parametrize("after_s", [0.0, 40.0, 98.6])
def test_one_that_is_held_back_is_told_by_whom_and_until_when_and_it_stays_true(after_s: float) -> None:
    world = world_with(cluster_queue("a", 8), local_queue("a"), backfill=BackfillPolicy.CONSERVATIVE)
    world.put(workload("r", "a", 4, annotations=runs(100)))
    world.settle()
    world.put(workload("head", "a", 8, priority=1))
    world.settle()
    world.now_s += after_s
    world.put(workload("long", "a", 2, annotations=runs(1000)))
    world.settle()
    told = world.engine.stories.last(WorkloadKey("ns/long"))
    assert told is not None
    assert told.detail == f"workload ns/head, which is to start by {moment(NOW_S + 100.0)}"


def test_the_head_starts_when_it_was_promised_and_those_held_back_follow() -> None:
    world = world_with(cluster_queue("a", 8), local_queue("a"), backfill=BackfillPolicy.CONSERVATIVE)
    world.put(workload("r", "a", 4, annotations=runs(100)))
    world.settle()
    world.put(workload("head", "a", 8, priority=1), workload("long", "a", 2, annotations=runs(1000)))
    world.settle()
    assert world.running() == {"r"}
    world.finish("r")
    world.settle()
    assert world.running() == {"head"}
    world.finish("head")
    world.settle()
    assert world.running() == {"long"}


def test_who_has_gone_by_the_promised_time_is_nobody_who_may_be_made_to_go() -> None:
    """The head may evict one of two that run, and that is not enough: it is promised the time when both have ended."""
    queue = cluster_queue("a", 4, preemption=WITHIN)
    world = world_with(queue, local_queue("a"), backfill=BackfillPolicy.CONSERVATIVE)
    world.put(workload("low", "a", 3, annotations=runs(10)), workload("high", "a", 1, priority=9, annotations=runs(20)))
    world.settle()
    world.put(workload("head", "a", 4, priority=5))
    world.settle()
    assert world.running() == {"low", "high"}
    backfill = world.engine.state.backfill
    assert [(one.key, one.start_s) for one in backfill] == [("ns/head", world.now_s + 20)]


def test_a_head_that_goes_away_holds_nobody_back() -> None:
    world = world_with(cluster_queue("a", 8), local_queue("a"), backfill=BackfillPolicy.CONSERVATIVE)
    world.put(workload("r", "a", 4, annotations=runs(100)))
    world.settle()
    world.put(workload("head", "a", 8, priority=1), workload("long", "a", 2, annotations=runs(1000)))
    world.settle()
    world.delete("head")
    world.settle()
    assert world.running() == {"r", "long"}


def test_asking_why_changes_nothing() -> None:
    world = world_with(cluster_queue("a", 8), local_queue("a"), backfill=BackfillPolicy.CONSERVATIVE)
    world.put(workload("r", "a", 4, annotations=runs(100)), workload("late", "a", 8, created_s=9))
    world.settle()
    world.put(workload("early", "a", 8, created_s=1))
    backfill = world.engine.state.backfill
    before = [one.key for one in backfill]
    asked = world.engine.explain(WorkloadKey("ns/early"), world.now_s)
    assert asked is not None
    assert [one.key for one in backfill] == before == ["ns/late"]


@given(setups(), histories, st.booleans())
@settings(max_examples=40, deadline=None)
def test_with_everything_on_nothing_is_lost_and_every_world_settles(
    given: list[KubernetesObject], history: list[Act], fair: bool
) -> None:
    with without_the_short_cut():
        run = begun(EngineConfig(fair_sharing=FairSharing() if fair else None, extensions=EVERYTHING), given)
        for act in history:
            act(run)
        settled(run)


@contextmanager
def without_the_short_cut() -> Iterator[None]:
    """Every entry is nominated again without reservations; those that would have been spared it gain nothing."""
    could_stay, within = nomination._could_stay_within_own_quota, nomination._within_own_quota
    spared: list[bool] = []

    def always(incoming: Incoming, cluster: Cluster) -> bool:
        spared.append(not could_stay(incoming, cluster))
        return True

    def checked(assignment: Assignment) -> bool:
        found = within(assignment)
        assert not (found and spared[-1])
        return found

    with (
        patch.object(nomination, "_could_stay_within_own_quota", always),
        patch.object(nomination, "_within_own_quota", checked),
    ):
        yield


def settled(run: Run) -> None:
    for _ in range(100):
        run.world.settle()
        state = run.world.engine.state
        assert set(run.world.workloads) == {*state.cluster.holders, *(one.key for one in state.queues)}
        if not run.world.stop_evicted():
            return
    raise AssertionError(f"they go on evicting each other: {run.world.log[-20:]}")


def test_what_an_entry_looks_past_is_taken_off_once() -> None:
    """A workload assigned without reservations that finds no place asks what reservations keep: none is charged."""
    world = preemptor_on_borrowed_quota()
    asked, decide = [], Cycle._decide

    def asking(self: Cycle, entry: Entry) -> None:
        if entry.ignores_reservations:
            asked.append(self._charges.unreserved(entry, entry.assignment.usage))
        decide(self, entry)

    with patch.object(Cycle, "_decide", asking):
        world.settle()
    assert asked == [{FlavorResource(FlavorName("default"), ResourceName("gpu")): 4}]
