"""Runners of the suites of the workload controller: one Workload with its queues, what became of it, and when again."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from controller.cluster.config.settings import Retention
from controller.cluster.writing.retention import deletion_s
from controller.jobs.framework.actions import FinishWorkload
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import Json
from controller.jobs.framework.steps import remove_finalizers
from controller.jobs.kinds.batchjob import BatchJob
from controller.objects.decode import decode, decode_object
from controller.objects.deviceclaims import RESOURCE
from controller.objects.meta import is_true, to_json
from controller.objects.queues import ClusterQueue, LocalQueue, ResourceFlavor
from controller.objects.workload import Workload
from controller.reconcile.jobs.reconcile import unowned
from controller.reconcile.lifecycle.lifecycle import due_s, queue_policies, step
from controller.reconcile.lifecycle.pendingcause import before_a_try
from controller.scheduler.decisions import reasons, status
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.decisions.records import DecisionRecord, Rule
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.deviceclaims import ClaimRules, DeviceClassMapping
from controller.scheduler.model.resources import ClusterQueueName, ResourceName, WorkloadKey
from controller.scheduler.state.intake import WorkloadPhase, standing
from tests.conformance.kueue.runners_workload import duration_s
from tests.conformance.kueuejobs.runners_core import now_s, rules, workload_json
from tests.conformance.kueuejobs.world import world
from tests.conformance.replay import Case, Difference, first_difference, runner

_STEPS: Final = 3
LOST: Final = "a flavor that is not there"


def engine_of(case: Case) -> Engine:
    """An engine that knows the case's queues as the API has them.

    Kueue's cases say by the condition Active whether a ClusterQueue takes part; here that follows from the objects. One
    that is said to be active has its flavors, and one that is not names a flavor that is not there.
    """
    config = EngineConfig(
        gates=case.gates,
        wait_for_pods_ready=rules(_options(case).get("waitForPodsReady")),
        claim_rules=_claim_rules(case),
    )
    engine, at_s = Engine(config), now_s(case)
    there = {(raw["kind"], raw["metadata"]["name"]): raw for raw in case.input.get("apiObjects") or ()}
    if (local := case.input.get("lq")) is not None:
        raw = there.get(("LocalQueue", local["metadata"]["name"]), local)
        engine.put(decode(_going(raw, bool(case.input.get("shouldDeleteLQ"))), LocalQueue), at_s)
    if (queue := case.input.get("cq")) is None:
        return engine
    raw = there.get(("ClusterQueue", queue["metadata"]["name"]), queue)
    engine.put(taking_part(engine, _going(raw, bool(case.input.get("shouldDeleteCQ"))), at_s), at_s)
    return engine


def taking_part(engine: Engine, raw: Json, at_s: float) -> ClusterQueue:
    """The ClusterQueue, with its flavors in the engine where it is said to be active, else with one that is missing."""
    found = decode(raw, ClusterQueue)
    named = [flavor["name"] for group in raw["spec"].get("resourceGroups") or () for flavor in group["flavors"]]
    if is_true(found.status.conditions, "Active"):
        for name in named:
            engine.put(decode({"metadata": {"name": name}, "spec": {}}, ResourceFlavor), at_s)
    elif not named:
        groups = [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": LOST, "resources": [{"name": "cpu", "nominalQuota": "0"}]}],
            }
        ]
        found = decode({**to_json(found), "spec": {**raw["spec"], "resourceGroups": groups}}, ClusterQueue)
    return found


def _going(raw: Json, going: bool) -> Json:
    metadata = {"deletionTimestamp": "2025-01-01T00:00:00Z", **raw["metadata"]} if going else raw["metadata"]
    return {**raw, "metadata": metadata}


def _options(case: Case) -> Mapping[str, Any]:
    return case.input.get("options") or {}


def _tried(case: Case, engine: Engine, key: WorkloadKey) -> None:
    """What ``beforeReconcile`` says of an earlier try."""
    words = (case.input.get("beforeReconcile") or {}).get("$words", "")
    said = re.search(r"\(reason (\w+)\)", words)
    if said is None:
        return
    queue = ClusterQueueName(case.input["cq"]["metadata"]["name"])
    made = (DecisionRecord(at_s=now_s(case), workload=key, cluster_queue=queue, rule=rule) for rule in Rule)
    engine.stories.tell(next(record for record in made if record.reason == said.group(1)))


def _retention(case: Case) -> Retention:
    given = _options(case).get("workloadRetention") or {}
    return Retention(
        after_finished_s=_seconds(given.get("afterFinished")),
        after_deactivated_s=_seconds(given.get("afterDeactivatedByKueue")),
    )


def _seconds(given: str | None) -> float | None:
    return None if given is None else duration_s(given)


def _states(case: Case, first: Workload, engine: Engine, *, waits: bool) -> Iterator[Workload | None]:
    """The Workload after each of our steps; None once it is gone. Nothing where nothing is done."""
    at_s, workload = now_s(case), first
    if not first.metadata.owner_references or _is_cleared_away(case, first):
        for found in _left_by_its_job(case):
            yield found
            if found is None:
                return
            workload = found
        if case.input.get("patchErr"):
            return
    for _ in range(_STEPS):
        taken = step(workload, queue_policies(engine, workload), engine.state.config, at_s)
        if taken is None:
            break
        workload = taken.after
        if taken.deactivate:
            workload = msgspec.structs.replace(workload, spec=msgspec.structs.replace(workload.spec, active=False))
        yield workload
    if waits and standing(workload, engine.state.config) in (WorkloadPhase.PENDING, WorkloadPhase.HELD_BACK):
        cause, gates = before_a_try(engine, workload), engine.state.config.gates
        if cause is not None and cause.reason is not PendingReason.ON_HOLD:  # that it waits out a back-off is said too
            yield status.unreserved(workload, cause.reason, cause.message, now_s=at_s, gates=gates)
    ends_s = deletion_s(workload, _retention(case))
    if ends_s is not None and ends_s <= at_s:
        yield None


def _is_cleared_away(case: Case, workload: Workload) -> bool:
    """It has finished and is being deleted, as finished ones are after a while: Kueue looks at an owned one then."""
    ended = is_true(workload.status.conditions, "Finished") and workload.metadata.deletion_timestamp is not None
    return ended and _retention(case).after_finished_s is not None


def _left_by_its_job(case: Case) -> Iterator[Workload | None]:
    """After each action on a Workload without an owner; a status that cannot be written ends them."""
    state = world(case, BatchJob(), None, [case.input["workload"]])
    (name,) = state.workloads
    given = SeenWorkload.of(state.workloads[name])
    # One that is deleted loses its finalizer by its job's reconciler, as by that of a job that has gone.
    actions = remove_finalizers([given]) if given.owner_references else unowned(given, state.settings)
    for action in actions:
        if case.input.get("patchErr") and isinstance(action, FinishWorkload):
            return
        state.carry_out(action)
        raw = state.workloads.get(name)
        yield None if raw is None else decode(raw, Workload)


def _shown(workload: Workload | Json, *, requeued: bool) -> Any:
    """What is compared: status, whether it is active, and its finalizers."""
    raw = to_json(workload) if isinstance(workload, Workload) else workload
    shown = workload_json(raw, requeued=requeued)
    if shown.get("conditions", {}).get(reasons.QUOTA_RESERVED, {}).get("status") == "False":
        shown.pop("admission", None)  # what is left of it means nothing: Kueue's test API does not take it away
    return {**shown, "finalizers": raw["metadata"].get("finalizers") or []}


@runner("jobs-core-TestReconcile")
@runner("jobs-core-TestReconcileInadmissible")
def reconciled(case: Case) -> Difference | None:
    return _reconciled(case, waits=True)


@runner("jobs-core-TestReconcileEviction")
@runner("jobs-core-TestReconcileRequeue")
def stepped(case: Case) -> Difference | None:
    """Without the condition that says why it waits: Kueue's controller writes that in a later call."""
    return _reconciled(case, waits=False)


