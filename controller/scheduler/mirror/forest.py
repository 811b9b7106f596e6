"""Decides which Queues of both systems are valid and which are refused, and makes the engine's objects for them.

A leaf is a ClusterQueue, any other Queue a cohort without quota of its own, and each system has one root cohort with
what the nodes offer; the rules of the system decide how that is divided. Cohorts are named with a slash,
which no object's name has, so none has the name of a user's cohort. One flavor covers all nodes, and places every pod
on one of them; a system whose own scheduler chooses nodes has another flavor, which places none.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from controller.objects.meta import KubernetesObject, ObjectMeta
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.objects.queues import (
    ClusterQueue,
    ClusterQueueSpec,
    Cohort,
    CohortSpec,
    FlavorQuotas,
    ResourceFlavor,
    ResourceFlavorSpec,
    ResourceGroup,
    ResourceQuota,
    Topology,
    TopologyLevel,
    TopologySpec,
)
from controller.scheduler.mirror.specs import ADOPTED, Adoption, Bounds, MirroredName, QueueSpec, System
from controller.scheduler.model.resources import Amount, ResourceName
from controller.scheduler.quota.queueusage import quantity_of
from inventory.api.names import ALL_NODES, QUOTA_ALONE

FLAVOR: Final = ResourceFlavor(metadata=ObjectMeta(name=ALL_NODES), spec=ResourceFlavorSpec(topology_name=ALL_NODES))
UNPLACED: Final = ResourceFlavor(metadata=ObjectMeta(name=QUOTA_ALONE))
EngineObjects = Mapping[tuple[type[KubernetesObject], str], KubernetesObject]
"""The objects that the engine takes in, by type and name, in the order in which it does."""


class Forest(msgspec.Struct, frozen=True):
    """The valid Queues. ``queues``: valid ones by name; the parent of each is valid too. ``problems``: why others are
    refused, by system and name, since two systems may each have a Queue of one name.
    """

    queues: Mapping[MirroredName, QueueSpec]
    problems: Mapping[tuple[System, MirroredName], str]
    parents: Collection[MirroredName]
    """Queues that have others below them; they take no jobs."""

    def leaves(self, system: System | None = None) -> Iterator[QueueSpec]:
        for name, spec in self.queues.items():
            if name not in self.parents and system in (None, spec.system):
                yield spec

    def path(self, name: MirroredName) -> Iterator[QueueSpec]:
        """The Queue and those above it, itself first."""
        while name:
            yield self.queues[name]
            name = self.queues[name].parent


NO_QUEUES: Final = Forest({}, {}, frozenset())


def forest(specs: Iterable[QueueSpec], taken: Collection[str]) -> Forest:
    """The forest of these Queues. ``taken``: names of ClusterQueues. Of two Queues of one name the older is valid; one
    that has an object takes precedence over an implied one.
    """
    problems: dict[tuple[System, MirroredName], str] = {}
    standing: dict[MirroredName, QueueSpec] = {}
    every = sorted(specs, key=lambda spec: (spec.implied, spec.created_s, spec.system, spec.name))
    for spec in every:
        other = standing.get(spec.name)
        if spec.name in taken:
            problems[spec.system, spec.name] = (
                f"metadata.name: expected a name of its own, found {spec.name!r}, which a ClusterQueue has"
            )
        elif other is not None and other.system is spec.system:
            continue
        elif other is not None:
            problems[spec.system, spec.name] = (
                f"metadata.name: expected a name of its own, found {spec.name!r}, which a Queue of {other.system} has"
            )
        else:
            standing[spec.name] = spec
    while (orphans := {name: why for name, spec in standing.items() if (why := _orphan(spec, standing))}) != {}:
        for name, why in orphans.items():
            problems[standing.pop(name).system, name] = why
    parents = {spec.parent for spec in every if spec.parent in standing and standing[spec.parent].system is spec.system}
    return Forest(dict(sorted(standing.items())), problems, parents)


def _orphan(spec: QueueSpec, standing: Mapping[MirroredName, QueueSpec]) -> str:
    """Why the Queue's path to the top is broken; empty where it is not."""
    field = spec.system.parent_field
    above, seen = spec, {spec.name}
    while above.parent:
        parent = standing.get(above.parent)
        if parent is None or parent.system is not spec.system:
            return f"{field}: expected a Queue that is there, found {above.parent!r}"
        if parent.name in seen:
            return f"{field}: expected a tree, found {spec.parent!r}, which is below the Queue itself"
        seen.add(parent.name)
        above = parent
    return ""


