"""Orders the resets that are due while a repair window is open, live.

GpuNodes, Nodes; the configuration's windows -> controller.reconcile.repairs.planned -> annotations of GpuNodes, Events
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import GPU_NODES
from controller.messages import repairs as words
from controller.messages.spans import moment
from controller.objects.decode import GpuNode
from controller.reconcile.repairs.breaker import RepairBreaker
from controller.reconcile.repairs.gpuresets import START
from controller.reconcile.repairs.orderwrites_shell import SeenNode, order_write
from controller.reconcile.repairs.planned import PlannedOrder, planned_orders
from controller.reconcile.repairs.repairs_shell import about_node
from controller.scheduler.model.cron import Window
from kube.clock import Clock, sleep
from kube.objects import ObjectReference
from kube.reading.reflector import Added, Changed, Removed
from kube.writing.writes import Outcome, Write, Written

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0


class PlannedRepairs:
    """``hear`` takes changes of GpuNodes; ``run``, from when all of them are known, works until cancelled. ``breaker``
    is read, and never told anything. ``tell`` records an Event: about what, type, reason, note.
    """

    def __init__(
        self,
        windows: Sequence[Window],
        breaker: RepairBreaker,
        put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"],
        *,
        clock: Clock,
        tell: Callable[[ObjectReference, str, str, str], None],
    ) -> None:
        self._windows = windows
        self._breaker = breaker
        self._put = put
        self._clock = clock
        self._tell = tell
        self._gpu_nodes: dict[str, GpuNode] = {}

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == GPU_NODES:
                self._gpu_nodes[key.name] = entry.object
            case Removed(key=key) if observed.resource == GPU_NODES:
                self._gpu_nodes.pop(key.name, None)

    async def run(self) -> None:
        while self._windows:
            await self.look()
            await sleep(self._clock, LOOK_S)

    async def look(self) -> None:
        """Order what is due now."""
        now_s = self._clock.wall()
        windows = [window for each in self._windows if (window := each.open_at(now_s)) is not None]
        if not windows:
            return
        begun_s, end_s = min(begin_s for begin_s, _ in windows), max(end_s for _, end_s in windows)
        breaker = self._breaker
        due = planned_orders(
            self._gpu_nodes, begun_s, breaker.flavors_of, lambda node, gpu: breaker.lets(node, gpu, now_s)
        )
        for order in due:
            if await self._ordered(order):
                note = words.reset_planned(order.gpu, order.node, moment(end_s))
                self._tell(about_node(order.node), "Normal", "GpuResetPlanned", note)

    async def _ordered(self, order: PlannedOrder) -> bool:
        """Write the order, which the agent takes off when it has obeyed or refused. Whether that is done."""
        seen = SeenNode.of(self._gpu_nodes[order.node].metadata)
        outcome = await self._put(order_write(seen, (order.gpu,), START))
        if not isinstance(outcome, Written):
            log.info("gpunode %s: the reset of %s could not be ordered, trying on", order.node, order.gpu)
        return isinstance(outcome, Written)
