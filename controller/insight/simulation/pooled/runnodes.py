"""The nodes of a run: keeps the engine's Nodes as the pools have them, and workloads from starting before theirs are
there.

A workload whose nodes are coming holds its quota and is not admitted: an admission check of ours, which no queue names,
is Pending until they are there.
"""

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from controller.insight.simulation.manifests import Scenario
from controller.insight.simulation.pooled.implied import in_phase
from controller.insight.simulation.pooled.interruptedflavors import InterruptedFlavors
from controller.insight.simulation.pools.nodepools import Hit, NodePhase, NodePools
from controller.messages import statuses as words
from controller.messages.spans import exact
from controller.objects.core import Node
from controller.objects.decode import GpuNode
from controller.objects.meta import KubernetesObject
from controller.objects.placeencoding import HOSTNAME_LABEL, decode
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import AdmissionCheckState, Workload
from controller.scheduler.decisions import reasons, status
from controller.scheduler.engine import Engine
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import ABOVE_MINIMUM_OF

NODES_CHECK: Final = "nodes.tessera.dev"
"""The name of the check."""
WAITING_FOR_NODES: Final = "WaitingForNodes"
"""Reason of the event Pending of a workload that holds quota and waits for its nodes."""
_NAMED: Final = 4
_HOUR_S: Final = 3600.0

_replace: Final = msgspec.structs.replace


