"""What a pod set asks of a topology, in levels of one tree; and which nodes its pods may run on at all."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from controller.engine.claimrooms.asks import ClaimsAsk
from controller.engine.model.devicerequest import DeviceAsk, device_ask
from controller.engine.model.gates import FeatureGates
from controller.engine.model.resources import Amount, ResourceName
from controller.engine.model.taints import untolerated
from controller.engine.topology.nodes import PODS, NodeFacts
from controller.objects.core import NodeSelectorTerm, PodSpec, Toleration
from controller.objects.meta import LabelSelectorRequirement
from controller.objects.workload import PodSet, PodSetTopologyRequest, SliceConstraint
from inventory.layout.entries import PERCENT_RESOURCE

Each = tuple[tuple[ResourceName, Amount], ...]
"""What one pod takes where it runs, itself counted under ``pods``; in the order of the names."""


class Filter(NamedTuple):
    """Which nodes are open to a pod, hashable. ``preferred`` only where preferred affinity counts."""

    selector: frozenset[tuple[str, str]] = frozenset()
    terms: tuple[NodeSelectorTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    preferred: tuple[tuple[int, NodeSelectorTerm], ...] = ()

    def admits(self, node: NodeFacts) -> bool:
        if node.taints and untolerated(node.taints, self.tolerations) is not None:
            return False
        if any(node.labels.get(name) != value for name, value in self.selector):
            return False
        return not self.terms or any(_matches(term, node) for term in self.terms)

    def problem(self, node: NodeFacts) -> str:
        """Why ``admits`` says no, in one clause that follows a number of nodes."""
        taint = untolerated(node.taints, self.tolerations)
        if taint is not None:
            value = f"={taint.value}" if taint.value else ""
            return f"with the taint {taint.key}{value}:{taint.effect}"
        if any(node.labels.get(name) != value for name, value in self.selector):
            return "not selected by their node selector"
        return "not matched by their node affinity"

    def score(self, node: NodeFacts) -> int:
        """The sum of the weights of the preferences that the node meets."""
        return sum(weight for weight, term in self.preferred if _matches(term, node))


class RequestShape(NamedTuple):
    """What counts depend on: requests that agree in it share one set of counts."""

    each: Each
    leader: Each
    """Empty without a leader."""
    filter: Filter
    slice_level: int
    slice_size: int
    inner: tuple[int, ...]
    """By level the size of an inner slice layer, 0 where there is none."""
    empty: bool
    """As if no placed pod were running."""
    within: int = -1
    """The only domain whose nodes count; -1 for all."""
    devices: DeviceAsk | None = None
    """What each pod asks of its GPUs."""
    led: DeviceAsk | None = None
    """The same of the leader."""
    claims: ClaimsAsk | None = None
    """What each pod asks by claim."""
    led_claims: ClaimsAsk | None = None
    led_filter: Filter | None = None
    """Which nodes are open to the leader; None: those that are open to the others."""


class Ask(NamedTuple):
    """``pods`` pods at ``level``. ``required``: in one domain of it; ``free``: anywhere; else as low as can be."""

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


class PodSetAsk(Struct, frozen=True, gc=False):
    """What a pod set asks of a topology, read from its object once. Levels are labels: no tree is known yet.

    ``required``, ``preferred`` and ``unconstrained`` say where the set as a whole is to be, the first that is given
    counting; ``layers`` are its slices from the outermost in, a size of 0 where none was given.
    """

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool = False
    layers: tuple[SliceConstraint, ...] = ()
    group: str | None = None
    """The name of its pod set group."""
    devices: bool = False
    """Not any of a node's GPUs will do: the pods must be placed by their devices."""
    parts: bool = False
    """It asks for percents, each request on one GPU: the sum that a node has of them does not say whether one fits."""
    bound: str = ""
    """The level of which one domain has all of its gang, where it says no place itself; empty for none."""

    @property
    def slices_alone(self) -> bool:
        """Slices must be together, and the set as a whole need not be."""
        return bool(self.layers) and self.required is None and self.preferred is None

    @property
    def level(self) -> bool:
        """Whether it names where its pods are to be."""
        return self.required is not None or self.preferred is not None or self.unconstrained or bool(self.layers)

    @property
    def wish(self) -> str:
        """What of GPUs it asks for, in words."""
        return "parts of GPUs" if self.parts else "certain GPUs"

    @property
    def placed(self) -> bool:
        """Whether its pods must be placed: it says where they are to be, or that only some GPUs will do."""
        return self.level or self.devices

    def label(self, levels: tuple[str, ...]) -> str | None:
        """The level at which the set is to be placed; None where it asks for none."""
        if self.required is not None:
            return self.required
        if self.preferred is not None:
            return self.preferred
        if self.layers:
            return levels[0]
        return levels[-1] if self.unconstrained else None

    def unknown_level(self, levels: tuple[str, ...], gates: FeatureGates) -> str | None:
        """A level that is asked for and that the topology does not have."""
        counted = self.layers if gates.on("TASMultiLayerTopology") else self.layers[:1]
        wanted = [self.label(levels), *(layer.topology for layer in counted)]
        return next((label for label in wanted if label is not None and label not in levels), None)


def pod_set_ask(pod_set: PodSet) -> PodSetAsk:
    asked, parts = pod_set.topology_request or _NO_REQUEST, asks_for_parts(pod_set)
    devices = device_ask(pod_set.template.metadata.annotations)
    layers = asked.podset_slice_required_topology_constraints
    if not layers and asked.pod_set_slice_required_topology is not None:
        outermost = asked.pod_set_slice_required_topology
        layers = (SliceConstraint(topology=outermost, size=asked.pod_set_slice_size or 0),)
    return PodSetAsk(
        required=asked.required,
        preferred=asked.preferred,
        unconstrained=bool(asked.unconstrained),
        layers=layers,
        group=asked.pod_set_group_name,
        devices=parts or (devices is not None and devices.binding),
        parts=parts,
    )


def asks_for_parts(pod_set: PodSet) -> bool:
    """See ``PodSetAsk.parts``."""
    spec = pod_set.template.spec
    return any(
        PERCENT_RESOURCE in container.resources.requests or PERCENT_RESOURCE in container.resources.limits
        for container in (*spec.containers, *spec.init_containers)
    )


def each_of(single_pod: Mapping[ResourceName, Amount]) -> Each:
    each = {name: amount for name, amount in single_pod.items() if amount > 0}
    each[PODS] = each.get(PODS, 0) + 1
    return tuple(sorted(each.items()))


def filter_of(spec: PodSpec, tolerations: tuple[Toleration, ...], *, preferences: bool) -> Filter:
    """``tolerations`` are those that the flavor adds; ``preferences``: preferred node affinity counts."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity is not None else ()
    return Filter(
        selector=frozenset(spec.node_selector.items()),
        terms=required.node_selector_terms if required is not None else (),
        tolerations=(*spec.tolerations, *tolerations),
        preferred=tuple((term.weight, term.preference) for term in preferred) if preferences else (),
    )


def _matches(term: NodeSelectorTerm, node: NodeFacts) -> bool:
    """An empty term matches nothing, as in kube-scheduler; ``metadata.name`` is the one field there is."""
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
