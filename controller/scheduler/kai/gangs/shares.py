"""Queues of a tree as they are declared, and their fair shares, computed from requests. Source: the proportion plugin
of KAI Scheduler. Siblings divide what their parent has; queues at the top divide the total.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller.scheduler.kai.proportion.division import KaiQueueRequest, QueueName, divide
from controller.scheduler.kai.proportion.queues import Amounts
from controller.scheduler.model.resources import ResourceName


@dataclass(frozen=True)
class GangQueue:
    """A queue of the tree. ``created`` in seconds. An unlimited quota or limit is ``math.inf``; ``usage`` is past usage
    as a fraction of the total.
    """

    name: QueueName
    parent: QueueName | None
    quota: Amounts
    limit: Amounts
    weight: Amounts
    priority: int = 100
    created: float = 0.0
    usage: Amounts | None = None


def fair_shares(
    queues: Iterable[GangQueue],
    total: Amounts,
    requests: Mapping[QueueName, Amounts],
    usage_weight: float = 0.0,
) -> dict[QueueName, dict[ResourceName, float]]:
    """The fair share of each queue by resource. ``requests``: what runs and waits in each queue and below it."""
    below: dict[QueueName | None, list[GangQueue]] = {}
    queues = list(queues)
    names = {queue.name for queue in queues}
    for queue in queues:
        below.setdefault(queue.parent if queue.parent in names else None, []).append(queue)
    shares: dict[QueueName, dict[ResourceName, float]] = {queue.name: {} for queue in queues}
    waiting: list[tuple[QueueName | None, Amounts]] = [(None, total)]
    while waiting:
        parent, pool = waiting.pop()
        siblings = below.get(parent, [])
        for resource in total:
            demands = [_demand(queue, resource, requests.get(queue.name, {})) for queue in siblings]
            for name, share in divide(pool.get(resource, 0.0), demands, usage_weight).shares.items():
                shares[name][resource] = share
        waiting += [(queue.name, shares[queue.name]) for queue in siblings]
    return shares


def _demand(queue: GangQueue, resource: ResourceName, request: Amounts) -> KaiQueueRequest:
    return KaiQueueRequest(
        queue=queue.name,
        quota=queue.quota.get(resource, 0.0),
        limit=queue.limit.get(resource, math.inf),
        weight=queue.weight.get(resource, 0.0),
        request=request.get(resource, 0.0),
        usage=(queue.usage or {}).get(resource, 0.0),
        priority=queue.priority,
        created=queue.created,
        uid=queue.name,
    )
