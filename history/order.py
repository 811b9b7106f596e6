"""The order in which a queue lets in those who wait."""

import json
import re
from collections.abc import Iterable, Iterator

from history import objects as api
from history.objects import Json, Key
from history.rule import LATE_S, Rule, Scene, Wrong

_BELOW_ALL = ("tessera.dev/above-minimum-of", "tessera.dev/above-min-replicas")
_STARTS_WITH = "tessera.dev/starts-with"
"""A Workload that gets quota with others or not at all: smaller ones may pass it."""
_RUNTIME = "tessera.dev/runtime"
_BY_EVICTION = ("PodsReadyTimeout", "AdmissionCheck")
_BOOST = re.compile(r"[+-]?\d{1,10}", re.ASCII)
_QUIET_S = 60.0
_OF_POD = (("template", "spec"), ("template", "metadata", "annotations"))
_SHAPE = (("name",), ("count",), ("minCount",), ("topologyRequest",), *_OF_POD)
_KUEUES = ("", "Pending")
_OURS = ("WaitingForQuota", "TopologyPlacementFailed", "PendingEvaluation", "WaitingForPreemptedWorkloads")
_FOR_ROOM = (*_KUEUES, *_OURS)
"""Reasons that are the same for all who ask for the same."""


class OutOfOrder(Rule, name="out-of-order", lasts_s=10.0, kinds=("Workload",)):
    """``out-of-order``: a Workload got quota while another of its ClusterQueue, which comes before it by priority and
    age, waited, and waits on; counts after 10 seconds, since two decisions of a moment may be written in any order.

    The policy promises it between Workloads that ask for the same (their pod sets are alike in all): what one fits, the
    other fits. In a StrictFIFO queue without backfill it promises it between all. The other has to have waited at its
    place for 5 seconds. Not judged where somebody of the ClusterQueue was evicted within a minute (who may
    be evicted for whom differs), nor between LocalQueues of a queue that goes by their past usage.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._place: dict[Key, tuple[str, str]] = {}
        self._in: dict[tuple[str, str], set[Key]] = {}
        """Workloads that wait, by ClusterQueue and shape; ``_place`` has those of all."""
        self._seen: dict[Key, float] = {}
        """The reservation that was compared last."""
        self._passed: dict[Key, set[Key]] = {}
        """The Workloads that one with quota may have passed, by that one."""
        self._shapes: dict[Key, tuple[object, str]] = {}
        self._evicted_s: dict[str, float] = {}

    def subjects(self, touched: Iterable[Key]) -> Iterator[Key]:
        every = [each for each in touched if each.kind == "Workload"]
        for key in every:
            self._note(key)
        waiting = set(every)
        return iter({*every, *(who for who, passed in self._passed.items() if passed & waiting)})

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        workload, times = self.world.objects.get(subject), self.world.times.get(subject)
        if workload is None or times is None or not api.holds(workload) or times.reserved_s is None:
            self._passed.pop(subject, None)
            return
        if self._seen.get(subject) != times.reserved_s:
            self._seen[subject] = times.reserved_s
            others, at_s = self._others(subject, workload), times.reserved_s
            if found := {each for each in others if self._comes_first(each, workload, at_s)}:
                self._passed[subject] = found
        for other in sorted(self._passed.get(subject, ())):
            body, its = self.world.objects.get(other), self.world.times.get(other)
            if body is not None and its is not None and api.waits(body) and (its.waits_s or 0.0) < times.reserved_s:
                queue = self.world.cluster_queue(workload)
                objects = (str(other), str(subject), f"ClusterQueue {queue}")
                said = f"it waits since before {subject.namespace}/{subject.name} was let in, and comes first"
                yield Wrong(objects, said)

    def _others(self, subject: Key, workload: Json) -> set[Key]:
        place = self._place.get(subject, ("", ""))
        queue = self.world.get("ClusterQueue", "", place[0])
        if self.world.times[subject].reserved_s in (None, float("-inf")) or _is_below_all(workload):
            return set()
        if self._evicted_s.get(place[0], float("-inf")) > self.world.now_s - _QUIET_S:
            return set()
        same = self._in.get(place, set())
        if api.text(queue, "spec", "queueingStrategy") == "StrictFIFO" and not self.world.settings.backfill:
            same = set().union(*(keys for at, keys in self._in.items() if at[0] == place[0]))
        if api.text(queue, "spec", "admissionScope", "admissionMode") == "UsageBasedAdmissionFairSharing":
            return {each for each in same if api.local_queue(self.world.objects[each]) == api.local_queue(workload)}
        return same - {subject}

    def _comes_first(self, other: Key, workload: Json, at_s: float) -> bool:
        body, times = self.world.objects[other], self.world.times[other]
        local = self.world.get("LocalQueue", *api.local_queue(body))
        stopped = api.text(local, "spec", "stopPolicy") not in ("", "None")
        able = api.waits(body) and api.text(api.condition(body, "QuotaReserved"), "reason") in _FOR_ROOM and not stopped
        if not able or times.waits_s is None or times.waits_s > at_s - LATE_S or _is_below_all(body):
            return False
        if api.note(body, _STARTS_WITH):
            return False
        theirs, ours = place_of(body), place_of(workload)
        return theirs[0] < ours[0] or (theirs[0] == ours[0] and theirs[1] + 1.0 <= ours[1])

    def _note(self, key: Key) -> None:
        old = self._place.pop(key, ("", ""))
        self._in.get(old, set()).discard(key)
        if not self._in.get(old):
            self._in.pop(old, None)
        body = self.world.objects.get(key)
        if body is None:
            self._seen.pop(key, None)
            self._shapes.pop(key, None)
            return
        queue = self.world.cluster_queue(body)
        if queue:
            sets = api.value(body, "spec", "podSets")
            if key not in self._shapes or self._shapes[key][0] != sets:
                self._shapes[key] = sets, self._shape(key, body)
            self._place[key] = queue, self._shapes[key][1]
            if api.waits(body):
                self._in.setdefault(self._place[key], set()).add(key)
            if self.world.times[key].evicted_s == self.world.now_s:
                self._evicted_s[queue] = self.world.now_s

    def _shape(self, key: Key, workload: Json) -> str:
        """The requests of a Workload, and all else that may decide whether it fits, as text."""
        sets = [[api.value(each, *path) for path in _SHAPE] for each in api.rows(workload, "spec", "podSets")]
        owners = [self.world.objects[each] for each in self.world.owners_of(key)]
        runtime = [api.note(each, _RUNTIME) for each in (workload, *owners)]
        most = api.value(workload, "spec", "maximumExecutionTimeSeconds")
        return json.dumps([sets, most, runtime], sort_keys=True)


def place_of(workload: Json) -> tuple[int, float]:
    """The smaller comes first: priority, then age."""
    boost = api.note(workload, "kueue.x-k8s.io/priority-boost")
    raised = int(boost) if _BOOST.fullmatch(boost) else 0
    evicted = api.condition(workload, "Evicted")
    requeued = evicted.get("status") == "True" and evicted.get("reason") in _BY_EVICTION
    made = api.text(workload, "metadata", "creationTimestamp")
    since_s = api.stamp_s(api.text(evicted, "lastTransitionTime") if requeued else made)
    return -api.whole(workload, "spec", "priority") - raised, since_s or 0.0


def _is_below_all(workload: Json) -> bool:
    return any(api.note(workload, each) for each in _BELOW_ALL)
