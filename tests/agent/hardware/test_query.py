"""Every error code of NVML is either an absence or one of four failures."""

from ctypes import c_uint
from typing import Any

import pynvml
import pytest

from agent.hardware.query import (
    ABSENT,
    GONE,
    NO_DRIVER,
    CallFailed,
    DriverUnavailable,
    GpuLost,
    NvmlError,
    ask,
    must,
    text,
)

CODES = sorted(
    value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and isinstance(value, int) and value
)


def failing(code: int) -> Any:
    def nvmlAnything(*_: object) -> None:  # noqa: N802 - NVML's manner
        raise pynvml.NVMLError(code)

    return nvmlAnything


@pytest.mark.parametrize("code", CODES)
def test_must_raises_for_every_code_and_names_the_call(code: int) -> None:
    with pytest.raises(NvmlError, match="nvmlAnything: ") as failed:
        must(failing(code))
    expected = DriverUnavailable if code in NO_DRIVER else GpuLost if code in GONE else CallFailed
    assert type(failed.value) is expected


@pytest.mark.parametrize("code", CODES)
def test_ask_is_none_for_what_is_not_there_and_raises_for_what_is_broken(code: int) -> None:
    if code in ABSENT:
        assert ask(failing(code)) is None
    else:
        with pytest.raises(NvmlError):
            ask(failing(code))


def test_the_kinds_of_codes_do_not_overlap() -> None:
    assert not ABSENT & GONE
    assert not ABSENT & NO_DRIVER
    assert not GONE & NO_DRIVER
    assert pynvml.NVML_ERROR_NOT_SUPPORTED in ABSENT
    assert pynvml.NVML_ERROR_GPU_IS_LOST in GONE
    assert pynvml.NVML_ERROR_DRIVER_NOT_LOADED in NO_DRIVER


def test_what_is_no_nvml_error_passes() -> None:
    with pytest.raises(ZeroDivisionError):
        ask(lambda: 1 // 0)
    assert must(lambda value: value, 7) == 7
    assert ask(lambda value: value.value, c_uint(3)) == 3


def test_text_is_text_whatever_the_library_gave() -> None:
    assert text(b"Tesla T4") == text("Tesla T4") == "Tesla T4"
    assert text(b"\xff") == "\ufffd"
