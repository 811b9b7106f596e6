"""What a fleet with pools changes in a scenario before it runs, so that the engine places every pod on a node.

Flavors without a topology get one that has nodes alone, and topologies that end above the nodes go down to them. Every
node carries a label with its phase, and each pod prefers nodes that are there to those that are coming, and these to
those that would have to be ordered: of the last those of the pool that holds its pod set for the least money.
Preferences use the engine's own search (Kueue's gate TASRespectNodeAffinityPreferred), so that all else (selectors,
taints, levels, links of GPUs) holds for nodes that come as for those that are there.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from controller.insight.simulation.manifests import Scenario
from controller.insight.simulation.pools.nodepools import NodePhase
from controller.insight.simulation.pools.specs import Pool
from controller.insight.simulation.submissions import Submission
from controller.objects.core import (
    Affinity,
    Node,
    NodeAffinity,
    NodeSelectorTerm,
    PodTemplateSpec,
    PreferredSchedulingTerm,
)
from controller.objects.meta import KubernetesObject, LabelSelectorRequirement, ObjectMeta
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.objects.queues import (
    AdmissionCheck,
    ClusterQueue,
    LocalQueue,
    ResourceFlavor,
    ResourceGroup,
    Topology,
    TopologyLevel,
    TopologySpec,
)
from controller.objects.workload import PodSet, PodSetTopologyRequest
from controller.scheduler.flavors.spot import PREFERRED
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.gates import DEFAULTS, FeatureGates
from controller.scheduler.model.podrequests import amounts, one_pod
from controller.scheduler.model.resources import Amount, ResourceName, is_gpu
from inventory.api.names import IMPLIED_TOPOLOGY, PREFIX, SPOT

_PHASE: Final = f"{PREFIX}simulated-phase"
_TOPOLOGY: Final = IMPLIED_TOPOLOGY
_PROVISIONING: Final = "kueue.x-k8s.io/provisioning-request"
_PREFERENCES: Final = "TASRespectNodeAffinityPreferred"
_COMING: Final = 10**9
_PRESENT: Final = 10**15
"""Weights: a domain's score sums those of its nodes, so each outweighs all nodes of the lesser phases together."""

_replace: Final = msgspec.structs.replace


def pooled(scenario: Scenario, config: EngineConfig) -> tuple[Scenario, EngineConfig]:
    """The scenario and the configuration under which nodes count everywhere; both as they are for a fleet in which no
    node comes or goes.
    """
    if not scenario.pools:
        return scenario, config
    flavors = {each.metadata.name: each for each in scenario.objects if isinstance(each, ResourceFlavor)}
    clusters = {each.metadata.name: each for each in scenario.objects if isinstance(each, ClusterQueue)}
    groups = {name: _deciding(queue, flavors) for name, queue in clusters.items()}
    placing = frozenset(quotas.name for each in groups.values() for group in each for quotas in group.flavors)
    hosts = Topology(
        metadata=ObjectMeta(name=_TOPOLOGY), spec=TopologySpec(levels=(TopologyLevel(node_label=HOSTNAME_LABEL),))
    )
    asking = _Asking(scenario, clusters, groups, keeps_own=config.gates.on(_PREFERENCES))
    submissions = tuple(map(asking.submission, scenario.submissions))
    objects = (hosts, *(_on_nodes(each, placing) for each in scenario.objects))
    return _replace(scenario, objects=objects, submissions=submissions), _config(config)


def _config(config: EngineConfig) -> EngineConfig:
    """The configuration with which preferences and words on spot nodes count, and pods without a level go to the fewest
    nodes.
    """
    gates = {name: config.gates.on(name) for name in DEFAULTS}
    return _replace(
        config,
        gates=FeatureGates({**gates, _PREFERENCES: True, "TASProfileMixed": False}),
        extensions=_replace(config.extensions, spot_words=True),
    )


def in_phase(node: Node, phase: NodePhase, pool: str) -> Node:
    """The node with its phase. One that is leaving takes no more pods."""
    value = _absent(pool) if phase is NodePhase.ABSENT else phase.value
    metadata = _replace(node.metadata, labels={**node.metadata.labels, _PHASE: value})
    cordoned = node.spec.unschedulable or phase is NodePhase.LEAVING
    return _replace(node, metadata=metadata, spec=_replace(node.spec, unschedulable=cordoned))


# -- flavors and topologies --------------------------------------------------------------------------------------------


def _deciding(queue: ClusterQueue, flavors: Mapping[str, ResourceFlavor]) -> tuple[ResourceGroup, ...]:
    """The resource groups whose flavors' nodes the queue's pods run on. A pod runs on the nodes of one flavor: of
    several groups those decide that name a topology, or else the first with GPUs, or else the first.
    """

    def names_topology(group: ResourceGroup) -> bool:
        found = (flavors.get(quotas.name) for quotas in group.flavors)
        return any(flavor is not None and flavor.spec.topology_name is not None for flavor in found)

    groups = queue.spec.resource_groups
    named = tuple(filter(names_topology, groups))
    with_gpus = tuple(group for group in groups if any(map(is_gpu, group.covered_resources)))
    return named or with_gpus[:1] or groups[:1]


def _answered(given: AdmissionCheck) -> AdmissionCheck:
    """A check that asks an autoscaler for nodes as one that any controller answers: places would else be chosen after
    it, and pools stand for the autoscaler.
    """
    if given.spec.controller_name != _PROVISIONING:
        return given
    return _replace(given, spec=_replace(given.spec, controller_name=_TOPOLOGY))


