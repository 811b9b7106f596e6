"""A container's request, its use, and the smaller request that would be enough. Pure.

Shares are of physical GPUs. An instance's share is the part of its GPU that it blocks, in compute slices or in memory
slices, whichever is more. Advice is never more than was asked and never less than the use with its headroom.
"""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from inventory.devices import MigProfile
from inventory.layout.entries import PERCENT_RESOURCE

WHOLE, MIG = "whole", "mig"
"""Modes of ``tessera_gpu_allocation``; the others are those of shared GPUs."""
MIG_RESOURCE = "nvidia.com/mig-"
NOTHING_MIB = 1.0
_EPSILON = 1e-6


class AdviceKind(StrEnum):
    RELEASE = "release"
    """The container never used its devices."""
    COUNT = "count"
    """The container needs fewer devices of the same kind."""
    MIG = "mig"
    FRACTION = "fraction"
    KEEP = "keep"
    UNKNOWN = "unknown"


class Prefer(StrEnum):
    MIG = "mig"
    FRACTION = "fraction"


class Product(Struct, frozen=True):
    """A kind of GPU. ``profiles`` are empty where it has no MIG."""

    name: str
    memory_mib: float
    profiles: tuple[MigProfile, ...] = ()

    def share(self, profile: MigProfile) -> float:
        """The part of the GPU that an instance of the profile takes."""
        slices = max(offered.slices for offered in self.profiles)
        size = max(offered.size for offered in self.profiles)
        return max(profile.slices / slices, profile.size / size)

    def activity(self, profile: MigProfile) -> float:
        """The part of the GPU's work that an instance of the profile can do."""
        return profile.slices / max(offered.slices for offered in self.profiles)

    def named(self, name: str) -> MigProfile | None:
        return next((offered for offered in self.profiles if offered.name == name), None)


class Used(Struct, frozen=True):
    """One device of a container: a GPU, an instance, or a share. Unknown figures are None.

    ``share`` is the value of ``tessera_gpu_allocation``; ``activity_p95`` is a part of the GPU, or of the instance
    where the device is one. ``empty``: its agent never saw it in use.
    """

    share: float
    profile: str = ""
    activity_p95: float | None = None
    memory_p95_mib: float | None = None
    memory_max_mib: float | None = None
    empty: bool = False

    @property
    def untouched(self) -> bool:
        """Whether the device was never used. A device without processes may still show some of its memory as used: the
        driver's.
        """
        return self.activity_p95 == 0 and (self.empty or (self.memory_max_mib or 0.0) < NOTHING_MIB)


class ContainerDevices(Struct, frozen=True, kw_only=True):
    """The devices that one container has of one resource, in one mode."""

    namespace: str
    pod: str
    container: str
    resource: str
    mode: str
    product: str
    devices: tuple[Used, ...]
    age_s: float


class AdviceOptions(Struct, frozen=True):
    """The options of the command. ``headroom`` is a ratio; ``granularity`` in percent of a GPU."""

    headroom: float = 0.2
    min_age_s: float = 3600.0
    prefer: Prefer = Prefer.MIG
    granularity: int = 1


class Advice(Struct, frozen=True, kw_only=True, rename="camel"):
    """The advice for one ContainerDevices. ``needs_gpus`` and ``frees_gpus`` add up to ``asked_gpus``."""

    namespace: str
    pod: str
    container: str
    product: str
    mode: str
    asked: str
    asked_gpus: float
    activity_p95: float | None
    memory_p95_mib: float | None
    memory_max_mib: float | None
    kind: AdviceKind
    do: str
    needs_gpus: float
    frees_gpus: float
    why: str = ""


class Sum(Struct, rename="camel"):
    asked_gpus: float = 0.0
    frees_gpus: float = 0.0


class AdviceReport(Struct, frozen=True, kw_only=True, rename="camel"):
    window_seconds: float
    headroom: float
    asked_gpus: float
    frees_gpus: float
    namespaces: Mapping[str, Sum]
    advice: tuple[Advice, ...]


class _Choice(Struct, frozen=True):
    kind: AdviceKind
    do: str
    share: float
    why: str = ""


