"""MIG geometry as data: the GPU instance profiles that a product offers, their starts, and the contents of each.

The placement rules are those that ``nvidia-smi mig -lgipp`` prints for A100, A30 and H100; the newer eight-slice
parts follow the same table. Names carry a GB number that the driver computes from the board's memory, so each
product names its own. Memory and multiprocessor counts of H200, B200 and GB200 are computed shares.
"""

import math
from collections.abc import Iterable

from msgspec import Struct

SLICES_8 = 8
"""The memory slices of a full-size MIG part; it has 7 compute slices."""

SLICES_4 = 4
"""The memory slices of an A30; it has 4 compute slices."""


class MigProfile(Struct, frozen=True):
    """One GPU instance profile.

    ``enum`` is NVML_GPU_INSTANCE_PROFILE_*, ``id`` the number that ``nvidia-smi mig -lgip`` shows and create takes;
    ``slices`` are compute slices, ``starts`` and ``size`` memory slices; ``count`` is the number that fits on an empty
    GPU.
    """

    enum: int
    id: int
    name: str
    slices: int
    starts: tuple[int, ...]
    size: int
    count: int
    memory_mib: int
    sms: int
    copy_engines: int
    decoders: int = 0
    jpegs: int = 0
    ofas: int = 0


class Shape(Struct, frozen=True):
    """The part of a profile that all products of one slice count share."""

    enum: int
    id: int
    slices: int
    starts: tuple[int, ...]
    size: int
    count: int
    media_extensions: bool = False


SHAPES_8 = (
    Shape(0, 19, 1, (0, 1, 2, 3, 4, 5, 6), 1, 7),
    Shape(7, 20, 1, (0, 1, 2, 3, 4, 5, 6), 1, 1, media_extensions=True),
    Shape(9, 15, 1, (0, 2, 4, 6), 2, 4),
    Shape(1, 14, 2, (0, 2, 4), 2, 3),
    Shape(2, 9, 3, (0, 4), 4, 2),
    Shape(3, 5, 4, (0,), 4, 1),
    Shape(4, 0, 7, (0,), 8, 1),
)

SHAPES_4 = (
    Shape(0, 14, 1, (0, 1, 2, 3), 1, 4),
    Shape(7, 21, 1, (0, 1, 2, 3), 1, 1, media_extensions=True),
    Shape(1, 5, 2, (0, 2), 2, 2),
    Shape(8, 6, 2, (0, 2), 2, 1, media_extensions=True),
    Shape(3, 0, 4, (0,), 4, 1),
)


class Capacity(Struct, frozen=True):
    """The values that one product puts into the shapes: tuples are in the order of the shapes that they are zipped
    with.
    """

    names: tuple[str, ...]
    memory_mib: tuple[int, ...]
    sms: tuple[int, ...]
    decoders: tuple[int, ...]
    jpegs: tuple[int, ...]
    ofas: tuple[int, ...]


def profiles(shapes: tuple[Shape, ...], capacity: Capacity) -> tuple[MigProfile, ...]:
    """The full table of one product."""
    return tuple(
        MigProfile(
            enum=shape.enum,
            id=shape.id,
            name=capacity.names[i] + ("+me" if shape.media_extensions else ""),
            slices=shape.slices,
            starts=shape.starts,
            size=shape.size,
            count=shape.count,
            memory_mib=capacity.memory_mib[i],
            sms=capacity.sms[i],
            copy_engines=shape.slices,
            decoders=capacity.decoders[i],
            jpegs=capacity.jpegs[i],
            ofas=capacity.ofas[i],
        )
        for i, shape in enumerate(shapes)
    )


def eight_slice_names(*gb: int) -> tuple[str, ...]:
    """Names for SHAPES_8 from the GB numbers of 1g, 1g with double memory, 2g, 3g, 4g and 7g."""
    one, double, two, three, four, seven = gb
    return (
        f"1g.{one}gb",
        f"1g.{one}gb",
        f"1g.{double}gb",
        f"2g.{two}gb",
        f"3g.{three}gb",
        f"4g.{four}gb",
        f"7g.{seven}gb",
    )


def share_mib(total_mib: int, eighths: int) -> int:
    """A plausible size in MiB for a memory share: a little under the even share, in steps of 128 MiB."""
    return math.floor(total_mib * eighths / SLICES_8 * 0.985 / 128) * 128


def eight_slice_shares(total_mib: int) -> tuple[int, ...]:
    """The memory of SHAPES_8, in MiB, where no tool output is published."""
    return tuple(share_mib(total_mib, shape.size) for shape in SHAPES_8)


HOPPER_DECODERS = (1, 1, 1, 2, 3, 4, 7)
HOPPER_OFAS = (0, 1, 0, 0, 0, 0, 1)
AMPERE_SMS = (14, 14, 14, 28, 42, 56, 98)
AMPERE_DECODERS = (0, 1, 1, 1, 2, 2, 5)
AMPERE_JPEGS = (0, 1, 0, 0, 0, 0, 1)
BLACKWELL_SMS = (18, 18, 30, 36, 70, 72, 148)

