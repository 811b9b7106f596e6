"""A workload's flavors before usage is looked at: those that are open to each pod set, and why others are not.

This depends only on the ClusterQueue, its flavors and the shape of the pod sets, so it is compiled once and kept:
``Plans.of`` answers from memory until one of the cluster's objects changes. One decision takes 35 us where the workload
fits, and 67 us where its plan is compiled anew; 57 us without ``Shortcut``, and 40 us where its ``Answer`` is made
anew.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from controller.messages import pending as words
from controller.objects.core import NodeSelector, Toleration
from controller.objects.provisioning import NODE_MAKING
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import PodSet
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assignment import (
    Assignment,
    Bookmark,
    FlavorAttempt,
    FlavorChoice,
    Mode,
    NoFitReason,
    PodSetChoice,
)
from controller.scheduler.flavors.nodematch import match_problem
from controller.scheduler.flavors.spot import SpotWords
from controller.scheduler.model.caches import Bounded, ByIdentity
from controller.scheduler.model.devicerequest import pod_device_request
from controller.scheduler.model.honestunits import undeclared
from controller.scheduler.model.resources import (
    PODS,
    UNLIMITED,
    Amount,
    ClusterQueueName,
    FlavorName,
    FlavorResource,
    ResourceName,
)
from controller.scheduler.model.workload import PodSetRequests
from controller.scheduler.quota.cells import Cell
from controller.scheduler.quota.queuestate import QueueState, ResourceGroup
from controller.scheduler.topology.gangdomains import bounded_request, bounds_of
from controller.scheduler.topology.requests import SpotRule, TopologyRequest, asks_for_parts
from inventory.api.names import ALL_NODES, FLAVORS_GIVEN_UP, GANG

ALLOWED_FLAVORS: Final = "kueue.x-k8s.io/workload-allowed-resource-flavors"
"""Workload annotation: the flavors that the workload may use, separated by commas. Read behind the gate
ConcurrentAdmission.
"""


class Barred:
    """The flavors that annotations keep from a workload: those that one does not name, and those that another names."""

    def __init__(self, allowed: str, given_up: str, spot: str, spots: SpotWords | None) -> None:
        """The texts of the annotations; empty where there is none. ``spot``: as ``spots.of`` says it."""
        self._allowed = _names(allowed) if allowed else None
        self._given_up = _names(given_up)
        self._spot = spot
        self._spots = spots
        self.spot = None if spots is None else spots.rule(spot)
        """What the workload wants of nodes."""

    def in_order(self, names: Sequence[FlavorName]) -> Sequence[FlavorName]:
        return names if self._spots is None else self._spots.in_order(self._spot, names)

    def why(self, flavor: FlavorName) -> str | None:
        """Why the flavor is kept from the workload; None if it is not."""
        if self._allowed is not None and flavor not in self._allowed:
            return f"the annotation {ALLOWED_FLAVORS} does not name flavor {flavor}"
        if self._spots is not None and (problem := self._spots.closed(self._spot, flavor)) is not None:
            return problem
        return words.flavor_given_up(flavor) if flavor in self._given_up else None


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(","))


_REMEMBERED: Final = 4096
_ANSWERS: Final = 64


class FlavorOption:
    """One flavor of a resource group for one pod set (or group of them). ``problem`` excludes the flavor at
    any usage.
    """

    def __init__(self, name: FlavorName, index: int, *, last: bool, problem: str | None) -> None:
        self.name = name
        self.index = index
        self.problem = problem
        self.cells: tuple[tuple[ResourceName, FlavorResource, Cell], ...] = ()
        self.topology = False
        """Whether the flavor's nodes are known: pods on it must be placed."""
        self.delayed = False
        """Whether the flavor's nodes are made only after the quota is reserved."""
        # The most frequent answers, made once: immutable and shared by all who get them.
        self.fits = FlavorAttempt(flavor=name, mode=Mode.FIT)
        self.fitting = FlavorChoice(name, Mode.FIT, 0, -1 if last else index)
        self.refusal = FlavorAttempt(
            flavor=name, mode=Mode.NO_FIT, no_fit_reason=NoFitReason.NoMatchingFlavor, problem=problem or ""
        )


