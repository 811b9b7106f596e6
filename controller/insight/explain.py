"""Explanations as JSON: why a workload is pending, which workloads come before it, what each queue has.

They are read from the engine, with the numbers of the moment: a pending workload is dry-run for the answer. Workloads
and LocalQueues are named ``NAMESPACE/NAME``: ``controller.people.visibility`` finds by that what a user may not see.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from controller.insight.calendarwords import calendar_shown
from controller.insight.growths import growth_shown
from controller.messages.pending import evictions_held, gpu_in_repair, gpus_in_repair
from controller.messages.spans import duration, exact
from controller.messages.statuses import gives_up_in, no_room_to_come, nodes_to_come, places_follow, rest_comes
from controller.objects.decode import GpuNode
from controller.objects.meta import epoch_s, find_condition, is_true, to_json
from controller.objects.placeencoding import hosts
from controller.objects.workload import Workload
from controller.reconcile.lifecycle.lifecycle import nodes_awaited
from controller.reconcile.lifecycle.pendingcause import blocked, blocked_by_queues
from controller.scheduler.cluster.incoming import Target
from controller.scheduler.decisions.decisions import Pending
from controller.scheduler.decisions.records import DecisionRecord
from controller.scheduler.decisions.sentences import details, sentence
from controller.scheduler.engine import Engine
from controller.scheduler.kueue.comingnodes import coming_places
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import (
    UNLIMITED,
    Amount,
    ClusterQueueName,
    FlavorResource,
    WorkloadKey,
)
from controller.scheduler.model.workload import effective_priority
from controller.scheduler.queues.found import found_of, last_found
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.quota.prices import is_interrupted_often
from controller.scheduler.quota.queuestate import QueueState
from controller.scheduler.quota.queueusage import quantity_of, shown, sums
from controller.scheduler.quota.shares import share
from controller.scheduler.state.activity import flavors_without_nodes, interrupted_flavors, is_nodeless
from controller.scheduler.state.podsizes import too_large
from inventory.words.catalog import plural

Json = dict[str, Any]
_PLACES_SHOWN: Final = 8
_HOLDERS_SHOWN: Final = 100
_REPAIRS_SAID: Final = 3


class RepairedNode(NamedTuple):
    """A GpuNode with repairs and the labels of its Node. ``back_at``: the second since 1970 at which a GPU is likely
    back, by its UUID; a GPU that waits for a person is not in it.
    """

    labels: Mapping[str, str]
    gpu_node: GpuNode
    back_at: Mapping[str, float]


def explained(engine: Engine, workload: Workload, now_s: float) -> Json:
    """All that is known of one workload: its state, the reason, the numbers behind it, and its past decisions."""
    key = WorkloadKey(workload.key)
    explanation: Json = {
        "workload": key,
        "localQueue": workload.spec.queue_name,
        "clusterQueue": _queue_name(engine, workload),
        "priority": effective_priority(workload, engine.state.config.gates),
        "state": _state(engine, workload),
        "conditions": to_json(workload.status.conditions),
        "admission": to_json(workload.status.admission) if workload.status.admission is not None else None,
        "checks": checks_waited_for(workload),
        "nodesToCome": nodes_to_come_shown(engine, workload, now_s),
        "preempted": _preempted(workload),
        "decision": None,
        "evictionsHeld": None,
        "inRepair": None,
        "calendar": None,
        "passedOver": None,
        "blocked": None,
        "position": None,
        "story": [_record(record) for record in engine.stories.of(key)],
        "devices": _devices(engine, workload),
        "claims": _claims(engine, workload),
        "couldBeMade": [],
        "growth": growth_shown(engine, workload),
        "tooLarge": _too_large(engine, workload),
        "deviceDrift": [
            {"pod": drift.pod, "node": drift.node, "planned": list(drift.planned), "held": list(drift.held)}
            for drift in engine.state.cluster.placement.drifts(key)
        ],
    }
    pending = engine.explain(key, now_s)
    if pending is not None:
        record = engine.with_taken_nodes(pending.record, now_s, every_name=True)
        pending = msgspec.structs.replace(pending, record=record)
    if explanation["state"] in ("Pending", "HeldBack") and (cause := blocked(engine, workload)) is not None:
        explanation["blocked"] = {"reason": str(cause.reason), "sentence": cause.message}
    if explanation["state"] != "Finished":
        explanation["calendar"] = calendar_shown(engine, ClusterQueueName(explanation["clusterQueue"]), now_s)
        explanation["passedOver"] = _passed_over(engine, ClusterQueueName(explanation["clusterQueue"]), key)
    if pending is not None:
        queue = ClusterQueueName(explanation["clusterQueue"])
        explanation["decision"] = decision_shown(pending)
        if (would := explanation["decision"]["wouldAdmit"]) is not None:
            for row in would["resources"]:
                fr = FlavorResource(would["flavor"], row["resource"])
                row["heldBy"] = holders(engine, queue, fr, now_s)[:_HOLDERS_SHOWN]
        explanation["couldBeMade"] = _could_be_made(engine, workload)
        explanation["position"] = next((place for place, _, each in in_turn(engine, queue) if each.key == key), None)
    return explanation


def _passed_over(engine: Engine, queue: ClusterQueueName, key: WorkloadKey) -> Json | None:
    """The flavors of the workload's queue that are tried after others because their nodes are taken away too often;
    None where there are none but those that it holds.
    """
    cluster = engine.state.cluster
    state, holder = cluster.queues.get(queue), cluster.holders.get(key)
    held = {fr.flavor for fr in holder.usage} if holder is not None else set()
    sentences = interrupted_flavors(state, cluster) if state is not None else {}
    groups = state.groups if state is not None else ()
    others = {name for group in groups if len(group.flavors) > 1 for name in group.flavors}
    passed_over = {
        name: said
        for name, said in sentences.items()
        if name in others and name not in held and is_interrupted_often(cluster.flavors[name])
    }
    return {"flavors": list(passed_over), "sentence": ". ".join(passed_over.values())} if passed_over else None


def _preempted(workload: Workload) -> Json | None:
    """What a workload that waits again was told when it was preempted: for whom, and what it lost; None for others."""
    waits = not is_true(workload.status.conditions, "QuotaReserved")
    condition = find_condition(workload.status.conditions, "Preempted") if waits else None
    if condition is None or condition.status != "True":
        return None
    at_s = None if condition.last_transition_time is None else epoch_s(condition.last_transition_time)
    return {"at": at_s, "reason": condition.reason, "sentence": condition.message}


def checks_waited_for(workload: Workload) -> list[Json]:
    """The admission checks that a workload with quota still waits for, with what they say."""
    waits = is_true(workload.status.conditions, "QuotaReserved") and not is_true(workload.status.conditions, "Admitted")
    states = workload.status.admission_checks if waits else ()
    return [
        {"name": state.name, "state": state.state, "message": state.message}
        for state in states
        if state.state != "Ready"
    ]


def nodes_to_come_shown(engine: Engine, workload: Workload, now_s: float) -> Json | None:
    """The nodes that a workload with quota waits for; None for one that waits for none. ``until``: the second since
    1970 at which it gives up.
    """
    awaited = nodes_awaited(engine, workload)
    if awaited is None:
        return None
    places = coming_places(engine.state.cluster).get(WorkloadKey(workload.key), ())
    every = frozenset(node for place in places for node in place.nodes)
    missing = frozenset(node for place in places for node in place.nodes_to_come)
    after_s = max((engine.state.cluster.placement.coming_after_s(place.flavor) for place in places), default=0.0)
    clause = no_room_to_come()
    if places:
        rest = rest_comes(duration(after_s)) if missing else places_follow()
        clause = nodes_to_come(str(len(every) - len(missing)), str(len(every)), rest)
    return {
        "flavors": list(awaited.flavors),
        "nodes": len(every),
        "missing": len(missing),
        "usuallyAfterSeconds": round(after_s),
        "until": awaited.until_s,
        "sentence": f"{clause}. {gives_up_in(duration(max(0.0, awaited.until_s - now_s)))}",
    }


def held_back(evictions: int, left_s: float) -> Json:
    """The evictions for a pending workload that are held back, and the seconds until they are written."""
    seconds = max(0, math.ceil(left_s))
    said = evictions_held(plural(evictions, "workload"), exact(seconds))
    return {"evictions": evictions, "seconds": seconds, "sentence": said}


def in_repair(engine: Engine, queue: ClusterQueueName, repaired: Iterable[RepairedNode], now_s: float) -> Json | None:
    """The GPUs in repair on nodes of the queue's flavors; None for none. ``backAt`` is the second since 1970 at which
    one is likely back, None where a person has to do something.
    """
    cluster = engine.state.cluster
    state = cluster.queues.get(queue)
    flavors = {fr.flavor for fr in state.flavor_resources} if state is not None else set()
    specs = [cluster.flavors[name].spec for name in flavors if name in cluster.flavors]
    repairs = [
        {
            "node": node.metadata.name,
            "gpu": repair.gpu,
            "state": repair.state,
            "next": repair.next,
            "backAt": back_at.get(repair.gpu),
        }
        for labels, node, back_at in repaired
        if any(spec.selects(labels) for spec in specs)
        for repair in node.status.repairs
        if repair.state != "Probation"
    ]
    if not repairs:
        return None
    which = ", ".join(_one_in_repair(each, now_s) for each in repairs[:_REPAIRS_SAID])
    more = f" and {len(repairs) - _REPAIRS_SAID} more" if len(repairs) > _REPAIRS_SAID else ""
    return {"gpus": repairs[:_HOLDERS_SHOWN], "sentence": gpus_in_repair(str(len(repairs)), f"{which}{more}")}


def _one_in_repair(found: Json, now_s: float) -> str:
    at_s = found["backAt"]
    lasts = "" if at_s is None else duration(max(0.0, at_s - now_s))
    return gpu_in_repair(found["gpu"], found["node"], found["state"], lasts)


def holders(engine: Engine, queue: ClusterQueueName, fr: FlavorResource, now_s: float) -> list[Json]:
    """The holders of this flavor and resource in the queue's cohort tree, the largest first."""
    cluster = engine.state.cluster
    state = cluster.queues.get(queue)
    if state is None:
        return []
    root = state.node.root()
    in_tree = [
        holder
        for holder in cluster.holders.values()
        if holder.usage.get(fr) and cluster.queues[holder.cluster_queue].node.root() is root
    ]
    return [
        {
            "workload": holder.key,
            "clusterQueue": holder.cluster_queue,
            "amount": str(quantity_of(fr.resource, holder.usage[fr])),
            "priority": holder.priority,
            "sinceSeconds": max(0, round(now_s - holder.reserved_at_s)),
            "evicted": holder.evicted,
        }
        for holder in sorted(in_tree, key=lambda holder: (-holder.usage[fr], holder.key))
    ]


