"""A time without an API server, on a real control plane."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.cluster import processes
from hack.cluster.cluster import Cluster


@contextmanager
def api_server_away(cluster: Cluster) -> Iterator[None]:
    """It ends without a word; after the block it is started again as it was. Once in a cluster's life."""
    identity = cluster.state.processes["apiserver"]
    argv = Path(f"/proc/{identity.pid}/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
    processes.end([identity], grace_s=0.0)
    try:
        yield
    finally:
        cluster.spawn("apiserver", argv)