class GroupPlan:
    """A resource group with those of its resources that are asked for."""

    def __init__(self, resources: tuple[ResourceName, ...], options: tuple[FlavorOption, ...]) -> None:
        self.resources = resources
        self.options = options
        self.last = len(options) - 1


class SetPlan:
    """Pod sets that get their flavors together: one, or those of a ``podSetGroupName``. ``members`` are their indexes.
    ``undeclared`` are requested resources for which the queue has no quota.
    """

    def __init__(
        self, members: tuple[int, ...], groups: tuple[GroupPlan, ...], undeclared: tuple[ResourceName, ...]
    ) -> None:
        self.members = members
        self.groups = groups
        self.undeclared = undeclared
        options = [option for group in groups for option in group.options]
        self.on_nodes = frozenset(option.name for option in options if option.topology)
        """The flavors on which these pods must be placed."""
        self.delayed = frozenset(option.name for option in options if option.delayed)


class Answer:
    """What pod sets get that fit at their first open flavors: the same objects for all workloads of their shape."""

    def __init__(self, of: tuple[PodSetRequests, ...], shortcut: "Shortcut", *, counts_pods: bool) -> None:
        requests = ({**each.requests, PODS: each.count} if counts_pods else each.requests for each in of)
        sets = tuple(zip(shortcut.parts, of, requests, strict=True))
        self.usage: dict[FlavorResource, Amount] = {}
        for part, _, asked in sets:
            for name, fr, _ in part.option.cells:
                self.usage[fr] = min(self.usage.get(fr, 0) + asked[name], UNLIMITED)
        self.chosen = tuple(
            PodSetChoice(name=each.name, count=each.count, requests=asked, choices=part.choices, attempts=part.attempts)
            for part, each, asked in sets
        )
        self.held = tuple(part.held(each, asked) for part, each, asked in sets)

    def assign(self, bookmark: Bookmark) -> Assignment:
        return Assignment(pod_sets=self.chosen, mode=Mode.FIT, usage=self.usage, bookmark=bookmark, held=self.held)


class ShortcutPart:
    """One pod set of a shortcut: its first open flavor, and the answer where it fits there."""

    def __init__(self, group: GroupPlan, option: FlavorOption) -> None:
        self.option = option
        self.attempts = (*(earlier.refusal for earlier in group.options[: option.index]), option.fits)
        self.choices: Mapping[ResourceName, FlavorChoice] = dict.fromkeys(group.resources, option.fitting)
        self.tried: Mapping[ResourceName, int] = dict.fromkeys(group.resources, option.fitting.tried_index)

    def held(self, of: PodSetRequests, asked: Mapping[ResourceName, Amount]) -> PodSetRequests:
        flavors = {name: fr.flavor for name, fr, _ in self.option.cells}
        return PodSetRequests(
            name=of.name, count=of.count, requests={name: asked[name] for name in flavors}, flavors=flavors
        )


class Shortcut:
    """What to answer when all fits on the first open flavors, for pod sets that each ask for one resource group. This
    is by far the most frequent answer, and all workloads that get it share the same objects.
    """

    def __init__(self, parts: tuple[ShortcutPart, ...]) -> None:
        self.parts = parts
        """The parts in the order of the pod sets."""
        self.tried = tuple(part.tried for part in parts)
        self._answers = ByIdentity[tuple[PodSetRequests, ...], Answer](_ANSWERS)

    def fits(self, pod_sets: tuple[PodSetRequests, ...]) -> bool:
        """Whether the queue's own quota holds everything that is asked for, as the cells are now."""
        usage: dict[FlavorResource, Amount] = {}
        for part, of in zip(self.parts, pod_sets, strict=True):
            for name, fr, cell in part.option.cells:
                amount = usage[fr] = usage.get(fr, 0) + (of.count if name == PODS else of.requests[name])
                if (cell.parent is not None and cell.usage + amount > cell.subtree_quota) or amount > cell.available():
                    return False
        return True

    def answer(self, pod_sets: tuple[PodSetRequests, ...], *, counts_pods: bool) -> Answer:
        known = self._answers.get(id(pod_sets))
        if known is not None:
            return known[1]
        return self._answers.keep(pod_sets, Answer(pod_sets, self, counts_pods=counts_pods))

    @classmethod
    def of(cls, sets: tuple[SetPlan, ...]) -> "Shortcut | None":
        parts: list[ShortcutPart] = []
        for each in sets:
            if len(each.members) != 1 or len(each.groups) != 1 or each.undeclared or each.on_nodes:
                return None
            group = each.groups[0]
            option = next((option for option in group.options if option.problem is None), None)
            if option is None:
                return None
            parts.append(ShortcutPart(group, option))
        return cls(tuple(parts)) if parts else None


