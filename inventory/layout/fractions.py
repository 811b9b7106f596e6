"""Fractions of GPUs: the percents that a request gets, or the sentence why it gets none.

A fractional GPU is 100 devices, one for each percent. The rule that everything here keeps: the devices of one request
lie on one GPU, and their number is a multiple of that GPU's granularity. That no GPU gives more than 100 percents
follows: it has no more devices, and the kubelet gives each away once.
"""

from collections.abc import Iterable, Mapping, Sequence

from inventory.devices import DeviceId, GpuUuid
from inventory.layout.entries import PERCENT_RESOURCE
from inventory.layout.layout import PERCENTS, LogicalDevice, Resource
from inventory.layout.sharing import SharingMode


class FractionError(ValueError):
    """A request that no GPU can serve; the text is the reason."""


def is_fractional(device: LogicalDevice) -> bool:
    return device.share is not None and device.share.sharing is SharingMode.FRACTIONAL


def choose(
    available: Sequence[LogicalDevice], required: Sequence[LogicalDevice], size: int, order: Mapping[GpuUuid, int]
) -> tuple[LogicalDevice, ...]:
    """``size`` percents of one GPU out of ``available`` with all of ``required``. Raises FractionError.

    Packed: of the GPUs with room the one with the least; spread: the one with the most; of equals the first in
    ``order``. All fractional GPUs of a node have the same placement.
    """
    if size > PERCENTS:
        raise FractionError(_too_large(size))
    free: dict[GpuUuid, list[LogicalDevice]] = {}
    for device in available:
        free.setdefault(device.gpu, []).append(device)
    pinned = {device.gpu for device in required}
    if len(pinned) > 1:
        raise FractionError(_on_several(size, len(pinned)))
    fitting = {gpu: devices for gpu, devices in free.items() if len(devices) >= size and (not pinned or gpu in pinned)}
    if not fitting:
        raise FractionError(_no_room(size, free))
    usable = {gpu: devices for gpu, devices in fitting.items() if size % _granularity(devices[0]) == 0}
    if not usable:
        raise FractionError(_no_multiple(size, min(_granularity(devices[0]) for devices in fitting.values())))

    def rank(gpu: GpuUuid) -> tuple[int, int]:
        room = len(usable[gpu])
        return (room if _packed(usable[gpu][0]) else -room, order.get(gpu, 0))

    chosen = usable[min(usable, key=rank)]
    have = {device.id for device in required}
    rest = [device for device in chosen if device.id not in have]
    return (*required, *rest[: size - len(required)])


def check_granted(devices: Sequence[LogicalDevice]) -> None:
    """The rules that Allocate checks, whether the kubelet or Tessera chose the devices. Raises FractionError."""
    gpus = {device.gpu for device in devices}
    if len(devices) > PERCENTS:
        raise FractionError(_too_large(len(devices)))
    if len(gpus) > 1:
        raise FractionError(_on_several(len(devices), len(gpus)))
    granularity = _granularity(devices[0])
    if len(devices) % granularity:
        raise FractionError(_no_multiple(len(devices), granularity))


def memory_mib(devices: Sequence[LogicalDevice]) -> int:
    """The part of the GPU's memory that so many percents are."""
    share = devices[0].share
    return 0 if share is None or share.memory_mib is None else share.memory_mib * len(devices) // PERCENTS


def largest(resource: Resource | None, taken: Iterable[DeviceId]) -> int | None:
    """The largest request that fits one GPU now; None on a node without fractional GPUs.

    ``taken`` are the devices that are held or not to be given.
    """
    if resource is None or resource.name != PERCENT_RESOURCE:
        return None
    gone = set(taken)
    room: dict[GpuUuid, int] = {}
    step: dict[GpuUuid, int] = {}
    for device in resource.devices:
        room[device.gpu] = room.get(device.gpu, 0) + (device.id not in gone)
        step[device.gpu] = _granularity(device)
    return max((free - free % step[gpu] for gpu, free in room.items()), default=None)


def _granularity(device: LogicalDevice) -> int:
    return 1 if device.share is None else device.share.granularity


def _packed(device: LogicalDevice) -> bool:
    return device.share is None or device.share.packed


def _too_large(size: int) -> str:
    return (
        f"{PERCENT_RESOURCE}: found a request for {size}, expected {PERCENTS} at most: it is percent of one GPU; "
        "ask for whole GPUs by their own resource"
    )


def _no_multiple(size: int, granularity: int) -> str:
    return (
        f"{PERCENT_RESOURCE}: found a request for {size}, expected a multiple of {granularity}, "
        "the granularity of this node's layout"
    )


def _on_several(size: int, gpus: int) -> str:
    return (
        f"{PERCENT_RESOURCE}: {size} percent would lie on {gpus} GPUs, expected one: "
        "the node has no single GPU with so much free"
    )


def _no_room(size: int, free: Mapping[GpuUuid, Sequence[LogicalDevice]]) -> str:
    most = max((len(devices) for devices in free.values()), default=0)
    return (
        f"{PERCENT_RESOURCE}: found a request for {size}, expected {most} at most: "
        "that is free on this node's emptiest fractional GPU, and a request lies on one GPU"
    )
