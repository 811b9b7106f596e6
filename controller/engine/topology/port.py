"""The placement port: where the pods of an assignment would run, and whether that room is free.

The engine asks it in nomination, in every fit check of preemption, and when it charges and undoes. ``Everywhere`` is
the answer of a cluster whose flavors name no topology: quota alone decides.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from controller.engine.devices.grants import NOBODY, Drift, GrantOwner
from controller.engine.devices.supply import Makeable
from controller.engine.model.deviceclaims import ClaimKey, ClaimNames
from controller.engine.model.encoding import Domain
from controller.engine.model.resources import Amount, FlavorName, ResourceName, WorkloadKey
from controller.engine.model.workload import TopologyUsage
from controller.engine.topology.ask import PodSetAsk
from controller.engine.topology.fullnodes import FullNodes, Refusal
from controller.engine.topology.measures import Spread
from controller.engine.topology.nodes import NodeFacts
from controller.objects.core import Node, Pod
from controller.objects.decode import GpuNode
from controller.objects.meta import KubernetesObject
from controller.objects.queues import ResourceFlavor, Topology
from controller.objects.workload import PodSet
from inventory.api.claimplan import ClaimPlan


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A subgroup of a gang, empty for all of it, in one domain of ``level``; where not ``required``, if it can be.

    ``exclusive``: no other subgroup of the gang is in that domain. ``claims``: in place of a subgroup, the claims by
    name for which its pod sets are there.
    """

    group: str
    level: str
    required: bool
    exclusive: bool = False
    claims: tuple[ClaimKey, ...] = ()


class PlacementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One pod set that must be placed on the nodes of one flavor; ``single_pod`` is one pod's whole request.

    ``asked`` is what is to be satisfied: that of ``pod_set``, other than where only some of its pods are placed anew.
    """

    pod_set: PodSet
    asked: PodSetAsk
    count: int
    flavor: FlavorName
    single_pod: Mapping[ResourceName, Amount]
    implied: bool = False
    """It asks for nothing, and its queue has only flavors with a topology: anywhere will do."""
    previous: TopologyUsage | None = None
    """Where it runs now, when only what was lost is to be replaced."""
    lost: str | None = None
    """The node whose pods are to be placed anew."""
    beside: tuple[Domain, ...] = ()
    """Where the rest of its pod set group stays meanwhile."""
    stays: bool = False
    """Its pods cannot run elsewhere: whatever was lost, the places stay."""
    claims: ClaimNames | None = None
    """What each pod's claims of devices are called."""
    within: tuple[Bound, ...] = ()
    """What it shares with other pod sets of its gang, the outermost first."""


class Placed(msgspec.Struct, frozen=True):
    """A domain list for each pod set, by name. ``moved``: what of it the pod set does not hold yet."""

    topologies: Mapping[str, TopologyUsage]
    moved: Mapping[str, TopologyUsage] = {}


class NoPlacement(msgspec.Struct, frozen=True):
    """``pod_set`` found no room; ``problem`` says what was looked for, what is free and the largest block there is."""

    pod_set: str
    problem: str
    refusal: Refusal | None = None
    """By this ``full_nodes`` finds who has the nodes."""


