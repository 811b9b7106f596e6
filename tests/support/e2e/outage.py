"""Parts of a real control plane that end without a word and come back, as they were or with other flags."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.cluster import processes, state
from hack.cluster.cluster import Cluster


@contextmanager
def away(cluster: Cluster, component: str, *flags: str) -> Iterator[None]:
    """``component`` ends without a word. After the block it runs again as before, with ``flags`` behind its own.

    Of a feature gate that both name the last word counts.
    """
    identity = cluster.state.processes[component]
    argv = Path(f"/proc/{identity.pid}/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
    processes.end([identity], grace_s=0.0)
    try:
        yield
    finally:
        back = cluster.spawn(component, [*argv, *flags])
        state.save(cluster.paths.state, cluster.state.with_process(component, back))


@contextmanager
def api_server_away(cluster: Cluster) -> Iterator[None]:
    with away(cluster, "apiserver"):
        yield
