"""The candidates of a mirrored tree for eviction, worst first: by the order of its Queues, then by priority
and time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts, added
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.volcano.rules import Key, QueueRules
from controller.scheduler.volcano.tree import FairTree, is_preemptible, needs
from controller.scheduler.volcano.walk import Walk


class Candidates:
    """Holders in ``leaves`` that may be evicted, the worst first. ``within``: the leaf is the job's own Queue, and only
    holders of lower priority are candidates.
    """

    def __init__(
        self,
        cluster: Cluster,
        tree: FairTree,
        rules: QueueRules,
        leaves: Sequence[QueueName],
        incoming: Incoming,
        *,
        within: bool,
    ) -> None:
        self._cluster = cluster
        self._tree = tree
        self._rules = rules
        self._leaves = leaves
        self.incoming = incoming
        self.within = within

    def worst_first(self, goes: Callable[[Holder], bool], taken: set[WorkloadKey]) -> Iterator[Holder]:
        """The candidates that are not ``taken`` and for which ``goes`` holds."""
        waiting = {leaf: found for leaf in self._leaves if (found := self._of(leaf, goes, taken))}
        return _Worst(self._tree, self._rules, waiting).holders()

    def _of(self, leaf: QueueName, goes: Callable[[Holder], bool], taken: set[WorkloadKey]) -> list[Holder]:
        """The candidates of one leaf, the best first: the last is the first victim."""
        queue = self._cluster.queues.get(ClusterQueueName(leaf))
        holders = [
            holder
            for holder in (queue.holders.values() if queue is not None else ())
            if holder.key not in taken and self._may_go(holder) and goes(holder)
        ]
        return sorted(holders, key=lambda holder: (-holder.priority, holder.queued_at_s, holder.uid))

    def _may_go(self, holder: Holder) -> bool:
        if holder.evicted or not is_preemptible(holder.info, holder.priority, self._tree.system):
            return False
        return not self.within or holder.priority < self.incoming.priority


class _Last:
    """A sort key in reverse: it is smaller the larger ``key`` is."""

    def __init__(self, key: Key) -> None:
        self.key = key

    def __lt__(self, other: "_Last") -> bool:
        return self.key > other.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Last) and self.key == other.key

    __hash__ = None  # type: ignore[assignment]


class _Worst(Walk[_Last]):
    """Yields the next victim of the Queue that comes last, by what its Queues have left without the victims
    before it.
    """

    def __init__(self, tree: FairTree, rules: QueueRules, waiting: Mapping[QueueName, list[Holder]]) -> None:
        super().__init__(tree)
        self._rules = rules
        self._waiting = waiting
        self._gone: dict[QueueName, Amounts] = {}
        self.build()

    def holders(self) -> Iterator[Holder]:
        while (leaf := self.best()) is not None:
            holder = self._waiting[leaf].pop()
            need = needs(holder.info, self._tree.system)
            for name in self._tree.names(leaf):
                self._gone[name] = added(self._gone.get(name, {}), need)
            self.refresh((leaf,))
            yield holder

    def _has(self, leaf: QueueName) -> bool:
        return bool(self._waiting.get(leaf))

    def _key(self, name: QueueName, leaf: QueueName) -> _Last:  # noqa: ARG002
        return _Last(self._rules.key(self._tree, name, victims=self._gone.get(name, {})))
