"""The order in which the nominated workloads of a cycle are decided on.

Classical: second passes first, then what borrows from the nearest cohort, then higher priority, then what queued first.
With fair sharing a tournament over each cohort tree instead: the smaller share wins, and each win is charged before the
next.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import Usage
from controller.scheduler.queues.entry import Entry
from controller.scheduler.quota.quotanode import QuotaNode
from controller.scheduler.quota.shares import share

Rank = tuple[bool | float | str | tuple[float, float], ...]


class ShareAtNode(NamedTuple):
    """The share by which an entry is compared at one quota node on its way to the root, its own request added."""

    borrows: bool
    share: tuple[float, float]


_EQUAL = ShareAtNode(False, (0.0, 0.0))


def classical_order(entries: Iterable[Entry], gates: FeatureGates) -> list[Entry]:
    preemptors_first = gates.on("PrioritizePreemptorWorkloads")
    by_priority = gates.on("PrioritySortingWithinCohort")

    def rank(entry: Entry) -> Rank:
        incoming = entry.incoming
        return (
            entry.holder is None,
            preemptors_first and not entry.preemptor,
            entry.assignment.borrowing,
            -incoming.priority if by_priority else 0,
            incoming.queued_at_s,
            incoming.info.key,
        )

    return sorted(entries, key=rank)


def _nothing(_entry: Entry) -> Usage:
    return {}


def _nobody(_entry: Entry) -> None:
    return None


def fair_order(
    entries: Iterable[Entry],
    cluster: Cluster,
    reserved: Callable[[Entry], Usage] = _nothing,
    following: Callable[[Entry], Entry | None] = _nobody,
) -> Iterator[Entry]:
    """Each entry once, chosen when the caller asks for the next: what was charged for those before counts.

    ``reserved``: what is charged for the entry itself ahead of its turn, which its share must not count twice.
    ``following``: after a win, the next workload of its ClusterQueue, which competes with those that are left. Trees
    come one after another, by name; their order has no effect, because they share nothing.
    """
    trees: dict[QuotaNode, list[Entry]] = {}
    for entry in entries:
        root = entry.incoming.queue.node.root()
        waiting = trees.get(root)
        if waiting is None:
            trees[root] = [entry]
        else:
            waiting.append(entry)
    for _, waiting in sorted(trees.items(), key=lambda tree: (tree[0].name, tree[0].is_queue)):
        if len(waiting) == 1:
            yield waiting[0]
        else:
            yield from _Tournament(waiting, cluster, reserved).winners(following)


class _Bracket:
    """The entries compared at one quota node: those of a ClusterQueue, or the best ones of a cohort's children. A
    ClusterQueue with a single entry has no bracket: its entry is compared at the cohort above.
    """

    def __init__(self, node: QuotaNode, up: "_Bracket | None") -> None:
        self.node = node
        self.up = up
        self.stamp = 0
        """A number that grows whenever the bracket sends its best entry up: what it sent before is then out of date."""
        self.sent: list[tuple[Rank, int, _Bracket | None, Entry]] = []
        """A heap of (rank, the sender's stamp, the sender, the entry); the sender is None for an entry without a
        bracket below. An item is valid while its stamp is the sender's; ``best`` drops others when they come to the
        top.
        """

    def best(self) -> Entry | None:
        while self.sent:
            _, stamp, sender, entry = self.sent[0]
            if sender is None or sender.stamp == stamp:
                return entry
            heappop(self.sent)
        return None


class _Tournament:
    """The tournament of one tree. What is charged for a winner changes shares on its own way to the root and nowhere
    else, so after each win only the brackets on that way send their best entry anew.
    """

    def __init__(self, entries: Iterable[Entry], cluster: Cluster, reserved: Callable[[Entry], Usage]) -> None:
        gates = cluster.config.gates
        self._quota = cluster.quota
        self._reserved = reserved
        self._preemptors_first = gates.on("PrioritizePreemptorWorkloads")
        self._non_borrowing_first = gates.on("FairSharingPrioritizeNonBorrowing")
        self._by_priority = gates.on("PrioritySortingWithinCohort")
        self._brackets: dict[QuotaNode, _Bracket] = {}
        queues: dict[QuotaNode, list[Entry]] = {}
        for entry in entries:
            queues.setdefault(entry.incoming.queue.node, []).append(entry)
        for node, own in queues.items():
            if len(own) == 1 and node.parent is not None:
                entry = own[0]
                above, share_at = self._bracket(node.parent), self._share_at(entry, node)
                above.sent.append((self._rank(entry, share_at), 0, None, entry))
            else:
                self._bracket(node).sent += [(self._rank(entry, _EQUAL), 0, None, entry) for entry in own]
        for bracket in self._brackets.values():
            heapify(bracket.sent)
        # The lowest brackets come first: each one sends after all below it have.
        for bracket in sorted(self._brackets.values(), key=lambda bracket: bracket.node.height):
            self._send(bracket)

    def winners(self, following: Callable[[Entry], Entry | None]) -> Iterator[Entry]:
        root = next(bracket for bracket in self._brackets.values() if bracket.up is None)
        while (winner := root.best()) is not None:
            yield winner
            node = winner.incoming.queue.node
            bracket = self._brackets.get(node) or self._bracket(node.parent or node)
            heappop(bracket.sent)
            self._send_up(bracket)
            if root.best() is not None and (after := following(winner)) is not None:
                # The ClusterQueue keeps having a bracket of its own, or none.
                share_at = _EQUAL if bracket.node is node else self._share_at(after, node)
                heappush(bracket.sent, (self._rank(after, share_at), 0, None, after))
                self._send_up(bracket)

    def _bracket(self, node: QuotaNode) -> _Bracket:
        known = self._brackets.get(node)
        if known is None:
            up = None if node.parent is None else self._bracket(node.parent)
            known = self._brackets[node] = _Bracket(node, up)
        return known

    def _send_up(self, bracket: _Bracket) -> None:
        while bracket.up is not None:
            self._send(bracket)
            bracket = bracket.up

    def _send(self, bracket: _Bracket) -> None:
        """Send the bracket's best entry up, ranked by the share that it has at this node."""
        up = bracket.up
        if up is None:
            return
        bracket.stamp += 1
        best = bracket.best()
        if best is not None:
            rank = self._rank(best, self._share_at(best, bracket.node))
            heappush(up.sent, (rank, bracket.stamp, bracket, best))

    def _share_at(self, entry: Entry, node: QuotaNode) -> ShareAtNode:
        """The share of an entry at a node. A second pass adds nothing: it holds its quota already."""
        queue = entry.incoming.queue
        usage: Usage = {} if entry.second_pass else entry.assignment.usage
        reserved = self._reserved(entry)
        if node is queue.node and not reserved:
            return ShareAtNode(_borrows(node, usage), share(node, usage).rank)
        with self._quota.trial():
            if reserved:
                self._quota.remove_usage(queue.name, reserved)
            if node is queue.node:
                return ShareAtNode(_borrows(node, usage), share(node, usage).rank)
            self._quota.add_usage(queue.name, usage)
            return ShareAtNode(any(node.borrowed(fr) for fr in usage), share(node).rank)

    def _rank(self, entry: Entry, share_at: ShareAtNode) -> Rank:
        incoming = entry.incoming
        return (
            self._preemptors_first and not entry.preemptor,
            self._non_borrowing_first and share_at.borrows,
            share_at.share,
            not entry.second_pass,
            -incoming.priority if self._by_priority else 0,
            incoming.queued_at_s,
            incoming.info.key,
        )


def _borrows(node: QuotaNode, usage: Usage) -> bool:
    """Whether the usage would take the ClusterQueue beyond its own quota of any flavor-resource."""
    for fr, amount in usage.items():  # noqa: SIM110  a generator costs more than the loop
        if node.borrowing_with(fr, amount):
            return True
    return False
