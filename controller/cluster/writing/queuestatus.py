"""The status of queues and cohorts: what is reserved, used and pending, and whether they are active.

Each status is written when it differs from what was written last, at most once a second, a few at a time between the
writes of workloads: numbers that are some seconds old do no harm, an admission that waits behind them does. Where
nothing is pending there is no such admission: a queue that has emptied says so at once, ClusterQueues before
LocalQueues.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from controller.cluster.watching.kinds import CLUSTER_QUEUES, COHORTS, KAI_QUEUES, LOCAL_QUEUES, VOLCANO_QUEUES
from controller.cluster.writing.mergepatch import Json
from controller.cluster.writing.pace import Allowance, Pace
from controller.cluster.writing.stampedwrites import stamped_write
from controller.cluster.writing.workloadwrites import status_write
from controller.foreign.objects.kai import KaiQueue
from controller.foreign.objects.volcanoqueue import CLOSED_BY_PARENT, VolcanoQueue
from controller.foreign.rules import queuestatus as foreignstatus
from controller.objects.meta import Condition, KubernetesObject, to_json, with_condition
from controller.objects.quantity import NANO, Quantity
from controller.objects.queues import ClusterQueue, Cohort, LocalQueue
from controller.objects.queueunits import UnitsError, unit_shapes
from controller.scheduler.decisions.status import MESSAGE_LIMIT, moment
from controller.scheduler.engine import Engine
from controller.scheduler.flavors.spot import word_problems
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.mirror.specs import QueueOwner
from controller.scheduler.model.nodetemplate import template_problem, timeout_problem
from controller.scheduler.model.resources import ClusterQueueName, CohortName, FlavorName, LocalQueueKey
from controller.scheduler.quota.prices import order_problem, price_problem
from controller.scheduler.quota.queuestate import Holder, QueueState
from controller.scheduler.quota.queueusage import shown, sums
from controller.scheduler.quota.shares import share
from controller.scheduler.quota.usagehistory import UsageRecord
from controller.scheduler.state.activity import local_queue_problem
from failpoints.names import Failpoint
from inventory.api.names import QUEUE_USAGE, QUOTA_ANNOTATIONS, UNITS_COUNTED
from kube.objects import timestamp
from kube.resources import Resource
from kube.writing.writes import Conflicted, Outcome, Verb, Write

_log = logging.getLogger(__name__)

PERIOD_S: Final = 1.0
_DRAINED_S: Final = 0.1
"""Seconds between two comparisons while no workload is pending and none holds quota."""
_LATEST_S: Final = 5.0
"""The age from which a status is written however busy the server is."""
_SAYING_ZERO: Final = (CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS)
"""Kinds whose types write a count of 0."""
_BACKLOG: Final = 4
_BACKLOG_EMPTIED: Final = 64
"""Writes under way above which not even queues that have emptied, while nothing is pending, are written."""
_SOON_S: Final = 0.05
_ROUND_S: Final = 45.0
"""The time in which every queue is written once, however quickly decisions are written."""

_RECORD_EVERY_S: Final = 300.0
_RECORD_SHORTEST_S: Final = 10.0
"""The least time between two records: a record of a short window is written for each of its buckets."""

_ROUNDING: Final = 1e-3
"""The precision of amounts: nanos are cut off, and a whole number stays whole despite floating point."""

_OF_ANNOTATIONS: Final = (QUOTA_ANNOTATIONS, UNITS_COUNTED)
"""Conditions that are there only while an annotation asks for them."""

_Key = tuple[Resource, str, str]


class QueueStatuses:
    """Writes statuses. ``put`` sends a write. ``backlog``: the number of writes that are not done yet.

    ``_written`` is the status that the API server has, or will have once ``_unsent`` is written: the watch's view
    replaces it only for keys that are not in ``_unsent``. ``_changes`` is the engine's count of changes at the last
    comparison; ``_dirty`` says that something else has changed since.
    """

    def __init__(
        self, engine: Engine, put: Callable[[Write[Any]], Any], *, pace: Pace, backlog: Callable[[], int]
    ) -> None:
        self._engine = engine
        self._put = put
        self._backlog = backlog
        self._cohorts: dict[CohortName, Cohort] = {}
        self._foreign: dict[_Key, QueueOwner] = {}
        """Mirrored Queues of Volcano and KAI."""
        self._written: dict[_Key, Json] = {}
        self._said: dict[_Key, tuple[ClusterQueue | LocalQueue, tuple[str, ...], list[Json]]] = {}
        """The conditions of a queue, with the object and the conditions that they were made of."""
        self._warned: dict[tuple[type, str, str], tuple[str, ...]] = {}
        """What was wrong in the annotations of objects when it was logged last, by the condition that tells it."""
        self._samples: dict[LocalQueueKey, UsageRecord] = {}
        self._counts: dict[LocalQueueKey, str] = {}
        """What was counted of each LocalQueue that names units; it keeps its condition until its first count."""
        self._changes = -1
        self._dirty = True
        self._next_s = 0.0
        self._compared_s = 0.0
        self._allowance = Allowance(pace, rate=20.0, quick_rate=1.0, burst=20.0)
        self._records: dict[QueueName, str] = {}
        self._record_s = 0.0
        """The time of the next records of past use; 0 before the first."""
        self._marked: dict[_Key, float] = {}
        """Queues whose mark was sent, and when, until the watch shows a newer state of them."""
        self._unsent: dict[_Key, tuple[float, Write[Any]]] = {}
        """The newest status of each object that is to be written, and since when, the oldest first."""
        self._emptied: set[_Key] = set()
        """Keys of ``_unsent`` whose status says that a queue has emptied: no more than there are at one time."""

    def next_due_s(self, now_s: float) -> float | None:
        compare_s = self._compare_s()
        if self._unsent or self._records:
            soon_s = _SOON_S if self._emptied and not len(self._engine.state.queues) else 1.0
            sent_s = now_s + min(soon_s, 1.0 / self._allowance.rate(now_s))
            return sent_s if compare_s is None else min(sent_s, compare_s)
        return compare_s

    def _compare_s(self) -> float | None:
        """The time of the next comparison of statuses; None while nothing has changed."""
        state = self._engine.state
        if self._changes != state.changes and not len(state.queues) and not state.cluster.holders:
            return min(self._next_s, self._compared_s + _DRAINED_S)
        return self._next_s if self._dirty or self._changes != state.changes else None

    def touch(self) -> None:
        """Notes a change that the engine does not count."""
        self._dirty = True

    def observed(self, resource: Resource, given: KubernetesObject) -> None:
        """Notes the status that the watch shows: later ones are compared with it."""
        self._dirty = True
        if isinstance(given, Cohort):
            self._cohorts[CohortName(given.metadata.name)] = given
        status = getattr(given, "status", None)
        key = (resource, given.metadata.namespace, given.metadata.name)
        if isinstance(given, VolcanoQueue | KaiQueue):
            self._foreign[key] = given
            self._marked.pop(key, None)
        if status is not None and key not in self._unsent:
            self._written[key] = to_json(status)

    def gone(self, resource: Resource, namespace: str, name: str) -> None:
        self._dirty = True
        self._foreign.pop((resource, namespace, name), None)
        self._marked.pop((resource, namespace, name), None)
        self._said.pop((resource, namespace, name), None)
        self._written.pop((resource, namespace, name), None)
        self._unsent.pop((resource, namespace, name), None)
        self._emptied.discard((resource, namespace, name))
        if resource is COHORTS:
            self._cohorts.pop(CohortName(name), None)

    def sampled(self, samples: Mapping[LocalQueueKey, UsageRecord]) -> None:
        """Notes past usage, which the status keeps over restarts."""
        self._samples |= samples
        self._dirty = self._dirty or bool(samples)

    def counted(self, counts: Mapping[LocalQueueKey, str]) -> None:
        """Notes what LocalQueues that name units would admit: one sentence each."""
        self._dirty = self._dirty or self._counts != counts
        self._counts = dict(counts)

    def recorded(self, records: Mapping[QueueName, str], now_s: float) -> None:
        """Notes past use of KAI's Queues, which an annotation keeps over restarts: use of the last minutes may be
        lost.
        """
        history = self._engine.state.queue_history
        if history is not None and now_s >= self._record_s:
            self._records |= records if self._record_s else {}
            self._record_s = now_s + min(_RECORD_EVERY_S, max(_RECORD_SHORTEST_S, history.bucket_s))

    def write(self, now_s: float) -> None:
        """Writes what has changed, if it is time, and as much as there is room for."""
        due_s = self._compare_s()
        if due_s is not None and now_s >= due_s:
            self._next_s, self._compared_s = now_s + PERIOD_S, now_s
            self._compare(now_s)
        if self._emptied and not len(self._engine.state.queues):
            self._write_emptied()
        while self._unsent and self._allowance.left(now_s, len(self._written) / _ROUND_S) >= 1.0:
            key, (since_s, _) = next(iter(self._unsent.items()))
            if self._backlog() > _BACKLOG and now_s - since_s < _LATEST_S:
                return
            self._allowance.take()
            self._send_now(key)
        while self._records and self._allowance.left(now_s, len(self._written) / _ROUND_S) >= 1.0:
            name = next(iter(self._records))
            text = self._records.pop(name)
            if (owner := self._foreign.get((KAI_QUEUES, "", name))) is not None:
                self._allowance.take()
                tied = {"name": name, "uid": owner.metadata.uid}
                self._put(_annotation(KAI_QUEUES, tied, QUEUE_USAGE, text, Failpoint.QUEUE_USAGE, slot="usage"))

    def _write_emptied(self) -> None:
        """Writes statuses of queues that have emptied: nothing is pending, so they delay no admission."""
        for key in sorted(self._emptied, key=lambda key: (key[0] is not CLUSTER_QUEUES, *key[1:])):
            if self._backlog() > _BACKLOG_EMPTIED:
                return
            self._send_now(key)

    def _answered(self, key: _Key, outcome: "asyncio.Future[Outcome[Any]]") -> None:
        """What was not written on top of a newer version is compared with it."""
        if isinstance(outcome.result(), Conflicted) and (owner := self._foreign.get(key)) is not None:
            self._dirty = True
            self._written[key] = to_json(owner.status)

    def _send_now(self, key: _Key) -> None:
        self._emptied.discard(key)
        _, write = self._unsent.pop(key)
        answer = self._put(write)
        if "metadata" in write.body:
            answer.add_done_callback(partial(self._answered, key))

    def _compare(self, now_s: float) -> None:
        self._dirty, self._changes = False, self._engine.state.changes
        waiting: dict[LocalQueueKey, int] = {}
        for pending in self._engine.state.queues:
            waiting[pending.local_queue] = waiting.get(pending.local_queue, 0) + 1
        locals_of: dict[ClusterQueueName, list[LocalQueue]] = {}
        cluster, mirror = self._engine.state.cluster, self._engine.mirror
        for queue in cluster.local_queues.values():
            if not queue.metadata.uid and mirror.is_leaf(queue.spec.cluster_queue):
                continue  # it is there for a mirrored queue, and has no object
            locals_of.setdefault(ClusterQueueName(queue.spec.cluster_queue), []).append(queue)
        for name, state in cluster.queues.items():
            of_all = None if mirror.is_leaf(name) else self._cluster_queue(state, now_s)
            self._local_queues(state, locals_of.pop(name, ()), waiting, now_s, of_all)
        for orphans in locals_of.values():
            self._local_queues(None, orphans, waiting, now_s)
        self._cohort_shares()
        for cohort in self._cohorts.values():
            self._annotated(cohort, now_s)
        if self._foreign:
            known = foreignstatus.loads(self._engine)
            for key, owner in self._foreign.items():
                if isinstance(owner, VolcanoQueue):
                    self._mark(key, owner, now_s)
                self._send(key[0], owner, foreignstatus.status(self._engine, owner, known))

    def _mark(self, key: _Key, owner: VolcanoQueue, now_s: float) -> None:
        """Writes the annotation that says by whom the Queue was closed. It is written again if the watch does not show
        it in time.
        """
        wanted = foreignstatus.mark(self._engine, owner)
        if wanted is None:
            return
        self._dirty = True
        since_s = self._marked.get(key)
        late = since_s is None or now_s - since_s >= _LATEST_S
        if late and self._allowance.left(now_s, len(self._written) / _ROUND_S) >= 1.0:
            self._marked[key] = now_s
            self._allowance.take()
            tied = {"name": owner.metadata.name, **_tie(owner)}
            self._put(_annotation(VOLCANO_QUEUES, tied, CLOSED_BY_PARENT, wanted, Failpoint.QUEUE_CLOSED, slot="mark"))

    def _cluster_queue(self, state: QueueState, now_s: float) -> Json:
        """The status of a ClusterQueue. If all holders have one LocalQueue, the totals serve for its status too."""
        queue: ClusterQueue = state.object
        totals = self._totals(state, state.holders.values())
        problems = self._engine.inactive(state.name)
        active = _active(not problems, problems[0] if problems else None, "The ClusterQueue admits workloads", now_s)
        annotated = self._annotated(queue, now_s)
        status: Json = {
            "conditions": self._conditions(CLUSTER_QUEUES, queue, active, annotated),
            **totals,
            "pendingWorkloads": sum(self._engine.state.queues.counts(state.name)),
            "reservingWorkloads": len(state.holders),
            "admittedWorkloads": sum(holder.admitted for holder in state.holders.values()),
        }
        if self._engine.state.config.fair_sharing is not None:
            status["fairSharing"] = {"weightedShare": share(state.node).weighted}
        self._send(CLUSTER_QUEUES, queue, status)
        return totals

    def _local_queues(
        self,
        state: QueueState | None,
        queues: Iterable[LocalQueue],
        waiting: Mapping[LocalQueueKey, int],
        now_s: float,
        of_all: Json | None = None,
    ) -> None:
        """Sends the statuses of LocalQueues. ``of_all``: the totals of all holders of the ClusterQueue."""
        holders: dict[LocalQueueKey, list[Holder]] = {}
        for holder in state.holders.values() if state is not None else ():
            holders.setdefault(holder.local_queue, []).append(holder)
        cluster = self._engine.state.cluster
        open_ = state is not None and not self._engine.inactive(state.name)
        for queue in queues:
            key = LocalQueueKey(queue.key)
            own = holders.get(key, [])
            problem = local_queue_problem(queue, cluster, queue_active=open_)
            active = _active(problem is None, problem, "The LocalQueue takes workloads", now_s)
            of_spot = self._refused((LocalQueue, queue.key), QUOTA_ANNOTATIONS, self._spot_problems(queue), now_s)
            if state is None:
                totals = {"flavorsReservation": None, "flavorsUsage": None}
            else:
                totals = of_all if of_all and len(own) == len(state.holders) else self._totals(state, own)
            status: Json = {
                "conditions": self._conditions(LOCAL_QUEUES, queue, active, of_spot, self._units(queue, now_s)),
                **totals,
                "pendingWorkloads": waiting.get(key, 0),
                "reservingWorkloads": len(own),
                "admittedWorkloads": sum(holder.admitted for holder in own),
            }
            if (sample := self._samples.get(key)) is not None:
                status["fairSharing"] = _sampled(sample)
            self._send(LOCAL_QUEUES, queue, status)

    def _totals(self, state: QueueState, holders: Iterable[Holder]) -> Json:
        reserved, used = sums(holders)
        reservation = to_json(shown(state, reserved))
        return {
            "flavorsReservation": reservation,
            "flavorsUsage": reservation if used == reserved else to_json(shown(state, used)),
        }

    def _annotated(self, queue: ClusterQueue | Cohort, now_s: float) -> Condition | None:
        """The condition that tells what is wrong in the quota annotations of the object; None where nothing is. It is
        logged when it is new.
        """
        shares, key = self._engine.shares, (type(queue), queue.metadata.name)
        of_shares = shares.problems.get(key) if shares is not None else None
        of_nodes = self._flavor_problems(queue) if isinstance(queue, ClusterQueue) else ()
        of_spot = self._spot_problems(queue) if isinstance(queue, ClusterQueue) else ()
        of_calendars = self._engine.state.calendars.of(*key).problems
        problems = (*filter(None, (of_shares,)), *of_calendars, *of_spot, *of_nodes)
        return self._refused(key, QUOTA_ANNOTATIONS, problems, now_s)

    def _refused(self, of: tuple[type, str], type_: str, problems: tuple[str, ...], now_s: float) -> Condition | None:
        """The condition that tells these problems of annotations of an object; None without any. Each is logged when it
        is new.
        """
        if self._warned.get((*of, type_), ()) != problems:
            self._warned[*of, type_] = problems
            for problem in problems:
                _log.warning("%s %s: %s", of[0].__name__, of[1], problem)
        if not problems:
            return None
        return _of_annotation(type_, "False", "Refused", "; ".join(problems), now_s)

    def _spot_problems(self, queue: ClusterQueue | LocalQueue) -> tuple[str, ...]:
        return word_problems(queue) if self._engine.state.config.extensions.spot_words else ()

    def _units(self, queue: LocalQueue, now_s: float) -> Condition | None:
        """The condition that tells the LocalQueue's units, or what is wrong in the annotation that names them; None
        without units.
        """
        try:
            shapes = unit_shapes(queue.metadata.annotations)
        except UnitsError as wrong:
            return self._refused((LocalQueue, queue.key), UNITS_COUNTED, (str(wrong),), now_s)
        if not shapes:
            return None
        sentence = self._counts.get(LocalQueueKey(queue.key))
        if sentence is not None:
            return _of_annotation(UNITS_COUNTED, "True", "Counted", sentence, now_s)
        return next((each for each in queue.status.conditions if each.type == UNITS_COUNTED), None)

    def _flavor_problems(self, queue: ClusterQueue) -> Iterator[str]:
        """The problems of its order of flavors, and of their prices, node templates and times: a flavor has no
        conditions.
        """
        cluster, annotations = self._engine.state.cluster, queue.metadata.annotations
        extensions = cluster.config.extensions
        if extensions.priced_flavors and (problem := order_problem(annotations)):
            yield problem
        names = [quotas.name for group in queue.spec.resource_groups for quotas in group.flavors]
        for flavor in filter(None, (cluster.flavors.get(FlavorName(name)) for name in names)):
            told = flavor.metadata.annotations
            problems = [price_problem(told)] if extensions.priced_flavors else []
            if extensions.coming_nodes:
                problems += template_problem(flavor), timeout_problem(told)
            yield from (f"ResourceFlavor {flavor.metadata.name}: {problem}" for problem in problems if problem)

    def _conditions(
        self,
        resource: Resource,
        queue: ClusterQueue | LocalQueue,
        active: Condition,
        *annotated: Condition | None,
    ) -> list[Json]:
        """The conditions of the object with these in their places. The time of a transition stays while its status
        does.
        """
        key = (resource, queue.metadata.namespace, queue.metadata.name)
        of_annotations = [each for each in annotated if each is not None]
        sentences = (f"{each.type}: {each.message}" for each in of_annotations)
        content = (active.status, active.reason, active.message, *sentences)
        known = self._said.get(key)
        if known is None or known[0] is not queue or known[1] != content:
            gone = {*_OF_ANNOTATIONS} - {each.type for each in of_annotations}
            conditions = tuple(each for each in queue.status.conditions if each.type not in gone)
            for condition in of_annotations:
                conditions = with_condition(conditions, condition)
            known = self._said[key] = (queue, content, to_json(with_condition(conditions, active)))
        return known[2]

    def _cohort_shares(self) -> None:
        if self._engine.state.config.fair_sharing is None:
            return
        for name, cohort in self._cohorts.items():
            node = self._engine.state.cluster.quota.cohorts.get(name)
            if node is not None:
                self._send(COHORTS, cohort, {"fairSharing": {"weightedShare": share(node).weighted}})

    def _send(self, resource: Resource, given: KubernetesObject, status: Json) -> None:
        """Notes a status to write. ``status``: the keys that this controller writes. Keys of other writers stay."""
        meta = given.metadata
        key = (resource, meta.namespace, meta.name)
        known = self._written.get(key, {})
        bare = _bare if resource in _SAYING_ZERO else _without_zeros
        changes = {
            name: value
            for name, value in status.items()
            if known.get(name) != value and bare(known.get(name)) != bare(value)
        }
        if changes:
            self._written[key] = {**known, **status}
            since_s, earlier = self._unsent.get(key, (self._next_s, None))
            merged = {**earlier.body["status"], **changes} if earlier is not None else changes
            # The state of a Queue of Volcano is also a command's to set: it holds for the version it was read from.
            tied = _tie(given) if "state" in merged else None
            self._unsent[key] = (
                since_s,
                status_write(resource, meta.namespace, meta.name, merged, Failpoint.QUEUE_STATUS, tied=tied),
            )
            if not status.get("reservingWorkloads", 1) and not status["pendingWorkloads"]:
                if known.get("reservingWorkloads") or known.get("pendingWorkloads"):
                    self._emptied.add(key)
            else:
                self._emptied.discard(key)


def _tie(given: KubernetesObject) -> Json:
    return {"uid": given.metadata.uid, "resourceVersion": given.metadata.resource_version}


def _annotation(resource: Resource, tied: Json, key: str, value: str, failpoint: Failpoint, *, slot: str) -> Write[Any]:
    """``tied``: the name, and what else of the metadata it must have."""
    body = {"metadata": {**tied, "annotations": {key: value}}}
    return stamped_write(Verb.MERGE_PATCH, resource, {"name": tied["name"]}, body, failpoint, slot=slot)


def _bare(value: Any) -> Any:
    """The value without empty parts: absent and empty are the same. A number is kept, also 0."""
    if isinstance(value, dict):
        return {key: bare for key, item in value.items() if (bare := _bare(item)) is not None} or None
    return value if isinstance(value, int) else value or None


def _without_zeros(value: Any) -> Any:
    """The value without empty parts and zeros, which Volcano's and KAI's types do not write."""
    if isinstance(value, dict):
        return {key: bare for key, item in value.items() if (bare := _without_zeros(item)) is not None} or None
    return value or None


def _active(active: bool, problem: Any, message: str, now_s: float) -> Condition:
    return Condition(
        type="Active",
        status="True" if active else "False",
        reason="Ready" if problem is None else problem.reason,
        message=message if problem is None else problem.message,
        last_transition_time=moment(now_s),
    )


def _of_annotation(type_: str, status: str, reason: str, message: str, now_s: float) -> Condition:
    return Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message[:MESSAGE_LIMIT],
        last_transition_time=moment(now_s),
    )


def _sampled(sample: UsageRecord) -> Json:
    """The fair sharing status of a LocalQueue. It borrows nothing, so its weighted share is always 0; the schema
    requires one.
    """
    consumed = {name: str(Quantity(math.floor(amount * NANO + _ROUNDING))) for name, amount in sample.consumed.items()}
    return {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": consumed,
            "lastUpdate": timestamp(sample.at_s),
        },
    }
