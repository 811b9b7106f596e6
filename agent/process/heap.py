"""Frees the memory that only the start needed, the C allocator's reserves and pages of libraries, and leaves out what
the agent never uses.

The calls are glibc's and Linux's (malloc_trim(3), madvise(2)); where they are missing nothing happens.
"""

import contextlib
import ctypes
import gc
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_WHILE_LOADING: Final = 100_000
"""The number of new objects between two collections while loading. Without any collection garbage would leave memory in
pieces.
"""
_DONTNEED = 4
_SMAPS = Path("/proc/self/smaps")
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ [1-9]\d* +/(?!dev/|memfd:)")


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """A context for imports: nearly all objects that they make stay, and a search of them for garbage is a tenth of
    their time.

    The new objects are left out of collections until ``give_back``.
    """
    usual = gc.get_threshold()
    gc.set_threshold(_WHILE_LOADING, *usual[1:])
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*usual)


def lean_aiohttp() -> None:
    """Import aiohttp without two tables that the agent never uses: every authority's certificate
    (``kube.leanaiohttp``), and every file type's name (/etc/mime.types, 0.4 MiB where it exists), which is for serving
    files. Whatever imports aiohttp comes later.
    """
    import mimetypes

    import kube.leanaiohttp  # noqa: F401 - for what its import does

    mimetypes.knownfiles = []


def give_back() -> None:
    """Return the memory that only the start needed.

    Objects alive now stay alive (modules, classes, the node state): later collections need not go through them.
    """
    libc = ctypes.CDLL(None)
    trim, advise = (getattr(libc, name, None) for name in ("malloc_trim", "madvise"))
    if advise is not None:
        with contextlib.suppress(OSError), _SMAPS.open(errors="replace") as lines:  # by line: all of it is a megabyte
            for start, end in untouched(lines):
                advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONTNEED)
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    if trim is not None:
        trim(0)


def untouched(smaps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Start and end of each private mapping of a file that cannot be written and never was (proc_pid_smaps(5)).

    The kernel drops such pages, and takes them from its cache of the file when they are used again. A page that was
    written is nowhere else, be it in memory (Anonymous) or swapped out (Swap): a mapping with one such page stays.
    """
    place: tuple[int, int] | None = None
    unwritten = 0
    for line in smaps:
        key, _, value = line.partition(":")
        if key in {"Anonymous", "Swap"}:
            unwritten += value.split() == ["0", "kB"]
        elif key == "VmFlags":
            if place is not None and unwritten == 2:  # noqa: PLR2004 - both of them are said to be none
                yield place
            place = None
        elif "-" in key:
            found = _MAPPING.match(line)
            place, unwritten = (int(found[1], 16), int(found[2], 16)) if found else None, 0
