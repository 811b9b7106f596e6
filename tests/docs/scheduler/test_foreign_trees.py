"""The example on the page of Volcano's and KAI's trees is what the engine does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.objects.queues import ClusterQueue, Cohort
from controller.scheduler.kai.gangs.gang import GPU as GANG_GPU
from controller.scheduler.kai.gangs.shares import fair_shares
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.turn.gangmodel import gang_queues
from controller.scheduler.mirror.forest import told
from controller.scheduler.mirror.specs import GPU, System
from controller.scheduler.volcano.rules import rules_for
from controller.scheduler.volcano.tree import FairTree
from tests.support.engine.foreignqueues import evicted, fill, kai_queue, rest, volcano_queue, world
from tests.support.engine.world import World
from tests.support.pagetables import Row, table

PAGE = Path(__file__).resolve().parents[3] / "docs/scheduler/foreign-trees.md"
GPUS = 8
QUEUES, EVICTED, MADE = (table(PAGE, column) for column in ("queue", "first queue", "made for"))
TREES = {
    system: [row for row in QUEUES if row["system"] == system] for system in dict.fromkeys(r["system"] for r in QUEUES)
}


def number(cell: str) -> int | None:
    return None if cell == "-" else int(cell)


def queue_of(row: Row) -> Any:
    parent, quota, weight = row["parent"].strip("-"), number(row["quota"]), number(row["weight"])
    if row["system"] == "KAI":
        return kai_queue(row["queue"], parent, quota=quota or 0, weight=weight or 0)
    spec: dict[str, Any] = {} if weight is None else {"weight": weight}
    if quota is not None:
        spec["deserved"] = {GPU: quota}
    return volcano_queue(row["queue"], **spec)


def with_jobs(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["jobs"] != "-"]


def filled(rows: Sequence[Row]) -> tuple[World, dict[str, int], dict[str, int]]:
    """The cluster, and the GPUs of each queue before and after the second queue's jobs."""
    lab = world(*(queue_of(row) for row in rows), gpus=GPUS)
    first, second = with_jobs(rows)
    fill(lab, first["queue"], int(first["jobs"]))
    before = rest(lab)
    fill(lab, second["queue"], int(second["jobs"]))
    return lab, before, rest(lab)


@pytest.mark.parametrize("system", TREES)
def test_queues_end_with_what_the_page_says(system: str) -> None:
    rows = TREES[system]
    lab, before, after = filled(rows)
    jobs = with_jobs(rows)
    assert before == {row["queue"]: int(row["before"]) for row in jobs}
    assert after == {row["queue"]: int(row["after"]) for row in jobs}
    first = jobs[0]["queue"]
    (order,) = (row["evicted jobs, in this order"] for row in EVICTED if row["first queue"] == first)
    assert evicted(lab) == [f"{first}{each}" for each in order.split(", ")]


@pytest.mark.parametrize("system", TREES)
def test_shares_are_those_of_the_page(system: str) -> None:
    rows = TREES[system]
    mirror = world(*(queue_of(row) for row in rows), gpus=GPUS).engine.mirror
    tree = FairTree(mirror.queues, System.KAI if system == "KAI" else System.VOLCANO, mirror.capacity)
    for row in with_jobs(rows):
        tree.ask(QueueName(row["queue"]), {GPU: float(row["jobs"])})
    if system == "KAI":
        requests = {name: {GANG_GPU: asked.get(GPU, 0.0)} for name, asked in tree.requested.items()}
        shares = {
            str(name): share[GANG_GPU]
            for name, share in fair_shares(gang_queues(tree), {GANG_GPU: float(GPUS)}, requests).items()
        }
    else:
        rules_for(tree).settle(tree)
        shares = {str(name): queue.fair_share[GPU] for name, queue in tree.queues.items()}
    assert shares == {row["queue"]: float(row["share"]) for row in rows}


def test_the_mirror_makes_the_objects_of_the_page() -> None:
    mirror = world(*(queue_of(row) for row in TREES["KAI"]), gpus=GPUS).engine.mirror
    made = [each for each in told(mirror.queues, mirror.capacity).values() if isinstance(each, Cohort | ClusterQueue)]
    found = [
        (
            type(each).__name__,
            each.metadata.name,
            (each.spec.parent_name if isinstance(each, Cohort) else each.spec.cohort_name) or "-",
        )
        for each in made
    ]
    assert found == [(row["kind"], row["name"], row["below"]) for row in MADE]
