"""Limits the memory that the C allocator keeps after it was freed, and the buffers of TLS connections.

The allocator's call is glibc's (mallopt(3)); where it is missing nothing happens.
"""

import ctypes
from typing import Final

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE: Final = 64 << 10
_READ: Final = 64 << 10
"""The size of four TLS records: a page of a list takes a fifth of the time that it takes with asyncio's 256 KiB, a
message half.
"""


def hold_little(large_bytes: int = _LARGE) -> None:
    """Make the allocator return freed memory. It is called before any thread is started.

    Threads get no heap each: they wait nearly always. Blocks as large as ``large_bytes`` (a scrape's text, a page of a
    list) go back when they are freed: glibc would raise its own threshold with the first of them, and keep room for the
    next ones.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, large_bytes), (_TRIM_THRESHOLD, large_bytes)):
            mallopt(parameter, value)


def give_back() -> None:
    """Return the pages of freed blocks that lie between others to the kernel; ``hold_little`` returns those at the end.

    It takes milliseconds, during which other threads run.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def read_little(most_bytes: int = _READ) -> None:
    """Make the buffers of TLS connections smaller, for every connection that is opened from now on.

    A TLS connection of asyncio reads into a buffer of its own, and decrypts each message into a new block as large.
    asyncio's own 256 KiB are large blocks by ``hold_little``, mapped and unmapped for each message of a watch; and a
    controller holds forty connections open.
    """
    from asyncio import sslproto  # not before ``hold_little``: see agent.main

    sslproto.SSLProtocol.max_size = most_bytes
