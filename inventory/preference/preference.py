"""The available devices that the kubelet should choose: the answer to GetPreferredAllocation, without the gRPC.

There are four kinds of device lists, told apart by the devices that are *available* now:

- whole GPUs, each held by one container: the set out of the best partition on links (``partition``);
- MIG instances, each held by one container: packed, so that GPUs without any held instance stay whole;
- percents of GPUs: all from one GPU, or equal parts of several (``inventory.layout.fractions``), or the request is
  refused;
- anything else with replicas (or a mixture): picked one by one, distributed or packed as configured
  (``inventory.preference.picking``).

One ``Chooser`` stands for one resource; it is rebuilt when the resource's devices or the links change. It keeps no
record of allocations: the held devices are the resource's minus the available ones, as the kubelet sees it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from inventory.devices import DeviceId, GpuUuid
from inventory.layout.fractions import FractionError, choose, is_fractional
from inventory.layout.layout import LogicalDevice
from inventory.layout.sharing import ReplicaPolicy
from inventory.preference.linktable import LinkTable, SetSearch
from inventory.preference.picking import Picker


class PreferenceError(ValueError):
    """A request without an answer by links. Subclasses are split by what the caller must do."""


class UnsatisfiableError(PreferenceError):
    """No answer exists for the request: refuse it (INVALID_ARGUMENT)."""


class UnknownDeviceError(PreferenceError):
    """The request names devices this resource lacks (the kubelet may be one update behind): answer with
    ``any_answer``.
    """


class Preference(Struct, frozen=True):
    """The devices to hand out, in the resource's order.

    ``exact`` says that no better set exists by links; always True where links do not decide. ``reason`` is one of
    ``partition``, ``mig-packed``, ``one-gpu``, ``gpus``, ``distributed``, ``packed``, ``no-choice``.
    """

    devices: tuple[DeviceId, ...]
    exact: bool
    reason: str


class PendingPreference:
    """An answer that improves: ``best`` may be used at any time; ``step()`` improves it by a bounded piece of work."""

    def __init__(self, best: Preference, search: SetSearch | None = None) -> None:
        self._best = best
        self._search = search

    @property
    def best(self) -> Preference:
        if self._search is None:
            return self._best
        devices = tuple(DeviceId(gpu) for gpu in self._search.best)
        return Preference(devices, exact=self._search.exact, reason="partition")

    def step(self) -> bool:
        """Improve the answer; True when no better one will come (at once, except for a search on links not yet
        tabulated).
        """
        return self._search is None or self._search.step()


class Chooser:
    """Chooses devices of one resource. ``devices`` are in the resource's order, which also breaks ties."""

    def __init__(self, devices: Sequence[LogicalDevice], links: LinkTable) -> None:
        self._links = links
        self._devices = {device.id: device for device in devices}
        self._order = {device.id: i for i, device in enumerate(devices)}
        self._gpu_order = {device.gpu: i for i, device in enumerate(devices)}

    def start(
        self,
        *,
        available: Sequence[DeviceId],
        required: Sequence[DeviceId],
        size: int,
        policy: ReplicaPolicy = ReplicaPolicy.DISTRIBUTED,
        held: Mapping[GpuUuid, int] | None = None,
        gpus: int = 1,
    ) -> PendingPreference:
        """Begin to choose ``size`` of ``available`` with all of ``required``; percents: equal parts of ``gpus`` GPUs.

        ``held`` counts, by GPU, devices that containers hold through other resources, where the caller knows; only
        packing of MIG instances uses it. Raise UnsatisfiableError or UnknownDeviceError.
        """
        check(available, required, size)
        unknown = [device for device in available if device not in self._devices]
        if unknown:
            raise UnknownDeviceError(f"device {_short(unknown[0])} is not of this resource ({len(unknown)} such)")
        if size in (len(available), len(required)) and not is_fractional(self._devices[available[0]]):
            forced = required if size == len(required) else available
            return PendingPreference(Preference(self._sorted(forced), exact=True, reason="no-choice"))
        free = [self._devices[device] for device in self._sorted(available)]
        if all(map(is_fractional, free)):
            return PendingPreference(self._fraction(free, required, size, gpus))
        search = self._partition_search(free, required, size)
        if search is not None:
            return PendingPreference(Preference((), exact=False, reason="partition"), search)
        picker = Picker(self._devices.values(), free, required, links=self._links, held=held or {})
        return PendingPreference(self._pick(picker, free, size, policy))

    def _fraction(
        self, free: Sequence[LogicalDevice], required: Sequence[DeviceId], size: int, gpus: int
    ) -> Preference:
        pinned = [self._devices[device] for device in required]
        try:
            chosen = choose(free, pinned, size, self._gpu_order, gpus)
        except FractionError as why:
            raise UnsatisfiableError(str(why)) from None
        return Preference(
            self._sorted(device.id for device in chosen), exact=True, reason="one-gpu" if gpus == 1 else "gpus"
        )

    def _partition_search(
        self, free: Sequence[LogicalDevice], required: Sequence[DeviceId], size: int
    ) -> SetSearch | None:
        if not all(device.mig is None and device.replica is None and self._links.knows(device.gpu) for device in free):
            return None
        pinned = [self._devices[device].gpu for device in required]
        return self._links.search([device.gpu for device in free], pinned, size)

    def _pick(self, picker: Picker, free: Sequence[LogicalDevice], size: int, policy: ReplicaPolicy) -> Preference:
        if all(device.mig is not None and device.replica is None for device in free):
            chosen, reason = picker.pack_instances(size), "mig-packed"
        elif policy is ReplicaPolicy.PACKED:
            chosen, reason = picker.pack(size), "packed"
        else:
            chosen, reason = picker.distribute(size), "distributed"
        return Preference(self._sorted(chosen), exact=True, reason=reason)

    def _sorted(self, devices: Iterable[DeviceId]) -> tuple[DeviceId, ...]:
        return tuple(sorted(devices, key=self._order.__getitem__))


