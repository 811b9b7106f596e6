"""The parts of /sys and /proc that an agent reads about GPUs, written below roots of the simulation's own."""

from pathlib import Path

from simulator.boards import NVIDIA_VENDOR
from simulator.fleet import GpuSpec

BOOT_ID = Path("sys/kernel/random/boot_id")


def write_sys(root: Path, gpus: tuple[GpuSpec, ...]) -> None:
    """``bus/pci/devices/<address>/{numa_node,class,device,vendor}`` of each GPU, below a stand-in for /sys."""
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
    """``sys/kernel/random/boot_id`` below ``root`` (a stand-in for /proc), replaced whole."""
    path = root / BOOT_ID
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name("boot_id.new")
    new.write_text(boot_id + "\n")
    new.replace(path)
