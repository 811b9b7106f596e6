"""The ClusterQueue to preempt next: from the root down, always the child with the largest dominant resource share."""

from collections.abc import Callable, Iterator, Mapping

from controller.engine.preemption.candidates import Candidate, Order
from controller.engine.quota.quotanode import QuotaNode
from controller.engine.quota.shares import Share, share


class Shares:
    """Shares of quota nodes, remembered until usage changes below them: ``changed`` must be called then."""

    def __init__(self) -> None:
        self._known: dict[QuotaNode, Share] = {}

    def of(self, node: QuotaNode) -> Share:
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = share(node)
        return known

    def changed(self, queue: QuotaNode) -> None:
        """The usage of this ClusterQueue has changed, and so have the shares on its way to the root."""
        for node in queue.path():
            self._known.pop(node, None)


class Tournament:
    """ClusterQueues in the order in which they are preempted; each is chosen when it is asked for.

    Queues without candidates are out for good (``_out``, which only grows), and so are queues and cohorts that borrow
    nothing, but for the preemptor's own. Between equal shares a cohort comes before a queue; of two queues the one with
    the better next victim.
    """

    def __init__(
        self, shares: Shares, preemptor: QuotaNode, candidates: Mapping[str, Callable[[], Candidate | None]]
    ) -> None:
        self._shares = shares
        self._preemptor = preemptor
        self._path = frozenset(preemptor.path())
        self._candidates = candidates
        self._out: set[QuotaNode] = set()

    def __iter__(self) -> Iterator[QuotaNode]:
        root = self._preemptor.root()
        if root is self._preemptor:
            while self._next_of(root) is not None:
                yield root
            return
        while root not in self._out:
            node = self._descend(root)
            if node is not None:
                yield node

    def _descend(self, cohort: QuotaNode) -> QuotaNode | None:
        """The queue to preempt; None when a cohort was found to have none left and is out now."""
        queue, cohort_below = self._queue_of(cohort), self._cohort_of(cohort)
        if cohort_below is not None and (
            queue is None or self._shares.of(cohort_below).rank >= self._shares.of(queue).rank
        ):
            return self._descend(cohort_below)
        if queue is None:
            self._out.add(cohort)
        return queue

    def _queue_of(self, cohort: QuotaNode) -> QuotaNode | None:
        best: QuotaNode | None = None
        best_order: tuple[tuple[float, float], tuple[object, ...]] | None = None
        for node in cohort.queues.values():
            if node in self._out:
                continue
            candidate = self._next_of(node)
            rank = self._shares.of(node).rank
            if candidate is None or (rank == (0.0, 0.0) and node is not self._preemptor):
                self._out.add(node)
                continue
            order = ((-rank[0], -rank[1]), self._victim_order(node, candidate.order))
            if best_order is None or order < best_order:
                best, best_order = node, order
        return best

    def _cohort_of(self, cohort: QuotaNode) -> QuotaNode | None:
        best: QuotaNode | None = None
        for _, node in sorted(cohort.cohorts.items()):
            if node in self._out:
                continue
            if self._shares.of(node).rank == (0.0, 0.0) and node not in self._path:
                self._out.add(node)
            elif best is None or self._shares.of(node).rank > self._shares.of(best).rank:
                best = node
        return best

    def _victim_order(self, node: QuotaNode, order: Order) -> tuple[object, ...]:
        return (order[0], node is self._preemptor, *order[1:])

    def _next_of(self, node: QuotaNode) -> Candidate | None:
        candidate = self._candidates.get(node.name)
        return None if candidate is None else candidate()