def _reconciled(case: Case, *, waits: bool, engine: Engine | None = None) -> Difference | None:
    """One of the states that our steps bring is what is wanted; where nothing is to change, nothing changes."""
    engine, before = engine or engine_of(case), decode(case.input["workload"], Workload)
    _tried(case, engine, WorkloadKey(before.key))
    wanted = case.expect.get("wantWorkload")
    states: list[Workload | None] = [before, *_states(case, before, engine, waits=waits)]
    if wanted is None:
        ends = before.metadata.deletion_timestamp is not None or _retention(case) != Retention()
        return first_difference(True, states[-1] is None, "gone") if ends else None
    has = any(one["type"] == reasons.REQUEUED for one in (wanted.get("status") or {}).get("conditions") or ())
    expected = _shown(wanted, requeued=has)
    kept = [None if state is None else _shown(state, requeued=has) for state in states]
    at = (
        len(kept) - 1 if expected == kept[0] else next((at for at, found in enumerate(kept) if found == expected), None)
    )
    if at is None or kept[at] != expected:
        return first_difference(expected, kept[-1])
    return _again(case, states[at], engine) if waits else None


def _again(case: Case, workload: Workload | None, engine: Engine) -> Difference | None:
    """When the Workload is looked at again for the clock alone; where Kueue does not say, its next event tells."""
    wanted_s = duration_s((case.expect.get("wantResult") or {}).get("requeueAfter") or "0s")
    if not wanted_s or workload is None:
        return None
    times = (due_s(workload, engine.state.config), deletion_s(workload, _retention(case)))
    soonest_s = min((time for time in times if time is not None), default=None)
    return first_difference(wanted_s, None if soonest_s is None else soonest_s - now_s(case), "requeueAfter")


