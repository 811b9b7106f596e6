"""The one place where NVML's error codes become values or exceptions.

    NvmlError
    |-- DriverUnavailable   no library, no driver, or a driver that was swapped: open a new session later
    |-- GpuLost             this GPU fell off the bus, or its handle is from before a reset: take a new one
    |-- CallTimedOut        NVML did not answer in time: this GPU's thread may hang; the others do not
    `-- CallFailed          anything else NVML said, by its own words

"Not supported" is no error here: ``ask`` turns it into None.
"""

from collections.abc import Callable
from ctypes import Structure
from typing import Any, Final

import pynvml


class NvmlError(Exception):
    """The root: nothing else leaves this package."""


class DriverUnavailable(NvmlError):  # noqa: N818 - a state, not a mistake
    """No driver answers right now."""


class GpuLost(NvmlError):  # noqa: N818 - a state, not a mistake
    """The handle names no living GPU."""


class CallTimedOut(NvmlError):  # noqa: N818 - a state, not a mistake
    """The GPU's thread did not answer in time."""


class CallFailed(NvmlError):  # noqa: N818 - a state, not a mistake
    """NVML refused."""


ABSENT = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,  # older libraries: "no such link", "no such profile"
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)
GONE = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
    }
)
NO_DRIVER = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)


_MALFORMED: Final = (UnicodeDecodeError, IndexError)
"""pynvml's own errors for answers that it cannot read: a text that is no UTF-8, a list with more items than it had room
for.
"""


def translate(error: Any, name: str) -> NvmlError:
    """The exception for a pynvml.NVMLError out of the function ``name``."""
    text = f"{name}: {error}"
    if error.value in NO_DRIVER:
        return DriverUnavailable(text)
    if error.value in GONE:
        return GpuLost(text)
    return CallFailed(text)


def must(function: Callable[..., Any], *args: Any) -> Any:
    """Call NVML. Raises DriverUnavailable, GpuLost or CallFailed."""
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        raise translate(error, function.__name__) from None
    except _MALFORMED as error:
        raise _malformed(function, error) from None


def ask(function: Callable[..., Any], *args: Any) -> Any | None:
    """Call NVML; None where this GPU, driver or library has no such thing. Raises as ``must`` for the rest."""
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        if error.value in ABSENT:
            return None
        raise translate(error, function.__name__) from None
    except _MALFORMED as error:
        raise _malformed(function, error) from None


def _malformed(function: Callable[..., Any], error: Exception) -> CallFailed:
    return CallFailed(f"{function.__name__}: {error}")


def field(structure: Any, name: str) -> str:
    """A text inside of what NVML filled in, whatever its bytes are: pynvml's own way to it raises for some."""
    return text(Structure.__getattribute__(structure, name))


def figure(function: Callable[..., Any], *args: Any) -> Any | None:
    """Like ``ask``, with a refusal read as absence: one figure that fails must not cost the others."""
    try:
        return ask(function, *args)
    except CallFailed:
        return None


def text(value: Any) -> str:
    """A C string as str, whether the library gave bytes or str."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
