"""What drivers publish, by node: its devices in the order in which the scheduler tries them, and their counters.

Of each pool the slices of its highest generation count, once all of them are there. A pool that contradicts itself
counts not at all. Devices that are not those of one node are kept apart: a node's room does not follow from them.
Source: ``GatherPools`` of ``k8s.io/dynamic-resource-allocation/structured``.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from controller.engine.claimrooms.bounded import Bounded, Numbers
from controller.objects.deviceclaims import Device, DeviceAttribute, ResourceSlice

PoolKey = tuple[str, str]
"""Driver and pool."""
DeviceKey = tuple[str, str, str]
"""Driver, pool and device."""
Consumed = tuple[tuple[int, int], ...]
"""Counters by their place in ``Offer.limits``, and nano-units of each."""

_MOST_CONTENTS: Final = 65_536
_MOST_SHARED: Final = 4096
_MOST_LOOKS: Final = 256
"""Sets of attributes that asks look at."""
_Content = TypeVar("_Content", bound=Hashable)


class Layout(NamedTuple):
    """What offers of one hardware have in common. ``contents``: by device a number for all of it but its name and
    attributes; equal ones have equal numbers. ``places``: devices by the place of their pool and their name.
    """

    places: Mapping[tuple[int, str], int]
    contents: tuple[int, ...]
    consumes: tuple[Consumed, ...]
    limits: tuple[int, ...]


class Offer:
    """What one node's pools have. ``incomplete``: some pool of it does not count. ``drivers`` and ``devices`` go by the
    same places.
    """

    __slots__ = ("devices", "drivers", "incomplete", "layout", "pools", "signatures")

    def __init__(
        self, pools: tuple[PoolKey, ...], drivers: tuple[str, ...], devices: tuple[Device, ...], layout: Layout
    ) -> None:
        self.pools = pools
        self.drivers = drivers
        self.devices = devices
        self.layout = layout
        self.incomplete = False
        self.signatures: Bounded[Hashable, int] = Bounded(_MOST_LOOKS)
        """By what is looked at of attributes, a number: nodes to whom that is all the same have the same."""

    def place(self, key: DeviceKey) -> int | None:
        pool = key[0], key[1]
        return self.layout.places.get((self.pools.index(pool), key[2])) if pool in self.pools else None


class Slices:
    """``put`` and ``drop`` take slices. Offers are made when they are asked for, and kept while their pools stay."""

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._pools: dict[PoolKey, dict[str, ResourceSlice]] = {}
        self._nodes: dict[str, dict[PoolKey, None]] = {}
        """By node its pools; those of no single node under the empty name."""
        self._node_of: dict[PoolKey, str] = {}
        self._offers: dict[str, Offer] = {}
        self._contents = Numbers(_MOST_CONTENTS)
        self._places: Bounded[tuple[tuple[int, str], ...], Mapping[tuple[int, str], int]] = Bounded(_MOST_SHARED)
        self._shared: Bounded[Hashable, Any] = Bounded(_MOST_SHARED)

    def put(self, given: ResourceSlice) -> tuple[str, ...]:
        """The nodes that offer something else now; the empty name for devices that are of no single node."""
        name = given.metadata.name
        known = self._slices.get(name)
        if known is not None and known.spec == given.spec:
            return ()
        changed = self.drop(name)
        self._slices[name] = given
        pool = _pool(given)
        self._pools.setdefault(pool, {})[name] = given
        return tuple(dict.fromkeys((*changed, *self._file(pool))))

    def drop(self, name: str) -> tuple[str, ...]:
        known = self._slices.pop(name, None)
        if known is None:
            return ()
        pool = _pool(known)
        del self._pools[pool][name]
        return self._file(pool)

    def __bool__(self) -> bool:
        return bool(self._slices)

    @property
    def nodes(self) -> Iterable[str]:
        return [name for name in self._nodes if name]

    def pools(self, node: str) -> Iterable[PoolKey]:
        return self._nodes.get(node, ())

    def node_of(self, pool: PoolKey) -> str:
        """Empty for a pool of no single node, and for one that is not known."""
        return self._node_of.get(pool, "")

    def knows(self, pool: PoolKey) -> bool:
        return pool in self._node_of

    def offer(self, node: str) -> Offer:
        """The empty name: of devices that are of no single node."""
        known = self._offers.get(node)
        if known is None:
            known = self._offers[node] = self._offer(node)
        return known

    def validate(self) -> None:
        for node in self._nodes:
            if not self._nodes[node] or any(self._node_of.get(pool) != node for pool in self._nodes[node]):
                raise AssertionError(f"pools of {node or 'no node'}: kept {list(self._nodes[node])}")
        filed = {pool for pools in self._nodes.values() for pool in pools}
        if (
            filed != self._pools.keys()
            or {name for pool in self._pools.values() for name in pool} != self._slices.keys()
        ):
            raise AssertionError("pools and slices do not agree")

    # -- inside ------------------------------------------------------------------------------------------------------

    def _file(self, pool: PoolKey) -> tuple[str, ...]:
        before = self._node_of.pop(pool, None)
        if before is not None:
            del self._nodes[before][pool]
            if not self._nodes[before]:
                del self._nodes[before]
        slices = self._pools[pool].values()
        now = None
        if slices:
            names = {given.spec.node_name for given in slices}
            now = names.pop() if len(names) == 1 else ""
            self._node_of[pool] = now
            self._nodes.setdefault(now, {})[pool] = None
        else:
            del self._pools[pool]
        changed = tuple(dict.fromkeys(node for node in (before, now) if node is not None))
        for node in changed:
            self._offers.pop(node, None)
        return changed

    def _offer(self, node: str) -> Offer:
        pools: list[PoolKey] = []
        drivers: list[str] = []
        devices: list[Device] = []
        names: list[tuple[int, str]] = []
        consumes: list[Consumed] = []
        limits: list[int] = []
        incomplete = False
        for pool in sorted(self._nodes.get(node, ()), key=lambda key: (key[1], key[0])):
            slices = _whole(self._pools[pool].values())
            consumed = None if slices is None else _consumed(slices, limits)
            if slices is None or consumed is None:
                incomplete = True
                continue
            found = [device for given in slices for device in given.spec.devices]
            names += [(len(pools), device.name) for device in found]
            pools.append(pool)
            drivers += [pool[0]] * len(found)
            devices += found
            consumes += consumed
        contents = tuple(map(self._content, drivers, devices, consumes))
        layout = self._layout(tuple(names), contents, tuple(consumes), tuple(limits))
        offer = Offer(tuple(pools), self._kept(tuple(drivers)), tuple(devices), layout)
        offer.incomplete = incomplete
        return offer

    def _layout(
        self,
        names: tuple[tuple[int, str], ...],
        contents: tuple[int, ...],
        consumes: tuple[Consumed, ...],
        limits: tuple[int, ...],
    ) -> Layout:
        places = self._places.get(names)
        if places is None:
            places = self._places.remember(names, {name: at for at, name in enumerate(names)})
        return Layout(places, self._kept(contents), self._kept(consumes), self._kept(limits))

    def _kept(self, content: _Content) -> _Content:
        """The same object for the same content."""
        known: _Content | None = self._shared.get(content)
        return self._shared.remember(content, content) if known is None else known

    def _content(self, driver: str, device: Device, consumes: Consumed) -> int:
        capacity = tuple(
            (name, given.value.nanos, given.request_policy) for name, given in sorted(device.capacity.items())
        )
        return self._contents.of((driver, capacity, consumes, device.allow_multiple_allocations, device.taints))


def _consumed(slices: list[ResourceSlice], limits: list[int]) -> list[Consumed] | None:
    """By device; None where one consumes what is not there. ``limits`` gets the counters of the pool."""
    places: dict[tuple[str, str], int] = {}
    own: list[int] = []
    for given in slices:
        for counters in given.spec.shared_counters:
            for name, counter in counters.counters.items():
                places[counters.name, name] = len(limits) + len(own)
                own.append(counter.value.nanos)
    try:
        found = [
            tuple(
                (places[consumed.counter_set, name], counter.value.nanos)
                for consumed in device.consumes_counters
                for name, counter in consumed.counters.items()
            )
            for given in slices
            for device in given.spec.devices
        ]
    except KeyError:
        return None
    limits += own
    return found


def _pool(given: ResourceSlice) -> PoolKey:
    return given.spec.driver, given.spec.pool.name


def _whole(pool: Iterable[ResourceSlice]) -> list[ResourceSlice] | None:
    """The slices of the newest generation by name; None where some are missing, or a name stands twice."""
    newest = max(given.spec.pool.generation for given in pool)
    slices = sorted(
        (given for given in pool if given.spec.pool.generation == newest), key=lambda given: given.metadata.name
    )
    if any(given.spec.pool.resource_slice_count != len(slices) for given in slices):
        return None
    devices = [device.name for given in slices for device in given.spec.devices]
    sets = [counters.name for given in slices for counters in given.spec.shared_counters]
    return slices if len(devices) == len(set(devices)) and len(sets) == len(set(sets)) else None


def attribute_of(driver: str, device: Device, name: str) -> DeviceAttribute | None:
    """By its whole name; one without a domain is in the driver's own."""
    found = device.attributes.get(name)
    domain, _, identifier = name.partition("/")
    return device.attributes.get(identifier) if found is None and domain == driver else found
