"""The domains of one flavor's nodes, level by level, and what is free in the lowest of them.

Domains are numbered and never renumbered: a new node adds the missing domains of its path, and a removed node leaves an
empty leaf. Each change in a leaf is written to a journal, which those who keep sums over the tree read.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from controller.objects.core import Toleration
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.scheduler.devices.cache import DeviceCache
from controller.scheduler.dra.allocation.claimsupply import ClaimSupply
from controller.scheduler.dra.allocation.requests import PodClaimsRequest
from controller.scheduler.model.resources import Amount, FlavorName, ResourceName
from controller.scheduler.topology.nodes import NodeFacts
from controller.scheduler.topology.requests import Each
from controller.scheduler.topology.usage import DomainKey, DomainTotals, UsageSums

Path = tuple[str, ...]
"""The values of the levels' labels, from the highest level down."""

Ends = Callable[[str], float]
"""Returns the time at which the last workload of a host ends."""

_JOURNAL_SLACK: Final = 1024


class Journal:
    """Leaves in the order of their changes. ``epoch`` grows when the list starts anew: a reader that had not read it to
    its end must recount everything.
    """

    def __init__(self) -> None:
        self.leaves: list[int] = []
        self.epoch = 0
        self.limit = _JOURNAL_SLACK

    def note(self, leaf: int) -> None:
        self.leaves.append(leaf)
        if len(self.leaves) > self.limit:
            self.leaves.clear()
            self.epoch += 1


