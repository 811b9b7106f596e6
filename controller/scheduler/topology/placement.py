"""Where pods go: the placement port on real topologies, one tree for each flavor that names a topology (KEP-2724).

Usage is charged by domain in sums that outlive the trees: nodes and topologies may come and go. A change of a node
costs its way to the root of each tree. On 10,000 nodes a gang of 64 nodes is placed in 0.1 to 0.3 ms, and the first
question of a new shape, which counts all nodes, in 20 ms or more. ``validate`` recomputes all from what is held.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from controller.objects.core import Node, Pod
from controller.objects.decode import GpuNode
from controller.objects.meta import KubernetesObject
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.objects.queues import ResourceFlavor, ResourceFlavorSpec, Topology
from controller.scheduler.devices.cache import DeviceCache, HeldPlace
from controller.scheduler.devices.grants import NOBODY, Drift, GrantOwner
from controller.scheduler.devices.supply import Makeable, could_be_made
from controller.scheduler.dra.allocation.claimsupply import ClaimSupply
from controller.scheduler.dra.allocation.planned import claim_plan
from controller.scheduler.model.deviceclaims import ClaimNames
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import Amount, FlavorName, ResourceName, WorkloadKey
from controller.scheduler.model.undo import UndoLog
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.coming import ComingNodes, coming_finder
from controller.scheduler.topology.elastic import resize
from controller.scheduler.topology.finder import Finder
from controller.scheduler.topology.fullnodes import FullNodes, FullNodesReader, UnplacedRequest
from controller.scheduler.topology.gangdomains import FittingNode, joined_by_claims, placed_within
from controller.scheduler.topology.measures import Spread, spot_pods, spreads
from controller.scheduler.topology.nodes import EVER, NodeCache, NodeFacts, of_queue, placed_here
from controller.scheduler.topology.port import (
    AS_KUEUE,
    ComingAnswer,
    Placed,
    PlacementNoFit,
    PlacementRequest,
    PlacementRules,
    group_problem,
    is_lost_whole,
    no_topology,
    pod_set_groups,
    roles_of,
)
from controller.scheduler.topology.replacement import replace
from controller.scheduler.topology.requests import SpotRule, TopologyRequest, each_of
from controller.scheduler.topology.shortages import lacks_nodes, unknown_level
from controller.scheduler.topology.tree import Ends, Tree, end_unknown
from controller.scheduler.topology.usage import DomainTotals, UsageSums
from inventory.api.claimplan import ClaimPlan
from inventory.api.names import ALL_NODES

_ASSUMED: Final = WorkloadKey("")
"""Owner of what is charged only while a question is answered."""


class Topologies:
    """The trees of all flavors. Flavors, topologies and nodes may arrive in any order; usage outlives all of them."""

    def __init__(
        self,
        undo: UndoLog,
        gates: FeatureGates,
        *,
        rules: PlacementRules = AS_KUEUE,
        held: Callable[[], Iterable[HeldPlace]] = tuple,
    ) -> None:
        """``held`` returns all places that are held now."""
        self._shared = shared = gates.on("TASHandleOverlappingFlavors")
        self._undo = undo
        self._gates = gates
        self._flavors: dict[FlavorName, ResourceFlavor] = {}
        self._topologies: dict[str, Topology] = {}
        self._nodes = known = NodeCache(rules.leaving)
        self.may_grow, self.too_large, self.overruns = known.may_grow, known.too_large, known.overruns
        self._above: tuple[tuple[str, ...], ...] = ()
        """The levels of each topology that ends above the nodes."""
        self._sent: dict[str, Pod] = {}
        """Queues' pods that were sent to a domain above the nodes: ``_above`` decides whether each was placed here."""
        self._used, self._assumed = UsageSums(shared=shared), UsageSums(shared=shared)
        self._finders: dict[FlavorName, Finder] = {}
        self._packs, self._empty_nodes, self._own_places = rules.packs, rules.empty_nodes, rules.own_places
        self.busy_until: Ends = end_unknown  # see Tree; EngineState sets it before the first flavor
        self.devices = DeviceCache(undo, held, self._touch)
        self._full_nodes = FullNodesReader(held, self._nodes.outside)
        coming = ComingNodes(self.devices, self._nodes.offers)
        self.claims = ClaimSupply(undo, self.devices.pods, held, self._touch, coming.offers) if rules.claims else None
        coming.claims, self.coming, self.can_come = self.claims, coming, coming.can_come
        self._comes, self.coming_shortage = rules.coming, coming.shortage
        self.coming_after_s, self.awaits_devices = coming.after_s, coming.awaits_devices

    # -- objects -----------------------------------------------------------------------------------------------------

    def set_flavor(self, flavor: ResourceFlavor) -> None:
        name = FlavorName(flavor.metadata.name)
        known = self._flavors.get(name)
        self._flavors[name] = flavor
        comes = self._comes and self.coming.set_flavor(flavor, self._nodes.objects().values())
        if known is None or known.spec != flavor.spec or comes:
            self._grow(name)

    def remove_flavor(self, name: FlavorName) -> None:
        self._flavors.pop(name, None)
        self._fell(name)
        self.coming.remove_flavor(name)

    def set_topology(self, topology: Topology) -> None:
        known, self._topologies[topology.metadata.name] = self._topologies.get(topology.metadata.name), topology
        if known is None or known.spec != topology.spec:
            self._judge_pods()
            self._regrow(topology.metadata.name)

    def remove_topology(self, name: str) -> None:
        self._topologies.pop(name, None)
        self._judge_pods()
        self._regrow(name)

    def set_node(self, node: Node) -> frozenset[FlavorName]:
        name, labels = node.metadata.name, node.metadata.labels
        by_claim = self._by_claim(name)
        facts = self._nodes.set_node(node)
        self._set_host(name, labels.get(HOSTNAME_LABEL), labels)
        told = frozenset[FlavorName]() if facts is None else self._told(name, facts)
        told |= self.coming.node(name, node)
        return told if self._by_claim(name) == by_claim else told | self._claims_told(name)

    def remove_node(self, name: str) -> frozenset[FlavorName]:
        self._set_host(name, None, {})
        by_claim = self._by_claim(name)
        told = self._told(name, None) if self._nodes.remove_node(name) is not None else frozenset[FlavorName]()
        told |= self.coming.node(name, None)
        return told if self._by_claim(name) == by_claim else told | self._claims_told(name)

    def set_pod(self, pod: Pod) -> frozenset[FlavorName]:
        placed = placed_here(pod, self._above)
        if of_queue(pod) and pod.spec.node_selector and HOSTNAME_LABEL not in pod.spec.node_selector:
            self._sent[pod.key] = pod
        else:
            self._sent.pop(pod.key, None)
        held = self._told_pod(pod.key, pod if placed else None)
        return held | self._refresh(self._nodes.set_pod(pod, placed=placed))

    def remove_pod(self, key: str) -> frozenset[FlavorName]:
        self._sent.pop(key, None)
        return self._told_pod(key, None) | self._refresh(self._nodes.remove_pod(key))

    def set_gpu_node(self, gpu_node: GpuNode) -> frozenset[FlavorName]:
        name = gpu_node.metadata.name
        if not self.devices.set_gpu_node(gpu_node):
            return frozenset()
        self._nodes.set_ceilings(name, self.devices.nodes[name].board.ceilings)
        return self._refresh((name,)) | self._touch((name,))

    def remove_gpu_node(self, name: str) -> frozenset[FlavorName]:
        known = self.devices.remove_gpu_node(name)
        self._nodes.set_ceilings(name, {})
        return self._refresh((name,)) | (self._touch((name,)) if known else frozenset())

    def set_claim_object(self, given: KubernetesObject) -> frozenset[FlavorName]:
        return self._given(self.claims.put(given)) if self.claims is not None else frozenset()

    def remove_claim_object(self, kind: type[KubernetesObject], namespace: str, name: str) -> frozenset[FlavorName]:
        return self._given(self.claims.drop(kind, namespace, name)) if self.claims is not None else frozenset()

    def uncounted_claims(self, names: ClaimNames) -> Mapping[tuple[bool, str], str]:
        return {} if self.claims is None else self.claims.requests.problems(names)

    def device_plan(self, owner: WorkloadKey, pod_set: str, node: str) -> Sequence[tuple[str, ...]]:
        return self.devices.plan(GrantOwner(owner, pod_set), node)

    def claim_plan(self, owner: WorkloadKey, pod_set: str) -> ClaimPlan:
        return {} if (claims := self.claims) is None else claim_plan(claims.plan(GrantOwner(owner, pod_set)))

    def begin(self, now_s: float, *, anew: bool = False) -> None:
        self.devices.begin(now_s, anew=anew)
        self._refresh(self._nodes.begin(now_s))

    def follow(self, now_s: float) -> None:
        self.devices.follow(now_s)

    @property
    def is_behind(self) -> bool:
        return self.devices.is_behind

    def free_by_node(
        self, flavor: FlavorName, since_s: float = EVER
    ) -> Iterator[tuple[NodeFacts, dict[ResourceName, Amount]]]:
        finder = self._finders.get(flavor)
        if finder is None or not finder.tree.by_host:
            return
        tree = finder.tree
        for leaf in tree.at_level[-1]:
            used = tree.used[leaf]
            for node in (each for each in tree.nodes[leaf].values() if each.created_s > since_s):
                by_claim = self.claims.free(node.name) if self.claims is not None else {}
                amounts = {name: node.free.get(name, 0) - used.get(name, 0) for name in {*node.free, *used}}
                yield node, amounts | by_claim

    def spreads(self, *, empty: bool = False) -> Sequence[Spread]:
        if not self.devices.nodes:
            return ()
        trees = {name: finder.tree for name, finder in self._finders.items()}
        return tuple(spreads(trees, self.devices, empty=empty))

    def domains(self, host: str, flavors: Iterable[FlavorName]) -> dict[str, str]:
        """The domains above a node, by level, in the first of these flavors whose tree has the node."""
        for flavor in flavors:
            tree = self.tree(flavor)
            leaf = tree.leaf((host,)) if tree is not None and tree.by_host else None
            if tree is not None and leaf is not None:
                return dict(zip(tree.levels[:-1], tree.path[leaf], strict=False))
        return {}

    def labels_of(self, node: str) -> Mapping[str, str]:
        return {} if (facts := self._nodes.facts.get(node)) is None else facts.labels

    def spot_pods(self, flavor: FlavorName, places: TopologyUsage | None, count: int, rule: SpotRule) -> int | None:
        tree = self.tree(flavor)
        is_known = tree is not None and tree.by_host
        name = self.devices.pods.name
        return spot_pods(places, count, rule, lambda host: self.labels_of(name(host))) if is_known else None

    def lacks_nodes(self, flavor: FlavorName) -> str:
        known = self._flavors.get(flavor) if self.coming.template(flavor) is None else None
        return "" if known is None else lacks_nodes(known.spec, self._nodes.facts.values(), self.tree(flavor))

    def drifts(self, owner: WorkloadKey) -> Sequence[Drift]:
        return tuple(self.devices.drifts(owner))

    def could_be_made(self, resource: ResourceName) -> Iterator[Makeable]:
        return could_be_made(self.devices, resource)

    def tree(self, flavor: FlavorName) -> Tree | None:
        """A flavor's tree, for reading; None where the flavor names no topology, or the topology does not exist."""
        return None if (finder := self._finders.get(flavor)) is None else finder.tree

    # -- questions ---------------------------------------------------------------------------------------------------

    def needs(self, asked: TopologyRequest, flavor: ResourceFlavor, *, implied: bool) -> bool:
        return flavor.spec.topology_name is not None and (implied or asked.placed)

    def mismatch(self, asked: TopologyRequest, flavor: ResourceFlavor) -> str | None:
        if not asked.placed:
            return None
        if flavor.spec.topology_name is None:
            if asked.bound:
                return (
                    f"flavor {flavor.metadata.name} names no topology and the gang asks for one domain of {asked.bound}"
                )
            return no_topology(flavor, asked)
        finder = self._finders.get(FlavorName(flavor.metadata.name))
        if finder is None:
            return f"flavor {flavor.metadata.name} names the topology {flavor.spec.topology_name}, which is not there"
        if asked.devices and not finder.tree.by_host:
            return f"topology {flavor.spec.topology_name} ends above the nodes, and the pod set asks for {asked.wish}"
        missing = asked.unknown_level(finder.tree.levels, self._gates)
        return None if missing is None else unknown_level(flavor.spec.topology_name, missing, finder.tree.levels)

    def place(self, requests: Sequence[PlacementRequest], *, on_empty: bool) -> Placed | PlacementNoFit:
        """Places pod sets in their order, each beside those before it; those of one group together.

        A ResourceClaim gets its devices where the first pod set that has it goes. If the other pod sets of the claim
        do not fit there, all nodes are tried for all of them.
        """
        apart = self._place_bounded(requests, on_empty=on_empty)
        if isinstance(apart, Placed):
            return apart
        if self.claims is None or any(each.lost is not None or each.previous is not None for each in requests):
            return apart
        joined, following = joined_by_claims(requests, self.claims.open_claims)
        if not joined or apart.pod_set in joined.keys() - following:
            return apart
        bounded = [joined.get(request.pod_set.name, request) for request in requests]
        together = self._place_bounded(bounded, on_empty=on_empty)
        return together if isinstance(together, Placed) or apart.pod_set in following else apart

    def place_coming(self, requests: Sequence[PlacementRequest], *, on_empty: bool = False) -> ComingAnswer:
        if not self.coming.serves(requests):
            return None
        there, self._finders = self._finders, {**self._finders, **self.coming.finders}
        try:
            return self.place(requests, on_empty=on_empty)
        finally:
            self._finders = there

    def _place_bounded(self, requests: Sequence[PlacementRequest], *, on_empty: bool) -> Placed | PlacementNoFit:
        if any(request.within for request in requests):
            return placed_within(
                requests,
                lambda request: self._fitting_nodes(request, on_empty=on_empty),
                lambda bounded: self._place_all(bounded, on_empty=on_empty),
            )
        return self._place_all(requests, on_empty=on_empty)

    def _fitting_nodes(self, request: PlacementRequest, *, on_empty: bool) -> Sequence[FittingNode]:
        """Nodes on which pods fit; all where a topology ends above the nodes, or the running pods have places."""
        finder = self._finders.get(request.flavor)
        known = finder.fitting_nodes(request, empty=on_empty) if finder and request.previous is None else None
        everywhere = self._nodes.facts.values()
        return [(facts, request.count) for facts in everywhere if facts.usable] if known is None else known

    def _place_all(self, requests: Sequence[PlacementRequest], *, on_empty: bool) -> Placed | PlacementNoFit:
        sums = self._assumed if on_empty else self._used
        charged: list[HeldPlace] = []
        placed: dict[str, TopologyUsage] = {}
        moved: dict[str, TopologyUsage] = {}
        groups = list(pod_set_groups(requests))
        try:
            for at, group in enumerate(groups):
                group_usages = self._place(group, on_empty=on_empty)
                if isinstance(group_usages, PlacementNoFit):
                    return group_usages
                for name, whole, new in group_usages:
                    placed[name], moved[name] = whole, new
                if at < len(groups) - 1:
                    for _, _, new in group_usages:
                        owner = GrantOwner(_ASSUMED, str(len(charged)))
                        sums.change(group[0].flavor, new, 1)
                        self.devices.add(new, owner, assumed=True, empty=on_empty)
                        if self.claims is not None:
                            self.claims.add(new, owner, assumed=True, empty=on_empty)
                        charged.append((group[0].flavor, new, owner))
        finally:
            for flavor, usage, owner in charged:
                sums.change(flavor, usage, -1)
                self.devices.remove(usage, owner, assumed=True)
                if self.claims is not None:
                    self.claims.remove(usage, owner, assumed=True)
        return Placed(placed, moved)

    def full_nodes(self, unplaced: UnplacedRequest, now_s: float) -> FullNodes | None:
        finder = self._finders.get(unplaced.flavor)
        return None if finder is None else finder.full_nodes(unplaced, self._full_nodes, now_s)

    def can_place(self, requests: Sequence[PlacementRequest]) -> bool:
        return self.question(requests)()

    def question(self, requests: Sequence[PlacementRequest]) -> Callable[[], bool]:
        groups = list(pod_set_groups(requests))
        finder = self._finders.get(groups[0][0].flavor) if groups else None
        first = requests[0] if requests else None
        simple = first is not None and first.lost is None and first.previous is None and not first.within
        if simple and len(requests) > 1:
            simple = group_problem(groups[0]) is None and all(request.count for request in requests)
        if len(groups) == 1 and finder is not None and simple:
            return finder.question(*roles_of(groups[0]))
        return lambda: isinstance(self.place(requests, on_empty=False), Placed)

    def fits(self, places: Sequence[tuple[FlavorName, TopologyUsage]]) -> bool:
        wanted: dict[tuple[FlavorName, int], DomainTotals] = {}
        finders = {**self._finders, **self.coming.finders} if self.coming else self._finders
        for flavor, usage in places:
            finder = finders.get(flavor)
            if finder is None:
                return False
            requested = each_of(usage.single_pod)
            for values, pods in usage.domains:
                leaf = finder.tree.leaf(values)
                if leaf is None:
                    return False
                sums = wanted.setdefault((flavor, leaf), {})
                for name, amount in finder.tree.served(leaf, requested, None)[0]:
                    sums[name] = sums.get(name, 0) + amount * pods
        if not all(finders[flavor].tree.has_free(leaf, sums) for (flavor, leaf), sums in wanted.items()):
            return False
        if not all(usage.devices is None for _, usage in places) and not self._devices_fit(places):
            return False
        return self._claims_fit([place for place in places if self._has_claims(place[1])])

    def _devices_fit(self, places: Sequence[tuple[FlavorName, TopologyUsage]]) -> bool:
        owners = [(usage, GrantOwner(_ASSUMED, str(at))) for at, (_, usage) in enumerate(places)]
        try:
            for usage, owner in owners:
                self.devices.add(usage, owner, assumed=True)
            return all(self.devices.complete(usage, owner) for usage, owner in owners)
        finally:
            for usage, owner in owners:
                self.devices.remove(usage, owner, assumed=True)

    def _claims_fit(self, places: Sequence[tuple[FlavorName, TopologyUsage]]) -> bool:
        claims = self.claims
        if claims is None or not places:
            return True
        owners = [(usage, GrantOwner(_ASSUMED, str(at))) for at, (_, usage) in enumerate(places)]
        try:
            for usage, owner in owners:
                claims.add(usage, owner, assumed=True)
            return all(claims.complete(usage, owner) for usage, owner in owners)
        finally:
            for usage, owner in reversed(owners):
                claims.remove(usage, owner, assumed=True)

    def add(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None:
        self._used.change(flavor, usage, 1)
        self._undo.record(self._used.change, flavor, usage, -1)
        if self.devices.nodes:
            self.devices.add(usage, owner)
            self._touch_beside(usage)
        if self.claims is not None and self.claims.concerns(usage):
            self.claims.add(usage, owner)
            self._touch_beside(usage)

    def remove(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None:
        self._used.change(flavor, usage, -1)
        self._undo.record(self._used.change, flavor, usage, 1)
        if self.devices.nodes:
            self.devices.remove(usage, owner)
            self._touch_beside(usage)
        if self.claims is not None and self.claims.concerns(usage):
            self.claims.remove(usage, owner)
            self._touch_beside(usage)

    def validate(self, held: Sequence[tuple[FlavorName, TopologyUsage]]) -> None:
        """Recompute everything. ``held`` is the usage of all that hold quota. AssertionError for a difference."""
        fresh = UsageSums(shared=self._shared)
        for flavor, usage in held:
            fresh.change(flavor, usage, 1)
        if fresh.totals() != self._used.totals():
            raise AssertionError(f"topology usage: kept {self._used.totals()}, held {fresh.totals()}")
        if self._assumed.totals():
            raise AssertionError(f"usage was assumed and not taken back: {self._assumed.totals()}")
        self.devices.validate()
        if self.claims is not None:
            self.claims.validate()
        self.validate_trees()
        self.coming.validate(self._nodes.objects())

    def validate_trees(self) -> None:
        for finder in self._finders.values():
            finder.validate()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _place(
        self, group: list[PlacementRequest], *, on_empty: bool
    ) -> list[tuple[str, TopologyUsage, TopologyUsage]] | PlacementNoFit:
        """Name, whole assignment, and the part of the assignment that is new, for each pod set of the group."""
        if (finder := self._finders.get(group[0].flavor)) is None:
            return PlacementNoFit(group[0].pod_set.name, f"flavor {group[0].flavor} has no topology now")
        problem = group_problem(group)
        if problem is not None:
            return PlacementNoFit(group[0].pod_set.name, problem)
        if any(request.lost is not None for request in group):
            return self._replace(finder, group)
        workers, leader = roles_of(group)
        if leader is not None and not leader.count:
            # The leader has finished: only the workers are placed.
            usages = finder.find(workers, None, empty=on_empty)
            if isinstance(usages, str):
                return PlacementNoFit(workers.pod_set.name, usages, finder.unplaced(workers, None, empty=on_empty))
            none = TopologyUsage(levels=finder.tree.shown_levels, domains=(), single_pod=leader.single_pod)
            whole = usages[workers.pod_set.name]
            return [(workers.pod_set.name, whole, whole), (leader.pod_set.name, none, none)]
        kept = workers.grows or self._gates.on("ElasticJobsViaWorkloadSlicesWithTAS")
        if workers.previous is not None and kept:
            sums, flavor = (self._assumed if on_empty else self._used), workers.flavor
            resized = resize(
                finder, workers, leader, lambda usage, sign: sums.change(flavor, usage, sign), empty=on_empty
            )
            if isinstance(resized, str):
                return PlacementNoFit(group[0].pod_set.name, resized)
            if resized is not None:
                return [(placed.name, placed.whole, placed.whole) for placed in resized]
        usages = finder.find(workers, leader, empty=on_empty)
        if isinstance(usages, str):
            return PlacementNoFit(group[0].pod_set.name, usages, finder.unplaced(workers, leader, empty=on_empty))
        return [(name, usage, usage) for name, usage in usages.items()]

    def _replace(
        self, finder: Finder, group: list[PlacementRequest]
    ) -> list[tuple[str, TopologyUsage, TopologyUsage]] | PlacementNoFit:
        """Places the lost pods of each pod set by itself: only what was lost moves."""
        if len(group) > 1 and all(map(is_lost_whole, group)):
            found = finder.find(*roles_of(group), empty=False)
            if isinstance(found, str):
                return PlacementNoFit(group[0].pod_set.name, found)
            return [(name, usage, usage) for name, usage in found.items()]
        made: list[tuple[str, TopologyUsage, TopologyUsage]] = []
        try:
            for request in group:
                if request.previous is None or request.lost is None:
                    continue
                if request.stays:
                    nothing = msgspec.structs.replace(request.previous, domains=())
                    made.append((request.pod_set.name, request.previous, nothing))
                    continue
                outcome = replace(finder, request, request.previous, request.lost)
                if isinstance(outcome, str):
                    return PlacementNoFit(request.pod_set.name, outcome)
                self._used.change(request.flavor, outcome.moved, 1)
                made.append((request.pod_set.name, outcome.whole, outcome.moved))
        finally:
            for _, _, moved in made:
                self._used.change(group[0].flavor, moved, -1)
        return made

    def _refresh(self, nodes: Sequence[str]) -> frozenset[FlavorName]:
        flavors: frozenset[FlavorName] = frozenset()
        for name in nodes:
            facts = self._nodes.refresh(name)
            if facts is not None:
                flavors |= self._told(name, facts)
        return flavors

    def _touch(self, nodes: Sequence[str]) -> frozenset[FlavorName]:
        """Marks nodes whose devices changed. Returns the flavors of these nodes."""
        self.coming.touch(nodes)
        return frozenset(
            flavor for name in nodes for flavor, finder in self._finders.items() if finder.tree.touch_node(name)
        )

    def _given(self, nodes: Sequence[str]) -> frozenset[FlavorName]:
        return self._touch(nodes) | self.coming.devices_changed(nodes, self._nodes.objects())

    def _touch_beside(self, usage: TopologyUsage) -> None:
        """Marks the usage's nodes in all trees: flavors share devices even where each counts its nodes for itself."""
        if not self._shared:
            names = [self.devices.pods.name(domain.values[-1]) for domain in usage.domains]
            has_claims = self._has_claims(usage)
            nodes = [name for name in names if has_claims or name in self.devices.nodes]
            self._touch(nodes)
            if nodes:
                self._undo.record(self._touch, nodes)

    def _has_claims(self, usage: TopologyUsage) -> bool:
        return self.claims is not None and self.claims.concerns(usage)

    def _by_claim(self, name: str) -> frozenset[str]:
        """The extended resources that pods on this node get through ResourceClaims."""
        known: Mapping[str, str] = self.claims.requests.extended if self.claims is not None else {}
        return frozenset(resource for resource in known if not self._nodes.offers(name, ResourceName(resource)))

    def _claims_told(self, name: str) -> frozenset[FlavorName]:
        if self.claims is not None:
            self.claims.pods_changed((name,))
        return self._touch((name,))

    def _set_host(self, name: str, label: str | None, labels: Mapping[str, str]) -> None:
        if self.devices.set_host(name, label, labels) and self.claims is not None:
            self.claims.hosts_changed()

    def _told_pod(self, key: str, pod: Pod | None) -> frozenset[FlavorName]:
        """Store a pod that was placed here; ``pod`` is None for any other pod, and for one that is gone."""
        pods, claims = self.devices.pods, self.claims
        before, over = pods.get(key), pods.is_over(key)
        nodes = self.devices.remove_pod(key) if pod is None else self.devices.set_pod(pod)
        now = pods.get(key)
        if claims is not None and (before, over) != (now, pods.is_over(key)):
            there = [pods.name(facts.node) for facts in (before, now) if facts is not None]
            nodes = (*nodes, *claims.pods_changed(dict.fromkeys((*there, *claims.nodes_of(key)))))
        return self._touch(nodes)

    def _told(self, name: str, facts: NodeFacts | None) -> frozenset[FlavorName]:
        self.coming.told(name, facts)
        return frozenset([flavor for flavor, finder in self._finders.items() if finder.tree.set_node(name, facts)])

    def _judge_pods(self) -> None:
        """Judges pods anew when a topology that ends above the nodes came or went: it decides which were placed."""
        every = (tuple(level.node_label for level in each.spec.levels) for each in self._topologies.values())
        above = tuple(sorted({levels for levels in every if levels and levels[-1] != HOSTNAME_LABEL}))
        if above != self._above:
            self._above = above
            for pod in tuple(self._sent.values()):
                self.set_pod(pod)

    def _regrow(self, topology: str) -> None:
        for name, flavor in self._flavors.items():
            if flavor.spec.topology_name == topology:
                self._grow(name)

    def _grow(self, name: FlavorName) -> None:
        self._fell(name)
        spec = self._flavors[name].spec
        topology = self._topologies.get(spec.topology_name) if spec.topology_name is not None else None
        if topology is None or not topology.spec.levels:
            return
        self._finders[name] = Finder(self._tree(spec, name, topology), self._gates, own_places=self._own_places)
        if self.coming.template(name) is not None and self._finders[name].tree.by_host:
            more = Finder(self._tree(spec, name, topology), self._gates, own_places=self._own_places)
            self.coming.grow(name, coming_finder(more))

    def _tree(self, spec: ResourceFlavorSpec, name: FlavorName, topology: Topology) -> Tree:
        """A tree of the flavor with the nodes that are there."""
        levels = [level.node_label for level in topology.spec.levels]
        over, whole = topology.metadata.name, topology.metadata.name == ALL_NODES
        sums = self._used, self._assumed
        tree = Tree(name, over, levels, spec.node_labels, spec.tolerations, *sums, takes_all=whole)
        tree.devices, tree.claims, tree.packs = self.devices, self.claims, self._packs
        tree.empty_nodes, tree.busy_until = self._empty_nodes, self.busy_until
        for node, facts in self._nodes.facts.items():
            tree.set_node(node, facts)
        return tree

    def _fell(self, name: FlavorName) -> None:
        if (finder := self._finders.pop(name, None)) is not None:
            finder.tree.close()
        self.coming.fell(name)