def _devices(engine: Engine, workload: Workload) -> list[Json]:
    """The devices of the workload's pods, node by node, as far as they are known."""
    by_node = []
    admission = workload.status.admission
    for pod_set_assignment in admission.pod_set_assignments if admission is not None else ():
        for node in hosts(pod_set_assignment.topology_assignment):
            pods = engine.device_plan(WorkloadKey(workload.key), pod_set_assignment.name, node)
            if pods:
                by_node.append(
                    {"podSet": pod_set_assignment.name, "node": node, "pods": [list(devices) for devices in pods]}
                )
    return by_node


def _too_large(engine: Engine, workload: Workload) -> str | None:
    """That no node is large enough for one of its pods, of a workload that holds quota or waits for it."""
    queue = engine.state.cluster.queues.get(ClusterQueueName(_queue_name(engine, workload)))
    if queue is None or is_true(workload.status.conditions, "Finished"):
        return None
    found = too_large(engine.state.cluster, queue, workload)
    return found.sentence if found is not None else None


def _claims(engine: Engine, workload: Workload) -> list[Json]:
    """The amounts as which the workload's claims of devices count: each claim that is made for a pod, and each named
    claim as a whole.
    """
    return [
        {
            "claim": claim.name,
            "template": claim.template,
            "counts": {name: str(quantity_of(name, amount)) for name, amount in sorted(claim.amounts.items())},
            "problem": claim.problem,
            "chargedTo": list(claim.charged_to),
            "notPlaced": claim.not_placed,
        }
        for claim in engine.state.device_claims.told(workload)
    ]


