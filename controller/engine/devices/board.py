"""What a GpuNode says of its node, ready to be asked: the devices of each resource, their links, and which are well.

A *pool* is what one extended resource of a node stands on: *units*, each a whole GPU or a MIG instance, that so many
containers may hold at once. What is free is told as ``Free``, one number for each unit, and pools are asked about that.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from controller.engine.devices.kinds import DeviceKind, Free, Make
from controller.engine.devices.linkage import Linkage, linkage
from controller.engine.model.resources import Amount, ResourceName
from controller.objects.decode import GpuNode
from inventory.api.gpunode import Device, Offer
from inventory.layout.entries import PERCENT_RESOURCE
from inventory.links import Link as Pair
from inventory.links import PcieLevel

_LEVELS: Final = {level.name: level for level in PcieLevel}


class BoardDevice(NamedTuple):
    """``gpu`` is the place of its GPU on the board."""

    uuid: str
    gpu: int
    replicas: int
    healthy: bool
    product: str
    memory_mib: int
    granularity: int = 1
    spread: bool = False
    daemon: int = -1


class Pool:
    """The units of one resource, by GPU. ``alone``: each container's request lies on one of them."""

    __slots__ = ("_beside", "_full", "kind", "place", "units")

    def __init__(
        self,
        units: Sequence[BoardDevice],
        links: Linkage,
        *,
        alone: bool = False,
        offered: Mapping[str, int] | None = None,
    ) -> None:
        """``offered``: how many containers may hold each device, under all names together."""
        self.units = tuple(units)
        self.place = {unit.uuid: at for at, unit in enumerate(units)}
        makes = tuple(
            Make(
                unit.gpu,
                unit.replicas,
                unit.product,
                unit.memory_mib,
                alone,
                unit.granularity if alone else 1,
                alone and unit.spread,
                unit.daemon if alone else -1,
            )
            for unit in units
        )
        self.kind = DeviceKind.of(makes, links)
        self._full = tuple(unit.replicas if unit.healthy else 0 for unit in units)
        beside = tuple((offered or {}).get(unit.uuid, unit.replicas) - unit.replicas for unit in units)
        self._beside = beside if any(beside) else ()

    def free(self, taken: Mapping[str, int]) -> Free:
        if not taken:
            return self._full
        if self._beside:
            # No report says under which name it was taken: the node's own numbers keep the names apart.
            return tuple(
                [
                    max(0, min(most, most + more - taken.get(unit.uuid, 0)))
                    for unit, most, more in zip(self.units, self._full, self._beside, strict=True)
                ]
            )
        return tuple(
            [max(0, most - taken.get(unit.uuid, 0)) for unit, most in zip(self.units, self._full, strict=True)]
        )


class Board:
    """One node's devices. ``pools`` by resource; two of them may stand on the same devices, as clients of MPS do that
    have a name each.
    """

    def __init__(self, given: GpuNode) -> None:
        devices = given.status.devices
        numa = tuple(each.numa_node for each in devices)
        self.links = linkage(_links(given), numa)
        units: dict[ResourceName, list[BoardDevice]] = {}
        places = {device.uuid: place for place, device in enumerate(devices)}
        for place, device in enumerate(devices):
            for uuid, offers, healthy, memory_mib in _units(device):
                for offer in offers:
                    unit = BoardDevice(
                        uuid,
                        place,
                        offer.replicas,
                        healthy,
                        device.product,
                        memory_mib,
                        offer.granularity,
                        offer.spread,
                        places.get(offer.daemon, -1),
                    )
                    units.setdefault(ResourceName(offer.resource), []).append(unit)
        once = {name: _once(found) for name, found in units.items()}
        self.offered = Counter[str]()
        """How many containers may hold each device, under whatever name."""
        for found in once.values():
            for unit in found:
                self.offered[unit.uuid] += unit.replicas
        self.pools = {
            name: Pool(found, self.links, alone=str(name) == PERCENT_RESOURCE, offered=self.offered)
            for name, found in once.items()
        }
        self.order = {uuid: at for at, (uuid, *_) in enumerate(each for device in devices for each in _units(device))}
        """Of every device, GPU by GPU, each GPU before its MIG instances."""
        self.ceilings: dict[ResourceName, Amount] = {
            name: sum(unit.replicas for unit in pool.units if unit.healthy) for name, pool in self.pools.items()
        }
        """What the agent can hand out of each resource."""

    def wanted(self, single_pod: Mapping[ResourceName, Amount]) -> list[tuple[Pool, int]]:
        """The pools that a pod takes devices from, and how many."""
        return [(pool, amount) for name, pool in self.pools.items() if (amount := single_pod.get(name, 0)) > 0]

    def size(self, single_pod: Mapping[ResourceName, Amount]) -> int:
        """How many devices a pod takes."""
        return sum(size for _, size in self.wanted(single_pod))

    def sorted(self, devices: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(devices, key=self.order.__getitem__))


def _units(device: Device) -> Iterator[tuple[str, tuple[Offer, ...], bool, int]]:
    yield device.uuid, device.offers, device.healthy, device.memory_mib
    for instance in device.mig.instances if device.mig is not None else ():
        well = device.healthy if instance.health is None else instance.health.handed_out
        yield instance.uuid, instance.offers, well, instance.memory_mib


def _once(units: Sequence[BoardDevice]) -> list[BoardDevice]:
    """A device that is offered twice under one name counts by its last offer."""
    return list({unit.uuid: unit for unit in units}.values())


def _links(given: GpuNode) -> tuple[tuple[Pair, ...], ...]:
    """By place. An entry about a GPU that is not there, or of a word that is unknown, says nothing."""
    places = {device.index: place for place, device in enumerate(given.status.devices)}
    pairs: dict[tuple[int, int], Pair] = {}
    for entry in given.status.links:
        a, b = places.get(entry.a), places.get(entry.b)
        if a is not None and b is not None and a != b:
            pair = Pair(pcie=_LEVELS.get(entry.pcie), nvlinks=entry.nvlinks, nvswitch=entry.nvswitch)
            pairs[a, b] = pairs[b, a] = pair
    count = len(places)
    unknown = Pair()
    return tuple(tuple(pairs.get((a, b), unknown) for b in range(count)) for a in range(count))