def prefer(
    devices: Sequence[LogicalDevice],
    links: LinkTable,
    *,
    available: Sequence[DeviceId],
    required: Sequence[DeviceId] = (),
    size: int,
    policy: ReplicaPolicy = ReplicaPolicy.DISTRIBUTED,
    held: Mapping[GpuUuid, int] | None = None,
    expired: Callable[[], bool] | None = None,
) -> Preference:
    """One answer in one call; with ``expired`` the best found when it is first true. Raises what ``start`` raises."""
    pending = Chooser(devices, links).start(available=available, required=required, size=size, policy=policy, held=held)
    while not pending.step():
        if expired is not None and expired():
            break
    return pending.best


def any_answer(available: Sequence[DeviceId], required: Sequence[DeviceId], size: int) -> tuple[DeviceId, ...]:
    """A correct answer from the ids alone: the required devices, then the available ones in alphabetical order.

    Raise UnsatisfiableError where there is none.
    """
    check(available, required, size)
    spare = sorted(set(available) - set(required))
    return (*required, *spare[: size - len(required)])


def check(available: Sequence[DeviceId], required: Sequence[DeviceId], size: int) -> None:
    """Raise UnsatisfiableError unless ``size`` distinct devices of ``available`` can contain ``required``."""
    offered = set(available)
    for name, ids in (("available", available), ("required", required)):
        twice = _first_repeated(ids)
        if twice is not None:
            raise UnsatisfiableError(f"{name} lists {_short(twice)} twice, expected distinct devices")
    if not 0 < size <= len(available):
        raise UnsatisfiableError(f"size is {size}, expected 1 to {len(available)}, the number of available devices")
    if len(required) > size:
        raise UnsatisfiableError(f"required lists {len(required)} devices, expected at most the size, {size}")
    missing = next((device for device in required if device not in offered), None)
    if missing is not None:
        raise UnsatisfiableError(f"required device {_short(missing)} is not available")


def _first_repeated(ids: Sequence[DeviceId]) -> DeviceId | None:
    seen: set[DeviceId] = set()
    for device in ids:
        if device in seen:
            return device
        seen.add(device)
    return None


def _short(device: DeviceId) -> str:
    """An id for a message, cut: a hostile caller's may be megabytes long."""
    return f"{device!r:.80}"
