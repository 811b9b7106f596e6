"""``docs/scheduler/fair-sharing.md``: the engine decides the worked example as the page says."""

from pathlib import Path
from typing import Any, Final

import pytest

from controller.scheduler.model.config import EngineConfig, Extensions, FairSharing, PreemptionStrategy
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, FlavorResource, ResourceName
from controller.scheduler.preemption import fair
from controller.scheduler.quota.quotanode import QuotaNode
from controller.scheduler.quota.shares import Share, below_common_ancestor, may_preempt, share
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload
from tests.support.pagetables import Row, table

PAGE = Path(__file__).resolve().parents[3] / "docs/scheduler/fair-sharing.md"
EACH: Final = 2
GPUS = {FlavorResource(FlavorName("default"), ResourceName("gpu")): EACH}
"""What each job asks for."""
JOBS, TURNS, ASKED = (table(PAGE, column) for column in ("job", "turn", "for"))
FINAL = PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE


def queues() -> World:
    world = World(EngineConfig(fair_sharing=FairSharing(), extensions=Extensions(exact_fair_sharing=True)))
    world.put(flavor())
    for row in table(PAGE, "ClusterQueue"):
        name = row["ClusterQueue"]
        more: dict[str, Any] = {"fairSharing": {"weight": row["weight"]}}
        policies = {"reclaimWithinCohort": row["reclaimWithinCohort"]}
        own = int(row["GPUs of its own"])
        world.put(cluster_queue(name, own, cohort="all", preemption=policies, **more), local_queue(name))
    return world


def come(world: World, *rows: Row) -> None:
    """The jobs come at once, and all is decided on."""
    world.now_s += 60
    world.put(*(workload(row["job"], row["ClusterQueue"], EACH, created_s=int(row["created, s"])) for row in rows))
    world.settle()


def played() -> World:
    """All of the page's jobs have come, and whoever was evicted has stopped."""
    world = queues()
    *first, c1, c2 = JOBS
    come(world, *first)
    for row in (c1, c2):
        come(world, row)
        world.stop_evicted()
        world.settle()
    return world


def node(world: World, queue: str) -> QuotaNode:
    return world.engine.state.cluster.quota.cluster_queue(ClusterQueueName(queue))


def test_the_shares_of_each_turn_are_those_of_the_page() -> None:
    world = queues()
    of = {row["job"]: row["ClusterQueue"] for row in JOBS}
    quota = world.engine.state.cluster.quota
    with quota.trial():
        for turn in TURNS:
            if turn["has left before"] != "-":
                quota.remove_usage(ClusterQueueName(of[turn["has left before"]]), GPUS)
            shares = {queue: share(node(world, queue), GPUS).precise for queue in "abc" if turn[queue] != "-"}
            assert shares == {queue: float(turn[queue]) for queue in shares}, turn["turn"]
            quota.add_usage(ClusterQueueName(of[turn["admitted"]]), GPUS)


def test_jobs_are_admitted_in_the_order_of_the_page() -> None:
    admitted = [key.removeprefix("ns/") for what, key in played().log if what == "Admitted"]
    assert admitted == [turn["admitted"] for turn in TURNS]


def test_the_first_jobs_are_admitted_in_one_cycle() -> None:
    world = queues()
    world.put(*(workload(row["job"], row["ClusterQueue"], EACH, created_s=int(row["created, s"])) for row in JOBS[:5]))
    assert [one.key.removeprefix("ns/") for one in world.cycle().made][:4] == [turn["admitted"] for turn in TURNS[:4]]


def test_at_the_end_those_run_that_the_page_says_and_shares_are_equal() -> None:
    world = played()
    assert world.running() == {row["job"] for row in JOBS if row["at the end"] == "runs"}
    assert {queue: share(node(world, queue)).precise for queue in "abc"} == dict.fromkeys("abc", 250.0)


def test_the_comparisons_are_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Row] = []
    others: list[str] = []
    comes = [""]

    def compared(preemptor: QuotaNode, target: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        others.append(target.name)
        return below_common_ancestor(preemptor, target)

    def allowed(strategy: PreemptionStrategy, **shares: Share) -> bool:
        found = may_preempt(strategy, **shares)
        ours, now, without = (f"{one.precise:.0f}" for one in shares.values())
        asked.append(
            {
                "for": comes[0],
                "asks": others[-1],
                "strategy": str(strategy),
                "share of c": ours,
                "now": now,
                "without the victim": without if strategy is FINAL else "-",
                "allowed": "yes" if found else "no",
            }
        )
        return found

    world = queues()
    come(world, *JOBS[:5])
    monkeypatch.setattr(fair, "below_common_ancestor", compared)
    monkeypatch.setattr(fair, "may_preempt", allowed)
    for row in JOBS[5:]:
        comes[0] = row["job"]
        come(world, row)
        with monkeypatch.context() as unheard:
            unheard.setattr(fair, "may_preempt", may_preempt)
            world.stop_evicted()
            world.settle()
    # The flavor assigner, the search and later cycles ask the same.
    assert _each_once(asked) == ASKED


def _each_once(rows: list[Any]) -> list[Any]:
    return [row for at, row in enumerate(rows) if row not in rows[:at]]
