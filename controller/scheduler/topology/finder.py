"""Finds topology assignments in one flavor's tree: for one pod set, or for a leader together with its workers."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NewType

from controller.objects.core import NodeSelectorTerm
from controller.objects.placeencoding import Domain
from controller.objects.workload import SliceConstraint
from controller.scheduler.dra.allocation.requests import PodClaimsRequest
from controller.scheduler.model.caches import Bounded, ByIdentity
from controller.scheduler.model.devicerequest import PodDeviceRequest, devices_of
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.balanced import Balanced
from controller.scheduler.topology.counts import Counts
from controller.scheduler.topology.domainsearch import DomainNoFit, DomainSearch, Take
from controller.scheduler.topology.fullnodes import FullNodes, FullNodesReader, UnplacedRequest
from controller.scheduler.topology.nodes import NodeFacts
from controller.scheduler.topology.port import PlacementRequest
from controller.scheduler.topology.requests import (
    DomainRequest,
    Filter,
    RequestShape,
    TopologyRequest,
    each_of,
    filter_of,
)
from controller.scheduler.topology.shortages import shortage_sentence, unknown_level
from controller.scheduler.topology.tree import Tree

_SHAPES_KEPT: Final = 32
"""Request shapes whose counts are kept. At 10,000 nodes the counts of one shape take about 2 MiB."""
_ASKS_KEPT: Final = 1024


PodSetId = NewType("PodSetId", int)
"""``id()`` of a pod set that is stored beside the id, or of the one being asked about (so the id cannot be reused)."""
_AskKey = tuple[PodSetId, PodSetId | None, int, bool]
"""The workers' pod set, the leader's pod set, the number of pods, and whether the cluster is taken as empty."""


class _EmptyState(NamedTuple):
    """Everything that the answer for an empty cluster depends on."""

    shape: int
    epoch: int
    journal: int


class _Known(NamedTuple):
    """A stored ask, valid while its pod sets are these very objects: pending workloads of one shape share them."""

    workers: PlacementRequest
    leader: PlacementRequest | None
    ask: DomainRequest
    version: int
    """Version of ``ClaimSupply.requests`` at which the claims were resolved; 0 where the request has no claims."""

    def of(self, workers: PlacementRequest, leader: PlacementRequest | None) -> bool:
        return _alike(self.workers, workers) and (
            leader is None if self.leader is None else leader is not None and _alike(self.leader, leader)
        )


class Finder:
    """Assignment search over one tree. Keeps counts by request shape; the least recently used is dropped first.

    Caches, on 10,000 nodes of which 8 change between two questions: ``_counts`` answer in 0.03 ms in place of 20,
    ``_known`` saves 7 us of that, ``_empty`` the whole search.
    """

    def __init__(self, tree: Tree, gates: FeatureGates, *, own_places: bool = False) -> None:
        """``own_places``: the leader's node is decided by the leader's own node rules, not by those of its workers."""
        self.tree = tree
        self._own_places = own_places
        self._gates = gates
        self._counts: OrderedDict[RequestShape, Counts] = OrderedDict()
        self._known = Bounded[_AskKey, _Known](_ASKS_KEPT)
        self._empty = ByIdentity[DomainRequest, tuple[_EmptyState, list[Take] | DomainNoFit]](_ASKS_KEPT)
        """The last answer for an empty cluster by ask, with the state it was computed in."""
        self._mixed = gates.on("TASProfileMixed")
        self._layered = gates.on("TASMultiLayerTopology")
        self._preferences = gates.on("TASRespectNodeAffinityPreferred")
        self._balanced = gates.on("TASBalancedPlacement")
        self.prefers: tuple[int, NodeSelectorTerm] | None = None
        """A preference that all pods have, of nodes by their labels; ``coming_finder`` sets it once. Pods then go to
        the fewest nodes.
        """

    def find(
        self, workers: PlacementRequest, leader: PlacementRequest | None, *, empty: bool, within: int = -1
    ) -> dict[str, TopologyUsage] | str:
        """Assignments by pod set name, or a sentence that says why there are none. ``within``: search only the nodes of
        this domain; -1 for all.
        """
        ask = self.ask(workers, leader, empty=empty, within=within)
        if isinstance(ask, str):
            return ask
        takes = self._found(ask)
        if isinstance(takes, DomainNoFit):
            return shortage_sentence(takes, ask, self._counts_of(ask.shape))
        places = _without([(take.domain, take.pods) for take in takes], ask.pods - workers.count)
        assignments = {workers.pod_set.name: self._usage(workers, places)}
        if leader is not None:
            led = [(take.domain, 1) for take in takes if take.leaders]
            assignments[leader.pod_set.name] = self._usage(leader, led)
        return assignments

    def unplaced(
        self, workers: PlacementRequest, leader: PlacementRequest | None, *, empty: bool
    ) -> UnplacedRequest | None:
        """The ask for which ``find`` found no places; None where the request does not suit the tree, or where leaves
        are not nodes.
        """
        ask = self.ask(workers, leader, empty=empty)
        return None if isinstance(ask, str) or not self.tree.by_host else UnplacedRequest(workers.flavor, ask)

    def full_nodes(self, unplaced: UnplacedRequest, reader: FullNodesReader, now_s: float) -> FullNodes:
        return reader.of(self._counts_of(unplaced.ask.shape), now_s)

    def question(self, workers: PlacementRequest, leader: PlacementRequest | None) -> Callable[[], bool]:
        """A function that says whether ``find`` would find a placement now; it may be called repeatedly as usage
        changes.
        """
        ask = self.ask(workers, leader, empty=False)
        if isinstance(ask, str):
            return lambda: False
        counts = self._counts_of(ask.shape)
        search = self._search(counts, ask)

        def answer() -> bool:
            counts.sync()
            return search.fits()

        return answer

    def fitting_nodes(self, request: PlacementRequest, *, empty: bool) -> list[tuple[NodeFacts, int]] | None:
        """The nodes that are open to the pod set (taints, selectors, devices), with the number of its pods that fit on
        each. None where the tree does not go down to nodes.
        """
        ask, tree = self.ask(request, None, empty=empty), self.tree
        if isinstance(ask, str) or not tree.by_host:
            return None
        pods = self._counts_of(ask.shape).pods
        return [(facts, pods[leaf]) for leaf in tree.at_level[-1] if pods[leaf] for facts in tree.nodes[leaf].values()]

    def _found(self, ask: DomainRequest) -> list[Take] | DomainNoFit:
        tree = self.tree
        if not ask.shape.empty or (tree.devices is not None and tree.devices.nodes):
            return self._looked_for(ask)
        # The answer for an empty cluster changes seldom, and every try that quota holds up asks for it.
        state = _EmptyState(tree.shape, tree.assumed_journal.epoch, len(tree.assumed_journal.leaves))
        known = self._empty.get(id(ask))
        if known is not None and known[1][0] == state:
            return known[1][1]
        return self._empty.keep(ask, (state, self._looked_for(ask)))[1]

    def _looked_for(self, ask: DomainRequest) -> list[Take] | DomainNoFit:
        if (spot := ask.shape.filter.spot) is not None and not spot.required and not ask.shape.filter.preferred:
            found = self._as_wished(ask._replace(shape=_on_spot_alone(ask.shape)))
            if not isinstance(found, DomainNoFit):
                return found
        return self._as_wished(ask)

    def _as_wished(self, ask: DomainRequest) -> list[Take] | DomainNoFit:
        """Places with the devices that pods would like best; where there are none, any."""
        if _wishes(ask.shape):
            wished = ask._replace(shape=_strict(ask.shape))
            found = self._run(self._counts_of(wished.shape), wished)
            if not isinstance(found, DomainNoFit):
                return found
        return self._run(self._counts_of(ask.shape), ask)

    def ask(
        self, workers: PlacementRequest, leader: PlacementRequest | None, *, empty: bool, within: int = -1
    ) -> DomainRequest | str:
        """The request in levels of this tree; a sentence where the request does not suit the tree."""
        if within >= 0:
            return self._asked(workers, leader, empty=empty, within=within)
        key = (
            PodSetId(id(workers.pod_set)),
            None if leader is None else PodSetId(id(leader.pod_set)),
            workers.count,
            empty,
        )
        version = self._version(workers, leader)
        known = self._known.get(key)
        if known is not None and known.version == version and known.of(workers, leader):
            return known.ask
        ask = self._asked(workers, leader, empty=empty, within=within)
        if not isinstance(ask, str):
            self._known.remember(key, _Known(workers, leader, ask, version))
        return ask

    def _version(self, workers: PlacementRequest, leader: PlacementRequest | None) -> int:
        supply = self.tree.claims
        claims = workers.claims is not None or (leader is not None and leader.claims is not None)
        return supply.requests.version if claims and supply is not None else 0

    def _asked(
        self, workers: PlacementRequest, leader: PlacementRequest | None, *, empty: bool, within: int = -1
    ) -> DomainRequest | str:
        tree, asked = self.tree, workers.asked
        claims = self._claims(workers)
        led_claims = self._claims(leader) if leader is not None else None
        together = claims is not None and tree.by_host and claims.is_together(workers.count, led_claims)
        label = tree.levels[-1] if together else asked.label(tree.levels)
        anywhere = label is None
        if anywhere and (workers.implied or asked.devices):
            label = tree.levels[-1]
        if label is None:
            return "the pod set asks for no level"
        level = tree.level_of(label)
        if level is None:
            return unknown_level(tree.topology, label, tree.levels)
        every = asked.layers
        slice_level = tree.depth - 1 if not every else tree.level_of(every[0].topology)
        if slice_level is None:
            return f"topology {tree.topology} has no level {every[0].topology}, at which slices are asked for"
        if level > slice_level:
            return f"slices are asked for at {every[0].topology}, above the pod set's own level {label}"
        size = every[0].size if every else 1
        if size < 1:
            return f"slices are asked for at {every[0].topology} and no slice size is given"
        rest = workers.count % size
        if rest and (workers.count >= workers.pod_set.count or workers.lost is not None):
            return f"{workers.count} pods cannot be cut into slices of {size}"
        # After some pods have finished: their slice is placed as a whole, and what they need is given back at the
        # end.
        pods = workers.count + (size - rest if rest else 0)
        inner = self._inner(workers, slice_level, size) if self._layered else (0,) * tree.depth
        if isinstance(inner, str):
            return inner
        shape = RequestShape(
            each=each_of(workers.single_pod),
            leader=each_of(leader.single_pod) if leader is not None else (),
            filter=self._filter(workers),
            slice_level=slice_level,
            slice_size=size,
            inner=inner,
            empty=empty,
            within=within,
            devices=_devices(workers),
            led=_devices(leader) if leader is not None else None,
            claims=claims,
            led_claims=led_claims,
            led_filter=self._led_filter(workers, leader),
        )
        free = workers.implied or anywhere or asked.unconstrained or asked.slices_alone
        required = together or asked.required is not None
        return DomainRequest(shape=shape, pods=pods, level=level, required=required, free=free and not together)

    def _filter(self, workers: PlacementRequest) -> Filter:
        node_filter = filter_of(
            workers.pod_set.template.spec,
            self.tree.tolerations,
            preferences=self._preferences,
            overruns=workers.overruns,
            spot=workers.spot,
        )
        return (
            node_filter
            if self.prefers is None
            else node_filter._replace(preferred=(*node_filter.preferred, self.prefers))
        )

    def _led_filter(self, workers: PlacementRequest, leader: PlacementRequest | None) -> Filter | None:
        """The leader's node rules; None where they equal those of the workers, or do not count, as in Kueue."""
        if leader is None or not self._own_places:
            return None
        theirs, own = (
            filter_of(
                request.pod_set.template.spec,
                self.tree.tolerations,
                preferences=False,
                overruns=request.overruns,
                spot=request.spot,
            )
            for request in (workers, leader)
        )
        return own if own != theirs else None

    def layers(self, asked: TopologyRequest) -> tuple[SliceConstraint, ...]:
        """The slice layers that count: without the gate TASMultiLayerTopology only the outermost."""
        return asked.layers if self._layered else asked.layers[:1]

    def validate(self) -> None:
        self.tree.validate()
        for counts in self._counts.values():
            counts.sync().validate()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _inner(self, workers: PlacementRequest, slice_level: int, size: int) -> tuple[int, ...] | str:
        """Size of the inner slice layer at each level of the tree (0 for none), or a sentence where the layers do not
        fit together.
        """
        sizes = [0] * self.tree.depth
        above = slice_level
        for layer in workers.asked.layers[1:]:
            level = self.tree.level_of(layer.topology)
            if level is None:
                return f"topology {self.tree.topology} has no level {layer.topology}, at which slices are asked for"
            if level <= above:
                return f"the slice layer at {layer.topology} must lie below {self.tree.levels[above]}"
            if layer.size < 1 or size % layer.size:
                return f"slices of {size} cannot be cut into slices of {layer.size} at {layer.topology}"
            for lower in range(above + 1, level + 1):
                sizes[lower] = layer.size
            above, size = level, layer.size
        return tuple(sizes)

    def _counts_of(self, shape: RequestShape) -> Counts:
        counts = self._counts.get(shape)
        if counts is None:
            counts = Counts(self.tree, shape)
            if shape.within < 0:
                self._counts[shape] = counts
                if len(self._counts) > _SHAPES_KEPT:
                    self._counts.popitem(last=False)
        else:
            self._counts.move_to_end(shape)
        return counts.sync()

    def _search(self, counts: Counts, ask: DomainRequest) -> DomainSearch:
        return DomainSearch(counts, ask, least=ask.free and self._mixed and self.prefers is None)

    def _run(self, counts: Counts, ask: DomainRequest) -> list[Take] | DomainNoFit:
        if self._balanced and self.prefers is None and not ask.required and not ask.free:
            balanced = Balanced(counts, ask).run()
            if balanced is not None:
                return balanced
        return self._search(counts, ask).run()

    def _usage(self, request: PlacementRequest, pods: Sequence[tuple[int, int]]) -> TopologyUsage:
        """The assignment of a pod set, its domains sorted by path."""
        tree = self.tree
        taken = sorted((tree.path[leaf], leaf, count) for leaf, count in pods if count)
        domains = tuple(Domain(tree.values(leaf), count) for _, leaf, count in taken)
        return TopologyUsage(
            levels=tree.shown_levels,
            domains=domains,
            single_pod=request.single_pod,
            devices=_devices(request),
            claims=request.claims,
        )

    def _claims(self, request: PlacementRequest) -> PodClaimsRequest | None:
        supply = self.tree.claims
        return supply.ask(request.claims) if supply is not None else None


