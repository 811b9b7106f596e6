"""Spot nodes: which flavors and nodes a workload may have, and whether they come first (our own rule).

A flavor is spot where its ``nodeLabels`` have a provider's label of spot nodes, or one of ``Extensions.spot_labels``; a
node by its own labels. ``tessera.dev/spot`` is the word of the job, else of its LocalQueue, else of its ClusterQueue.
``tessera.dev/on-demand-floor`` of either queue is a part of the GPUs that its workloads hold: a workload may go to spot
only if that part stays on demand though all of its GPUs go there, as in ``may_take_spot``. So the first
workload of a queue with a floor goes on demand. A GPU counts by the node of its pod; where the flavor's topology
names no nodes, by the flavor. One whose place is still to be chosen counts as spot: it may become that.

Cost: four looks into annotations for each decision; where a queue has a floor, what its holders have is added up.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

import msgspec

from controller.messages import pending as words
from controller.messages.queues import wrong_annotation
from controller.objects.core import SPOT_LABELS
from controller.objects.queues import ClusterQueue, LocalQueue
from controller.objects.workload import Workload
from controller.scheduler.cluster.cluster import Cluster, Granted
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assignment import Assignment, held_of
from controller.scheduler.model.config import Extensions
from controller.scheduler.model.resources import FlavorName, LocalQueueKey, ResourceName, WorkloadKey, is_gpu
from controller.scheduler.model.workload import PodSetRequests, WorkloadInfo
from controller.scheduler.quota.queuestate import Holder, QueueState
from controller.scheduler.topology.requests import SpotRule
from inventory.api.names import GPU_PERCENT, ON_DEMAND_FLOOR, SPOT

NEVER: Final = "never"
PREFERRED: Final = "preferred"
FLOOR: Final = "floor"
"""Spot is not for the workload now, for the sake of a floor."""
_PERCENT: Final = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)%", re.ASCII)
_HUNDRED: Final = 100.0
_PERCENTS: Final = ResourceName(GPU_PERCENT)
_ROUNDING: Final = 1e-9


def spot_problem(annotations: Mapping[str, str]) -> str:
    """The problem of the annotation ``SPOT`` of a job or a queue; empty if it has none."""
    text = annotations.get(SPOT)
    if text is None or text in (NEVER, "allowed", PREFERRED):
        return ""
    return wrong_annotation(SPOT, text, "never, allowed or preferred")


def floor_problem(annotations: Mapping[str, str]) -> str:
    """The problem of a queue's annotation ``ON_DEMAND_FLOOR``; empty if it has none."""
    text = annotations.get(ON_DEMAND_FLOOR)
    if text is None or _percent(text) is not None:
        return ""
    return wrong_annotation(ON_DEMAND_FLOOR, text, 'a percentage from "0%" to "100%"')


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


def word_problems(queue: LocalQueue | ClusterQueue) -> tuple[str, ...]:
    """A sentence for each of the queue's words about spot nodes that cannot be read."""
    annotations = queue.metadata.annotations
    return tuple(filter(None, (spot_problem(annotations), floor_problem(annotations))))


def words_of(queue: LocalQueue | ClusterQueue | None) -> tuple[str, str]:
    """What a queue says of spot nodes: its annotations ``SPOT`` and ``ON_DEMAND_FLOOR``; empty for none."""
    if queue is None:
        return "", ""
    return queue.metadata.annotations.get(SPOT, ""), queue.metadata.annotations.get(ON_DEMAND_FLOOR, "")


def word_of(workload: Workload, local: LocalQueue | None, queue: ClusterQueue | None) -> str:
    """The word on spot nodes that counts: the job's own, or that of the nearest queue that has one; empty for none."""
    return workload.metadata.annotations.get(SPOT, "") or words_of(local)[0] or words_of(queue)[0]


def never_spot(extensions: Extensions) -> SpotRule | None:
    """The rule of pods that are for no spot node; None where words do not count."""
    return _rules(extensions.spot_labels)[0] if extensions.spot_words else None


@lru_cache(maxsize=8)
def _rules(more: tuple[tuple[str, str], ...]) -> tuple[SpotRule, SpotRule]:
    """The rules of pods that are for no spot node, and of those that come to spot nodes first. Those of a configuration
    that is known are found in 0.1 us in place of 4.
    """
    off = SpotRule(wanted=False, required=True, labels=frozenset((*SPOT_LABELS.items(), *more)))
    return off, off._replace(wanted=True, required=False)


