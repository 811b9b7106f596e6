"""The topology ungater: pods get the node selectors of their workload's topology assignment and lose their gate.

pods, workloads -> places by pod (controller.reconcile.placing.ungating) -> one patch for each pod

A pod takes its place from the moment of the decision, and not only when the watch shows it: otherwise an older pod that
comes in between would get the same place. Pods of a Job are ungated as they come: each has its place, and a Job that is
nearly done has fewer pods than were admitted. Plain pods belong to ``controller.reconcile.pods.reconcile``, and so do
pods above the minimum of a job that grows: which pods these are is decided here, with the places of that minimum.
"""

import asyncio
import heapq
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

import msgspec

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import PODS
from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.stampedwrites import Stamped, stamped_write
from controller.jobs.framework import names
from controller.jobs.framework.podsets import first_slice
from controller.jobs.framework.podview import INDEX_OFFSET, MANAGED, started_by, workload_of
from controller.jobs.framework.raw import JobError, parsed_integer
from controller.jobs.framework.settings import DevicePlan, no_plan
from controller.objects.core import ENDED_PHASES, Pod
from controller.objects.decode import KUEUE
from controller.objects.meta import epoch_s, is_true, object_key
from controller.objects.placeencoding import HOSTNAME_LABEL, TopologyEncodingError
from controller.objects.workload import Workload
from controller.reconcile.placing import podpatches
from controller.reconcile.placing.devicedealer import DeviceDealer
from controller.reconcile.placing.growing import Parts, parts
from controller.reconcile.placing.ungating import PlacedPod, PodSetPlaces, before, pod_set_places, ungated
from controller.scheduler.decisions import reasons
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.workload import minimum_of
from failpoints.names import Failpoint
from inventory.api.names import ABOVE_MINIMUM_OF, DEVICES
from kube.clock import Clock, sleep
from kube.objects import ObjectReference
from kube.reading.reflector import Added, Changed, Removed
from kube.writing.writes import Abandoned, Outcome, Verb, Write, Written

log = logging.getLogger(__name__)

FEATURE: Final = "TopologyAwareScheduling"
_TOGETHER_S: Final = 0.02
"""The time for which changes are gathered: the pods of a gang are created one by one."""
_UNREADY_S: Final = 0.05
_AT_ONCE: Final = 8
"""Patches in flight at a time. More would keep the engine from deciding: a gang of thousands must not delay
admissions."""
_PAUSE_S: Final = 1.0
_LONGEST_S: Final = 30.0
_REPLACED_WITHIN_S: Final = 5.0
"""The time for which a place of a minimum is kept for the pod that its job's controller makes after one has ended."""


@dataclass(slots=True)
class _Assigned:
    """The place of a pod: it counts as ungated there, and its patch is sent again at ``again_s``.

    An answer can be lost, and the watch can lag behind: a patch that was refused may have been stored long ago.
    ``moves``: the pod gets no place, but is marked as above the minimum, or taken back into it. Slots save 40 bytes of
    each: there is one for each pod that has a place, 50,000 in a large fleet.
    """

    selector: dict[str, str] = field(default_factory=dict)
    devices: str = ""
    again_s: float = math.inf
    tries: int = 0
    moves: Literal["", "above", "back"] = ""


