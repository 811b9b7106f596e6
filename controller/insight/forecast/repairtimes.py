"""How long repairs of GPUs have taken, and when GPUs that are in repair are likely back. Pure.

GpuNodes, Nodes, time -> RepairTimes -> Comebacks

A repair counts as lasting as long as half of those did that took longer than it has taken so far.
"""

from collections import deque
from collections.abc import Collection, Mapping
from statistics import median
from typing import Final, NamedTuple

from msgspec import Struct

from controller.objects.alike import one_dict
from controller.objects.core import Node
from controller.scheduler.model.podrequests import amounts
from controller.scheduler.model.resources import Amount, ResourceName
from inventory.api.gpunode import Device, GpuNodeStatus, RepairEntry

DEFAULT_S: Final = 300.0
"""The time of a repair where none was seen yet: the reset and its verification take up to two minutes, and who has the
GPU may have to end first."""
MOST_SEEN: Final = 128
_COMES_BACK: Final = ("Draining", "Resetting", "Verifying", "Probation")
"""States of a repair that goes on by itself; RebootWanted and Retired wait for people."""
_ENDS_WELL: Final = ("Verifying", "Probation")
"""The last state of a repair after which the GPU is in service again."""


class Comeback(Struct, frozen=True, kw_only=True):
    """A GPU that is likely back at ``at_s`` (seconds since 1970). ``labels``: those of its Node, and ``beside``: what
    that offers now. ``adds``: the amounts of the resources that it offers then, and does not now.
    """

    node: str
    gpu: str
    at_s: float
    labels: Mapping[str, str]
    beside: Mapping[ResourceName, Amount]
    adds: Mapping[ResourceName, Amount]


class Comebacks(NamedTuple):
    """``gpus``: those that are expected, the soonest first. ``seen``: the number of repairs that ``typical_s``, the
    median, is of; with 0 it is assumed.
    """

    gpus: tuple[Comeback, ...] = ()
    seen: int = 0
    typical_s: float = DEFAULT_S


NO_COMEBACKS: Final = Comebacks()


class NodeFacts(NamedTuple):
    """A node that takes pods: its labels, and what it offers."""

    labels: Mapping[str, str]
    offers: Mapping[ResourceName, Amount]


class _UnderWay(NamedTuple):
    begun_s: float
    state: str
    adds: Mapping[ResourceName, Amount]


class RepairTimes:
    """``set_node`` and ``set_gpu_node`` take objects, ``comebacks`` tells.

    ``_under_way`` has nodes with repairs alone; a repair without a time of its own began when it was seen first.
    ``_nodes`` has the nodes that take pods.
    """

    def __init__(self) -> None:
        self._seen_s: deque[float] = deque(maxlen=MOST_SEEN)
        self._under_way: dict[str, dict[str, _UnderWay]] = {}
        self._nodes: dict[str, NodeFacts] = {}

    def set_node(self, name: str, facts: NodeFacts | None) -> None:
        """Takes a Node. None: it is gone, or takes no pods, so that no GPU of it adds anything."""
        if facts is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = facts

    def set_gpu_node(self, name: str, status: GpuNodeStatus | None, now_s: float) -> None:
        """Takes what a GpuNode says of repairs; None: it is gone. One that has ended with its GPU in service teaches
        how long repairs take.
        """
        before = self._under_way.pop(name, {})
        if status is None:
            return
        devices = {device.uuid: device for device in status.devices}
        withheld = {entry.device for entry in status.withheld}
        under_way = {
            repair.gpu: _UnderWay(
                _begun_s(repair, before.get(repair.gpu), now_s), repair.state, _adds(devices.get(repair.gpu), withheld)
            )
            for repair in status.repairs
        }
        if under_way:
            self._under_way[name] = under_way
        for gpu in before.keys() - under_way.keys():
            device = devices.get(gpu)
            if before[gpu].state in _ENDS_WELL and device is not None and device.healthy:
                self._seen_s.append(max(0.0, now_s - before[gpu].begun_s))

    def comebacks(self, now_s: float) -> Comebacks:
        """The GPUs that are likely back some time, of nodes that take pods."""
        seen = sorted(self._seen_s)
        typical_s = median(seen) if seen else DEFAULT_S
        gpus = [
            Comeback(
                node=node,
                gpu=gpu,
                at_s=_end_s(repair.begun_s, seen, typical_s, now_s),
                labels=self._nodes[node].labels,
                beside=self._nodes[node].offers,
                adds=repair.adds,
            )
            for node, repairs in self._under_way.items()
            if node in self._nodes
            for gpu, repair in repairs.items()
            if repair.state in _COMES_BACK and repair.adds
        ]
        return Comebacks(tuple(sorted(gpus, key=lambda each: (each.at_s, each.node, each.gpu))), len(seen), typical_s)

    def validate(self) -> None:
        """Recomputes the invariants. Raises AssertionError."""
        assert all(self._under_way.values()), "a node without repairs is kept"
        assert all(took_s >= 0 for took_s in self._seen_s), "a repair ended before it began"


def node_facts(node: Node) -> NodeFacts | None:
    """None for a node that takes no pods."""
    return NodeFacts(node.metadata.labels, one_dict(amounts(node.status.allocatable))) if node.takes_pods else None


def _begun_s(repair: RepairEntry, before: _UnderWay | None, now_s: float) -> float:
    said = repair.fault_since or repair.since
    if said is not None:
        return min(said.timestamp(), now_s)
    return before.begun_s if before is not None else now_s


def _end_s(begun_s: float, seen: list[float], typical_s: float, now_s: float) -> float:
    age_s = now_s - begun_s
    longer = [took_s for took_s in seen if took_s > age_s]
    if longer:
        return begun_s + median(longer)
    # Longer than all that was seen: as long again as a whole one.
    return begun_s + typical_s if age_s < typical_s else now_s + typical_s


def _adds(device: Device | None, withheld: Collection[str]) -> Mapping[ResourceName, Amount]:
    """What the device offers once it is in service, and does not now: a fault has taken it out, or it is withheld, as
    one without a fault is whose reset was ordered. ``withheld``: UUIDs of GPUs and MIG instances.
    """
    if device is None:
        return {}
    adds: dict[ResourceName, Amount] = {}
    instances = device.mig.instances if device.mig is not None else ()
    is_out = not device.healthy or device.uuid in withheld
    parts = [(device.offers, is_out), *((each.offers, is_out or each.uuid in withheld) for each in instances)]
    for offers in (offers for offers, lacks in parts if lacks):
        for offer in offers:
            name = ResourceName(offer.resource)
            adds[name] = adds.get(name, 0) + offer.replicas
    return adds
