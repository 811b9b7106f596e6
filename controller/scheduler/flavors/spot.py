"""Flavors of spot nodes: which of them a workload may have, and whether they come first (our own rule).

A flavor is spot where its ``nodeLabels`` have a provider's label of spot nodes, or one of ``Extensions.spot_labels``.
``tessera.dev/spot`` is the word of the job, else of its LocalQueue, else of its ClusterQueue.
``tessera.dev/on-demand-floor`` of either queue is a part of the GPUs that its workloads hold: a workload may go to spot
flavors only if that part stays on demand though all of its GPUs go there, as in ``may_take_spot``. So the first
workload of a queue with a floor goes on demand.

Cost: four looks into annotations for each decision; where a queue has a floor its cells, or for a LocalQueue the
holders of its ClusterQueue, are added up.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from controller.messages import pending as words
from controller.objects.core import is_spot
from controller.objects.queues import ClusterQueue, LocalQueue
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.model.resources import Amount, FlavorName, FlavorResource, is_gpu
from inventory.api.names import ON_DEMAND_FLOOR, SPOT

NEVER: Final = "never"
PREFERRED: Final = "preferred"
FLOOR: Final = "floor"
"""Spot is not for the workload now, for the sake of a floor."""
_PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)%", re.ASCII)
_HUNDRED: Final = 100.0
_ROUNDING: Final = 1e-9
_SHOWN: Final = 80


def floor_problem(annotations: Mapping[str, str]) -> str:
    """The problem of a queue's annotation ``ON_DEMAND_FLOOR``; empty if it has none."""
    text = annotations.get(ON_DEMAND_FLOOR)
    if text is None or _percent(text) is not None:
        return ""
    found = msgspec.json.encode(text[:_SHOWN]).decode()
    return (
        f'metadata.annotations[{ON_DEMAND_FLOOR}]: found {found}, expected a percentage from "0%" to "100%". Correct it'
    )


def floor_of(annotations: Mapping[str, str]) -> float:
    """The part of a queue's GPUs that stays on demand, 0 to 1; 0 where the annotation is missing or wrong."""
    return _part(annotations.get(ON_DEMAND_FLOOR, ""))


def _part(text: str) -> float:
    return (_percent(text) or 0.0) / _HUNDRED


def _percent(text: str) -> float | None:
    match = _PERCENT.fullmatch(text)
    return float(match[1]) if match is not None and float(match[1]) <= _HUNDRED else None


def may_take_spot(floor: float, *, on_demand: float, spot: float, gpus: float) -> bool:
    """Whether a queue whose workloads hold these GPUs keeps its floor though ``gpus`` more go to spot nodes."""
    return on_demand + _ROUNDING >= floor * (on_demand + spot + gpus)


def words_of(queue: LocalQueue | ClusterQueue | None) -> tuple[str, str]:
    """What a queue says of spot nodes: its annotations ``SPOT`` and ``ON_DEMAND_FLOOR``; empty for none."""
    if queue is None:
        return "", ""
    return queue.metadata.annotations.get(SPOT, ""), queue.metadata.annotations.get(ON_DEMAND_FLOOR, "")


class SpotWords:
    """What a workload may have of a cluster's spot flavors at this moment. It reads the cluster and keeps nothing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._more = cluster.config.extensions.spot_labels

    def of(self, incoming: Incoming) -> str:
        """``NEVER``, ``FLOOR``, ``PREFERRED``, or another text: spot flavors are as any other."""
        local, local_floor = words_of(self._cluster.local_queues.get(incoming.local_queue))
        queue, queue_floor = words_of(incoming.queue.object)
        word = incoming.info.workload.metadata.annotations.get(SPOT, "") or local or queue
        if word == NEVER or not (local_floor or queue_floor):
            return word
        return word if self._keeps_floors(incoming, _part(local_floor), _part(queue_floor)) else FLOOR

    def has_floor(self, incoming: Incoming) -> bool:
        """Whether a part of the GPUs of the workload's ClusterQueue, or LocalQueue, is to stay on demand."""
        local = words_of(self._cluster.local_queues.get(incoming.local_queue))
        return bool(local[1] or words_of(incoming.queue.object)[1])

    def _keeps_floors(self, incoming: Incoming, of_local: float, of_queue: float) -> bool:
        queue = incoming.queue
        requests = (each.requests.items() for each in incoming.info.pod_sets)
        gpus = sum(amount for asked in requests for resource, amount in asked if is_gpu(resource))
        if of_queue and not self._keeps(of_queue, ((fr, cell.usage) for fr, cell in queue.node.cells.items()), gpus):
            return False
        return not of_local or self._keeps(of_local, queue.held_through(incoming.local_queue), gpus)

    def _keeps(self, floor: float, held: Iterable[tuple[FlavorResource, Amount]], gpus: float) -> bool:
        amounts = {True: 0.0, False: 0.0}
        for fr, amount in held:
            if is_gpu(fr.resource):
                amounts[self._is_spot(fr.flavor)] += amount
        return may_take_spot(floor, on_demand=amounts[False], spot=amounts[True], gpus=gpus)

    def closed(self, word: str, name: FlavorName) -> str | None:
        """Why a flavor is not for a workload with this word; None where it is, or is no spot flavor."""
        if word not in (NEVER, FLOOR) or not self._is_spot(name):
            return None
        return words.flavor_is_spot(name) if word == NEVER else words.flavor_breaks_floor(name)

    def in_order(self, word: str, names: Sequence[FlavorName]) -> Sequence[FlavorName]:
        """The flavors of a group in the order in which a workload with this word tries them."""
        return sorted(names, key=lambda name: not self._is_spot(name)) if word == PREFERRED else names

    def _is_spot(self, name: FlavorName) -> bool:
        flavor = self._cluster.flavors.get(name)
        return flavor is not None and is_spot(flavor.spec.node_labels, self._more)
