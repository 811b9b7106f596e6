"""A small data centre for placement: hosts on paths, and pod sets that ask for places."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from controller.objects.core import Node, Pod
from controller.objects.decode import decode
from controller.objects.placeencoding import HOSTNAME_LABEL, Domain
from controller.objects.queues import ResourceFlavor, Topology
from controller.objects.workload import PodSet
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import FlavorName, ResourceName
from controller.scheduler.model.undo import UndoLog
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.placement import Topologies
from controller.scheduler.topology.port import Placed, PlacementNoFit, PlacementRequest, PlacementRules
from controller.scheduler.topology.requests import topology_request

GPU = ResourceName("gpu")
BLOCK, RACK, HOST = "dc/block", "dc/rack", HOSTNAME_LABEL
FLAVOR = FlavorName("f")


def node(path: str, gpus: int, *, ready: bool = True, labels: Mapping[str, str] | None = None, **spec: Any) -> Node:
    """``path`` is block/rack/host."""
    block, rack, host = path.split("/")
    data = {
        "metadata": {"name": host, "labels": {BLOCK: block, RACK: rack, HOST: host, **(labels or {})}},
        "spec": spec,
        "status": {
            "allocatable": {GPU: str(gpus), "pods": "110"},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }
    return decode(data, Node)


def pod(name: str, host: str, gpus: int, phase: str = "Running", **metadata: Any) -> Pod:
    data = {
        "metadata": {"name": name, "namespace": "other", **metadata},
        "spec": {"nodeName": host, "containers": [{"name": "c", "resources": {"requests": {GPU: str(gpus)}}}]},
        "status": {"phase": phase},
    }
    return decode(data, Pod)


def usage(places: Mapping[str, int], gpus: int = 1) -> TopologyUsage:
    """Pods by host, each with so many GPUs."""
    domains = tuple(Domain((host,), pods) for host, pods in places.items())
    return TopologyUsage(levels=(HOST,), domains=domains, single_pod={GPU: gpus})


def ask(
    count: int,
    gpus: int = 1,
    *,
    name: str = "main",
    flavor: FlavorName = FLAVOR,
    spec: Mapping[str, Any] | None = None,
    previous: TopologyUsage | None = None,
    lost: str | None = None,
    implied: bool = False,
    **asked: Any,
) -> PlacementRequest:
    """``asked`` are fields of the topology request, in the API's spelling."""
    data = {"name": name, "count": count, "topologyRequest": asked or None, "template": {"spec": spec or {}}}
    pod_set = decode(data, PodSet)
    return PlacementRequest(
        pod_set=pod_set,
        asked=topology_request(pod_set),
        count=count,
        flavor=flavor,
        single_pod={GPU: gpus},
        implied=implied,
        previous=previous,
        lost=lost,
    )


class Lab:
    def __init__(
        self,
        hosts: Mapping[str, int],
        gates: Mapping[str, bool] | None = None,
        *,
        leaving: AbstractSet[str] = frozenset(),
        empty_nodes: float = 0.0,
    ) -> None:
        """``hosts``: path -> GPUs. ``leaving``: taints of nodes that take no pods any more."""
        self.balanced = False
        self.layered = True
        self.undo = UndoLog()
        rules = PlacementRules(own_places=True, leaving=leaving, empty_nodes=empty_nodes)
        self.topologies = Topologies(self.undo, FeatureGates(gates), rules=rules)
        self.topology(BLOCK, RACK, HOST)
        self.flavor("f")
        for path, gpus in hosts.items():
            self.topologies.set_node(node(path, gpus))

    def topology(self, *levels: str, name: str = "dc") -> None:
        data = {"metadata": {"name": name}, "spec": {"levels": [{"nodeLabel": level} for level in levels]}}
        self.topologies.set_topology(decode(data, Topology))

    def flavor(self, name: str, topology: str = "dc", **spec: Any) -> None:
        data = {"metadata": {"name": name}, "spec": {"topologyName": topology, **spec}}
        self.topologies.set_flavor(decode(data, ResourceFlavor))

    def hold(self, places: Mapping[str, int], gpus: int = 1, flavor: FlavorName = FLAVOR) -> None:
        self.topologies.add(flavor, usage(places, gpus))

    def place(self, *requests: PlacementRequest, empty: bool = False) -> dict[str, dict[str, int]] | str:
        """Pods by host for each pod set, or why there is no place."""
        found = self.topologies.place(requests, on_empty=empty)
        if isinstance(found, PlacementNoFit):
            return found.problem
        return {name: shown(one) for name, one in found.topologies.items()}

    def main(self, request: PlacementRequest) -> dict[str, int] | None:
        """Of one pod set; None where there is no place."""
        found = self.topologies.place((request,), on_empty=False)
        return shown(found.topologies[request.pod_set.name]) if isinstance(found, Placed) else None


def shown(found: TopologyUsage) -> dict[str, int]:
    return {"/".join(values): pods for values, pods in found.domains}


def even(blocks: int, racks: int, hosts: int, gpus: int) -> dict[str, int]:
    """A regular cluster: b0/b0r0/b0r0h0 and so on."""
    return {f"b{b}/b{b}r{r}/b{b}r{r}h{h}": gpus for b in range(blocks) for r in range(racks) for h in range(hosts)}
