"""The clock seam: with this folder on PYTHONPATH, ``time.time`` of a process is ahead by what a file says.

Python imports a module of this name at each start. The machine's clock stays as it is; TLS reads that one. The file,
named by ``TESSERA_CHAOS_CLOCK``, holds seconds as text and is looked at again at each call.
"""

import os
import time
from collections.abc import Callable

_REAL_S: Callable[[], float] = time.time
_FILE = os.environ.get("TESSERA_CHAOS_CLOCK", "")


def _ahead_s() -> float:
    try:
        with open(_FILE, encoding="ascii") as file:  # noqa: PTH123 - pathlib is not yet imported at a process' start
            return float(file.read() or 0)
    except (OSError, ValueError):
        return 0.0


def _stepped() -> float:
    return _REAL_S() + _ahead_s()


if _FILE:
    time.time = _stepped
    time.time_ns = lambda: int(_stepped() * 1e9)
