"""Watches this node's own GpuNode: the controller's grants of repairs, and the orders of people.

    watch of one GpuNode -> grants -> ``granted``; annotations -> ``obey`` -> taken off

It watches only while it is wanted: a fleet whose agents reset nothing has no such watches. What stands in the object is
anybody's until it is read: a grant that is none is ignored.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import Struct, field

from agent.cluster.gpunode import GPU_NODES
from agent.config.settings import FIELD_MANAGER
from agent.health.grants import Grant
from agent.process.spread import Spread, fleet_backoff
from failpoints import points
from failpoints.names import Failpoint
from inventory.api.gpunode import MAX_GPUS, RESETS_NEVER, GrantEntry
from inventory.api.names import REMEDIATION_ORDER
from inventory.devices import GpuUuid
from kube import depth
from kube.client import Client, Selection
from kube.clock import Clock, SystemClock, sleep
from kube.errors import InvalidError, KubeError, NotFoundError
from kube.objects import Metadata
from kube.reading.reflector import Added, Change, Changed, Reflector, Removed, Synced, Undecodable

log = logging.getLogger(__name__)

AGAIN_S = 5.0
"""The seconds after which an order is taken off again where the API server did not answer."""


class _Meta(Struct, frozen=True):
    annotations: dict[str, str] = field(default_factory=dict)


class _Status(Struct, frozen=True):
    grants: list[msgspec.Raw] = field(name="remediationGrants", default_factory=list)
    reset_mode: object = field(name="resetMode", default="")


class OwnGpuNode(Struct, frozen=True):
    """What an agent reads of its own GpuNode: the grants, and the orders by the UUID of their GPU. ``took_none``: the
    agent that wrote it repaired nothing.
    """

    grants: tuple[Grant, ...]
    orders: Mapping[str, str]
    took_none: bool = False


class _Object(Struct, frozen=True):
    metadata: _Meta = _Meta()
    status: _Status = _Status()


def read(raw: bytes) -> OwnGpuNode:
    """One object off the wire. Raises msgspec.MsgspecError where it is no GpuNode at all."""
    decoded = depth.decode(raw, _Object)
    orders = {
        key.removeprefix(REMEDIATION_ORDER): value
        for key, value in decoded.metadata.annotations.items()
        if key.startswith(REMEDIATION_ORDER) and key != REMEDIATION_ORDER
    }
    grants = (_grant(bytes(one)) for one in decoded.status.grants[:MAX_GPUS])
    took_none = decoded.status.reset_mode == RESETS_NEVER
    return OwnGpuNode(tuple(grant for grant in grants if grant is not None), orders, took_none)


def _grant(raw: bytes) -> Grant | None:
    try:
        entry = msgspec.json.decode(raw, type=GrantEntry)
        granted_s = entry.granted.timestamp()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as wrong:
        log.warning("grant ignored", extra={"error": str(wrong)})
        return None
    return Grant(gpu=GpuUuid(entry.gpu), generation=entry.generation, action=entry.action, granted_s=granted_s)


class Requested(Protocol):
    """The receiver of what stands in the GpuNode. ``wanted_changed`` is set when ``wanted`` may answer otherwise."""

    wanted_changed: asyncio.Event

    @property
    def wanted(self) -> bool: ...

    def granted(self, grants: tuple[Grant, ...]) -> None: ...

    async def obey(self, orders: Mapping[str, str], *, late: bool = False) -> None: ...


class GpuNodeWatch:
    """Follows the GpuNode of this node. ``granted`` is called with the grants of each version, with none where there is
    no GpuNode; ``gone`` when the GpuNode was deleted; ``obey`` with the orders that nobody has answered yet, which are
    taken off when it returns.

    ``_obeyed`` has the orders that were answered and still stand in the object: each is taken for the same order until
    another value stands there, or none. ``_late`` has those that stood there when the watch began and were written
    before: nobody waits for them any more.
    """

    def __init__(
        self,
        requested: Requested,
        clock: Clock | None = None,
        spread: Spread | None = None,
        *,
        gone: Callable[[], None],
    ) -> None:
        self._requested = requested
        self._gone = gone
        self._clock = clock or SystemClock()
        self._spread = spread or Spread()
        self._there = False
        """Whether the server has a GpuNode, one that cannot be read included."""
        self._orders: Mapping[str, str] = {}
        self._obeyed: dict[str, str] = {}
        self._was_off = False
        """Whether the watch was not wanted before it began."""
        self._late: Mapping[str, str] = {}
        self._changed = asyncio.Event()

    async def follow(self, client: Client, node_name: str, random: Callable[[], float]) -> None:
        """Follow the GpuNode while it is wanted, until cancelled."""
        while True:
            self._was_off = not self._requested.wanted
            await self._until(wanted=True)
            self._there = False
            own: Reflector[OwnGpuNode] = Reflector(
                client,
                GPU_NODES,
                read,
                self._hear,
                clock=self._clock,
                backoff=fleet_backoff(random),
                pace=self._spread.pace("own GpuNode"),
                selection=Selection(field_selector=f"metadata.name={node_name}"),
            )
            async with asyncio.TaskGroup() as tasks:
                works = (tasks.create_task(own.run()), tasks.create_task(self._obey_all(client, node_name)))
                await self._until(wanted=False)
                for work in works:
                    work.cancel()

    async def _until(self, *, wanted: bool) -> None:
        while self._requested.wanted is not wanted:
            self._requested.wanted_changed.clear()
            await self._requested.wanted_changed.wait()

    def _hear(self, change: Change[OwnGpuNode]) -> None:
        match change:
            case Added(new=entry) | Changed(new=entry):
                if not self._there:
                    self._late = entry.object.orders if self._was_off or entry.object.took_none else {}
                self._there = True
                self._requested.granted(entry.object.grants)
                self._orders = entry.object.orders
                self._late = {gpu: order for gpu, order in self._late.items() if self._orders.get(gpu) == order}
                self._obeyed = {gpu: order for gpu, order in self._obeyed.items() if gpu in self._orders}
                self._changed.set()
            case Undecodable():
                self._there = True
            case Synced():
                if not self._there:
                    self._requested.granted(())
            case Removed():
                self._gone()
            case _:
                pass

    async def _obey_all(self, client: Client, node_name: str) -> None:
        while True:
            self._changed.clear()
            orders = dict(self._orders)
            fresh = {gpu: order for gpu, order in orders.items() if self._obeyed.get(gpu) != order}
            late = {gpu: order for gpu, order in fresh.items() if self._late.get(gpu) == order}
            if late:
                await self._requested.obey(late, late=True)
            if now := {gpu: order for gpu, order in fresh.items() if gpu not in late}:
                await self._requested.obey(now)
            self._obeyed |= fresh
            left = [
                gpu for gpu, order in sorted(orders.items()) if not await self._take_off(client, node_name, gpu, order)
            ]
            if left:
                await sleep(self._clock, AGAIN_S)
            else:
                await self._changed.wait()

    async def _take_off(self, client: Client, node_name: str, gpu: str, order: str) -> bool:
        """Remove the annotation if it has still this value: a newer order stays. False where nobody knows."""
        pointer = f"/metadata/annotations/{f'{REMEDIATION_ORDER}{gpu}'.replace('~', '~0').replace('/', '~1')}"
        steps = [{"op": "test", "path": pointer, "value": order}, {"op": "remove", "path": pointer}]
        try:
            points.before(Failpoint.ORDER_TAKEN_OFF)
            await client.json_patch(GPU_NODES, node_name, steps, Metadata, field_manager=FIELD_MANAGER)
            points.after(Failpoint.ORDER_TAKEN_OFF)
        except (InvalidError, NotFoundError):
            return True  # somebody else has changed it, or it is gone: the watch tells of what stands there now
        except KubeError as failed:
            log.warning("order not taken off", extra={"gpu": gpu, "error": str(failed)})
            return False
        return True
