"""The kubelet's socket: whether it exists, whether it is still the same one, and the registration with it.

The socket is compared by identity, not by name: a kubelet that restarts deletes every socket in the folder and makes a
new ``kubelet.sock``. A stat each second is 20 us; an inotify watch would not see a folder that is itself replaced.
"""

import socket
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio

from deviceplugin import wire
from deviceplugin.server import options
from inventory.devices import ResourceName
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from kubeletapi import deviceplugin_v1beta1_pb2_grpc as pb_grpc

REGISTER_TIMEOUT_S = 5.0
CONNECTED = "device plugin already connected"
"""The words with which kubelets from 1.37 on refuse an endpoint that they are connected to (manager.go)."""


class SocketIdentity(NamedTuple):
    """The identity of a socket file. Inode numbers are reused at once on tmpfs, hence the change time."""

    device: int
    inode: int
    changed_ns: int


def identify(path: Path) -> SocketIdentity | None:
    """The identity of the file at ``path``; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return SocketIdentity(found.st_dev, found.st_ino, found.st_ctime_ns)


def listens(path: Path) -> bool:
    """Whether a process listens on the socket at ``path``: a kubelet that was killed leaves its socket behind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True  # the queue of the socket is full
        except OSError:
            return False
    return True


def stands(path: Path, known: SocketIdentity | None) -> bool:
    """Whether the file at ``path`` is still the one with the identity ``known``. False for None: a kubelet that starts
    empties its folder, and may sweep a socket before its identity was read.
    """
    return known is not None and identify(path) == known


class RegistrationError(Exception):
    """The kubelet refused or did not answer; the registration is to be tried again later.

    ``spent``: the kubelet has the endpoint already, or may have it. It is not to be registered again: kubelets from
    1.37 on refuse one that they are connected to, and no longer drop the plugin when the stream of that one ends.
    """

    def __init__(self, message: str, *, spent: bool = False) -> None:
        super().__init__(message)
        self.spent = spent


async def register(kubelet: Path, resource: ResourceName, endpoint: str) -> None:
    """Tell the kubelet at the socket ``kubelet`` that ``endpoint``, a file beside it, serves ``resource``.

    Raises RegistrationError.
    """
    request = pb.RegisterRequest(version=wire.VERSION, endpoint=endpoint, resource_name=resource, options=options())
    async with grpc.aio.insecure_channel(f"unix:{kubelet}") as channel:
        stub = pb_grpc.RegistrationStub(channel)
        try:
            await stub.Register(request, timeout=REGISTER_TIMEOUT_S)
        except grpc.aio.AioRpcError as failed:
            unanswered = failed.code() in {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
            spent = unanswered or CONNECTED in (failed.details() or "")
            raise RegistrationError(f"{failed.code().name}: {failed.details()}", spent=spent) from failed
