"""Sets of nodes that a gang may be placed on, by its topology: they are tried one after another until one holds the
whole gang.

Source: the topology plugin of KAI Scheduler. A domain is the set of nodes that agree in a level's label and in all
labels above it. Domains of the preferred level come first, then those above it up to the required level, or to all
nodes where none is required. Within one level the domain with the fullest domains above it comes first, then the
fullest. Where a set is larger than one preferred domain, the nodes of the roomiest preferred domain come first in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from controller.scheduler.kai.gangs.gang import GPU, USED, NodeName, Task, TopologyConstraint
from controller.scheduler.kai.gangs.machine import Machine, When
from controller.scheduler.kai.gangs.session import GangSession

Domain = tuple[str, ...]


@dataclass(frozen=True)
class NodeSet:
    """Nodes to place on. ``rank``: lower ranks are preferred to higher ones; a node not in it has rank 0."""

    machines: Sequence[Machine]
    rank: Mapping[NodeName, int]


def node_sets(
    session: GangSession,
    nodes: NodeSet,
    constraint: TopologyConstraint | None,
    tasks: Sequence[Task],
    placed: Sequence[Task],
) -> Iterator[NodeSet]:
    """The sets of nodes to try, in order. ``tasks`` are to be placed; ``placed`` of the same gang have places, which
    pin the required domain.
    """
    if constraint is None or not (constraint.required or constraint.preferred):
        yield nodes
        return
    pinned = _pinned(session, nodes.machines, constraint, placed)
    for depth in _depths(constraint):
        domains = _domains(pinned, constraint.levels[:depth])
        free = _free_by_domain(pinned, constraint.levels[:depth])
        for domain in sorted(domains, key=lambda domain: _fullness(domain, free)):
            if _holds(domains[domain], tasks):
                yield NodeSet(domains[domain], _rank(domains[domain], constraint) or nodes.rank)
    if not constraint.required:
        yield NodeSet(nodes.machines, _rank(nodes.machines, constraint) or nodes.rank)


def _depths(constraint: TopologyConstraint) -> list[int]:
    """The numbers of labels, from that of the preferred level up to that of the required one."""
    depth = {level: index + 1 for index, level in enumerate(constraint.levels)}
    if constraint.required and constraint.required not in depth:
        return []
    top = depth.get(constraint.required, 1)
    start = depth.get(constraint.preferred, top)
    return list(range(start, top - 1, -1)) or [top]


def _pinned(
    session: GangSession, machines: Sequence[Machine], constraint: TopologyConstraint, placed: Sequence[Task]
) -> Sequence[Machine]:
    if constraint.required not in constraint.levels:
        return machines
    labels = constraint.levels[: constraint.levels.index(constraint.required) + 1]
    used = [task.node for task in placed if task.phase in USED and task.node is not None]
    domains = {_domain(session.machines[node], labels) for node in used}
    return [machine for machine in machines if _domain(machine, labels) in domains] if domains else machines


def _domain(machine: Machine, labels: Sequence[str]) -> Domain:
    return tuple(machine.labels.get(label, "") for label in labels)


def _domains(machines: Sequence[Machine], labels: Sequence[str]) -> dict[Domain, list[Machine]]:
    """The nodes by domain; a node without one of the labels is in no domain."""
    found: dict[Domain, list[Machine]] = {}
    for machine in machines:
        if all(label in machine.labels for label in labels):
            found.setdefault(_domain(machine, labels), []).append(machine)
    return found


def _free_by_domain(machines: Sequence[Machine], labels: Sequence[str]) -> dict[Domain, float]:
    return {
        domain: _free_gpus(inside)
        for depth in range(1, len(labels) + 1)
        for domain, inside in _domains(machines, labels[:depth]).items()
    }


def _fullness(domain: Domain, free: Mapping[Domain, float]) -> tuple[float, ...]:
    """The sort key of a domain: smaller is fuller; the domain at the top counts first."""
    return tuple(free.get(domain[:depth], 0.0) for depth in range(1, len(domain) + 1))


def _rank(machines: Sequence[Machine], constraint: TopologyConstraint) -> dict[NodeName, int]:
    """The rank of each node; empty without a preferred level. Among equal domains the last by name comes first, as in
    KAI.
    """
    if constraint.preferred not in constraint.levels:
        return {}
    labels = constraint.levels[: constraint.levels.index(constraint.preferred) + 1]
    domains = _domains(machines, labels)
    order = sorted(domains, key=lambda domain: (_free_gpus(domains[domain]), domain), reverse=True)
    rank = {machine.name: index for index, domain in enumerate(order) for machine in domains[domain]}
    return {machine.name: rank.get(machine.name, len(order)) for machine in machines}


def _holds(domain: Sequence[Machine], tasks: Sequence[Task]) -> bool:
    """Whether so many copies of a task have room on nodes that are open to it; True for tasks that differ, or share
    GPUs: the trial decides on these.
    """
    kinds = {(tuple(sorted(task.request.asked.items())), task.node_kinds) for task in tasks}
    if len(kinds) != 1 or tasks[0].request.is_shared:
        return True
    need, open_to = tasks[0].request.asked, tasks[0].node_kinds
    count = 0
    for machine in domain:
        if open_to is not None and machine.name not in open_to:
            continue
        room = machine.room(When.LATER).amounts
        count += int(max(0.0, min(room.get(name, 0.0) // amount for name, amount in need.items())))
    return count >= len(tasks)


def _free_gpus(domain: Sequence[Machine]) -> float:
    return sum(machine.room(When.LATER).amounts.get(GPU, 0.0) for machine in domain)
