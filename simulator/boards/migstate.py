"""MIG instances of one GPU: their creation and removal. Pure: state in, state out, errors as ``MigError``.

The one invariant: GPU instances never overlap in memory slices, no profile exceeds its count, and compute instances
never overlap in the compute slices of their GPU instance. ``validate`` recomputes it.
"""

import re
from functools import lru_cache
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from simulator.boards.boards import Product
from simulator.boards.migprofiles import ComputeProfile, MigProfile, compute_profiles, fitting, gpu_instance_id

_NAMESPACE = UUID("7a3c5b1e-6f0d-5c2a-9b64-7e7f0c6f9d10")
"""The namespace of the UUIDs of MIG devices: each is a hash of the GPU's UUID and the two instance ids, so the same
each time.
"""


class MigError(ValueError):
    """An operation that the hardware refuses."""


class NoRoomError(MigError):
    """No room is left for the instance (NVML_ERROR_INSUFFICIENT_RESOURCES)."""


class BusyError(MigError):
    """The instance still holds another (NVML_ERROR_IN_USE)."""


class ComputeInstance(Struct, frozen=True):
    """A compute instance: ``profile`` is NVML's id, ``start`` a compute slice, ``serial`` never used twice."""

    id: int
    profile: int
    slices: int
    start: int
    serial: int


class GpuInstance(Struct, frozen=True):
    """A GPU instance: ``profile`` is NVML's id, ``start`` a memory slice, ``serial`` never used twice."""

    id: int
    profile: int
    start: int
    serial: int
    computes: tuple[ComputeInstance, ...] = ()


class MigState(Struct, frozen=True):
    """The MIG state of one GPU: the mode now and after the next reset, instances in order of creation, the last serial
    given.
    """

    enabled: bool = False
    pending: bool = False
    instances: tuple[GpuInstance, ...] = ()
    serial: int = 0

    def instance(self, gi_id: int) -> GpuInstance | None:
        """The GPU instance of that id."""
        return next((gi for gi in self.instances if gi.id == gi_id), None)

    def devices(self) -> list[tuple[GpuInstance, ComputeInstance]]:
        """MIG devices in NVML's order: by GPU instance id, then compute instance id."""
        pairs = [(gi, ci) for gi in self.instances for ci in gi.computes]
        return sorted(pairs, key=lambda pair: (pair[0].id, pair[1].id))


@lru_cache(maxsize=1024)
def uuid(gpu: str, gi: int, ci: int) -> str:
    """The UUID of the MIG device of a compute instance, cached: hashed in 6 us, for every call about the device."""
    return f"MIG-{uuid5(_NAMESPACE, f'{gpu}/{gi}/{ci}')}"


def profile_of(product: Product, gi: GpuInstance) -> MigProfile:
    """The profile of an existing GPU instance."""
    profile = product.mig_profile_by_id(gi.profile)
    assert profile is not None, f"{product.name} has no profile {gi.profile}"
    return profile


def compute_profile(slices: int, profile_id: int) -> ComputeProfile | None:
    """The compute instance profile of that id in a GPU instance of so many compute slices."""
    return next((p for p in compute_profiles(slices) if p.enum == profile_id), None)


def _free_starts(product: Product, profile: MigProfile, instances: tuple[GpuInstance, ...]) -> list[int]:
    taken: set[int] = set()
    for gi in instances:
        taken.update(range(gi.start, gi.start + profile_of(product, gi).size))
    return [start for start in profile.starts if taken.isdisjoint(range(start, start + profile.size))]


def remaining(product: Product, profile: MigProfile, instances: tuple[GpuInstance, ...]) -> int:
    """The number of further GPU instances of a profile that fit, created one after another."""
    used = sum(gi.profile == profile.id for gi in instances)
    free = fitting(_free_starts(product, profile, instances), profile.size)
    return max(0, min(free, profile.count - used))


def choose_start(product: Product, profile: MigProfile, instances: tuple[GpuInstance, ...]) -> int:
    """The start that the driver gives an instance when it may choose: the one that leaves most room, then the lowest
    slice.

    Raises NoRoomError.
    """
    if not remaining(product, profile, instances):
        raise NoRoomError(f"no room for {profile.name}")

    def room_left(start: int) -> tuple[int, int]:
        trial = (*instances, GpuInstance(id=-1, profile=profile.id, start=start, serial=0))
        return sum(remaining(product, other, trial) * other.size for other in product.mig), -start

    return max(_free_starts(product, profile, instances), key=room_left)


