"""Watches the objects at the API server that configure this node: its Node's labels, and the GpuLayouts.

    watch of one Node, watch of GpuLayouts -> NodeWatch -> ``changed()``; the listener reads ``labels`` and ``chosen``

Without an API server the watch is silent for ever, and what was last known holds.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct, field

from agent.cluster import gpulayouts
from agent.cluster.gpulayouts import GPU_LAYOUTS, Chosen, Found
from agent.process.spread import Spread, fleet_backoff
from kube.client import Client, Selection
from kube.clock import Clock, SystemClock
from kube.reading.reflector import Added, Change, Changed, Reflector, Removed, Synced, Undecodable
from kube.resources import NODES

CONFIG_LABEL = "nvidia.com/device-plugin.config"


class _Meta(Struct, frozen=True):
    labels: dict[str, str] = field(default_factory=dict)


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Status(Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Node(Struct, frozen=True):
    metadata: _Meta
    status: _Status = _Status()


class NodeWatch:
    """Follows this node's Node and the GpuLayouts. ``changed`` is called from ``follow``'s task after each difference;
    it must not block.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        clock: Clock | None = None,
        spread: Spread | None = None,
        heard: Callable[[str, Mapping[str, str], Mapping[str, str]], None] = lambda _uid, _labels, _conditions: None,
    ) -> None:
        """``heard`` gets the Node's uid and labels, and the status of each condition by its type, with each version of
        it that the watch shows.
        """
        self._changed = changed
        self._clock = clock or SystemClock()
        self._spread = spread or Spread()
        self._heard = heard
        self._labels: Mapping[str, str] | None = None
        self._layouts: dict[str, Found] = {}
        self._layouts_known = False

    @property
    def labels(self) -> Mapping[str, str] | None:
        """The Node's labels; None before anything is known."""
        return self._labels

    @property
    def chosen(self) -> Chosen | None:
        """The layout that the cluster wants here; None before that is known."""
        if self._labels is None or not self._layouts_known:
            return None
        return gpulayouts.choose(self._layouts.values(), self._labels)

    async def follow(self, client: Client, node_name: str, random: Callable[[], float]) -> None:
        """Follow the Node and the GpuLayouts until cancelled. Without the CRD, or the right to read it, there is no
        layout.
        """
        node: Reflector[_Node] = Reflector(
            client,
            NODES,
            msgspec.json.Decoder(_Node).decode,
            self.hear_node,
            clock=self._clock,
            backoff=fleet_backoff(random),
            pace=self._spread.pace("Node"),
            selection=Selection(field_selector=f"metadata.name={node_name}"),
        )
        layouts: Reflector[Found] = Reflector(
            client,
            GPU_LAYOUTS,
            gpulayouts.read,
            self.hear_layout,
            clock=self._clock,
            backoff=fleet_backoff(random),
            pace=self._spread.pace("GpuLayouts"),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(node.run())
            tasks.create_task(layouts.run())

    def hear_node(self, change: Change[_Node]) -> None:
        match change:
            case Added(new=entry) | Changed(new=entry):
                labels = entry.object.metadata.labels
                conditions = {each.type: each.status for each in entry.object.status.conditions}
                self._heard(entry.uid, labels, conditions)
                if labels != self._labels:
                    self._labels = labels
                    self._changed()
            case _:
                pass  # a Node that is deleted keeps what was known of it: it comes back, or the machine goes

    def hear_layout(self, change: Change[Found]) -> None:
        match change:
            case Added(new=entry) | Changed(new=entry):
                self._layouts[entry.object.name] = entry.object
            case Removed(key=key):
                self._layouts.pop(key.name, None)
            case Undecodable(key=key, why=why):
                # The nodes that this GpuLayout selects are unknown: each keeps the layout it has.
                self._layouts[key.name] = Found(key.name, {}, None, f"GpuLayout {key.name}: {why}")
            case Synced():
                self._layouts_known = True
        if self._layouts_known:
            self._changed()
