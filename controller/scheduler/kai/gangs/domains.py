"""Sets of nodes that a gang may be placed on, by its topology: they are tried one after another until one holds the
whole gang.

Source: the topology plugin of KAI Scheduler. A domain is the set of nodes that agree in a level's label and in all
labels above it. Domains of the preferred level come first, then those above it up to the required level, or to all
nodes where none is required. Within one level the domain with the fullest domains above it comes first, then the
fullest. Where a set is larger than one preferred domain, the nodes of the freest preferred domain come first in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from controller.scheduler.kai.gangs.gang import GPU, USED, NodeName, Task, TopologyConstraint
from controller.scheduler.kai.gangs.kainode import KaiNode, When
from controller.scheduler.kai.gangs.session import GangSession

Domain = tuple[str, ...]


@dataclass(frozen=True)
class NodeSet:
    """Nodes to place on. ``rank``: lower ranks are preferred to higher ones; a node not in it has rank 0."""

    members: Sequence[KaiNode]
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
    pinned = _pinned(session, nodes.members, constraint, placed)
    for depth in _depths(constraint):
        domains = _domains(pinned, constraint.levels[:depth])
        free = _free_by_domain(pinned, constraint.levels[:depth])
        for domain in sorted(domains, key=lambda domain: _fullness(domain, free)):
            if _holds(domains[domain], tasks):
                yield NodeSet(domains[domain], _rank(domains[domain], constraint) or nodes.rank)
    if not constraint.required:
        yield NodeSet(nodes.members, _rank(nodes.members, constraint) or nodes.rank)


def _depths(constraint: TopologyConstraint) -> list[int]:
    """The numbers of labels, from that of the preferred level up to that of the required one."""
    depth = {level: index + 1 for index, level in enumerate(constraint.levels)}
    if constraint.required and constraint.required not in depth:
        return []
    top = depth.get(constraint.required, 1)
    start = depth.get(constraint.preferred, top)
    return list(range(start, top - 1, -1)) or [top]


def _pinned(
    session: GangSession, nodes: Sequence[KaiNode], constraint: TopologyConstraint, placed: Sequence[Task]
) -> Sequence[KaiNode]:
    if constraint.required not in constraint.levels:
        return nodes
    labels = constraint.levels[: constraint.levels.index(constraint.required) + 1]
    used = [task.node for task in placed if task.phase in USED and task.node is not None]
    domains = {_domain(session.nodes[node], labels) for node in used}
    return [node for node in nodes if _domain(node, labels) in domains] if domains else nodes


def _domain(node: KaiNode, labels: Sequence[str]) -> Domain:
    return tuple(node.labels.get(label, "") for label in labels)


def _domains(nodes: Sequence[KaiNode], labels: Sequence[str]) -> dict[Domain, list[KaiNode]]:
    """The nodes by domain; a node without one of the labels is in no domain."""
    by_domain: dict[Domain, list[KaiNode]] = {}
    for node in nodes:
        if all(label in node.labels for label in labels):
            by_domain.setdefault(_domain(node, labels), []).append(node)
    return by_domain


def _free_by_domain(nodes: Sequence[KaiNode], labels: Sequence[str]) -> dict[Domain, float]:
    return {
        domain: _free_gpus(inside)
        for depth in range(1, len(labels) + 1)
        for domain, inside in _domains(nodes, labels[:depth]).items()
    }


def _fullness(domain: Domain, free: Mapping[Domain, float]) -> tuple[float, ...]:
    """The sort key of a domain: smaller is fuller; the domain at the top counts first."""
    return tuple(free.get(domain[:depth], 0.0) for depth in range(1, len(domain) + 1))


def _rank(nodes: Sequence[KaiNode], constraint: TopologyConstraint) -> dict[NodeName, int]:
    """The rank of each node; empty without a preferred level. Among equal domains the last by name comes first, as in
    KAI.
    """
    if constraint.preferred not in constraint.levels:
        return {}
    labels = constraint.levels[: constraint.levels.index(constraint.preferred) + 1]
    domains = _domains(nodes, labels)
    order = sorted(domains, key=lambda domain: (_free_gpus(domains[domain]), domain), reverse=True)
    rank = {node.name: index for index, domain in enumerate(order) for node in domains[domain]}
    return {node.name: rank.get(node.name, len(order)) for node in nodes}


def _holds(domain: Sequence[KaiNode], tasks: Sequence[Task]) -> bool:
    """Whether so many copies of a task fit on nodes that are open to it; True for tasks that differ, or share
    GPUs: the trial decides on these.
    """
    kinds = {(tuple(sorted(task.request.asked.items())), task.node_kinds) for task in tasks}
    if len(kinds) != 1 or tasks[0].request.is_shared:
        return True
    need, open_to = tasks[0].request.asked, tasks[0].node_kinds
    count = 0
    for node in domain:
        if open_to is not None and node.name not in open_to:
            continue
        free = node.free(When.LATER).amounts
        count += int(max(0.0, min(free.get(name, 0.0) // amount for name, amount in need.items())))
    return count >= len(tasks)


def _free_gpus(domain: Sequence[KaiNode]) -> float:
    return sum(node.free(When.LATER).amounts.get(GPU, 0.0) for node in domain)
