"""The simulator's GPU products: the fields of a board, and those that its architecture decides."""

from enum import StrEnum

from msgspec import Struct, structs

from simulator.boards import migprofiles
from simulator.boards.migprofiles import MigProfile

NVIDIA_VENDOR = 0x10DE

CLASS_3D = 0x030200
CLASS_VGA = 0x030000


class Wiring(StrEnum):
    """The links of a product's GPUs when the fleet does not name them (the fleet's ``nvlink`` words)."""

    FULL = "full"
    NONE = "none"
    PAIRS = "pairs"
    DGX1 = "dgx1"


class Architecture(Struct, frozen=True):
    """The data that all products of one architecture share. ``number`` is NVML_DEVICE_ARCH_*."""

    number: int
    compute: tuple[int, int]
    cores_per_sm: int
    pcie_generation: int
    gpm: bool = False
    row_remapper: bool = False
    mig_mode_persists: bool = False


PASCAL = Architecture(4, (6, 0), 64, 3)
VOLTA = Architecture(5, (7, 0), 64, 3)
TURING = Architecture(6, (7, 5), 64, 3)
AMPERE = Architecture(7, (8, 0), 64, 4, row_remapper=True, mig_mode_persists=True)
AMPERE_GA102 = structs.replace(AMPERE, compute=(8, 6), cores_per_sm=128)
ADA = Architecture(8, (8, 9), 128, 4, row_remapper=True)
HOPPER = Architecture(9, (9, 0), 128, 5, gpm=True, row_remapper=True)
BLACKWELL = Architecture(10, (10, 0), 128, 5, gpm=True, row_remapper=True)

NVLINK_MBPS = {0: 0, 1: 19200, 2: 25781, 3: 25781, 4: 25000, 5: 14062, 6: 26562, 7: 53125}
"""The speed of one link in MB/s, by NVML_NVLINK_VERSION_*."""

BRAND_TESLA = 2
BRAND_GEFORCE = 5
BRAND_QUADRO_RTX = 12
BRAND_NVIDIA_RTX = 13
BRAND_NVIDIA = 14


class Product(Struct, frozen=True, kw_only=True):
    """One board. ``nvlink_version`` is NVML_NVLINK_VERSION_*."""

    name: str
    architecture: Architecture
    device_id: int
    memory_mib: int
    sms: int
    bus_width: int
    power_w: tuple[int, int, int]
    """The idle power, and the least and greatest limit; the greatest is also the default."""
    clocks_mhz: tuple[int, int]
    """The greatest SM and memory clock."""
    brand: int = BRAND_NVIDIA
    pci_class: int = CLASS_3D
    nvlinks: int = 0
    nvlink_version: int = 0
    wiring: Wiring = Wiring.NONE
    gpus_per_numa: int = 4
    grace: bool = False
    fans: int = 0
    encoders: int = 0
    mig: tuple[MigProfile, ...] = ()
    memory_slices: int = migprofiles.SLICES_8

    @property
    def pci_device_id(self) -> int:
        """NVML's pciDeviceId: 0xDDDDVVVV."""
        return self.device_id << 16 | NVIDIA_VENDOR

    @property
    def reserved_mib(self) -> int:
        """The memory in MiB that the driver keeps for itself (nvmlMemory_v2_t.reserved)."""
        return max(256, self.memory_mib // 128)

    def mig_profile(self, name: str) -> MigProfile | None:
        """The GPU instance profile of that name."""
        return next((p for p in self.mig if p.name == name), None)

    def mig_profile_by_id(self, profile_id: int) -> MigProfile | None:
        """The GPU instance profile of that id."""
        return next((p for p in self.mig if p.id == profile_id), None)
