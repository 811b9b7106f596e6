"""GPUs, their MIG instances and the node that holds them, as NVML describes them; and the types of their names."""

from enum import StrEnum
from typing import NewType

from msgspec import Struct

from inventory.links import UNKNOWN_LINK, LinkMatrix

GpuUuid = NewType("GpuUuid", str)
"""NVML's UUID of a physical GPU: ``GPU-`` and a UUID."""

MigUuid = NewType("MigUuid", str)
"""NVML's UUID of a MIG compute instance: ``MIG-`` and a UUID."""

DeviceId = NewType("DeviceId", str)
"""A device's id as the kubelet knows it: a GPU's or MIG instance's UUID, or a replica of one, ``<uuid>::<n>`` with n
from 0.
"""

ResourceName = NewType("ResourceName", str)
"""A Kubernetes extended resource: ``nvidia.com/gpu``, ``nvidia.com/mig-1g.10gb`` ..."""

NodeName = NewType("NodeName", str)
"""The metadata.name of a Kubernetes Node."""


class RemoteType(StrEnum):
    """The kind of an NVLink's remote end (nvmlIntNvLinkDeviceType_t)."""

    GPU = "gpu"
    NPU = "npu"
    SWITCH = "switch"
    UNKNOWN = "unknown"


class NvLink(Struct, frozen=True):
    """One NVLink port of a GPU. ``remote_pci_bus_id`` is None where NVML hides the remote end.

    A link that was up before keeps its remote end while it is down.
    """

    link: int
    active: bool
    remote_type: RemoteType = RemoteType.UNKNOWN
    remote_pci_bus_id: str | None = None

    @property
    def known(self) -> bool:
        """Whether the link was ever up, so that it should be up now."""
        return self.active or self.remote_type is not RemoteType.UNKNOWN or self.remote_pci_bus_id is not None


class Clique(Struct, frozen=True):
    """NVLink fabric membership of a multi-node machine (nvmlGpuFabricInfo_t): UUID of the cluster, id of the clique."""

    cluster_uuid: str
    clique_id: int

    @property
    def label(self) -> str:
        """The value of the ``nvidia.com/gpu.clique`` label."""
        return f"{self.cluster_uuid}.{self.clique_id}"


class Engines(Struct, frozen=True):
    """Engine counts of a GPU instance (nvmlGpuInstanceProfileInfo_t)."""

    copy: int = 0
    decoder: int = 0
    encoder: int = 0
    jpeg: int = 0
    ofa: int = 0


class MigProfile(Struct, frozen=True):
    """A GPU instance profile that this GPU offers, with every place it may start.

    ``profile_id`` is NVML's id (what ``nvidia-smi mig -lgip`` shows), ``slices`` compute slices, ``size`` and
    ``starts`` memory slices, ``max_count`` is the number that fits on an empty GPU.
    """

    name: str
    profile_id: int
    slices: int
    size: int
    starts: tuple[int, ...]
    max_count: int
    memory_mib: int
    multiprocessors: int
    engines: Engines = Engines()


class MigInstance(Struct, frozen=True):
    """One MIG device: a compute instance inside a GPU instance.

    ``profile`` is the compute instance's text (``3g.40gb``, ``1c.3g.40gb``); ``start`` and ``size`` are the GPU
    instance's memory slices, None where NVML does not tell.
    """

    uuid: MigUuid
    index: int
    gi_id: int
    ci_id: int
    profile: str
    gi_slices: int
    ci_slices: int
    memory_mib: int
    multiprocessors: int
    engines: Engines = Engines()
    start: int | None = None
    size: int | None = None

    @property
    def fills_gpu_instance(self) -> bool:
        """Whether the compute instance is the whole GPU instance: only such instances become a resource."""
        return self.gi_slices == self.ci_slices


class Gpu(Struct, frozen=True):
    """One physical GPU. ``minor`` is the N of ``/dev/nvidiaN``; ``pci_bus_id`` is sysfs's (lower case, 4-digit domain).

    ``pci_device_id`` is ``0xDDDDVVVV`` (device, vendor), ``pci_subsystem_id`` the board maker's likewise, ``pci_class``
    e.g. ``0x0302``, ``numa_node`` None where sysfs says -1 or nothing, ``pcie_root`` the root bus of its branch of PCIe
    (``pci0000:17``), None where sysfs does not show it. ``readable`` is False for a GPU that could only be counted, not
    read (lost at discovery): it keeps its place so that it can be advertised as unhealthy.
    """

    uuid: GpuUuid
    index: int
    minor: int
    product: str
    pci_bus_id: str
    memory_mib: int
    brand: str = ""
    architecture: str = ""
    compute_capability: tuple[int, int] = (0, 0)
    multiprocessors: int | None = None
    pci_device_id: int = 0
    pci_subsystem_id: int = 0
    pci_class: int | None = None
    numa_node: int | None = None
    pcie_root: str | None = None
    serial: str | None = None
    clique: Clique | None = None
    nvlinks: tuple[NvLink, ...] = ()
    mig_capable: bool = False
    mig_enabled: bool = False
    mig_profiles: tuple[MigProfile, ...] = ()
    mig_instances: tuple[MigInstance, ...] = ()
    readable: bool = True


class NodeInventory(Struct, frozen=True):
    """Everything the agent found on one node, at one moment. ``links`` is in the order of ``gpus``.

    ``cuda_version`` is the newest CUDA the driver supports, as (major, minor).
    """

    name: NodeName
    driver_version: str = ""
    cuda_version: tuple[int, int] = (0, 0)
    gpus: tuple[Gpu, ...] = ()
    links: LinkMatrix = ()

    def gpu(self, uuid: GpuUuid) -> Gpu | None:
        """The GPU of that UUID, or None."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    def validate(self) -> None:
        """Check the invariants: unique ids, a square symmetric matrix, instances with distinct UUIDs."""
        uuids = [gpu.uuid for gpu in self.gpus]
        assert len(set(uuids)) == len(uuids), "two GPUs share a UUID"
        assert len(self.links) == len(self.gpus), "the link matrix has another size than the GPU list"
        for i, row in enumerate(self.links):
            assert len(row) == len(self.gpus), "the link matrix is not square"
            for j, link in enumerate(row):
                assert i == j or link == self.links[j][i], f"link {i}-{j} differs from {j}-{i}"
        instances = [mig.uuid for gpu in self.gpus for mig in gpu.mig_instances]
        assert len(set(instances)) == len(instances), "two MIG instances share a UUID"


def unknown_links(n: int) -> LinkMatrix:
    """An n x n matrix of unknown links."""
    return tuple((UNKNOWN_LINK,) * n for _ in range(n))
