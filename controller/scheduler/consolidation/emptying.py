"""Nodes that would be free as a whole if the few workloads on them ran elsewhere.

Nodes are tried in the order of what their workloads would lose. A node can be emptied if each workload with pods on it
finds a place on other nodes that are in use, and that saves more GPU-time than it loses; those of a node that was
emptied before count as where they went. What is saved is node-time by what is told of run times: the node is needed no
longer, and the nodes that take the workloads may be needed for longer, since lost work is done again. A workload of
unknown length is taken to run for ever.

As advice (``emptied``) nobody is moved, and the nodes that are empty are closed: it is known where each workload would
run. Where the moves are carried out (``first_emptied``), the workloads get the places that any decision gives them, so
a node counts only if those, too, leave it free and open no other.

The rule is our own (``tessera advise --pack``, ``tessera.packing.freeNodes``). A node costs a placement of each of its
workloads; ``MOST_TRIED`` nodes are tried, and a node with more than ``MOST_MOVES`` workloads is not.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from controller.objects.placeencoding import HOSTNAME_LABEL, Domain
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Move, Price, gpus_of
from controller.scheduler.consolidation.planner import elastic
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.flavors.assignment import Assignment, Mode
from controller.scheduler.model.resources import FlavorName, WorkloadKey, is_gpu
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.preemption.index import started_at_s
from controller.scheduler.preemption.moves import is_kept_in_place, price_of
from controller.scheduler.preemption.trialstarts import as_incoming, charge_assignment, moved_to
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.reservations.reservations import Reservations
from controller.scheduler.reservations.runtimes import ends_at_s
from controller.scheduler.topology.nodes import PODS

MOST_TRIED: Final = 256
MOST_MOVES: Final = 8
_FOR_EVER_S: Final = 1e12
"""The end of a workload of unknown length: of two such ends none is later."""
_MANY_PODS: Final = 1_000_000


class EmptyingMove(NamedTuple):
    holder: Holder
    move: Move
    price: Price


class Emptied(NamedTuple):
    """A node that would be free. ``saves_s``: node-seconds; None where that is for as long as its workloads run, and
    nobody knows how long that is.
    """

    node: str
    flavor: FlavorName
    moves: tuple[EmptyingMove, ...]
    saves_s: float | None


def emptied(cluster: Cluster, assigner: FlavorAssigner, reservations: Reservations, now_s: float) -> list[Emptied]:
    """The nodes that can be emptied one after the other, those that lose least first. The cluster is left as it was."""
    stays = elastic(cluster)
    nodes_emptied: list[Emptied] = []
    with cluster.trial():
        reservations.charge()
        emptying = _Emptying(cluster, assigner, now_s)
        for host in emptying.candidates():
            holders = emptying.on(host)
            if all(_may_move(cluster, holder) and holder.key not in stays for holder in holders):
                one = emptying.without(host, holders)
                if one is not None:
                    nodes_emptied.append(one)
    return nodes_emptied


def first_emptied(
    cluster: Cluster,
    assigner: FlavorAssigner,
    reservations: Reservations,
    now_s: float,
    may_move: Callable[[Holder], bool],
    most: int,
) -> Emptied | None:
    """The node whose work loses least, of those that are free once at most ``most`` workloads have moved to the places
    that the next cycle gives them. The cluster is left as it was.
    """
    stays = elastic(cluster)
    with cluster.trial():
        reservations.charge()
        emptying = _Emptying(cluster, assigner, now_s, closes=False)
        for host in emptying.candidates():
            holders = emptying.on(host)
            if len(holders) <= most and all(
                _may_move(cluster, holder) and holder.key not in stays and may_move(holder) for holder in holders
            ):
                one = emptying.without(host, holders)
                if one is not None:
                    return one
    return None


def _may_move(cluster: Cluster, holder: Holder) -> bool:
    if holder.evicted or started_at_s(holder) is None:
        return False
    return not is_kept_in_place(holder.info, cluster.kept_pods)


class _Emptying:
    """The nodes in one open trial. ``closes``: whether nodes that are empty, or become so, take nobody.

    ``_ends``: for each node that is in use the end of each workload there, as the moves so far have left it; empty for
    a node that others than these workloads use. ``_moved`` and ``_taken``: workloads that have moved, and nodes to
    which they went.
    """

    def __init__(self, cluster: Cluster, assigner: FlavorAssigner, now_s: float, *, closes: bool = True) -> None:
        self._cluster = cluster
        self._assigner = assigner
        self._closes = closes
        self._now_s = now_s
        self._max_grace_s = cluster.config.extensions.max_grace_s
        self._flavors: dict[str, FlavorName] = {}
        self._gpus: dict[str, int] = {}
        self._ends: dict[str, dict[WorkloadKey, float]] = {}
        self._moved: set[WorkloadKey] = set()
        self._taken: set[str] = set()
        for holder in cluster.holders.values():
            for host in _hosts(pod_set.topology for pod_set in holder.info.pod_sets):
                self._ends.setdefault(host, {})[holder.key] = self._end_s(holder)
        unused: list[str] = []
        for flavor in sorted(cluster.flavors):
            for node, _ in cluster.placement.free_by_node(flavor):
                host = node.labels.get(HOSTNAME_LABEL, node.name)
                self._flavors.setdefault(host, flavor)
                self._gpus[host] = sum(amount for name, amount in node.free.items() if is_gpu(name))
                if node.lends:
                    self._taken.add(host)
                elif host not in self._ends:
                    unused.append(host)
        if closes:
            for host in dict.fromkeys(unused):
                self._close(host)

    def candidates(self) -> Iterator[str]:
        """The nodes to be tried, those whose workloads lose least first."""
        losses: dict[str, float] = {}
        for host in self._ends:
            if host in self._flavors and len(self._ends[host]) <= MOST_MOVES:
                prices = (price_of(holder, self._now_s, self._max_grace_s) for holder in self.on(host))
                losses[host] = sum(price.work + price.restart for price in prices)
        for host in sorted(losses, key=lambda host: (losses[host], host))[:MOST_TRIED]:
            if host not in self._taken and self._moved.isdisjoint(self._ends[host]):
                yield host

    def on(self, host: str) -> list[Holder]:
        """The workloads with pods on the node, in the order in which they would start elsewhere."""
        holders = (self._cluster.holders[key] for key in self._ends[host])
        return sorted(holders, key=lambda holder: (-holder.priority, holder.queued_at_s, holder.key))

    def without(self, host: str, holders: Sequence[Holder]) -> Emptied | None:
        """The node without its workloads; None where one of them finds no other place, or nothing is saved."""
        cluster = self._cluster
        moves: list[EmptyingMove] = []
        with cluster.trial() as trial:
            for holder in holders:
                cluster.release(holder)
            if self._closes:
                self._close(host)
            for holder in holders:
                incoming = as_incoming(cluster, holder)
                assignment = self._assigner.assign(incoming)
                if assignment.mode is not Mode.FIT or not _is_placed(assignment):
                    return None
                charge_assignment(cluster, incoming, assignment)
                moves.append(
                    EmptyingMove(
                        holder,
                        moved_to(holder, assignment, self._now_s, self._max_grace_s),
                        price_of(holder, self._now_s, self._max_grace_s),
                    )
                )
            if not self._keeps_in_use(host, moves):
                return None
            after = self._after(moves)
            touched = after.keys() | {place for each in moves for place in each.move.leaves}
            saves_s = sum(map(self._in_use_s, (self._ends.get(place, {}) for place in touched)))
            saves_s -= sum(map(self._in_use_s, after.values()))
            lost = sum(each.price.work + each.price.restart for each in moves)
            if saves_s <= 0 or saves_s * self._gpus[host] < lost:
                return None
            trial.keep()
        self._ends |= after
        self._moved |= {each.holder.key for each in moves}
        self._taken |= {place for each in moves for place in each.move.goes_to}
        return Emptied(host, self._flavors[host], tuple(moves), saves_s if saves_s < _FOR_EVER_S / 2 else None)

    def _keeps_in_use(self, host: str, moves: Sequence[EmptyingMove]) -> bool:
        """Whether the workloads go only to nodes that are in use, and to another than this one."""
        in_use = (self._ends.keys() | self._taken) - {host}
        return all(place in in_use for each in moves for place in each.move.goes_to)

    def _after(self, moves: Sequence[EmptyingMove]) -> dict[str, dict[WorkloadKey, float]]:
        """The ends on the nodes that the moves leave or take, once they are done: lost work is done again."""
        after: dict[str, dict[WorkloadKey, float]] = {}

        def there(place: str) -> dict[WorkloadKey, float]:
            return after.setdefault(place, dict(self._ends.get(place, {})))

        for holder, move, _ in moves:
            for place in move.leaves:
                there(place).pop(holder.key, None)
        for holder, move, price in moves:
            again_s = (price.work + price.restart) / (gpus_of(holder) or 1.0)
            for place in move.goes_to:
                there(place)[holder.key] = min(self._end_s(holder) + again_s, _FOR_EVER_S)
        return after

    def _in_use_s(self, ends: dict[WorkloadKey, float]) -> float:
        return max(ends.values()) - self._now_s if ends else 0.0

    def _end_s(self, holder: Holder) -> float:
        end_s = ends_at_s(holder, self._now_s)
        return _FOR_EVER_S if end_s is None else end_s

    def _close(self, host: str) -> None:
        """Take all that the node has free: no workload finds a place there for the rest of the trial."""
        full = TopologyUsage(levels=(HOSTNAME_LABEL,), domains=(Domain((host,), 1),), single_pod={PODS: _MANY_PODS})
        self._cluster.placement.add(self._flavors[host], full)


def _is_placed(assignment: Assignment) -> bool:
    return any(pod_set.topology is not None for pod_set in assignment.pod_sets)


def _hosts(places: Iterable[TopologyUsage | None]) -> set[str]:
    known = (place for place in places if place is not None and place.levels[-1:] == (HOSTNAME_LABEL,))
    return {domain.values[-1] for place in known for domain in place.domains}
