"""The tables of all topics: one round reads the controller's state and brings them up to date. Pure.

A round is a generator: the event loop runs other tasks between its parts. Rows of one round may be of slightly
different moments; the next round has what changed meanwhile.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from controller.objects.core import Node
from controller.objects.decode import GpuNode
from controller.people.history.figures import FiguresOf
from controller.people.page.fleetrows import node_row
from controller.people.page.queuerows import Json, WithPods, holder_rows, pending_rows, tree_rows
from controller.people.page.table import Table
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey

TOPICS: Final = ("fleet", "queues", "pending", "workloads")
_PART: Final = 50
_NODES: Final = 10
"""Rows between two pauses: some milliseconds of work if all of them are made anew."""
_GPUS: Final = "nvidia.com/gpu"


class State(NamedTuple):
    """What a round reads. ``workload_of``: a pod's Workload. ``figures`` is another object whenever a figure changed.
    ``with_pods``: Workloads of which a pod runs, None while pods are not known. ``now_s``: windows of calendars
    that hold then are shown.
    """

    engine: Engine
    nodes: Callable[[], Mapping[str, Node]]
    gpu_nodes: Callable[[], Mapping[str, GpuNode]]
    workload_of: Callable[[str], str | None]
    figures: FiguresOf
    forecast_of: Callable[[WorkloadKey], Json | None]
    with_pods: Callable[[], WithPods] = lambda: None
    now_s: float = 0.0


class Live:
    """The tables by topic. ``epoch`` names this object: a revision of another epoch means nothing here."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(4)
        self.tables = {topic: Table() for topic in TOPICS}
        self.levels: tuple[str, ...] = ()
        self._secret = secrets.token_bytes(32)

    def key_of(self, workload: str) -> str:
        """The key of a workload's row: it tells nothing of the name, and is the same for all readers."""
        return "w" + hmac.digest(self._secret, workload.encode(), hashlib.sha256)[:9].hex()

    def round(self, state: State, topics: Collection[str]) -> Iterator[None]:
        """One round of these topics, in parts."""
        for topic in TOPICS:
            if topic in topics:
                yield from getattr(self, f"_{topic}")(state, self.tables[topic])
                self.tables[topic].finish()

    def _fleet(self, state: State, table: Table) -> Iterator[None]:
        self.levels = levels(state.engine)
        nodes, gpu_nodes = state.nodes(), state.gpu_nodes()
        names = {*gpu_nodes, *(name for name, node in nodes.items() if _GPUS in node.status.capacity)}
        for count, name in enumerate(sorted(names)):
            node, found = nodes.get(name), gpu_nodes.get(name)
            of = (node, found, self.levels, state.figures)
            table.take(name, of, lambda n=name, a=node, b=found: self._node(state, n, a, b))  # type: ignore[misc]
            if count % _NODES == _NODES - 1:
                yield

    def _node(self, state: State, name: str, node: Node | None, found: GpuNode | None) -> Json:
        return node_row(name, node, found, self.levels, state.workload_of, state.figures)

    def _queues(self, state: State, table: Table) -> Iterator[None]:
        for key, row in tree_rows(state.engine, state.with_pods(), state.now_s):
            table.take(key, row, lambda row=row: row)  # type: ignore[misc]
        yield

    def _pending(self, state: State, table: Table) -> Iterator[None]:
        count = 0
        for queue in sorted(state.engine.state.cluster.queues):
            if queue not in state.engine.state.cluster.queues:
                continue
            for due in pending_rows(state.engine, queue, self.key_of, state.forecast_of):
                table.take(*due)
                count += 1
                if count % _PART == 0:
                    yield

    def _workloads(self, state: State, table: Table) -> Iterator[None]:
        rows = holder_rows(state.engine.state.cluster.holders, self.key_of, state.with_pods())
        for count, due in enumerate(rows):
            table.take(*due)
            if count % _PART == _PART - 1:
                yield


def levels(engine: Engine) -> tuple[str, ...]:
    """Labels of the deepest Topology, the outermost first; of equally deep Topologies the first by name counts."""
    found = engine.state.cluster.topologies
    deepest = min(found.values(), key=lambda each: (-len(each.spec.levels), each.metadata.name), default=None)
    return tuple(level.node_label for level in deepest.spec.levels) if deepest is not None else ()
