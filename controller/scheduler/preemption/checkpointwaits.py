"""Preemptions that wait for a checkpoint that is due: the victim then loses what it does after it, which is little.

The annotation ``tessera.dev/checkpoint-wait`` of the victims' ClusterQueue says for how long at most. A checkpoint is
worth waiting for if it comes sooner than the work since the last one took, so each wait costs less than it saves. The
wait is counted from the moment at which the preemptor first had victims to wait for, whoever they are later: it never
waits for longer, however many workloads write checkpoints in turn. A victim that tells its last checkpoint is waited
for until it tells the next one, others until the time at which theirs is due.

The rule is our own. The moments are known to this process alone: after a restart a wait begins anew.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Target
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.preemption.index import checkpoints_held, started_at_s
from controller.scheduler.preemption.price import lost_s
from controller.scheduler.quota.queuestate import Holder

_STALE_S: Final = 60.0
"""A preemptor that asks so long after its wait was over waits anew: it had no victims, or was not tried, meanwhile."""
_MOST: Final = 1024
"""Preemptors whose waits are remembered, at most; the oldest are dropped."""


class CheckpointWait(NamedTuple):
    """A preemptor waits since ``since_s``; ``until_s`` is the longest wait of its victims' queues. ``victims``: how
    many of them write a checkpoint soon, the first of them at ``first_s``, the last at ``last_s``.
    """

    since_s: float
    until_s: float
    victims: int
    first_s: float
    last_s: float


class CheckpointWaits:
    """The waits of all preemptors. ``awaited``: the ClusterQueue of the preemptor by victim whose word on its next
    checkpoint is waited for; ``hold`` adds to it, ``told`` takes from it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waits: dict[WorkloadKey, CheckpointWait] = {}
        self._awaited: dict[WorkloadKey, ClusterQueueName] = {}

    def __bool__(self) -> bool:
        return bool(self._waits)

    def of(self, key: WorkloadKey, now_s: float) -> CheckpointWait | None:
        """The wait of a preemptor; None where it does not wait now."""
        known = self._waits.get(key)
        return known if known is not None and now_s < known.until_s else None

    def all(self, now_s: float) -> dict[WorkloadKey, CheckpointWait]:
        """The waits of all preemptors that wait now."""
        return {key: wait for key, wait in self._waits.items() if now_s < wait.until_s}

    def hold(self, key: WorkloadKey, queue: ClusterQueueName, targets: Sequence[Target], now_s: float) -> float | None:
        """When the preemptor of ``queue`` is to be tried again, if it waits for one of the victims; None where they are
        evicted now.
        """
        known = self._waits.get(key)
        if known is not None and now_s > known.until_s + _STALE_S:
            known = None
        since_s = now_s if known is None else known.since_s
        due = [found for target in targets if (found := self._due(target.holder, since_s, now_s)) is not None]
        if not due:
            self._waits.pop(key, None)
            return None
        if known is None:
            while len(self._waits) >= _MOST:
                del self._waits[next(iter(self._waits))]
        longest_s = max(until_s for _, until_s, _ in due)
        first_s, last_s = min(again_s for again_s, _, _ in due), max(again_s for again_s, _, _ in due)
        self._waits[key] = CheckpointWait(since_s, longest_s, len(due), first_s, last_s)
        self._awaited |= {holder.key: queue for _, _, holder in due if holder is not None}
        return first_s

    def told(self, known: Holder, holder: Holder) -> ClusterQueueName | None:
        """A victim has changed. Returns the ClusterQueue whose preemptor waited for its word; None for none."""
        before, now = (each.info.workload.metadata.annotations for each in (known, holder))
        return self._awaited.pop(holder.key, None) if before != now else None

    def gone(self, key: WorkloadKey) -> None:
        """A victim has gone."""
        self._awaited.pop(key, None)

    def _due(self, holder: Holder, since_s: float, now_s: float) -> tuple[float, float, Holder | None] | None:
        """When to ask again about a victim whose checkpoint is worth waiting for, when the wait for it ends, and the
        victim if its word is waited for.
        """
        wait_s = self._cluster.queue(holder.cluster_queue).policies.checkpoint_wait_s
        until_s = since_s + wait_s
        if not wait_s or until_s <= now_s or holder.evicted:
            return None
        max_grace_s = self._cluster.config.extensions.max_grace_s
        started_s, checkpoints = started_at_s(holder), checkpoints_held(holder, max_grace_s)
        if checkpoints is None or started_s is None or not checkpoints.interval_s or checkpoints.grace_s is not None:
            return None
        tells = checkpoints.last_s is not None and started_s <= checkpoints.last_s <= now_s
        last_s = (
            checkpoints.last_s
            if checkpoints.last_s is not None and tells
            else now_s - lost_s(checkpoints, started_s, now_s)
        )
        due_s = last_s + checkpoints.interval_s
        if not since_s <= due_s <= until_s or due_s - since_s > since_s - last_s:
            return None
        if not tells:
            return (due_s, until_s, None) if due_s > now_s else None
        return (due_s if due_s > now_s else until_s), until_s, holder