class TopologyUngater:
    """``hear`` takes changes of pods, ``workload`` of Workloads; ``run`` works on them until cancelled.

    ``ready``: whether all pods that the watch listed have been heard; once is enough. ``count`` gets the outcome of
    each patch, ``tell`` records an Event: about what, type, reason, note. ``device_plan``: GPUs planned for each pod.

    Pods of an elastic job stand under its first slice, which all of them name; they take the places of the slice that
    holds quota.

    ``_of`` is the inverse of ``_pods`` and ``_above``; only ``_see`` and ``_leave`` write the three. ``_unsent`` has
    keys of ``_assigned``: the patch of an assigned pod is unsent, under way, or waits for ``again_s``. ``_again`` may
    name workloads twice.
    """

    def __init__(
        self,
        ledger: Ledger,
        put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"],
        *,
        clock: Clock,
        ready: Callable[[], bool],
        count: Callable[[str], None],
        tell: Callable[[ObjectReference, str, str, str], None],
        device_plan: DevicePlan = no_plan,
    ) -> None:
        self._ledger = ledger
        self._put = put
        self._clock = clock
        self._ready = ready
        self._count = count
        self._tell = tell
        self._plan = device_plan
        self._began = False
        self._pods: dict[WorkloadKey, dict[str, Pod]] = {}
        """Pods that run or may run, by workload, then by the pod's own ``namespace/name``."""
        self._above: dict[WorkloadKey, dict[str, Pod]] = {}
        """Pods that wait above a workload's minimum, by workload and name."""
        self._short: dict[WorkloadKey, dict[str, float]] = {}
        """The time since when pod sets of a minimum have had a free place while pods wait above it."""
        self._of: dict[str, WorkloadKey] = {}
        self._assigned: dict[str, _Assigned] = {}
        """Places by the uid of the pod, while the watch shows the pod with its gate."""
        self._refused: dict[str, _Assigned] = {}
        """Refused moves by the uid of the pod. They are decided anew: a move that is the same keeps its pauses, and is
        reported."""
        self._unsent: dict[str, tuple[WorkloadKey, str]] = {}
        self._sending = 0
        self._dirty: set[WorkloadKey] = set()
        self._again: list[tuple[float, WorkloadKey]] = []
        self._event = asyncio.Event()

    async def run(self) -> None:
        while True:
            await self._clock.wait(self._event, self._idle_s())
            await sleep(self._clock, _TOGETHER_S)
            self._event.clear()
            self.reconcile()

    def _idle_s(self) -> float | None:
        if self._dirty:
            return _UNREADY_S
        return max(0.0, self._again[0][0] - self._clock.monotonic()) if self._again else None

    # -- changes ------------------------------------------------------------------------------------------------------

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(new=entry) | Changed(new=entry) if observed.resource == PODS:
                self._see(entry.object)
            case Removed(old=entry) if observed.resource == PODS:
                self._leave(entry.object.key, None)

    def workload(self, workload: Workload, gone: bool) -> None:
        """Takes a change of a Workload. Places that were decided by its earlier state, and are not sent yet, are
        decided anew.

        A pod above a minimum that holds no quota may have a free place of that: its own Workload tells.
        """
        key, minimum = first_slice(workload), minimum_of(workload)
        if minimum in self._above and (gone or workload.status.admission is None):
            self._touch(minimum)
        if key not in self._pods and key not in self._above:
            return
        for uid in [uid for uid, (whose, _) in self._unsent.items() if whose == key]:
            del self._unsent[uid]
            if self._assigned[uid].tries == 0:
                del self._assigned[uid]
            else:
                self._assigned[uid].again_s = 0.0
        self._touch(key)

    def _see(self, pod: Pod) -> None:
        key = _workload_of(pod)
        self._leave(pod.key, pod if key is not None and key == self._of.get(pod.key) else None)
        if key is not None:
            self._of[pod.key] = key
            (self._above if _is_above(pod) else self._pods).setdefault(key, {})[pod.key] = pod
            self._touch(key)

    def _leave(self, name: str, now: Pod | None) -> None:
        """Removes the pod from the indexes; ``now``: its new state, which is put there next."""
        key = self._of.pop(name, None)
        if key is None:
            return
        where = self._pods if name in self._pods.get(key, {}) else self._above
        was = where[key].pop(name)
        if not where[key]:
            del where[key]
        if now is None or now.metadata.uid != was.metadata.uid or not _waits(now) or _is_above(now) != _is_above(was):
            self._assigned.pop(was.metadata.uid, None)
            self._unsent.pop(was.metadata.uid, None)
            self._refused.pop(was.metadata.uid, None)
        self._touch(key)

    def _touch(self, key: WorkloadKey) -> None:
        self._dirty.add(key)
        self._event.set()

    # -- work --------------------------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Decides for all workloads with a change, and sends as many patches as may be under way."""
        now_s = self._clock.monotonic()
        while self._again and self._again[0][0] <= now_s:
            self._dirty.add(heapq.heappop(self._again)[1])
        self._began = self._began or self._ready()
        if not self._began:
            return
        dirty, self._dirty = self._dirty, set()
        for key in dirty:
            try:
                self._decide(key, now_s)
            except Exception:
                # A workload that cannot be read must not keep the pods of all others waiting.
                log.exception("workload %s: its pods could not be ungated", key)
        self._send()

    def _decide(self, key: WorkloadKey, now_s: float) -> None:
        entry, pods, above = self._ledger.current(key), self._pods.get(key, {}), self._above.get(key, {})
        if entry is None or not (pods or above) or not _runs(entry.workload):
            self._short.pop(key, None)
            return
        if not above and not any(self._is_open(pod, now_s) for pod in pods.values()):
            self._short.pop(key, None)
            return  # most changes are our own writes, come back by the watch
        workload = entry.workload
        unhealthy = frozenset(node.name for node in workload.status.unhealthy_nodes)
        grows = bool(above) or any(ABOVE_MINIMUM_OF in pod.metadata.annotations for pod in pods.values())
        try:
            sets = _places(workload, pods.values(), every=grows)
        except (TopologyEncodingError, JobError) as error:
            self._warn(workload, "TopologyUnreadable", f"The pods cannot be ungated: {error}")
            return
        self._retry(key, sets, unhealthy, now_s)
        seen = [self._seen(pod) for pod in pods.values()]
        if grows:
            seen = self._divide(key, sets, seen, now_s)
        named = {pod.metadata.uid: name for name, pod in pods.items()}
        set_of = {pod.uid: pod.pod_set for pod in seen}
        devices = DeviceDealer(self._plan, WorkloadKey(workload.key), [self._carries(pod) for pod in pods.values()])
        for place in ungated([_without_doubles(pod_set, seen) for pod_set in sets], seen, unhealthy, gang=False):
            node = place.node_selector.get(HOSTNAME_LABEL, "")
            self._assigned[place.uid] = _Assigned(dict(place.node_selector), devices.take(set_of[place.uid], node))
            self._unsent[place.uid] = (key, named[place.uid])

    def _divide(
        self, key: WorkloadKey, sets: list[PodSetPlaces], seen: list[PlacedPod], now_s: float
    ) -> list[PlacedPod]:
        """The pods in the minimum of a job that grows; the others are marked."""
        own = [pod for pod in seen if self._moves(pod.uid) != "above"]
        above: dict[str, Pod] = {}
        for pod in self._above.get(key, {}).values():
            if self._moves(pod.metadata.uid) == "back":
                own.append(msgspec.structs.replace(self._seen(pod), waits=False))
            elif not self._holds_quota(pod):
                above[pod.metadata.uid] = pod
        since = self._short.get(key, {})
        overdue = {name for name, at_s in since.items() if at_s + _REPLACED_WITHIN_S <= now_s}
        found = parts(sets, own, [self._seen(pod) for pod in above.values()], overdue)
        self._remember(key, {name: since.get(name, now_s) for name in found.short - overdue}, now_s)
        self._move(key, found)
        return [pod for pod in own if pod.uid not in found.above]

    def _remember(self, key: WorkloadKey, short: dict[str, float], now_s: float) -> None:
        if not short:
            self._short.pop(key, None)
            return
        self._short[key] = short
        heapq.heappush(self._again, (max(now_s, min(short.values()) + _REPLACED_WITHIN_S), key))
        self._event.set()

    def _move(self, key: WorkloadKey, found: Parts) -> None:
        for moves, where, uids in (("above", self._pods, found.above), ("back", self._above, found.back)):
            for name, pod in where.get(key, {}).items():
                if pod.metadata.uid in uids:
                    refused = self._refused.pop(pod.metadata.uid, None)
                    tries = refused.tries if refused is not None and refused.moves == moves else 0
                    self._assigned[pod.metadata.uid] = _Assigned(moves=moves, tries=tries)  # type: ignore[arg-type]
                    self._unsent[pod.metadata.uid] = (key, name)

    def _moves(self, uid: str) -> str:
        assigned = self._assigned.get(uid)
        return "" if assigned is None else assigned.moves

    def _holds_quota(self, pod: Pod) -> bool:
        """Whether a pod above the minimum holds quota by itself: it starts as soon as that is seen."""
        key = workload_of(pod)
        entry = None if key is None else self._ledger.get(key)
        return entry is not None and entry.workload.status.admission is not None

    def _carries(self, pod: Pod) -> tuple[str, str]:
        """The pod's host and planned devices; empty while it has no place."""
        assigned = self._assigned.get(pod.metadata.uid)
        if assigned is not None:
            return assigned.selector.get(HOSTNAME_LABEL, ""), assigned.devices
        if _waits(pod):
            return "", ""
        return pod.spec.node_selector.get(HOSTNAME_LABEL, ""), pod.metadata.annotations.get(DEVICES, "")

    def _is_open(self, pod: Pod, now_s: float) -> bool:
        """Whether the pod waits for a place, or its patch is due again."""
        assigned = self._assigned.get(pod.metadata.uid)
        return _waits(pod) if assigned is None else assigned.again_s <= now_s

    def _retry(self, key: WorkloadKey, sets: list[PodSetPlaces], unhealthy: frozenset[str], now_s: float) -> None:
        """Sends patches again whose pause is over: their pods keep their place, unless the assignment lacks it now."""
        for name, pod in (*self._pods.get(key, {}).items(), *self._above.get(key, {}).items()):
            uid = pod.metadata.uid
            assigned = self._assigned.get(uid)
            if assigned is None or assigned.again_s > now_s:
                continue
            if assigned.moves:
                self._refused[uid] = self._assigned.pop(uid)  # it may be decided otherwise by now
            elif assigned.selector.get(HOSTNAME_LABEL) not in unhealthy and _is_place(assigned.selector, sets):
                assigned.again_s = math.inf
                self._unsent[uid] = (key, name)
            else:
                del self._assigned[uid]

    def _seen(self, pod: Pod) -> PlacedPod:
        meta, assigned = pod.metadata, self._assigned.get(pod.metadata.uid)
        return PlacedPod(
            uid=meta.uid,
            pod_set=meta.labels.get(names.POD_SET, ""),
            age=(epoch_s(meta.creation_timestamp), meta.name),
            waits=_waits(pod) and assigned is None,
            leaves=meta.deletion_timestamp is not None,
            labels=meta.labels,
            node_selector={**pod.spec.node_selector, **(assigned.selector if assigned is not None else {})},
        )

    def _send(self) -> None:
        while self._unsent and self._sending < _AT_ONCE:
            uid, (key, name) = next(iter(self._unsent.items()))
            del self._unsent[uid]
            self._sending += 1
            assigned = self._assigned[uid]
            done = self._put(self._write(key, name, assigned))
            done.add_done_callback(partial(self._answered, key, uid, assigned.moves))

    def _write(self, key: WorkloadKey, name: str, assigned: _Assigned) -> Write[Stamped]:
        pod = self._pods.get(key, {}).get(name) or self._above[key][name]
        entry = self._ledger.current(key)
        if assigned.moves == "above":
            minimum = key.partition("/")[2]
            body = podpatches.marked_above(pod, minimum, "" if entry is None else entry.workload.spec.queue_name)
        elif assigned.moves == "back":
            body = podpatches.taken_back(pod)
        else:
            body = podpatches.ungated(pod, assigned.selector, assigned.devices)
        meta = {"namespace": pod.metadata.namespace, "name": pod.metadata.name}
        return stamped_write(Verb.JSON_PATCH, PODS, meta, body, Failpoint.POD_PLACED)

    def _answered(self, key: WorkloadKey, uid: str, moves: str, future: "asyncio.Future[Outcome[Any]]") -> None:
        self._sending -= 1
        outcome = future.result()
        if not moves:
            self._count(type(outcome).__name__.lower())
        if not isinstance(outcome, Abandoned):  # else this replica does not lead any more
            self._done(key, uid, outcome)
            self._send()

    def _done(self, key: WorkloadKey, uid: str, outcome: Outcome[Any]) -> None:
        assigned, entry = self._assigned.get(uid), self._ledger.current(key)
        if assigned is None or isinstance(outcome, Written):
            return
        assigned.again_s = self._clock.monotonic() + min(_PAUSE_S * 2 ** min(assigned.tries, 10), _LONGEST_S)
        assigned.tries += 1
        heapq.heappush(self._again, (assigned.again_s, key))
        if assigned.tries > 1 and entry is not None:
            error = getattr(outcome, "error", "")
            self._warn(entry.workload, "PodNotPlaced", f"A pod cannot be ungated: {error}")
        self._event.set()

    def _warn(self, workload: Workload, reason: str, note: str) -> None:
        meta = workload.metadata
        about = ObjectReference(KUEUE, "Workload", meta.name, meta.uid, meta.namespace)
        self._tell(about, "Warning", reason, note)


