"""Gangs of a tree of queues in the order in which they are tried or, in reverse, in which they are victims.

Source: the order of jobs by queues of KAI Scheduler. A pop walks down from the top: at each level to the child whose
first gang comes first in the queues' order. The order is computed again for every pop, since earlier decisions have
changed the shares.
"""

from bisect import insort
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from controller.scheduler.kai.gangs.gang import Gang, GangName, Task, TaskName
from controller.scheduler.kai.gangs.session import GangSession
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.order import OrderKey, order_key
from controller.scheduler.kai.proportion.queues import Amounts, added

GangKey = tuple[int, int, float, str]


def gang_key(gang: Gang, without: AbstractSet[TaskName] = frozenset()) -> GangKey:
    """The sort key of gangs of one queue: by priority, then those below their minimum, then the oldest. ``without``:
    tasks that left.
    """
    return -gang.priority, gang.elasticity(without), gang.created, gang.name


class GangOrder:
    """The order of gangs. ``reverse``: victims, of which the last in every order comes first. Invariant: ``_gangs`` has
    the leaf queues that have gangs left, each list sorted by its keys.
    """

    def __init__(
        self,
        session: GangSession,
        gangs: Iterable[Gang],
        *,
        reverse: bool = False,
        next_tasks: Callable[[Gang], list[Task]] = Gang.next_tasks,
    ) -> None:
        self._session = session
        self._next_tasks = next_tasks
        self._reverse = reverse
        self._gangs: dict[QueueName, list[tuple[GangKey, GangName]]] = {}
        self._below: dict[QueueName | None, list[QueueName]] = {}
        for queue in session.queues.values():
            parent = queue.parent if queue.parent in session.queues else None
            self._below.setdefault(parent, []).append(queue.name)
        self._taken: dict[QueueName, Amounts] = {}
        """The amounts of popped victims, for each queue and those above it."""
        self._keys: dict[QueueName, tuple[tuple[int, GangName, int], OrderKey]] = {}
        """The last key of a queue with its inputs: charges, the gang that comes next, how much was taken."""
        self._turns: dict[QueueName, int] = {}
        for gang in gangs:
            self.push(gang)

    def push(self, gang: Gang, without: AbstractSet[TaskName] = frozenset()) -> None:
        if gang.queue in self._session.queues:
            insort(self._gangs.setdefault(gang.queue, []), (gang_key(gang, without), gang.name))

    def pop(self) -> Gang | None:
        leaf = self._first(None)
        if leaf is None:
            return None
        gangs = self._gangs[leaf]
        _, name = gangs.pop(-1 if self._reverse else 0)
        if not gangs:
            del self._gangs[leaf]
        return self._session.gangs[name]

    def took(self, queue: QueueName, amounts: Amounts) -> None:
        """Take in victims of the queue: in the order it counts as having less from here on."""
        for above in self._session.path(queue):
            self._taken[above.name] = added(self._taken.get(above.name, {}), amounts)
            self._turns[above.name] = self._turns.get(above.name, 0) + 1

    def _first(self, parent: QueueName | None) -> QueueName | None:
        """The leaf whose gang comes next below ``parent``; None if none is left."""
        leaves: list[tuple[OrderKey, QueueName]] = []
        for name in self._below.get(parent, ()):
            leaf = name if name in self._gangs else self._first(name)
            if leaf is not None:
                leaves.append((self._key(name, leaf), leaf))
        if not leaves:
            return None
        return (max(leaves) if self._reverse else min(leaves))[1]

    def _key(self, name: QueueName, leaf: QueueName) -> OrderKey:
        session, queue = self._session, self._session.queues[name]
        _, head = self._gangs[leaf][-1 if self._reverse else 0]
        state = session.stamps[name], head, self._turns.get(name, 0)
        known = self._keys.get(name)
        if known is not None and known[0] == state:
            return known[1]
        key = order_key(
            session.tree[name],
            session.total,
            next_job=session.charged_together(self._next_tasks(session.gangs[head])),
            victims=self._taken.get(name, {}),
            priority=queue.priority,
            created=queue.created,
            uid=name,
        )
        self._keys[name] = state, key
        return key
