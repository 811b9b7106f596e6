"""The simulator's GPU products: the fields of a board, and those that its architecture decides."""

from enum import StrEnum

from msgspec import Struct

from simulator.boards import migprofiles
from simulator.boards.migprofiles import MigProfile

NVIDIA_VENDOR = 0x10DE

CLASS_3D = 0x030200
CLASS_VGA = 0x030000


class Wiring(StrEnum):
    """How a product's GPUs are linked when the fleet does not say (the fleet's ``nvlink`` words)."""

    FULL = "full"
    NONE = "none"
    PAIRS = "pairs"
    DGX1 = "dgx1"


class Architecture(Struct, frozen=True):
    """What all products of one architecture share. ``number`` is NVML_DEVICE_ARCH_*."""

    number: int
    gpm: bool = False
    row_remapper: bool = False
    mig_mode_persists: bool = False
    recovery_action: bool = True


PASCAL = Architecture(4)
VOLTA = Architecture(5)
TURING = Architecture(6)
AMPERE = Architecture(7, row_remapper=True, mig_mode_persists=True)
ADA = Architecture(8, row_remapper=True)
HOPPER = Architecture(9, gpm=True, row_remapper=True)
BLACKWELL = Architecture(10, gpm=True, row_remapper=True)

BRAND_TESLA = 2
BRAND_GEFORCE = 5
BRAND_QUADRO_RTX = 12
BRAND_NVIDIA_RTX = 13
BRAND_NVIDIA = 14


class Product(Struct, frozen=True, kw_only=True):
    """One board. ``nvlink_version`` is NVML_NVLINK_VERSION_*, ``nvlink_mbps`` the speed of one link in MB/s."""

    name: str
    architecture: Architecture
    compute: tuple[int, int]
    device_id: int
    memory_mib: int
    sms: int
    bus_width: int
    power_w: tuple[int, int, int]
    """Idle, least and greatest limit; the greatest is also the default."""
    clocks_mhz: tuple[int, int]
    """Greatest SM and memory clock."""
    brand: int = BRAND_NVIDIA
    cores_per_sm: int = 64
    pci_class: int = CLASS_3D
    pcie_generation: int = 4
    nvlinks: int = 0
    nvlink_version: int = 0
    nvlink_mbps: int = 0
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
        """What the driver keeps for itself (nvmlMemory_v2_t.reserved)."""
        return max(256, self.memory_mib // 128)

    def mig_profile(self, name: str) -> MigProfile | None:
        """The GPU instance profile of that name."""
        return next((p for p in self.mig if p.name == name), None)

    def mig_profile_by_id(self, profile_id: int) -> MigProfile | None:
        """The GPU instance profile of that id."""
        return next((p for p in self.mig if p.id == profile_id), None)