def _workload_of(pod: Pod) -> WorkloadKey | None:
    """The workload whose places the pod may take; None for pods of no workload, plain pods, and pods that do not run
    any more and never will.

    The place of a pod that has ended is free again: a Job creates another pod for it. Pods above the minimum of a job
    that grows count while they wait; a pod that was taken back is of the minimum, even while the queue still holds it.
    """
    meta = pod.metadata
    above, name = meta.annotations.get(ABOVE_MINIMUM_OF), started_by(pod) or None
    ended = pod.status.phase in ENDED_PHASES or (meta.deletion_timestamp and not pod.spec.node_name)
    if _is_above(pod):
        name = above if _waits(pod) else None
    elif meta.labels.get(MANAGED) == "true" and above is None:
        return None
    return WorkloadKey(object_key(meta.namespace, name)) if name and not ended else None


def _is_above(pod: Pod) -> bool:
    return pod.metadata.labels.get(MANAGED) == "true" and bool(pod.metadata.annotations.get(ABOVE_MINIMUM_OF))


def _waits(pod: Pod) -> bool:
    return any(gate.name == names.TOPOLOGY_GATE for gate in pod.spec.scheduling_gates)


def _runs(workload: Workload) -> bool:
    conditions = workload.status.conditions
    ends = (reasons.EVICTED, reasons.FINISHED, reasons.DEACTIVATION_TARGET)
    return is_true(conditions, reasons.ADMITTED) and not any(is_true(conditions, end) for end in ends)


