"""The program that verifies a GPU: on a libcuda that behaves, and misbehaves, as a driver's. A real one: tests/gpu."""

import ctypes
import subprocess
import sys
from typing import Any

import pytest

from agent import verify
from agent.verify import BAD, NOT_TESTED, WELL, run

MIB = 1 << 20
UNCORRECTABLE = 214


class FakeCuda:
    """libcuda with a device of some memory, whose bytes stand in this process. A word at ``stuck`` (an offset into all
    memory that was handed out) cannot be set; ``fails`` has the code of calls that fail.
    """

    def __init__(self, free_mib: int = 9, stuck: int | None = None, fails: dict[str, int] | None = None) -> None:
        self.free = free_mib * MIB
        self.stuck = stuck
        self.fails = fails or {}
        self.devices = 1
        self.calls: list[str] = []
        self._memory = ctypes.create_string_buffer(free_mib * MIB)
        self._taken: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        does = getattr(FakeCuda, f"_{name}", None)

        def call(*args: Any) -> int:
            self.calls.append(name)
            if name in self.fails:
                return self.fails[name]
            return 0 if does is None else int(does(self, *args) or 0)

        return call

    def _at(self, address: Any) -> int:
        return ctypes.addressof(self._memory) + int(address.value) - MIB

    def _spoil(self) -> None:
        if self.stuck is not None:
            self._memory[self.stuck] = b"\x5b"

    def _cuDeviceGetCount(self, count: Any) -> None:  # noqa: N802 - the driver's names
        count._obj.value = self.devices

    def _cuDriverGetVersion(self, version: Any) -> None:  # noqa: N802
        version._obj.value = 12040

    def _cuDeviceGetName(self, name: Any, _size: Any, _device: Any) -> None:  # noqa: N802
        name.value = b"NVIDIA H100"

    def _cuGetErrorName(self, code: Any, text: Any) -> None:  # noqa: N802
        text._obj.value = b"CUDA_ERROR_ECC_UNCORRECTABLE" if code.value == UNCORRECTABLE else b"CUDA_ERROR"

    def _cuMemGetInfo_v2(self, free: Any, total: Any) -> None:  # noqa: N802
        free._obj.value, total._obj.value = self.free - sum(self._taken.values()), self.free

    def _cuMemAlloc_v2(self, address: Any, size: Any) -> int:  # noqa: N802
        at = 0
        for start, length in sorted(self._taken.items()):
            if start - at >= size.value:
                break
            at = start + length
        if at + size.value > self.free:
            return 2
        self._taken[at] = size.value
        address._obj.value = MIB + at
        return 0

    def _cuMemFree_v2(self, address: Any) -> None:  # noqa: N802
        del self._taken[address.value - MIB]

    def _cuMemsetD32_v2(self, address: Any, pattern: Any, count: Any) -> None:  # noqa: N802
        ctypes.memmove(self._at(address), pattern.value.to_bytes(4, "little") * count.value, 4 * count.value)
        self._spoil()

    def _cuMemcpyDtoD_v2(self, to: Any, source: Any, size: Any) -> None:  # noqa: N802
        ctypes.memmove(self._at(to), self._at(source), size.value)
        self._spoil()

    def _cuMemcpyHtoD_v2(self, to: Any, source: Any, size: Any) -> None:  # noqa: N802
        ctypes.memmove(self._at(to), source, size.value)
        self._spoil()

    def _cuMemcpyDtoH_v2(self, to: Any, source: Any, size: Any) -> None:  # noqa: N802
        ctypes.memmove(to, self._at(source), size.value)

    @property
    def taken(self) -> int:
        return len(self._taken)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "CHUNK_BYTES", MIB)
    monkeypatch.setattr(verify, "WINDOW_BYTES", MIB // 4)
    monkeypatch.setattr(verify, "COPY_BYTES", MIB)


def verified(cuda: FakeCuda, *argv: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    clock = iter(range(1000))
    code = run(argv, lambda _: cuda, lines.append, lambda: next(clock) / 1000)
    return code, lines


def test_a_gpu_that_does_well_is_said_to_with_what_was_measured() -> None:
    cuda = FakeCuda()
    code, lines = verified(cuda)
    assert code == WELL
    assert lines[0] == "device: NVIDIA H100, CUDA 12.4"
    assert "GB/s" in lines[1]
    assert lines[2].startswith("memory: 8 MiB with 4 patterns")
    assert lines[-1] == "well"
    assert cuda.taken == 0, "all memory is given back"
    assert cuda.calls.count("cuMemsetD32_v2") + cuda.calls.count("cuMemcpyDtoD_v2") == 4 * 8 + 1


@pytest.mark.parametrize("chunk", range(8))
def test_a_byte_that_cannot_be_set_is_found_in_every_chunk(chunk: int) -> None:
    # Copies take the first two chunks first; the stuck byte is in the window of some pattern.
    cuda = FakeCuda(stuck=chunk * MIB + 5)
    code, lines = verified(cuda)
    assert code == BAD
    assert lines[-1].startswith("bad: ")
    assert "found" in lines[-1] or "came back otherwise" in lines[-1]
    assert "\n" not in lines[-1]


@pytest.mark.parametrize("call", ["cuMemcpyDtoD_v2", "cuMemsetD32_v2", "cuCtxSynchronize", "cuDevicePrimaryCtxRetain"])
def test_what_the_driver_refuses_is_named(call: str) -> None:
    code, lines = verified(FakeCuda(fails={call: UNCORRECTABLE}))
    assert (code, lines[-1]) == (BAD, f"bad: {call}: CUDA error 214 (CUDA_ERROR_ECC_UNCORRECTABLE)")


def test_where_there_is_nothing_to_test_it_says_so() -> None:
    none = FakeCuda()
    none.devices = 0
    assert verified(none) == (NOT_TESTED, ["not tested: CUDA finds no device"])
    assert verified(FakeCuda(fails={"cuInit": 100}))[0] == NOT_TESTED
    assert verified(FakeCuda(free_mib=1))[0] == NOT_TESTED


def test_memory_that_cannot_be_had_is_not_taken_for_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(free_mib=32)
    monkeypatch.setattr(cuda, "free", 8 * MIB)
    monkeypatch.setattr(FakeCuda, "_cuMemGetInfo_v2", lambda _self, free, _total: setattr(free._obj, "value", 32 * MIB))
    code, lines = verified(cuda)
    assert (code, "could be had" in lines[-1]) == (NOT_TESTED, True)
    assert cuda.taken == 0


@pytest.mark.parametrize("part", ["0", "1.5", "-1", "nan", "most"])
def test_a_slip_on_the_command_line_is_one_line(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        verified(FakeCuda(), f"--memory={part}")
    assert ended.value.code == NOT_TESTED
    assert f"found '{part}', expected a part of 1" in capsys.readouterr().err


def test_as_a_program_it_names_the_library_that_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agent.verify", "--library", "/nowhere/libcuda.so.1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == NOT_TESTED
    assert done.stdout.startswith("not tested: /nowhere/libcuda.so.1: ")
