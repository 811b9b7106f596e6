"""The GPU products that the simulator knows, by NVML's own name strings, as data.

A fleet names a product; everything that NVML would tell about such a board and that the fleet does not say comes
from here. Figures are those of public data sheets and of ``nvidia-smi`` outputs; clocks and idle power are typical.
"""

from enum import StrEnum

from msgspec import Struct

from simulator import migprofiles
from simulator.migprofiles import MigProfile

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


VOLTA = Architecture(5)
TURING = Architecture(6)
AMPERE = Architecture(7, row_remapper=True, mig_mode_persists=True)
ADA = Architecture(8, row_remapper=True)
HOPPER = Architecture(9, gpm=True, row_remapper=True)
BLACKWELL = Architecture(10, gpm=True, row_remapper=True)

BRAND_TESLA = 2
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


def _a100(name: str, device_id: int, memory_mib: int, mig: tuple[MigProfile, ...]) -> Product:
    return Product(
        name=name,
        architecture=AMPERE,
        compute=(8, 0),
        device_id=device_id,
        memory_mib=memory_mib,
        sms=108,
        bus_width=5120,
        power_w=(55, 100, 400),
        clocks_mhz=(1410, 1593),
        nvlinks=12,
        nvlink_version=4,
        nvlink_mbps=25000,
        wiring=Wiring.FULL,
        mig=mig,
    )


def _hopper(name: str, device_id: int, memory_mib: int, mig: tuple[MigProfile, ...]) -> Product:
    return Product(
        name=name,
        architecture=HOPPER,
        compute=(9, 0),
        device_id=device_id,
        memory_mib=memory_mib,
        sms=132,
        cores_per_sm=128,
        bus_width=5120,
        power_w=(75, 200, 700),
        clocks_mhz=(1980, 2619),
        pcie_generation=5,
        nvlinks=18,
        nvlink_version=6,
        nvlink_mbps=26562,
        wiring=Wiring.FULL,
        mig=mig,
    )


def _blackwell(name: str, device_id: int, memory_mib: int, mig: tuple[MigProfile, ...], *, grace: bool) -> Product:
    return Product(
        name=name,
        architecture=BLACKWELL,
        compute=(10, 0),
        device_id=device_id,
        memory_mib=memory_mib,
        sms=148,
        cores_per_sm=128,
        bus_width=8192,
        power_w=(140, 200, 1200 if grace else 1000),
        clocks_mhz=(1965, 3996),
        pcie_generation=5,
        nvlinks=18,
        nvlink_version=7,
        nvlink_mbps=53125,
        wiring=Wiring.FULL,
        gpus_per_numa=2 if grace else 4,
        grace=grace,
        mig=mig,
    )


def _v100(name: str, device_id: int, memory_mib: int, limit_w: int, wiring: Wiring) -> Product:
    return Product(
        name=name,
        architecture=VOLTA,
        compute=(7, 0),
        device_id=device_id,
        memory_mib=memory_mib,
        sms=80,
        bus_width=4096,
        power_w=(40, 100, limit_w),
        clocks_mhz=(1597, 958) if wiring is Wiring.FULL else (1530, 877),
        brand=BRAND_TESLA,
        pcie_generation=3,
        nvlinks=6,
        nvlink_version=2,
        nvlink_mbps=25781,
        wiring=wiring,
        gpus_per_numa=8 if wiring is Wiring.FULL else 4,
        encoders=1,
    )