def _places(workload: Workload, pods: Iterable[Pod], *, every: bool) -> list[PodSetPlaces]:
    """The places of pod sets with a topology assignment: pods of the others wait.

    ``every``: the places of all pod sets, which have as many as pods were admitted. Raises TopologyEncodingError, and
    JobError if the number of a first pod is no number.
    """
    admission = workload.status.admission
    sets = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}
    first, offsets = before(workload), _offsets(pods)
    return [
        pod_set_places(sets[name], one, offset=offsets.get(name), before=first.get(name, 0))
        for one in (admission.pod_set_assignments if admission is not None else ())
        if (every or one.topology_assignment is not None) and (name := one.name) in sets
    ]


def _offsets(pods: Iterable[Pod]) -> dict[str, int]:
    """The number of the first pod of each pod set, if pods tell one. Raises JobError."""
    offsets: dict[str, int] = {}
    for pod in pods:
        name, said = pod.metadata.labels.get(names.POD_SET, ""), pod.metadata.annotations.get(INDEX_OFFSET)
        if said is not None and name not in offsets:
            offsets[name] = parsed_integer(said, f"pod {pod.metadata.name}: metadata.annotations[{INDEX_OFFSET}]")
    return offsets


def _is_place(selector: dict[str, str], sets: list[PodSetPlaces]) -> bool:
    if not selector:
        return any(not pod_set.levels for pod_set in sets)
    return any(
        tuple(selector.get(level, "") for level in pod_set.levels) == domain.values
        for pod_set in sets
        for domain in pod_set.domains
    )


def _without_doubles(one: PodSetPlaces, pods: list[PlacedPod]) -> PodSetPlaces:
    """The places, without ranks if two waiting pods share one: the second would wait for ever."""
    if one.ranks is None:
        return one
    keys = (one.ranks.index_label, one.ranks.sub_group_label)
    said = [tuple(pod.labels.get(key) for key in keys) for pod in pods if pod.pod_set == one.name and pod.waits]
    return one if len(set(said)) == len(said) else msgspec.structs.replace(one, ranks=None)
