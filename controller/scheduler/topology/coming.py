"""Nodes that can come: for each flavor with a node template a second tree, which has the flavor's nodes and, beside
them, as many more as the flavor may still get.

Only ``Topologies.place_coming`` looks there. All other questions see the nodes that are there: nobody is placed, moved
or preempted for a node that may never come. Usage is charged by domain, so both trees see it. Nodes that are there come
first. A node counts as one of the template's ``max`` once it has the flavor's labels, offers every resource of the
template, and has devices of each driver of the template: until its GPUs are advertised, the node that was to come
stands for it. What drivers will publish of a node to come stands among the ResourceSlices of all nodes: claims get
devices there as on any other node, and each device once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from controller.messages import pending
from controller.objects.core import Node, NodeSelectorTerm, NodeSpec, NodeStatus
from controller.objects.decode import GpuNode
from controller.objects.deviceclaims import ResourcePool, ResourceSlice, ResourceSliceSpec
from controller.objects.meta import Condition, LabelSelectorRequirement, ObjectMeta
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.objects.quantity import MILLI_IN_NANO, NANO, Quantity
from controller.objects.queues import ResourceFlavor
from controller.scheduler.devices.cache import DeviceCache
from controller.scheduler.dra.allocation.claimsupply import ClaimSupply
from controller.scheduler.model.nodetemplate import (
    GPU,
    DriverDevices,
    NodeTemplate,
    NodeTemplateError,
    template_of,
)
from controller.scheduler.model.podrequests import amount_of
from controller.scheduler.model.resources import CPU, FlavorName, ResourceName
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.finder import Finder
from controller.scheduler.topology.nodes import NodeFacts
from controller.scheduler.topology.port import PlacementNoFit, PlacementRequest
from inventory.api.gpunode import Device, GpuNodeStatus, LinkEntry, Offer, Summary
from inventory.api.names import PREFIX

COMING_LABEL: Final = f"{PREFIX}coming"
"""A label of nodes that are not there, which exist in the engine alone."""
_MARK: Final = "/coming-"
_THERE: Final = (
    10**9,
    NodeSelectorTerm(match_expressions=(LabelSelectorRequirement(key=COMING_LABEL, operator="DoesNotExist"),)),
)
"""A preference for nodes that are there, above all preferences of pods."""
_LANES: Final = 12
_NONE: Final = Quantity(0)


def is_coming(host: str) -> bool:
    """Whether the hostname is that of a node to come. The value of a label never has a slash."""
    return _MARK in host


def coming_pods(usage: TopologyUsage) -> int:
    """The pods of an assignment that are on nodes to come."""
    return sum(domain.pods for domain in usage.domains if is_coming(domain.values[-1]))


class ComingNodes:
    """``finders``: the trees, by flavor; ``Topologies`` reads them. ``_there``: by flavor, the nodes that count as some
    of its ``max``. ``_shown``: by flavor, how many nodes to come its tree has: always ``max`` less those there, or 0.
    ``claims``: where devices are given out by claim; ``Topologies`` sets it before the first flavor.
    """

    def __init__(self, devices: DeviceCache, offers: Callable[[str, ResourceName], bool]) -> None:
        """``offers``: whether the allocatable of a node that is there has some of a resource."""
        self._devices = devices
        self._offers = offers
        self.claims: ClaimSupply | None = None
        self._flavors: dict[FlavorName, ResourceFlavor] = {}
        self._templates: dict[FlavorName, NodeTemplate] = {}
        self._there: dict[FlavorName, set[str]] = {}
        self._shown: dict[FlavorName, int] = {}
        self.finders: dict[FlavorName, Finder] = {}

    def __bool__(self) -> bool:
        return bool(self._templates)

    def serves(self, requests: Sequence[PlacementRequest]) -> bool:
        """Whether nodes may come for these pods; none come for pods of which some run."""
        runs = any(each.previous is not None or each.lost is not None for each in requests)
        return bool(self.finders) and not runs and not self.finders.keys().isdisjoint(each.flavor for each in requests)

    def template(self, flavor: FlavorName) -> NodeTemplate | None:
        return self._templates.get(flavor)

    def can_come(self, flavor: FlavorName) -> bool:
        return flavor in self._templates

    def shortage(self, requests: Sequence[PlacementRequest], refused: PlacementNoFit) -> str:
        """What nodes to come lack, in words, for requests that these trees have ``refused``. Empty where it is nothing
        of theirs.
        """
        served = [each for each in requests if each.flavor in self.finders]
        request = next((each for each in served if each.pod_set.name == refused.pod_set), None)
        if told := next(filter(None, map(self._too_small, served)), ""):
            return told
        if request is None:
            return ""
        flavor, finder = request.flavor, self.finders[request.flavor]
        shown, tree = self._shown[flavor], finder.tree
        if not shown:
            return pending.every_node_has_come(flavor, self._templates[flavor].most)
        leaves = (tree.leaf((_host(flavor, number),)) for number in range(1, shown + 1))
        promised = sum(leaf is not None and bool(tree.used[leaf]) for leaf in leaves)
        if promised == shown:
            return pending.promised_to_others(flavor, shown)
        can_come = pending.so_many_can_come(flavor, shown - promised, promised)
        fitting = sum(pods for _, pods in finder.fitting_nodes(request, empty=False) or ())
        if fitting < request.count:
            return pending.fit_with_these(can_come, fitting, request.count)
        return pending.lacks_with_these(can_come, refused.problem)

    def _too_small(self, request: PlacementRequest) -> str:
        """What a node of the request's flavor has too little of for one pod, in words; empty where it holds one."""
        offered = self._templates[request.flavor].offered
        by_claim = self.claims.requests.extended if self.claims is not None else ()
        for name, amount in sorted(request.single_pod.items()):
            most = offered.get(name, _NONE)
            if amount > amount_of(name, most) and name not in by_claim:
                asked = Quantity(amount * (MILLI_IN_NANO if name == CPU else NANO), most.format)
                return pending.node_to_come_too_small(request.flavor, name, str(most), str(asked))
        return ""

    def offers(self, host: str, resource: ResourceName) -> bool:
        """Whether the allocatable of a node, there or to come, has some of a resource."""
        if not is_coming(host):
            return self._offers(host, resource)
        template = self._templates.get(FlavorName(host.partition(_MARK)[0]))
        amount = None if template is None else template.offered.get(resource)
        return amount is not None and amount.nanos > 0

    def after_s(self, flavor: FlavorName) -> float:
        template = self._templates.get(flavor)
        return 0.0 if template is None else template.after_s

    def awaits_devices(self, flavor: FlavorName, node: str) -> bool:
        template = self._templates.get(flavor)
        return template is not None and not self._gives(node, template)

    def set_flavor(self, flavor: ResourceFlavor, nodes: Iterable[Node]) -> bool:
        """Store the flavor's template. Returns whether it is another than before; the tree is then to be grown anew."""
        name = FlavorName(flavor.metadata.name)
        known = self._templates.pop(name, None)
        try:
            template = template_of(flavor)
        except NodeTemplateError:
            template = None
        self._there.pop(name, None)
        self._flavors.pop(name, None)
        if template is not None:
            self._templates[name], self._flavors[name] = template, flavor
            self._there[name] = {each.metadata.name for each in nodes if self._counts(name, each)}
        return known != template

    def remove_flavor(self, name: FlavorName) -> None:
        for known in (self._templates, self._flavors, self._there):
            known.pop(name, None)

    def grow(self, name: FlavorName, finder: Finder) -> None:
        """Take the flavor's new tree, which has the nodes that are there; those to come are added."""
        self.finders[name] = finder
        self._shown[name] = 0
        self._show(name)

    def fell(self, name: FlavorName) -> None:
        """The flavor has no tree any more."""
        finder = self.finders.pop(name, None)
        if finder is None:
            return
        finder.tree.close()
        for number in range(1, self._shown.pop(name) + 1):
            self._forget(_host(name, number))

    def node(self, name: str, node: Node | None) -> frozenset[FlavorName]:
        """Count a node that has changed; None for one that is gone. Returns the flavors that may get more or fewer."""
        if not self._there:
            return frozenset()
        changed = set[FlavorName]()
        for flavor, there in self._there.items():
            counts = node is not None and self._counts(flavor, node)
            if counts != (name in there):
                (there.add if counts else there.discard)(name)
                if flavor in self.finders and self._show(flavor):
                    changed.add(flavor)
        return frozenset(changed)

    def devices_changed(self, names: Iterable[str], nodes: Mapping[str, Node]) -> frozenset[FlavorName]:
        """Count nodes anew of which drivers have published other devices. Returns the flavors that may get more or
        fewer.
        """
        if not any(template.devices for template in self._templates.values()):
            return frozenset()
        return frozenset().union(*(self.node(name, nodes.get(name)) for name in names if not is_coming(name)))

    def told(self, name: str, facts: NodeFacts | None) -> None:
        for finder in self.finders.values():
            finder.tree.set_node(name, facts)

    def touch(self, names: Iterable[str]) -> None:
        for finder in self.finders.values():
            for name in names:
                finder.tree.touch_node(name)

    def still(self) -> Iterator[tuple[FlavorName, int]]:
        """How many more nodes each flavor may get."""
        for name, template in self._templates.items():
            yield name, max(0, template.most - len(self._there[name]))

    def validate(self, nodes: Mapping[str, Node]) -> None:
        """Recompute what is kept. AssertionError for a difference."""
        for name, template in self._templates.items():
            there = {node for node, each in nodes.items() if self._counts(name, each)}
            if there != self._there[name]:
                raise AssertionError(f"{name}: kept {sorted(self._there[name])}, there are {sorted(there)}")
            if name in self.finders and self._shown[name] != max(0, template.most - len(there)):
                raise AssertionError(f"{name}: {self._shown[name]} nodes may come, of {template.most} there {there}")
        for finder in self.finders.values():
            finder.validate()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _counts(self, flavor: FlavorName, node: Node) -> bool:
        template, spec = self._templates[flavor], self._flavors[flavor].spec
        return (
            spec.selects(node.metadata.labels)
            and all(self._offers(node.metadata.name, ResourceName(resource)) for resource in template.allocatable)
            and self._gives(node.metadata.name, template)
        )

    def _gives(self, name: str, template: NodeTemplate) -> bool:
        """Whether each driver of the template has published devices of the node; where claims do not count, that is not
        known and not asked.
        """
        if self.claims is None or not template.devices:
            return True
        return {each.driver for each in template.devices} <= {*self.claims.slices.offer(name).drivers}

    def _show(self, name: FlavorName) -> bool:
        """Adds and removes nodes to come until there are as many as may. Returns whether the number has changed."""
        wanted = max(0, self._templates[name].most - len(self._there[name]))
        shown, tree = self._shown[name], self.finders[name].tree
        for number in range(shown + 1, wanted + 1):
            made = node_to_come(self._flavors[name], self._templates[name], _host(name, number), tree.levels)
            labels = {**made.metadata.labels, COMING_LABEL: "true"}
            node = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))
            self._devices.set_host(node.metadata.name, node.metadata.name, node.metadata.labels)
            if (gpu_node := gpu_node_to_come(node.metadata.name, self._templates[name])) is not None:
                self._devices.set_gpu_node(gpu_node)
            if self.claims is not None:
                for given in self._templates[name].devices:
                    self.claims.put(slice_to_come(node.metadata.name, given))
            tree.set_node(node.metadata.name, NodeFacts(node, {}, {}))
        for number in range(wanted + 1, shown + 1):
            tree.set_node(_host(name, number), None)
            self._forget(_host(name, number))
        self._shown[name] = wanted
        return wanted != shown

    def _forget(self, host: str) -> None:
        """Takes away all that stands beside the tree for a node to come."""
        self._devices.set_host(host, None)
        self._devices.remove_gpu_node(host)
        if self.claims is not None:
            for driver, _ in [*self.claims.slices.pools(host)]:
                self.claims.drop(ResourceSlice, "", _slice_name(host, driver))


