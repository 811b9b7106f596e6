"""What the C allocator keeps for itself: megabytes of a process with a thread for each GPU, and after its imports.

Both calls are glibc's (mallopt(3), malloc_trim(3)); with another libc nothing happens.
"""

import ctypes
import gc
from typing import Final

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE: Final = 64 << 10


def hold_little() -> None:
    """To be called before any thread is started.

    No heap for each thread: they wait in the driver nearly always. Large blocks (a scrape's text) go back when they are
    freed: glibc would raise its own threshold with the first of them, and keep the next ones' room.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _LARGE)):
            mallopt(parameter, value)


def give_back() -> None:
    """Return what the start needed and nothing needs any more.

    What is alive now lives on (modules, classes, the node's picture): later collections need not go through it.
    """
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
