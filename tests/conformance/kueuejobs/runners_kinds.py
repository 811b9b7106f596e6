"""Runners of the suites that every kind with templates in its own object has: pod sets, classes, rules, start, stop."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from controller.jobs.framework import compose
from controller.jobs.framework.kind import ObjectKind, completed
from controller.jobs.framework.podsets import PodSetInfo, SeenWorkload, StartConflictError
from controller.jobs.framework.raw import JobError, Json, merged
from controller.jobs.framework.templated import Slot, TemplatedKind, with_placement
from controller.jobs.kinds.table import DECLARED_KINDS
from controller.jobs.rules import kinds
from tests.conformance.kueuejobs.runners_podsets import filled, info_of, pod_sets_json, settings_of
from tests.conformance.kueuejobs.runners_validation import errors_differ, wanted_errors
from tests.conformance.replay import Case, Difference, first_difference, runner

_GIVEN: Final = ("job", "jobSet", "trainJob", "rayJob", "rayService", "rayCluster", "service", "sparkApp")
_OLD: Final = ("oldJob", "oldService", "oldSparkApp")
_NEW: Final = ("newJob", "newService", "newSparkApp")


def given(case: Case, keys: Sequence[str] = _GIVEN) -> Json:
    """The case's job, with the objects that it references. A field that is null is absent."""
    found = next(case.input[key] for key in keys if case.input.get(key) is not None)
    return with_facts(case, _without_nulls(found))


def with_facts(case: Case, job: Json) -> Json:
    kind = kind_of(case)
    listed = [one.get("object", one) for one in case.input.get("apiObjects") or ()]
    listed += [case.input[key] for key in ("clusterTrainingRuntime", "rayCluster") if case.input.get(key)]

    def look(wanted: ObjectKind, _namespace: str, name: str) -> Json | None:
        return next((one for one in listed if one["kind"] == wanted.kind and one["metadata"]["name"] == name), None)

    return completed(kind, job, look)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def kind_of(case: Case) -> TemplatedKind:
    name = case.suite.split("-")[1]
    return next(kind for kind in DECLARED_KINDS if kind.kind.lower() == name)


def pod_sets(case: Case) -> Difference | None:
    found = compose.pod_sets(kind_of(case), given(case), settings_of(case))
    wanted = case.expect["wantPodSets"] if "wantPodSets" in case.expect else case.expect["want"]
    listed = pod_sets_json(found)
    if "template NOT compared" in case.compare:
        wanted, listed = ([{**one, "template": {}} for one in each] for each in (wanted, listed))
    return first_difference(filled(wanted), filled(listed))


def replica_types(case: Case) -> Difference | None:
    wanted = [name.lower() for name in case.expect["wantReplicaTypes"] or ()]
    return first_difference(wanted, [slot.name for slot in kind_of(case).slots(given(case))])


def priority_class(case: Case) -> Difference | None:
    found = kind_of(case).pod_priority_class(given(case))
    return first_difference(case.expect["wantPriorityClassName"], found)


def validated(case: Case) -> Difference | None:
    """Once as on creation and once as an update that changes nothing."""
    kind, job = kind_of(case), given(case)
    for found in (kinds.created(kind, job, case.gates), kinds.updated(kind, job, job, case.gates)):
        if difference := errors_differ(wanted_errors(case), found):
            return difference
    return None


def created(case: Case) -> Difference | None:
    """Some cases say no more than that there is an error."""
    found = kinds.created(kind_of(case), given(case), case.gates, manage_all=bool(case.input.get("manageAll")))
    wanted = wanted_errors(case)
    if isinstance(wanted, bool):
        return first_difference(wanted, bool(found), "errors")
    return errors_differ(wanted, found)


def updated(case: Case) -> Difference | None:
    kind, old, new = kind_of(case), given(case, _OLD), given(case, _NEW)
    queue = bool(case.input.get("defaultLqExist"))
    found = kinds.updated(
        kind, old, new, case.gates, has_default_queue=queue, manage_all=bool(case.input.get("manageAll"))
    )
    return errors_differ(wanted_errors(case), found)


def _template_of(info: PodSetInfo) -> Json:
    metadata = {"labels": info.labels, "annotations": {**info.annotations, **info.own_annotations}}
    gates = [{"name": gate} for gate in info.scheduling_gates]
    spec = {"nodeSelector": info.node_selector, "tolerations": list(info.tolerations), "schedulingGates": gates}
    return {
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {key: value for key, value in spec.items() if value},
    }


