"""The processes that have a GPU's device file open, by /proc: programs, and stewards that watch GPUs for a living."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

_COMM_BYTES: Final = 15
"""The kernel cuts a process's name off after so many bytes."""
NVIDIA_MAJOR: Final = 195
"""The character devices' major number of /dev/nvidiaN (Linux, admin-guide/devices.txt)."""


class Opener(Struct, frozen=True, order=True):
    """A process with the GPU open."""

    pid: int
    name: str

    def is_one_of(self, stewards: Iterable[str]) -> bool:
        """Whether it is one of these programs, which are ended by nobody here."""
        return self.name in {name.encode()[:_COMM_BYTES].decode(errors="ignore") for name in stewards}

    def __str__(self) -> str:
        return f"{self.name} ({self.pid})"


class Openers(Struct, frozen=True):
    """Everybody who has one of the GPUs open. ``blind``: processes were there that may not be looked at."""

    found: tuple[Opener, ...] = ()
    blind: bool = False


def openers(process_root: Path, minors: Iterable[int]) -> Openers:
    """The processes with ``/dev/nvidiaN`` of these minors open, by pid. A process that ends meanwhile has nothing
    open.
    """
    wanted = frozenset(minors)
    processes: list[Opener] = []
    blind = False
    for process in process_root.glob("[0-9]*"):
        try:
            descriptors = list((process / "fd").iterdir())
        except PermissionError:
            blind = True
            continue
        except OSError:
            continue
        if any(_is_of(descriptor, wanted) for descriptor in descriptors):
            processes.append(Opener(int(process.name), _name(process)))
    return Openers(tuple(sorted(processes)), blind)


def _is_of(descriptor: Path, minors: frozenset[int]) -> bool:
    """Whether the descriptor is a GPU's: by the device it leads to, since containers may have it under another path;
    by its text where it leads nowhere from here.
    """
    try:
        text = str(descriptor.readlink())
    except OSError:
        return False
    if text in {f"/dev/nvidia{minor}" for minor in minors}:
        return True
    if not text.startswith("/") or text.endswith((".so", ".log")):
        return False
    try:
        device = descriptor.stat().st_rdev
    except OSError:
        return False
    return os.major(device) == NVIDIA_MAJOR and os.minor(device) in minors


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "a process"
