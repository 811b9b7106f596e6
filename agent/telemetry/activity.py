"""The idle time of each pod's device, by kind of idleness. Pure: the figures of each pass and its time go in.

active   the device did something since the last pass
warm     it holds memory and was active not long ago: a server between requests
held     it holds memory and has not done anything for long
empty    it holds no memory: the device was asked for, and nothing was started on it
"""

from collections.abc import Hashable
from enum import StrEnum
from typing import Generic, TypeVar

from msgspec import Struct

from agent.kubelet.containers import PodContainer

Device = TypeVar("Device", bound=Hashable)

WARM_S = 1800.0
"""The idle seconds after which a pod is no longer warm: a server without a request for half an hour."""
EMPTY_MIB = 1.0
DRIVER_MIB = 128.0
"""The memory in MiB below which a device without processes counts as empty: the driver itself shows some MiB as used,
on a MIG instance tens.
"""


class Use(StrEnum):
    """A pod's use of a device."""

    ACTIVE = "active"
    WARM = "warm"
    HELD = "held"
    EMPTY = "empty"


class Activity(Struct, frozen=True):
    """The use of one device by one pod, as of the last pass."""

    use: Use
    idle_s: float


class _Record(Struct):
    active_s: float
    """The time of the last activity; at first, when the pod was first seen on the device."""
    activity: Activity


class ActivityLog(Generic[Device]):
    """The activity of one node's pods on its devices. It holds one record for each pair that the last pass saw."""

    def __init__(self) -> None:
        self._records: dict[tuple[Device, PodContainer], _Record] = {}

    def observe(
        self,
        device: Device,
        pod: PodContainer,
        *,
        active: bool,
        memory_mib: float,
        now_s: float,
        occupied: bool = True,
    ) -> None:
        """Take in one pass over one pair. ``occupied``: a process is on the device."""
        record = self._records.get((device, pod))
        since_s = now_s if active or record is None else record.active_s
        idle_s = max(0.0, now_s - since_s)
        if active:
            use = Use.ACTIVE
        elif memory_mib < (EMPTY_MIB if occupied else DRIVER_MIB):
            use = Use.EMPTY
        else:
            use = Use.WARM if idle_s < WARM_S else Use.HELD
        self._records[device, pod] = _Record(since_s, Activity(use, idle_s))

    def keep(self, pairs: set[tuple[Device, PodContainer]]) -> None:
        """Drop the pairs that are not in ``pairs``."""
        for pair in self._records.keys() - pairs:
            del self._records[pair]

    def of(self, device: Device, pod: PodContainer) -> Activity | None:
        record = self._records.get((device, pod))
        return None if record is None else record.activity

    def __len__(self) -> int:
        return len(self._records)

    def validate(self) -> None:
        """Check that an active record has no idle time, and that held and warm differ by idle time alone."""
        for record in self._records.values():
            use, idle_s = record.activity.use, record.activity.idle_s
            assert idle_s >= 0, "idle since the future"
            assert use is not Use.ACTIVE or idle_s == 0, "active and idle"
            assert use is not Use.WARM or idle_s < WARM_S, "warm for too long"
            assert use is not Use.HELD or idle_s >= WARM_S, "held too early"
