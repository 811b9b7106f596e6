"""Chooses which domains take the pods: first a level and domains of it, then downwards to leaves, with as few domains
as possible.

Best fit takes the domain with most slices first, and for what is left the tightest domain that holds it; least free
capacity takes the fullest domain first. Down to the slice level the children of all chosen domains are one pool; below
it each domain passes its own share down to its children. Source: KEP-2724. Where whole free nodes are worth something
(``Tree.empty_nodes``), ``packing`` chooses the nodes in the domains that are found so.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from controller.scheduler.topology.counts import SCALE, Counts, Ranked
from controller.scheduler.topology.packing import Vacancy, packed
from controller.scheduler.topology.requests import DomainRequest

Numbers = Callable[[int], int]

_COMPARED: Final = 64
"""How many nodes, the tightest ones, are compared by the harm that a placement does to linked GPUs."""

_ALIKE_S: Final = 600.0
"""Nodes whose last workloads end within the same span of this length are taken to be busy equally long."""


class Take(NamedTuple):
    """``pods`` pods placed in a domain, together with the leader if ``leaders`` is 1."""

    domain: int
    pods: int
    leaders: int


class DomainNoFit(NamedTuple):
    """The result where no placement was found: at most ``slices`` slices fit, in one domain of ``level`` or, if
    ``spread``, in all of them together.
    """

    level: int
    slices: int
    spread: bool
    leader: bool = False
    """The leader is what does not fit."""


class DomainSearch:
    """The search for one request on counts that are up to date. ``least``: the fullest domain comes first."""

    def __init__(self, counts: Counts, ask: DomainRequest, *, least: bool) -> None:
        self.counts = counts
        self.ask = ask
        self.least = least
        self._size = ask.shape.slice_size
        self.scored = bool(counts.shape.filter.preferred)
        self.paths = counts.tree.path
        tree = counts.tree
        self.packs = tree.packs and tree.devices is not None and bool(tree.devices.nodes) and not self.scored
        """Whether, among nodes that hold the rest of the pods, the one is chosen on which they do least harm to linked
        GPUs.
        """
        self._spares = (
            bool(tree.empty_nodes) and tree.by_host and ask.pods > 0 and not ask.shape.leader and not ask.shape.empty
        )
        """Whether nodes are chosen so that others stay empty."""
        self._by_kin = counts.plain and counts.kept and not self.packs
        """Whether the choice among a domain's children depends on nothing but their kept order."""

    def run(self) -> list[Take] | DomainNoFit:
        """The leaves with their pods, in no particular order, or a DomainNoFit."""
        found = self._choose(self.ask.level)
        if isinstance(found, DomainNoFit):
            return found
        level, domains = found
        return self.descend(level, self._share_slices(domains))

    def fits(self) -> bool:
        """Whether ``run`` would find a placement. The choice of domains alone decides that."""
        return not isinstance(self._choose(self.ask.level), DomainNoFit)

    # -- the level and its domains -----------------------------------------------------------------------------------

    def _choose(self, level: int) -> tuple[int, list[int]] | DomainNoFit:
        ask = self.ask
        if not self.counts.tree.at_level[level]:
            return DomainNoFit(level, 0, spread=False)
        if ask.free and self._spares_at(level):
            return self._several(level)
        one = self._one_domain(level)
        if one is not None:
            return level, [one]
        if ask.required:
            return self._short(level)
        if level > 0 and not ask.free:
            return self._choose(level - 1)
        return self._several(level)

    def _short(self, level: int) -> DomainNoFit:
        slices = self.counts.slices
        if not self.ask.leaders and not self.scored and not self.least:
            return DomainNoFit(level, slices[self.counts.order(level, led=False, least=False)[0][2]], spread=False)
        largest = max(slices[domain] for domain in self.counts.tree.at_level[level])
        return DomainNoFit(level, largest, spread=False, leader=largest >= self.ask.slices)

    def _one_domain(self, level: int) -> int | None:
        """The one domain of this level that takes everything: the tightest, or with ``least`` the fullest. None if none
        does.
        """
        counts, need = self.counts, self.ask.slices
        if self._spares_at(level):
            return self._one_node(need)
        led = bool(self.ask.leaders)
        order = counts.order(level, led=led, least=self.least)
        if led or self.scored:
            return self._one_of([domain for _, _, domain in order])
        if self.least:
            at = bisect_left(order, (need * SCALE,))
            if at < len(order) and self._packs_at(level):
                return self._gentlest([entry[2] for entry in order[at : at + _COMPARED]], need * self._size)
            return order[at][2] if at < len(order) else None
        after = bisect_left(order, ((1 - need) * SCALE,))
        if after == 0:
            return None
        if self._packs_at(level):
            nearest = reversed(order[max(0, after - _COMPARED) : after])
            return self._gentlest([entry[2] for entry in nearest], need * self._size)
        tightest = counts.slices[order[after - 1][2]]
        return order[bisect_left(order, (-tightest * SCALE,))][2]

    def _one_of(self, domains: list[int]) -> int | None:
        counts, need, leaders = self.counts, self.ask.slices, self.ask.leaders
        for at, domain in enumerate(domains):
            if counts.leaders[domain] >= leaders and counts.slices_with[domain] >= need:
                if self.least:
                    return domain
                return self._tightest(domains[at:], counts.slices_with.__getitem__, need, leaders)
            if not self.least and not self.scored:
                # The emptiest domain does not hold it, so no other does.
                return None
            if not self.least and not self.ask.required:
                # Preferences come before size: only for a required level are domains after the first considered.
                return None
        return None

    def _several(self, level: int) -> tuple[int, list[int]] | DomainNoFit:
        """Domains of one level that together take everything, or the DomainNoFit."""
        ask, counts = self.ask, self.counts
        left, leaders = ask.slices, ask.leaders
        if self._spares_at(level):
            takes = self._spared(counts.tree.at_level[level], left, 1, counts.slices)
            held = sum(take.pods for take in takes)
            return DomainNoFit(level, held, spread=True) if held < left else (level, [take.domain for take in takes])
        if counts.plain and not self._packs_at(level):
            order = counts.order(level, led=False, least=self.least)
            takes = self._in_order(order, left, 1, counts.slices)
            held = sum(take.pods for take in takes)
            return DomainNoFit(level, held, spread=True) if held < left else (level, [take.domain for take in takes])
        chosen: list[int] = []
        domains = [domain for _, _, domain in counts.order(level, led=bool(leaders), least=self.least)]
        if leaders:
            domains = self._leader_first(domains, left, counts.slices.__getitem__, counts.slices_with.__getitem__)
            domain = domains[0]
            if not counts.leaders[domain]:
                return DomainNoFit(level, sum(counts.slices[each] for each in domains), spread=True, leader=True)
            if not self.least and counts.slices_with[domain] >= left:
                domain = self._tightest(domains, counts.slices_with.__getitem__, left, leaders)
            chosen.append(domain)
            left -= counts.slices_with[domain]
            # If a domain tighter than the first was chosen, nothing is left, and no other domain is needed.
            domains = counts.ordered(sorted(domains[1:], key=self.paths.__getitem__), least=self.least)
        slices = counts.slices
        start = 0
        if self.least and not self.scored:
            start = next((at for at, domain in enumerate(domains) if slices[domain]), len(domains))
        for at in range(start, len(domains)):
            if left <= 0:
                break
            domain = domains[at]
            if not self.least and slices[domain] >= left:
                domain = self._tightest(domains[at:], slices.__getitem__, left, 0)
            chosen.append(domain)
            left -= slices[domain]
        if left > 0:
            return DomainNoFit(level, ask.slices - left, spread=True)
        return level, chosen

    # -- down --------------------------------------------------------------------------------------------------------

    def _share_slices(self, domains: list[int]) -> list[Take]:
        counts, size = self.counts, self.ask.shape.slice_size
        return self.share(
            domains, self.ask.slices, self.ask.leaders, size, counts.slices.__getitem__, counts.slices_with.__getitem__
        )

    def descend(self, level: int, takes: list[Take], *, pooled: bool = True) -> list[Take]:
        """Passes takes at ``level`` down to leaves. With ``pooled`` the children of all domains are one pool down to
        the slice level; otherwise each domain keeps its own share from the start.
        """
        counts, shape, tree = self.counts, self.ask.shape, self.counts.tree
        while pooled and level < min(tree.depth - 1, shape.slice_level):
            level += 1
            if self._spares_at(level):
                pool = [child for take in takes for child in tree.children[take.domain]]
                takes = self._spared(pool, self.ask.slices, shape.slice_size, counts.slices)
                continue
            if len(takes) == 1 and self._by_kin:
                takes = self._share_kin(takes[0].domain, self.ask.slices, shape.slice_size, counts.slices)
                continue
            above = sorted((take.domain for take in takes), key=self.paths.__getitem__)
            pool = [child for domain in above for child in tree.children[domain]]
            takes = self._share_slices(counts.ordered(pool, least=self.least))
        while level < tree.depth - 1:
            level += 1
            size = shape.slice_size if level <= shape.slice_level else shape.inner[level] or 1
            below: list[Take] = []
            for take in takes:
                below += self._pass_on(take, level, size)
            takes = below
        return takes

    def _pass_on(self, take: Take, level: int, size: int) -> list[Take]:
        counts = self.counts
        if size == 1 and level > self.ask.shape.slice_level and self._spares_at(level):
            return self._spared(counts.tree.children[take.domain], take.pods, 1, counts.pods)
        if size == 1 and level > self.ask.shape.slice_level and self._by_kin:
            return self._share_kin(take.domain, take.pods, 1, counts.pods)
        children = counts.ordered(counts.tree.children[take.domain], least=self.least)
        if size == 1:
            return self.share(
                children, take.pods, take.leaders, 1, counts.pods.__getitem__, counts.pods_with.__getitem__
            )
        if level <= self.ask.shape.slice_level:
            own, beside = counts.slices, counts.slices_with
            return self.share(children, take.pods // size, take.leaders, size, own.__getitem__, beside.__getitem__)
        whole = {child: counts.pods[child] // size for child in children}
        whole_with = {child: counts.pods_with[child] // size for child in children}
        return self.share(children, take.pods // size, take.leaders, size, whole.__getitem__, whole_with.__getitem__)

    def share(
        self, domains: Sequence[int], units: int, leaders: int, size: int, own: Numbers, beside: Numbers
    ) -> list[Take]:
        """Divides units (pods, or slices of ``size`` pods) over the domains in their order; the last units go to the
        tightest domain that holds them.

        ``own`` gives what a domain holds, ``beside`` what it holds beside the leader. Together the domains must hold
        everything.
        """
        if leaders:
            domains = self._leader_first(list(domains), units, own, beside)
        takes: list[Take] = []
        left = units
        for at, first in enumerate(domains):
            domain = first
            if leaders and self.counts.leaders[domain]:
                if not self.least and beside(domain) >= left:
                    domain = self._tightest(domains[at:], beside, left, leaders)
                held = min(beside(domain), left)
                takes.append(Take(domain, held * size, 1))
                leaders = 0
            else:
                if leaders:
                    held = min(beside(domain), left)
                else:
                    if not self.least and own(domain) >= left:
                        domain = self._tightest(domains[at:], own, left, 0, size)
                    held = min(own(domain), left)
                takes.append(Take(domain, held * size, 0))
            left -= held
            if left <= 0 and not leaders:
                break
        return takes

    def _share_kin(self, parent: int, units: int, size: int, own: list[int]) -> list[Take]:
        """``share`` among the children of one domain, by their kept order. Children that hold nothing are skipped."""
        return self._in_order(self.counts.kin(parent, least=self.least), units, size, own)

    def _in_order(self, order: Sequence[Ranked], units: int, size: int, own: list[int]) -> list[Take]:
        """``share`` by a kept order: takes its first domains until ``units`` are placed, and looks at no others."""
        counts, left = self.counts, units
        takes: list[Take] = []
        emptiest_first = not self.least and own is counts.slices
        at = 0 if emptiest_first else bisect_left(order, (SCALE if own is counts.slices else 1,))
        while left > 0 and at < len(order):
            domain = order[at][2]
            if not own[domain]:
                break
            if emptiest_first and own[domain] >= left:
                # The last domains that hold as much are the tightest; the first among these equals is taken.
                tightest = own[order[bisect_left(order, ((1 - left) * SCALE,), at) - 1][2]]
                domain = order[bisect_left(order, (-tightest * SCALE,), at)][2]
            held = min(own[domain], left)
            takes.append(Take(domain, held * size, 0))
            left -= held
            at += 1
        return takes

    def _leader_first(self, domains: list[int], units: int, own: Numbers, beside: Numbers) -> list[int]:
        """Moves to the front the first domain in which the leader leaves enough in all domains for all workers."""
        total = sum(map(own, domains))
        for at, domain in enumerate(domains):
            if self.counts.leaders[domain] and total - (own(domain) - beside(domain)) >= units:
                return [domain, *domains[:at], *domains[at + 1 :]]
        return domains

    def _spares_at(self, level: int) -> bool:
        return self._spares and level == self.counts.tree.depth - 1

    def _spared(self, leaves: Sequence[int], units: int, size: int, own: list[int]) -> list[Take]:
        """``share`` among nodes, of which as many are left empty as that is worth."""
        tree, scores, scored = self.counts.tree, self.counts.scores, self.scored
        vacancies = (Vacancy(leaf, own[leaf], tree.is_empty(leaf), scores[leaf] if scored else 0) for leaf in leaves)

        def choose(able: Sequence[int], rest: int) -> int:
            busy = [_about(tree.busy_until(self.paths[leaf][-1])) for leaf in able]
            longest = max(busy)
            able = [leaf for leaf, until in zip(able, busy, strict=True) if until == longest]
            if self.packs:
                return self._gentlest(able[:_COMPARED], rest * size)
            return min(able, key=lambda leaf: (own[leaf], self.paths[leaf]))

        return [Take(leaf, held * size, 0) for leaf, held in packed(vacancies, units, tree.empty_nodes, choose)]

    def _one_node(self, need: int) -> int | None:
        """The one node that takes everything; None if none does. Only a required node may be one that pods like less
        than another.
        """
        slices, scores, nodes = self.counts.slices, self.counts.scores, self.counts.tree.at_level[-1]
        able = [leaf for leaf in nodes if slices[leaf] >= need]
        if able and self.scored and not self.ask.required:
            best = max(scores[leaf] for leaf in nodes)
            able = [leaf for leaf in able if scores[leaf] == best]
        takes = self._spared(able, need, 1, slices)
        return takes[0].domain if takes else None

    def _packs_at(self, level: int) -> bool:
        return self.packs and level == self.counts.tree.depth - 1

    def _gentlest(self, leaves: Sequence[int], pods: int) -> int:
        """The leaf where so many pods add least to the devices that no request can use; on a tie the tightest. All
        ``leaves`` hold the pods.
        """
        counts = self.counts
        return min(leaves, key=lambda leaf: (counts.rise(leaf, pods), counts.slices[leaf], self.paths[leaf]))

    def _tightest(self, domains: Sequence[int], holds: Numbers, need: int, leaders: int, size: int = 0) -> int:
        """The first domain among those that hold ``need`` with least to spare; the first of all if none does. ``size``:
        pods in one unit.
        """
        if domains and not leaders and self._packs_at(self.counts.tree.level[domains[0]]):
            able = sorted((domain for domain in domains if holds(domain) >= need), key=holds)
            if able:
                return self._gentlest(able[:_COMPARED], need * (size or self._size))
        best, fewest = domains[0], -1
        for domain in domains:
            if self.scored and self.counts.scores[domain] != self.counts.scores[domains[0]]:
                break
            if self.counts.leaders[domain] < leaders:
                continue
            held = holds(domain)
            if held >= need and (fewest < 0 or held < fewest):
                best, fewest = domain, held
        return best


def _about(end_s: float) -> float:
    """A number that is equal for ends that count as equal; an end that is not known is infinite and stays so."""
    return end_s // _ALIKE_S if math.isfinite(end_s) else end_s
