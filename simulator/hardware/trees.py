"""The parts of /sys and /proc that an agent reads about GPUs, written below roots of the simulation's own."""

import shutil
from pathlib import Path

from simulator.boards.boards import NVIDIA_VENDOR
from simulator.boards.migstate import MigState
from simulator.fleet.fleet import GpuSpec

BOOT_ID = Path("sys/kernel/random/boot_id")
CAPABILITIES = Path("driver/nvidia/capabilities")

FIRST_MINOR = 3
MINORS_OF_GPU = 135
MINORS_OF_INSTANCE = 9
"""The minors of ``nvidia-cap`` devices for each GPU instance: the driver numbers 15 GPU instances a GPU, each with
itself and 8 compute instances.
"""


def write_sys(root: Path, gpus: tuple[GpuSpec, ...]) -> None:
    """Write ``bus/pci/devices/<address>/{numa_node,class,device,vendor}`` of each GPU, below a stand-in for /sys."""
    for gpu in gpus:
        folder = root / "bus/pci/devices" / gpu.pci.sysfs
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (
            ("numa_node", str(gpu.numa_node)),
            ("class", f"0x{gpu.product.pci_class:06x}"),
            ("device", f"0x{gpu.product.device_id:04x}"),
            ("vendor", f"0x{NVIDIA_VENDOR:04x}"),
        ):
            (folder / name).write_text(text + "\n")


def write_boot_id(root: Path, boot_id: str) -> None:
    """Write ``sys/kernel/random/boot_id`` below ``root`` (a stand-in for /proc), replaced whole."""
    path = root / BOOT_ID
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name("boot_id.new")
    new.write_text(boot_id + "\n")
    new.replace(path)


def write_capabilities(root: Path, gpu: GpuSpec, mig: MigState) -> None:
    """Write ``driver/nvidia/capabilities/gpu<minor>/mig/gi<i>[/ci<j>]/access`` of a GPU, below a stand-in for /proc.

    The files of new instances exist when this returns, and those of removed instances do not.
    """
    base = root / CAPABILITIES / f"gpu{gpu.minor}" / "mig"
    wanted: dict[Path, int] = {}
    for gi in mig.instances:
        minor = FIRST_MINOR + gpu.minor * MINORS_OF_GPU + gi.id * MINORS_OF_INSTANCE
        wanted[base / f"gi{gi.id}"] = minor
        wanted.update({base / f"gi{gi.id}" / f"ci{ci.id}": minor + 1 + ci.id for ci in gi.computes})
    for folder, minor in wanted.items():
        folder.mkdir(parents=True, exist_ok=True)
        text = f"DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1\n"
        (folder / "access").write_text(text)
    for folder in [*base.glob("gi*/ci*"), *base.glob("gi*")]:
        if folder not in wanted:
            shutil.rmtree(folder)
