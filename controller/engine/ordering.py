"""In which order the nominated workloads of a cycle are decided on.

Classical: who holds quota already, who borrows from nearer, more priority, who queued first. With fair sharing a
tournament over each cohort tree instead, in which the smaller share wins, played anew whenever something was taken.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from controller.engine.cluster import Cluster
from controller.engine.entry import Entry
from controller.engine.gates import FeatureGates
from controller.engine.nodes import Node
from controller.engine.quota import QuotaTree
from controller.engine.shares import share

Rank = tuple[bool | float | str | tuple[float, float], ...]


class Standing(NamedTuple):
    """How an entry stands at one node on the way to its root, with its own request added."""

    borrows: bool
    share: tuple[float, float]


Standings = dict[int, Standing]
"""By node (its identity), from the ClusterQueue to below the root."""

_EQUAL = Standing(False, (0.0, 0.0))


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


def fair_order(entries: Iterable[Entry], cluster: Cluster) -> Iterator[Entry]:
    """Each entry once, chosen when it is asked for: what was charged for those before counts.

    Trees go one after another, by name; their order means nothing, because they share nothing.
    """
    trees: dict[int, tuple[Node, list[Entry]]] = {}
    for entry in entries:
        root = entry.incoming.queue.node.root()
        trees.setdefault(id(root), (root, []))[1].append(entry)
    for _, waiting in sorted(trees.values(), key=lambda tree: (tree[0].name, tree[0].is_queue)):
        yield from _tournament(waiting, cluster)


def _tournament(waiting: list[Entry], cluster: Cluster) -> Iterator[Entry]:
    """What is charged for a winner changes the standings on its own way to the root, and those of nobody else."""
    known: dict[Entry, Standings] = {}
    while waiting:
        if len(waiting) == 1:
            yield waiting.pop()
            return
        for entry in waiting:
            if entry not in known:
                known[entry] = _standings(entry, cluster.quota)
        winner = _winner(waiting, known, cluster.config.gates)
        waiting.remove(winner)
        yield winner
        moved = known.pop(winner).keys()
        for entry in waiting:
            if not moved.isdisjoint(known[entry]):
                del known[entry]


def _winner(entries: list[Entry], standings: dict[Entry, Standings], gates: FeatureGates) -> Entry:
    """From each ClusterQueue up: at every cohort the best of those that its members sent goes on."""
    waiting: dict[int, tuple[Node, list[tuple[Entry, Standing]]]] = {}
    order: list[tuple[int, str, int]] = []
    """Who is next to send somebody up: the lowest, because all below it have sent theirs then."""

    def send(entry: Entry, to: Node, standing: Standing) -> None:
        known = waiting.get(id(to))
        if known is not None:
            known[1].append((entry, standing))
        else:
            waiting[id(to)] = (to, [(entry, standing)])
            heappush(order, (to.height, to.name, id(to)))

    for entry in entries:
        send(entry, entry.incoming.queue.node, _EQUAL)
    while True:
        node, sent = waiting.pop(heappop(order)[2])
        best = sent[0][0] if len(sent) == 1 else min(sent, key=lambda one: _rank(one[0], one[1], gates))[0]
        if node.parent is None:
            return best
        send(best, node.parent, standings[best][id(node)])


def _rank(entry: Entry, standing: Standing, gates: FeatureGates) -> Rank:
    incoming = entry.incoming
    return (
        gates.on("PrioritizePreemptorWorkloads") and not entry.preemptor,
        gates.on("FairSharingPrioritizeNonBorrowing") and standing.borrows,
        standing.share,
        not entry.second_pass,
        -incoming.priority if gates.on("PrioritySortingWithinCohort") else 0,
        incoming.queued_at_s,
        incoming.key,
    )


def _standings(entry: Entry, quota: QuotaTree) -> Standings:
    """By node (its identity), from the ClusterQueue to below the root. What holds quota already adds nothing."""
    queue = entry.incoming.queue
    usage = {} if entry.second_pass else entry.assignment.usage
    with quota.trial():
        quota.add_usage(queue.name, usage)
        return {
            id(node): Standing(any(node.borrowed(fr) for fr in usage), share(node).rank)
            for node in queue.node.path()
            if node.parent is not None
        }