def _without(places: list[tuple[int, int]], spare: int) -> list[tuple[int, int]]:
    """The places with ``spare`` pods fewer, taken from the last ones."""
    remaining: list[tuple[int, int]] = []
    for leaf, pods in reversed(places):
        fewer = min(pods, spare)
        spare -= fewer
        remaining.append((leaf, pods - fewer))
    return remaining


def _devices(request: PlacementRequest) -> PodDeviceRequest | None:
    return devices_of(request.pod_set.template, request.single_pod)


def _alike(known: PlacementRequest, given: PlacementRequest) -> bool:
    """Whether the requests are the same. The pod sets are compared by identity: the stored one is kept alive, so no
    other object has its id.
    """
    return (
        known.pod_set is given.pod_set
        and known.asked == given.asked
        and known.implied == given.implied
        and known.count == given.count
        and known.single_pod == given.single_pod
        and known.claims == given.claims
        and known.overruns == given.overruns
        and known.spot == given.spot
    )


def _wishes(shape: RequestShape) -> bool:
    return any(shape_ is not None and shape_.wished for shape_ in (shape.devices, shape.led))


def _strict(shape: RequestShape) -> RequestShape:
    """The shape with its wishes about devices taken as requirements."""
    return shape._replace(
        devices=shape.devices.strict() if shape.devices is not None else None,
        led=shape.led.strict() if shape.led is not None else None,
    )


def _on_spot_alone(shape: RequestShape) -> RequestShape:
    """The shape whose pods, which prefer spot nodes, go to no others."""

    def alone(filter_: Filter) -> Filter:
        return filter_._replace(spot=filter_.spot._replace(required=True) if filter_.spot is not None else None)

    led = shape.led_filter
    return shape._replace(filter=alone(shape.filter), led_filter=None if led is None else alone(led))