OnNodes = Mapping[int, frozenset[FlavorName]]
"""The flavors on which pods must be placed, by index of the pod set."""


class FlavorPlan:
    def __init__(
        self,
        sets: tuple[SetPlan, ...],
        topology_requests: tuple[TopologyRequest, ...],
        *,
        counts_pods: bool,
        implied: bool,
        asking: frozenset[int],
        bound: frozenset[int],
        spot: SpotRule | None = None,
    ) -> None:
        self.sets = sets
        self.spot = spot
        self.topology_requests = topology_requests
        """The topology request of each pod set."""
        self.counts_pods = counts_pods
        """Whether the queue has a quota on pods."""
        self.implied = implied
        """Whether all flavors of the queue have a topology: pods that ask for none are placed all the same."""
        self.asking = asking
        """The indexes of pod sets that ask for a topology."""
        self.bound = bound
        """The indexes of pod sets that do not start without a place."""
        self.on_nodes: OnNodes = {
            index: pod_set.on_nodes for pod_set in sets for index in pod_set.members if pod_set.on_nodes
        }
        """The flavors with places by pod set; empty where no pod needs a place."""
        self.shortcut = None if asking else Shortcut.of(sets)
        self.no_choice = not (asking or implied or self.on_nodes) and all(map(_has_no_choice, sets))
        """Whether no pod set has more than one flavor in a resource group, and no pod needs a place."""