class SpotWords:
    """What a workload may have of a cluster's spot nodes at this moment. It reads the cluster and keeps nothing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._off, self._first = _rules(cluster.config.extensions.spot_labels)

    def of(self, incoming: Incoming) -> str:
        """``NEVER``, ``FLOOR``, ``PREFERRED``, or another text: spot nodes are as any other."""
        replaced = incoming.replaces.key if incoming.replaces is not None else None
        return self._of(incoming.info, incoming.local_queue, incoming.queue, replaced)

    def rule_of(self, holder: Holder) -> SpotRule | None:
        """The rule by which pods of a workload that holds quota get their places."""
        queue = self._cluster.queue(holder.cluster_queue)
        return self.rule(self._of(holder.info, holder.local_queue, queue, holder.key))

    def rule(self, word: str) -> SpotRule | None:
        """What a workload with this word wants of nodes."""
        if word in (NEVER, FLOOR):
            return self._off
        return self._first if word == PREFERRED else None

    def has_floor(self, local_queue: LocalQueueKey, queue: QueueState) -> bool:
        """Whether a part of the GPUs of the ClusterQueue, or LocalQueue, is to stay on demand."""
        return bool(words_of(self._cluster.local_queues.get(local_queue))[1] or words_of(queue.object)[1])

    def closed(self, word: str, name: FlavorName) -> str | None:
        """Why a flavor is not for a workload with this word; None where it is, or is no spot flavor."""
        if word not in (NEVER, FLOOR) or not self._is_spot(name):
            return None
        return words.flavor_is_spot(name) if word == NEVER else words.flavor_breaks_floor(name)

    def in_order(self, word: str, names: Sequence[FlavorName]) -> Sequence[FlavorName]:
        """The flavors of a group in the order in which a workload with this word tries them."""
        return sorted(names, key=lambda name: not self._is_spot(name)) if word == PREFERRED else names

    # -- floors --------------------------------------------------------------------------------------------------------

    def _of(
        self, info: WorkloadInfo, local_queue: LocalQueueKey, queue: QueueState, without: WorkloadKey | None
    ) -> str:
        """The word of a workload; ``without``: the holder of which nothing stays."""
        local = self._cluster.local_queues.get(local_queue)
        local_floor, queue_floor = words_of(local)[1], words_of(queue.object)[1]
        word = word_of(info.workload, local, queue.object)
        if word == NEVER or not (local_floor or queue_floor):
            return word
        gpus = sum(map(_gpus, info.pod_sets))
        of_queue, of_local = _part(queue_floor), _part(local_floor)
        held = tuple(self._held(queue, {without, info.key}))
        if of_queue and not self._keeps(of_queue, (each for _, each in held), gpus):
            return FLOOR
        own = (each for local_, each in held if local_ == local_queue)
        return FLOOR if of_local and not self._keeps(of_local, own, gpus) else word

    def _held(
        self, queue: QueueState, without: AbstractSet[WorkloadKey | None]
    ) -> Iterator[tuple[LocalQueueKey, PodSetRequests]]:
        """What the queue's workloads hold, and what was given to some in the decision that is being made."""
        for key, granted in self._cluster.granted.items():
            if granted.cluster_queue == queue.name and key not in without:
                yield from ((granted.local_queue, each) for each in granted.pod_sets)
        for key, holder in queue.holders.items():
            if key not in without and key not in self._cluster.granted:
                lost = holder.info.workload.status.unhealthy_nodes
                gone = frozenset(each.name for each in lost)
                yield from ((holder.local_queue, _without(each, gone)) for each in holder.info.pod_sets)

    def _keeps(self, floor: float, held: Iterable[PodSetRequests], gpus: float) -> bool:
        spot = every = 0.0
        for each in held:
            spot += self._on_spot(each)
            every += _gpus(each)
        return may_take_spot(floor, on_demand=every - spot, spot=spot, gpus=gpus)

    def _on_spot(self, held: PodSetRequests) -> float:
        """The GPUs of a pod set that are on spot nodes, or may come to be."""
        total = 0.0
        for name, gpus in _by_flavor(held):
            pods = self._cluster.placement.spot_pods(name, held.topology, held.count, self._off)
            if pods is None or self._is_spot(name):
                total += gpus if self._is_spot(name) else 0.0
            elif held.count:
                total += gpus * pods / held.count
        return total

    def _is_spot(self, name: FlavorName) -> bool:
        flavor = self._cluster.flavors.get(name)
        return flavor is not None and self._off.is_spot(flavor.spec.node_labels)


def _without(held: PodSetRequests, gone: AbstractSet[str]) -> PodSetRequests:
    """The pod set without its places on lost nodes: other places are being chosen."""
    if not gone or held.topology is None:
        return held
    kept = tuple(each for each in held.topology.domains if each.values[-1] not in gone)
    return msgspec.structs.replace(held, topology=msgspec.structs.replace(held.topology, domains=kept))


def _gpus(asked: PodSetRequests) -> float:
    return sum(gpus for _, gpus in _counted(asked))


def _by_flavor(held: PodSetRequests) -> Iterator[tuple[FlavorName, float]]:
    for resource, gpus in _counted(held):
        if resource in held.flavors:
            yield held.flavors[resource], gpus


def _counted(asked: PodSetRequests) -> Iterator[tuple[ResourceName, float]]:
    """What of a pod set's requests are GPUs, in GPUs."""
    for resource, amount in asked.requests.items():
        if is_gpu(resource):
            yield resource, float(amount)
        elif resource == _PERCENTS:
            yield resource, amount / _HUNDRED


def spot_rule(cluster: Cluster, incoming: Incoming) -> SpotRule | None:
    """What a workload that is tried wants of nodes; None where the words do not count, or it says nothing."""
    if not cluster.config.extensions.spot_words:
        return None
    words_ = SpotWords(cluster)
    return words_.rule(words_.of(incoming))


def spot_rule_of(cluster: Cluster, holder: Holder) -> SpotRule | None:
    """``spot_rule`` of a workload that holds quota."""
    return SpotWords(cluster).rule_of(holder) if cluster.config.extensions.spot_words else None


def note_granted(cluster: Cluster, incoming: Incoming, assignment: Assignment) -> None:
    """Note for the trial that is open what a workload gets, if a floor counts it."""
    if not cluster.config.extensions.spot_words:
        return
    queue = incoming.queue
    if words_of(queue.object)[1] or words_of(cluster.local_queues.get(incoming.local_queue))[1]:
        sets = tuple(map(held_of, assignment.pod_sets))
        cluster.grant(incoming.key, Granted(queue.name, incoming.local_queue, sets))
