"""The placement port: where the pods of an assignment would run, and whether these places are free.

The engine asks it in nomination, in every fit check of preemption, and when it charges and undoes. ``NoTopology``
answers for a cluster whose flavors name no topology: there quota alone decides.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, Protocol

import msgspec

from controller.objects.core import Node, Pod
from controller.objects.decode import GpuNode
from controller.objects.meta import KubernetesObject
from controller.objects.placeencoding import Domain
from controller.objects.queues import ResourceFlavor, ResourceFlavorSpec, Topology
from controller.objects.workload import PodSet, Workload
from controller.scheduler.devices.grants import NOBODY, Drift, GrantOwner
from controller.scheduler.devices.supply import Makeable
from controller.scheduler.model.deviceclaims import ClaimKey, ClaimNames
from controller.scheduler.model.resources import Amount, FlavorName, ResourceName, WorkloadKey
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.fullnodes import FullNodes, UnplacedRequest
from controller.scheduler.topology.measures import Spread
from controller.scheduler.topology.nodes import EVER, NodeFacts
from controller.scheduler.topology.requests import SpotRule, TopologyRequest
from inventory.api.claimplan import ClaimPlan

_LEADER_AND_WORKERS: Final = 2


class PlacementRules(NamedTuple):
    """Rules of the site that placement follows beside Kueue's. Without any it places as Kueue does."""

    packs: bool = False
    """Nodes are chosen so that linked GPUs stay together."""
    claims: bool = False
    """ResourceClaims count."""
    own_places: bool = False
    """Leaders' own node rules count."""
    leaving: AbstractSet[str] = frozenset()
    """See NodeFacts."""
    empty_nodes: float = 0.0
    """See Tree."""
    coming: bool = False
    """Flavors' node templates count."""


AS_KUEUE: Final = PlacementRules()


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that a subgroup of a gang (``group``; empty for the whole gang) goes into one domain of ``level``; if not
    ``required``, only where that is possible. ``exclusive``: no other subgroup of the gang is in that domain.
    ``claims``: for a bound that comes from shared ResourceClaims instead of a subgroup, their keys.
    """

    group: str
    level: str
    required: bool
    exclusive: bool = False
    claims: tuple[ClaimKey, ...] = ()


class PlacementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One pod set that must be placed on the nodes of one flavor. ``single_pod`` is the whole request of one pod.
    ``asked`` is the topology request to satisfy: the one of ``pod_set``, except where only some of its pods are placed
    anew.
    """

    pod_set: PodSet
    asked: TopologyRequest
    count: int
    flavor: FlavorName
    single_pod: Mapping[ResourceName, Amount]
    implied: bool = False
    """The pod set asks for no topology, and its queue has only flavors with one: any domain will do."""
    previous: TopologyUsage | None = None
    """The current assignment, when only lost pods are to be replaced or an elastic workload is resized."""
    grows: bool = False
    """Whether the pods of ``previous`` run on and keep their places: a gang that was admitted with a part of them."""
    lost: str | None = None
    """The node whose pods are to be placed anew."""
    beside: tuple[Domain, ...] = ()
    """The places that the rest of the pod set group keeps in the meantime."""
    stays: bool = False
    """The pods cannot run elsewhere: they keep their places whatever was lost."""
    claims: ClaimNames | None = None
    """The names of each pod's ResourceClaims."""
    overruns: float = 0.0
    """See ``Placement.overruns``."""
    spot: SpotRule | None = None
    """What counts of the capacity kind of nodes; None for nothing."""
    within: tuple[Bound, ...] = ()
    """The bounds that the pod set shares with other pod sets of its gang, the outermost first."""


class Placed(msgspec.Struct, frozen=True):
    """The assignments by pod set name. ``moved``: the part of each that the pod set does not hold yet."""

    topologies: Mapping[str, TopologyUsage]
    moved: Mapping[str, TopologyUsage] = {}


class PlacementNoFit(msgspec.Struct, frozen=True):
    """The pod set that found no places. ``problem`` says what was looked for, what is free and how large the largest
    free block is.
    """

    pod_set: str
    problem: str
    unplaced: UnplacedRequest | None = None
    """The refused ask, from which ``full_nodes`` finds who holds the nodes."""


ComingAnswer = Placed | PlacementNoFit | None
"""None where no node of the flavors can come."""