def _could_be_made(engine: Engine, workload: Workload) -> list[Json]:
    """MIG instances that the workload requests and that a change of layout could make: the first few places of each
    profile.
    """
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
        "preempts": _targets(record.targets),
        "awaits": _targets(record.awaited),
        "spares": _targets(record.spared),
    }


def _targets(targets: tuple[Target, ...]) -> list[Json]:
    return [{"workload": target.holder.key, "reason": target.reason.value, **_price(target)} for target in targets]


def _price(target: Target) -> Json:
    """What the victim loses, where the least lost go first."""
    if target.price is None:
        return {}
    lost, restart = (round(each, 3) for each in target.price)
    return {"lostGpuSeconds": lost, "restartGpuSeconds": restart}


def _waits(record: DecisionRecord) -> bool:
    return record.rule.name not in ("FITS", "PLACED")


def queue_shown(engine: Engine, state: QueueState) -> Json:
    """``available``: what it could take now; nothing where it is not active, and of flavors without a node."""
    reserved, used = sums(state.holders.values())
    problems = engine.inactive(state.name)
    active, parked = engine.state.queues.counts(state.name)
    lacking = flavors_without_nodes(state, engine.state.cluster)
    return {
        "name": state.name,
        "cohort": state.node.parent.name if state.node.parent is not None else None,
        "active": not problems,
        "problems": [{"reason": problem.reason, "message": problem.message} for problem in problems],
        "withoutNodes": [{"flavor": flavor, "message": said} for flavor, said in lacking.items()],
        "nodeless": is_nodeless(state, lacking),
        "stopPolicy": state.policies.stop,
        "pending": {"active": active, "parked": parked},
        "reserving": len(state.holders),
        "admitted": sum(holder.admitted for holder in state.holders.values()),
        "weightedShare": share(state.node).weighted,
        "reservation": to_json(shown(state, reserved)),
        "usage": to_json(shown(state, used)),
        "available": [
            {
                "flavor": fr.flavor,
                "resource": fr.resource,
                "amount": "0" if problems or fr.flavor in lacking else _shown(fr.resource, state.node.available(fr)),
            }
            for fr in state.flavor_resources
        ],
    }


