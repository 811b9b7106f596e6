"""Counts how often nodes of each flavor are taken away, live, and writes it into the flavors.

Nodes, ResourceFlavors, nodes that leave with pods -> controller.reconcile.failures.interruptioncounts -> annotations

The engine reads from the annotation that a flavor comes last; the next leader counts on from the record beside it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import FLAVORS, NODES
from controller.cluster.writing.stampedwrites import stamped_write
from controller.objects.core import Node
from controller.objects.meta import ObjectMeta, epoch_s
from controller.objects.queues import ResourceFlavor
from controller.reconcile.failures.interruptioncounts import InterruptionCounts, InterruptionRecord, read_record
from controller.reconcile.failures.interruptions import notice_of
from controller.scheduler.model.config import InterruptionRules
from failpoints.names import Failpoint
from inventory.api.names import INTERRUPTIONS
from kube.clock import Clock, Turns
from kube.reading.reflector import Added, Changed, Removed
from kube.writing.writes import Abandoned, Missing, Outcome, Verb, Write, Written

log = logging.getLogger(__name__)

_TOGETHER_S: Final = 0.1
"""The time for which departures are gathered: a provider takes many nodes at once."""
_AGAIN_S: Final = 1.0
_SHOWN_S: Final = 5.0
"""The time after which annotations that were written and are not seen in the flavor are written again."""
_LOOK_S: Final = 60.0
"""How often the counts are looked at for the time alone."""


class FlavorInterruptions:
    """``hear`` takes changes of nodes and flavors, ``served`` nodes that are taken away with pods on them; ``run``,
    from when all of them are known, works until cancelled. ``count`` counts a departure in a flavor.
    """

    def __init__(
        self,
        rules: InterruptionRules,
        taints: Collection[str],
        put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"],
        *,
        clock: Clock,
        count: Callable[[str], None],
    ) -> None:
        self.counts = InterruptionCounts(rules)
        self._taints = taints
        self._put = put
        self._clock = clock
        self._count = count
        self._turns = Turns(clock, together_s=_TOGETHER_S)
        self._flavors: dict[str, ObjectMeta] = {}
        self._writing: set[str] = set()
        self._rests_s: dict[str, float] = {}
        """Until when a flavor is left alone, unless it changes: one that could not be written, or was and is not seen
        yet.
        """
        self._refreshed_s: dict[str, float] = {}
        """When a flavor's annotations were last written, or when it was seen for the first time."""

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == NODES:
                self._hear_node(key.name, entry.object)
            case Removed(key=key) if observed.resource == NODES:
                self.counts.drop_node(key.name, self._clock.wall())
                if not self.counts.is_idle:
                    self._turns.wake()
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == FLAVORS:
                self._hear_flavor(key.name, entry.object)
            case Removed(key=key) if observed.resource == FLAVORS:
                self.counts.set_flavor(key.name, None, InterruptionRecord())
                self._flavors.pop(key.name, None)
                self._rests_s.pop(key.name, None)
                self._refreshed_s.pop(key.name, None)

    def _hear_node(self, name: str, node: Node) -> None:
        now_s, created = self._clock.wall(), node.metadata.creation_timestamp
        self.counts.set_node(name, node.metadata.labels, None if created is None else epoch_s(created), now_s)
        if not notice_of(node, self._taints):
            self.counts.stays(name)

    def _hear_flavor(self, name: str, flavor: ResourceFlavor) -> None:
        meta = flavor.metadata
        self.counts.set_flavor(name, flavor.spec.node_labels, read_record(meta.annotations.get(INTERRUPTIONS)))
        self._flavors[name] = meta
        self._rests_s.pop(name, None)
        self._refreshed_s.setdefault(name, self._clock.wall())
        self._turns.wake()

    def served(self, node: str) -> None:
        """Take in that a node is taken away while pods of queued workloads are on it."""
        counted = self.counts.count(node, self._clock.wall())
        for flavor in counted:
            self._count(flavor)
        if counted:
            self._turns.wake()

    async def run(self) -> None:
        """Work until cancelled, from when all nodes are known."""
        self.counts.forget_gone()
        while True:
            await self._turns.next(None if self.counts.is_idle else self._clock.wall() + _LOOK_S)
            self.reconcile()

    def reconcile(self) -> None:
        """Submits the writes that are due."""
        now_s = self._clock.wall()
        self.counts.prune(now_s)
        for name, meta in self._flavors.items():
            if name in self._writing:
                continue  # its end is a turn's cause
            if (rests_s := self._rests_s.get(name, 0.0)) > now_s:
                self._turns.again(rests_s - now_s)
                continue
            refresh = now_s >= self._refreshed_s[name] + self.counts.width_s
            due = self.counts.due(name, meta.annotations, now_s, refresh=refresh)
            if due:
                self._refreshed_s[name] = now_s
                self._write(name, meta, due)

    def _write(self, name: str, meta: ObjectMeta, annotations: Mapping[str, str | None]) -> None:
        """Write on this version of the flavor alone: a former leader's late write is refused."""
        metadata = {"uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": annotations}
        self._writing.add(name)
        body = {"metadata": metadata}
        done = self._put(
            stamped_write(Verb.MERGE_PATCH, FLAVORS, {"name": name}, body, Failpoint.INTERRUPTIONS_RECORDED)
        )
        done.add_done_callback(partial(self._ended, name, meta))

    def _ended(self, name: str, written: ObjectMeta, future: "asyncio.Future[Outcome[Any]]") -> None:
        """Take in how a write ended. A flavor that has changed since it was written is looked at again at once."""
        outcome = future.result()
        self._writing.discard(name)
        if not isinstance(outcome, Written | Missing | Abandoned):
            log.info("flavor %s: its interruptions could not be written, trying on: %s", name, outcome)
        if self._flavors.get(name) is written:
            self._rests_s[name] = self._clock.wall() + (_SHOWN_S if isinstance(outcome, Written) else _AGAIN_S)
        self._turns.wake()
