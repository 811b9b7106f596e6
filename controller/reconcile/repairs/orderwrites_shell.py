"""The write by which orders about GPUs are put into their node's GpuNode, or taken back."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from controller.cluster.watching.kinds import GPU_NODES
from controller.cluster.writing.stampedwrites import stamped_write
from controller.objects.meta import ObjectMeta
from failpoints.names import Failpoint
from inventory.api.names import REMEDIATION_ORDER
from kube.objects import ObjectMeta as Listed
from kube.writing.writes import Verb, Write


class SeenNode(NamedTuple):
    """A GpuNode as it was seen: a write is refused once it has changed."""

    name: str
    uid: str
    version: str

    @classmethod
    def of(cls, meta: ObjectMeta | Listed) -> Self:
        return cls(meta.name, meta.uid, meta.resource_version)


def order_write(
    node: SeenNode, gpus: Iterable[str], order: str | None, failpoint: Failpoint = Failpoint.RESET_ORDERED
) -> Write[Any]:
    """Orders for GPUs by UUID, which the agent takes off when it has obeyed or refused; None takes them back."""
    orders = {f"{REMEDIATION_ORDER}{gpu}": order for gpu in gpus}
    body = {"metadata": {"uid": node.uid, "resourceVersion": node.version, "annotations": orders}}
    return stamped_write(Verb.MERGE_PATCH, GPU_NODES, {"name": node.name}, body, failpoint)