_ALL = (
    _a100("NVIDIA A100-SXM4-40GB", 0x20B0, 40960, migprofiles.A100_40),
    _a100("NVIDIA A100-SXM4-80GB", 0x20B2, 81920, migprofiles.A100_80),
    Product(
        name="NVIDIA A100 80GB PCIe",
        architecture=AMPERE,
        compute=(8, 0),
        device_id=0x20B5,
        memory_mib=81920,
        sms=108,
        bus_width=5120,
        power_w=(45, 150, 300),
        clocks_mhz=(1410, 1512),
        nvlinks=12,
        nvlink_version=4,
        nvlink_mbps=25000,
        mig=migprofiles.A100_80,
    ),
    Product(
        name="NVIDIA A30",
        architecture=AMPERE,
        compute=(8, 0),
        device_id=0x20B7,
        memory_mib=24576,
        sms=56,
        bus_width=3072,
        power_w=(28, 100, 165),
        clocks_mhz=(1440, 1215),
        nvlinks=4,
        nvlink_version=4,
        nvlink_mbps=25000,
        mig=migprofiles.A30,
        memory_slices=migprofiles.SLICES_4,
    ),
    Product(
        name="NVIDIA RTX A6000",
        architecture=AMPERE,
        compute=(8, 6),
        device_id=0x2230,
        memory_mib=49140,
        sms=84,
        cores_per_sm=128,
        bus_width=384,
        power_w=(22, 100, 300),
        clocks_mhz=(2100, 8001),
        brand=BRAND_NVIDIA_RTX,
        pci_class=CLASS_VGA,
        nvlinks=4,
        nvlink_version=5,
        nvlink_mbps=14062,
        wiring=Wiring.PAIRS,
        fans=1,
        encoders=1,
    ),
    _hopper("NVIDIA H100 80GB HBM3", 0x2330, 81559, migprofiles.H100_80),
    _hopper("NVIDIA H200", 0x2335, 143771, migprofiles.H200),
    Product(
        name="NVIDIA H100 PCIe",
        architecture=HOPPER,
        compute=(9, 0),
        device_id=0x2331,
        memory_mib=81559,
        sms=114,
        cores_per_sm=128,
        bus_width=5120,
        power_w=(48, 200, 350),
        clocks_mhz=(1755, 1593),
        pcie_generation=5,
        nvlinks=12,
        nvlink_version=6,
        nvlink_mbps=26562,
        mig=migprofiles.H100_80_PCIE,
    ),
    Product(
        name="NVIDIA H100 NVL",
        architecture=HOPPER,
        compute=(9, 0),
        device_id=0x2321,
        memory_mib=95830,
        sms=132,
        cores_per_sm=128,
        bus_width=6016,
        power_w=(60, 200, 400),
        clocks_mhz=(1785, 2619),
        pcie_generation=5,
        nvlinks=12,
        nvlink_version=6,
        nvlink_mbps=26562,
        wiring=Wiring.PAIRS,
        mig=migprofiles.H100_94,
    ),
    _blackwell("NVIDIA B200", 0x2901, 183359, migprofiles.B200, grace=False),
    _blackwell("NVIDIA GB200", 0x2941, 189471, migprofiles.GB200, grace=True),
    Product(
        name="NVIDIA L40S",
        architecture=ADA,
        compute=(8, 9),
        device_id=0x26B9,
        memory_mib=46068,
        sms=142,
        cores_per_sm=128,
        bus_width=384,
        power_w=(33, 100, 350),
        clocks_mhz=(2520, 9001),
        encoders=3,
    ),
    Product(
        name="NVIDIA L4",
        architecture=ADA,
        compute=(8, 9),
        device_id=0x27B8,
        memory_mib=23034,
        sms=58,
        cores_per_sm=128,
        bus_width=192,
        power_w=(16, 40, 72),
        clocks_mhz=(2040, 6251),
        encoders=2,
    ),
    Product(
        name="Tesla T4",
        architecture=TURING,
        compute=(7, 5),
        device_id=0x1EB8,
        memory_mib=15360,
        sms=40,
        bus_width=256,
        power_w=(10, 60, 70),
        clocks_mhz=(1590, 5001),
        brand=BRAND_TESLA,
        pcie_generation=3,
        encoders=1,
    ),
    _v100("Tesla V100-SXM2-16GB", 0x1DB1, 16384, 300, Wiring.DGX1),
    _v100("Tesla V100-SXM3-32GB", 0x1DB8, 32768, 350, Wiring.FULL),
)

PRODUCTS: dict[str, Product] = {product.name: product for product in _ALL}
"""Every known product by NVML's name."""
