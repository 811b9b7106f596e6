"""Kueue's cases about its webhooks as requests to an API server: what is sent, and what is filled in.

The corpus writes objects as its tests build them. What a CRD or Kubernetes itself asks for besides is filled in by
rules over the object, the same for all cases.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from controller.jobs.framework.names import QUEUE_NAME
from controller.jobs.framework.raw import Json, at, labels
from controller.jobs.kinds.policies import RULED
from tests.conformance import replay
from tests.conformance.crds import crdfiles
from tests.conformance.kueuejobs import suites
from tests.conformance.kueuejobs.runners_webhooks import group, groups_of, queue_of
from tests.conformance.replay import Case

PLAIN: Final = "plain"
WITH_DEFAULT: Final = "with-default"
"""Namespaces without and with a LocalQueue ``default``."""
_JUDGED: Final = ("ClusterQueue", "Cohort", "ResourceFlavor", "Workload")
_CLUSTERED: Final = _JUDGED[:3]
RESOURCES: Final = {(ruled.group, ruled.kind): ruled.plural for ruled in RULED} | {
    ("kueue.x-k8s.io", kind): crdfiles.PLURALS[kind] for kind in _JUDGED
}
_PARTS: Final = ("runtimePatches",)
"""What is laid over another object's template is no whole template."""
_REFUSALS: Final = ("wantErr", "wantError", "wantErrors", "wantValidationErrs", "wantErrNum")
_MADE: Final = ("want", "wantJob", "wantTrainJob", "wantSparkApp")


@dataclass(frozen=True)
class Asked:
    """What a case asks of an API server: ``old`` is None for an object that is created."""

    case: Case
    old: Json | None
    new: Json
    refused: bool
    made: Json | None

    @property
    def kind(self) -> str:
        return str(self.new["kind"])


def cases() -> Iterator[Case]:
    """All in scope that run a webhook."""

    def is_one(case: Case) -> bool:
        return case.corpus == replay.JOBS and case.harness.startswith("webhook") and not suites.is_out_of_scope(case)

    return replay.cases_that(is_one)


def asked(case: Case) -> Asked | None:
    """None for a case that is about a part of an object."""
    given = {**case.input, **(case.input.get("args") or {})}
    if "rayClusterSpec" in given:
        given["object"] = {**given["object"], "spec": given["rayClusterSpec"]}
    found = {name: one for name, one in given.items() if isinstance(one, Mapping) and _resource(one)}
    before = next((one for name, one in found.items() if name.startswith(("old", "before"))), None)
    new = next((one for one in found.values() if one is not before), _sized(given) or before)
    if new is None:
        return None
    old = None if new is before else before
    made = next((case.expect[key] for key in _MADE if case.expect.get(key)), None)
    refused = any(case.expect.get(key) for key in _REFUSALS)
    listed = [None if one is None else whole(one, given) for one in (old, new, made)]
    if listed[0] is not None and listed[1] is not None and new["kind"] != "Workload":
        listed[1].pop("status", None)
        listed[1] |= {key: listed[0][key] for key in ("status",) if key in listed[0]}
    if refused and new["kind"] not in _JUDGED:
        _queued([one for one in listed if one is not None])
    return Asked(case, listed[0], listed[1] or {}, refused, listed[2])


def _queued(listed: list[Json]) -> None:
    """What is refused goes to a queue: our policies look at nothing else."""
    if not any(labels(one).get(QUEUE_NAME) for one in listed):
        for one in listed:
            one["metadata"]["labels"] = {**labels(one), QUEUE_NAME: "case"}


def _resource(one: Mapping[str, Any]) -> str:
    group_name = str(one.get("apiVersion", "")).rpartition("/")[0]
    return RESOURCES.get((group_name, str(one.get("kind", ""))), "") if "metadata" in one else ""


def _sized(given: Mapping[str, Any]) -> Json | None:
    """A ClusterQueue of as many flavors and resources as a case says."""
    resources, flavors = given.get("numResources", given.get("numCoveredRes")), given.get("numFlavors")
    if resources is None and flavors is None:
        return None
    listed = [f"example.com/r{index}" for index in range(1 if resources is None else resources)]
    named = [f"f{index}" for index in range(1 if flavors is None else flavors)]
    if resources is not None and flavors is not None:
        return queue_of([group(listed, named)])
    if flavors is None:
        return queue_of([group(part, [f"f{index}"]) for index, part in enumerate(groups_of(listed))])
    return queue_of([group([f"example.com/r{index}"], part) for index, part in enumerate(groups_of(named))])


