"""The parts of a GPU that claims may ask for: each MIG profile at each of its places, and the counters that keep them
apart. Pure.

    Gpu -> counter_set(gpu), whole(gpu), parts(gpu)

Devices of one GPU consume one counter set. Each memory slice is a counter of 1, so that two devices which would share
one can never be allocated together, and the whole GPU, which consumes everything, excludes each of its parts. Names of
devices, capacities and counters are those of NVIDIA's driver. Sets have further counters only for profiles of which the
GPU holds fewer than the others would allow.
Source: KEP-4815; the driver of NVIDIA, ``partitions.go``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from inventory.devices import Gpu, MigInstance, MigProfile
from inventory.mig.parts import Part
from inventory.mig.plan import Slot
from inventory.mig.search import Placer

_CAPACITIES: Final = {
    "multiprocessors": "multiprocessors",
    "copyEngines": "copy-engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpegEngines": "jpeg-engines",
    "ofaEngines": "ofa-engines",
    "memory": "memory",
}
"""The counter that each capacity of a device is taken from."""
MAX_COUNTERS: Final = 32
_NO_LABEL: Final = re.compile(r"[^a-z0-9-]")


class CounterSet(Struct, frozen=True):
    """The counters that the devices of one GPU share. Values are Kubernetes quantities."""

    name: str
    counters: Mapping[str, str]


class Partition(Struct, frozen=True):
    """One MIG profile at one place: a device before it has attributes. ``consumes`` are counters of the GPU's set."""

    name: str
    slot: Slot
    capacity: Mapping[str, str]
    consumes: Mapping[str, str]


def device_name(gpu: Gpu) -> str:
    """The name that NVIDIA's driver gives a whole GPU: by its minor, which pods' logs and device files show too."""
    return f"gpu-{gpu.minor}"


def partition_name(gpu: Gpu, profile: MigProfile, start: int) -> str:
    """The name that NVIDIA's driver gives a MIG device: the profile without dots, its id, its first memory slice."""
    text = _NO_LABEL.sub("-", profile.name.lower().replace(".", "")).strip("-")
    return f"{device_name(gpu)}-mig-{text}-{profile.profile_id}-{start}"


def divisible(gpu: Gpu) -> bool:
    """Whether parts of the GPU can be given out: its profiles are known, and the API has counters for all of them."""
    return gpu.mig_capable and bool(_placed(gpu)) and len(_totals(gpu)) <= MAX_COUNTERS


def instance(gpu: Gpu | None, slot: Slot) -> MigInstance | None:
    """The GPU's MIG device at that place, None where there is none of that profile."""
    found = gpu.mig_instances if gpu is not None and gpu.mig_enabled else ()
    return next((mig for mig in found if (mig.profile, mig.start) == (slot.profile, slot.start)), None)


def capacity(gpu: Gpu) -> dict[str, str]:
    """The whole GPU's capacity, beside its memory: the most that any of its profiles has."""
    amounts = [_amounts(profile) for profile in _placed(gpu)]
    return {name: str(max(each[name] for each in amounts)) for name in _CAPACITIES if name != "memory" and amounts}


def counter_set(gpu: Gpu) -> CounterSet:
    """The counters that the whole GPU consumes, and no device of another GPU."""
    totals = _totals(gpu)
    return CounterSet(
        f"{device_name(gpu)}-counter-set", {name: _quantity(name, value) for name, value in totals.items()}
    )


def partitions(gpu: Gpu) -> Iterator[Partition]:
    """All partitions, the smallest profiles first, each first at the place that takes the fewest from the others:
    readers go in order, and take the first that fits.
    """
    limited = _limits(gpu)
    placer = Placer(gpu.mig_profiles)
    for profile in sorted(_placed(gpu), key=lambda each: (each.size, each.slices, each.max_count == 1, each.name)):
        amounts = _amounts(profile)
        engines = {counter: amounts[name] for name, counter in _CAPACITIES.items()}
        for start in placer.order(profile.name):
            slices = {_slice(number): 1 for number in range(start, start + profile.size)}
            limit = {_limit(profile): 1} if profile.name in limited else {}
            yield Partition(
                name=partition_name(gpu, profile, start),
                slot=Slot(profile.name, start, profile.size, (Part(0, profile.slices),)),
                capacity={name: _quantity(name, value) for name, value in amounts.items()},
                consumes={name: _quantity(name, value) for name, value in (engines | slices | limit).items()},
            )


def memory(mib: int) -> str:
    """A quantity as the API server writes it back (``40Gi``, not ``40960Mi``): what is read is compared with it."""
    units = ["Mi", "Gi", "Ti"]
    while mib and mib % 1024 == 0 and len(units) > 1:
        mib //= 1024
        units.pop(0)
    return f"{mib}{units[0]}"


def _quantity(name: str, value: int) -> str:
    return memory(value) if name == "memory" else str(value)


def _placed(gpu: Gpu) -> list[MigProfile]:
    return [profile for profile in gpu.mig_profiles if profile.starts and profile.size > 0]


def _amounts(profile: MigProfile) -> dict[str, int]:
    engines = profile.engines
    return {
        "multiprocessors": profile.multiprocessors,
        "copyEngines": engines.copy,
        "decoders": engines.decoder,
        "encoders": engines.encoder,
        "jpegEngines": engines.jpeg,
        "ofaEngines": engines.ofa,
        "memory": profile.memory_mib,
    }


def _totals(gpu: Gpu) -> dict[str, int]:
    profiles = _placed(gpu)
    amounts = [_amounts(profile) for profile in profiles]
    totals = {counter: max(each[name] for each in amounts) for name, counter in _CAPACITIES.items() if amounts}
    slices = max((start + profile.size for profile in profiles for start in profile.starts), default=0)
    totals |= {_slice(number): 1 for number in range(slices)}
    return totals | {_limit(profile): profile.max_count for profile in profiles if profile.name in _limits(gpu)}


def _limits(gpu: Gpu) -> frozenset[str]:
    """The profiles that the GPU holds fewer of than memory slices and engines let it."""
    profiles = _placed(gpu)
    most = {name: max(_amounts(profile)[name] for profile in profiles) for name in _CAPACITIES} if profiles else {}
    limited = set()
    for profile in profiles:
        side_by_side, end = 0, 0
        for start in sorted(profile.starts):
            if start >= end:
                side_by_side, end = side_by_side + 1, start + profile.size
        amounts = _amounts(profile)
        room = [most[name] // amounts[name] for name in _CAPACITIES if amounts[name]]
        if min([side_by_side, *room]) > profile.max_count:
            limited.add(profile.name)
    return frozenset(limited)


def _slice(number: int) -> str:
    return f"memory-slice-{number}"


def _limit(profile: MigProfile) -> str:
    return f"profile-{profile.profile_id}"