class Placement(Protocol):
    """What the engine asks of placement. Changes by ``add`` and ``remove`` are noted in the engine's undo log, so quota
    and topology are undone together. Changes by the cluster's objects are not noted: they happen outside of trials.
    """

    def set_flavor(self, flavor: ResourceFlavor) -> None: ...

    def remove_flavor(self, name: FlavorName) -> None: ...

    def set_topology(self, topology: Topology) -> None: ...

    def remove_topology(self, name: str) -> None: ...

    def set_node(self, node: Node) -> frozenset[FlavorName]:
        """Store a node. Returns the flavors whose nodes now offer something else, as the next three methods do."""

    def remove_node(self, name: str) -> frozenset[FlavorName]: ...

    def set_pod(self, pod: Pod) -> frozenset[FlavorName]:
        """Store a pod. A pod that runs on a node without having been placed here takes its part of it."""

    def remove_pod(self, key: str) -> frozenset[FlavorName]: ...

    def set_gpu_node(self, gpu_node: GpuNode) -> frozenset[FlavorName]:
        """Store what the node's agent reports: its GPUs and who holds them."""

    def remove_gpu_node(self, name: str) -> frozenset[FlavorName]: ...

    def set_claim_object(self, given: KubernetesObject) -> frozenset[FlavorName]:
        """Store an object about ResourceClaims: what drivers publish, what pods ask, or what claims were allocated."""

    def remove_claim_object(self, kind: type[KubernetesObject], namespace: str, name: str) -> frozenset[FlavorName]: ...

    def uncounted_claims(self, names: ClaimNames) -> Mapping[tuple[bool, str], str]:
        """Why each of these ResourceClaims cannot be counted, by (whether it is a template, ``namespace/name``); the
        others are left out.
        """

    def device_plan(self, owner: WorkloadKey, pod_set: str, node: str) -> Sequence[tuple[str, ...]]:
        """GPU UUIDs for each pod of the set that was given devices on the node."""

    def claim_plan(self, owner: WorkloadKey, pod_set: str) -> ClaimPlan:
        """The devices that are planned for the pod set's ResourceClaims."""

    def needs(self, asked: TopologyRequest, flavor: ResourceFlavor, *, implied: bool) -> bool:
        """Whether the pod set must be placed when it gets this flavor. ``implied``: its queue has only flavors with a
        topology.
        """

    def mismatch(self, asked: TopologyRequest, flavor: ResourceFlavor) -> str | None:
        """Why this flavor can never take the pod set (it asks for a level that the topology lacks, ...), else None."""

    def place(self, requests: Sequence[PlacementRequest], *, on_empty: bool) -> Placed | PlacementNoFit:
        """Find places for all requests, or for none. ``on_empty``: as if nothing that may be preempted were running."""

    def place_coming(self, requests: Sequence[PlacementRequest], *, on_empty: bool = False) -> ComingAnswer:
        """``place`` on nodes that are there and, where these do not do, on nodes that can come: see ``ComingNodes``."""

    def coming_shortage(self, requests: Sequence[PlacementRequest], refused: PlacementNoFit) -> str:
        """What nodes to come lack that ``place_coming`` has ``refused``, in words."""

    def can_come(self, flavor: FlavorName) -> bool:
        """Whether the flavor has a node template that counts."""

    def coming_after_s(self, flavor: FlavorName) -> float:
        """The seconds that a node of the flavor takes as a rule; 0 where none can come."""

    def awaits_devices(self, flavor: FlavorName, node: str) -> bool:
        """Whether a node of the flavor has not come yet though it may have joined: a driver that the flavor's template
        names has not published its devices.
        """

    def overruns(self, workload: Workload) -> float:
        """The latest announced drain that the workload would outlast if it started now, by its own word on its run
        time: nodes that are drained then or before are closed to it. 0 where it outlasts none, or does not say.
        """

    def full_nodes(self, unplaced: UnplacedRequest, now_s: float) -> FullNodes | None:
        """The holders of the nodes that are too full; only outside of trials. None where the flavor's topology has
        changed since.
        """

    def may_grow(self, resources: Iterable[ResourceName]) -> bool:
        """Whether nodes that take no pods now, or devices that are out of service, could add to these resources."""

    def can_place(self, requests: Sequence[PlacementRequest]) -> bool:
        """Whether ``place`` would find places now; cheaper than finding them."""

    def question(self, requests: Sequence[PlacementRequest]) -> Callable[[], bool]:
        """A function that answers ``can_place`` for these requests, to be called many times while the cluster's objects
        stay as they are.
        """

    def fits(self, places: Sequence[tuple[FlavorName, TopologyUsage]]) -> bool:
        """Whether all these places are free at once."""

    def begin(self, now_s: float, *, anew: bool = False) -> None:
        """Bring the state up to date before a decision; only outside of trials. ``anew``: also what decays slowly."""

    def follow(self, now_s: float) -> None:
        """Bring the state up to date from time to time; called instead of ``begin`` while nothing is decided yet."""

    @property
    def is_behind(self) -> bool:
        """Whether ``begin`` would change what is free."""

    def free_by_node(
        self, flavor: FlavorName, since_s: float = EVER
    ) -> Iterator[tuple[NodeFacts, dict[ResourceName, Amount]]]:
        """The flavor's nodes that take pods, each with its free amounts; none where the topology ends above
        the nodes. ``since_s``: only those that were created after it.
        """

    def spreads(self, *, empty: bool = False) -> Sequence[Spread]:
        """How much of each flavor's free devices can be used. ``empty``: as if nothing that was placed here were
        running.
        """

    def domains(self, host: str, flavors: Iterable[FlavorName]) -> dict[str, str]:
        """The domains above a node, by level, in the first of these flavors whose tree has the node."""

    def labels_of(self, node: str) -> Mapping[str, str]:
        """The labels of a node; empty for an unknown one."""

    def spot_pods(self, flavor: FlavorName, places: TopologyUsage | None, count: int, rule: SpotRule) -> int | None:
        """How many of a pod set's ``count`` pods are on spot nodes. Those without a place count, and those on a node
        that is not there: they may be yet. None where the flavor's topology names no nodes.
        """

    def drifts(self, owner: WorkloadKey) -> Sequence[Drift]:
        """The workload's pods that hold other devices than they were assigned."""

    def lacks_nodes(self, flavor: FlavorName) -> str:
        """A sentence that no node has the labels by which the flavor selects nodes; empty where one has, and where no
        node is known at all.
        """

    def too_large(
        self, pod: Mapping[ResourceName, Amount], flavor: ResourceFlavorSpec
    ) -> Mapping[ResourceName, Amount] | None:
        """None where some node that the flavor selects would take this request of one pod if nothing ran there and all
        of its devices were in service, and where no node is known. Else by resource the most that one node has, of
        those of which no node has enough; empty where no node has enough of all at once.
        """

    def could_be_made(self, resource: ResourceName) -> Iterator[Makeable]:
        """The nodes on which a layout could make a MIG instance of this resource that does not exist now."""

    def add(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None: ...

    def remove(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None: ...

    def validate(self, held: Sequence[tuple[FlavorName, TopologyUsage]]) -> None:
        """Compare what is kept with ``held``: all that was added and not removed. AssertionError for a difference."""


def no_topology(flavor: ResourceFlavor, asked: TopologyRequest) -> str:
    level = asked.required or asked.preferred or next((layer.topology for layer in asked.layers), "")
    wanted = f"one with the level {level}" if level else "one"
    if not asked.level:
        wanted = f"{asked.wish}, which are chosen node by node"
    return f"flavor {flavor.metadata.name} names no topology and the pod set asks for {wanted}"


def pod_set_groups(requests: Sequence[PlacementRequest]) -> Iterator[list[PlacementRequest]]:
    """The requests by flavor and pod set group, in the order of each group's first request."""
    found: dict[object, list[PlacementRequest]] = {}
    for at, request in enumerate(requests):
        found.setdefault((request.flavor, at if (name := request.asked.group) is None else name), []).append(request)
    yield from found.values()


def is_lost_whole(request: PlacementRequest) -> bool:
    """Whether no pod of the request's group still runs: the group is then placed as if it were new."""
    stays = request.previous is None or any(domain.values[-1] != request.lost for domain in request.previous.domains)
    return not (stays or request.stays or request.beside)


def group_problem(group: list[PlacementRequest]) -> str | None:
    """Why pod sets are no valid group, else None. A group is a leader and its workers; others must not run unplaced."""
    if len(group) == 1:
        return None
    counts = [request.count for request in group]
    if len(group) == _LEADER_AND_WORKERS and min(counts) <= 1:
        return None
    listed = " and ".join(str(count) for count in counts)
    return f"a pod set group is two pod sets, one of them with one pod: found {len(group)} with {listed} pods"


def roles_of(group: list[PlacementRequest]) -> tuple[PlacementRequest, PlacementRequest | None]:
    """The workers and their leader. The smaller of two pod sets leads; of equals the second one does."""
    if len(group) == 1:
        return group[0], None
    first, second = group[0], group[1]
    return (second, first) if second.count > first.count else (first, second)


class NoTopology:
    """A placement port without topologies: no pod needs a place, and a place from before its topology went blocks no
    other.
    """

    def set_flavor(self, flavor: ResourceFlavor) -> None:
        """Does nothing: there is no topology to keep."""

    def remove_flavor(self, name: FlavorName) -> None:
        """Does nothing: there is no topology to keep."""

    def set_topology(self, topology: Topology) -> None:
        """Does nothing: there is no topology to keep."""

    def remove_topology(self, name: str) -> None:
        """Does nothing: there is no topology to keep."""

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

    def needs(self, asked: TopologyRequest, flavor: ResourceFlavor, *, implied: bool) -> bool:  # noqa: ARG002
        return False

    def mismatch(self, asked: TopologyRequest, flavor: ResourceFlavor) -> str | None:
        return no_topology(flavor, asked) if asked.level and flavor.spec.topology_name is None else None

    def place(self, requests: Sequence[PlacementRequest], *, on_empty: bool) -> Placed | PlacementNoFit:  # noqa: ARG002
        return Placed({})

    def place_coming(self, requests: Sequence[PlacementRequest], *, on_empty: bool = False) -> ComingAnswer:  # noqa: ARG002
        return None

    def coming_shortage(self, requests: Sequence[PlacementRequest], refused: PlacementNoFit) -> str:  # noqa: ARG002
        return ""

    def can_come(self, flavor: FlavorName) -> bool:  # noqa: ARG002
        return False

    def coming_after_s(self, flavor: FlavorName) -> float:  # noqa: ARG002
        return 0.0

    def awaits_devices(self, flavor: FlavorName, node: str) -> bool:  # noqa: ARG002
        return False

    def overruns(self, workload: Workload) -> float:  # noqa: ARG002
        return 0.0

    def full_nodes(self, unplaced: UnplacedRequest, now_s: float) -> FullNodes | None:  # noqa: ARG002
        return None

    def may_grow(self, resources: Iterable[ResourceName]) -> bool:  # noqa: ARG002
        return False

    def can_place(self, requests: Sequence[PlacementRequest]) -> bool:
        return isinstance(self.place(requests, on_empty=False), Placed)

    def question(self, requests: Sequence[PlacementRequest]) -> Callable[[], bool]:
        return lambda: self.can_place(requests)

    def fits(self, places: Sequence[tuple[FlavorName, TopologyUsage]]) -> bool:  # noqa: ARG002
        return True

    def begin(self, now_s: float, *, anew: bool = False) -> None:
        """Does nothing: there is no topology to keep."""

    def follow(self, now_s: float) -> None:
        """Does nothing: there is no topology to keep."""

    @property
    def is_behind(self) -> bool:
        return False

    def free_by_node(
        self,
        flavor: FlavorName,  # noqa: ARG002
        since_s: float = EVER,  # noqa: ARG002
    ) -> Iterator[tuple[NodeFacts, dict[ResourceName, Amount]]]:
        return iter(())

    def spreads(self, *, empty: bool = False) -> Sequence[Spread]:  # noqa: ARG002
        return ()

    def domains(self, host: str, flavors: Iterable[FlavorName]) -> dict[str, str]:  # noqa: ARG002
        return {}

    def labels_of(self, node: str) -> Mapping[str, str]:  # noqa: ARG002
        return {}

    def spot_pods(
        self,
        flavor: FlavorName,  # noqa: ARG002
        places: TopologyUsage | None,  # noqa: ARG002
        count: int,  # noqa: ARG002
        rule: SpotRule,  # noqa: ARG002
    ) -> int | None:
        return None

    def drifts(self, owner: WorkloadKey) -> Sequence[Drift]:  # noqa: ARG002
        return ()

    def lacks_nodes(self, flavor: FlavorName) -> str:  # noqa: ARG002
        return ""

    def too_large(
        self,
        pod: Mapping[ResourceName, Amount],  # noqa: ARG002
        flavor: ResourceFlavorSpec,  # noqa: ARG002
    ) -> Mapping[ResourceName, Amount] | None:
        return None

    def could_be_made(self, resource: ResourceName) -> Iterator[Makeable]:  # noqa: ARG002
        return iter(())

    def add(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None:
        """Does nothing: usage is not counted."""

    def remove(self, flavor: FlavorName, usage: TopologyUsage, owner: GrantOwner = NOBODY) -> None:
        """Does nothing: usage is not counted."""

    def validate(self, held: Sequence[tuple[FlavorName, TopologyUsage]]) -> None:
        """Does nothing: usage is not counted."""
