"""Past evictions: no two workloads, and no circle of them, evict each other while nothing has changed from outside.

The rules, on top of every policy and only where ``noEvictionCycles`` is on:

1. A workload may not evict one that evicted it, directly or through others (A evicted B, B evicted C).
2. A workload does not evict the same one twice.

Both hold until something changes from outside: a change of quotas, weights or policies anywhere in the tree ends both;
a workload that is new, has finished, is gone or changed its spec ends the first for evictions between its ClusterQueue
and another, the second in its whole tree. Evictions, requeues and admissions are no changes from outside.

Every run settles: without outside changes an ordered pair of workloads is used at most once, so n workloads evict at
most n * (n - 1) / 2 times (of two opposite pairs at most one is ever used), whatever weights, priorities and limits
are. Comparing shares cannot promise that: with zero weights, shares of different cohorts, or whole workloads of
different sizes, each of two sides can find that the other has the larger share.

The rules are our own: Kueue has none. A question costs one step for each past eviction on a chain to the preemptor.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming, Target
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey

_SWEEP_ABOVE: Final = 1024


class _Stamp(NamedTuple):
    """The counters of outside changes at the time of the eviction, which is valid while they are the same."""

    preemptor_queue: ClusterQueueName
    victim_queue: ClusterQueueName
    quotas: tuple[int, int]
    queues: tuple[int, int]
    trees: tuple[int, int]


class EvictionHistory:
    """Evictions, stored in memory only: a restart is a change from outside.

    Invariants: ``_evicted`` (by preemptor) and ``_evicted_by`` (by victim) hold the same edges with the same stamps,
    and no empty entry; ``_size`` is their number. Edges that have become invalid stay until forgotten or swept.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._evicted_by: dict[WorkloadKey, dict[WorkloadKey, _Stamp]] = {}
        self._evicted: dict[WorkloadKey, dict[WorkloadKey, _Stamp]] = {}
        self._changes: dict[str, int] = {}
        """How often a ClusterQueue, or (by ``tree/`` and its root's name) a whole tree, was changed from outside."""
        self._size = 0
        self._sweep_at = _SWEEP_ABOVE

    def __len__(self) -> int:
        return self._size

    def evicted(self, incoming: Incoming, targets: Iterable[Target]) -> None:
        """Note that the targets are evicted for the incoming workload now. Targets evicted before are other preemptors'
        victims.
        """
        for target in targets:
            if target.holder.evicted:
                continue
            stamp = self._stamp(incoming.queue.name, target.holder.cluster_queue)
            victim = target.holder.key
            if stamp is not None:
                self._size += victim not in self._evicted.setdefault(incoming.key, {})
                self._evicted[incoming.key][victim] = stamp
                self._evicted_by.setdefault(victim, {})[incoming.key] = stamp
        if self._size > self._sweep_at:
            self._sweep()

    def taken_back(self, preemptor: WorkloadKey, victim: WorkloadKey) -> None:
        """Forget an eviction that was not written: it never happened."""
        if victim in self._evicted.get(preemptor, {}):
            self._drop(self._evicted, preemptor, victim)
            self._drop(self._evicted_by, victim, preemptor)
            self._size -= 1

    def outside_change(self, queue: ClusterQueueName) -> None:
        """Note that a workload of this ClusterQueue is new, has finished, is gone, or its spec has changed."""
        self._changes[queue] = self._changes.get(queue, 0) + 1
        tree = self._tree(queue)
        self._changes[tree] = self._changes.get(tree, 0) + 1

    def forget(self, key: WorkloadKey) -> None:
        """Forget a workload that has finished or is gone."""
        for victim in self._evicted.pop(key, {}):
            self._drop(self._evicted_by, victim, key)
            self._size -= 1
        for preemptor in self._evicted_by.pop(key, {}):
            self._drop(self._evicted, preemptor, key)
            self._size -= 1

    def barred(self, incoming: Incoming) -> frozenset[WorkloadKey]:
        """The workloads that may not be evicted for the incoming workload now."""
        if not self._size:
            return frozenset((incoming.key,))
        evicted = {
            victim
            for victim, stamp in self._evicted.get(incoming.key, {}).items()
            if self._valid(stamp, whole_tree=True)
        }
        seen = {incoming.key}
        ahead = [incoming.key]
        while ahead:
            for preemptor, stamp in self._evicted_by.get(ahead.pop(), {}).items():
                if preemptor not in seen and self._valid(stamp):
                    seen.add(preemptor)
                    ahead.append(preemptor)
        return frozenset(evicted | seen)

    def _stamp(self, preemptor: ClusterQueueName, victim: ClusterQueueName) -> _Stamp | None:
        nodes = [self._cluster.quota.cluster_queues.get(name) for name in (preemptor, victim)]
        if nodes[0] is None or nodes[1] is None:
            return None
        return _Stamp(
            preemptor,
            victim,
            (nodes[0].quota_generation(), nodes[1].quota_generation()),
            (self._changes.get(preemptor, 0), self._changes.get(victim, 0)),
            (self._changes.get(self._tree(preemptor), 0), self._changes.get(self._tree(victim), 0)),
        )

    def _valid(self, stamp: _Stamp, *, whole_tree: bool = False) -> bool:
        now = self._stamp(stamp.preemptor_queue, stamp.victim_queue)
        if now is None or now.quotas != stamp.quotas:
            return False
        return now.trees == stamp.trees if whole_tree else now.queues == stamp.queues

    def _tree(self, queue: ClusterQueueName) -> str:
        node = self._cluster.quota.cluster_queues.get(queue)
        return f"tree/{queue if node is None else node.root().name}"

    def _sweep(self) -> None:
        """Drop invalid edges, whenever their number has doubled since the last time."""
        stale = [
            (preemptor, victim)
            for preemptor, victims in self._evicted.items()
            for victim, stamp in victims.items()
            if not self._valid(stamp) and not self._valid(stamp, whole_tree=True)
        ]
        for preemptor, victim in stale:
            self._drop(self._evicted, preemptor, victim)
            self._drop(self._evicted_by, victim, preemptor)
        self._size -= len(stale)
        self._sweep_at = max(_SWEEP_ABOVE, 2 * self._size)

    @staticmethod
    def _drop(edges: dict[WorkloadKey, dict[WorkloadKey, _Stamp]], start: WorkloadKey, end: WorkloadKey) -> None:
        found = edges.get(start)
        if found is not None:
            found.pop(end, None)
            if not found:
                del edges[start]