_MAPPED: Final = {"foo": "foo.example.com", "gpu": "gpu.example.com"}


def _claim_rules(case: Case) -> ClaimRules:
    mappings = (DeviceClassMapping(resource=ResourceName(name), classes=(by,)) for name, by in _MAPPED.items())
    return ClaimRules(
        mappings=tuple(mappings),
        on=case.gates.on("KueueDRAIntegration"),
        extended_resources=case.gates.on("KueueDRAIntegrationExtendedResource"),
        reject=case.gates.on("KueueDRARejectWorkloadsWhenDRADisabled"),
    )


@runner("jobs-core-TestReconcileDRA")
def claimed(case: Case) -> Difference | None:
    """What Kueue gives up on with an error, it tries again: here, it is tried again once the objects are others."""
    engine, workload = engine_of(case), decode(case.input["workload"], Workload)
    listed = (case.input.get(name) or () for name in ("apiObjects", "resourceClaims", "resourceClaimTemplates"))
    for raw in itertools.chain(*listed, case.input.get("additionalObjects") or ()):
        if raw["apiVersion"].startswith("resource.k8s.io/"):
            engine.put(decode_object({**raw, "apiVersion": RESOURCE}), now_s(case))
    claims = engine.state.device_claims.count(workload)
    refused = claims is not None and bool(claims.problem)
    if case.expect.get("wantErrorMsg") and not refused:
        return Difference("wantErrorMsg", True, False)
    if (total := case.expect.get("wantDRAResourceTotal")) is not None:
        counted = claims.pod_sets if claims is not None else ()
        ours = sum(
            amount * pod_set.count
            for pod_set, found in zip(workload.spec.pod_sets, counted, strict=False)
            for amount in found.each.values()
        )
        if (difference := first_difference(int(total), ours, "wantDRAResourceTotal")) is not None:
            return difference
    if case.expect.get("wantWorkload") is None:
        return None
    return _reconciled(case, waits=not refused, engine=engine)
