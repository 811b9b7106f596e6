"""Refuses orders of people about GPUs of nodes whose agents take none.

GpuNodes with remediation.reset: never -> annotations tessera.dev/remediation-<UUID> taken off, an Event

An agent that resets nothing has no watch of its GpuNode, so that the orders there are heard by nobody: one that stayed
would be obeyed on the day that resets are turned on.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import GPU_NODES
from controller.messages import repairs as words
from controller.objects.decode import GpuNode
from controller.reconcile.repairs.orderwrites_shell import SeenNode, order_write
from controller.reconcile.repairs.repairs_shell import about_node
from failpoints.names import Failpoint
from inventory.api.gpunode import RESETS_NEVER
from inventory.api.names import REMEDIATION_ORDER
from kube.clock import Clock, Turns
from kube.objects import ObjectReference
from kube.reading.reflector import Added, Changed, Removed
from kube.writing.writes import Abandoned, Conflicted, Missing, Outcome, Write, Written

log = logging.getLogger(__name__)

_TOGETHER_S: Final = 0.1
_AGAIN_S: Final = 1.0
_SHOWN: Final = 63
"""Characters of a GPU's and an order's name that people are told."""


def orders_of(annotations: Mapping[str, str]) -> dict[str, str]:
    """The orders in the annotations of a GpuNode, by the UUID of their GPU as the person wrote it."""
    return {
        key.removeprefix(REMEDIATION_ORDER): order
        for key, order in annotations.items()
        if key.startswith(REMEDIATION_ORDER) and key != REMEDIATION_ORDER
    }


class OrderRefusals:
    """``hear`` takes changes of GpuNodes; ``run`` works until cancelled. ``tell`` records an Event: about what, type,
    reason, note.

    ``_refused`` has the GpuNodes with orders that nobody takes, as they were seen last.
    """

    def __init__(
        self,
        put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"],
        *,
        clock: Clock,
        tell: Callable[[ObjectReference, str, str, str], None],
    ) -> None:
        self._put = put
        self._tell = tell
        self._turns = Turns(clock, together_s=_TOGETHER_S)
        self._refused: dict[str, GpuNode] = {}

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == GPU_NODES:
                node: GpuNode = entry.object
                if node.status.reset_mode == RESETS_NEVER and orders_of(node.metadata.annotations):
                    self._refused[key.name] = node
                    self._turns.wake()
                else:
                    self._refused.pop(key.name, None)
            case Removed(key=key) if observed.resource == GPU_NODES:
                self._refused.pop(key.name, None)

    async def run(self) -> None:
        while True:
            await self._turns.next()
            for name, node in list(self._refused.items()):
                await self._refuse(name, node)

    async def _refuse(self, name: str, node: GpuNode) -> None:
        """Takes all orders off, and tells of each. A GpuNode that has changed meanwhile is heard of again."""
        meta, orders = node.metadata, orders_of(node.metadata.annotations)
        outcome = await self._put(order_write(SeenNode.of(meta), orders, None, Failpoint.ORDER_REFUSED))
        if isinstance(outcome, Written):
            if self._refused.get(name) is node:
                del self._refused[name]
            for gpu, order in sorted(orders.items()):
                note = words.order_without_resets(gpu[:_SHOWN], order[:_SHOWN], name)
                self._tell(about_node(name), "Warning", "GpuOrderRefused", note)
        elif not isinstance(outcome, Missing | Abandoned | Conflicted):
            log.info("gpunode %s: an order could not be taken off, trying on", name)
            self._turns.again(_AGAIN_S)
