"""Obeys GPUResets where that kind is served, live.

GPUResets, read at intervals; GpuNodes -> controller.reconcile.repairs.gpuresets -> orders in GpuNodes, their status

The kind is another program's, and mostly absent: it is listed every ten seconds while it is served, and looked for once
a minute while it is not. Rejected: a watch, which would have to be set up anew whenever the kind comes and goes.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import structs

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import GPU_NODES, NODES
from controller.cluster.writing.stampedwrites import stamped_write
from controller.objects.decode import GpuNode
from controller.reconcile.repairs.gpuresets import (
    PENDING,
    START,
    STOP,
    ResetOrder,
    meant,
    reset_order,
    status_of,
    step,
    withdrawn,
)
from controller.reconcile.repairs.grants import rfc3339
from controller.reconcile.repairs.orderwrites_shell import SeenNode, order_write
from failpoints.names import Failpoint
from inventory.api.names import NVSENTINEL_MANAGED, REMEDIATION_ORDER
from kube.client import Client, Selection
from kube.clock import Clock, sleep
from kube.errors import KubeError, NotFoundError
from kube.objects import Metadata, annotation_managers
from kube.reading.reflector import Added, Changed, Removed
from kube.resources import Resource
from kube.writing.writer import Tuning
from kube.writing.writes import Outcome, Verb, Write, Written

log = logging.getLogger(__name__)

RESETS: Final = Resource("janitor.dgxc.nvidia.com", "v1alpha1", "gpuresets", "GPUReset")
LOOK_S: Final = 10.0
ABSENT_S: Final = 60.0
OWNER: Final = Tuning().field_owner
"""The field manager of the controller's writes."""


class GpuResetController:
    """``hear`` takes changes of GpuNodes and Nodes; ``run``, from when all of them are known, works until cancelled."""

    def __init__(
        self, client: Client, put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"], *, clock: Clock
    ) -> None:
        self._client = client
        self._put = put
        self._clock = clock
        self._gpu_nodes: dict[str, GpuNode] = {}
        self._followed: dict[str, ResetOrder] = {}
        """GPUResets that went on when this leader saw them last, by uid."""
        self._unmanaged: set[str] = set()
        """Nodes whose label says that nobody repairs them."""

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == GPU_NODES:
                self._gpu_nodes[key.name] = entry.object
            case Removed(key=key) if observed.resource == GPU_NODES:
                self._gpu_nodes.pop(key.name, None)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == NODES:
                if entry.object.metadata.labels.get(NVSENTINEL_MANAGED) == "false":
                    self._unmanaged.add(key.name)
                else:
                    self._unmanaged.discard(key.name)
            case Removed(key=key) if observed.resource == NODES:
                self._unmanaged.discard(key.name)

    async def run(self) -> None:
        while True:
            served = False
            if self._gpu_nodes:
                try:
                    served = await self.look()
                except KubeError as error:
                    log.warning("GPUResets cannot be read, trying on: %s", error)
                    served = True
            await sleep(self._clock, LOOK_S if served else ABSENT_S)

    async def look(self) -> bool:
        """Takes all GPUResets a step further. False where the kind is not served. Raises KubeError."""
        try:
            listed = await self._client.list_all(RESETS, dict[str, Any])
        except NotFoundError:
            return False
        going_on: set[str] = set()
        for gpu_reset in listed.items:
            order = reset_order(gpu_reset, _started_s(gpu_reset))
            if order is not None and not order.is_over and order.node not in self._unmanaged:
                going_on.add(order.uid)
                self._followed[order.uid] = order if order.started_s else self._begun_now(order)
                await self._follow(order, gpu_reset)
        for uid in self._followed.keys() - going_on:
            if await self._taken_back(self._followed[uid]):
                del self._followed[uid]
        return True

    def _begun_now(self, order: ResetOrder) -> ResetOrder:
        """The object with the time at which this leader saw it first: its status does not say one yet."""
        before = self._followed.get(order.uid)
        return structs.replace(order, started_s=self._clock.wall() if before is None else before.started_s)

    async def _taken_back(self, order: ResetOrder) -> bool:
        """Takes the orders off that no agent has answered, of a GPUReset that is over or gone, and has the repairs end
        that were begun for it and have reset nothing: nobody wants them. A person's order of the same GPU stays: who
        wrote it stands in the object's managed fields. Whether that is done.
        """
        node = self._gpu_nodes.get(order.node)
        gpus = meant(order, node.status) if node is not None else ()
        if node is None or isinstance(gpus, str):
            return True
        left = [gpu for gpu in gpus if node.metadata.annotations.get(f"{REMEDIATION_ORDER}{gpu}") == START]
        stopped = tuple(gpu for gpu in withdrawn(order, node.status) if gpu not in left)
        if stopped and not await self._stop(node, stopped):
            return False
        if not left:
            return True
        by_name = Selection(field_selector=f"metadata.name={order.node}")
        for found in (await self._client.list_all(GPU_NODES, Metadata, by_name)).items:
            meta = found.metadata
            ours = tuple(gpu for gpu in left if OWNER in annotation_managers(meta, f"{REMEDIATION_ORDER}{gpu}"))
            return not ours or await self._order(SeenNode.of(meta), ours, None)
        return True

    async def _stop(self, node: GpuNode, gpus: tuple[str, ...]) -> bool:
        """Orders the end of these repairs, once no other order of theirs waits. Whether that is done."""
        of_node = node.metadata
        if any(f"{REMEDIATION_ORDER}{gpu}" in of_node.annotations for gpu in gpus):
            return False
        return await self._order(SeenNode.of(of_node), gpus, STOP)

    async def _follow(self, order: ResetOrder, given: dict[str, Any]) -> None:
        node, now_s = self._gpu_nodes.get(order.node), self._clock.wall()
        notes = node.metadata.annotations if node is not None else {}
        annotated = [key.removeprefix(REMEDIATION_ORDER) for key in notes if key.startswith(REMEDIATION_ORDER)]
        due = step(order, node.status if node is not None else None, annotated, now_s)
        if due.orders and node is not None:
            meta = node.metadata
            if not await self._order(SeenNode.of(meta), due.orders, START):
                return
        if order.phase == due.phase and due.begun == order.begun:
            return
        started = rfc3339(now_s) if order.phase == PENDING else str(given["status"].get("startTime", rfc3339(now_s)))
        metadata = {"uid": order.uid, "resourceVersion": order.version}
        body = {"metadata": metadata, "status": status_of(due, rfc3339(now_s), started)}
        at, failpoint = {"name": order.name}, Failpoint.RESET_FOLLOWED
        outcome = await self._put(stamped_write(Verb.MERGE_PATCH, RESETS, at, body, failpoint, subresource="status"))
        if not isinstance(outcome, Written):
            log.info("gpureset %s: its status could not be written, trying on", order.name)

    async def _order(self, node: SeenNode, gpus: tuple[str, ...], order: str | None) -> bool:
        """Write the orders; None takes them back. Whether that is done."""
        return isinstance(await self._put(order_write(node, gpus, order)), Written)


def _started_s(given: dict[str, Any]) -> float:
    status = given.get("status")
    text = status.get("startTime") if isinstance(status, dict) else None
    try:
        return msgspec.convert(text, datetime).timestamp() if isinstance(text, str) else 0.0
    except (msgspec.ValidationError, ValueError, OverflowError):
        return 0.0
