"""Runners of the suites whose cases are all withheld, after the form that FORMAT.md gives to all suites.

What a case calls its inputs is not known: each is looked for under the names that the suites beside it use. A wish that
no runner here knows fails the case.
"""

import asyncio
import copy
from collections.abc import Mapping
from typing import Any, Final, cast

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import PODS
from controller.cluster.watching.ledger import Ledger
from controller.cluster.watching.workqueue import ActionFailedError
from controller.jobs.framework import names
from controller.jobs.framework.marks import controller_of
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import Json
from controller.objects.core import Pod
from controller.objects.decode import decode
from controller.objects.workload import Workload
from controller.reconcile.jobs.actions_shell import pods_to_ungate
from controller.reconcile.jobs.elastic import granted
from controller.reconcile.jobshell.workloadactions import WorkloadActions
from controller.reconcile.placing.gateremovals_shell import GateRemovals
from controller.reconcile.pods.actions import deletions
from controller.reconcile.pods.actions_shell import PodActions
from kube.clock import Clock
from kube.errors import NotFoundError
from kube.objects import ObjectReference
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Changed
from kube.writing.writer import Writer
from kube.writing.writes import Missing, Outcome, Verb, Write, Written
from tests.conformance.kueuejobs.podgroups import UID_MARK, now_s
from tests.conformance.kueuejobs.runners_pods import pods_json
from tests.conformance.kueuejobs.runners_slices import is_slice, seen
from tests.conformance.kueuejobs.world import KINDS, At, api_objects
from tests.conformance.replay import Case, Difference, first_difference, runner

_THERE: Final = ("existingPods", "existing", "clnt", "client")
_STOPPED: Final = ("wantStopped", "wantStoppedPods", "want")
_LEFT: Final = ("wantPods", "wantRemaining")
_DELETED: Final = ("wantDeleted", "wantDeletes", "wantDeletedPods")
_ERROR: Final = ("wantErr", "wantError")


def wishes(case: Case, *known: str) -> Mapping[str, Any]:
    """What the case wants. Raises KeyError for a wish of another name."""
    for name in case.expect:
        if name not in known:
            raise KeyError(f"expect.{name}: expected one of {', '.join(known)}")
    return case.expect


# -- gates of elastic jobs


@runner("jobs-elasticjobs-TestRecordPodSchedulingGateRemovalSeconds")
def gate_removals(case: Case) -> Difference | None:
    """Measured on what a watch shows of the pods before and after a step."""
    wanted = wishes(case, *_ERROR, "wantPods", "wantMetricsCount", "wantMetricsSeconds")
    before = {raw["metadata"]["name"]: raw for raw in case.input["pods"] or ()}
    before |= {raw["metadata"]["name"]: raw for raw in api_objects(case) if raw["kind"] == "Pod"}
    ledger, found = Ledger(), list[tuple[str, str, bool, float]]()
    for raw in case.input["workloads"] or ():
        ledger.observe(decode(raw, Workload))
    counts = granted([one for one in seen(case.input["workloads"]) if is_slice(one)])
    free = {pod["metadata"]["name"] for pod in pods_to_ungate(list(before.values()), names.ELASTIC_JOB, counts)}
    after = {name: _ungated(raw) if name in free else raw for name, raw in before.items()}
    removals = GateRemovals(ledger, cast("Clock", At(now_s(case))), lambda *one: found.append(one))
    for name, raw in before.items():
        key = ObjectKey(raw["metadata"].get("namespace", ""), name)
        removals.hear(ObjectChange(PODS, Changed(key, _cached(raw), _cached(after[name]))))
    own = [one for one in found if one[1] == names.ELASTIC_JOB]
    figures = {"count": len(own), "seconds": sum(one[3] for one in own)}
    return (
        first_difference(False, any(bool(wanted.get(key)) for key in _ERROR), "error")
        or first_difference(_gates(wanted["wantPods"] or ()), _gates(after.values()), "gates")
        or first_difference(
            {"count": wanted["wantMetricsCount"], "seconds": float(wanted["wantMetricsSeconds"])}, figures
        )
    )


def _ungated(raw: Json) -> Json:
    kept = [gate for gate in raw["spec"].get("schedulingGates") or () if gate["name"] != names.ELASTIC_JOB]
    return {**raw, "spec": {**raw["spec"], "schedulingGates": kept}}


def _gates(pods: Any) -> dict[str, list[str]]:
    return {
        raw["metadata"]["name"]: [gate["name"] for gate in raw["spec"].get("schedulingGates") or ()] for raw in pods
    }


def _cached(raw: Json) -> CachedObject[Pod]:
    return CachedObject(decode(raw, Pod), raw["metadata"].get("uid", ""), "1")


# -- pods of jobs that are queued as a whole


