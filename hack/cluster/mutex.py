"""A lock between processes that leaves nothing behind, not even after kill -9: an abstract Unix socket.

The kernel frees the address with the process that bound it. Abstract addresses belong to the network namespace, which
is also what the guarded things (ports, bridges, subnets) belong to.
"""

import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Iterator

from hack.cluster.errors import ClusterError

_POLL_S = 0.05


@contextlib.contextmanager
def mutex(key: str, *, timeout_s: float = 300.0) -> Iterator[None]:
    """Hold the machine-wide lock ``key``; ClusterError if another process keeps it for ``timeout_s``."""
    digest = hashlib.sha256(os.fsencode(key)).hexdigest()[:32]
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder:
        while True:
            try:
                holder.bind(f"\0tessera-cluster-{digest}")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"another hack.cluster command has been at work on {key} for {timeout_s:.0f} s"
                    ) from None
                time.sleep(_POLL_S)
        yield
