"""Answers from the engine: first whole, with every object by its key, then as one user may see them. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC
from itertools import islice
from typing import Any, Final

from controller.cluster.writing.heldevictions import Waiting
from controller.insight.explain import RepairedNode, explained, held_back, in_repair, in_turn, queue_shown, waiting_row
from controller.insight.forecast.shown import AHEAD_SHOWN, Foretold, brief, shown
from controller.objects.meta import to_json
from controller.objects.workload import Workload
from controller.people.visibility.redaction import redacted, told
from controller.people.visibility.routes import EXTERNAL_GROUP, EXTERNAL_VERSION, KUEUE_GROUP, Asked, Page, What
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.scheduler.queues.pending import PendingWorkload
from inventory.api.names import VIEW_GROUP, VIEW_VERSION

Json = dict[str, Any]
WorkloadOf = Callable[[WorkloadKey], Workload | None]
Waits = Callable[[WorkloadKey], Waiting | None]
Repaired = Callable[[], Iterable[RepairedNode]]
Turn = tuple[int, int, PendingWorkload]

_VIEW: Final = f"{VIEW_GROUP}/{VIEW_VERSION}"
_PART: Final = 100
"""Rows that are made in one part: some 5 ms."""
_KINDS: Final = {
    What.QUEUE: "QueueView",
    What.PENDING: "PendingView",
    What.WORKLOAD: "WorkloadView",
    What.LOCAL_QUEUE: "LocalQueueView",
}
_SUMMARIES: Final = (What.CLUSTER_QUEUE_SUMMARY, What.LOCAL_QUEUE_SUMMARY)
NOTHING: Final = Foretold()


KEPT_S: Final = 1.0
"""The life of Answers: for a user who asks in a loop the queues are sorted once a second, not each time."""


class Answers:
    """The answers of one engine at one moment. ``workload_of``: a Workload by its key, None where it is not known.
    ``waits``: the evictions that are held back for a preemptor, None for none. ``repaired``: GpuNodes with repairs.

    An answer that was gathered once is given again, and is never changed.
    """

    def __init__(
        self,
        engine: Engine,
        workload_of: WorkloadOf,
        now_s: float,
        waits: Waits = lambda _: None,
        repaired: Repaired = tuple,
    ) -> None:
        self._engine = engine
        self._waits = waits
        self._repaired = repaired
        self._workload_of = workload_of
        self._now_s = now_s
        self._turns: dict[ClusterQueueName, list[Turn]] = {}
        self._explained: dict[str, Json] = {}
        self._rows: dict[tuple[ClusterQueueName, Page], list[Json]] = {}

    def workload(self, key: WorkloadKey) -> Workload | None:
        return self._workload_of(key)

    def prepared(self, asked: Asked) -> Iterator[None]:
        """The slow work of ``gathered``, in parts: the event loop runs other tasks between them."""
        queue, rows = ClusterQueueName(asked.name), list[Json]()
        if asked.what is not What.PENDING or queue not in self._engine.state.cluster.queues:
            return
        if (queue, asked.page) in self._rows:
            return
        for turn in islice(self._in_turn(queue), asked.page.offset, asked.page.offset + asked.page.limit):
            rows.append(waiting_row(self._engine, turn))
            if len(rows) % _PART == 0:
                yield
        self._rows[queue, asked.page] = rows

    def gathered(self, asked: Asked, foretold: Foretold = NOTHING) -> Json | None:
        """The whole answer, before it is redacted for a user. None for an object that does not exist."""
        queues = self._engine.state.cluster.queues
        name = ClusterQueueName(asked.name)
        match asked.what:
            case What.QUEUES:
                return {"queues": [queue_shown(self._engine, queues[each]) for each in sorted(queues)]}
            case What.QUEUE if name in queues:
                return queue_shown(self._engine, queues[name])
            case What.PENDING if name in queues:
                for _ in self.prepared(asked):
                    pass
                return {"items": [self._foreseen(row, foretold) for row in self._rows[name, asked.page]]}
            case What.CLUSTER_QUEUE_SUMMARY if name in queues:
                return {"items": self._summary(name, None, asked.page)}
            case What.LOCAL_QUEUE_SUMMARY:
                return self._local_summary(asked)
            case What.LOCAL_QUEUE | What.EXTERNAL:
                return foretold.view
            case What.WORKLOAD:
                return self._foretold(WorkloadKey(f"{asked.namespace}/{asked.name}"), foretold)
        return None

    @staticmethod
    def _foreseen(row: Json, foretold: Foretold) -> Json:
        return {**row, "forecast": brief(foretold.forecasts.get(row["workload"]))}

    def _foretold(self, key: WorkloadKey, foretold: Foretold) -> Json | None:
        explanation, forecast = self._explanation(key), foretold.forecasts.get(key)
        if explanation is None:
            return None
        if forecast is not None and forecast.not_before is not None:
            return {**explanation, "forecast": shown(forecast, (), ())}
        position = explanation["position"]
        if forecast is None or position is None:
            return {**explanation, "forecast": None}
        turns = islice(self._in_turn(ClusterQueueName(explanation["clusterQueue"])), min(position, AHEAD_SHOWN))
        before = [pending.key for _, _, pending in turns]
        return {**explanation, "forecast": shown(forecast, before, foretold.changes)}

    def _explanation(self, key: WorkloadKey) -> Json | None:
        if key not in self._explained:
            workload = self._workload_of(key)
            if workload is None:
                return None
            explanation = self._explained[key] = explained(self._engine, workload, self._now_s)
            if (held := self._waits(key)) is not None:
                explanation["evictionsHeld"] = held_back(held.evictions, held.until_s - self._now_s)
            if explanation["state"] == "Pending":
                queue = ClusterQueueName(explanation["clusterQueue"])
                explanation["inRepair"] = in_repair(self._engine, queue, self._repaired(), self._now_s)
        return self._explained[key]

    def _in_turn(self, queue: ClusterQueueName) -> list[Turn]:
        if queue not in self._turns:
            self._turns[queue] = list(in_turn(self._engine, queue))
        return self._turns[queue]

    def _local_summary(self, asked: Asked) -> Json | None:
        key = LocalQueueKey(f"{asked.namespace}/{asked.name}")
        local = self._engine.state.cluster.local_queues.get(key)
        if local is None:
            return None
        return {"items": self._summary(ClusterQueueName(local.spec.cluster_queue), key, asked.page)}

    def _summary(self, queue: ClusterQueueName, local: LocalQueueKey | None, page: Page) -> list[Json]:
        if queue not in self._engine.state.cluster.queues:
            return []
        turns = (turn for turn in self._in_turn(queue) if local is None or turn[2].local_queue == local)
        return [
            {
                "workload": pending.key,
                "localQueue": pending.local_queue,
                "priority": pending.priority,
                "position": position,
                "positionInLocalQueue": place,
            }
            for position, place, pending in islice(turns, page.offset, page.offset + page.limit)
        ]

    def shown(self, asked: Asked, gathered: Json, hidden: Collection[str]) -> Json:
        """The object that the user gets: it names nothing of ``hidden`` namespaces."""
        if asked.what in _SUMMARIES:
            items = [self._summarized(row, hidden) for row in gathered["items"]]
            version = f"{KUEUE_GROUP}/{asked.version}"
            return {"kind": "PendingWorkloadsSummary", "apiVersion": version, "metadata": {}, "items": items}
        if asked.what is What.EXTERNAL:
            version = f"{EXTERNAL_GROUP}/{EXTERNAL_VERSION}"
            items = gathered["items"]
            return {"kind": "ExternalMetricValueList", "apiVersion": version, "metadata": {}, "items": items}
        body = redacted(gathered, hidden, self.queue_of)
        if asked.what is What.QUEUES:
            items = [_view("QueueView", row["name"], "", row) for row in body["queues"]]
            return {"kind": "QueueViewList", "apiVersion": _VIEW, "metadata": {}, "items": items}
        if asked.what is What.PENDING:
            for row, whole in zip(body["items"], gathered["items"], strict=True):
                if _namespace(whole["workload"]) in hidden:
                    row["localQueue"] = None
        return _view(_KINDS[asked.what], asked.name, asked.namespace, body)

    def foretold(self, asked: Asked, manifest: Json, found: Json, hidden: Collection[str]) -> Json:
        """The Forecast of a manifest that was sent: it names nothing of ``hidden`` namespaces."""
        made = _view("Forecast", "", asked.namespace, redacted(found, hidden, self.queue_of))
        return {**made, "metadata": {"namespace": asked.namespace}, "spec": {"manifest": manifest}}

    def queue_of(self, key: str) -> str | None:
        """The ClusterQueue of a workload by its key."""
        state = self._engine.state
        if (holder := state.cluster.holders.get(WorkloadKey(key))) is not None:
            return holder.cluster_queue
        pending = state.queues.get(WorkloadKey(key))
        found = state.queue_of(pending.local_queue) if pending is not None else None
        return found.name if found is not None else None

    def _summarized(self, row: Json, hidden: Collection[str]) -> Json:
        """A row as Kueue's PendingWorkload. A hidden workload has no metadata but the words that stand for its name."""
        namespace, _, name = row["workload"].partition("/")
        places = {
            "priority": row["priority"],
            "positionInClusterQueue": row["position"],
            "positionInLocalQueue": row["positionInLocalQueue"],
        }
        if namespace in hidden:
            metadata: Json = {"name": told(row["workload"], self.queue_of)}
            return {"metadata": metadata, "localQueueName": "", **places}
        metadata = {"name": name, "namespace": namespace}
        workload = self._workload_of(WorkloadKey(row["workload"]))
        if workload is not None:
            metadata |= {"uid": workload.metadata.uid}
            if (created := workload.metadata.creation_timestamp) is not None:
                metadata["creationTimestamp"] = created.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            if workload.metadata.owner_references:
                metadata["ownerReferences"] = to_json(workload.metadata.owner_references)
        return {"metadata": metadata, "localQueueName": row["localQueue"].partition("/")[2], **places}


def _view(kind: str, name: str, namespace: str, body: Json) -> Json:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"kind": kind, "apiVersion": _VIEW, "metadata": metadata, "status": body}


def _namespace(key: str) -> str:
    return key.partition("/")[0]
