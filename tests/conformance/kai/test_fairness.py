"""KAI's recorded calls of its proportion plugin: division, reclaim, limits and order of queues."""

import json
import math
from collections.abc import Iterator
from typing import Any, Final

import pytest

from controller.scheduler.kai.proportion.division import (
    Division,
    KaiQueueRequest,
    QueueName,
    divide_over_quota,
    divide_quota,
)
from controller.scheduler.kai.proportion.limits import over
from controller.scheduler.kai.proportion.order import order_key
from controller.scheduler.kai.proportion.queues import Amounts, QueueShare, Tree, path
from controller.scheduler.kai.proportion.reclaim import is_reclaimable, may_reclaim
from controller.scheduler.model.resources import ResourceName
from tests.conformance import corpus

pytestmark = pytest.mark.conformance

Call = dict[str, Any]
UNLIMITED: Final = -1
RESOURCES: Final = tuple(map(ResourceName, ("cpu", "gpu", "memory")))


def calls(file: str) -> list[Call]:
    text = (corpus.folder("kai") / "fairness" / f"{file}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def bound(amount: float) -> float:
    return math.inf if amount == UNLIMITED else amount


def demand(queue: Call, resource: str) -> KaiQueueRequest:
    found = queue[resource]
    return KaiQueueRequest(
        queue=QueueName(queue["id"]),
        quota=bound(found["deserved"]),
        limit=bound(found["max_allowed"]),
        weight=found["over_quota_weight"],
        request=found["request"],
        usage=found["usage"],
        priority=queue["priority"],
        created=queue["created_unix"] or 0.0,
        uid=queue["uid"],
    )


def queue_share(queue: Call) -> QueueShare:
    def amounts(field: str, *, unlimited: bool = False) -> Amounts:
        found = {resource: queue[resource][field] for resource in RESOURCES if resource in queue}
        return {resource: bound(amount) if unlimited else amount for resource, amount in found.items()}

    return QueueShare(
        name=QueueName(queue["id"]),
        parent=QueueName(queue["parent"]) if queue["parent"] else None,
        quota=amounts("deserved", unlimited=True),
        limit=amounts("max_allowed", unlimited=True),
        fair_share=amounts("fair_share", unlimited=True),
        allocated=amounts("allocated"),
        non_preemptible=amounts("allocated_not_preemptible"),
    )


def tree_of(call: Call) -> Tree:
    return {QueueName(queue["id"]): queue_share(queue) for queue in call["queues"]}


def needed(amounts: Call) -> Amounts:
    """A request as a tree's rules read it; NaN is GPU memory on a node that has none, which asks for nothing."""
    found = {ResourceName(name.lower()): amount for name, amount in amounts.items()}
    return {resource: amount for resource, amount in found.items() if amount != "NaN"}


def victims_of(call: Call) -> dict[QueueName, list[Amounts]]:
    return {QueueName(name): [needed(one) for one in taken] for name, taken in call["victims_by_queue"].items()}


@pytest.mark.parametrize(("file", "count"), [("division", 90), ("division_random", 800)])
def test_divisions(file: str, count: int) -> None:
    asked = calls(file)
    assert len(asked) == count
    for call in asked:
        resource = call["resource"].lower()
        demands = [demand(queue, resource) for queue in call["queues_before"]]
        if call["fn"] == "set_resource_share":
            division = divide_quota(call["total"], demands)
        else:
            before = {QueueName(queue["id"]): queue[resource]["fair_share"] for queue in call["queues_before"]}
            division = Division(before, call["total"])
        found = divide_over_quota(division, demands, call["k_value"])
        wanted = {queue["id"]: queue[resource]["fair_share"] for queue in call["queues_after"]}
        assert found.shares == pytest.approx(wanted), call["spec"]
        assert found.rest == pytest.approx(call["remaining"]), call["spec"]


@pytest.mark.parametrize(("file", "count"), [("can_reclaim", 15), ("can_reclaim_random", 1200)])
def test_which_jobs_may_try_to_reclaim(file: str, count: int) -> None:
    asked = calls(file)
    assert len(asked) == count
    for call in asked:
        job = call["reclaimer"]
        queue = tree_of(call)[QueueName(job["queue"])]
        found = may_reclaim(queue, needed(job["required"]), preemptible=job["preemptible"])
        assert found == call["result"], call["spec"]


def takes_more_than_there_is(call: Call) -> bool:
    """Victims that hold more than their queue has: made up, and KAI reads an allocation of -1 as unlimited."""
    return any(
        sum(one.get(resource, 0.0) for one in taken) > queue.allocated.get(resource, 0.0)
        for name, taken in victims_of(call).items()
        for queue in path(tree_of(call), name)
        for resource in RESOURCES
    )


@pytest.mark.parametrize(("file", "count", "declared"), [("reclaimable", 19, 0), ("reclaimable_random", 1200, 2)])
def test_which_victims_may_be_reclaimed(file: str, count: int, declared: int) -> None:
    asked = calls(file)
    assert len(asked) == count
    different = []
    for call in asked:
        job = call["reclaimer"]
        found = is_reclaimable(
            tree_of(call),
            QueueName(job["queue"]),
            needed(job["required"]),
            victims_of(call),
            preemptible=job["preemptible"],
            saturation=call["saturation_multiplier"],
        )
        if found != call["result"]:
            assert takes_more_than_there_is(call), call["spec"]
            different.append(call)
    assert len(different) == declared


def capacity_reasons() -> Iterator[tuple[Call, str]]:
    for call in calls("capacity"):
        queues = path(tree_of(call), QueueName(call["job_queue"]))
        found = over(queues, needed(call["requested"]), preemptible=call["preemptible"])
        yield call, "" if found is None else str(found[0])


def test_limits_and_quotas_of_jobs_that_are_never_preempted() -> None:
    found = list(capacity_reasons())
    assert len(found) == 14
    for call, reason in found:
        assert reason == call["reason"], call["spec"]
        assert (reason == "") == call["schedulable"]


def test_the_order_of_queues() -> None:
    asked = calls("queue_order")
    assert len(asked) == 6
    for call in asked:
        total = needed(call["total"] or {})
        left, right = (
            order_key(
                queue_share(call[side]),
                total,
                next_job=needed(call[f"{side}_job_request"]),
                priority=call[side]["priority"],
                uid=call[side]["uid"],
            )
            for side in ("left", "right")
        )
        assert (-1 if left < right else 1) == call["result"]
