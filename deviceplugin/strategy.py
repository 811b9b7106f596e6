"""The ways to tell a container which devices it got: the NVIDIA device plugin's choices, by their own names."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct


class DeviceListStrategy(StrEnum):
    """The channel through which the container runtime learns the devices."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"

    @property
    def is_cdi(self) -> bool:
        return self in {DeviceListStrategy.CDI_ANNOTATIONS, DeviceListStrategy.CDI_CRI}


class DeviceIdStrategy(StrEnum):
    """The name of a device in the answer (never on the kubelet's side): its UUID or its index."""

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

    @property
    def gives_nodes(self) -> bool:
        """Whether answers, or the specs that they name, hold device files."""
        return self.uses_cdi or self.pass_device_specs

    @property
    def extras(self) -> tuple[str, ...]:
        """The CDI classes beside gpu and imex-channel that containers are to get."""
        wanted = (("gdrcopy", self.gdrcopy), ("gds", self.gds), ("mofed", self.mofed))
        return tuple(name for name, chosen in wanted if chosen)


class DeviceNode(Struct, frozen=True):
    """A device file: its path on the host, and its path in the container."""

    host_path: str
    container_path: str


class Symlink(Struct, frozen=True):
    """A symbolic link in a container: at ``path``, to ``target`` as it is written in the link."""

    path: str
    target: str


class DeviceAccess(Struct, frozen=True):
    """The files that a container needs to use one physical device (a GPU, or a MIG instance).

    ``index`` is ``0`` or ``0:1`` (GPU, MIG instance on it); ``nodes`` are the files of this device alone.
    ``display_nodes`` are a whole GPU's files below ``/dev/dri`` and ``display_links`` their names by PCI bus id: CDI
    injects them, DeviceSpecs never do, as with NVIDIA's plugin. ``lacking`` says, in one line, which needed files are
    missing; empty where none is.
    """

    index: str
    nodes: tuple[DeviceNode, ...] = ()
    display_nodes: tuple[DeviceNode, ...] = ()
    display_links: tuple[Symlink, ...] = ()
    lacking: str = ""


IMEX_CLASS = "imex-channel"


def imex_channel_path(channel: int) -> str:
    """The device file of an IMEX channel."""
    return f"/dev/nvidia-caps-imex-channels/channel{channel}"


class NodeAccess(Struct, frozen=True):
    """Access to all devices of the node: ``devices`` by physical id, and the files that every GPU container needs.

    ``extras`` are the files this host has of the CDI classes beside gpu: imex-channel, gdrcopy, gds and mofed.
    ``driver_version`` is NVML's, empty where it is not known.
    """

    devices: Mapping[str, DeviceAccess] = {}
    shared_nodes: tuple[DeviceNode, ...] = ()
    extras: Mapping[str, tuple[DeviceNode, ...]] = {}
    driver_version: str = ""

    def channels(self, spec: AllocationSpec) -> dict[int, DeviceNode]:
        """The IMEX channels that containers are to get and that exist."""
        found = {node.container_path: node for node in self.extras.get(IMEX_CLASS, ())}
        paths = {channel: imex_channel_path(channel) for channel in spec.imex_channels}
        return {channel: found[path] for channel, path in paths.items() if path in found}