class _Unknown(Exception):  # noqa: N818 - no error: a container without enough figures
    """The figures of a container are not enough; one line says which is missing."""


def report(
    requests: Iterable[ContainerDevices], products: Mapping[str, Product], wish: AdviceOptions, window_s: float
) -> AdviceReport:
    """Advice for all requests, those that free most first."""
    all_advice = sorted(
        (advise(request, products.get(request.product), wish) for request in requests),
        key=lambda advice: (-advice.frees_gpus, advice.namespace, advice.pod, advice.container, advice.asked),
    )
    sums: dict[str, Sum] = {}
    for advised in all_advice:
        total = sums.setdefault(advised.namespace, Sum())
        total.asked_gpus += advised.asked_gpus
        total.frees_gpus += advised.frees_gpus
    return AdviceReport(
        window_seconds=window_s,
        headroom=wish.headroom,
        asked_gpus=math.fsum(advised.asked_gpus for advised in all_advice),
        frees_gpus=math.fsum(advised.frees_gpus for advised in all_advice),
        namespaces=dict(sorted(sums.items())),
        advice=tuple(all_advice),
    )


def advise(request: ContainerDevices, product: Product | None, wish: AdviceOptions) -> Advice:
    asked_gpus = _asked_gpus(request, product)
    asked = _asked(request)
    try:
        choice = _choice(request, product, wish, asked_gpus)
    except _Unknown as missing:
        choice = _Choice(AdviceKind.UNKNOWN, asked, asked_gpus, str(missing))
    return Advice(
        namespace=request.namespace,
        pod=request.pod,
        container=request.container,
        product=request.product,
        mode=request.mode,
        asked=asked,
        asked_gpus=asked_gpus,
        activity_p95=_busy(request),
        memory_p95_mib=_sum([device.memory_p95_mib for device in request.devices]),
        memory_max_mib=_sum([device.memory_max_mib for device in request.devices]),
        kind=choice.kind,
        do=choice.do,
        needs_gpus=choice.share,
        frees_gpus=asked_gpus - choice.share,
        why=choice.why,
    )


def _asked_gpus(request: ContainerDevices, product: Product | None) -> float:
    if request.mode != MIG or product is None or not product.profiles:
        return sum(device.share for device in request.devices)
    profiles = [product.named(device.profile) for device in request.devices]
    return sum(
        one.share if profile is None else product.share(profile)
        for one, profile in zip(request.devices, profiles, strict=True)
    )


def _asked(request: ContainerDevices) -> str:
    if request.resource == PERCENT_RESOURCE:
        return f"{round(sum(device.share for device in request.devices) * 100)} x {request.resource}"
    return f"{len(request.devices)} x {request.resource}"


def _busy(request: ContainerDevices) -> float | None:
    """The busy ratio in GPUs; for instances that of the busiest one."""
    ratios = [device.activity_p95 for device in request.devices]
    if request.mode == MIG:
        return None if None in ratios else max((ratio for ratio in ratios if ratio is not None), default=None)
    return _sum(ratios)


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def _choice(request: ContainerDevices, product: Product | None, wish: AdviceOptions, asked_gpus: float) -> _Choice:
    if request.age_s < wish.min_age_s:
        raise _Unknown(f"seen for {request.age_s:.0f} s, {wish.min_age_s:.0f} s are wanted")
    if any(device.activity_p95 is None for device in request.devices):
        raise _Unknown("nothing tells how busy its devices are")
    if any(device.memory_max_mib is None for device in request.devices):
        raise _Unknown("nothing tells how much memory it holds")
    if all(device.untouched for device in request.devices):
        return _Choice(AdviceKind.RELEASE, "nothing", 0.0, "never used")
    if product is None or product.memory_mib <= 0:
        raise _Unknown(f"{request.product or 'its product'}: the memory's size is not known")
    if request.mode == MIG:
        choices = _instances(request, product, wish)
    else:
        if any(device.profile for device in request.devices):
            raise _Unknown("a share of a MIG instance")
        choices = _parts(request, product, wish)
        if request.mode == WHOLE:
            choices += _fewer(request, product, wish)
    smaller = [advised for advised in choices if advised.share < asked_gpus - _EPSILON]
    if not smaller:
        return _Choice(AdviceKind.KEEP, _asked(request), asked_gpus)
    wanted = AdviceKind.MIG if wish.prefer is Prefer.MIG else AdviceKind.FRACTION
    # For a whole GPU the preferred kind of part is chosen; otherwise the one that frees most.
    return min(smaller, key=lambda choice: (request.mode == WHOLE and choice.kind is not wanted, choice.share))