def given_infos(case: Case, slots: Sequence[Slot]) -> tuple[PodSetInfo, ...]:
    listed = case.input.get("podSetsInfo") or case.input.get("podsetsInfo") or ()
    names = [slot.name for slot in slots] + [f"more-{index}" for index in range(len(listed))]
    return tuple(info_of(one, name) for one, name in zip(listed, names, strict=False))


def _workload(templates: Mapping[str, Json], counts: Mapping[str, int]) -> SeenWorkload:
    sets = [{"name": name, "count": counts.get(name, 1), "template": each} for name, each in templates.items()]
    return SeenWorkload.of({"metadata": {"name": "wl", "uid": "w"}, "spec": {"podSets": sets}})


def restored(case: Case) -> Difference | None:
    """What a stop puts back, of a job that was started."""
    kind, job = kind_of(case), given(case)
    slots = kind.slots(job)
    infos = given_infos(case, slots)
    written = {slot.name: slot.written(job) for slot in slots}
    originals = {info.name: with_placement(written.get(info.name, {}), _template_of(info)) for info in infos}
    if originals.keys() == written.keys():
        after = kind.placed(job, originals)
        changed = after is not job
    else:
        marked = {name: merged(one, {"metadata": {"labels": {_STARTED: name}}}) for name, one in written.items()}
        after = kind.placed(job, marked)
        changed = bool(kind.stop(after, _workload(originals, {})))
    wanted = case.expect.get("wantRestoredFor")
    selectors = {slot.name: slot.written(after).get("spec", {}).get("nodeSelector") for slot in kind.slots(after)}
    return first_difference(case.expect["wantChanged"], changed, "changed") or (
        first_difference({"restored": "true"}, selectors[wanted.lower()], "node selector") if wanted else None
    )


_STARTED: Final = "kueue.x-k8s.io/podset"


def started(case: Case) -> Difference | None:
    kind, job = kind_of(case), given(case)
    slots = kind.slots(job)
    workload = _workload({slot.name: slot.template(job) for slot in slots}, {slot.name: slot.count for slot in slots})
    after = job
    try:
        for _ in range(2):  # of a kind that is unsuspended by a write of its own
            for patch in kind.start(after, workload, given_infos(case, slots)):
                after = merged(after, patch.body)
    except (JobError, StartConflictError):
        return first_difference(bool(case.expect["wantErr"]), True, "error")
    if case.expect["wantErr"]:
        return Difference("error", case.expect["wantErr"], None)
    wanted = case.expect.get("wantAssignedTo")
    if not wanted:
        return first_difference(False, kind.is_suspended(after), "suspended")
    found = next(slot for slot in slots if slot.name == wanted.lower()).written(after)["spec"].get("nodeSelector")
    return first_difference({"assigned": "true"}, found, "node selector")


def reclaimable(case: Case) -> Difference | None:
    kind, job = kind_of(case), given(case)
    slots = kind.slots(job)
    workload = _workload({slot.name: slot.template(job) for slot in slots}, {slot.name: slot.count for slot in slots})
    found = kind.reclaimable(job, workload)
    wanted = {one["name"]: one["count"] for one in case.expect["want"] or ()}
    return first_difference(wanted, found)


def pods_ready(case: Case) -> Difference | None:
    return first_difference(case.expect["want"], kind_of(case).pods_ready(given(case)))


_RUNS: Final[Mapping[str, Callable[[Case], Difference | None]]] = {
    "TestPodSets": pod_sets,
    "TestOrderedReplicaTypes": replica_types,
    "TestPriorityClass": priority_class,
    "TestCalcPriorityClassName": priority_class,
    "TestValidate": validated,
    "TestValidateCreate": created,
    "TestValidateUpdate": updated,
    "TestRestorePodSetsInfo": restored,
    "TestRunWithPodSetsInfo": started,
    "TestReclaimablePods": reclaimable,
    "TestPodsReady": pods_ready,
}

_OTHERWISE: Final = {f"jobs-{kind}-TestRestorePodSetsInfo" for kind in ("raycluster", "sparkapplication", "trainjob")}
"""Suites that have these names and give other things: see ``runners_ray`` and ``runners_jobframework``."""

for _kind in DECLARED_KINDS:
    for _suite, _run in _RUNS.items():
        if f"jobs-{_kind.kind.lower()}-{_suite}" not in _OTHERWISE:
            runner(f"jobs-{_kind.kind.lower()}-{_suite}")(_run)

runner("jobs-trainjob-TestRunWithPodsetsInfo")(started)