A100_40 = profiles(
    SHAPES_8,
    Capacity(
        names=eight_slice_names(5, 10, 10, 20, 20, 40),
        memory_mib=(4864, 4864, 9856, 9856, 19968, 19968, 40192),
        sms=AMPERE_SMS,
        decoders=AMPERE_DECODERS,
        jpegs=AMPERE_JPEGS,
        ofas=AMPERE_JPEGS,
    ),
)

A100_80 = profiles(
    SHAPES_8,
    Capacity(
        names=eight_slice_names(10, 20, 20, 40, 40, 80),
        memory_mib=(9856, 9856, 19968, 19968, 40192, 40192, 80384),
        sms=AMPERE_SMS,
        decoders=AMPERE_DECODERS,
        jpegs=AMPERE_JPEGS,
        ofas=AMPERE_JPEGS,
    ),
)

A30 = profiles(
    SHAPES_4,
    Capacity(
        names=("1g.6gb", "1g.6gb", "2g.12gb", "2g.12gb", "4g.24gb"),
        memory_mib=(5836, 5836, 11672, 11672, 23344),
        sms=(14, 14, 28, 28, 56),
        decoders=(0, 1, 2, 2, 4),
        jpegs=(0, 1, 0, 1, 1),
        ofas=(0, 1, 0, 1, 1),
    ),
)


def hopper(names: tuple[str, ...], memory_mib: tuple[int, ...], sms: tuple[int, ...]) -> tuple[MigProfile, ...]:
    """The profiles of an eight-slice part with Hopper's media engines."""
    capacity = Capacity(
        names=names,
        memory_mib=memory_mib,
        sms=sms,
        decoders=HOPPER_DECODERS,
        jpegs=HOPPER_DECODERS,
        ofas=HOPPER_OFAS,
    )
    return profiles(SHAPES_8, capacity)


H100_80_MIB = (9984, 9984, 20096, 20096, 40448, 40448, 81152)
H100_SXM_SMS = (16, 16, 26, 32, 60, 64, 132)
H100_PCIE_SMS = (14, 14, 14, 30, 46, 62, 114)

H100_80 = hopper(eight_slice_names(10, 20, 20, 40, 40, 80), H100_80_MIB, H100_SXM_SMS)
H100_80_PCIE = hopper(eight_slice_names(10, 20, 20, 40, 40, 80), H100_80_MIB, H100_PCIE_SMS)
H100_94 = hopper(eight_slice_names(12, 24, 24, 47, 47, 94), eight_slice_shares(95830), H100_SXM_SMS)
H100_96 = hopper(eight_slice_names(12, 24, 24, 48, 48, 96), eight_slice_shares(97871), H100_SXM_SMS)
H200 = hopper(eight_slice_names(18, 35, 35, 71, 71, 141), eight_slice_shares(143771), H100_SXM_SMS)
B200 = hopper(eight_slice_names(23, 45, 45, 90, 90, 180), eight_slice_shares(183359), BLACKWELL_SMS)
GB200 = hopper(eight_slice_names(23, 47, 47, 93, 93, 186), eight_slice_shares(189471), BLACKWELL_SMS)
B300 = hopper(eight_slice_names(34, 67, 67, 135, 135, 269), eight_slice_shares(275040), BLACKWELL_SMS)
GB300 = hopper(eight_slice_names(35, 70, 70, 139, 139, 278), eight_slice_shares(284208), BLACKWELL_SMS)


def fitting(starts: Iterable[int], size: int) -> int:
    """The number of spans of one size that fit side by side, each at one of the ascending starts."""
    count, end = 0, -1
    for start in starts:
        if start > end:
            count, end = count + 1, start + size - 1
    return count


class ComputeProfile(Struct, frozen=True):
    """A compute instance profile in a GPU instance: ``enum`` is NVML_COMPUTE_INSTANCE_PROFILE_*, and also its id."""

    enum: int
    slices: int
    starts: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of instances that fit into an empty GPU instance."""
        return fitting(self.starts, self.slices)


COMPUTE_ENUM = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""The NVML_COMPUTE_INSTANCE_PROFILE_* of each number of compute slices."""

COMPUTE_STARTS: dict[int, dict[int, tuple[int, ...]]] = {
    1: {1: (0,)},
    2: {1: (0, 1), 2: (0,)},
    3: {1: (0, 1, 2), 2: (0, 1), 3: (0,)},
    4: {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)},
    7: {1: (0, 1, 2, 3, 4, 5, 6), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)},
}


def compute_profiles(slices: int) -> tuple[ComputeProfile, ...]:
    """The compute instance profiles of a GPU instance with that many compute slices."""
    return tuple(
        ComputeProfile(enum=COMPUTE_ENUM[size], slices=size, starts=starts)
        for size, starts in COMPUTE_STARTS[slices].items()
    )


def gpu_instance_id(memory_slices: int, start: int, size: int) -> int:
    """The GPU instance id of a placement: the node of a binary tree over the memory slices.

    Ids are unique among placements that do not overlap and are the same each time, as on hardware (an A100's
    seven 1g instances hold 7, 8, 9, 11, 12, 13 and 14). The upper half comes first.
    """
    width = memory_slices
    first = 0
    while width > size:
        width //= 2
        first = first * 2 + 1
    nodes = memory_slices // size
    return first + (start // size + nodes // 2) % nodes if nodes > 1 else 0
