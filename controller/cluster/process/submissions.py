"""Forecasts of objects that are about to be created, from the present term."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, Final

import msgspec

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.process.term import Running
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import LOCAL_QUEUES, NAMESPACES
from controller.cluster.webhooks import dryrun
from controller.insight.bargaining.arithmetic import Clock as Answering
from controller.insight.bargaining.asking import NotAskedError, is_request, request_of, state_parts, time_of
from controller.insight.bargaining.asking import shown as asked_status
from controller.insight.bargaining.life import State
from controller.insight.bargaining.wishes import Composer as RequestComposer
from controller.insight.explain import in_turn
from controller.insight.forecast.forecast import Forecaster
from controller.insight.forecast.parts import Parts
from controller.insight.forecast.service_shell import BusyError, Submitted
from controller.insight.forecast.shown import AHEAD_SHOWN, Json, shown
from controller.insight.forecast.submitted import NotQueuedError, Others, Reader
from controller.jobs.framework.kind import api_version
from controller.objects.workload import Workload
from controller.people.visibility.answers import Answers
from controller.people.visibility.limits import Buckets
from controller.people.visibility.redaction import anybodys, redacted
from controller.people.visibility.server_shell import RefusedError
from controller.people.whatif.manifest import Composer
from controller.reconcile.jobshell.clusterobjects import cluster_objects, job_settings
from controller.reconcile.jobshell.watched import JobKinds, read_kinds
from controller.scheduler.model.resources import WorkloadKey
from kube.clock import Clock
from kube.reading.entries import ObjectKey

_DEFAULT: Final = "default"
_REVIEWS_PER_S: Final = 1.0
_REVIEWS_AT_ONCE: Final = 10
_REVIEW_S: Final = 0.4
"""The time for a forecast: a part of the half second for which the process that serves webhooks waits."""
ELSEWHERE_S: Final = 0.4
"""The time for another replica's forecast, a part of the same half second."""
Elsewhere = Callable[[bytes], Awaitable[bytes]]
"""Returns the answer of the leading replica. Raises RefusedError."""