class Plans:
    """Compiled plans by shape."""

    def __init__(self, cluster: Cluster) -> None:
        gates = cluster.config.gates
        self._cluster = cluster
        self._generation = cluster.generation
        self._by_shape = Bounded[Hashable, FlavorPlan](_REMEMBERED)
        self._by_name = Bounded[tuple[ClusterQueueName, str, str], FlavorPlan](_REMEMBERED)
        """Plans by the name of a pending workload's shape and its word on spot flavors: more names than plans, and no
        need to look at the pod sets, which takes 3 us.
        """
        self._respects_annotation = gates.on("ConcurrentAdmission")
        self._gives_up = cluster.config.extensions.requests_withdrawn
        self._spot = SpotWords(cluster) if cluster.config.extensions.spot_words else None
        self._topology = gates.on("TopologyAwareScheduling")
        self._own_places = cluster.config.extensions.own_places
        rules = cluster.config.claim_rules
        self._by_claims = rules.on and rules.every_kind

    def of(self, incoming: Incoming) -> FlavorPlan:
        if self._generation != self._cluster.generation:
            self._by_shape.clear()
            self._by_name.clear()
            self._generation = self._cluster.generation
        word = self._spot.of(incoming) if self._spot is not None else ""
        if not incoming.shape:
            return self._of_shape(incoming, word)
        name = (incoming.queue.name, incoming.shape, word)
        plan = self._by_name.get(name)
        if plan is None:
            plan = self._by_name.remember(name, self._of_shape(incoming, word))
        return plan

    def _of_shape(self, incoming: Incoming, word: str) -> FlavorPlan:
        info, queue = incoming.info, incoming.queue
        workload = info.workload
        specs, requests = workload.spec.pod_sets, info.pod_sets
        allowed = workload.metadata.annotations.get(ALLOWED_FLAVORS, "") if self._respects_annotation else ""
        given_up = workload.metadata.annotations.get(FLAVORS_GIVEN_UP, "") if self._gives_up else ""
        together = _together(specs, by_claims=self._by_claims)
        shape = (
            queue.name,
            queue.version,
            allowed,
            given_up,
            word,
            together,
            workload.metadata.annotations.get(GANG, ""),
            tuple(map(constraints, specs)),
            tuple(tuple(request.requests) for request in requests),
        )
        plan = self._by_shape.get(shape)
        if plan is None:
            barred = Barred(allowed, given_up, word, self._spot)
            plan = self._by_shape.remember(shape, self._compile(incoming, barred, together))
        return plan

    def _compile(self, incoming: Incoming, barred: Barred, together: tuple[tuple[int, ...], ...]) -> FlavorPlan:
        queue, info = incoming.queue, incoming.info
        counts_pods = PODS in queue.group_of
        implied = self._topology and self._cluster.implies_topology(queue)
        specs = info.workload.spec.pod_sets
        # Where all flavors have a topology, a gang's bounds are looked at only when its pods are placed.
        bounds = {} if implied or not self._topology else bounds_of(info.workload)
        topology_requests = tuple(bounded_request(pod_set, bounds.get(pod_set.name, ())) for pod_set in specs)
        sets = []
        for members in together:
            asked = {name: None for index in members for name in info.pod_sets[index].requests}
            if counts_pods:
                asked[PODS] = None
            resources = tuple(asked)
            pod_sets = [(specs[index], topology_requests[index]) for index in members]
            groups = []
            for number, group in enumerate(queue.groups):
                wanted = tuple(name for name in resources if queue.group_of.get(name) == number)
                # A pod set that asks for nothing of the group runs wherever the others do.
                takers = [
                    topology_requests[index]
                    for index in members
                    if PODS in wanted or not info.pod_sets[index].requests.keys().isdisjoint(wanted)
                ]
                if wanted:
                    options = self._options(queue, group, wanted, pod_sets, takers, barred, implied=implied)
                    groups.append(GroupPlan(wanted, tuple(options)))
            sets.append(SetPlan(members, tuple(groups), undeclared(resources, queue.group_of)))
        asking = frozenset(index for index, asked in enumerate(topology_requests) if self._topology and asked.placed)
        # A queue of another system has all nodes: its pods that request nothing are scheduled as they would be without
        # it.
        free = self._own_places or not implied or _has_all_nodes(queue)
        bound = asking if free else frozenset(range(len(topology_requests)))
        return FlavorPlan(
            tuple(sets),
            topology_requests,
            counts_pods=counts_pods,
            implied=implied,
            asking=asking,
            bound=bound,
            spot=barred.spot,
        )

    def _options(
        self,
        queue: QueueState,
        group: ResourceGroup,
        wanted: tuple[ResourceName, ...],
        pod_sets: list[tuple[PodSet, TopologyRequest]],
        takers: list[TopologyRequest],
        barred: Barred,
        *,
        implied: bool,
    ) -> Iterator[FlavorOption]:
        last = len(group.flavors) - 1
        # If flavors of another group have a topology and those of this group have none, the other group decides on the
        # nodes.
        decides = _has_topology(self._cluster, group.flavors) or not _has_topology(
            self._cluster, [name for each in queue.groups for name in each.flavors]
        )
        binding = takers if decides else []
        for index, name in enumerate(barred.in_order(group.flavors)):
            flavor = self._cluster.flavors.get(name)
            problem = barred.why(name)
            if problem is not None:
                pass
            elif flavor is None:
                problem = f"there is no flavor {name}"
            else:
                problem = self._problem(flavor, pod_sets, binding, implied=implied)
            option = FlavorOption(name, index, last=index == last, problem=problem)
            option.cells = tuple(
                (resource, fr, queue.node.cells[fr]) for resource in wanted for fr in [FlavorResource(name, resource)]
            )
            if flavor is not None and self._topology:
                needs = self._cluster.placement.needs
                option.topology = any(needs(asked, flavor, implied=implied) for _, asked in pod_sets)
                option.delayed = option.topology and _made_later(self._cluster, queue, name)
            yield option

    def _problem(
        self,
        flavor: ResourceFlavor,
        pod_sets: list[tuple[PodSet, TopologyRequest]],
        binding: list[TopologyRequest],
        *,
        implied: bool,
    ) -> str | None:
        """Why the flavor is not open to the pod sets, else None. ``binding``: the requests of pod sets whose nodes the
        flavor would decide.
        """
        for pod_set, _ in pod_sets:
            problem = match_problem(pod_set, flavor)
            if problem is not None:
                return problem
        for asked in binding if self._topology else ():
            problem = self._cluster.placement.mismatch(asked, flavor)
            if problem is None and not implied and flavor.spec.topology_name and not _asks_topology(pod_sets):
                problem = f"flavor {flavor.metadata.name} is for pod sets that ask for a topology"
            if problem is not None:
                return problem
        return None


