"""Writes this node's two conditions (``conditions``) by server-side apply on the status of its own Node.

    want() -> LatestWriter -> read the Node -> apply where it differs

An agent that may not write them says so once, and tries again after minutes: without them nothing else is worse.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from agent.cluster.conditions import TYPES, Told, merged
from failpoints import points
from failpoints.names import Failpoint
from inventory.api.names import GPU_READY
from kube.client import Client
from kube.clock import Backoff, Clock
from kube.errors import ForbiddenError
from kube.objects import Metadata
from kube.resources import NODES
from kube.writing.latest import LatestWriter

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

    ``_unready_s`` is when GPUReady became False in what is wanted; None while it is True. ``_may_not_until_s``: an API
    server that refuses the conditions is left alone until then.
    """

    def __init__(self, client: Client, node_name: str, *, clock: Clock, backoff: Backoff, resync_s: float) -> None:
        self._client = client
        self._name = node_name
        self._clock = clock
        self._wanted: tuple[Told, ...] = ()
        self._only_there = False
        self._unready_s: float | None = None
        self._may_not_until_s: float | None = None
        self._loop: LatestWriter[tuple[Told, ...]] = LatestWriter(
            "node conditions",
            self._write_if_allowed,
            clock=clock,
            backoff=backoff,
            min_interval_s=INTERVAL_S,
            resync_s=resync_s,
        )

    @property
    def settled(self) -> bool:
        """Whether everything that is wanted was written, or may not be."""
        return self._loop.settled

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
        self._loop.put(self._wanted)

    def heard(self, statuses: Mapping[str, str]) -> None:
        """Take the statuses of conditions that the Node has, by type: what another client changed is written again."""
        if any(statuses.get(each.type, each.status) != each.status for each in self._wanted):
            self._loop.look_again(CONTESTED_S)

    async def run(self, begin_s: float = 0.0) -> None:
        """Write until cancelled, from ``begin_s`` seconds on."""
        await self._loop.run(begin_s)

    async def _write_if_allowed(self, wanted: tuple[Told, ...]) -> None:
        now_s = self._clock.monotonic()
        if self._may_not_until_s is not None and now_s < self._may_not_until_s:
            self._loop.look_again(self._may_not_until_s - now_s)
            return
        wait_s = 0.0 if self._unready_s is None else max(0.0, self._unready_s + UNREADY_S - now_s)
        try:
            await self._write(wanted, still_ready=wait_s > 0)
        except ForbiddenError as refused:
            if self._may_not_until_s is None:
                log.warning("node conditions may not be written", extra={"error": str(refused)})
            self._may_not_until_s = now_s + FORBIDDEN_S
            self._loop.look_again(FORBIDDEN_S)
            return
        self._may_not_until_s = None
        if wait_s > 0:
            self._loop.look_again(wait_s)

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
        others = [each for each in there if each.get("type") in left]
        made = merged(there, wanted, self._clock.wall())
        if made is None:
            return
        body = {
            "apiVersion": NODES.api_version,
            "kind": NODES.kind,
            "metadata": {"name": self._name},
            "status": {"conditions": [*others, *made]},
        }
        points.before(Failpoint.NODE_CONDITIONS)
        await self._client.apply(
            NODES, self._name, body, Metadata, field_manager=MANAGER, force=True, subresource="status"
        )
        points.after(Failpoint.NODE_CONDITIONS)
