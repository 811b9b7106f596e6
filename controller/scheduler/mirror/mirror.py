"""Takes foreign Queues, and returns the changes that the engine must take in. It writes no objects.

A tree has what the healthy nodes offer, so a node that comes or goes changes its root cohort. An unchanged object is
not returned again.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from controller.objects.core import Node
from controller.objects.meta import KubernetesObject, ObjectMeta
from controller.objects.queues import LocalQueue, LocalQueueSpec
from controller.scheduler.mirror.forest import FLAVOR, NO_QUEUES, EngineObjects, Forest, forest, told
from controller.scheduler.mirror.specs import (
    ADOPTED,
    Adoption,
    Bounds,
    MirroredName,
    QueueOwner,
    QueueSpec,
    QueueSpecError,
    System,
    implied_queues,
    spec_of,
    system_of,
)
from controller.scheduler.model.resources import Amount, FlavorName, LocalQueueKey, ResourceName
from controller.scheduler.quota.capacity import Capacity
from inventory.api.names import ALL_NODES

_Key = tuple[System, MirroredName]


class Tell(NamedTuple):
    """The engine must take in this object."""

    given: KubernetesObject


class Untell(NamedTuple):
    """The object is gone: the engine must remove it."""

    kind: type[KubernetesObject]
    name: str


Change = Tell | Untell


class MirrorDriftError(AssertionError):
    """The objects that were returned differ from what the Queues say: a bug, never a user's mistake."""


class Mirror:
    """The mirrored Queues. Events are noted, and processed by the next question, since a thousand Queues come one by
    one.

    ``_queues`` follows from ``_specs``, ``_taken``, ``_implied`` and the nodes unless ``_stale``; ``_told`` follows
    from it and the capacity once ``changes`` was called. Nodes are stored always, and counted from the first Queue on:
    without Queues each costs a reference.
    """

    def __init__(self) -> None:
        self._queues: Forest = NO_QUEUES
        self._told_of: Forest = NO_QUEUES
        self._stale = False
        self._specs: dict[_Key, QueueSpec] = {}
        self._unreadable: dict[_Key, str] = {}
        self._implied: dict[System, Adoption] = {}
        self._taken: set[str] = set()
        self._nodes: dict[str, Node] = {}
        self._capacity: Capacity | None = None
        self._told: EngineObjects = {}

    def __bool__(self) -> bool:
        """Whether any Queue is mirrored."""
        return bool(self.queues.queues)

    # -- events ------------------------------------------------------------------------------------------------------

    def put(self, queue: QueueOwner) -> None:
        """Store a Queue. One that cannot be read is refused, and loses its former place."""
        key = _key(type(queue), queue.metadata.name)
        known = self._specs.pop(key, None)
        self._unreadable.pop(key, None)
        try:
            self._specs[key] = spec_of(queue)
        except QueueSpecError as error:
            self._unreadable[key] = str(error)
        self._stale = self._stale or self._specs.get(key) != known

    def gone(self, kind: type[QueueOwner], name: str) -> None:
        key = _key(kind, name)
        self._unreadable.pop(key, None)
        self._stale = self._specs.pop(key, None) is not None or self._stale

    def imply(self, system: System, how: Adoption = ADOPTED) -> None:
        """Note that the system is served: its implied Queues exist without objects."""
        self._stale = self._stale or self._implied.get(system) != how
        self._implied[system] = how

    def implied(self) -> Mapping[System, Adoption]:
        return dict(self._implied)

    def places(self, system: System) -> bool:
        """Whether jobs in the system's queues get nodes from the engine."""
        return self._implied.get(system, ADOPTED).places

    def take_name(self, name: str) -> None:
        """Note that a ClusterQueue has this name: no Queue of this name is valid."""
        self._stale = self._stale or (name not in self._taken and self._names(name))
        self._taken.add(name)

    def free_name(self, name: str) -> None:
        self._stale = self._stale or (name in self._taken and self._names(name))
        self._taken.discard(name)

    def node(self, node: Node) -> None:
        self._nodes[node.metadata.name] = node
        if self._capacity is not None and self._capacity.set_node(node):
            self._stale = True

    def node_gone(self, name: str) -> None:
        self._nodes.pop(name, None)
        if self._capacity is not None and self._capacity.remove_node(name):
            self._stale = True

    def changes(self) -> list[Change]:
        """The changes since the last call: objects that are new or have changed, in their order; then those that are
        gone, in reverse order.
        """
        if not self._stale and self._told_of is self._queues:
            return []
        queues = self.queues
        before, self._told = self._told, told(queues, self.capacity, self._implied)
        self._told_of = queues
        return list(_difference(before, self._told))

    # -- questions ---------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> Forest:
        """The valid Queues, and why others are refused."""
        if self._stale:
            self._stale = False
            self._queues = self._forest()
            if self._capacity is None and self._queues.queues:
                self._capacity = Capacity()
                self._capacity.set_flavor(FLAVOR)
                for node in self._nodes.values():
                    self._capacity.set_node(node)
        return self._queues

    @property
    def capacity(self) -> Mapping[ResourceName, Amount]:
        """What the healthy nodes offer."""
        return {} if self._capacity is None else self._capacity.of_flavor(FlavorName(ALL_NODES))

    def problem(self, kind: type[QueueOwner], name: str) -> str:
        """Why the Queue is refused; empty where it is valid."""
        key = _key(kind, name)
        return self._unreadable.get(key) or self.queues.problems.get(key, "")

    def is_leaf(self, name: str) -> bool:
        mirrored = MirroredName(name)
        return mirrored in self.queues.queues and mirrored not in self.queues.parents

    def quota_of(self, name: str) -> Bounds | None:
        """The quota of a mirrored queue, whatever its system calls it. None for any other name."""
        return self.queues.queues[MirroredName(name)].quota if self.is_leaf(name) else None

    def local_queue(self, key: LocalQueueKey) -> LocalQueue | None:
        """The LocalQueue by which a namespace reaches the mirrored queue of that name; None where there is none."""
        namespace, _, name = key.partition("/")
        if not self.is_leaf(name):
            return None
        return LocalQueue(metadata=ObjectMeta(name=name, namespace=namespace), spec=LocalQueueSpec(cluster_queue=name))

    def validate(self) -> None:
        """MirrorDriftError where the returned objects are not what the Queues and nodes say."""
        if self.queues != self._forest():
            raise MirrorDriftError("the mirrored queues that stand are not those that their objects make")
        if self._told_of is self._queues and dict(self._told) != dict(told(self._queues, self.capacity, self._implied)):
            raise MirrorDriftError("what was told of mirrored queues is not what their objects say")
        if self._capacity is not None:
            self._capacity.validate()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _names(self, name: str) -> bool:
        """Whether a Queue has this name, or may have it."""
        return bool(self._implied) or any((system, MirroredName(name)) in self._specs for system in System)

    def _forest(self) -> Forest:
        implied = [
            spec
            for system in sorted(self._implied)
            for spec in implied_queues(system)
            if (system, spec.name) not in self._specs
        ]
        return forest([*self._specs.values(), *implied], self._taken)


def _difference(before: EngineObjects, after: EngineObjects) -> Iterator[Change]:
    for key, given in after.items():
        known = before.get(key)
        if known is not given and known != given:
            yield Tell(given)
    for kind, name in reversed([*before]):
        if (kind, name) not in after:
            yield Untell(kind, name)


def _key(kind: type[QueueOwner], name: str) -> _Key:
    return system_of(kind), MirroredName(name)
