"""The devices of one node, built from its GpuNode: the devices behind each resource, how they are linked, and which are
healthy.

A *pool* is the set of units behind one extended resource of a node. A unit is a whole GPU or a MIG instance, and a
fixed number of containers may hold it at once. ``Free`` says how many more may, one number for each unit; pools answer
questions about it.

``__slots__`` save 40 bytes of each board and pool: 10,000 nodes have 20,000 or more.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from controller.objects.alike import one_dict
from controller.objects.decode import GpuNode
from controller.scheduler.devices.kinds import DeviceKind, Free, Make
from controller.scheduler.devices.linkage import Linkage, linkage
from controller.scheduler.model.caches import ByIdentity
from controller.scheduler.model.resources import Amount, ResourceName
from inventory.api.gpunode import Device, GpuNodeStatus, LinkEntry, Offer
from inventory.layout.entries import PERCENT_RESOURCE
from inventory.links import Link as Pair
from inventory.links import PcieLevel

_LEVELS: Final = {level.name: level for level in PcieLevel}


class _Unit(NamedTuple):
    uuid: str
    make: Make
    healthy: bool


class Pool:
    """The units of one resource. ``place`` is the index of each unit by UUID; ``full`` is how many containers may hold
    each unit, 0 for an unhealthy one. What pools of one make have in common is stored in their shared ``kind``: a pool
    itself holds little more than the UUIDs.
    """

    __slots__ = ("_beside", "full", "kind", "place", "uuids")

    def __init__(self, units: Sequence[_Unit], links: Linkage, offered: Mapping[str, int]) -> None:
        """``offered``: how many containers may hold each device, summed over all resource names."""
        self.uuids = tuple(unit.uuid for unit in units)
        self.place: Mapping[str, int] = {uuid: at for at, uuid in enumerate(self.uuids)}
        self.kind = DeviceKind.of(tuple(unit.make for unit in units), links)
        full = tuple(unit.make.replicas if unit.healthy else 0 for unit in units)
        self.full = self.kind.full if full == self.kind.full else full
        beside = tuple(offered[unit.uuid] - unit.make.replicas for unit in units)
        self._beside = beside if any(beside) else ()

    def replicas(self, uuid: str) -> int:
        """How many containers may hold the device through this resource; 0 for a device that is not in the pool."""
        at = self.place.get(uuid)
        return 0 if at is None else self.kind.makes[at].replicas

    def free(self, taken: Mapping[str, int]) -> Free:
        if not taken:
            return self.full
        if self._beside:
            # No report says through which resource a device was taken; the node's own counts keep the resources apart.
            return tuple(
                [
                    max(0, min(most, most + more - taken.get(uuid, 0)))
                    for uuid, most, more in zip(self.uuids, self.full, self._beside, strict=True)
                ]
            )
        return tuple([max(0, most - taken.get(uuid, 0)) for uuid, most in zip(self.uuids, self.full, strict=True)])


class Board:
    """The devices of one node. ``pools`` by resource; two pools may have the same devices, as when clients of MPS have
    a resource name each.
    """

    __slots__ = ("ceilings", "links", "order", "pools")

    def __init__(self, given: GpuNode) -> None:
        devices = given.status.devices
        self.links = _linkage(given.status)
        units_of = {name: _once(units) for name, units in _by_resource(devices).items()}
        offered = Counter[str]()
        for units in units_of.values():
            for unit in units:
                offered[unit.uuid] += unit.make.replicas
        self.pools = {name: Pool(units, self.links, offered) for name, units in units_of.items()}
        order = {uuid: at for at, (uuid, *_) in enumerate(each for device in devices for each in _units(device))}
        self.order: Mapping[str, int] = next((pool.place for pool in self.pools.values() if pool.place == order), order)
        """The index of each device, GPU by GPU; a GPU comes before its MIG instances."""
        self.ceilings = one_dict({name: sum(pool.full) for name, pool in self.pools.items()})
        """How many units of each resource the agent can hand out."""

    def offered(self, uuid: str) -> int:
        """How many containers may hold the device, summed over all resource names."""
        return sum(pool.replicas(uuid) for pool in self.pools.values())

    def wanted(self, single_pod: Mapping[ResourceName, Amount]) -> list[tuple[Pool, int]]:
        """The pools that a pod takes devices from, with the number it takes of each."""
        return [(pool, amount) for name, pool in self.pools.items() if (amount := single_pod.get(name, 0)) > 0]

    def size(self, single_pod: Mapping[ResourceName, Amount]) -> int:
        """The number of devices that a pod takes."""
        return sum(size for _, size in self.wanted(single_pod))

    def sorted(self, devices: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(devices, key=self.order.__getitem__))


def _units(device: Device) -> Iterator[tuple[str, tuple[Offer, ...], bool, int]]:
    yield device.uuid, device.offers, device.healthy, device.memory_mib
    for instance in device.mig.instances if device.mig is not None else ():
        well = device.healthy if instance.health is None else instance.health.handed_out
        yield instance.uuid, instance.offers, well, instance.memory_mib


def _by_resource(devices: Sequence[Device]) -> dict[ResourceName, list[_Unit]]:
    by_resource: dict[ResourceName, list[_Unit]] = {}
    places = {device.uuid: place for place, device in enumerate(devices)}
    for place, device in enumerate(devices):
        for uuid, offers, healthy, memory_mib in _units(device):
            for offer in offers:
                make = _make(offer, Make(place, offer.replicas, device.product, memory_mib), places)
                by_resource.setdefault(ResourceName(offer.resource), []).append(_Unit(uuid, make, healthy))
    return by_resource


def _make(offer: Offer, plain: Make, places: Mapping[str, int]) -> Make:
    """The make of a unit; only percents of a GPU have a granularity, an order and a daemon."""
    if offer.resource != PERCENT_RESOURCE:
        return plain
    daemon = places.get(offer.daemon, -1)
    return plain._replace(alone=True, granularity=offer.granularity, spread=offer.spread, daemon=daemon)


def _once(units: Sequence[_Unit]) -> list[_Unit]:
    """The units without duplicates: a device that is offered twice under one name counts by its last offer."""
    return list({unit.uuid: unit for unit in units}.values())


_Places = tuple[tuple[int, int | None], ...]
_LINKED: Final = ByIdentity[tuple[LinkEntry, ...], tuple[_Places, Linkage]](256)
"""Cache: links as they were read (nodes of one model share the tuple) -> the places and NUMA nodes they were read for,
and the Linkage made of them.
"""


def _linkage(status: GpuNodeStatus) -> Linkage:
    places = tuple((device.index, device.numa_node) for device in status.devices)
    known = _LINKED.get(id(status.links))
    if known is not None and known[1][0] == places:
        return known[1][1]
    found = linkage(_links(status), tuple(numa for _, numa in places))
    return _LINKED.keep(status.links, (places, found))[1]


def _links(status: GpuNodeStatus) -> tuple[tuple[Pair, ...], ...]:
    """The pairs of GPUs as a matrix indexed by place. An entry that names a missing GPU is ignored; an unknown PCIe
    word leaves the pair's level unknown.
    """
    places = {device.index: place for place, device in enumerate(status.devices)}
    pairs: dict[tuple[int, int], Pair] = {}
    for entry in status.links:
        a, b = places.get(entry.a), places.get(entry.b)
        if a is not None and b is not None and a != b:
            pair = Pair(pcie=_LEVELS.get(entry.pcie), nvlinks=entry.nvlinks, nvswitch=entry.nvswitch)
            pairs[a, b] = pairs[b, a] = pair
    count = len(places)
    unknown = Pair()
    return tuple(tuple(pairs.get((a, b), unknown) for b in range(count)) for a in range(count))
