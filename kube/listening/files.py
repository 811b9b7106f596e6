"""The limit of open files of this process, and the part of it that is kept from its listeners' peers."""

import contextlib
import resource
from typing import Final

RESERVED_FILES: Final = 64
"""The number of files that no connection takes: the sockets of a kubelet, a runtime and an API server must find one."""


def raise_file_limit() -> None:
    """Let this process open as many files as it may: raise the soft limit to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def is_reserved(descriptor: int) -> bool:
    """Whether a file that was just opened is one of the last ``RESERVED_FILES``. The kernel gives each new file the
    lowest number that is free, so all numbers below this one are in use.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - RESERVED_FILES
