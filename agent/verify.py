"""``python -m agent.verify``: whether a GPU's memory and copies do well, by the driver's own library alone.

    libcuda.so.1 -> a context -> most of the free memory, pattern by pattern: set, copied on the device, read back
    random bytes -> to the device, across it, and back -> the same bytes

It is meant for ``remediation.verify.command``: the first GPU that CUDA_VISIBLE_DEVICES leaves is looked at, in some
seconds, without a CUDA toolkit. Exit codes: 0 all is well, 1 the GPU is not, 2 it could not be looked at. What was
measured is printed, and the last line says how it ended.
"""

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Final

LIBRARY: Final = "libcuda.so.1"
LIBRARY_VARIABLE: Final = "TESSERA_LIBCUDA"
"""The agent's word for where the driver's library is, where it is not on the loader's path."""
CHUNK_BYTES: Final = 256 << 20
WINDOW_BYTES: Final = 4 << 20
"""The part of each chunk that is compared on the host, another one for each pattern; the device reads all of it."""
COPY_BYTES: Final = 16 << 20
PATTERNS: Final = (0x00000000, 0xFFFFFFFF, 0x55555555, 0xAAAAAAAA)
LEAST_TESTED: Final = 0.5
"""The least part of the memory that was to be tested that must be there: an allocator may refuse the last of it."""
OUT_OF_MEMORY: Final = 2
WELL, BAD, NOT_TESTED = 0, 1, 2


class BadError(Exception):
    """The GPU did something wrong; one line says what."""


class NotTestedError(Exception):
    """The GPU could not be looked at; one line says why."""


