"""Explanations as JSON: why a workload is pending, which workloads come before it, what each queue has.

    /api/v1/explain?workload=NAMESPACE/NAME      /api/v1/queues      /api/v1/pending?clusterQueue=NAME

They are read from the engine, with the numbers of the moment: a pending workload is tried for the question. Followers
answer 503 and name the leader.
"""

import json
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from controller.core import Core
from controller.engine.conditions.decisions import Pending
from controller.engine.conditions.records import DecisionRecord
from controller.engine.conditions.sentences import details, sentence
from controller.engine.engine import Engine
from controller.engine.model.encoding import hosts
from controller.engine.model.podrequests import one_pod
from controller.engine.model.resources import UNLIMITED, Amount, ClusterQueueName, WorkloadKey
from controller.engine.model.workload import effective_priority
from controller.engine.quota.queuestate import QueueState
from controller.engine.quota.queueusage import quantity_of, shown, sums
from controller.engine.quota.shares import share
from controller.objects.meta import find_condition, is_true, to_json
from controller.objects.workload import Workload

Json = dict[str, Any]
_LIMIT: Final = 100_000
_PAGE: Final = 1_000
_PLACES_SHOWN: Final = 8


class Explanations:
    """``core`` is None while this replica does not lead; ``leader`` names the one that does."""

    def __init__(
        self, core: Callable[[], Core | None], leader: Callable[[], str | None], now: Callable[[], float]
    ) -> None:
        self._core = core
        self._leader = leader
        self._now = now

    def routes(self) -> dict[str, Handler]:
        return {
            "/api/v1/explain": self._explain,
            "/api/v1/queues": self._queues,
            "/api/v1/pending": self._pending,
        }

    async def _explain(self, request: web.Request) -> web.Response:
        core = self._core()
        if core is None:
            return self._elsewhere()
        key = WorkloadKey(request.query.get("workload", ""))
        kept = core.ledger.get(key)
        if kept is None:
            return _answer({"error": f"workload: found {str(key)[:120]!r}, expected NAMESPACE/NAME of a Workload"}, 404)
        return _answer(explained(core.engine, kept.workload, self._now()))

    async def _queues(self, _: web.Request) -> web.Response:
        core = self._core()
        if core is None:
            return self._elsewhere()
        states = core.engine.state.cluster.queues.values()
        found = [queue_shown(core.engine, state) for state in sorted(states, key=lambda state: state.name)]
        return _answer({"clusterQueues": found})

    async def _pending(self, request: web.Request) -> web.Response:
        core = self._core()
        if core is None:
            return self._elsewhere()
        name = ClusterQueueName(request.query.get("clusterQueue", ""))
        if name not in core.engine.state.cluster.queues:
            return _answer({"error": f"clusterQueue: found {str(name)[:120]!r}, expected a ClusterQueue's name"}, 404)
        try:
            offset, limit = int(request.query.get("offset", "0")), int(request.query.get("limit", str(_PAGE)))
        except ValueError:
            offset = limit = -1
        if offset < 0 or not 0 <= limit <= _LIMIT:
            return _answer({"error": f"offset, limit: expected numbers from 0, limit up to {_LIMIT}"}, 400)
        return _answer({"clusterQueue": name, "items": waiting(core.engine, name)[offset : offset + limit]})

    def _elsewhere(self) -> web.Response:
        return _answer({"error": "this replica does not lead", "leader": self._leader()}, 503)


def explained(engine: Engine, workload: Workload, now_s: float) -> Json:
    """All that is known of one workload: its state, the reason, the numbers behind it, and its past decisions."""
    key = WorkloadKey(workload.key)
    found: Json = {
        "workload": key,
        "localQueue": workload.spec.queue_name,
        "clusterQueue": _queue_name(engine, workload),
        "priority": effective_priority(workload, engine.state.config.gates),
        "state": _state(engine, workload),
        "conditions": to_json(workload.status.conditions),
        "admission": to_json(workload.status.admission) if workload.status.admission is not None else None,
        "decision": None,
        "position": None,
        "story": [_record(record) for record in engine.stories.of(key)],
        "devices": _devices(engine, workload),
        "claims": _claims(engine, workload),
        "couldBeMade": [],
        "deviceDrift": [
            {"pod": drift.pod, "node": drift.node, "planned": list(drift.planned), "held": list(drift.held)}
            for drift in engine.state.cluster.placement.drifts(key)
        ],
    }
    pending = engine.explain(key, now_s)
    if pending is not None:
        found["decision"] = decision_shown(pending)
        found["couldBeMade"] = _could_be_made(engine, workload)
        listed = waiting(engine, ClusterQueueName(found["clusterQueue"]))
        found["position"] = next((row["position"] for row in listed if row["workload"] == key), None)
    return found


def _devices(engine: Engine, workload: Workload) -> list[Json]:
    """The devices of its pods, node by node, as far as they are known."""
    found = []
    admission = workload.status.admission
    for pod_set_assignment in admission.pod_set_assignments if admission is not None else ():
        for node in hosts(pod_set_assignment.topology_assignment):
            pods = engine.device_plan(WorkloadKey(workload.key), pod_set_assignment.name, node)
            if pods:
                found.append(
                    {"podSet": pod_set_assignment.name, "node": node, "pods": [list(devices) for devices in pods]}
                )
    return found