@runner("jobs-pod-TestIsPodOwnerManagedByQueue")
def of_a_queued_kind(case: Case) -> Difference | None:
    """Whether the controller of a pod is of a kind that is queued: the pod then waits with it, and not for itself."""
    known = {(f"{kind.group}/{kind.version}", kind.kind) for kind in KINDS}
    given: Mapping[str, Any] = next((case.input[key] for key in ("pod", "object") if case.input.get(key)), {})
    pod = {"metadata": dict((given.get("pod") or given).get("metadata") or {})}
    owners = [case.input[key] for key in ("ownerReference", "owner") if case.input.get(key)]
    owners += case.input.get("ownerReferences") or ()
    pod["metadata"]["ownerReferences"] = [*(pod["metadata"].get("ownerReferences") or ()), *owners]
    owner = controller_of(pod)
    found = owner is not None and (owner.api_version, owner.kind) in known
    (wanted,) = wishes(case, "want", "wantRes", "wantManaged", "wantResult").values()
    return first_difference(bool(wanted), found)


# -- stops


class _Api:
    """Stands for the API server behind the writer of pods; one that has vanished is Missing."""

    def __init__(self, pods: Mapping[str, Json]) -> None:
        self.pods = {name: copy.deepcopy(raw) for name, raw in pods.items()}
        self.deleted: list[str] = []

    async def put(self, write: Write[Any]) -> Outcome[Any]:
        if write.name not in self.pods:
            return Missing(NotFoundError(write.name))
        if write.verb == Verb.DELETE:
            self.deleted.append(write.name)
            del self.pods[write.name]
        else:
            self.pods[write.name].setdefault("status", {})["conditions"] = write.body["status"]["conditions"]
        return Written(None)


@runner("jobs-pod-TestStop")
def stopped(case: Case) -> Difference | None:
    """All pods of a job or group: those that may run are marked and deleted, those behind their gate wait on.

    A pod that the API does not know has vanished meanwhile: it counts as stopped, and nothing is deleted.
    """
    wanted = wishes(case, *_STOPPED, *_LEFT, *_DELETED, *_ERROR)
    given = {raw["metadata"]["name"]: _whole(raw) for raw in _pods(case)}
    api = _Api({name: raw for name, raw in given.items() if _is_there(case, name)})
    actions = deletions(tuple(SeenPod(raw) for raw in given.values()), "Stopped", str(case.input.get("eventMsg") or ""))
    shell = PodActions(cast(Writer, api), cast(WorkloadActions, None), lambda *_: None, cast(Clock, At(now_s(case))))
    failed = False
    try:
        asyncio.run(shell.carry_out(ObjectReference("v1", "Pod", "pod", "", "ns"), given, actions))
    except ActionFailedError:
        failed = True
    names_ = sorted(getattr(action, "name", "") for action in actions)
    return (
        first_difference(any(bool(wanted.get(key)) for key in _ERROR), failed, "error")
        or _compared(wanted, _STOPPED, names_)
        or _compared(wanted, _DELETED, sorted(api.deleted))
        or next(
            (
                first_difference(pods_json(wanted[key] or ()), pods_json(list(api.pods.values())), key)
                for key in _LEFT
                if key in wanted
            ),
            None,
        )
    )


def _pods(case: Case) -> list[Json]:
    """As a list, or inside of what stands for a pod or a group in Kueue."""
    given = case.input.get("pods") or case.input.get("pod") or case.input.get("fields") or ()
    if isinstance(given, Mapping) and "metadata" not in given:
        given = (given.get("list") or {}).get("items") or [given["pod"]]
    return [dict(given)] if isinstance(given, Mapping) else list(given)


def _whole(raw: Json) -> Json:
    """Each has a uid of its own, which is taken off where pods are compared."""
    meta = {"resourceVersion": "1", "namespace": "", **raw["metadata"]}
    meta["uid"] = f"{meta.get('uid', '')}{UID_MARK}{meta['name']}"
    return {**raw, "metadata": meta, "status": raw.get("status") or {}}


def _is_there(case: Case, name: str) -> bool:
    """Inputs are in the API, but where a list says what is, or calls of the API are made to fail."""
    for key in _THERE:
        if key in case.input:
            given = case.input[key] or ()
            listed = given.get("clientObjects") or () if isinstance(given, Mapping) else given
            return name in [one["metadata"]["name"] for one in listed]
    return not _fails(case.input)


def _fails(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value.get("$intercepted")) or any(map(_fails, value.values()))
    return isinstance(value, list) and any(map(_fails, value))


def _compared(wanted: Mapping[str, Any], keys: tuple[str, ...], found: list[str]) -> Difference | None:
    """``wanted`` may be pods, their names, or how many."""
    for key in keys:
        if key in wanted:
            value = wanted[key]
            if isinstance(value, int):
                return first_difference(value, len(found), key)
            listed = sorted(one if isinstance(one, str) else one["metadata"]["name"] for one in value or ())
            return first_difference(listed, found, key)
    return None
