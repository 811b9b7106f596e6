"""What drivers publish, by node: the node's devices in the order in which the scheduler tries them, and their counters.

The slices of a pool's highest generation count, once all of them exist. A pool that contradicts itself does not count
at all. Devices that are not those of a single node are kept apart: what a node can give does not depend on them.
Source: ``GatherPools`` of ``k8s.io/dynamic-resource-allocation/structured``.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from controller.objects.deviceclaims import Device, DeviceAttribute, ResourceSlice
from controller.scheduler.model.caches import Bounded, Numbers

PoolKey = tuple[str, str]
"""Names of driver and pool."""
DeviceKey = tuple[str, str, str]
"""Names of driver, pool and device."""
Consumed = tuple[tuple[int, int], ...]
"""What a device consumes: counters by their index in ``Layout.limits``, and nano-units of each."""

_MOST_CONTENTS: Final = 65_536
_MOST_SHARED: Final = 4096
_MOST_LOOKS: Final = 256
"""Sets of attribute names that asks look at, remembered for each offer."""
_Content = TypeVar("_Content", bound=Hashable)


class Layout(NamedTuple):
    """What the offers of equal hardware share. ``contents``: for each device a number that stands for everything but
    its name and attributes; equal contents have equal numbers. ``places``: index of each device by the index of its
    pool and its name.
    """

    places: Mapping[tuple[int, str], int]
    contents: tuple[int, ...]
    consumes: tuple[Consumed, ...]
    limits: tuple[int, ...]


class Offer:
    """The devices of one node's pools. ``incomplete``: some pool of the node does not count. ``drivers`` and
    ``devices`` have the same indexes.
    """

    def __init__(
        self, pools: tuple[PoolKey, ...], drivers: tuple[str, ...], devices: tuple[Device, ...], layout: Layout
    ) -> None:
        self.pools = pools
        self.drivers = drivers
        self.devices = devices
        self.layout = layout
        self.incomplete = False
        self.signatures: Bounded[Hashable, int] = Bounded(_MOST_LOOKS)
        """A number for each view of the devices' attributes: nodes where all attributes looked at are equal have equal
        numbers.
        """

    def place(self, key: DeviceKey) -> int | None:
        pool = key[0], key[1]
        return self.layout.places.get((self.pools.index(pool), key[2])) if pool in self.pools else None


class Slices:
    """The ResourceSlices and the offers made of them. ``put`` and ``drop`` take slices. An offer is made when it is
    asked for, and kept while its pools stay the same.
    """

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._pools: dict[PoolKey, dict[str, ResourceSlice]] = {}
        self._nodes: dict[str, dict[PoolKey, None]] = {}
        """The pools of each node; pools that are not of a single node are under the empty name."""
        self._node_of: dict[PoolKey, str] = {}
        self._offers: dict[str, Offer] = {}
        self._contents = Numbers(_MOST_CONTENTS)
        self._places: Bounded[tuple[tuple[int, str], ...], Mapping[tuple[int, str], int]] = Bounded(_MOST_SHARED)
        self._shared: Bounded[Hashable, Any] = Bounded(_MOST_SHARED)

    def put(self, given: ResourceSlice) -> tuple[str, ...]:
        """Store a slice. Returns the nodes that now offer something else; the empty name stands for devices of no
        single node.
        """
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
        """The node of a pool; empty for a pool of no single node, and for an unknown one."""
        return self._node_of.get(pool, "")

    def knows(self, pool: PoolKey) -> bool:
        return pool in self._node_of

    def offer(self, node: str) -> Offer:
        """The offer of a node; the empty name gives the devices of no single node."""
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
            all_devices = [device for given in slices for device in given.spec.devices]
            names += [(len(pools), device.name) for device in all_devices]
            pools.append(pool)
            drivers += [pool[0]] * len(all_devices)
            devices += all_devices
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
        """The object that is shared by all equal contents."""
        known: _Content | None = self._shared.get(content)
        return self._shared.remember(content, content) if known is None else known

    def _content(self, driver: str, device: Device, consumes: Consumed) -> int:
        capacity = tuple(
            (name, given.value.nanos, given.request_policy) for name, given in sorted(device.capacity.items())
        )
        return self._contents.of((driver, capacity, consumes, device.allow_multiple_allocations, device.taints))


def _consumed(slices: list[ResourceSlice], limits: list[int]) -> list[Consumed] | None:
    """What each device consumes; None where one consumes a counter that does not exist. Appends the pool's counters to
    ``limits``.
    """
    places: dict[tuple[str, str], int] = {}
    own: list[int] = []
    for given in slices:
        for counters in given.spec.shared_counters:
            for name, counter in counters.counters.items():
                places[counters.name, name] = len(limits) + len(own)
                own.append(counter.value.nanos)
    try:
        by_device = [
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
    return by_device


def _pool(given: ResourceSlice) -> PoolKey:
    return given.spec.driver, given.spec.pool.name


def _whole(pool: Iterable[ResourceSlice]) -> list[ResourceSlice] | None:
    """The slices of the newest generation, sorted by name; None where some are missing, or where a device or counter
    set appears twice.
    """
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
    """The attribute of a qualified name; an attribute published without a domain belongs to the driver's domain."""
    found = device.attributes.get(name)
    domain, _, identifier = name.partition("/")
    return device.attributes.get(identifier) if found is None and domain == driver else found
