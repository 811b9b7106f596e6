"""Reads and writes the ctypes arguments that pynvml passes.

``byref`` results hold their object in ``_obj``; buffers and arrays come unchanged; handles are opaque pointers whose
bits are ours: kind, GPU, epoch, serial. A missing output is NVML_ERROR_INVALID_ARGUMENT, as in the library.
"""

import ctypes
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, TypeVar

from msgspec import Struct

from simulator.nvml import codes
from simulator.nvml.codes import NvmlError

T = TypeVar("T")


class HandleKind(IntEnum):
    """The kind of a handle. 0 is no kind: a null pointer is never valid."""

    GPU = 1
    MIG_DEVICE = 2
    GPU_INSTANCE = 3
    COMPUTE_INSTANCE = 4
    EVENT_SET = 5
    GPM_SAMPLE = 6


class Handle(Struct, frozen=True):
    """An opaque handle, unpacked: 4 bits of kind, 8 of GPU, 20 of epoch, 32 of serial."""

    kind: int
    gpu: int = 0
    epoch: int = 0
    serial: int = 0

    @property
    def bits(self) -> int:
        """The pointer's value."""
        return self.kind << 60 | self.gpu << 52 | (self.epoch & 0xFFFFF) << 32 | self.serial


def unpack(argument: Any) -> Handle:
    """A handle argument (an opaque pointer of pynvml). Raises NvmlError for anything else."""
    try:
        bits = ctypes.c_void_p.from_buffer(argument).value or 0
    except TypeError:
        raise NvmlError(codes.INVALID_ARGUMENT) from None
    return Handle(bits >> 60, bits >> 52 & 0xFF, bits >> 32 & 0xFFFFF, bits & 0xFFFFFFFF)


def target(argument: Any) -> Any:
    """The object that an output argument stands for."""
    if argument is None:
        raise NvmlError(codes.INVALID_ARGUMENT)
    if isinstance(argument, ctypes._Pointer):  # noqa: SLF001 - ctypes has no public name for it
        if not argument:
            raise NvmlError(codes.INVALID_ARGUMENT)
        return argument.contents
    return getattr(argument, "_obj", argument)


def put(argument: Any, value: float) -> None:
    """Write a number through a pointer."""
    target(argument).value = value


def put_handle(argument: Any, handle: Handle) -> None:
    """Write a handle through a pointer to one."""
    ctypes.c_void_p.from_buffer(target(argument)).value = handle.bits


def as_pointer(kind: Any, handle: Handle) -> Any:
    """A handle as a pointer of pynvml's type, to be put into a struct or an array."""
    pointer = kind()
    ctypes.c_void_p.from_buffer(pointer).value = handle.bits
    return pointer


def put_text(buffer: Any, length: Any, text: str) -> None:
    """Write a text with its end mark into a buffer. Raises INSUFFICIENT_SIZE."""
    data = text.encode()
    if len(data) >= number(length):
        raise NvmlError(codes.INSUFFICIENT_SIZE)
    target(buffer).value = data


def put_fields(argument: Any, **fields: float | str | bytes) -> None:
    """Write fields of the struct behind a pointer."""
    struct = target(argument)
    for name, value in fields.items():
        setattr(struct, name, value.encode() if isinstance(value, str) else value)


def check_version(argument: Any, *versions: int) -> int:
    """The version that the caller put into a struct; raises ARGUMENT_VERSION_MISMATCH for another."""
    found = int(target(argument).version)
    if found not in versions:
        raise NvmlError(codes.ARGUMENT_VERSION_MISMATCH)
    return found


def number(argument: Any) -> int:
    """A number, passed bare or as a ctypes integer."""
    try:
        return int(getattr(argument, "value", argument))
    except (TypeError, ValueError):
        raise NvmlError(codes.INVALID_ARGUMENT) from None


def put_list(
    count: Any, array: Any, items: Sequence[T], write: Callable[[Any, int, T], None], *, ask: int = codes.SUCCESS
) -> None:
    """A list for a caller that passes its array's length in ``count``, or no array to ask for the length.

    Asking ends with ``ask`` (where there is anything to fetch), too short an array with INSUFFICIENT_SIZE; both
    leave the needed length in ``count``.
    """
    size = target(count)
    room = size.value
    size.value = len(items)
    if array is None:
        if items and ask:
            raise NvmlError(ask)
        return
    if room < len(items):
        raise NvmlError(codes.INSUFFICIENT_SIZE)
    array = array if isinstance(array, ctypes._Pointer) else target(array)  # noqa: SLF001 - as above
    for i, item in enumerate(items):
        write(array, i, item)


def write_handle(array: Any, i: int, handle: Handle) -> None:
    """A writer for ``put_list``: an array of handles."""
    array[i] = as_pointer(type(array)._type_, handle)