def _on_nodes(given: KubernetesObject, placing: frozenset[str]) -> KubernetesObject:
    if isinstance(given, ResourceFlavor):
        if given.spec.topology_name is None and given.metadata.name in placing:
            return _replace(given, spec=_replace(given.spec, topology_name=_TOPOLOGY))
    elif isinstance(given, AdmissionCheck):
        return _answered(given)
    elif isinstance(given, Topology):
        levels = given.spec.levels
        if levels and levels[-1].node_label != HOSTNAME_LABEL:
            return _replace(
                given, spec=_replace(given.spec, levels=(*levels, TopologyLevel(node_label=HOSTNAME_LABEL)))
            )
    return given


# -- workloads ---------------------------------------------------------------------------------------------------------


class _Asking:
    """Makes the pods of submissions ask for what a fleet with pools needs to know of them."""

    def __init__(
        self,
        scenario: Scenario,
        clusters: Mapping[str, ClusterQueue],
        deciding: Mapping[str, tuple[ResourceGroup, ...]],
        *,
        keeps_own: bool,
    ) -> None:
        """``deciding``: see ``_deciding``, by queue. ``keeps_own``: pods' own preferences count too."""
        nodes = {each.metadata.name: each for each in scenario.objects if isinstance(each, Node)}
        self._pools = {
            pool: amounts(nodes[pool.nodes[0]].status.allocatable) for pool in scenario.pools.pools if pool.nodes
        }
        self._locals = {each.key: each for each in scenario.objects if isinstance(each, LocalQueue)}
        self._clusters = clusters
        self._deciding = deciding
        self._keeps_own = keeps_own

    def submission(self, given: Submission) -> Submission:
        """The submission whose pods prefer nodes that are there, and are placed."""
        workload = given.workload
        local = self._locals.get(f"{workload.metadata.namespace}/{workload.spec.queue_name}")
        queue = self._clusters.get(local.spec.cluster_queue) if local is not None else None
        on = (each.metadata.annotations.get(SPOT, "") for each in (local, queue) if each is not None)
        spot = given.spot or next(filter(None, on), "allowed")
        resources = self._resources(queue)
        pod_sets = tuple(
            _replace(
                _unconstrained(each, resources),
                template=_preferring(each.template, _preferences(self._pools, spot, each), keeps_own=self._keeps_own),
            )
            for each in workload.spec.pod_sets
        )
        metadata = workload.metadata
        if given.spot:
            metadata = _replace(metadata, annotations={**metadata.annotations, SPOT: given.spot})
        asking = _replace(workload, metadata=metadata, spec=_replace(workload.spec, pod_sets=pod_sets))
        return _replace(given, workload=asking)

    def _resources(self, queue: ClusterQueue | None) -> frozenset[str]:
        """The resources that bring a pod onto a node, of a queue that has others too; empty where all do: there the
        engine places every pod by itself.
        """
        deciding = self._deciding.get(queue.metadata.name, ()) if queue is not None else ()
        if queue is None or len(deciding) == len(queue.spec.resource_groups):
            return frozenset()
        return frozenset(name for group in deciding for name in group.covered_resources)


def _unconstrained(pod_set: PodSet, resources: frozenset[str]) -> PodSet:
    """The pod set that asks for places if it requests one of these resources, or claims devices."""
    asked = pod_set.topology_request or PodSetTopologyRequest()
    spec = pod_set.template.spec
    if asked.names_places or (resources.isdisjoint(one_pod(spec)) and not (resources and spec.resource_claims)):
        return pod_set
    return _replace(pod_set, topology_request=_replace(asked, unconstrained=True))


def _preferring(
    template: PodTemplateSpec, wishes: tuple[PreferredSchedulingTerm, ...], *, keeps_own: bool
) -> PodTemplateSpec:
    """The template with these preferences. Its own preferences stay if they count: ``keeps_own``."""
    affinity = template.spec.affinity or Affinity()
    own = affinity.node_affinity or NodeAffinity()
    kept = own.preferred_during_scheduling_ignored_during_execution if keeps_own else ()
    joined = _replace(own, preferred_during_scheduling_ignored_during_execution=(*kept, *wishes))
    return _replace(template, spec=_replace(template.spec, affinity=_replace(affinity, node_affinity=joined)))


def _cost(pool: Pool, size: Mapping[ResourceName, Amount], pod_set: PodSet) -> float:
    """What an hour of the nodes costs that hold all pods of the set; infinite if a node holds none."""
    asked = {name: amount for name, amount in one_pod(pod_set.template.spec).items() if amount > 0}
    each = min((size.get(name, 0) // amount for name, amount in asked.items()), default=pod_set.count or 1)
    return math.ceil(pod_set.count / each) * pool.price_per_hour if each > 0 else math.inf


def _preferences(
    pools: Mapping[Pool, Mapping[ResourceName, Amount]], spot: str, pod_set: PodSet
) -> tuple[PreferredSchedulingTerm, ...]:
    def rank(pool: Pool) -> tuple[bool, float]:
        return (spot == PREFERRED and not pool.spot, _cost(pool, pools[pool], pod_set))

    given = list(pools)
    ranks = sorted({rank(pool) for pool in given}, reverse=True)
    weights = {NodePhase.PRESENT.value: _PRESENT, NodePhase.COMING.value: _COMING}
    absent = {_absent(pool.name): ranks.index(rank(pool)) + 1 for pool in given}
    return tuple(
        PreferredSchedulingTerm(
            weight=weight,
            preference=NodeSelectorTerm(
                match_expressions=(LabelSelectorRequirement(key=_PHASE, operator="In", values=(value,)),)
            ),
        )
        for value, weight in (weights | absent).items()
    )


def _absent(pool: str) -> str:
    """The phase of an absent node by its pool: pools differ in price."""
    return f"{NodePhase.ABSENT.value}.{pool}"
