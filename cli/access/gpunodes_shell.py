"""Lists of typed objects in which one that cannot be read is a note, and not the end of the command.

API server -> list_gpu_nodes(client, notes) -> GpuNode
"""

from collections.abc import Callable
from typing import TypeVar

from controller.cluster.watching.kinds import GPU_NODES
from controller.objects.decode import DecodeError, GpuNode, read_gpu_node
from kube.client import Client

T = TypeVar("T")


def noting(read: Callable[[bytes], T], notes: list[str]) -> Callable[[bytes], T | None]:
    """A decoder for which an object that ``read`` refuses is one of the ``notes``."""

    def read_one(raw: bytes) -> T | None:
        try:
            return read(raw)
        except DecodeError as wrong:
            notes.append(f"passed over: {wrong}")
            return None

    return read_one


async def list_gpu_nodes(client: Client, notes: list[str]) -> list[GpuNode]:
    """All GpuNodes that can be read. Raises KubeError."""
    listed = await client.list_decoded(GPU_NODES, noting(read_gpu_node, notes))
    return [node for node in listed.items if node is not None]
