"""Runners of the suites about checks that request nodes: the controller itself, once, on objects in a table."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import CHECKS, PROVISIONING_CONFIGS, PROVISIONING_REQUESTS, RawWorkloads
from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.watching.workqueue import ActionFailedError
from controller.cluster.writing.stampedwrites import Stamped
from controller.cluster.writing.workloadwrites import Result
from controller.jobs.framework.raw import Json
from controller.objects.decode import decode
from controller.objects.meta import object_key, to_json
from controller.objects.provisioning import ProvisioningRequest, ProvisioningRequestConfig
from controller.objects.queues import AdmissionCheck, ResourceFlavor
from controller.objects.workload import Workload
from controller.reconcile.provisioning.checks import active, is_ours
from controller.reconcile.provisioning.provisioning import Provisioning, with_message
from controller.reconcile.provisioning.provisioning_shell import POD_TEMPLATES, ProvisioningController
from controller.reconcile.provisioning.requests import bodies, needed
from controller.scheduler.decisions.decisions import Event
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.resources import WorkloadKey
from kube.errors import ConflictError, InvalidError, NotFoundError
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Added
from kube.resources import Resource
from kube.testing.clocks import VirtualClock
from kube.writing.writes import Conflicted, Missing, Outcome, Refused, Verb, Write, Written
from tests.conformance.kueuejobs.runners_core import now_s
from tests.conformance.kueuejobs.runners_podsets import filled
from tests.conformance.replay import Case, Difference, first_difference, runner

_TYPES: Final[dict[Resource, Any]] = {
    CHECKS: AdmissionCheck,
    PROVISIONING_CONFIGS: ProvisioningRequestConfig,
    PROVISIONING_REQUESTS: ProvisioningRequest,
}
_INPUTS: Final = {"checks": CHECKS, "configs": PROVISIONING_CONFIGS, "requests": PROVISIONING_REQUESTS}


class _Table:
    """Objects by kind and name, with the client, the watches and the writers that the controller has of them.
    ``refuses``: what becomes of a creation; None where it goes well.
    """

    def __init__(self, refuses: Callable[[Resource], Outcome[Any] | None]) -> None:
        self.objects: dict[tuple[Resource, ObjectKey], Json] = {}
        self._refuses = refuses

    def __getitem__(self, resource: Resource) -> dict[str, Json]:
        return {key.name: body for (kind, key), body in self.objects.items() if kind == resource}

    def entry(self, resource: Resource, key: ObjectKey) -> Json | None:
        return self.objects.get((resource, key))

    async def get(self, resource: Resource, name: str, _kind: Any, *, namespace: str) -> Json:
        found = self.entry(resource, ObjectKey(namespace, name))
        if found is None:
            raise NotFoundError(name)
        return found

    def put(self, write: Write[Any]) -> "asyncio.Future[Outcome[Any]]":
        future: asyncio.Future[Outcome[Any]] = asyncio.get_running_loop().create_future()
        future.set_result(self._answer(write))
        return future

    def _answer(self, write: Write[Any]) -> Outcome[Any]:
        where = (write.resource, ObjectKey(write.namespace or "", write.name))
        if write.verb is Verb.DELETE:
            return Written(None) if self.objects.pop(where, None) is not None else Missing(NotFoundError(write.name))
        if write.verb is Verb.CREATE:
            refused = self._refuses(write.resource)
            if refused is not None or where in self.objects:
                return refused or Conflicted(ConflictError("already exists"))
        self.objects[where] = write.body if write.verb is Verb.CREATE else _patched(self.objects[where], write.body)
        return Written(Stamped())

    def status(self, entry: LedgerEntry, after: Workload, then: Callable[[Result, str], None], _failpoint: Any) -> None:
        entry.workload = after
        then(Result.WRITTEN, "")


def _patched(known: Json, changes: list[Json]) -> Json:
    """The PodTemplate with its new owners and template."""
    values = {change["path"]: change["value"] for change in changes if change["op"] == "add"}
    meta = {**known["metadata"], "ownerReferences": values["/metadata/ownerReferences"]}
    return {**known, "metadata": meta, "template": values["/template"]}


def _refusals(words: Any) -> Callable[[Resource], Outcome[Any] | None]:
    """What the case's callback does, by its words."""
    text = str((words or {}).get("$words", ""))

    def refuses(resource: Resource) -> Outcome[Any] | None:
        if f"create of a {resource.kind} fails" not in text:
            return None
        exists = "AlreadyExists" in text
        return Conflicted(ConflictError("already exists")) if exists else Refused(InvalidError("no"))

    return refuses


