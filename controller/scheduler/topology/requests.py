"""The topology request of a pod set, as levels of one tree, and the node rules (selector, affinity, tolerations) that
decide which nodes its pods may run on.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from controller.messages.spans import moment
from controller.objects.core import NodeSelectorTerm, PodSpec, Toleration
from controller.objects.meta import LabelSelectorRequirement
from controller.objects.workload import PodSet, PodSetTopologyRequest, SliceConstraint
from controller.scheduler.dra.allocation.requests import PodClaimsRequest
from controller.scheduler.model.devicerequest import PodDeviceRequest, pod_device_request
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import Amount, ResourceName
from controller.scheduler.model.taints import untolerated
from controller.scheduler.topology.nodes import PODS, NodeFacts
from inventory.layout.entries import PERCENT_RESOURCE

Each = tuple[tuple[ResourceName, Amount], ...]
"""What one pod takes on the node where it runs, including 1 of ``pods`` for the pod itself; sorted by resource name."""


class SpotRule(NamedTuple):
    """What counts of a node's capacity kind for a workload's pods. A node with one of ``labels`` is spot. ``wanted``:
    the pods are for spot nodes, else for those on demand; if not ``required``, for others too where these do not do.
    """

    wanted: bool
    required: bool
    labels: frozenset[tuple[str, str]]

    def admits(self, labels: Mapping[str, str]) -> bool:
        return not self.required or self.is_spot(labels) is self.wanted

    def is_spot(self, labels: Mapping[str, str]) -> bool:
        return not self.labels.isdisjoint(labels.items())


class Filter(NamedTuple):
    """The rules that decide which nodes are open to a pod; hashable. ``preferred`` is filled only where preferred node
    affinity counts. ``overruns``: nodes whose drain begins then or before are closed, since the pods would still run.
    """

    selector: frozenset[tuple[str, str]] = frozenset()
    terms: tuple[NodeSelectorTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    preferred: tuple[tuple[int, NodeSelectorTerm], ...] = ()
    overruns: float = 0.0
    spot: SpotRule | None = None

    def admits(self, node: NodeFacts) -> bool:
        if node.drain_at_s <= self.overruns:
            return False
        if node.taints and untolerated(node.taints, self.tolerations) is not None:
            return False
        if any(node.labels.get(name) != value for name, value in self.selector):
            return False
        if self.spot is not None and not self.spot.admits(node.labels):
            return False
        return not self.terms or any(_matches(term, node) for term in self.terms)

    def problem(self, node: NodeFacts) -> str:
        """Why ``admits`` refuses the node: a clause that follows a number of nodes in a sentence."""
        if node.drain_at_s <= self.overruns:
            return f"drained at {moment(node.drain_at_s)}, before they end"
        taint = untolerated(node.taints, self.tolerations)
        if taint is not None:
            value = f"={taint.value}" if taint.value else ""
            return f"with the taint {taint.key}{value}:{taint.effect}"
        if any(node.labels.get(name) != value for name, value in self.selector):
            return "not selected by their node selector"
        if self.spot is not None and not self.spot.admits(node.labels):
            return "of spot capacity, which is not for them (tessera.dev/spot, tessera.dev/on-demand-floor)"
        return "not matched by their node affinity"

    def score(self, node: NodeFacts) -> int:
        """The sum of the weights of the preferred terms that the node meets."""
        return sum(weight for weight, term in self.preferred if _matches(term, node))


class RequestShape(NamedTuple):
    """Everything that counts of a tree depend on: requests with equal shapes share one ``Counts``."""

    each: Each
    leader: Each
    """What the leader pod takes; empty where there is no leader."""
    filter: Filter
    slice_level: int
    slice_size: int
    inner: tuple[int, ...]
    """Size of the inner slice layer at each level of the tree; 0 where a level has none."""
    empty: bool
    """Whether the counts take every pod that Tessera placed as gone (an empty cluster)."""
    within: int = -1
    """The only domain whose nodes count; -1 for all."""
    devices: PodDeviceRequest | None = None
    """What each pod asks of its GPUs beyond their number."""
    led: PodDeviceRequest | None = None
    """What the leader asks of its GPUs beyond their number."""
    claims: PodClaimsRequest | None = None
    """What each pod asks through ResourceClaims."""
    led_claims: PodClaimsRequest | None = None
    led_filter: Filter | None = None
    """Which nodes are open to the leader; None where those are the nodes that are open to the workers."""


class DomainRequest(NamedTuple):
    """A request for ``pods`` pods at ``level``. ``required``: all in one domain of that level; ``free``: in any
    domains; neither: in one domain of ``level`` or, if none holds them, of the nearest level above that has one, and at
    last in several domains of the highest level.
    """

    shape: RequestShape
    pods: int
    level: int
    required: bool
    free: bool

    @property
    def leaders(self) -> int:
        return 1 if self.shape.leader else 0

    @property
    def slices(self) -> int:
        return self.pods // self.shape.slice_size


_NO_REQUEST: Final = PodSetTopologyRequest()


class TopologyRequest(Struct, frozen=True, gc=False):
    """What a pod set asks of a topology, read from its object once. Levels are node labels here: no tree is known yet.

    ``required``, ``preferred`` and ``unconstrained`` say where the whole set is to be; the first one given counts.
    ``layers`` are its slice layers from the outermost in, with size 0 where the object gives none. ``gc=False``: it is
    made for every try, in 42 ns in place of 76.
    """

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool = False
    layers: tuple[SliceConstraint, ...] = ()
    group: str | None = None
    """The name of the pod set's group; None for none."""
    devices: bool = False
    """The pods must be placed by their devices: not every GPU of a node will do."""
    parts: bool = False
    """The pod set asks for percents of GPUs, each request on one GPU: the sum of percents that is free on a node does
    not say whether one request fits.
    """
    bound: str = ""
    """The level of which one domain must hold the pod set's whole gang, where the pod set itself names no level; empty
    for none.
    """

    @property
    def slices_alone(self) -> bool:
        """Whether each slice must be in one domain while the set as a whole need not be."""
        return bool(self.layers) and self.required is None and self.preferred is None

    @property
    def level(self) -> bool:
        """Whether the pod set names a level for its pods."""
        return self.required is not None or self.preferred is not None or self.unconstrained or bool(self.layers)

    @property
    def wish(self) -> str:
        """What the pod set asks of GPUs, in words for a message."""
        return "parts of GPUs" if self.parts else "certain GPUs"

    @property
    def placed(self) -> bool:
        """Whether the pods must be placed by topology: the pod set names a level, or only some GPUs will do."""
        return self.level or self.devices

    def label(self, levels: tuple[str, ...]) -> str | None:
        """The label of the level at which the set is to be placed; None where it asks for none."""
        if self.required is not None:
            return self.required
        if self.preferred is not None:
            return self.preferred
        if self.layers:
            return levels[0]
        return levels[-1] if self.unconstrained else None

    def unknown_level(self, levels: tuple[str, ...], gates: FeatureGates) -> str | None:
        """The first level that the pod set asks for and the topology does not have; None if it has all."""
        counted = self.layers if gates.on("TASMultiLayerTopology") else self.layers[:1]
        wanted = [self.label(levels), *(layer.topology for layer in counted)]
        return next((label for label in wanted if label is not None and label not in levels), None)