def root_cohort(system: System) -> str:
    return f"nodes/{system}"


def cohort_name(spec: QueueSpec) -> str:
    """The name of the cohort for a Queue with others below it."""
    return f"{spec.system}/{spec.name}"


def told(
    given: Forest, capacity: Mapping[ResourceName, Amount], adopted: Mapping[System, Adoption] | None = None
) -> EngineObjects:
    """The engine's objects for the Queues; none without Queues. ``adopted``: ``ADOPTED`` where absent."""
    if not given.queues:
        return {}
    covered, how = _covered(given.queues.values(), capacity), adopted or {}
    made: list[KubernetesObject] = [_topology(how), FLAVOR, UNPLACED]
    for system in sorted({spec.system for spec in given.queues.values()}):
        quotas = _group(covered, capacity, how.get(system, ADOPTED))
        made.append(_cohort(root_cohort(system), "", quotas))
    for spec in given.queues.values():
        above = cohort_name(given.queues[spec.parent]) if spec.parent else root_cohort(spec.system)
        if spec.name in given.parents:
            made.append(_cohort(cohort_name(spec), above, ()))
        else:
            adoption = how.get(spec.system, ADOPTED)
            stopped = any(each.stopped for each in given.path(spec.name))
            made.append(_cluster_queue(spec, above, _group(covered, {}, adoption), adoption, stopped=stopped))
    return {(type(each), each.metadata.name): each for each in made}


def _topology(how: Mapping[System, Adoption]) -> Topology:
    """The topology of all nodes: hosts, and above them the levels that a system's jobs may name."""
    labels = dict.fromkeys(label for _, each in sorted(how.items()) for label in each.levels)
    levels = tuple(TopologyLevel(node_label=label) for label in (*labels, HOSTNAME_LABEL))
    return Topology(metadata=ObjectMeta(name=ALL_NODES), spec=TopologySpec(levels=levels))


def _covered(specs: Iterable[QueueSpec], capacity: Mapping[ResourceName, Amount]) -> tuple[ResourceName, ...]:
    """The resources that a job may request: those that some node offers or some Queue names. Pods are counted by nodes,
    not by queues.
    """
    named: set[ResourceName] = set(capacity)
    for spec in specs:
        bounds: tuple[Bounds, ...] = (spec.quota, spec.limit, spec.guarantee)
        named.update(*bounds)
    return tuple(sorted(named - {ResourceName("pods")}))


def _group(
    covered: tuple[ResourceName, ...], amounts: Mapping[ResourceName, Amount], adoption: Adoption
) -> tuple[ResourceGroup, ...]:
    quotas = tuple(ResourceQuota(name=name, nominal_quota=quantity_of(name, amounts.get(name, 0))) for name in covered)
    flavors = (FlavorQuotas(name=ALL_NODES if adoption.places else QUOTA_ALONE, resources=quotas),)
    return (ResourceGroup(covered_resources=covered, flavors=flavors),) if covered else ()


def _cohort(name: str, parent: str, groups: tuple[ResourceGroup, ...]) -> Cohort:
    return Cohort(metadata=ObjectMeta(name=name), spec=CohortSpec(parent_name=parent, resource_groups=groups))


def _cluster_queue(
    spec: QueueSpec, cohort: str, groups: tuple[ResourceGroup, ...], adoption: Adoption, *, stopped: bool
) -> ClusterQueue:
    return ClusterQueue(
        metadata=ObjectMeta(name=spec.name, uid=spec.uid),
        spec=ClusterQueueSpec(
            resource_groups=groups,
            cohort_name=cohort,
            namespace_selector=adoption.namespaces,
            stop_policy="Hold" if stopped else "None",
        ),
    )
