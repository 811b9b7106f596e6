"""How often nodes of each flavor are taken away in a run, as the controller counts it in a cluster.

The interruptions of a pool count for the flavors of its nodes, and the engine is told in the flavors' annotations.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from controller.insight.simulation.pools.nodepools import NodePhase
from controller.objects.core import Node
from controller.objects.queues import ResourceFlavor
from controller.reconcile.failures.interruptioncounts import InterruptionCounts, read_record
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import InterruptionRules
from inventory.api.names import INTERRUPTIONS

_replace: Final = msgspec.structs.replace


class InterruptedFlavors:
    """The counts of one run. Without the engine's rule there is no flavor, and it does nothing."""

    def __init__(self, engine: Engine, flavors: Iterable[ResourceFlavor]) -> None:
        rules = engine.state.config.extensions.interruptions
        self._engine = engine
        self._flavors = {each.metadata.name: each for each in flavors} if rules is not None else {}
        self._counts = InterruptionCounts(rules or InterruptionRules())
        for name, flavor in self._flavors.items():
            recorded = read_record(flavor.metadata.annotations.get(INTERRUPTIONS))
            self._counts.set_flavor(name, flavor.spec.node_labels, recorded)

    def shown(self, node: Node, phase: NodePhase, now_s: float) -> None:
        """Notes that a node is in a phase: one that is there, or that has come."""
        if phase is NodePhase.PRESENT:
            self._counts.set_node(node.metadata.name, node.metadata.labels, now_s, now_s)
        elif phase is not NodePhase.LEAVING:
            self._counts.drop_node(node.metadata.name, now_s)

    def interrupted(self, nodes: Iterable[str], now_s: float) -> None:
        """Counts nodes that are taken away with workloads on them. One that has not come is none."""
        for name in dict.fromkeys(nodes):
            self._counts.count(name, now_s)

    def tell(self, now_s: float) -> None:
        """Puts the flavors into the engine that say something else now."""
        if self._counts.is_idle:
            return
        self._counts.prune(now_s)
        for name, flavor in self._flavors.items():
            known = flavor.metadata.annotations
            due = self._counts.due(name, known, now_s, refresh=False)
            if due:
                kept = {key: text for key, text in {**known, **due}.items() if text is not None}
                said = _replace(flavor, metadata=_replace(flavor.metadata, annotations=kept))
                self._flavors[name] = said
                self._engine.put(said, now_s)

    def validate(self) -> None:
        self._counts.validate()