class Placement(Protocol):
    """Changes are noted in the engine's undo log, so that quota and topology are undone together.

    What the cluster's objects change is not: it happens outside of trials.
    """

    def set_flavor(self, flavor: ResourceFlavor) -> None: ...

    def remove_flavor(self, name: FlavorName) -> None: ...

    def set_topology(self, topology: Topology) -> None: ...

    def remove_topology(self, name: str) -> None: ...

    def set_node(self, node: Node) -> frozenset[FlavorName]:
        """The flavors whose nodes offer something else now; so do the next three."""

    def remove_node(self, name: str) -> frozenset[FlavorName]: ...

    def set_pod(self, pod: Pod) -> frozenset[FlavorName]:
        """A pod that runs somewhere without having been placed here takes room."""

    def remove_pod(self, key: str) -> frozenset[FlavorName]: ...

    def set_gpu_node(self, gpu_node: GpuNode) -> frozenset[FlavorName]:
        """What the node's agent says of its GPUs, and who holds them."""

    def remove_gpu_node(self, name: str) -> frozenset[FlavorName]: ...

    def set_claim_object(self, given: KubernetesObject) -> frozenset[FlavorName]:
        """What drivers publish, what pods ask by claim, and what claims were given."""

    def remove_claim_object(self, kind: type[KubernetesObject], namespace: str, name: str) -> frozenset[FlavorName]: ...

    def uncounted_claims(self, names: ClaimNames) -> Mapping[tuple[bool, str], str]:
        """Why claims do not count where pods are placed: by whether it is a template, and ``namespace/name``."""

    def device_plan(self, owner: WorkloadKey, pod_set: str, node: str) -> Sequence[tuple[str, ...]]:
        """UUIDs for each pod of the set that was given devices on the node."""

    def claim_plan(self, owner: WorkloadKey, pod_set: str) -> ClaimPlan:
        """The devices that are planned for the set's claims."""

    def needs(self, asked: PodSetAsk, flavor: ResourceFlavor, *, implied: bool) -> bool:
        """Whether the set must be placed when it gets this flavor. ``implied``: its queue has only such flavors."""

    def mismatch(self, asked: PodSetAsk, flavor: ResourceFlavor) -> str | None:
        """Why this flavor cannot take the set at all (it asks for a level that the topology lacks, ...), else None."""

    def place(self, requests: Sequence[PlacementRequest], *, on_empty: bool) -> Placed | NoPlacement:
        """All or nothing. ``on_empty``: as if nothing that may be preempted were running."""

    def full_nodes(self, refusal: Refusal, now_s: float) -> FullNodes | None:
        """Outside of trials: what has the nodes without room. None where the flavor's topology is another by now."""

    def may_grow(self, resources: Iterable[ResourceName]) -> bool:
        """Whether nodes that take no pods now, or devices of theirs that are out of service, may add to these."""

    def has_room(self, requests: Sequence[PlacementRequest]) -> bool:
        """Whether ``place`` would find places now, without finding them."""

    def question(self, requests: Sequence[PlacementRequest]) -> Callable[[], bool]:
        """``has_room`` of these requests, to be asked many times while the cluster's objects stay as they are."""

    def fits(self, places: Sequence[tuple[FlavorName, TopologyUsage]]) -> bool:
        """Whether all this room is free at once."""

    def begin(self, now_s: float, *, anew: bool = False) -> None:
        """Outside of trials, before something is decided. ``anew``: what decays slowly is brought up to date too."""

    def follow(self, now_s: float) -> None:
        """In place of ``begin`` where nothing is decided yet, now and then."""

    @property
    def is_behind(self) -> bool:
        """Whether ``begin`` would change what is free."""

    def rooms(self, flavor: FlavorName) -> Iterator[tuple[NodeFacts, dict[ResourceName, Amount]]]:
        """The flavor's nodes that take pods, and what is free of each; none where hosts are no level."""

    def spreads(self, *, empty: bool = False) -> Sequence[Spread]:
        """By flavor, what of its free devices can be used. ``empty``: as if nothing placed here were running."""

    def domains(self, host: str, flavors: Iterable[FlavorName]) -> dict[str, str]:
        """The domains above a node, by level, in the first of these flavors that has it."""

    def labels_of(self, node: str) -> Mapping[str, str]:
        """Of a node that is known; empty for any other."""

    def drifts(self, owner: WorkloadKey) -> Sequence[Drift]:
        """The workload's pods that hold other devices than they were told."""

    def lacks_nodes(self, flavor: FlavorName) -> str:
        """That no node has what the flavor selects nodes by; empty where one has, and where no node is known at all."""

    def could_be_made(self, resource: ResourceName) -> Iterator[Makeable]:
        """Where a layout could make a MIG instance of that name that is not there."""

    def add(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None: ...

    def remove(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None: ...

    def validate(self, held: Sequence[tuple[FlavorName, TopologyUsage]]) -> None:
        """Compare what is kept with ``held``, all that was added and not removed; AssertionError for a difference."""


def no_topology(flavor: ResourceFlavor, asked: str = "a topology") -> str:
    wanted = "one" if asked == "a topology" else f"{asked}, which are chosen node by node"
    return f"flavor {flavor.metadata.name} names no topology and the pod set asks for {wanted}"


class Everywhere:
    """No topology: nothing needs a place, and what has one (from before its topology went) blocks nothing."""

    def set_flavor(self, flavor: ResourceFlavor) -> None:
        """Nothing is kept."""

    def remove_flavor(self, name: FlavorName) -> None:
        """Nothing is kept."""

    def set_topology(self, topology: Topology) -> None:
        """Nothing is kept."""

    def remove_topology(self, name: str) -> None:
        """Nothing is kept."""

    def set_node(self, node: Node) -> frozenset[FlavorName]:  # noqa: ARG002
        return frozenset()

    def remove_node(self, name: str) -> frozenset[FlavorName]:  # noqa: ARG002
        return frozenset()

    def set_pod(self, pod: Pod) -> frozenset[FlavorName]:  # noqa: ARG002
        return frozenset()

    def remove_pod(self, key: str) -> frozenset[FlavorName]:  # noqa: ARG002
        return frozenset()

    def set_gpu_node(self, gpu_node: GpuNode) -> frozenset[FlavorName]:  # noqa: ARG002
        return frozenset()

    def remove_gpu_node(self, name: str) -> frozenset[FlavorName]:  # noqa: ARG002
        return frozenset()

    def set_claim_object(self, given: KubernetesObject) -> frozenset[FlavorName]:  # noqa: ARG002
        return frozenset()

    def remove_claim_object(
        self,
        kind: type[KubernetesObject],  # noqa: ARG002
        namespace: str,  # noqa: ARG002
        name: str,  # noqa: ARG002
    ) -> frozenset[FlavorName]:
        return frozenset()

    def uncounted_claims(self, names: ClaimNames) -> Mapping[tuple[bool, str], str]:  # noqa: ARG002
        return {}

    def device_plan(self, owner: WorkloadKey, pod_set: str, node: str) -> Sequence[tuple[str, ...]]:  # noqa: ARG002
        return ()

    def claim_plan(self, owner: WorkloadKey, pod_set: str) -> ClaimPlan:  # noqa: ARG002
        return {}

    def needs(self, asked: PodSetAsk, flavor: ResourceFlavor, *, implied: bool) -> bool:  # noqa: ARG002
        return False

    def mismatch(self, asked: PodSetAsk, flavor: ResourceFlavor) -> str | None:
        return no_topology(flavor) if asked.level and flavor.spec.topology_name is None else None

    def place(self, requests: Sequence[PlacementRequest], *, on_empty: bool) -> Placed | NoPlacement:  # noqa: ARG002
        return Placed({})

    def full_nodes(self, refusal: Refusal, now_s: float) -> FullNodes | None:  # noqa: ARG002
        return None

    def may_grow(self, resources: Iterable[ResourceName]) -> bool:  # noqa: ARG002
        return False

    def has_room(self, requests: Sequence[PlacementRequest]) -> bool:
        return isinstance(self.place(requests, on_empty=False), Placed)

    def question(self, requests: Sequence[PlacementRequest]) -> Callable[[], bool]:
        return lambda: self.has_room(requests)

    def fits(self, places: Sequence[tuple[FlavorName, TopologyUsage]]) -> bool:  # noqa: ARG002
        return True

    def begin(self, now_s: float, *, anew: bool = False) -> None:
        """Nothing is kept."""

    def follow(self, now_s: float) -> None:
        """Nothing is kept."""

    @property
    def is_behind(self) -> bool:
        return False

    def rooms(self, flavor: FlavorName) -> Iterator[tuple[NodeFacts, dict[ResourceName, Amount]]]:  # noqa: ARG002
        return iter(())

    def spreads(self, *, empty: bool = False) -> Sequence[Spread]:  # noqa: ARG002
        return ()

    def domains(self, host: str, flavors: Iterable[FlavorName]) -> dict[str, str]:  # noqa: ARG002
        return {}

    def labels_of(self, node: str) -> Mapping[str, str]:  # noqa: ARG002
        return {}

    def drifts(self, owner: WorkloadKey) -> Sequence[Drift]:  # noqa: ARG002
        return ()

    def lacks_nodes(self, flavor: FlavorName) -> str:  # noqa: ARG002
        return ""

    def could_be_made(self, resource: ResourceName) -> Iterator[Makeable]:  # noqa: ARG002
        return iter(())

    def add(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None:
        """Nothing is counted."""

    def remove(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None:
        """Nothing is counted."""

    def validate(self, held: Sequence[tuple[FlavorName, TopologyUsage]]) -> None:
        """Nothing is counted."""
