"""How a container is told which devices it got: the NVIDIA device plugin's choices, by their own names."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct


class DeviceListStrategy(StrEnum):
    """Through which channel the container runtime learns the devices."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"

    @property
    def is_cdi(self) -> bool:
        return self in {DeviceListStrategy.CDI_ANNOTATIONS, DeviceListStrategy.CDI_CRI}


class DeviceIdStrategy(StrEnum):
    """What names a device in the answer (never on kubelet's side): its UUID or its index."""

    UUID = "uuid"
    INDEX = "index"


class AllocationSpec(Struct, frozen=True):
    """Settings of every Allocate answer. ``dev_root`` is where the host keeps its device nodes."""

    strategies: tuple[DeviceListStrategy, ...] = (DeviceListStrategy.ENVVAR,)
    device_id: DeviceIdStrategy = DeviceIdStrategy.UUID
    pass_device_specs: bool = False
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    gdrcopy: bool = False
    gds: bool = False
    mofed: bool = False
    imex_channels: tuple[int, ...] = ()

    @property
    def uses_cdi(self) -> bool:
        return any(strategy.is_cdi for strategy in self.strategies)


class DeviceNode(Struct, frozen=True):
    """A device file: where the host has it, and where the container sees it."""

    host_path: str
    container_path: str


class DeviceAccess(Struct, frozen=True):
    """What a container needs to use one physical device (a GPU, or a MIG instance).

    ``index`` is ``0`` or ``0:1`` (GPU, MIG instance on it); ``nodes`` are the files of this device alone.
    """

    index: str
    nodes: tuple[DeviceNode, ...] = ()


class NodeAccess(Struct, frozen=True):
    """Access to all devices of the node: ``devices`` by physical id, and the files that every GPU container needs."""

    devices: Mapping[str, DeviceAccess] = {}
    shared_nodes: tuple[DeviceNode, ...] = ()
