"""Marks pods Failed that hang on unreachable nodes, if the gate FailureRecoveryPolicy is on.

nodes -> pods of those that cannot be reached, read from the API server -> reconcile.failures.stuckpods -> status

An unreachable node is rare: its pods are read at intervals while it is. Rejected: to watch all pods.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import NODES, PODS
from controller.cluster.writing.stampedwrites import stamped_write
from controller.jobs.framework.raw import Json
from controller.objects.core import Node
from controller.reconcile.failures.stuckpods import REASON, is_unreachable, recovery
from failpoints.names import Failpoint
from kube.client import Client, Selection
from kube.clock import Clock
from kube.errors import KubeError
from kube.objects import ObjectReference
from kube.reading.reflector import Added, Changed, Removed
from kube.writing.writes import Outcome, Verb, Write, Written

log = logging.getLogger(__name__)

FEATURE: Final = "FailureRecoveryPolicy"
_LOOK_S: Final = 10.0


class StuckPodController:
    """``hear`` takes changes of nodes, ``run`` works until cancelled. ``tell`` records an Event: about what, type,
    reason, note.
    """

    def __init__(
        self,
        client: Client,
        put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"],
        *,
        clock: Clock,
        tell: Callable[[ObjectReference, str, str, str], None],
    ) -> None:
        self._client = client
        self._put = put
        self._clock = clock
        self._tell = tell
        self._unreachable: dict[str, Node] = {}
        self._event = asyncio.Event()

    def hear(self, observed: ObjectChange) -> None:
        if observed.resource != NODES:
            return
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if is_unreachable(entry.object):
                if key.name not in self._unreachable:
                    self._event.set()
                self._unreachable[key.name] = entry.object
            case Added(key=key) | Changed(key=key) | Removed(key=key):
                self._unreachable.pop(key.name, None)

    async def run(self) -> None:
        while True:
            await self._clock.wait(self._event, _LOOK_S if self._unreachable else None)
            self._event.clear()
            for node in list(self._unreachable.values()):
                try:
                    await self._look(node)
                except KubeError as error:
                    log.warning("node %s: its pods cannot be read: %s", node.metadata.name, error)

    async def _look(self, node: Node) -> None:
        on_node = Selection(field_selector=f"spec.nodeName={node.metadata.name}")
        listed = await self._client.list_all(PODS, dict[str, Any], on_node)
        for pod in listed.items:
            found = recovery(pod, node)
            if found is not None and found.due_s <= self._clock.wall():
                await self._give_up(pod, found.status, found.note)

    async def _give_up(self, pod: Json, status: Json, note: str) -> None:
        meta = pod["metadata"]
        # The patch is tied to the version that was read: conditions are replaced as a whole.
        tied = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        body = {"metadata": tied, "status": status}
        outcome = await self._put(
            stamped_write(Verb.MERGE_PATCH, PODS, meta, body, Failpoint.POD_STUCK, subresource="status", slot=REASON)
        )
        if isinstance(outcome, Written):
            about = ObjectReference("v1", "Pod", meta["name"], meta["uid"], meta["namespace"])
            self._tell(about, "Warning", REASON, note)
