"""Workloads behind the heads, for cycles in which shares are compared anew after each admission.

A cycle that knows only the heads gives the second-lowest share its turn although the queue with the lowest, whose head
was just admitted, may come before it again (KEP-1714: the lowest share first).
"""

from collections.abc import Callable
from typing import NamedTuple

from controller.scheduler.model.config import EngineConfig
from controller.scheduler.queues.entry import Entry
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.queues.pendingqueues import PendingQueues
from controller.scheduler.quota.queuestate import QueueState


class Following(NamedTuple):
    """Access to the workloads behind the heads. ``next_of`` takes the next workload in the ClusterQueue of an entry
    that was admitted; ``put_back`` returns one that was not decided on.
    """

    next_of: Callable[[Entry], Entry | None]
    put_back: Callable[[Entry], None]


def following_in(
    config: EngineConfig, queues: PendingQueues, entry_of: Callable[[PendingWorkload, QueueState], Entry]
) -> Following | None:
    """None where only the heads are decided on, as Kueue does; also with Kueue's variants of one job."""
    exact = config.fair_sharing is not None and config.extensions.exact_fair_sharing
    if not exact or config.gates.on("ConcurrentAdmission"):
        return None

    def next_of(entry: Entry) -> Entry | None:
        queue = entry.incoming.queue
        if queue.policies.usage_based_admission:
            # Which LocalQueue comes next depends on the admission, which has not been carried out yet.
            return None
        head = queues.next_head(queue.name)
        return None if head is None else entry_of(head, queue)

    def put_back(entry: Entry) -> None:
        if entry.pending is not None:
            queues.put_back(entry.pending)

    return Following(next_of, put_back)
