"""Claims that end without a decision on their workload."""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from controller.engine.claims.claim import Claim
from controller.engine.model.resources import ClusterQueueName, WorkloadKey
from controller.engine.queues.pending import PendingState
from controller.engine.queues.pendingqueues import PendingQueues


def not_tried(
    claims: Iterable[Claim], queues: PendingQueues, open_for: Callable[[ClusterQueueName], bool]
) -> list[WorkloadKey]:
    """The claimants that no cycle tries where their claim is: held back, stopped, or in another queue now."""
    return [claim.key for claim in claims if not _tried(claim, queues, open_for)]


def in_vain(
    claims: Iterable[Claim], queues: PendingQueues, holders: AbstractSet[WorkloadKey], tried: AbstractSet[WorkloadKey]
) -> list[WorkloadKey]:
    """The claimants that wait for what does not come, once cycles decide on nothing new. ``tried`` were just now.

    A queued one stands behind others, which may be waiting for what is claimed: one of its shape was refused, or the
    head of its queue stays. A refused one is woken by the last of its victims, if any is left.
    """
    return [claim.key for claim in claims if claim.key not in tried and _waits_in_vain(claim, queues, holders)]


def _tried(claim: Claim, queues: PendingQueues, open_for: Callable[[ClusterQueueName], bool]) -> bool:
    pending = queues.get(claim.key)
    at = pending.at if pending is not None else None
    return at is not None and at.name == claim.cluster_queue and open_for(claim.cluster_queue)


def _waits_in_vain(claim: Claim, queues: PendingQueues, holders: AbstractSet[WorkloadKey]) -> bool:
    pending = queues.get(claim.key)
    if pending is None:
        return False
    return pending.state is PendingState.QUEUED or not any(victim in holders for victim in claim.victims)
