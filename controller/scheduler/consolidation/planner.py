"""Finds running workloads of ClusterQueues that move so that a workload fits which only lacks places.

The search is that of gangs: tasks on nodes, victims and places chosen together. The engine, which knows quota, devices
and links, must then find a place for each of them; where it finds none, the search goes on. Victims are taken from the
nodes that cost the least lost work to free.

The rule is our own (``tessera.consolidation``), the search is ``GangSearch``. A plan leaves the cluster as it was, and
holds only with all of its moves. A plan over 2,000 nodes takes 70 ms: a turn looks at 8 shapes at most.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming, PreemptionReason, Target
from controller.scheduler.consolidation.sources import ranked
from controller.scheduler.decisions.records import Rule
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.flavors.assignment import Assignment
from controller.scheduler.kai.gangs.actions import all_moved
from controller.scheduler.kai.gangs.gang import ACTIVE, CPU, GPU, MEMORY, USED, Gang, GangName, TopologyConstraint
from controller.scheduler.kai.gangs.search import GangSearch, Steps
from controller.scheduler.kai.gangs.session import CycleLimits, GangSession, running
from controller.scheduler.kai.gangs.shares import GangQueue
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.turn.gangmodel import GangModel
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.model.workload import WorkloadInfo, minimum_of
from controller.scheduler.preemption.moves import lost_gpu_seconds
from controller.scheduler.preemption.trialstarts import as_incoming, assigned_without, moved_to
from controller.scheduler.queues.entry import Entry
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.topology.requests import topology_request

MayMove = Callable[[Holder], bool]
"""Returns whether a holder may be moved, regardless of its pods' own annotations."""

_UNBOUNDED: Final = dict.fromkeys((CPU, MEMORY, GPU), math.inf)
_ALL: Final = GangQueue(QueueName("all"), None, _UNBOUNDED, _UNBOUNDED, {})
"""One queue without limits: the engine itself looks at quota."""


class MovePlan(NamedTuple):
    """The workload's assignment, and the moves that it needs: all of ``moves``, or the plan does not hold."""

    assignment: Assignment
    moves: tuple[Target, ...]


def lacks_places(entry: Entry) -> bool:
    """Whether the entry was refused although its ClusterQueue's own quota holds it: its pods would have places on empty
    nodes, and nothing may be preempted for them.
    """
    assignment = entry.assignment
    return (
        entry.rule is Rule.NO_CANDIDATES
        and entry.incoming.replaces is None
        and assignment.borrowing == 0
        and any(pod_set.topology is not None for pod_set in assignment.pod_sets)
        and entry.incoming.queue.node.fits(assignment.usage)
    )