def create_gpu_instance(mig: MigState, product: Product, profile: MigProfile, start: int | None = None) -> MigState:
    """The state with one more GPU instance, last in the tuple. Raises MigError."""
    if not mig.enabled:
        raise MigError("MIG mode is off")
    if start is not None and start not in profile.starts:
        raise MigError(f"{profile.name} cannot start at {start}")
    if start is None:
        start = choose_start(product, profile, mig.instances)
    elif not remaining(product, profile, mig.instances) or start not in _free_starts(product, profile, mig.instances):
        raise NoRoomError(f"no room for {profile.name} at {start}")
    serial = mig.serial + 1
    gi_id = gpu_instance_id(product.memory_slices, start, profile.size)
    gi = GpuInstance(id=gi_id, profile=profile.id, start=start, serial=serial)
    return replace(mig, instances=(*mig.instances, gi), serial=serial)


def destroy_gpu_instance(mig: MigState, gi: GpuInstance) -> MigState:
    """The state without that GPU instance. Raises BusyError while it has compute instances."""
    if gi.computes:
        raise BusyError(f"GPU instance {gi.id} has compute instances")
    return replace(mig, instances=tuple(other for other in mig.instances if other.serial != gi.serial))


def free_compute_starts(profile: ComputeProfile, gi: GpuInstance) -> list[int]:
    """The starts at which a compute instance of a profile may still be made."""
    taken: set[int] = set()
    for ci in gi.computes:
        taken.update(range(ci.start, ci.start + ci.slices))
    return [start for start in profile.starts if taken.isdisjoint(range(start, start + profile.slices))]


def remaining_compute(profile: ComputeProfile, gi: GpuInstance) -> int:
    """The number of further compute instances of a profile that fit into a GPU instance."""
    return fitting(free_compute_starts(profile, gi), profile.slices)


def _choose_compute_start(gi: GpuInstance, profile: ComputeProfile, whole: int) -> int:
    """The start that leaves most room for other compute instances, then the lowest slice."""

    def room_left(start: int) -> tuple[int, int]:
        trial = ComputeInstance(id=-1, profile=profile.enum, slices=profile.slices, start=start, serial=0)
        after = replace(gi, computes=(*gi.computes, trial))
        return sum(remaining_compute(other, after) * other.slices for other in compute_profiles(whole)), -start

    return max(free_compute_starts(profile, gi), key=room_left)


def create_compute_instance(
    mig: MigState, gi: GpuInstance, profile: ComputeProfile, start: int | None = None, *, whole: int
) -> MigState:
    """The state with one more compute instance in a GPU instance of ``whole`` slices, last in its tuple. Raises
    MigError.
    """
    free = free_compute_starts(profile, gi)
    if start is not None and start not in profile.starts:
        raise MigError(f"a compute instance of {profile.slices} slices cannot start at {start}")
    if not free or (start is not None and start not in free):
        raise NoRoomError(f"no room for {profile.slices} compute slices in GPU instance {gi.id}")
    used = {ci.id for ci in gi.computes}
    ci = ComputeInstance(
        id=min(set(range(len(used) + 1)) - used),
        profile=profile.enum,
        slices=profile.slices,
        start=_choose_compute_start(gi, profile, whole) if start is None else start,
        serial=mig.serial + 1,
    )
    return _with(replace(mig, serial=mig.serial + 1), replace(gi, computes=(*gi.computes, ci)))


def destroy_compute_instance(mig: MigState, gi: GpuInstance, ci: ComputeInstance) -> MigState:
    """The state without that compute instance."""
    return _with(mig, replace(gi, computes=tuple(other for other in gi.computes if other.serial != ci.serial)))


def _with(mig: MigState, changed: GpuInstance) -> MigState:
    instances = tuple(changed if gi.serial == changed.serial else gi for gi in mig.instances)
    return replace(mig, instances=instances)