def node_to_come(flavor: ResourceFlavor, template: NodeTemplate, host: str, levels: Iterable[str]) -> Node:
    """A node that can come, under this name. Where its template lacks the label of a level, it is alone in its
    domain.
    """
    alone = dict.fromkeys(levels, f"/{host}")
    labels = {**alone, **template.labels, **flavor.spec.node_labels, HOSTNAME_LABEL: host}
    return Node(
        metadata=ObjectMeta(name=host, labels=labels),
        spec=NodeSpec(taints=template.taints),
        status=NodeStatus(allocatable=dict(template.offered), conditions=(Condition(type="Ready", status="True"),)),
    )


def coming_finder(finder: Finder) -> Finder:
    """Makes a finder prefer nodes that are there, and the fewest nodes."""
    finder.prefers = _THERE
    return finder


def _host(flavor: FlavorName, number: int) -> str:
    return f"{flavor}{_MARK}{number:04d}"


def slice_to_come(host: str, given: DriverDevices) -> ResourceSlice:
    """What a driver will publish of a node that can come, under this name: a pool of its own, in one slice."""
    pool = ResourcePool(name=host, generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver=given.driver, pool=pool, node_name=host, devices=given.devices)
    return ResourceSlice(metadata=ObjectMeta(name=_slice_name(host, given.driver)), spec=spec)


def _slice_name(host: str, driver: str) -> str:
    return f"{host}-{driver}"


def gpu_node_to_come(host: str, template: NodeTemplate) -> GpuNode | None:
    """What an agent would report of the node; None where the template says nothing of its GPUs but their number."""
    if not template.gpus or not (template.product or template.gpu_memory_mib or template.nvlink):
        return None
    devices = tuple(
        Device(
            uuid=f"{host}/{at}",
            index=at,
            product=template.product or "unknown",
            memory_mib=template.gpu_memory_mib,
            pci_bus_id=f"{at}",
            mode="whole",
            offers=(Offer(resource=GPU),),
        )
        for at in range(template.gpus)
    )
    pairs = ((a, b) for a in range(template.gpus) for b in range(a + 1, template.gpus))
    links = tuple(LinkEntry(a=a, b=b, nvswitch=_LANES) for a, b in pairs) if template.nvlink else ()
    summary = Summary(gpus=template.gpus, healthy=template.gpus, product=template.product)
    return GpuNode(metadata=ObjectMeta(name=host), status=GpuNodeStatus(summary=summary, devices=devices, links=links))