class RunNodes:
    """The nodes of one run. In a scenario where none comes or goes it does nothing."""

    def __init__(self, scenario: Scenario, engine: Engine) -> None:
        self._engine = engine
        self._fleet = scenario.pools
        counted = scenario.objects if scenario.pools else ()
        self._nodes = {each.metadata.name: each for each in counted if isinstance(each, Node)}
        self._gpu_nodes = {each.metadata.name: each for each in counted if isinstance(each, GpuNode)}
        self._minimum: dict[WorkloadKey, WorkloadKey] = {}
        """The minimum of its gang, by each workload above one: the minimum starts first."""
        for each in scenario.submissions if scenario.pools else ():
            metadata = each.workload.metadata
            if minimum := metadata.annotations.get(ABOVE_MINIMUM_OF):
                self._minimum[WorkloadKey(each.key)] = WorkloadKey(f"{metadata.namespace}/{minimum}")
        self._gone: set[str] = set()
        """Nodes that the engine does not know now."""
        pooled = {name for pool in self._fleet.pools for name in pool.nodes}
        self.pools = NodePools(self._fleet, self._nodes.keys() - pooled, scenario.base_s)
        self._interrupted = InterruptedFlavors(engine, (each for each in counted if isinstance(each, ResourceFlavor)))

    def keeps(self, given: KubernetesObject) -> bool:
        """Whether the object is a Node that only ``show`` puts into the engine."""
        return isinstance(given, Node) and given.metadata.name in self._nodes

    def show(self, now_s: float) -> None:
        """Tells the engine of all nodes whose phase has changed."""
        for name in self.pools.changed():
            phase = self.pools.phase(name)
            self._interrupted.shown(self._nodes[name], phase, now_s)
            if phase is NodePhase.CLOSED:
                self._gone.add(name)
                self._engine.drop(Node, "", name, now_s)
                self._engine.drop(GpuNode, "", name, now_s)
                continue
            (pool,) = self.pools.pools_of((name,))
            self._engine.put(in_phase(self._nodes[name], phase, pool), now_s)
            if name in self._gone:
                self._gone.discard(name)
                if (gpu_node := self._gpu_nodes.get(name)) is not None:
                    self._engine.put(gpu_node, now_s)

    # -- workloads ---------------------------------------------------------------------------------------------------

    def checks_answered(self, workload: Workload) -> Workload | None:
        """The workload with its admission checks Ready, but ours while nodes are awaited; None if nothing changes."""
        waits = self.awaits(WorkloadKey(workload.key))
        replace = msgspec.structs.replace
        ready = tuple(
            each if each.name == NODES_CHECK else replace(each, state="Ready")
            for each in workload.status.admission_checks
            if waits or each.name != NODES_CHECK
        )
        if ready == workload.status.admission_checks:
            return None
        return replace(workload, status=replace(workload.status, admission_checks=ready))

    def placed(self, workload: Workload, now_s: float, gates: FeatureGates) -> Workload:
        """The workload that has just got its places. It is not admitted yet if some of its nodes are not there."""
        key = WorkloadKey(workload.key)
        if not self._fleet:
            return workload
        self.pools.give_back(key, now_s)
        self.pools.take(key, _places(workload), now_s)
        self.show(now_s)
        if not self.awaits(key):
            return workload
        waits = AdmissionCheckState(name=NODES_CHECK, state="Pending", last_transition_time=status.moment(now_s))
        conditions = tuple(each for each in workload.status.conditions if each.type != reasons.ADMITTED)
        held = _replace(
            workload,
            status=_replace(
                workload.status,
                admission_checks=(*workload.status.admission_checks, waits),
                conditions=conditions,
            ),
        )
        checks = tuple(each.name for each in held.status.admission_checks)
        return status.admitted_if_ready(held, checks=checks, now_s=now_s, gates=gates)

    def stopped(self, key: WorkloadKey, now_s: float) -> None:
        """The workload has ended or was evicted."""
        self.pools.give_back(key, now_s)

    def validate(self, now_s: float) -> None:
        """Recomputes all that is kept twice. AssertionError for a difference."""
        self.pools.validate(now_s)
        self._interrupted.validate()

    def awaits(self, key: WorkloadKey) -> bool:
        """Whether the workload holds quota and does not start yet."""
        return bool(self._missing(key))

    def _missing(self, key: WorkloadKey) -> tuple[str, ...]:
        """The nodes that a workload with places waits for: its own, and those of its gang's minimum."""
        if not self.pools.holds(key):
            return ()
        own, minimum = self.pools.missing(key), self._minimum.get(key)
        return own if minimum is None else tuple(dict.fromkeys((*own, *self.pools.missing(minimum))))

    def ready_in_s(self, key: WorkloadKey, now_s: float) -> float:
        """Seconds until the last missing node of a workload is there; only for one that ``awaits`` some."""
        return self.pools.ready_s(self._missing(key)) - now_s

    def awaits_what(self, workload: Workload, now_s: float) -> str:
        """The sentence of a workload that holds quota and waits for nodes."""
        key = WorkloadKey(workload.key)
        missing = self._missing(key)
        admission = workload.status.admission
        pools = [f"pool {name}" for name in self.pools.pools_of(missing)]
        come = "is there" if len(missing) == 1 else "are there"
        return words.awaits_nodes(
            admission.cluster_queue if admission is not None else "",
            str(len(missing)),
            " and ".join(pools),
            f"{come} in {exact(self.ready_in_s(key, now_s))}",
        )

    def resting(self, now_s: float) -> str:
        """A clause on pools that give no node now; empty where each does."""
        return "; ".join(
            words.pool_rests(name, "" if until_s == math.inf else exact(until_s - now_s))
            for name, until_s in self.pools.resting()
        )

    # -- time --------------------------------------------------------------------------------------------------------

    def interrupted(self, now_s: float) -> list[tuple[WorkloadKey, float, str]]:
        """Begins the interruptions that are due: each workload to be evicted, the seconds of notice, and why."""
        hits = self.pools.interrupt(now_s)
        self._interrupted.interrupted((name for hit in hits for name in hit.nodes), now_s)
        self.show(now_s)
        evictions = {hit.key: (hit.key, hit.interruption.notice_s, _why(hit, "the workload")) for hit in hits}
        for hit in hits:
            for above in self._above(hit.key):
                evictions.setdefault(above, (above, hit.interruption.notice_s, _why(hit, "its gang")))
        return list(evictions.values())

    def _above(self, minimum: WorkloadKey) -> list[WorkloadKey]:
        """The workloads with places that are above this minimum of a gang."""
        return [key for key, of in self._minimum.items() if of == minimum and self.pools.holds(key)]

    def advanced(self, now_s: float) -> list[WorkloadKey]:
        """Nodes come and go that are due by now. Returns the workloads that start for it, minimums first."""
        ready = self.pools.advance(now_s)
        self.show(now_s)
        self._interrupted.tell(now_s)
        above = [each for key in ready for each in self._above(key)]
        return [key for key in dict.fromkeys((*ready, *above)) if not self.awaits(key)]

    def settled(self, now_s: float) -> None:
        """All is decided at this moment: idle nodes that are due go."""
        self.pools.remove_idle(now_s)
        self.show(now_s)

    def bill(self, until_s: float) -> tuple[dict[str, float], float]:
        """Node-hours by pool, and what they cost."""
        seconds = self.pools.node_seconds(until_s)
        cost = sum(seconds[pool.name] * pool.price_per_hour for pool in self._fleet.pools) / _HOUR_S
        return {name: round(spent / _HOUR_S, 4) for name, spent in seconds.items()}, round(cost, 4)


def _why(hit: Hit, whose: str) -> str:
    interruption = hit.interruption
    what = f"Pool {interruption.pool}" if interruption.pool else f"Node {interruption.node}"
    more = f" and {len(hit.nodes) - _NAMED} more" if len(hit.nodes) > _NAMED else ""
    says = words.coming_nodes_interrupted if hit.waits else words.nodes_interrupted
    return says(what, exact(interruption.notice_s), whose, f"{', '.join(hit.nodes[:_NAMED])}{more}")


def _places(workload: Workload) -> Iterator[str]:
    """The nodes of the workload's pods by its topology assignments."""
    admission = workload.status.admission
    for assigned in admission.pod_set_assignments if admission is not None else ():
        places = assigned.topology_assignment
        if places is not None and places.levels[-1:] == (HOSTNAME_LABEL,):
            yield from (domain.values[-1] for domain in decode(places))
