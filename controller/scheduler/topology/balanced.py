"""Balanced placement (gate TASBalancedPlacement): the pods of a preferred level are spread evenly over few of its
domains.

The candidates are the sets of siblings at the preferred level. The threshold of a set is the most slices that its least
loaded domain can get while no more domains are used than the greedy choice uses; domains that hold less are left out.
The set with the highest threshold wins, on a tie the one that needs fewest domains. If no set has a threshold above 0,
best fit decides. Source: KEP-2724.
"""

from math import log2
from typing import Final, NamedTuple

from controller.scheduler.topology.counts import Counts
from controller.scheduler.topology.domainsearch import DomainSearch, Take
from controller.scheduler.topology.requests import DomainRequest

_MAX_STEPS: Final = 20_000
"""Steps of the knapsack above which it is not run, since it would take seconds: best fit decides instead."""


class _Number:
    """A copy of one domain's counts that a trial may prune."""

    def __init__(self, counts: Counts, domain: int) -> None:
        self.pods = counts.pods[domain]
        self.slices = counts.slices[domain]
        self.pods_with = counts.pods_with[domain]
        self.slices_with = counts.slices_with[domain]
        self.leaders = counts.leaders[domain]


class _Greedy(NamedTuple):
    """The number of domains that the greedy choice takes, and the last domain taken with the leader and without it."""

    domains: int
    last_led: int | None
    last: int | None


class Balanced:
    def __init__(self, counts: Counts, ask: DomainRequest) -> None:
        self._counts = counts
        self._tree = counts.tree
        self._ask = ask

    def run(self) -> list[Take] | None:
        """Leaves with their pods; None where no balanced placement exists."""
        ask, shape = self._ask, self._ask.shape
        best: tuple[int, int, _BalancedTrial] | None = None
        for siblings in self._sibling_sets():
            found = self._threshold(siblings, 0 if best is None else best[0])
            if found is not None and (best is None or (found[0], -found[1]) > (best[0], -best[1])):
                best = found
        if best is None or best[0] <= 0:
            return None
        threshold, _, trial = best
        domains, level = trial.domains, ask.level
        if ask.level < shape.slice_level:
            fewest = trial.fewest(domains, by_entropy=True)
            if fewest is None:
                return None
            domains = [child for domain in fewest for child in self._tree.children[domain]]
            level += 1
        takes = trial.spread(domains, threshold)
        return None if takes is None else trial.descend(level, takes)

    def _sibling_sets(self) -> list[list[int]]:
        if self._ask.level == 0:
            return [self._tree.at_level[0]]
        return [self._tree.children[domain] for domain in self._tree.at_level[self._ask.level - 1]]

    def _threshold(self, siblings: list[int], least: int) -> "tuple[int, int, _BalancedTrial] | None":
        """The threshold, the number of domains, and the pruned siblings; None if the siblings cannot hold all pods, or
        their threshold is below ``least``.
        """
        ask = self._ask
        trial = _BalancedTrial(self._counts, ask, siblings)
        lower = siblings
        if ask.level < ask.shape.slice_level:
            lower = [child for domain in siblings for child in self._tree.children[domain]]
        greedy = trial.greedy(lower)
        if greedy is None:
            return None
        threshold = ask.slices // greedy.domains if greedy.domains else 0
        if greedy.last_led is not None:
            threshold = min(threshold, trial.of(greedy.last_led).slices_with)
        if greedy.last is not None:
            threshold = min(threshold, trial.of(greedy.last).slices)
        lowered = threshold
        if ask.leaders and greedy.last is not None:
            lowered = min(threshold, trial.of(greedy.last).slices_with)
        if threshold < least:
            return None
        trial.prune(threshold)
        pruned = trial.greedy(siblings)
        if pruned is None and lowered < threshold and lowered > 0 and lowered >= least:
            # The leader takes a place in a domain that held exactly the threshold without it.
            threshold = lowered
            trial = _BalancedTrial(self._counts, ask, siblings)
            trial.prune(threshold)
            pruned = trial.greedy(siblings)
        return None if pruned is None else (threshold, pruned.domains, trial)


