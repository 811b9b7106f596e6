"""Picks devices one by one where links alone do not decide: replicas, MIG instances, and lists that mix them.

A *unit* is the device that replicas stand for: a whole GPU or a MIG instance. Each pick takes the next free device of
the unit that ranks first. The ranks are the rules of NVIDIA's device plugin (fewest or most held first, then the unit
least picked in this request); where those leave a tie: keep untouched GPUs untouched, stay near the devices already
picked, and last the resource's order, so that equal requests get equal answers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from inventory.devices import DeviceId, GpuUuid
from inventory.layout.layout import LogicalDevice
from inventory.preference.linktable import LinkTable

PickRank = tuple[int, ...]


class SharedDevice:
    """A GPU or MIG instance with its free devices, and the number of those held."""

    def __init__(self, device: LogicalDevice, order: int) -> None:
        self.gpu = device.gpu
        self.numa_node = device.numa_node
        self.is_mig = device.mig is not None
        self.order = order
        self.total = 0
        self.picked = 0
        self.free: list[DeviceId] = []

    @property
    def held(self) -> int:
        """The number of devices of this unit that are taken: before, required by this request, or picked in it."""
        return self.total - len(self.free)


class Picker:
    """The state of one request.

    ``devices`` are all of the resource, ``available`` those that are free or required, both in the resource's order.
    """

    def __init__(
        self,
        devices: Iterable[LogicalDevice],
        available: Sequence[LogicalDevice],
        required: Sequence[DeviceId],
        *,
        links: LinkTable,
        held: Mapping[GpuUuid, int],
    ) -> None:
        self._links = links
        self._chosen = list(required)
        self._units: dict[str, SharedDevice] = {}
        for device in devices:
            unit = self._units.get(device.physical_id)
            if unit is None:
                unit = self._units[device.physical_id] = SharedDevice(device, order=len(self._units))
            unit.total += 1
        pinned = set(required)
        for device in available:
            if device.id not in pinned:
                self._units[device.physical_id].free.append(device.id)
        self._held_on = Counter(held)
        self._free_on: Counter[GpuUuid] = Counter()
        for unit in self._units.values():
            self._held_on[unit.gpu] += unit.held
            self._free_on[unit.gpu] += len(unit.free)
        self._picked_on: Counter[GpuUuid] = Counter()
        self._linked: Counter[GpuUuid] = Counter()
        self._local: Counter[int] = Counter()
        for device in available:
            if device.id in pinned:
                self._approach(device.gpu, device.numa_node)

    def distribute(self, size: int) -> list[DeviceId]:
        """Pick ``size`` devices, spread: the unit with the fewest held devices first."""
        return self._pick(size, lambda unit: (unit.held, unit.picked, self._opens(unit), *self._distance(unit)))

    def pack(self, size: int) -> list[DeviceId]:
        """Pick ``size`` devices, concentrated: the unit with the most held devices first; of untouched units shared
        ones before exclusive ones.
        """
        return self._pick(
            size,
            lambda unit: (-unit.held, unit.picked, self._opens(unit), int(unit.total == 1), *self._distance(unit)),
        )

    def pack_instances(self, size: int) -> list[DeviceId]:
        """Pack MIG instances so that as few GPUs as possible are touched on which no device is held.

        Touched GPUs come first, the fullest first; when a new one must be opened, the one that the rest of the request
        fills best, or the largest while none can hold it. Largest first opens the fewest.
        """

        def rank(unit: SharedDevice) -> PickRank:
            if not self._opens(unit):
                return (0, -self._held_on[unit.gpu], 0, *self._distance(unit))
            spare = self._free_on[unit.gpu] - (size - len(self._chosen))
            return (1, int(spare < 0), abs(spare), *self._distance(unit))

        return self._pick(size, rank)

    def _pick(self, size: int, rank: Callable[[SharedDevice], PickRank]) -> list[DeviceId]:
        while len(self._chosen) < size:
            self._take(min((unit for unit in self._units.values() if unit.free), key=rank))
        return self._chosen

    def _take(self, unit: SharedDevice) -> None:
        self._chosen.append(unit.free.pop(0))
        unit.picked += 1
        self._held_on[unit.gpu] += 1
        self._free_on[unit.gpu] -= 1
        self._approach(unit.gpu, unit.numa_node)

    def _approach(self, gpu: GpuUuid, numa_node: int | None) -> None:
        """Record that a device of this GPU and NUMA node belongs to the answer, for ``_distance``."""
        self._picked_on[gpu] += 1
        for other in self._free_on:
            self._linked[other] += self._links.score(gpu, other)
        if numa_node is not None:
            self._local[numa_node] += 1

    def _opens(self, unit: SharedDevice) -> int:
        """The rank 1 where taking this MIG instance would touch a GPU on which no device is held; 0 for whole GPUs."""
        return int(unit.is_mig and not self._held_on[unit.gpu])

    def _distance(self, unit: SharedDevice) -> PickRank:
        """The rank by distance: the GPU of most picked devices, then the best links to them, then the same NUMA node,
        then order.
        """
        local = 0 if unit.numa_node is None else self._local[unit.numa_node]
        return (-self._picked_on[unit.gpu], -self._linked[unit.gpu], -local, unit.order)