def path(one: Json, *, named: bool = False) -> str:
    version = one["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    where = "" if one["kind"] in _CLUSTERED else f"/namespaces/{one['metadata']['namespace']}"
    return f"{root}{where}/{_resource(one)}" + (f"/{one['metadata']['name']}" if named else "")


def managed_by(one: Json) -> Any:
    return at(one, "spec", "managedBy") or at(one, "spec", "runPolicy", "managedBy")


# -- what is filled in


def whole(one: Mapping[str, Any], given: Mapping[str, Any]) -> Json:
    """Less what is null or only a server writes, with what a server asks for."""
    made: Json = _completed(deepcopy(one))
    metadata = made["metadata"]
    for key in ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        metadata.pop(key, None)
    metadata["name"] = metadata.get("name", "case").lower()
    if made["kind"] not in _CLUSTERED:
        default = given.get("defaultLqExist") or given.get("withDefaultLocalQueue")
        metadata["namespace"] = WITH_DEFAULT if default else PLAIN
    for owner in metadata.get("ownerReferences") or ():
        owner["uid"] = owner.get("uid") or "owner"
    if fill := _FILL.get(made["kind"]):
        fill(made)
    return made


def _completed(value: Any, key: str = "") -> Any:
    """Pods get a container, and containers their names and images; a type that is empty is absent."""
    if key in _PARTS:
        return _without_nulls(value)
    if isinstance(value, list):
        return [_completed(item, key) for item in value]
    if not isinstance(value, Mapping):
        return value
    made = {
        name: _completed(item, name)
        for name, item in value.items()
        if item is not None and (name, item) != ("type", "")
    }
    if key.lower().endswith("template") and "spec" in made and _holds_pods(made["spec"]):
        made["spec"]["containers"] = _containers(made["spec"].get("containers") or [{}])
        if found := made["spec"].get("initContainers"):
            made["spec"]["initContainers"] = _containers(found)
    return made


def _containers(listed: list[Json]) -> list[Json]:
    return [{**_CONTAINER, **{key: value for key, value in one.items() if value != ""}} for one in listed]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _holds_pods(spec: Json) -> bool:
    """Not the specification of a Job or a JobSet, whose template is further below."""
    return not {"template", "replicatedJobs"} & spec.keys()


def _mpi_job(made: Json) -> None:
    made["spec"].setdefault("mpiReplicaSpecs", {"Launcher": {"template": {"spec": {"containers": [_CONTAINER]}}}})


def _train_job(made: Json) -> None:
    made["spec"].setdefault("runtimeRef", {"name": "case"})


def _replicated(made: Json) -> None:
    """A selector, and templates with its labels."""
    spec = made["spec"]
    wanted = spec.setdefault("selector", {"matchLabels": {"app": "case"}})
    template = spec.setdefault("template", {"spec": {"containers": [_CONTAINER]}})
    template.setdefault("metadata", {}).setdefault("labels", {}).update(wanted["matchLabels"])
    if ready := made.get("status", {}).get("readyReplicas"):
        made["status"]["replicas"] = max(ready, made["status"].get("replicas", 0))


_CONTAINER: Final = {"name": "c", "image": "none"}


def _cluster_queue(made: Json) -> None:
    for one in made["spec"].get("resourceGroups") or ():
        if not one.get("coveredResources"):
            one["coveredResources"] = ["cpu"]
            one["flavors"] = [{**each, "resources": [{"name": "cpu", "nominalQuota": "0"}]} for each in one["flavors"]]


def _workload(made: Json) -> None:
    for check in made.get("status", {}).get("admissionChecks", ()):
        check |= {key: value for key, value in _CHECK.items() if not check.get(key)}


_CHECK: Final = {"name": "case", "state": "Pending", "message": "case", "lastTransitionTime": "2025-01-01T00:00:00Z"}
_FILL: Final[Mapping[str, Callable[[Json], None]]] = {
    "ClusterQueue": _cluster_queue,
    "MPIJob": _mpi_job,
    "Workload": _workload,
    "TrainJob": _train_job,
    "StatefulSet": _replicated,
    "Deployment": _replicated,
}


def difference(old: Any, new: Any) -> Any:
    """The merge patch (RFC 7386) that makes ``new`` of ``old``."""
    changed = {key: None for key in old if key not in new}
    for key, item in new.items():
        before = old.get(key)
        if isinstance(before, Mapping) and isinstance(item, Mapping):
            if below := difference(before, item):
                changed[key] = below
        elif key not in old or before != item:
            changed[key] = item
    return changed