def _named(raw: Json) -> ObjectKey:
    return ObjectKey(raw["metadata"].get("namespace", ""), raw["metadata"]["name"])


class _Scene:
    """One controller, with everything that the case has. Its workload's owner references are by name alone."""

    def __init__(self, case: Case) -> None:
        self.table = _Table(_refusals(case.input.get("interceptorFuncsCreate")))
        self.events: list[Event] = []
        self.engine = Engine(EngineConfig(gates=case.gates))
        self.ledger, self.raws = Ledger(), RawWorkloads()
        self.controller = ProvisioningController(
            self.engine,
            self.ledger,
            self.table,  # type: ignore[arg-type]
            self.raws,
            self.table,  # type: ignore[arg-type]
            self.table,  # type: ignore[arg-type]
            self.table.put,
            clock=VirtualClock(wall_s=now_s(case)),
            tell=self.events.extend,
        )
        self.controller.provisioning.set_served(served=True)
        for flavor in case.input.get("flavors") or ():
            self.engine.put(decode(flavor, ResourceFlavor), now_s(case))
        for template in case.input.get("templates") or ():
            self.table.objects[POD_TEMPLATES, _named(template)] = template
        for field, resource in _INPUTS.items():
            for raw in case.input.get(field) or ():
                self._known(resource, raw)
        self.workload = self.raws.read(msgspec.json.encode(case.input["workload"]))
        self.ledger.observe(self.workload)
        self.controller.workload(self.workload, gone=False)

    def _known(self, resource: Resource, raw: Json) -> None:
        self.table.objects[resource, _named(raw)] = raw
        entry = CachedObject[Any](decode(raw, _TYPES[resource]), "", "1")
        self.controller.hear(ObjectChange(resource, Added(_named(raw), entry)))

    def reconcile(self) -> bool:
        """Whether the one call failed."""
        try:
            asyncio.run(self.controller.reconcile(_named({"metadata": to_json(self.workload.metadata)})))
        except ActionFailedError:
            return True
        finally:
            self.controller.provisioning.validate()
        return False

    @property
    def after(self) -> Workload:
        entry = self.ledger.get(WorkloadKey(self.workload.key))
        assert entry is not None
        return entry.workload


@runner("jobs-provisioning-TestReconcile")
def reconcile(case: Case) -> Difference | None:
    scene = _Scene(case)
    failed, wanted = scene.reconcile(), case.expect
    known = scene.table[PROVISIONING_REQUESTS]
    return (
        first_difference(bool(wanted.get("wantReconcileError")), failed, "error")
        or _of_all(wanted.get("wantWorkloads"), {"wl": to_json(scene.after)}, _checks, "workloads")
        or _of_all(wanted.get("wantRequests"), known, _request, "requests")
        or _of_all(wanted.get("wantTemplates"), scene.table[POD_TEMPLATES], _template, "templates")
        or first_difference([], [name for name in wanted.get("wantRequestsNotFound") or () if name in known], "gone")
        or first_difference(
            [(one["eventType"], one["reason"]) for one in wanted.get("wantEvents") or ()],
            [(one.type.value, one.reason) for one in scene.events],
            "events",
        )
    )


def _of_all(
    wanted: Mapping[str, Json] | None, found: Mapping[str, Json], shown: Callable[[Json], Any], path: str
) -> Difference | None:
    for name, one in (wanted or {}).items():
        difference = first_difference(shown(one), shown(found[name]) if name in found else None, f"{path}.{name}")
        if difference is not None:
            return difference
    return None


def _checks(workload: Json) -> Any:
    """The states of the checks; of a message, whether there is one."""
    states = workload["status"].get("admissionChecks") or ()
    return [filled({**one, "message": bool(one.get("message")), "lastTransitionTime": None}) for one in states]


def _request(request: Json) -> Any:
    return filled({"labels": request["metadata"].get("labels"), "spec": request["spec"]})


