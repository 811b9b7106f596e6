"""Writes this node's two conditions (``conditions``) by server-side apply on the status of its own Node.

    want() -> the newest -> read the Node -> apply where it differs

An agent that may not write them says so once, and tries again after minutes: without them nothing else is worse.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from agent.cluster.conditions import TYPES, Told, merged
from failpoints import points
from failpoints.names import Failpoint
from inventory.api.names import GPU_READY
from kube.client import Client
from kube.clock import Backoff, Clock, pause_s
from kube.errors import ForbiddenError, KubeError
from kube.objects import Metadata
from kube.resources import NODES

log = logging.getLogger(__name__)

MANAGER: Final = "tessera-agent-conditions"
"""The field manager: an apply of the labels must not take the conditions for dropped."""
UNREADY_S: Final = 10.0
"""The seconds for which a node may be unready before its condition says so: a restart of the agent takes less."""
INTERVAL_S: Final = 1.0
CONTESTED_S: Final = 30.0
"""The shortest time in seconds between two writes of conditions that another client changed."""
FORBIDDEN_S: Final = 600.0


class _Status(Struct, frozen=True):
    conditions: list[dict[str, Any]] = field(default_factory=list)


class _Node(Struct, frozen=True):
    status: _Status = _Status()


class NodeConditions:
    """``want`` may be called at any time and returns at once; ``run`` does the writing.

    ``_unready_s`` is when GPUReady became False in what is wanted; None while it is True.
    """

    def __init__(self, client: Client, node_name: str, *, clock: Clock, backoff: Backoff, resync_s: float) -> None:
        self._client = client
        self._name = node_name
        self._clock = clock
        self._backoff = backoff
        self._resync_s = resync_s
        self._wanted: tuple[Told, ...] = ()
        self._only_there = False
        self._unready_s: float | None = None
        self._written_s = float("-inf")
        self._not_before_s = float("-inf")
        self._may_not = False
        self._pending = False
        self._wake = asyncio.Event()

    @property
    def settled(self) -> bool:
        """Whether everything that is wanted was written, or may not be."""
        return not self._pending

    def want(self, conditions: Sequence[Told], *, only_there: bool = False) -> None:
        """Take the conditions that the Node is to have from now on. ``only_there``: only if it has them already, as
        after a boot without a driver; a node that never had a GPU gets none.
        """
        if (tuple(conditions), only_there) == (self._wanted, self._only_there):
            return
        self._wanted, self._only_there = tuple(conditions), only_there
        ready = all(each.holds for each in self._wanted if each.type == GPU_READY)
        if ready:
            self._unready_s = None
        elif self._unready_s is None:
            self._unready_s = self._clock.monotonic()
        self._pending = True
        self._wake.set()

    def heard(self, statuses: Mapping[str, str]) -> None:
        """Take the statuses of conditions that the Node has, by type: what another client changed is written again."""
        if not self._pending and any(statuses.get(each.type, each.status) != each.status for each in self._wanted):
            self._not_before_s = max(self._not_before_s, self._written_s + CONTESTED_S)
            self._pending = True
            self._wake.set()

    async def run(self, begin_s: float = 0.0) -> None:
        """Write until cancelled, from ``begin_s`` seconds on."""
        self._not_before_s = self._clock.monotonic() + begin_s
        while True:
            self._wake.clear()
            pause = await self._turn()
            await self._clock.wait(self._wake, pause)

    async def _turn(self) -> float | None:
        """Write if it is time. Returns the seconds until it may be; None while nothing is wanted."""
        now_s = self._clock.monotonic()
        if not self._wanted:
            return None
        early_s = max(self._not_before_s, self._written_s + INTERVAL_S) - now_s
        if early_s > 0:
            return early_s
        wait_s = 0.0 if self._unready_s is None else max(0.0, self._unready_s + UNREADY_S - now_s)
        wanted = self._wanted
        try:
            await self._write(wanted, still_ready=wait_s > 0)
        except ForbiddenError as refused:
            if not self._may_not:
                log.warning("node conditions may not be written", extra={"error": str(refused)})
            self._may_not, self._pending = True, False
            self._not_before_s = now_s + FORBIDDEN_S
            return FORBIDDEN_S
        except KubeError as failed:
            log.info("node conditions not written", extra={"error": str(failed)})
            pause = max(pause_s(failed, self._backoff), INTERVAL_S)
            self._not_before_s = now_s + pause
            return pause
        self._backoff.reset()
        self._may_not = False
        self._written_s = now_s
        if wait_s > 0:
            return wait_s
        if wanted is self._wanted:
            self._pending = False
        return self._resync_s

    async def _write(self, wanted: tuple[Told, ...], *, still_ready: bool) -> None:
        """Apply what differs. ``still_ready``: GPUReady stays for now as it is."""
        there = (await self._client.get(NODES, self._name, _Node)).status.conditions
        known = {each.get("type") for each in there}
        if self._only_there:
            wanted = tuple(each for each in wanted if each.type in known)
        if still_ready:
            wanted = tuple(each for each in wanted if each.type != GPU_READY)
        # An apply that leaves one of ours out would remove it.
        left = set(TYPES) - {each.type for each in wanted}
        kept = [each for each in there if each.get("type") in left]
        made = merged(there, wanted, self._clock.wall())
        if made is None:
            return
        body = {
            "apiVersion": NODES.api_version,
            "kind": NODES.kind,
            "metadata": {"name": self._name},
            "status": {"conditions": [*kept, *made]},
        }
        points.before(Failpoint.NODE_CONDITIONS)
        await self._client.apply(
            NODES, self._name, body, Metadata, field_manager=MANAGER, force=True, subresource="status"
        )
        points.after(Failpoint.NODE_CONDITIONS)