class Tree:
    """The tree of one flavor, as lists indexed by domain. ``free``, ``used``, ``nodes`` and ``stamps`` have a meaning
    for leaves only.

    A domain keeps its number for ever, and its parent has a lower level. ``free`` of a leaf is the sum over its
    ``nodes``; ``used`` and ``assumed`` are the objects that the two UsageSums change in place, so the tree never
    replaces them. Every change of a leaf is noted in ``journal`` (of ``assumed`` in ``assumed_journal``): ``Counts``
    depend on nothing else. Only ``Topologies`` calls the methods that change a tree, and sets ``devices``, ``claims``,
    ``packs``, ``empty_nodes`` and ``busy_until`` once, before the first node.
    """

    def __init__(
        self,
        flavor: FlavorName,
        topology: str,
        levels: Sequence[str],
        labels: Mapping[str, str],
        tolerations: tuple[Toleration, ...],
        sums: UsageSums,
        assumed: UsageSums,
        *,
        takes_all: bool = False,
    ) -> None:
        """``takes_all``: a node that lacks the label of a level above the host is the only node of its domain of that
        level.
        """
        self._takes_all = takes_all
        self.flavor = flavor
        self.topology = topology
        self.levels = tuple(levels)
        self.by_host = bool(levels) and levels[-1] == HOSTNAME_LABEL
        self.tolerations = tolerations
        self.depth = len(self.levels)
        self.parent: list[int] = []
        """The number of each domain's parent; -1 for domains of the highest level."""
        self.level: list[int] = []
        self.path: list[Path] = []
        self.children: list[list[int]] = []
        """The children of each domain, sorted by path."""
        self.at_level: list[list[int]] = [[] for _ in self.levels]
        """The domains of each level, sorted by path."""
        self.free: list[Mapping[ResourceName, Amount]] = []
        self.used: list[DomainTotals] = []
        self.assumed: list[DomainTotals] = []
        """Usage that counts even on an empty cluster: the pod sets of the same workload that were placed just
        before.
        """
        self.nodes: list[dict[str, NodeFacts]] = []
        self.stamps: list[int] = []
        """A number for each leaf that grows whenever the leaf's nodes change; usage does not change it."""
        self.journal, self.assumed_journal = Journal(), Journal()
        """The leaves in which usage was charged or given back, or a node changed; the second is that of ``assumed``:
        what an empty cluster would look like changes seldom.
        """
        self.touch = self.journal.note
        """Notes that the usage in a leaf has changed."""
        self.touch_assumed = self.assumed_journal.note
        self.shape = 0
        """A number that grows with each new domain."""
        self.devices: DeviceCache | None = None
        self.claims: ClaimSupply | None = None
        """The ResourceClaims of the nodes; None where they are not counted."""
        self.closed = Counter[str]()
        """The number of the flavor's nodes that take no pods at all or lack a level's label, by reason; see
        ``_outside``.
        """
        self._outside: dict[str, str] = {}
        """The reason why a node is in no leaf, by node name. Such a node is not in ``_homes``."""
        self.busy_until: Ends
        self.packs, self.empty_nodes, self.busy_until = False, 0.0, end_unknown
        """Whether nodes are chosen so that large blocks of linked GPUs stay whole; how many nodes more a job may be
        spread over to leave one empty (0: empty nodes are worth nothing).
        """
        self.labels = dict(labels)  # the labels by which the flavor selects nodes
        self._sums = sums
        self._assumed = assumed
        self._keys: list[DomainKey | None] = []
        self._by_path: dict[Path, int] = {}
        self._leaves: dict[Path, int] = {}
        self._namesakes: dict[Path, list[int]] = {}
        """Leaves, by host, in which a host of that name was before, or another host of that name is."""
        self._homes: dict[str, int] = {}

    @property
    def shown_levels(self) -> tuple[str, ...]:
        """The levels that an assignment names: only the host where hosts are a level, since it implies the others."""
        return self.levels[-1:] if self.by_host else self.levels

    def values(self, leaf: int) -> Path:
        """The leaf's values of ``shown_levels``."""
        return self.path[leaf][-1:] if self.by_host else self.path[leaf]

    def leaf(self, values: Path) -> int | None:
        """The leaf of an assignment's domain, if it has usable nodes; None if the domain is unknown."""
        key = values[-1:] if self.by_host else values
        leaf = self._leaves.get(key)
        if leaf is None or self.nodes[leaf]:
            return leaf
        return next((namesake for namesake in self._namesakes.get(key, ()) if self.nodes[namesake]), None)

    def level_of(self, label: str) -> int | None:
        return self.levels.index(label) if label in self.levels else None

    def ancestor(self, domain: int, level: int) -> int:
        while self.level[domain] > level:
            domain = self.parent[domain]
        return domain

    def has_free(self, leaf: int, wanted: Mapping[ResourceName, Amount]) -> bool:
        """Whether these amounts are free in the leaf."""
        free, used = self.free[leaf], self.used[leaf]
        return all(free.get(name, 0) - used.get(name, 0) >= amount for name, amount in wanted.items())

    def node_count(self) -> int:
        """The number of the flavor's nodes, including those that take no pods."""
        return len(self._homes) + len(self._outside)

    def served(self, leaf: int, each: Each, ask: PodClaimsRequest | None) -> tuple[Each, PodClaimsRequest | None]:
        """Splits what a pod asks for into what it takes of a leaf's resources, and what it gets through ResourceClaims
        there. Extended resources are served by claims only where the leaf is one node: usage is not known node by node
        in other leaves.
        """
        claims = self.claims
        if claims is None or not claims.requests.extended or not self.by_host or len(self.nodes[leaf]) != 1:
            return each, ask
        return claims.served(next(iter(self.nodes[leaf])), each, ask)

    def is_empty(self, leaf: int) -> bool:
        """Whether no workload has pods in the leaf, and no foreign pod has a device of its nodes."""
        return not self.used[leaf] and not any(node.lends for node in self.nodes[leaf].values())

    # -- changes -----------------------------------------------------------------------------------------------------

    def set_node(self, name: str, facts: NodeFacts | None) -> bool:
        """Store a node's facts; None for a node that is gone. Returns whether the node is or was in this tree."""
        path = self._path(facts) if facts is not None else None
        self._note_outside(name, self._closed_by(facts) if facts is not None else "")
        home = self._homes.get(name)
        if home is not None and (path is None or self.path[home] != path):
            del self._homes[name]
            del self.nodes[home][name]
            self._recount(home)
        if path is None or facts is None:
            return home is not None
        leaf = self._leaf(path)
        self._homes[name] = leaf
        self.nodes[leaf][name] = facts
        self._recount(leaf)
        return True

    def close(self) -> None:
        """Stops watching the sums: the tree is no longer used."""
        for leaf, key in enumerate(self._keys):
            if key is not None:
                self._sums.unwatch(key, self.touch, leaf)
                self._assumed.unwatch(key, self.touch_assumed, leaf)

    def touch_node(self, name: str) -> bool:
        """Marks a node whose devices changed. Returns whether the node is in this tree."""
        home = self._homes.get(name)
        if home is None:
            return False
        self.touch(home)
        self.touch_assumed(home)
        return True

    def validate(self) -> None:
        """Recompute what is kept of leaves and their order. AssertionError for a difference."""
        for leaf in self._leaves.values():
            if self.free[leaf] != _sum(node.free for node in self.nodes[leaf].values()):
                raise AssertionError(f"{self.flavor}: {self.path[leaf]} is kept with {self.free[leaf]} free")
        if +self.closed != Counter(self._outside.values()) or self._outside.keys() & self._homes.keys():
            raise AssertionError(f"{self.flavor}: nodes that take no pods are counted as {dict(self.closed)}")
        homes = set(self._homes.values())
        if homes and any(self.leaf(values) is None for values in {self.values(home) for home in homes}):
            raise AssertionError(f"{self.flavor}: a node is not found by the name that assignments give it")
        for level, domains in enumerate(self.at_level):
            if domains != sorted(domains, key=self.path.__getitem__) or any(self.level[d] != level for d in domains):
                raise AssertionError(f"{self.flavor}: the domains of {self.levels[level]} are out of order")

    # -- inside ------------------------------------------------------------------------------------------------------

    def _path(self, facts: NodeFacts) -> Path | None:
        if not self._has_flavor(facts) or self._closed_by(facts):
            return None
        # A label's value never has a slash, so such a domain of one node has no other node's value.
        return tuple(facts.labels.get(level, f"/{facts.name}") for level in self.levels)

    def _has_flavor(self, facts: NodeFacts) -> bool:
        return all(facts.labels.get(name) == value for name, value in self.labels.items())

    def _closed_by(self, facts: NodeFacts) -> str:
        """Why a node of the flavor has no place in the tree; empty where it has one, or belongs to another flavor."""
        if not self._has_flavor(facts):
            return ""
        needed = self.levels[-1:] if self._takes_all else self.levels
        lacking = next((level for level in needed if level not in facts.labels), None)
        return facts.excluded or (f"without the label {lacking}" if lacking is not None else "")

    def _note_outside(self, name: str, why: str) -> None:
        before = self._outside.pop(name, "")
        if before:
            self.closed[before] -= 1
        if why:
            self._outside[name] = why
            self.closed[why] += 1

    def _leaf(self, path: Path) -> int:
        known = self._by_path.get(path)
        if known is not None:
            return known
        parent = -1
        for level in range(self.depth):
            prefix = path[: level + 1]
            domain = self._by_path.get(prefix)
            parent = self._new(prefix, parent) if domain is None else domain
        return parent

    def _new(self, path: Path, parent: int) -> int:
        domain, level = len(self.parent), len(path) - 1
        self.parent.append(parent)
        self.level.append(level)
        self.path.append(path)
        self.children.append([])
        self.free.append({})
        self.nodes.append({})
        self.stamps.append(0)
        self._by_path[path] = domain
        insort(self.at_level[level], domain, key=self.path.__getitem__)
        if parent >= 0:
            insort(self.children[parent], domain, key=self.path.__getitem__)
        if level == self.depth - 1:
            values = path[-1:] if self.by_host else path
            if values in self._leaves:
                self._namesakes.setdefault(values, []).append(self._leaves[values])
            self._leaves[values] = domain
            self.journal.limit = self.assumed_journal.limit = _JOURNAL_SLACK + 4 * len(self._leaves)
            key = self._sums.key(self.flavor, self.levels, values)
            self._keys.append(key)
            self.used.append(self._sums.watch(key, self.touch, domain))
            self.assumed.append(self._assumed.watch(key, self.touch_assumed, domain))
        else:
            self._keys.append(None)
            self.used.append({})
            self.assumed.append({})
        self.shape += 1
        return domain

    def _recount(self, leaf: int) -> None:
        free = [node.free for node in self.nodes[leaf].values()]
        self.free[leaf] = free[0] if len(free) == 1 else _sum(free)
        self.stamps[leaf] += 1
        self.touch(leaf)
        self.touch_assumed(leaf)


def end_unknown(_: str) -> float:
    """The end of the last workload of a host, where nobody tells."""
    return 0.0


def _sum(many: Iterable[Mapping[ResourceName, Amount]]) -> DomainTotals:
    total: DomainTotals = {}
    for usage in many:
        for name, amount in usage.items():
            total[name] = total.get(name, 0) + amount
    return total