def in_turn(engine: Engine, name: ClusterQueueName) -> Iterator[tuple[int, int, PendingWorkload]]:
    """Yields the pending workloads of a ClusterQueue in the order in which they are tried, with positions from 0 in the
    ClusterQueue and in the LocalQueue.
    """
    queues = engine.state.queues
    places = dict[str, int]()
    for position, pending in enumerate(queues.in_order([*queues.active(name), *queues.parked(name)])):
        local = places.get(pending.local_queue, 0)
        places[pending.local_queue] = local + 1
        yield position, local, pending


def waiting_row(engine: Engine, turn: tuple[int, int, PendingWorkload]) -> Json:
    """The row of a workload that waits in its turn, and why: what keeps it from being tried, else the outcome of its
    last try.
    """
    position, local, pending = turn
    found = last_found(engine.stories, pending)
    record = found_of(found, pending) if found is not None else None
    reason = record.reason.value if record is not None else None
    message = sentence(record) if record is not None and _waits(record) else None
    if (cause := blocked_by_queues(engine, pending.local_queue)) is not None:
        # The outcome of an earlier try is over: no workload of a stopped queue is tried.
        reason, message = str(cause.reason), cause.message
    return {
        "workload": pending.key,
        "localQueue": pending.local_queue,
        "priority": pending.priority,
        "position": position,
        "positionInLocalQueue": local,
        "parked": pending.at is not None and pending.at.is_parked(pending),
        "reason": reason,
        "sentence": message,
    }


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
    """An amount as a quantity; None if it is unlimited."""
    return None if amount >= UNLIMITED else str(quantity_of(resource, amount))
