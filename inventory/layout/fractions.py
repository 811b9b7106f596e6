"""Fractions of GPUs: the percents that a request gets, or the sentence why it gets none.

A fractional GPU is 100 devices, one for each percent. Two rules hold here. The devices of one request lie on one GPU,
and their number is a multiple of that GPU's granularity. A request for parts of several GPUs has equally many on each,
in multiples of the granularity, and one MPS daemon serves them all. It follows that no GPU gives more than 100
percents: it has no more devices, and the kubelet gives each away once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from inventory.api.names import GPU_PERCENT_DEVICES
from inventory.devices import DeviceId, GpuUuid
from inventory.layout.entries import PERCENT_RESOURCE
from inventory.layout.layout import PERCENTS, LogicalDevice, Resource
from inventory.layout.sharing import SharingMode
from inventory.words.catalog import plural


class FractionError(ValueError):
    """A request that no GPU can serve; the text is the reason."""


MOST_GPUS = 64
"""The most GPUs of one node that a request may lie on."""


def gpus_asked(annotation: str | None) -> int | None:
    """The number of GPUs that the percents of a pod lie on, as its annotation says; None where the text is not such a
    number.
    """
    if annotation is None:
        return 1
    fine = annotation.isascii() and annotation.isdigit() and len(annotation) <= len(str(MOST_GPUS))
    return int(annotation) if fine and 0 < int(annotation) <= MOST_GPUS else None


def is_fractional(device: LogicalDevice) -> bool:
    return device.share is not None and device.share.sharing is SharingMode.FRACTIONAL


def choose(
    available: Sequence[LogicalDevice],
    required: Sequence[LogicalDevice],
    size: int,
    order: Mapping[GpuUuid, int],
    gpus: int = 1,
) -> tuple[LogicalDevice, ...]:
    """``size`` percents of one GPU, or of ``gpus`` GPUs, out of ``available`` with all of ``required``. Raises
    FractionError.

    Packed chooses, among the GPUs with room, the one with the least; spread the one with the most; among equals the
    first in ``order``. All fractional GPUs of a node have the same placement.
    """
    if gpus != 1:
        return _choose_several(available, required, size, order, gpus)
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


def _choose_several(
    available: Sequence[LogicalDevice],
    required: Sequence[LogicalDevice],
    size: int,
    order: Mapping[GpuUuid, int],
    gpus: int,
) -> tuple[LogicalDevice, ...]:
    """A choice of equal parts of ``gpus`` GPUs of one daemon, each chosen as a request of its own would be."""
    per_gpu = _part(size, gpus)
    have = {device.id for device in required}
    pinned = Counter(device.gpu for device in required)
    free: dict[GpuUuid, list[LogicalDevice]] = {}
    for device in sorted(available, key=lambda device: device.id not in have):
        free.setdefault(device.gpu, []).append(device)
    together: dict[tuple[GpuUuid, ...], list[GpuUuid]] = {}
    for gpu, devices in free.items():
        share = devices[0].share
        if share is not None and len(devices) >= per_gpu >= pinned[gpu] and per_gpu % share.granularity == 0:
            together.setdefault(share.together or (gpu,), []).append(gpu)

    def rank(gpu: GpuUuid) -> tuple[bool, int, int]:
        room = len(free[gpu])
        return (not pinned[gpu], room if _packed(free[gpu][0]) else -room, order.get(gpu, 0))

    chosen = [sorted(group, key=rank)[:gpus] for group in together.values()]
    fitting = [group for group in chosen if len(group) == gpus and pinned.keys() <= set(group)]
    if not fitting:
        raise FractionError(_too_few(gpus, per_gpu, max(map(len, together.values()), default=0)))
    best = min(fitting, key=lambda group: [rank(gpu) for gpu in reversed(group)])
    return tuple(device for gpu in best for device in free[gpu][:per_gpu])


def check_granted(devices: Sequence[LogicalDevice], gpus_asked: Collection[int] = (1,)) -> None:
    """Check the rules of Allocate, whether the kubelet or Tessera chose the devices. Raises FractionError.

    ``gpus_asked``: the numbers of GPUs on which such a request may be meant to lie; several where it may be one of
    several pods'.
    """
    counts = Counter(device.gpu for device in devices)
    if len(counts) not in gpus_asked and set(gpus_asked) != {1}:
        raise FractionError(_on_others(len(devices), len(counts), gpus_asked))
    if len(counts) > 1 and len(counts) in gpus_asked:
        per_gpu = _part(len(devices), len(counts))
        if set(counts.values()) != {per_gpu}:
            raise FractionError(_unequal(len(devices), per_gpu, max(counts.values())))
        if len({_together(device) or (device.gpu,) for device in devices}) > 1:
            raise FractionError(_too_few(len(counts), per_gpu, 1))
        for granularity in {_granularity(device) for device in devices}:
            if per_gpu % granularity:
                raise FractionError(_no_multiple(per_gpu, granularity))
        return
    gpus = counts.keys()
    if len(devices) > PERCENTS:
        raise FractionError(_too_large(len(devices)))
    if len(gpus) > 1:
        raise FractionError(_on_several(len(devices), len(gpus)))
    granularity = _granularity(devices[0])
    if len(devices) % granularity:
        raise FractionError(_no_multiple(len(devices), granularity))


def memory_mib(devices: Sequence[LogicalDevice]) -> int:
    """The part of the GPU's memory, in MiB, that belongs to these percents."""
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


def _together(device: LogicalDevice) -> tuple[GpuUuid, ...]:
    return () if device.share is None else device.share.together


def _part(size: int, gpus: int) -> int:
    """The number of percents on each GPU. Raises FractionError."""
    if gpus < 1:
        raise FractionError(f"{GPU_PERCENT_DEVICES}: found no number of GPUs, expected one from 1 to {MOST_GPUS}")
    if size % gpus:
        raise FractionError(
            f"{PERCENT_RESOURCE}: found a request for {size}, expected a multiple of {gpus}, "
            f"the GPUs that {GPU_PERCENT_DEVICES} says"
        )
    if size // gpus > PERCENTS:
        raise FractionError(_too_large(size // gpus))
    return size // gpus


def _too_few(gpus: int, each: int, most: int) -> str:
    return (
        f"{PERCENT_RESOURCE}: found a request for {each} of each of {gpus} GPUs, "
        f"expected {plural(most, 'GPU')} at most: "
        "so many have that free and one MPS daemon (oneDaemon in the node's layout)"
    )


def _on_others(size: int, gpus: int, asked: Collection[int]) -> str:
    return (
        f"{PERCENT_RESOURCE}: {size} percent would lie on {plural(gpus, 'GPU')}, "
        f"expected {' or '.join(map(str, sorted(asked)))}, as {GPU_PERCENT_DEVICES} says"
    )


def _unequal(size: int, each: int, most: int) -> str:
    return f"{PERCENT_RESOURCE}: {most} of {size} percent would lie on one GPU, expected {each} on each"


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
        f"{PERCENT_RESOURCE}: {size} percent would lie on {plural(gpus, 'GPU')}, expected one: "
        "the node has no single GPU with so much free"
    )


def _no_room(size: int, free: Mapping[GpuUuid, Sequence[LogicalDevice]]) -> str:
    most = max((len(devices) for devices in free.values()), default=0)
    return (
        f"{PERCENT_RESOURCE}: found a request for {size}, expected {most} at most: "
        "that is free on this node's emptiest fractional GPU, and a request lies on one GPU"
    )
