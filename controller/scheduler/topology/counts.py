"""How many pods of one shape fit into every domain of a tree: counted once, then updated as usage changes.

A leaf holds as many pods as its scarcest resource allows; a domain above holds the sum of its children. At the slice
level whole slices are counted, above it their sums. What a child holds beyond whole inner slices does not count in its
parent. With a leader every domain has a second pair of counts: the pods and slices that fit beside the leader, where
the leader takes the place that costs least.

Source: KEP-2724, whose two-phase algorithm counts so at every question. After ``sync`` they equal a recount, which
``validate`` makes. ``sync`` costs the leaves that changed since the last call and their ancestors; where more than an
eighth of all leaves changed everything is counted anew, 20 ms for 10,000 nodes.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from controller.scheduler.dra.allocation.requests import PodClaimsRequest
from controller.scheduler.model.devicerequest import ANY
from controller.scheduler.model.resources import Amount, ResourceName
from controller.scheduler.topology.requests import Each, RequestShape
from controller.scheduler.topology.tree import Path, Tree
from controller.scheduler.topology.usage import DomainTotals

SCALE: Final = 1 << 32
"""Weight of slices against pods in a rank: no domain holds as many pods, so slices always decide first."""

Ranked = tuple[int, Path, int]
"""Rank, path and number of a domain. Sorted ascending: the smallest comes first."""


class Counts:
    """The counts of one shape on one tree, as lists indexed by domain number. Others read them after ``sync`` and never
    write, except that ``_BalancedTrial`` writes pruned numbers into a ``copy`` of its own.

    After ``sync`` the numbers of a leaf are those of its free and used amounts, and those of any other domain are sums
    over its children: of ``pods``, of ``slices``, and of ``pods_with`` and ``slices_with``, which fit beside the leader
    where ``leaders`` is 1. Without a leader ``pods_with`` is ``pods`` itself, and ``slices_with`` is ``slices``. The
    kept orders of a level and of a domain's children are sorted by the same numbers.
    """

    def __init__(self, tree: Tree, shape: RequestShape) -> None:
        self.tree = tree
        self.shape = shape
        self.pods: list[int] = []
        self.slices: list[int] = []
        # Without a leader the counts beside the leader equal the others, so both names share one list.
        self.pods_with: list[int] = [] if shape.leader else self.pods
        self.slices_with: list[int] = [] if shape.leader else self.slices
        self.leaders: list[int] = []
        """1 for a domain in which the leader fits somewhere, else 0."""
        self.scores: list[int] = []
        """The sum of the preferred-affinity weights of the domain's open leaves."""
        self._eligible: list[bool] = []
        self._led_eligible: list[bool] = self._eligible if shape.led_filter is None else []
        """Whether each leaf is open to the leader."""
        self._closed: dict[int, str] = {}
        """Reason, by leaf, why its node is not open to these pods; filled only where a leaf is a node."""
        self._stamps: list[int] = []
        self._orders: list[dict[tuple[bool, bool], list[Ranked]]] = [{} for _ in tree.levels]
        """The kept orders of each level, by ``(led, least)``."""
        self._kin: dict[int, dict[bool, list[Ranked]]] = {}
        """The kept orders of a domain's children: domain -> ``least`` -> order."""
        self.plain = not shape.leader and not shape.filter.preferred
        self.kept = True
        """False for a copy: its numbers change and no kept order is updated."""
        self._journal = tree.assumed_journal if shape.empty else tree.journal
        self._epoch = -1
        self._read = 0
        self._shape_of_tree = -1
        self._wanted = dict(shape.each)

    # -- reading -----------------------------------------------------------------------------------------------------

    def sync(self) -> "Counts":
        """Take in what the tree's journal recorded since the last call. Returns self."""
        tree = self.tree
        if self._shape_of_tree != tree.shape:
            self._grow()
        journal = self._journal
        if self._epoch != journal.epoch:
            self._rebuild()
        elif self._read < len(journal.leaves):
            dirty = dict.fromkeys(journal.leaves[self._read :])
            if 8 * len(dirty) > len(tree.at_level[-1]):
                self._rebuild()
            elif self.plain:
                self._carry(dirty)
            else:
                self._update(dirty)
        self._epoch, self._read = journal.epoch, len(journal.leaves)
        return self

    def rank(self, domain: int, *, led: bool, least: bool) -> int:
        """The sort key of a domain; the smallest comes first. ``led``: a leader is still to be placed. ``least``: the
        fullest domain comes first instead of the emptiest.
        """
        slices, pods = (self.slices_with, self.pods_with) if led else (self.slices, self.pods)
        rank = (slices[domain] if least else -slices[domain]) * SCALE + pods[domain]
        if self.shape.filter.preferred:
            rank -= self.scores[domain] * SCALE * SCALE
        if led:
            rank -= self.leaders[domain] * SCALE * SCALE * SCALE
        return rank

    def ordered(self, domains: list[int], *, led: bool = False, least: bool) -> list[int]:
        """The domains sorted by rank. ``domains`` must be in the order of their paths, which breaks ties."""
        if not self.plain:
            return sorted(domains, key=lambda domain: self.rank(domain, led=led, least=least))
        slices, pods = self.slices, self.pods
        if least:
            return sorted(domains, key=lambda domain: slices[domain] * SCALE + pods[domain])
        return sorted(domains, key=lambda domain: pods[domain] - slices[domain] * SCALE)

    def kin(self, domain: int, *, least: bool) -> list[Ranked]:
        """The children of a domain sorted by rank. The order is kept from the first call on. Only where ``plain`` and
        ``kept``.
        """
        orders = self._kin.setdefault(domain, {})
        ranked = orders.get(least)
        if ranked is None:
            paths = self.tree.path
            ranked = [
                (self.rank(child, led=False, least=least), paths[child], child) for child in self.tree.children[domain]
            ]
            ranked.sort(key=_first)
            orders[least] = ranked
        return ranked

    def order(self, level: int, *, led: bool, least: bool) -> list[Ranked]:
        """All domains of a level sorted by rank. The order is kept from the first call on."""
        key = (led, least)
        ranked = self._orders[level].get(key)
        if ranked is None:
            paths = self.tree.path
            ranked = [
                (self.rank(domain, led=led, least=least), paths[domain], domain) for domain in self.tree.at_level[level]
            ]
            ranked.sort(key=_first)
            self._orders[level][key] = ranked
        return ranked

    def eligible(self) -> int:
        """The number of leaves that pods of this shape may use, full or not."""
        return sum(1 for leaf in self.tree.at_level[-1] if self._eligible[leaf])

    def closed(self) -> Counter[str]:
        """The number of nodes that are closed to these pods, by reason; counted only where a leaf is a node."""
        tree = self.tree
        shut = (why for leaf, why in self._closed.items() if tree.nodes[leaf])
        return +tree.closed + Counter(shut)

    def fitting_nodes(self) -> list[tuple[str, PodClaimsRequest]]:
        """The nodes that are open to these pods and on which one fits by resources, each with what a pod asks there by
        claim.
        """
        tree = self.tree
        used = tree.assumed if self.shape.empty else tree.used
        nodes: list[tuple[str, PodClaimsRequest]] = []
        for leaf in tree.at_level[-1]:
            each, claims = tree.served(leaf, self.shape.each, self.shape.claims)
            if claims is not None and self._eligible[leaf] and _fitting(each, tree.free[leaf], used[leaf]):
                nodes += ((name, claims) for name in tree.nodes[leaf])
        return nodes

    def full(self) -> int:
        """The number of leaves that are open to these pods and on which none of them fits."""
        return sum(1 for _ in self.full_leaves())

    def full_leaves(self) -> Iterator[int]:
        """The leaves that are open to these pods and on which none of them fits."""
        return (leaf for leaf in self.tree.at_level[-1] if self._eligible[leaf] and not self.pods[leaf])

    def copy(self) -> "Counts":
        """A copy with the same numbers, which the caller may change; ``sync`` does not update it."""
        other = Counts(self.tree, self.shape)
        other.kept = False
        for name in ("pods", "slices", "pods_with", "slices_with", "leaders", "scores", "_stamps"):
            setattr(other, name, list(getattr(self, name)))
        other._eligible[:], other._led_eligible[:] = self._eligible, self._led_eligible
        return other

    # -- keeping -----------------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        missing = len(self.tree.parent) - len(self.pods)
        kept = {id(column): column for column in (self.pods, self.slices, self.pods_with, self.slices_with)}
        for column in (*kept.values(), self.leaders, self.scores):
            column.extend([0] * missing)
        self._stamps.extend([-1] * missing)
        self._eligible.extend([False] * missing)
        if self._led_eligible is not self._eligible:
            self._led_eligible.extend([False] * missing)
        self._forget_orders()
        self._shape_of_tree = self.tree.shape

    def _forget_orders(self) -> None:
        for orders in self._orders:
            orders.clear()
        self._kin.clear()

    def _rebuild(self) -> None:
        self._forget_orders()
        for leaf in self.tree.at_level[-1]:
            self._count(leaf)
        for level in range(self.tree.depth - 2, -1, -1):
            for domain in self.tree.at_level[level]:
                self._sum(domain)

    def _carry(self, dirty: Iterable[int]) -> None:
        """Adds the change of each dirty leaf to its ancestors. Only without a leader and without preferences."""
        tree, shape = self.tree, self.shape
        pods, slices, parent = self.pods, self.slices, tree.parent
        slice_level, size, inner = shape.slice_level, shape.slice_size, shape.inner
        for leaf in dirty:
            domain, level, more = leaf, tree.depth - 1, 0
            now = self._pods_in(leaf)
            while True:
                before = pods[domain]
                if level == slice_level:
                    more = now // size - slices[domain]
                if now == before and not more:
                    break
                self._set(domain, level, now, more)
                step = inner[level]
                gain = now // step * step - before // step * step if step else now - before
                domain = parent[domain]
                if domain < 0:
                    break
                level -= 1
                now = pods[domain] + gain

    def _set(self, domain: int, level: int, pods: int, more: int) -> None:
        """Set the pod count of a domain and add ``more`` to its slice count; re-sort it in every kept order."""
        orders = [(least, order) for (_, least), order in self._orders[level].items()]
        if self._kin:
            orders += self._kin.get(self.tree.parent[domain], {}).items()
        if orders:
            path = self.tree.path[domain]
            rank = self.slices[domain]
            for least, order in orders:
                old = (rank if least else -rank) * SCALE + self.pods[domain]
                del order[bisect_left(order, (old, path, domain))]
                insort(order, ((rank + more if least else -rank - more) * SCALE + pods, path, domain))
        self.pods[domain] = pods
        self.slices[domain] += more

    def _update(self, dirty: Iterable[int]) -> None:
        level = self.tree.depth - 1
        parent = self.tree.parent
        changed = [leaf for leaf in dirty if self._changed(leaf, self._count)]
        while level > 0 and changed:
            level -= 1
            changed = [
                above for above in dict.fromkeys(parent[below] for below in changed) if self._changed(above, self._sum)
            ]

    def _changed(self, domain: int, recount: Callable[[int], None]) -> bool:
        """Recount one domain and re-sort it in the kept orders of its level. Returns whether a number changed."""
        before = self._numbers(domain)
        level, path = self.tree.level[domain], self.tree.path[domain]
        orders = self._orders[level]
        ranks = [self.rank(domain, led=led, least=least) for led, least in orders]
        recount(domain)
        if self._numbers(domain) == before:
            return False
        for ((led, least), order), rank in zip(orders.items(), ranks, strict=True):
            del order[bisect_left(order, (rank, path, domain))]
            insort(order, (self.rank(domain, led=led, least=least), path, domain))
        return True

    def _numbers(self, domain: int) -> tuple[int, ...]:
        return (
            self.pods[domain],
            self.slices[domain],
            self.pods_with[domain],
            self.slices_with[domain],
            self.leaders[domain],
            self.scores[domain],
        )

    def _count(self, leaf: int) -> None:
        tree, shape = self.tree, self.shape
        pods = self.pods[leaf] = self._pods_in(leaf)
        whole = shape.slice_level == tree.depth - 1
        if whole:
            self.slices[leaf] = pods // shape.slice_size
        if not shape.leader:
            return
        leader = beside = 0
        if self._eligible[leaf] or self._led_eligible[leaf]:
            free, used = tree.free[leaf], tree.assumed[leaf] if shape.empty else tree.used[leaf]
            led, led_claims = tree.served(leaf, shape.leader, shape.led_claims)
            requested, claims = tree.served(leaf, shape.each, shape.claims)
            leader = 1 if self._led_eligible[leaf] and _fitting(led, free, used) else 0
            if leader:
                free = dict(free)
                for name, amount in led:
                    free[name] = free.get(name, 0) - amount
            beside = _fitting(requested, free, used) if self._eligible[leaf] else 0
            if leader and (shape.led is not None or shape.devices is not None):
                leader, beside = self._by_devices(leaf, beside)
            if leader and (led_claims is not None or claims is not None):
                leader, beside = self._by_claims(leaf, beside, led_claims, claims)
        self.leaders[leaf], self.pods_with[leaf] = leader, beside
        if whole:
            self.slices_with[leaf] = beside // shape.slice_size

    def _pods_in(self, leaf: int) -> int:
        tree = self.tree
        if self._stamps[leaf] != tree.stamps[leaf]:
            self._judge(leaf)
        if not self._eligible[leaf]:
            return 0
        used = tree.assumed[leaf] if self.shape.empty else tree.used[leaf]
        each, claims = tree.served(leaf, self.shape.each, self.shape.claims)
        pods = _fitting(each, tree.free[leaf], used)
        if pods and self.shape.devices is not None and tree.devices is not None:
            ask, empty, cache = self.shape.devices, self.shape.empty, tree.devices
            pods = min(pods, sum(cache.fitting_pods(name, self._wanted, ask, empty=empty) for name in tree.nodes[leaf]))
        if pods and claims is not None and tree.claims is not None:
            empty, supply = self.shape.empty, tree.claims
            pods = min(pods, sum(supply.fitting_pods(name, claims, empty=empty) for name in tree.nodes[leaf]))
        return pods

    def _by_devices(self, leaf: int, beside: int) -> tuple[int, int]:
        """1 if the leader finds its devices in the leaf, and the number of workers that find theirs beside it."""
        tree, shape = self.tree, self.shape
        if tree.devices is None:
            return 1, beside
        leader, ask = (dict(shape.leader), shape.led or ANY), (self._wanted, shape.devices or ANY)
        workers = [tree.devices.fitting_workers(name, leader, ask, empty=shape.empty) for name in tree.nodes[leaf]]
        found = [count for count in workers if count is not None]
        return (1, min(beside, sum(found))) if found else (0, 0)

    def _by_claims(
        self, leaf: int, beside: int, leader: PodClaimsRequest | None, claims: PodClaimsRequest | None
    ) -> tuple[int, int]:
        """1 if the leader's ResourceClaims can be served in the leaf, and the number of workers whose claims can be
        served beside it.
        """
        tree, shape = self.tree, self.shape
        if tree.claims is None:
            return 1, beside
        workers = [tree.claims.fitting_workers(name, leader, claims, empty=shape.empty) for name in tree.nodes[leaf]]
        found = [count for count in workers if count is not None]
        return (1, min(beside, sum(found))) if found else (0, 0)

    def rise(self, leaf: int, pods: int) -> float:
        """How much ``pods`` more pods in the leaf would raise the number of devices that no request can use
        (``unusable``).
        """
        devices = self.tree.devices
        if devices is None:
            return 0.0
        ask = self.shape.devices or ANY
        return sum(devices.rise(name, self._wanted, ask, pods) for name in self.tree.nodes[leaf])

    def _judge(self, leaf: int) -> None:
        tree, shape = self.tree, self.shape
        nodes = tree.nodes[leaf].values()
        self._stamps[leaf] = tree.stamps[leaf]
        open_ = bool(nodes) and (shape.within < 0 or tree.ancestor(leaf, tree.level[shape.within]) == shape.within)
        if shape.led_filter is not None:
            admits = shape.led_filter.admits
            self._led_eligible[leaf] = open_ and (not tree.by_host or all(map(admits, nodes)))
        if open_ and tree.by_host:
            shut = next((node for node in nodes if not shape.filter.admits(node)), None)
            open_ = shut is None
            self._closed.pop(leaf, None)
            if shut is not None:
                self._closed[leaf] = shape.filter.problem(shut)
        if shape.filter.preferred and tree.by_host:
            self.scores[leaf] = sum(shape.filter.score(node) for node in nodes) if open_ else 0
        self._eligible[leaf] = open_

    def _sum(self, domain: int) -> None:
        """Set pods and slices of a domain above the leaves from those of its children."""
        tree, shape = self.tree, self.shape
        children, level = tree.children[domain], tree.level[domain]
        inner = shape.inner[level + 1]
        pods, slices = self.pods, self.slices
        if inner:
            total = sum(pods[child] // inner * inner for child in children)
        else:
            total = sum([pods[child] for child in children])
        pods[domain] = total
        if level == shape.slice_level:
            slices[domain] = total // shape.slice_size
        elif level < shape.slice_level:
            slices[domain] = sum([slices[child] for child in children])
        if shape.leader:
            self._sum_beside(domain, children, inner)
        if shape.filter.preferred:
            self.scores[domain] = sum(self.scores[child] for child in children)

    def _sum_beside(self, domain: int, children: list[int], inner: int) -> None:
        """Set the counts beside the leader of a domain from its children; the leader goes to the child that loses least
        by it.
        """
        level, shape = self.tree.level[domain], self.shape
        pods_lost: list[int] = []
        slices_lost: list[int] = []
        for child in children:
            if self.leaders[child]:
                before, beside = self.pods[child], self.pods_with[child]
                if inner:
                    before, beside = before // inner * inner, beside // inner * inner
                pods_lost.append(before - beside)
                slices_lost.append(self.slices[child] - self.slices_with[child])
        self.leaders[domain] = 1 if pods_lost else 0
        self.pods_with[domain] = self.pods[domain] - min(pods_lost) if pods_lost else 0
        if level == shape.slice_level:
            self.slices_with[domain] = self.pods_with[domain] // shape.slice_size
        elif level < shape.slice_level:
            self.slices_with[domain] = self.slices[domain] - min(slices_lost) if slices_lost else 0

    def validate(self) -> None:
        """Compare all counts and kept orders with freshly made ones. AssertionError for a difference."""
        fresh = Counts(self.tree, self.shape).sync()
        for domain in range(len(self.tree.parent)):
            if fresh._numbers(domain) != self._numbers(domain):  # noqa: SLF001
                raise AssertionError(
                    f"{self.tree.path[domain]}: kept {self._numbers(domain)}, counted {fresh._numbers(domain)}"  # noqa: SLF001
                )
        for level, orders in enumerate(self._orders):
            for (led, least), order in orders.items():
                if order != fresh.order(level, led=led, least=least):
                    raise AssertionError(f"the order of {self.tree.levels[level]} has drifted")
        for domain, kin in self._kin.items():
            for least, order in kin.items():
                if order != fresh.kin(domain, least=least):
                    raise AssertionError(f"the order below {self.tree.path[domain]} has drifted")


def _first(ranked: Ranked) -> int:
    return ranked[0]


def _fitting(each: Each, free: Mapping[ResourceName, Amount], used: DomainTotals) -> int:
    """How many whole pods fit into what is free; 0 where some resource is overdrawn."""
    fewest = -1
    for name, amount in each:
        left = free.get(name, 0)
        if used:
            left -= used.get(name, 0)
        if left < amount:
            return 0
        fits = left // amount
        if fewest < 0 or fits < fewest:
            fewest = fits
    return fewest
