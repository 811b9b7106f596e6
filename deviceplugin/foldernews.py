"""News of a folder, from Linux's inotify(7): a file in it came, went or was moved. News are hints, never the truth.

A watch ends with the folder that it was made on, and may be refused (the number for a user is limited): its user looks
into the folder from time to time as well, and after each hint.
"""

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

CREATED, DELETED, MOVED_TO, MOVED_AWAY, SELF_DELETED, SELF_MOVED = 0x100, 0x200, 0x80, 0x40, 0x400, 0x800
MASK = CREATED | DELETED | MOVED_TO | MOVED_AWAY | SELF_DELETED | SELF_MOVED
GATHER_S = 0.02
"""The seconds from the first event to the hint: a kubelet that starts removes and makes several files, and then
listens.
"""
MOST_BYTES = 64 << 10


class FolderNews:
    """Calls ``told`` soon after something happened in ``folder``. It belongs to one event loop, from ``start`` to
    ``stop``.
    """

    def __init__(self, folder: Path, told: Callable[[], None]) -> None:
        self._folder = folder
        self._told = told
        self._file: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watched: tuple[int, int] | None = None

    @property
    def watching(self) -> bool:
        """Whether events in the folder are told, as far as is known."""
        return self._watched is not None

    def start(self) -> None:
        """Start to watch; where that cannot be done there are no hints."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._libc = libc
        if getattr(libc, "inotify_init1", None) is None:
            return
        file = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if file < 0:
            log.info("no inotify: the folder is looked at instead", extra={"error": os.strerror(ctypes.get_errno())})
            return
        self._file = file
        asyncio.get_running_loop().add_reader(file, self._read)
        self.renew()

    def renew(self) -> None:
        """Watch the folder that is there now, where it is another one than before. A call costs a stat."""
        if self._file is None:
            return
        try:
            status = self._folder.stat()
        except OSError:
            self._watched = None
            return
        identity = (status.st_dev, status.st_ino)
        if identity == self._watched:
            return
        path = os.fsencode(self._folder)
        if self._libc.inotify_add_watch(self._file, ctypes.c_char_p(path), ctypes.c_uint32(MASK)) < 0:
            failed = ctypes.get_errno()
            log.info("folder not watched", extra={"error": errno.errorcode.get(failed, str(failed))})
            return
        self._watched = identity

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._file is not None:
            asyncio.get_running_loop().remove_reader(self._file)
            os.close(self._file)
            self._file = None
        self._watched = None

    def _read(self) -> None:
        assert self._file is not None, "an event after the end"
        with contextlib.suppress(BlockingIOError):
            os.read(self._file, MOST_BYTES)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._told()
