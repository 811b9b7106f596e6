"""What a ``libnvidia-ml`` says of its GPUs, asked through its C functions alone: what ``hack.foreignnvml`` goes by.

    python -m hack.nvmlreading PATH      prints a Reading as JSON

A process of its own, since a library that crashes takes the process along that loaded it.
"""

import ctypes
import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec

SUCCESS: Final = 0
_TEXT: Final = 96
_TEMPERATURE_GPU: Final = 0

REQUIRED: Final = (
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMemoryInfo",
)
"""Without these a GPU is not advertised."""

USEFUL: Final = {
    "XIDs": (
        "nvmlDeviceGetSupportedEventTypes",
        "nvmlEventSetCreate",
        "nvmlDeviceRegisterEvents",
        "nvmlEventSetWait_v2",
        "nvmlEventSetFree",
    ),
    "NVLinks": (
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        "nvmlDeviceGetNvLinkRemoteDeviceType",
    ),
    "PCIe distance": ("nvmlDeviceGetTopologyCommonAncestor",),
    "counts of memory errors": ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows"),
    "signs of a reset, beside dead handles": (
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetTotalEnergyConsumption",
    ),
    "MIG instances": ("nvmlDeviceGetMigMode", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetAttributes_v2"),
}
"""What less is known of where one of these is missing."""


class _Pci(ctypes.Structure):
    _fields_ = (
        ("legacy", ctypes.c_char * 16),
        ("numbers", ctypes.c_uint * 5),
        ("bus_id", ctypes.c_char * 32),
    )


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU; None for what the library does not give. ``mig``: whether the mode is on."""

    uuid: str | None = None
    name: str | None = None
    minor: int | None = None
    memory_mib: int | None = None
    bus_id: str | None = None
    mig: bool | None = None
    instances: tuple[str, ...] = ()
    event_types: int | None = None
    celsius: int | None = None
    milliwatts: int | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """``problem`` is why nothing could be read. ``missing``: of the functions above those that are not there."""

    problem: str = ""
    driver: str | None = None
    missing: tuple[str, ...] = ()
    gpus: tuple[GpuFacts, ...] = ()


class _Library:
    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def has(self, name: str) -> bool:
        return hasattr(self._library, name)

    def ok(self, name: str, *args: Any) -> bool:
        return self.has(name) and getattr(self._library, name)(*args) == SUCCESS

    def number(self, name: str, *args: Any, kind: Any = ctypes.c_uint) -> int | None:
        value = kind()
        return int(value.value) if self.ok(name, *args, ctypes.byref(value)) else None

    def text(self, name: str, *args: Any) -> str | None:
        buffer = ctypes.create_string_buffer(_TEXT)
        return buffer.value.decode(errors="replace") if self.ok(name, *args, buffer, ctypes.c_uint(_TEXT)) else None

    def handle(self, name: str, *args: Any) -> ctypes.c_void_p | None:
        found = ctypes.c_void_p()
        return found if self.ok(name, *args, ctypes.byref(found)) else None


def read(path: str) -> Reading:
    """Everything, in one session of the library's."""
    try:
        library = _Library(path)
    except OSError as error:
        return Reading(problem=str(error))
    named = (*REQUIRED, *(name for names in USEFUL.values() for name in names))
    missing = tuple(name for name in named if not library.has(name))
    if any(name in missing for name in REQUIRED):
        return Reading(problem=f"functions are missing: {', '.join(set(missing) & set(REQUIRED))}", missing=missing)
    if not library.ok("nvmlInitWithFlags", ctypes.c_uint(0)):
        return Reading(problem="nvmlInitWithFlags fails", missing=missing)
    try:
        count = library.number("nvmlDeviceGetCount_v2") or 0
        handles = (library.handle("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index)) for index in range(count))
        gpus = tuple(GpuFacts() if handle is None else _gpu(library, handle) for handle in handles)
        return Reading(driver=library.text("nvmlSystemGetDriverVersion"), missing=missing, gpus=gpus)
    finally:
        library.ok("nvmlShutdown")


def _gpu(library: _Library, handle: ctypes.c_void_p) -> GpuFacts:
    memory, pci = _Memory(), _Pci()
    has_memory = library.ok("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    has_pci = library.ok("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    has_mode = library.ok("nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending))
    return GpuFacts(
        uuid=library.text("nvmlDeviceGetUUID", handle),
        name=library.text("nvmlDeviceGetName", handle),
        minor=library.number("nvmlDeviceGetMinorNumber", handle),
        memory_mib=memory.total >> 20 if has_memory else None,
        bus_id=pci.bus_id.decode(errors="replace") if has_pci else None,
        mig=bool(current.value) if has_mode else None,
        instances=_instances(library, handle) if has_mode and current.value else (),
        event_types=library.number("nvmlDeviceGetSupportedEventTypes", handle, kind=ctypes.c_ulonglong),
        celsius=library.number("nvmlDeviceGetTemperature", handle, ctypes.c_uint(_TEMPERATURE_GPU)),
        milliwatts=library.number("nvmlDeviceGetPowerUsage", handle),
    )


def _instances(library: _Library, handle: ctypes.c_void_p) -> tuple[str, ...]:
    most = library.number("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    name = "nvmlDeviceGetMigDeviceHandleByIndex"
    found = (library.handle(name, handle, ctypes.c_uint(index)) for index in range(most))
    return tuple(library.text("nvmlDeviceGetUUID", device) or "" for device in found if device is not None)


def main(words: Sequence[str]) -> int:
    sys.stdout.write(msgspec.json.encode(read(words[0])).decode() + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
