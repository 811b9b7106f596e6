"""The GpuNode, ``tessera.dev/v1alpha1``, as the controller reads it: its status is ``inventory.api.gpunode``'s.

The agent alone writes it, and what arrives is hostile until it was read: every text and list is bounded, as in the
CRD, and two devices of one identifier are refused.
"""

from typing import Any

from controller.objects.decode import DecodeError, decode
from controller.objects.meta import KubernetesObject
from inventory.api.gpunode import KIND, UNSEEN, GpuNodeStatus, repeated


class GpuNode(KubernetesObject, frozen=True, kw_only=True):
    """Named as its node."""

    status: GpuNodeStatus = UNSEEN

    def __post_init__(self) -> None:
        problem = repeated(self.status)
        if problem is not None:
            raise ValueError(problem)


def read_gpu_node(given: bytes | str | dict[str, Any]) -> GpuNode:
    """Raises DecodeError: one line with the field, what was found and what is expected."""
    found = decode(given, GpuNode)
    if not found.metadata.name:
        raise DecodeError(f"{KIND}: metadata.name: expected a node's name, found none")
    return found