def _needs(request: ContainerDevices, wish: AdviceOptions) -> tuple[float, float]:
    """The needs with headroom: activity (in devices) and memory (MiB) of all devices together."""
    more = 1 + wish.headroom
    busy = math.fsum(device.activity_p95 or 0.0 for device in request.devices)
    # The 95th percentile cannot exceed the maximum, but two queries a moment apart can return such values.
    memory = math.fsum(max(device.memory_max_mib or 0.0, device.memory_p95_mib or 0.0) for device in request.devices)
    return busy * more, memory * more


def _parts(request: ContainerDevices, product: Product, wish: AdviceOptions) -> list[_Choice]:
    """Parts of one GPU that are enough for the container's whole use. A shared GPU has other shares only."""
    activity, memory_mib = _needs(request, wish)
    choices: list[_Choice] = []
    step = wish.granularity
    percent = max(step, step * math.ceil(100 * max(activity, memory_mib / product.memory_mib) / step - _EPSILON))
    if percent < 100:  # noqa: PLR2004 - percent
        choices.append(_Choice(AdviceKind.FRACTION, f"{percent} x {PERCENT_RESOURCE}", percent / 100))
    if request.mode == WHOLE:
        # An instance that takes all of the GPU is not a part of it.
        fitting = [
            profile for profile in _fitting(product, activity, memory_mib) if product.share(profile) < 1 - _EPSILON
        ]
        choices += [
            _Choice(AdviceKind.MIG, f"1 x {MIG_RESOURCE}{profile.name}", product.share(profile)) for profile in fitting
        ]
    return choices


def _fewer(request: ContainerDevices, product: Product, wish: AdviceOptions) -> list[_Choice]:
    activity, memory_mib = _needs(request, wish)
    count = max(1, math.ceil(max(activity, memory_mib / product.memory_mib) - _EPSILON))
    return [_Choice(AdviceKind.COUNT, f"{count} x {request.resource}", float(count))]


def _instances(request: ContainerDevices, product: Product, wish: AdviceOptions) -> list[_Choice]:
    """Instances of a smaller profile in the same number, or fewer instances of the same profile."""
    profile = product.named(request.devices[0].profile)
    if profile is None or any(device.profile != profile.name for device in request.devices):
        raise _Unknown(f"{request.product} has no profile {request.devices[0].profile}")
    if any(device.share < product.activity(profile) - _EPSILON for device in request.devices):
        raise _Unknown("a compute instance that shares its GPU instance")
    number, more = len(request.devices), 1 + wish.headroom
    busiest = max(device.activity_p95 or 0.0 for device in request.devices) * product.activity(profile) * more
    largest = max(max(device.memory_max_mib or 0.0, device.memory_p95_mib or 0.0) for device in request.devices) * more
    choices = [
        _Choice(AdviceKind.MIG, f"{number} x {MIG_RESOURCE}{smaller.name}", number * product.share(smaller))
        for smaller in _fitting(product, busiest, largest)
    ]
    activity, memory_mib = _needs(request, wish)
    count = max(1, math.ceil(max(activity, memory_mib / profile.memory_mib) - _EPSILON))
    choices.append(_Choice(AdviceKind.COUNT, f"{count} x {request.resource}", count * product.share(profile)))
    return choices


def _fitting(product: Product, activity: float, memory_mib: float) -> list[MigProfile]:
    """Profiles that can do the work and hold the memory. Those with extra engines come last."""
    return [
        profile
        for profile in product.profiles
        if "+" not in profile.name
        and "-" not in profile.name
        and product.activity(profile) >= activity - _EPSILON
        and profile.memory_mib >= memory_mib - _EPSILON
    ]