class Planner:
    """Plans moves for one entry at a time. ``most``: how many workloads may move."""

    def __init__(self, cluster: Cluster, assigner: FlavorAssigner, now_s: float, most: int) -> None:
        self._cluster = cluster
        self._assigner = assigner
        self._now_s = now_s
        self._most = most
        self._max_grace_s = cluster.config.extensions.max_grace_s

    def plan(self, entry: Entry, may_move: MayMove) -> MovePlan | None:
        """A plan for an entry that lacks places; None if there is none. The cluster is left as it was."""
        flavor = self._flavor(entry.assignment)
        if flavor is None or self._most < 1:
            return None
        model = GangModel(self._cluster, None, flavor)
        gang = model.add(entry.incoming.info, _ALL.name, entry.incoming.priority, -math.inf)
        self._constrain(gang, entry.incoming.info, flavor)
        holders: dict[GangName, Holder] = {}
        whole = elastic(self._cluster)
        for holder in self._on(flavor):
            if (
                holder.key in whole
                or holder.evicted
                or holder.priority > entry.incoming.priority
                or not may_move(holder)
            ):
                continue
            held = model.hold(holder, _ALL.name)
            self._constrain(held, holder.info, flavor)
            holders[held.name] = holder
        running(model.nodes, model.gangs.values())
        lost = {name: lost_gpu_seconds(holder, self._now_s, self._max_grace_s) for name, holder in holders.items()}
        for at, name in enumerate(ranked(model, gang, lost)):
            # Victims of equal priority are taken youngest first.
            model.gangs[name].created = -float(at)
        limits = CycleLimits(moves=self._most)
        session = GangSession(model.nodes.values(), model.gangs.values(), [_ALL], limits)
        return self._solved(entry, session, gang, holders)

    def _solved(
        self, entry: Entry, session: GangSession, gang: Gang, holders: Mapping[GangName, Holder]
    ) -> MovePlan | None:
        plans: list[MovePlan] = []
        pure = all_moved(self._most)

        def allows(steps: Steps) -> bool:
            if not pure(steps):
                return False
            if any(task.phase not in USED for task in gang.tasks()):
                return True
            plan = self._carried_out(entry, _moving(steps, holders))
            if plan is not None:
                plans.append(plan)
            return plan is not None

        def victims() -> Iterator[Gang]:
            return (session.gangs[name] for name in holders if session.gangs[name].movable)

        search = GangSearch(session, victims, allows, session.limits.consolidation_victims)
        return plans[-1] if search.solve(gang) is not None and plans else None

    def _carried_out(self, entry: Entry, moving: Sequence[Holder]) -> MovePlan | None:
        """The plan if the engine finds places for all, else None. The workload is placed first: what its victims leave
        is kept for it until it starts.
        """
        starting: list[Incoming] = [as_incoming(self._cluster, holder) for holder in moving]
        starting.sort(key=lambda incoming: (-incoming.priority, incoming.queued_at_s, incoming.key))
        assignments = assigned_without(self._cluster, self._assigner, moving, [entry.incoming, *starting])
        if assignments is None or not moving or assignments[entry.key].borrowing:
            return None
        moves = (
            (holder, moved_to(holder, assignments[holder.key], self._now_s, self._max_grace_s)) for holder in moving
        )
        targets = tuple(Target(holder, PreemptionReason.CONSOLIDATION, move) for holder, move in moves)
        return MovePlan(assignments[entry.key], targets)

    def _flavor(self, assignment: Assignment) -> FlavorName | None:
        """The flavor whose nodes the assignment's pods run on; None where there are several."""
        flavors = {
            self._cluster.on_nodes(choice.flavor for choice in pod_set.choices.values())
            for pod_set in assignment.pod_sets
            if pod_set.topology is not None
        }
        return flavors.pop() if len(flavors) == 1 else None

    def _on(self, flavor: FlavorName) -> Iterator[Holder]:
        """The holders that have places on the flavor's nodes and nowhere else."""
        for holder in self._cluster.holders.values():
            placed = [pod_set for pod_set in holder.info.pod_sets if pod_set.topology is not None]
            if placed and all(self._cluster.on_nodes(pod_set.flavors.values()) == flavor for pod_set in placed):
                yield holder

    def _constrain(self, gang: Gang, info: WorkloadInfo, flavor: FlavorName) -> None:
        """Set the topology constraints of the gang's pod sets. The engine itself looks at slices and groups of pod
        sets.
        """
        named = self._cluster.flavors[flavor].spec.topology_name
        topology = self._cluster.topologies.get(named) if named is not None else None
        if topology is None:
            return
        levels = tuple(level.node_label for level in topology.spec.levels)
        for pod_set, spec in zip(gang.pod_sets.values(), info.workload.spec.pod_sets, strict=True):
            asked = topology_request(spec)
            if asked.required or asked.preferred:
                pod_set.constraint = TopologyConstraint(levels, asked.required or "", asked.preferred or "")


def elastic(cluster: Cluster) -> set[WorkloadKey]:
    """Minimums with pods above them, and those pods: one would move without the others, which are one gang."""
    above = {
        holder.key: minimum
        for holder in cluster.holders.values()
        if (minimum := minimum_of(holder.info.workload)) is not None
    }
    return {*above, *above.values()}


def _moving(steps: Steps, holders: Mapping[GangName, Holder]) -> list[Holder]:
    moved: Iterable[GangName] = (
        step.gang.name for step in steps if any(task.phase not in ACTIVE for task in step.tasks)
    )
    return [holders[name] for name in dict.fromkeys(moved)]