class _BalancedTrial:
    """One set of sibling domains and everything below them, with counts that are pruned on trial."""

    def __init__(self, counts: Counts, ask: DomainRequest, siblings: list[int]) -> None:
        self.domains = siblings
        self._counts = counts
        self._tree = counts.tree
        self._ask = ask
        self._numbers: dict[int, _Number] = {}

    def of(self, domain: int) -> _Number:
        number = self._numbers.get(domain)
        if number is None:
            number = self._numbers[domain] = _Number(self._counts, domain)
        return number

    def greedy(self, domains: list[int]) -> _Greedy | None:
        """The greedy choice among the domains; None where they cannot hold all slices and the leader."""
        left, leaders, number = self._ask.slices, self._ask.leaders, 0
        last_led = last = None
        if leaders:
            ordered = self.ordered(domains, led=True)
            if not ordered or not self.of(ordered[0]).leaders:
                return None
            last_led, number = ordered[0], 1
            left -= self.of(last_led).slices_with
            domains = ordered[1:]
        for domain in self.ordered(domains, led=False):
            if left <= 0 or not self.of(domain).slices:
                break
            number += 1
            last = domain
            left -= self.of(domain).slices
        return None if left > 0 else _Greedy(number, last_led, last)

    def ordered(self, domains: list[int], *, led: bool) -> list[int]:
        def rank(domain: int) -> tuple[object, ...]:
            numbers, score = self.of(domain), -self._counts.scores[domain]
            if led:
                return -numbers.leaders, score, -numbers.slices_with, numbers.pods_with, self._tree.path[domain]
            return score, -numbers.slices, numbers.pods, self._tree.path[domain]

        return sorted(domains, key=rank)

    # -- pruning -----------------------------------------------------------------------------------------------------

    def prune(self, threshold: int) -> None:
        for domain in self.domains:
            for child in self._tree.children[domain]:
                self._prune_one(child, threshold)
        for domain in self.domains:
            self._sum(domain)
            self._prune_one(domain, threshold)

    def _prune_one(self, domain: int, threshold: int) -> None:
        numbers = self.of(domain)
        if numbers.slices < threshold:
            self._clear(domain, leader_only=False)
        elif self._ask.leaders and numbers.leaders and numbers.slices_with < threshold:
            self._clear(domain, leader_only=True)

    def _clear(self, domain: int, *, leader_only: bool) -> None:
        numbers = self.of(domain)
        numbers.pods_with = numbers.slices_with = numbers.leaders = 0
        if not leader_only:
            numbers.pods = numbers.slices = 0
        for child in self._tree.children[domain]:
            self._clear(child, leader_only=leader_only)

    def _sum(self, domain: int) -> None:
        shape, numbers = self._ask.shape, self.of(domain)
        children = [self.of(child) for child in self._tree.children[domain]]
        if not children:
            return
        numbers.pods = sum(child.pods for child in children)
        numbers.slices = sum(child.slices for child in children)
        hosts = [child for child in children if child.leaders or not shape.leader]
        numbers.leaders = max(child.leaders for child in children)
        numbers.pods_with = numbers.pods - min(child.pods - child.pods_with for child in hosts) if hosts else 0
        numbers.slices_with = numbers.slices - min(child.slices - child.slices_with for child in hosts) if hosts else 0
        if self._tree.level[domain] == shape.slice_level:
            numbers.slices = numbers.pods // shape.slice_size
            numbers.slices_with = numbers.pods_with // shape.slice_size

    # -- choosing ----------------------------------------------------------------------------------------------------

    def fewest(self, domains: list[int], *, by_entropy: bool) -> list[int] | None:
        """The set of as many domains as the greedy choice takes that holds all pods with the least to spare, by a
        knapsack over the pruned counts. None if there is no such set, or the knapsack would take too many steps.
        """
        greedy = self.greedy(domains)
        if greedy is None or greedy.domains * len(domains) > _MAX_STEPS:
            return None
        size = self._ask.shape.slice_size
        # The list is indexed by the number of domains taken; each entry maps (leaders left, pods left) to the first
        # such choice.
        states: list[dict[tuple[int, int], tuple[int, ...]]] = [{} for _ in range(greedy.domains + 1)]
        states[0][self._ask.leaders, self._ask.slices * size] = ()
        for domain in self._by_entropy(domains) if by_entropy else sorted(domains, key=self._tree.path.__getitem__):
            numbers = self.of(domain)
            for taken in range(greedy.domains, 0, -1):
                for (leaders, pods), chosen in sorted(states[taken - 1].items()):
                    if leaders <= 0 and pods <= 0:
                        continue
                    if leaders > 0 and numbers.leaders:
                        states[taken].setdefault(
                            (leaders - numbers.leaders, pods - numbers.pods_with), (*chosen, domain)
                        )
                    if numbers.slices:
                        states[taken].setdefault((leaders, pods - numbers.pods), (*chosen, domain))
        enough = [(pods, chosen) for (leaders, pods), chosen in states[-1].items() if not leaders and pods <= 0]
        return list(max(enough)[1]) if enough else None

    def _by_entropy(self, domains: list[int]) -> list[int]:
        """The domains with most slices first; among equals, those whose children hold the most even numbers of pods."""

        def rank(domain: int) -> tuple[object, ...]:
            numbers = self.of(domain)
            return -numbers.leaders, -numbers.slices_with, -self._entropy(domain), self._tree.path[domain]

        return sorted(domains, key=rank)

    def _entropy(self, domain: int) -> float:
        pods = [self.of(child).pods for child in self._tree.children[domain]]
        total = sum(pods)
        return -sum(count / total * log2(count / total) for count in pods if count) if total else 0.0

    def spread(self, domains: list[int], threshold: int) -> list[Take] | None:
        """Gives each domain ``threshold`` slices, the rest to the emptiest domains. None if they cannot take all."""
        chosen = self.fewest(domains, by_entropy=False)
        if chosen is None or self._ask.slices < len(chosen) * threshold:
            return None
        over = self._ask.slices - len(chosen) * threshold
        leaders, takes = self._ask.leaders, []
        for domain in self.ordered(chosen, led=True):
            numbers = self.of(domain)
            extra = min((numbers.slices_with if leaders else numbers.slices) - threshold, over)
            takes.append(Take(domain, (threshold + extra) * self._ask.shape.slice_size, 1 if leaders else 0))
            over -= extra
            leaders = 0
        return takes if not over else None

    def descend(self, level: int, takes: list[Take]) -> list[Take]:
        """Takes the chosen domains down to leaves, on the pruned counts."""
        counts = self._counts.copy()
        for domain, numbers in self._numbers.items():
            counts.pods[domain], counts.slices[domain] = numbers.pods, numbers.slices
            counts.pods_with[domain], counts.slices_with[domain] = numbers.pods_with, numbers.slices_with
            counts.leaders[domain] = numbers.leaders
        return DomainSearch(counts, self._ask, least=False).descend(level, takes, pooled=False)
