"""An administrator's settings for what a node advertises: MIG strategy, resource names, and shared devices."""

from enum import StrEnum

from msgspec import Struct

from inventory.devices import ResourceName


class MigStrategy(StrEnum):
    """The rule by which MIG instances become resources (NVIDIA device plugin's ``migStrategy``)."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class SharingMode(StrEnum):
    """The way in which containers share a device, and the means that keep them apart: none (time-slicing), or the MPS
    daemon.
    """

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    FRACTIONAL = "fractional"

    @property
    def needs_mps(self) -> bool:
        """Whether the containers on such a device are clients of an MPS daemon."""
        return self in (SharingMode.MPS, SharingMode.FRACTIONAL)


class ReplicaPolicy(StrEnum):
    """The GPU to take the next replica from: the GPU with the fewest taken (distributed) or the most (packed)."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"


class ResourcePattern(Struct, frozen=True):
    """Product names (or MIG profiles) that match ``pattern`` (only ``*`` is special) are advertised as ``name``."""

    pattern: str
    name: ResourceName


class DeviceSelector(Struct, frozen=True):
    """The devices of a resource that an entry means: all, the first ``count``, or those named.

    ``refs`` are GPU indexes (``0``), MIG indexes (``0:1``), GPU or MIG UUIDs. At most one of ``count`` and ``refs`` is
    given; neither means all.
    """

    count: int | None = None
    refs: tuple[str, ...] = ()

    @property
    def is_all(self) -> bool:
        return self.count is None and not self.refs


class ReplicatedResource(Struct, frozen=True):
    """One entry of ``sharing.timeSlicing.resources``: devices of ``name`` are offered ``replicas`` times.

    ``rename``, where given, is the name they are offered under.
    """

    name: ResourceName
    replicas: int
    rename: ResourceName | None = None
    devices: DeviceSelector = DeviceSelector()


class Replication(Struct, frozen=True):
    """The ``sharing.timeSlicing`` or the ``sharing.mps`` section."""

    mode: SharingMode = SharingMode.TIME_SLICING
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False
    resources: tuple[ReplicatedResource, ...] = ()


class LayoutSpec(Struct, frozen=True):
    """Everything that decides which resources a node advertises, apart from its hardware."""

    mig_strategy: MigStrategy = MigStrategy.NONE
    gpu_patterns: tuple[ResourcePattern, ...] = (ResourcePattern("*", ResourceName("nvidia.com/gpu")),)
    mig_patterns: tuple[ResourcePattern, ...] = ()
    replication: Replication | None = None
