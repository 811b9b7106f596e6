"""The simulator's validators see hardware that cannot be."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from simulator.boards import migstate
from simulator.boards.migstate import GpuInstance, MigState
from simulator.boards.products import PRODUCTS
from simulator.boards.telemetry import Meter
from simulator.hardware import hardware as hw
from simulator.hardware.hardware import EccCounts, GpuState, Hardware, LoggedXid

A100 = PRODUCTS["NVIDIA A100-SXM4-40GB"]
PROFILES = {one.name: one for one in A100.mig}


def cut() -> MigState:
    """Two instances; the first with two compute instances."""
    mig = MigState(enabled=True)
    for name in ("3g.20gb", "1g.5gb"):
        mig = migstate.create_gpu_instance(mig, A100, PROFILES[name])
    first = mig.instances[0]
    computes = tuple(migstate.ComputeInstance(id=n, profile=0, slices=1, start=n, serial=10 + n) for n in range(2))
    return replace(mig, instances=(replace(first, computes=computes), mig.instances[1]), serial=20)


def first(mig: MigState, **changes: object) -> MigState:
    return replace(mig, instances=(replace(mig.instances[0], **changes), *mig.instances[1:]))


def compute(mig: MigState, **changes: object) -> MigState:
    """With its second compute instance changed."""
    one, two = mig.instances[0].computes
    return first(mig, computes=(one, replace(two, **changes)))


def more(mig: MigState, profile: str, start: int) -> MigState:
    added = GpuInstance(id=77, profile=PROFILES[profile].id, start=start, serial=19)
    return replace(mig, instances=(*mig.instances, added))


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lambda mig: replace(mig, enabled=False), "without MIG mode"),
        (lambda mig: first(mig, start=1), "3g.20gb at 1"),
        (lambda mig: more(mig, "1g.5gb", mig.instances[1].start), "overlaps another"),
        (lambda mig: first(mig, id=mig.instances[1].id), "two GPU instances with one id"),
        (lambda mig: first(mig, serial=mig.instances[1].serial), "one serial"),
        (lambda mig: first(mig, serial=21), "a serial that was never given"),
        (lambda mig: compute(mig, start=0), "compute instance 1 overlaps another"),
        (lambda mig: compute(mig, start=3), "compute instance 1 is out of its GPU instance"),
        (lambda mig: compute(mig, id=0), "two compute instances with one id"),
    ],
)
def test_instances_that_cannot_be_are_seen(plant: Callable[[MigState], MigState], said: str) -> None:
    sound = cut()
    migstate.validate(sound, A100)
    with pytest.raises(AssertionError, match=said):
        migstate.validate(plant(sound), A100)


def test_more_of_a_profile_than_there_may_be_are_seen() -> None:
    media = next(one for one in A100.mig if one.count == 1 and one.size == 1)
    made = tuple(GpuInstance(id=n, profile=media.id, start=n, serial=n + 1) for n in range(2))
    with pytest.raises(AssertionError, match="too many"):
        migstate.validate(MigState(enabled=True, instances=made, serial=2), A100)


def test_an_instance_that_the_board_has_no_room_for_is_seen() -> None:
    with pytest.raises(AssertionError, match="out of the board"):
        migstate.validate(cut(), replace(A100, memory_slices=1))


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        ({"epoch": 0}, "an epoch before the first"),
        ({"ecc": EccCounts(volatile_uncorrected=1)}, "volatile over aggregate"),
        ({"ecc": EccCounts(volatile_corrected=1)}, "volatile over aggregate"),
        ({"links_down": (12,)}, "does not exist"),
        ({"meter": Meter(at=2.0, read_at=1.0)}, "before it started"),
        ({"xids": (LoggedXid(0.0, 13),) * (hw.HISTORY + 1)}, "too long a history"),
        ({"mig": MigState(instances=(GpuInstance(1, 19, 0, 1),), serial=1)}, "without MIG mode"),
    ],
)
def test_a_gpu_that_cannot_be_is_seen(plant: dict[str, object], said: str) -> None:
    sound = GpuState(uuid="GPU-0", product=A100.name, links=12)
    empty = Hardware(node="n", identity="", load_identity="", boot_id="b", created=0.0)
    hw.validate(replace(empty, gpus=(sound,)))
    with pytest.raises(AssertionError, match=said):
        hw.validate(replace(empty, gpus=(replace(sound, **plant),)))
