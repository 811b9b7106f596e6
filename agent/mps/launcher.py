"""Starts a program that has another folder at /dev/shm: ``launcher.py FOLDER PROGRAM [WORD ...]``.

MPS's server and its clients meet in shared memory files. Each device has a tmpfs of its own for them, which its
clients' containers get at /dev/shm; the daemon gets it there by a mount namespace of its own. The launcher is run as a
file of its own and replaced by the program: a fork of the agent, with its threads, must not call anything between fork
and exec.
"""

import ctypes
import os
import sys

CLONE_NEWNS = 0x00020000
MS_BIND = 0x1000
MS_REC_PRIVATE = 0x4000 | 0x40000


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def bind_shm(folder: str) -> None:
    """Give this process a mount namespace with ``folder`` at /dev/shm. Raises OSError: a right is missing."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(CLONE_NEWNS), "unshare")
    # Mounts made here must not show outside of the namespace.
    _check(libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None), "mount --make-rprivate /")
    _check(libc.mount(folder.encode(), b"/dev/shm", None, MS_BIND, None), "mount --bind /dev/shm")


def main() -> int:
    try:
        bind_shm(sys.argv[1])
        os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - the program that it is for
    except OSError as failed:
        sys.stderr.write(f"{sys.argv[2]}: {failed.strerror or failed}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
