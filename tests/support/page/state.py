"""A controller's state by size and seed: objects, the engine that decided about them, what the page's encoder reads.

``EVIL`` stands in every name, label and message where a test wants to see that none of it becomes HTML.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from controller.cluster.process.view import Forecasts
from controller.insight.forecast.changes.changes import changes
from controller.insight.forecast.forecast import Forecast, Forecaster
from controller.insight.forecast.parts import finished
from controller.insight.forecast.shown import Foretold
from controller.insight.podtroubles import FailurePolicy, pods_shown
from controller.objects.core import Node
from controller.objects.decode import GpuNode
from controller.objects.placeencoding import hosts
from controller.objects.workload import Workload
from controller.people.history.figures import Figures
from controller.people.page.live import TOPICS, Live
from controller.people.page.live import State as Read
from controller.people.page.visiblenamespaces import VisibleNamespaces
from controller.people.visibility.answers import Answers
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import ResourceName, WorkloadKey
from hack.bench.decisions.engineload import POLICIES
from tests.support.page import objects
from tests.support.page.objects import GPUS, NOW, TEAMS

Row = dict[str, Any]

EVIL = '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'
HIDDEN = "team-robotics"
"""The page's reader may not see what is in this namespace."""


@dataclass
class State:
    """What a controller knows. ``pods``: the Workload of each, both as ``namespace/name``; they run, but for those of
    the workloads of ``starting``.
    """

    engine: Engine
    workloads: dict[WorkloadKey, Workload] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    gpu_nodes: dict[str, GpuNode] = field(default_factory=dict)
    pods: dict[str, str] = field(default_factory=dict)
    starting: set[WorkloadKey] = field(default_factory=set)
    figures: dict[str, Figures] = field(default_factory=dict)
    forecaster: Forecaster = field(default_factory=Forecaster)
    forecasts: dict[WorkloadKey, Forecast] = field(default_factory=dict)

    @property
    def known(self) -> frozenset[str]:
        return frozenset(f"team-{team}" for team in TEAMS)

    @property
    def visible(self) -> VisibleNamespaces:
        return VisibleNamespaces(self.known - {HIDDEN})

    @property
    def answers(self) -> Answers:
        return Answers(self.engine, self.workloads.get, NOW)

    def read(self) -> Read:
        """What the page's rows are made of."""
        foretold = Forecasts(self.forecasts, NOW).of
        nodes, gpu_nodes = (lambda: self.nodes), (lambda: self.gpu_nodes)
        return Read(self.engine, nodes, gpu_nodes, self.pods.get, self.figures, foretold, self.with_pods, NOW)

    def with_pods(self) -> frozenset[WorkloadKey]:
        """Workloads of which a pod runs."""
        return frozenset(map(WorkloadKey, self.pods.values())) - self.starting

    def pods_shown(self, workload: Workload) -> Row | None:
        """How its pods do, as the page's server tells it."""
        key = WorkloadKey(workload.key)
        names = sorted(pod.partition("/")[2] for pod, of in self.pods.items() if of == key)
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "the image cannot be pulled"}}
        status: Row = {"phase": "Running"}
        if key in self.starting:
            status = {"phase": "Pending", "containerStatuses": [{"name": "main", "state": waiting}]}
        pods = [{"metadata": {"name": each, "namespace": key.partition("/")[0]}, "status": status} for each in names]
        return pods_shown(workload, pods, self.gpu_nodes.values(), FailurePolicy(), datetime.fromtimestamp(NOW, UTC))

    def foretold(self, key: WorkloadKey) -> Foretold:
        """Of one that waits."""
        if key not in self.forecasts:
            return Foretold()
        found = changes(self.engine, self.workloads[key], NOW, self.forecaster.ends_at(self.engine, NOW))
        return Foretold({key: self.forecasts[key]}, tuple(found))

    def take(self, workload: Workload) -> None:
        self.workloads[WorkloadKey(workload.key)] = workload
        self.forecaster.observe(workload)
        self.engine.put(workload, NOW)

    def drop(self, workload: Workload) -> None:
        del self.workloads[WorkloadKey(workload.key)]
        self.engine.drop(Workload, workload.metadata.namespace, workload.metadata.name, NOW)

    def settle(self) -> None:
        """What is decided is written, until nothing is left to decide."""
        while not self.engine.settled(NOW):
            for decision in self.engine.cycle(NOW).made:
                before = self.workloads[WorkloadKey(decision.key)]
                self.take(msgspec.structs.replace(before, status=decision.status().status))

    def rows(self, topic: str) -> list[Row]:
        """As the controller's encoder makes them and the page's reader sees them, in their order."""
        live = Live()
        for _ in live.round(self.read(), TOPICS):
            pass
        raw = [msgspec.json.decode(row.raw) for row in live.tables[topic].rows.values()]
        return [self.visible.shown(row, self.known, self.answers.queue_of) for row in raw]


def made(*, nodes: int, workloads: int, seed: int = 7, mark: str = "") -> State:
    """A fleet of 8 GPUs a node, 64 nodes a block, 8 a rack, and more work than it takes. ``mark`` is part of names."""
    state = State(Engine(POLICIES["tessera"]))
    for one in objects.queues(nodes, mark):
        state.engine.put(one, NOW)
    for at in range(nodes):
        one = objects.node(at, mark)
        state.nodes[one.metadata.name] = one
        state.engine.put(one, NOW)
    for each in objects.workloads(workloads, seed, mark):
        state.take(each)
    state.settle()
    held = _devices(state)
    state.starting = set(list(state.engine.state.cluster.holders)[10::30])
    for at in range(nodes):
        found = objects.gpu_node(at, held[f"node-{at}{mark}"], seed, mark)
        state.gpu_nodes[found.metadata.name] = found
    _measure(state, random.Random(seed))
    state.forecasts = finished(state.forecaster.parts(state.engine, NOW))
    return state


def _devices(state: State) -> dict[str, dict[int, str]]:
    """Pods by node and index of their GPU: each pod where the engine placed it, on the node's next GPUs."""
    held: dict[str, dict[int, str]] = defaultdict(dict)
    for holder in state.engine.state.cluster.holders.values():
        (pod_set,) = holder.info.pod_sets
        each = pod_set.requests[ResourceName(objects.GPU)] // pod_set.count
        for number, node in enumerate(_places(holder.info.workload)):
            pod = f"{holder.key}-{number}"
            state.pods[pod] = holder.key
            free = [index for index in range(GPUS) if index not in held[node]]
            held[node] |= dict.fromkeys(free[:each], pod)
    return held


def _places(workload: Workload) -> Iterator[str]:
    """The node of each pod."""
    admission = workload.status.admission
    for assigned in admission.pod_set_assignments if admission is not None else ():
        yield from hosts(assigned.topology_assignment)


def _measure(state: State, draw: random.Random) -> None:
    """What each whole GPU does: one that is held is at work, but for one of twenty."""
    for found in state.gpu_nodes.values():
        busy = {each.physical for each in found.status.holders}
        for device in found.status.devices:
            if device.mode == "whole":
                share = round(min(1.0, max(0.02, draw.gauss(0.82, 0.18))), 2)
                share = share if device.uuid in busy and draw.random() >= 0.05 else 0.0
                state.figures[device.uuid] = Figures(
                    busy=share, used_mib=round(share * 70_000), peak=share, temperature_c=40 + 5 * round(share * 7)
                )
