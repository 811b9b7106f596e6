"""Telling the cluster: node labels, the GpuNode object and Events.

    publish_labels(), publish_gpunode(), event()  ->  latest state  ->  API server

Everything handed in returns at once; ``run`` does the writing, waits out outages and sends the newest state only. The
three do not hold each other up. Labels are applied with the Node's uid, so that a Node that is gone is never created
again; what no longer holds is removed even where another manager co-owns it, once: if it comes back, an Event names
who else writes it, and we leave it alone.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, structs

from agent.cluster.conditions_shell import NodeConditions
from agent.cluster.gpunode import GPU_NODES, GpuNode, observed, owned_by
from agent.cluster.labels import ANSWERS, is_published
from agent.config.settings import FIELD_MANAGER
from agent.process.spread import Spread, fleet_backoff
from agent.words import node as words
from failpoints import points
from failpoints.names import Failpoint
from inventory.api.names import AGENT
from kube.client import Client
from kube.clock import Clock
from kube.config import ClusterConfig
from kube.errors import InvalidError, NotFoundError
from kube.objects import Metadata, ObjectMeta, ObjectReference, label_managers
from kube.resources import NODES
from kube.writing.events import EventRecorder, Occurrence
from kube.writing.latest import LatestWriter

log = logging.getLogger(__name__)

GPUNODE_INTERVAL_S = 1.0
LABELS_INTERVAL_S = 1.0
RESYNC_S = (600.0, 1200.0)
"""The range, in seconds, from which the node's name picks how often labels and GpuNode are compared with the server:
another client may have undone them.
"""
CONTESTED_S = 300.0
"""The shortest time in seconds between two writes of labels that another client undid, but for the first: two clients
must not race, and a client that leaves takes labels away once.
"""

EventType = Literal["Normal", "Warning"]


class KubePublisher:
    """Writes to the API server that ``config`` names, for the Node ``node_name``."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        node_name: str,
        clock: Clock,
        random: Callable[[], float],
        spread: Spread | None = None,
    ) -> None:
        self._name = node_name
        self._clock = clock
        self._spread = spread or Spread(node_name)
        self._client = Client(config, user_agent=FIELD_MANAGER, clock=clock)
        self._beside: list[Callable[[Client], Coroutine[Any, Any, None]]] = []
        self._uid: str | None = None
        self._wanted: GpuNode | None = None
        self._wanted_labels: Mapping[str, str] | None = None
        self._applied: GpuNode | None = None
        self._labels = _LabelWriter(self._client, node_name, clock, self.event, self._seen)
        self._label_loop: LatestWriter[Mapping[str, str]] = LatestWriter(
            "node labels",
            self._labels.write,
            clock=clock,
            backoff=fleet_backoff(random),
            min_interval_s=LABELS_INTERVAL_S,
            resync_s=self._spread.every_s("labels", *RESYNC_S),
        )
        self._gpunode_loop: LatestWriter[GpuNode] = LatestWriter(
            "GpuNode",
            self._write_gpunode,
            clock=clock,
            backoff=fleet_backoff(random),
            min_interval_s=GPUNODE_INTERVAL_S,
            resync_s=self._spread.every_s("GpuNode", *RESYNC_S),
        )
        self.conditions = NodeConditions(
            self._client,
            node_name,
            clock=clock,
            backoff=fleet_backoff(random),
            resync_s=self._spread.every_s("conditions", *RESYNC_S),
        )
        self._events = EventRecorder(
            self._client, controller=AGENT, instance=node_name, clock=clock, backoff=fleet_backoff(random)
        )

    @property
    def settled(self) -> bool:
        """Whether everything that was handed in has arrived."""
        loops = (self._label_loop, self._gpunode_loop, self.conditions, self._events)
        return all(each.settled for each in loops)

    def publish_labels(self, labels: Mapping[str, str]) -> None:
        strange = [key for key in labels if not is_published(key) and key not in ANSWERS]
        assert not strange, f"not ours to write: {strange}"
        if labels != self._wanted_labels:
            self._wanted_labels = dict(labels)
            self._label_loop.put(self._wanted_labels)

    def publish_gpunode(self, gpunode: GpuNode) -> None:
        if gpunode == self._wanted:
            return
        self._wanted = gpunode
        self._gpunode_loop.put(observed(gpunode, self._clock.wall()))

    def event(self, *, reason: str, action: str, note: str, type_: EventType = "Normal") -> None:
        # The name stands for the uid, as in kubelet's own Events about its node: `kubectl describe node` looks for
        # both, and an Event from before the Node was first read belongs to the same series as a later one.
        regarding = ObjectReference(api_version=NODES.api_version, kind=NODES.kind, name=self._name, uid=self._name)
        self._events.record(Occurrence(regarding=regarding, reason=reason, action=action, note=note, type=type_))

    async def run(self) -> None:
        async with self._client, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._label_loop.run(self._spread.start_s("labels")))
            tasks.create_task(self._gpunode_loop.run(self._spread.start_s("GpuNode")))
            tasks.create_task(self.conditions.run(self._spread.start_s("conditions")))
            tasks.create_task(self._events.run())
            for work in self._beside:
                tasks.create_task(work(self._client))

    def beside(self, work: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
        """Give ``run`` a coroutine function to run too, with the same client."""
        self._beside.append(work)

    def restarted(self) -> None:
        """Tell the publisher that an earlier agent has published this node, so that the agents of a fleet that restarts
        need not all write at once.
        """
        self._spread = structs.replace(self._spread, restarted=True)

    def heard(self, uid: str, labels: Mapping[str, str]) -> None:
        """Take the Node's uid and labels, as a watch saw them; labels that another client changed are written again."""
        self._seen(uid)
        wanted = self._wanted_labels
        if wanted is not None and not (labels.items() >= wanted.items() and not _stale(labels, wanted)):
            self._label_loop.look_again(CONTESTED_S if self._labels.is_contested() else LABELS_INTERVAL_S)

    def _seen(self, uid: str) -> None:
        """Take the Node's uid. If it differs from the one before, the old Node's GpuNode went with it and is written
        anew.
        """
        changed = self._uid is not None and self._uid != uid
        self._uid = uid
        if changed and self._wanted is not None:
            self._gpunode_loop.put(observed(self._wanted, self._clock.wall()))

    def gpunode_gone(self) -> None:
        """Write the GpuNode anew, which a watch saw deleted. It may have gone with its Node: that is read again first,
        since a GpuNode of a Node that is no more would be deleted again, time after time.
        """
        self._uid = None
        if self._wanted is not None:
            self._gpunode_loop.put(observed(self._wanted, self._clock.wall()))

    async def _write_gpunode(self, gpunode: GpuNode) -> None:
        """Write the GpuNode if the server does not hold it already. The server's object is read before the first write,
        and when an unchanged GpuNode is compared with it: a write costs the server more than a read.
        """
        uid = self._uid or (await self._client.get(NODES, self._name, Metadata)).metadata.uid
        body = owned_by(gpunode, uid)
        if self._applied not in (None, body) or not await self._is_there(body):
            points.before(Failpoint.GPU_NODE)
            await self._client.apply(GPU_NODES, self._name, body, Metadata, field_manager=FIELD_MANAGER, force=True)
            points.after(Failpoint.GPU_NODE)
        self._applied = body

    async def _is_there(self, body: GpuNode) -> bool:
        """Whether the server holds this content already, as after a restart of the agent that changed nothing."""
        try:
            published = await self._client.get(GPU_NODES, self._name, _FoundGpuNode)
        except NotFoundError:
            return False
        same_owner = published.metadata.owner_references == body.metadata.owner_references
        return same_owner and _content(published.status) == _content(body.status)


class _FoundGpuNode(Struct):
    """A GpuNode as the server has it, perhaps written by another version: no shape is expected of its status."""

    metadata: ObjectMeta
    status: dict[str, Any] = {}


_NOT_COMPARED: Final = frozenset({"observedAt", "remediationGrants"})
"""The time of a change is none itself, and the grants are the controller's: the agent applies none."""


def _content(status: object) -> dict[str, Any]:
    """The status as plain JSON values, as far as the agent answers for it."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(status))
    return {key: value for key, value in plain.items() if key not in _NOT_COMPARED}


class _NodeLabels(Struct, rename="camel"):
    """The body of the server-side apply: the Node's identity and our labels."""

    metadata: dict[str, Any]
    api_version: str = NODES.api_version
    kind: str = NODES.kind


class _LabelWriter:
    """Brings the Node's labels to what is wanted, touching only those that ``is_published``."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        clock: Clock,
        event: Callable[..., None],
        seen: Callable[[str], None],
    ) -> None:
        self._client = client
        self._name = node_name
        self._clock = clock
        self._undone_at_s: float | None = None
        self._event = event
        self._seen = seen
        self._applied: Mapping[str, str] = {}
        self._removed: set[str] = set()
        """Labels that were removed although another manager co-owns them. If one comes back, it is left to that
        manager.
        """
        self._told: set[str] = set()

    def is_contested(self) -> bool:
        """Whether another client undid labels within the last ``CONTESTED_S``, as a look at the Node found."""
        return self._undone_at_s is not None and self._clock.monotonic() - self._undone_at_s < CONTESTED_S

    async def write(self, wanted: Mapping[str, str]) -> None:
        """One pass: read, apply where something differs, remove what is left. Raises KubeError to be called again."""
        meta = (await self._client.get(NODES, self._name, Metadata)).metadata
        self._seen(meta.uid)
        self._removed -= set(wanted)
        for key, value in wanted.items():
            if self._applied.get(key) == value and meta.labels.get(key) != value:
                self._tell(key, meta, words.label_set_back)
        if not _holds(meta, wanted):
            # A uid that no longer fits is a conflict: the next attempt reads the new Node.
            body = _NodeLabels(metadata={"name": self._name, "uid": meta.uid, "labels": dict(wanted)})
            points.before(Failpoint.NODE_LABELS)
            applied = await self._client.apply(
                NODES, self._name, body, Metadata, field_manager=FIELD_MANAGER, force=True
            )
            points.after(Failpoint.NODE_LABELS)
            meta = applied.metadata
        self._applied = dict(wanted)
        for key, value in _stale(meta.labels, wanted).items():
            if key in self._removed:
                self._tell(key, meta, words.label_left)
            else:
                await self._remove(key, value, meta)

    async def _remove(self, key: str, value: str, meta: ObjectMeta) -> None:
        pointer = f"/metadata/labels/{key.replace('~', '~0').replace('/', '~1')}"
        steps = [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
            {"op": "test", "path": pointer, "value": value},
            {"op": "remove", "path": pointer},
        ]
        try:
            points.before(Failpoint.NODE_LABEL_REMOVED)
            await self._client.json_patch(NODES, self._name, steps, Metadata, field_manager=FIELD_MANAGER)
            points.after(Failpoint.NODE_LABEL_REMOVED)
        except InvalidError as error:
            # Another client changed the label in between: the next pass reads the new value.
            log.info("label %s was not removed: %s", key, error)
            return
        self._removed.add(key)

    def _tell(self, key: str, meta: ObjectMeta, say: Callable[[str, str], str]) -> None:
        """Record one Event for each contested label, once in the life of this process."""
        self._undone_at_s = self._clock.monotonic()
        if key in self._told:
            return
        self._told.add(key)
        others = [name for name in label_managers(meta, key) if name != FIELD_MANAGER]
        change = f"{key}={meta.labels[key]}" if key in meta.labels else f"{key} removed"
        self._event(
            reason="LabelContested",
            action="PublishLabels",
            note=say(change, ", ".join(others) or "another client"),
            type_="Warning",
        )


def _stale(labels: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Labels of the Node that are ours to say and no longer hold."""
    return {key: value for key, value in labels.items() if is_published(key) and key not in wanted}


def _holds(meta: ObjectMeta, wanted: Mapping[str, str]) -> bool:
    """Whether an apply would change nothing: every label is there and ours, and we own no other."""
    owned = {
        key.removeprefix("f:")
        for entry in meta.managed_fields
        if (entry.manager, entry.operation) == (FIELD_MANAGER, "Apply")
        for key in entry.fields.get("f:metadata", {}).get("f:labels", {})
        if key != "."
    }
    return owned == set(wanted) and all(meta.labels.get(key) == value for key, value in wanted.items())