class Cuda:
    """The calls of the driver API (cuda.h) that are used here. ``library`` is libcuda, or what behaves like it."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, name: str, *args: Any) -> None:
        """Raises BadError where the call fails."""
        if code := self.code(name, *args):
            raise BadError(f"{name}: CUDA error {code}{self._named(code)}")

    def code(self, name: str, *args: Any) -> int:
        return int(getattr(self._library, name)(*args))

    def _named(self, code: int) -> str:
        text = c_char_p()
        if self.code("cuGetErrorName", c_int(code), byref(text)) or text.value is None:
            return ""
        return f" ({text.value.decode(errors='replace')})"

    def open(self) -> tuple[str, int]:
        """Make a context on the first device. Returns its name and the driver's CUDA version. Raises NotTestedError
        where there is none, BadError where it cannot be used.
        """
        if code := self.code("cuInit", c_uint(0)):
            raise NotTestedError(f"cuInit: CUDA error {code}{self._named(code)}")
        count, version, device, context = c_int(), c_int(), c_int(), c_void_p()
        self.call("cuDeviceGetCount", byref(count))
        if count.value < 1:
            raise NotTestedError("CUDA finds no device")
        self.call("cuDriverGetVersion", byref(version))
        self.call("cuDeviceGet", byref(device), c_int(0))
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, c_int(len(name)), device)
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxSetCurrent", context)
        return name.value.decode(errors="replace"), version.value

    def free_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def allocate(self, size: int) -> int | None:
        """The address of so many bytes on the device; None where it has no more."""
        address = c_uint64()
        code = self.code("cuMemAlloc_v2", byref(address), c_size_t(size))
        if code == OUT_OF_MEMORY:
            return None
        if code:
            raise BadError(f"cuMemAlloc: CUDA error {code}{self._named(code)}")
        return address.value

    def release(self, address: int) -> None:
        self.call("cuMemFree_v2", c_uint64(address))

    def fill(self, address: int, pattern: int, size: int) -> None:
        self.call("cuMemsetD32_v2", c_uint64(address), c_uint(pattern), c_size_t(size // 4))

    def across(self, to: int, source: int, size: int) -> None:
        self.call("cuMemcpyDtoD_v2", c_uint64(to), c_uint64(source), c_size_t(size))

    def up(self, to: int, source: bytes) -> None:
        self.call("cuMemcpyHtoD_v2", c_uint64(to), c_char_p(source), c_size_t(len(source)))

    def down(self, to: Any, source: int) -> None:
        """Copy to a buffer of ctypes, as many bytes as it has."""
        self.call("cuMemcpyDtoH_v2", to, c_uint64(source), c_size_t(ctypes.sizeof(to)))

    def wait(self) -> None:
        """Errors of what was begun before are known when this returns."""
        self.call("cuCtxSynchronize")


def verify(cuda: Cuda, part: float, show: Callable[[str], None], now: Callable[[], float]) -> None:
    """Test ``part`` (0 to 1) of the free memory, and copies. Raises BadError, NotTestedError."""
    name, version = cuda.open()
    show(f"device: {name}, CUDA {version // 1000}.{version % 1000 // 10}")
    _copies(cuda, show, now)
    wanted = int(cuda.free_bytes() * part)
    chunks = list(_chunks(cuda, wanted))
    try:
        size = len(chunks) * CHUNK_BYTES
        if size < max(1, wanted - CHUNK_BYTES) * LEAST_TESTED:
            raise NotTestedError(f"memory: {size >> 20} MiB could be had, expected {wanted >> 20}")
        began_s = now()
        for number, pattern in enumerate(PATTERNS):
            _pattern(cuda, chunks, pattern, number)
        show(f"memory: {size >> 20} MiB with {len(PATTERNS)} patterns in {now() - began_s:.1f} s")
    finally:
        for chunk in chunks:
            cuda.code("cuMemFree_v2", c_uint64(chunk))


def _chunks(cuda: Cuda, wanted: int) -> Iterator[int]:
    for _ in range(wanted // CHUNK_BYTES):
        address = cuda.allocate(CHUNK_BYTES)
        if address is None:
            return
        yield address


def _pattern(cuda: Cuda, chunks: Sequence[int], pattern: int, number: int) -> None:
    """Set each other chunk, copy it to the one after it, which reads one and writes the other, and look at both."""
    for index, chunk in enumerate(chunks):
        if index % 2:
            cuda.across(chunk, chunks[index - 1], CHUNK_BYTES)
        else:
            cuda.fill(chunk, pattern, CHUNK_BYTES)
    cuda.wait()
    window = (ctypes.c_char * WINDOW_BYTES)()
    expected = pattern.to_bytes(4, "little") * (WINDOW_BYTES // 4)
    windows = CHUNK_BYTES // WINDOW_BYTES
    for index, chunk in enumerate(chunks):
        offset = (index * len(PATTERNS) + number) % windows * WINDOW_BYTES
        cuda.down(window, chunk + offset)
        if window.raw != expected:
            found = next(i for i in range(0, WINDOW_BYTES, 4) if window.raw[i : i + 4] != expected[:4])
            word = int.from_bytes(window.raw[found : found + 4], "little")
            where = index * CHUNK_BYTES + offset + found
            raise BadError(f"memory: found {word:#010x} at byte {where}, expected {pattern:#010x}")


def _copies(cuda: Cuda, show: Callable[[str], None], now: Callable[[], float]) -> None:
    """Random bytes to the device, across it and back."""
    here = os.urandom(COPY_BYTES)
    there = [cuda.allocate(COPY_BYTES) for _ in range(2)]
    if None in there:
        raise NotTestedError(f"memory: no {2 * COPY_BYTES >> 20} MiB are free")
    first, second = (address for address in there if address is not None)
    back = (ctypes.c_char * COPY_BYTES)()
    began_s = now()
    cuda.up(first, here)
    cuda.wait()
    up_s = now()
    cuda.across(second, first, COPY_BYTES)
    cuda.wait()
    across_s = now()
    cuda.down(back, second)
    down_s = now()
    if back.raw != here:
        wrong = sum(a != b for a, b in zip(back.raw, here, strict=True))
        raise BadError(f"copies: {wrong} of {COPY_BYTES} bytes came back otherwise")
    cuda.release(first)
    cuda.release(second)
    rates = (_rate(up_s - began_s), _rate(across_s - up_s), _rate(down_s - across_s))
    show(f"copies: to the device {rates[0]}, across it {rates[1]}, back {rates[2]}")


def _rate(seconds: float) -> str:
    return f"{COPY_BYTES / max(seconds, 1e-9) / 1e9:.1f} GB/s"


def run(argv: Sequence[str], load: Callable[[str], Any], show: Callable[[str], None], now: Callable[[], float]) -> int:
    """The program with its arguments; ``load`` opens a library by its name or path. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m agent.verify", description="Tests one GPU's memory and copies.")
    parser.add_argument("--memory", type=_part, default=0.9, metavar="PART", help="of the free memory; default 0.9")
    parser.add_argument("--library", default=os.environ.get(LIBRARY_VARIABLE) or LIBRARY, help="the driver's libcuda")
    options = parser.parse_args(argv)
    try:
        verify(Cuda(load(options.library)), options.memory, show, now)
    except NotTestedError as why:
        show(f"not tested: {why}")
        return NOT_TESTED
    except BadError as wrong:
        show(f"bad: {wrong}")
        return BAD
    except (OSError, AttributeError) as missing:
        show(f"not tested: {options.library}: {missing}")
        return NOT_TESTED
    show("well")
    return WELL


def _part(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 1.0:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a part of 1, such as 0.9")
    return value


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], ctypes.CDLL, _print, time.monotonic))