def _template(template: Json) -> Any:
    made = template["template"]
    spec = {key: value for key, value in made["spec"].items() if key != "restartPolicy"}
    return filled({"labels": template["metadata"].get("labels"), "template": {**made, "spec": spec}})


@runner("jobs-provisioning-TestReconcileAdmissionCheck")
def admission_check(case: Case) -> Difference | None:
    check = decode(case.input["check"], AdmissionCheck)
    configs = {
        one["metadata"]["name"]: decode(one, ProvisioningRequestConfig) for one in case.input.get("configs") or ()
    }
    found = active(check, configs, served=True, now_s=now_s(case)) if is_ours(check) else None
    return first_difference(_condition(case.expect["wantCondition"]), _condition(to_json(found)))


def _condition(raw: Json | None) -> Any:
    return {} if raw is None else {key: raw.get(key) for key in ("type", "status", "reason", "observedGeneration")}


@runner("jobs-provisioning-TestActiveOrLastPRForChecks")
def newest(case: Case) -> Difference | None:
    """The check goes by one request: all others are removed, and it is compared with the one that is left."""
    known = Provisioning(case.gates, extended=False)
    known.set_served(served=True)
    spec = {"provisioningClassName": "class1", "parameters": {"p1": "v1"}}
    known.set_config("config1", decode({"metadata": {"name": "config1"}, "spec": spec}, ProvisioningRequestConfig))
    (check,) = (one for one in case.input["apiObjects"] if one["kind"] == "AdmissionCheck")
    (raw,) = (one for one in case.input["apiObjects"] if one["kind"] == "Workload")
    known.set_check(check["metadata"]["name"], decode(check, AdmissionCheck))
    workload = decode(raw, Workload)
    key = WorkloadKey(workload.key)
    requests = [decode(one, ProvisioningRequest) for one in case.input.get("requests") or ()]
    for request in requests:
        known.set_request(object_key(request.metadata.namespace, request.metadata.name), request)
    known.set_workload(key, workload)
    removed = known.decide(key, workload, now_s(case)).remove
    found = [request.metadata.name for request in requests if request not in removed]
    return first_difference([one["metadata"]["name"] for one in (case.expect["wantResult"] or {}).values()], found)


@runner("jobs-provisioning-TestIsMissingInCache")
def missing(case: Case) -> Difference | None:
    table = _Table(lambda _: None)
    for raw in case.input.get("requests") or ():
        table.objects[PROVISIONING_REQUESTS, _named(raw)] = raw
    key = ObjectKey("ns", "wl-check1-1")
    return first_difference(case.expect["want"], table.entry(PROVISIONING_REQUESTS, key) is None)


def _config(spec: Json) -> ProvisioningRequestConfig:
    return decode({"metadata": {"name": "c"}, "spec": spec}, ProvisioningRequestConfig)


@runner("jobs-provisioning-TestMergePodSetsSkipsZeroCounts")
def merged(case: Case) -> Difference | None:
    raw, policy = case.input["workload"], case.input.get("mergePolicy")
    config = _config({"podSetMergePolicy": policy} if policy else {})
    made = bodies(decode(raw, Workload), raw["spec"]["podSets"], config, "r", lambda _: None)
    found = made.request["spec"]["podSets"]
    names = [each["podTemplateRef"]["name"].removeprefix("ppt-r-") for each in found]
    return first_difference(case.expect["wantNames"], names, "names") or first_difference(
        case.expect["wantCounts"], [each["count"] for each in found], "counts"
    )


@runner("jobs-provisioning-TestReqIsNeeded")
def is_needed(case: Case) -> Difference | None:
    found = needed(decode(case.input["workload"], Workload), _config({"managedResources": ["cpu"]}))
    return first_difference(case.expect["want"], bool(found))


@runner("jobs-provisioning-TestUpdateCheckMessage")
def message(case: Case) -> Difference | None:
    state = {"name": "check", "state": "Pending", "message": case.input.get("message", "")}
    workload = decode({"metadata": {"name": "wl"}, "status": {"admissionChecks": [state]}}, Workload)
    after = with_message(workload, "check", case.input.get("newMessage", ""), now_s(case))
    found = (after or workload).status.admission_checks[0].message
    return first_difference(case.expect["wantChanged"], after is not None, "changed") or first_difference(
        bool(case.expect["wantMessage"]), bool(found), "message"
    )