def lay_out(product: Product, names: tuple[str, ...]) -> MigState:
    """The state of a GPU cut into the named profiles, each GPU instance filled by one compute instance.

    A name with a compute part (``1c.3g.20gb``) takes that many slices of the last GPU instance of its profile, or of a
    new one. Where no order of creation fits all, every placement is tried. Raises MigError.
    """
    wanted: list[tuple[MigProfile, list[int]]] = []
    for name in names:
        profile, slices = _parse(product, name)
        last = next((entry for entry in reversed(wanted) if entry[0] is profile), None)
        if slices != profile.slices and last is not None and sum(last[1]) + slices <= profile.slices:
            last[1].append(slices)
        else:
            wanted.append((profile, [slices]))
    starts = _search(product, [profile for profile, _ in wanted], ())
    if starts is None:
        raise MigError(f"profiles that fit together on {product.name}")
    mig = MigState(enabled=True, pending=True)
    for (profile, parts), start in zip(wanted, starts, strict=True):
        mig = create_gpu_instance(mig, product, profile, start)
        serial = mig.serial
        for slices in parts:
            compute = next(p for p in compute_profiles(profile.slices) if p.slices == slices)
            gi = next(gi for gi in mig.instances if gi.serial == serial)
            mig = create_compute_instance(mig, gi, compute, whole=profile.slices)
    return mig


def _parse(product: Product, name: str) -> tuple[MigProfile, int]:
    match = re.fullmatch(r"(?:(\d)c\.)?(.+)", name)
    profile = product.mig_profile(match[2]) if match else None
    if match is None or profile is None:
        known = ", ".join(p.name for p in product.mig) or "none: it has no MIG"
        raise MigError(f"profiles of {product.name}: {known}")
    slices = int(match[1]) if match[1] else profile.slices
    if slices not in [p.slices for p in compute_profiles(profile.slices)]:
        raise MigError(f"a compute part that {profile.name} offers")
    return profile, slices


def _search(product: Product, profiles: list[MigProfile], placed: tuple[GpuInstance, ...]) -> list[int] | None:
    """The starts for profiles in order, or None; at most 7 instances, so trying all is quick."""
    if not profiles:
        return []
    profile, rest = profiles[0], profiles[1:]
    if not remaining(product, profile, placed):
        return None
    first = choose_start(product, profile, placed)
    others = [start for start in _free_starts(product, profile, placed) if start != first]
    for start in [first, *others]:
        trial = (*placed, GpuInstance(id=-1, profile=profile.id, start=start, serial=0))
        found = _search(product, rest, trial)
        if found is not None:
            return [start, *found]
    return None


def validate(mig: MigState, product: Product) -> None:
    """Recompute the invariants; AssertionError tells which broke."""
    assert mig.enabled or not mig.instances, "instances without MIG mode"
    slices: set[int] = set()
    for gi in mig.instances:
        profile = profile_of(product, gi)
        span = set(range(gi.start, gi.start + profile.size))
        assert gi.start in profile.starts, f"{profile.name} at {gi.start}"
        assert span.isdisjoint(slices), f"GPU instance {gi.id} overlaps another"
        assert max(span) < product.memory_slices, f"GPU instance {gi.id} is out of the board"
        slices |= span
        _validate_computes(gi, profile)
    for profile in product.mig:
        assert sum(gi.profile == profile.id for gi in mig.instances) <= profile.count, f"too many {profile.name}"
    ids = [gi.id for gi in mig.instances]
    assert len(set(ids)) == len(ids), "two GPU instances with one id"
    serials = [gi.serial for gi in mig.instances] + [ci.serial for gi in mig.instances for ci in gi.computes]
    assert len(set(serials)) == len(serials), "two instances with one serial"
    assert all(0 < serial <= mig.serial for serial in serials), "a serial that was never given"


def _validate_computes(gi: GpuInstance, profile: MigProfile) -> None:
    taken: set[int] = set()
    for ci in gi.computes:
        span = set(range(ci.start, ci.start + ci.slices))
        assert span.isdisjoint(taken), f"compute instance {ci.id} overlaps another"
        assert max(span) < profile.slices, f"compute instance {ci.id} is out of its GPU instance"
        taken |= span
    ids = [ci.id for ci in gi.computes]
    assert len(set(ids)) == len(ids), "two compute instances with one id"