class Submissions:
    """Makes forecasts. ``kinds`` and ``running`` are called each time: both are of the present term; None while this
    replica does not lead.
    """

    def __init__(
        self,
        config: ControllerConfig,
        feeds: Feeds,
        clock: Clock,
        *,
        own_namespace: str,
        kinds: Callable[[], JobKinds],
        running: Callable[[], Running | None],
        elsewhere: Elsewhere,
    ) -> None:
        self._settings = job_settings(config, own_namespace)
        self._schedulers = config.schedulers
        self._feeds = feeds
        self._clock = clock
        self._kinds = kinds
        self._running = running
        self._elsewhere = elsewhere
        self._reviews: Buckets[str] = Buckets(per_s=_REVIEWS_PER_S, burst=_REVIEWS_AT_ONCE, most=1)
        self._reviewing = False

    async def foretold(self, manifest: Any, namespace: str) -> Json | None:
        """The forecast of a manifest: ``queued``, ``startsNow``, ``sentence`` and ``forecast``; of a CapacityRequest
        the status that it would have. None while this replica does not lead.

        Raises NotQueuedError, BusyError and TimeoutError.
        """
        running = self._running()
        if running is None or not running.core.loaded.is_set():
            return None
        if is_request(manifest):
            return await self._asked(running, manifest, namespace)
        workload = self._reader().workload(manifest, namespace, self._clock.wall())
        found = await running.forecasts.of_new(workload)
        return _shown(running, workload, found)

    async def _asked(self, running: Running, manifest: Json, namespace: str) -> Json:
        """What a program could have that asks for this. Raises NotQueuedError, BusyError and TimeoutError."""
        now_s, engine = self._clock.wall(), running.core.engine
        composer = RequestComposer(self._settings, cluster_objects(self._feeds, self._queued(), lambda _: False))
        try:
            request = request_of(manifest, namespace, composer, now_s)
        except NotAskedError as wrong:
            raise NotQueuedError(*wrong.told) from None

        def question(known: Forecaster) -> Parts[State]:
            ends_at, clock = known.ends_at(engine, now_s), self._clock.wall()
            lasts = known.lasts(engine)
            return state_parts(engine, request, composer, Answering(clock, ends_at, lasts, time_of))

        return asked_status(await running.forecasts.answered(question))

    def composer(self) -> Composer:
        """The composer for another process, which reads manifests as this one does."""
        kinds = self._queued()
        facts = {
            (kind, key.namespace, key.name): entry.object
            for kind, resource in read_kinds(kinds).items()
            if resource in self._feeds
            for key in self._feeds[resource]
            if (entry := self._feeds[resource].get(key)) is not None
        }
        queued = tuple(kinds.values())
        return Composer(kinds=queued, settings=self._settings, facts=facts, others=self.others())

    async def warned(self, question: bytes) -> bytes:
        """The warnings about the object of a DryRun. Both are msgpack. A replica that does not lead asks the leader,
        and warns if it gets no answer.

        The webhooks' port authenticates nobody, and a review may be invented: no namespace's names are told, not even
        those of the object's own, and one review is worked on at a time, few a second. Any other gets no warnings.
        """
        if self._reviewing or self._reviews.take("", self._clock.monotonic()):
            return msgspec.msgpack.encode([])
        self._reviewing = True
        try:
            asked = msgspec.msgpack.decode(question, type=dryrun.DryRun)
            warnings = await self._warnings(asked)
            if warnings is None:
                warnings = await self._warnings_elsewhere(asked)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            warnings = []
        finally:
            self._reviewing = False
        return msgspec.msgpack.encode(warnings)

    async def reviewed_for_replica(self, body: bytes) -> bytes | None:
        """The warnings of a dry run that another replica was asked about. None while this replica does not lead."""
        try:
            warnings = await self._warnings(msgspec.json.decode(body, type=dryrun.DryRun))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return msgspec.json.encode([])
        return None if warnings is None else msgspec.json.encode(warnings)

    async def _warnings(self, asked: dryrun.DryRun) -> list[str] | None:
        """The warnings of a dry run; empty if nothing can be told. None while this replica does not lead."""
        if is_request(asked.created):
            return []
        try:
            async with asyncio.timeout(_REVIEW_S):
                forecast = await self.foretold(asked.created, asked.namespace)
        except (NotQueuedError, BusyError, TimeoutError):
            return []
        running = self._running()
        if forecast is None or running is None:
            return None
        answers = Answers(running.core.engine, lambda _: None, self._clock.wall())
        return dryrun.warnings_of(redacted(forecast, anybodys(forecast), answers.queue_of))

    async def _warnings_elsewhere(self, asked: dryrun.DryRun) -> list[str]:
        try:
            async with asyncio.timeout(ELSEWHERE_S):
                return msgspec.json.decode(await self._elsewhere(msgspec.json.encode(asked)), type=list[str])
        except RefusedError as refused:
            return [dryrun.not_known(str(refused))]
        except (TimeoutError, msgspec.MsgspecError):
            return [dryrun.not_known("the replica that leads does not say")]

    def _queued(self) -> JobKinds:
        return {resource: kind for resource, kind in self._kinds().items() if resource in self._feeds}

    def _reader(self) -> Reader:
        kinds = self._queued()
        return Reader(
            {(api_version(kind), kind.kind): kind for kind in kinds.values()},
            self._settings,
            cluster_objects(self._feeds, kinds, lambda _: False),
            self._labels,
            lambda namespace: self._feeds[LOCAL_QUEUES].get(ObjectKey(namespace, _DEFAULT)) is not None,
            self.others(),
        )

    def others(self) -> Others:
        """The foreign systems that this replica decides for."""
        running = self._running()
        adopted = running.core.engine.mirror.implied() if running is not None else {}
        return Others(adopted, self._schedulers)

    def _labels(self, namespace: str) -> dict[str, str]:
        entry = self._feeds[NAMESPACES].get(ObjectKey("", namespace))
        return {} if entry is None else dict(entry.object.metadata.labels)


def _shown(running: Running, workload: Workload, found: Submitted) -> Json:
    engine = running.core.engine
    queue = engine.queue_of(engine.as_pending(workload).local_queue)
    before: list[WorkloadKey] = []
    if queue is not None and found.forecast is not None:
        turns = islice(in_turn(engine, queue.name), min(found.forecast.ahead, AHEAD_SHOWN))
        before = [pending.key for _, _, pending in turns]
    sentence = found.sentence
    if queue is None:
        sentence = f"There is no LocalQueue {workload.spec.queue_name} that leads to a ClusterQueue"
    elif found.forecast is None:
        sentence = f"ClusterQueue {queue.name} takes nothing in now"
    return {
        "localQueue": workload.spec.queue_name,
        "clusterQueue": queue.name if queue is not None else None,
        "priority": workload.spec.priority or 0,
        "startsNow": found.starts,
        "sentence": sentence,
        "forecast": None if found.forecast is None else shown(found.forecast, before, found.changes),
    }