def _has_no_choice(given: SetPlan) -> bool:
    """Whether this is one pod set with at most one open flavor in each of its groups."""
    return len(given.members) == 1 and all(
        sum(option.problem is None for option in group.options) <= 1 for group in given.groups
    )


class Constraints(NamedTuple):
    """Everything that decides which flavors a pod set may use."""

    node_selector: frozenset[tuple[str, str]]
    tolerations: tuple[Toleration, ...]
    affinity: NodeSelector | None
    places: tuple[object, ...] = ()
    """The topology that the pod set asks for, and what it asks of devices; empty for neither."""


def constraints(pod_set: PodSet) -> Constraints | None:
    """The constraints of a pod set; None where any flavor will do."""
    spec = pod_set.template.spec
    affinity: NodeSelector | None = None
    if spec.affinity is not None and spec.affinity.node_affinity is not None:
        affinity = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    annotations = pod_set.template.metadata.annotations
    devices = pod_device_request(annotations) if annotations else None
    # The charged resources may differ from these, see honestunits.
    parts = asks_for_parts(pod_set)
    asked = pod_set.topology_request
    if asked is not None and not asked.names_places:
        asked = None
    places = (asked, devices, parts) if asked or devices or parts else ()
    if not (spec.node_selector or spec.tolerations or affinity or places):
        return None
    return Constraints(frozenset(spec.node_selector.items()), spec.tolerations, affinity, places)


def _together(pod_sets: tuple[PodSet, ...], *, by_claims: bool) -> tuple[tuple[int, ...], ...]:
    """Indexes of the pod sets that share their flavors, in the order of each group's first.

    Pod sets of one group share them. With ``by_claims`` so do those that share a ResourceClaim, since its devices are
    on one node: a pod set that requests nothing but such a claim, charged to another pod set, thus runs where the other
    does.
    """
    if len(pod_sets) == 1:
        return ((0,),)
    joined: list[tuple[set[object], list[int]]] = []
    for index, pod_set in enumerate(pod_sets):
        names, members, apart = _shared_names(pod_set, by_claims=by_claims), [index], []
        for other in joined:
            if names.isdisjoint(other[0]):
                apart.append(other)
            else:
                names |= other[0]
                members += other[1]
        joined = [*apart, (names, members)]
    return tuple(sorted(tuple(sorted(members)) for _, members in joined))


def _shared_names(pod_set: PodSet, *, by_claims: bool) -> set[object]:
    """The keys by which a pod set shares its flavors: the name of its group, and those of its shared claims."""
    asked = pod_set.topology_request
    group = asked.pod_set_group_name if asked is not None else None
    claims = pod_set.template.spec.resource_claims if by_claims else ()
    names = {("claim", claim.resource_claim_name) for claim in claims if claim.resource_claim_name}
    return {*names} if group is None else {*names, ("group", group)}


def _asks_topology(pod_sets: list[tuple[PodSet, TopologyRequest]]) -> bool:
    return any(asked.placed for _, asked in pod_sets)


def _has_topology(cluster: Cluster, names: Iterable[FlavorName]) -> bool:
    known = map(cluster.flavors.get, names)
    return any(flavor is not None and flavor.spec.topology_name is not None for flavor in known)


def _has_all_nodes(queue: QueueState) -> bool:
    return all(name == ALL_NODES for group in queue.groups for name in group.flavors)


def _made_later(cluster: Cluster, queue: QueueState, flavor: FlavorName) -> bool:
    strategy = queue.object.spec.admission_checks_strategy
    for rule in strategy.admission_checks if strategy is not None else ():
        check = cluster.checks.get(rule.name)
        holds = not rule.on_flavors or flavor in rule.on_flavors
        if holds and check is not None and check.spec.controller_name in NODE_MAKING:
            return True
    return False
