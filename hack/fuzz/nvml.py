"""NVML whose functions answer with the input's bytes, behind NVIDIA's own pynvml and the agent's readers."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from hack.fuzz.common import Made


class _Answering:
    """A libnvidia-ml whose every function answers with bytes of the input: a return code, then what it fills in."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0

    def use(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        """Zeros, once the input is used up."""
        found = self._data[self._at : self._at + count]
        self._at += count
        return found.ljust(count, b"\0")

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            code = self.take(1)[0]
            if code >= _CODES:
                return code - _CODES
            for argument in arguments:
                self._fill(getattr(argument, "_obj", argument))
            return 0

        call.__name__ = name
        return call

    def _fill(self, given: Any) -> None:
        if isinstance(given, ctypes.c_uint):
            # A count that pynvml or the agent makes a list of: a real library fills no more than it has.
            given.value = self.take(1)[0] if self.take(1)[0] % 2 else given.value
        elif isinstance(given, ctypes.Array | ctypes.Structure) or (
            isinstance(given, ctypes._SimpleCData)  # noqa: SLF001 - the base of all numbers
            and not isinstance(given, ctypes.c_void_p)
        ):
            ctypes.memmove(ctypes.addressof(given), self.take(ctypes.sizeof(given)), ctypes.sizeof(given))


_CODES: Final = 200
"""First bytes below it are a success, others an error code."""


def made() -> Made:
    import pynvml

    from agent.hardware.gpus import link_matrix, read_gpu
    from agent.hardware.probe import read as probe
    from agent.hardware.query import NvmlError
    from agent.telemetry.fields import FIELD_VALUES
    from agent.telemetry.reading.reader import GpuReader

    library = _Answering()
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - as the simulator does
    handle = pynvml.c_nvmlDevice_t()
    wanted = (
        frozenset(FIELD_VALUES) if not isinstance(FIELD_VALUES, dict) else frozenset(map(str, FIELD_VALUES.values()))
    )

    def parse(data: bytes) -> object:
        library.use(data)
        gpu = read_gpu(handle, 0, Path("/none"))
        link_matrix([gpu, gpu], {(0, 1): data[0] if data else 0})
        with suppress(NvmlError):
            probe(handle, gpu)
        reader = GpuReader(wanted)
        return [msgspec.json.encode(reader.read(handle, gpu, 1, float(now))) for now in range(2)]

    return parse, (NvmlError,)
