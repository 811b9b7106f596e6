"""Sockets that listen: one for each address that a host means, all on one port; and the limit of open files of this
process, with the part of it that is kept from the listeners' peers.
"""

import contextlib
import resource
import socket
from typing import Final

RESERVED_FILES: Final = 64
"""The number of files that no connection takes: the sockets of a kubelet, a runtime and an API server must find one."""


def listening(host: str, port: int, *, backlog: int = 128) -> list[socket.socket]:
    """Sockets that are bound and listen, without blocking. ``host`` may be empty or a name; port 0 asks for any, the
    same for all.

    Raises OSError, which names the address.
    """
    sockets: list[socket.socket] = []
    wanted = port
    try:
        for family, kind, number, _, place in dict.fromkeys(
            socket.getaddrinfo(_plain(host), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        ):
            listener = socket.socket(family, kind, number)
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((place[0], port, *place[2:]))
            port = listener.getsockname()[1]
            listener.listen(backlog)
            listener.setblocking(False)
    except OSError as failed:
        for each in sockets:
            each.close()
        shown = f"[{host}]:{wanted}" if ":" in host else f"{host}:{wanted}"
        raise OSError(failed.errno, f"cannot listen on {shown}: {failed.strerror}") from None
    return sockets


def _plain(host: str) -> str | bytes | None:
    """The name as bytes for the resolver where it needs no IDNA: for text Python loads its tables first."""
    return (host.encode() if host.isascii() else host) if host else None


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
