"""A CUDA client that makes a context on device 0 and ends, as a pod's first CUDA call does.

It is run as a file of its own, so that the agent never holds a context. Exit code 0, or 1 with one line that says why.
"""

import ctypes
import sys
from typing import Any


def _check(result: int, what: str, cuda: Any) -> None:
    if result == 0:
        return
    text = ctypes.c_char_p()
    cuda.cuGetErrorName(result, ctypes.byref(text))
    raise OSError(f"{what}: {(text.value or b'?').decode()} ({result})")


def main() -> int:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        _check(cuda.cuInit(0), "cuInit", cuda)
        _check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet", cuda)
        _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain", cuda)
        _check(cuda.cuDevicePrimaryCtxRelease_v2(device), "cuDevicePrimaryCtxRelease", cuda)
    except (OSError, AttributeError) as failed:
        sys.stdout.write(f"no CUDA context through MPS: {failed}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