def topology_request(pod_set: PodSet) -> TopologyRequest:
    asked, parts = pod_set.topology_request or _NO_REQUEST, asks_for_parts(pod_set)
    devices = pod_device_request(pod_set.template.metadata.annotations)
    layers = asked.podset_slice_required_topology_constraints
    if not layers and asked.pod_set_slice_required_topology is not None:
        outermost = asked.pod_set_slice_required_topology
        layers = (SliceConstraint(topology=outermost, size=asked.pod_set_slice_size or 0),)
    return TopologyRequest(
        required=asked.required,
        preferred=asked.preferred,
        unconstrained=bool(asked.unconstrained),
        layers=layers,
        group=asked.pod_set_group_name,
        devices=parts or (devices is not None and devices.binding),
        parts=parts,
    )


def asks_for_parts(pod_set: PodSet) -> bool:
    """Whether a container requests percents of a GPU; see ``TopologyRequest.parts``."""
    spec = pod_set.template.spec
    return any(
        PERCENT_RESOURCE in container.resources.requests or PERCENT_RESOURCE in container.resources.limits
        for container in (*spec.containers, *spec.init_containers)
    )


def each_of(single_pod: Mapping[ResourceName, Amount]) -> Each:
    each = {name: amount for name, amount in single_pod.items() if amount > 0}
    each[PODS] = each.get(PODS, 0) + 1
    return tuple(sorted(each.items()))


def filter_of(
    spec: PodSpec,
    tolerations: tuple[Toleration, ...],
    *,
    preferences: bool,
    overruns: float = 0.0,
    spot: SpotRule | None = None,
) -> Filter:
    """The node rules of a pod. ``tolerations``: those that the flavor adds. ``preferences``: preferred node affinity
    counts. ``overruns`` and ``spot``: see ``Filter``.
    """
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity is not None else ()
    return Filter(
        selector=frozenset(spec.node_selector.items()),
        terms=required.node_selector_terms if required is not None else (),
        tolerations=(*spec.tolerations, *tolerations),
        preferred=tuple((term.weight, term.preference) for term in preferred) if preferences else (),
        overruns=overruns,
        spot=spot,
    )


def _matches(term: NodeSelectorTerm, node: NodeFacts) -> bool:
    """Whether the node matches the term. An empty term matches nothing, as in kube-scheduler; ``metadata.name`` is the
    only field that ``matchFields`` may name.
    """
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_holds(requirement, node.labels.get(requirement.key)) for requirement in term.match_expressions) and all(
        requirement.key == "metadata.name" and _holds(requirement, node.name) for requirement in term.match_fields
    )


def _holds(requirement: LabelSelectorRequirement, value: str | None) -> bool:
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _compared(value, requirement.values, int.__gt__)
        case "Lt":
            return _compared(value, requirement.values, int.__lt__)
    return False


def _compared(value: str | None, bounds: tuple[str, ...], holds: Callable[[int, int], bool]) -> bool:
    try:
        return value is not None and len(bounds) == 1 and holds(int(value), int(bounds[0]))
    except ValueError:
        return False