def _claims(engine: Engine, workload: Workload) -> list[Json]:
    """What its claims of devices count as: each claim that is made for a pod, and each by name as a whole."""
    return [
        {
            "claim": found.name,
            "template": found.template,
            "counts": {name: str(quantity_of(name, amount)) for name, amount in sorted(found.amounts.items())},
            "problem": found.problem,
            "chargedTo": list(found.charged_to),
        }
        for found in engine.state.device_claims.told(workload)
    ]


def _could_be_made(engine: Engine, workload: Workload) -> list[Json]:
    """MIG instances that it requests and that a change of layout could make: the first few places of each profile."""
    asked = dict.fromkeys(name for pod_set in workload.spec.pod_sets for name in one_pod(pod_set.template.spec))
    return [
        {"resource": name, "node": slot.node, "gpu": slot.gpu, "starts": list(slot.starts), "migMode": slot.mode}
        for name in asked
        for slot in islice(engine.state.cluster.placement.could_be_made(name), _PLACES_SHOWN)
    ]


def decision_shown(pending: Pending) -> Json:
    record = pending.record
    missing = record.missing()
    return {
        **_record(record),
        "wouldAdmit": None
        if missing is None
        else {
            "podSet": missing.pod_set,
            "flavor": missing.flavor,
            "resources": [
                {
                    "resource": shortfall.resource,
                    "needed": _shown(shortfall.resource, shortfall.needed),
                    "available": _shown(shortfall.resource, shortfall.available),
                    "nominal": _shown(shortfall.resource, shortfall.nominal),
                    "used": _shown(shortfall.resource, shortfall.used),
                    "atMost": _shown(shortfall.resource, shortfall.potential),
                }
                for shortfall in missing.shortfalls
            ],
        },
    }


def _record(record: DecisionRecord) -> Json:
    return {
        "at": record.at_s,
        "clusterQueue": record.cluster_queue,
        "rule": record.rule.name.lower(),
        "reason": record.reason.value,
        "sentence": record.rule.value if record.assignment is not None and not _waits(record) else sentence(record),
        "details": details(record),
        "preempts": [{"workload": target.holder.key, "reason": target.reason.value} for target in record.targets],
    }


def _waits(record: DecisionRecord) -> bool:
    return record.rule.name not in ("FITS", "PLACED")


def queue_shown(engine: Engine, state: QueueState) -> Json:
    reserved, used = sums(state.holders.values())
    problems = engine.inactive(state.name)
    active, parked = engine.state.queues.counts(state.name)
    return {
        "name": state.name,
        "cohort": state.node.parent.name if state.node.parent is not None else None,
        "active": not problems,
        "problems": [{"reason": problem.reason, "message": problem.message} for problem in problems],
        "stopPolicy": state.policies.stop,
        "pending": {"active": active, "parked": parked},
        "reserving": len(state.holders),
        "admitted": sum(holder.admitted for holder in state.holders.values()),
        "weightedShare": share(state.node).weighted,
        "reservation": to_json(shown(state, reserved)),
        "usage": to_json(shown(state, used)),
        "available": [
            {"flavor": fr.flavor, "resource": fr.resource, "amount": _shown(fr.resource, state.node.available(fr))}
            for fr in state.flavor_resources
        ],
    }


def waiting(engine: Engine, name: ClusterQueueName) -> list[Json]:
    """In the order in which they are tried; positions count from 0, in the ClusterQueue and in the LocalQueue."""
    queues = engine.state.queues
    found, places = [], dict[str, int]()
    for position, one in enumerate(queues.in_order([*queues.active(name), *queues.parked(name)])):
        local = places.get(one.local_queue, 0)
        places[one.local_queue] = local + 1
        record = engine.stories.last(one.key)
        found.append(
            {
                "workload": one.key,
                "localQueue": one.local_queue,
                "priority": one.priority,
                "position": position,
                "positionInLocalQueue": local,
                "parked": one.at is not None and one.at.is_parked(one),
                "reason": record.reason.value if record is not None else None,
                "sentence": sentence(record) if record is not None and _waits(record) else None,
            }
        )
    return found


def _state(engine: Engine, workload: Workload) -> str:
    conditions, key = workload.status.conditions, WorkloadKey(workload.key)
    if is_true(conditions, "Finished"):
        return "Finished"
    if is_true(conditions, "Evicted") and workload.status.admission is not None:
        return "Evicted"
    if is_true(conditions, "Admitted"):
        return "Admitted"
    if key in engine.state.cluster.holders:
        return "QuotaReserved"
    requeued = find_condition(conditions, "Requeued")
    if engine.state.queues.get(key) is None or (requeued is not None and requeued.status == "False"):
        return "HeldBack"
    return "Pending"


def _queue_name(engine: Engine, workload: Workload) -> str:
    if workload.status.admission is not None:
        return workload.status.admission.cluster_queue
    pending = engine.state.queues.get(WorkloadKey(workload.key))
    state = engine.state.queue_of(pending.local_queue) if pending is not None else None
    return state.name if state is not None else ""


def _shown(resource: Any, amount: Amount) -> str | None:
    """A quantity; None for no limit."""
    return None if amount >= UNLIMITED else str(quantity_of(resource, amount))


def _answer(body: Json, status: int = 200) -> web.Response:
    return web.Response(text=json.dumps(body), status=status, content_type="application/json")
