"""Runners of the suites about single questions: names, priorities, pods."""

from itertools import pairwise
from typing import Any

from controller.jobs.framework import compose, names
from controller.jobs.framework.podview import ADMISSION_GATE, SeenPod
from controller.jobs.framework.raw import JobError, PriorityClassMissingError, merged
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.jobs.kinds.batchjob import BatchJob
from controller.objects.decode import decode
from controller.objects.workload import Workload
from controller.reconcile.placing.ungating import Ranks, rank
from controller.reconcile.pods.group import Group, pod_sets, role
from controller.reconcile.pods.start import released
from controller.scheduler.model.workload import effective_priority
from tests.conformance.kueuejobs.runners_podsets import settings_of
from tests.conformance.replay import Case, Difference, first_difference, runner
from tests.support.controller.jobmodel import cluster_objects

# -- names


@runner("jobs-jobframework-TestGenerateWorkloadNameWithExtra")
def workload_name(case: Case) -> Difference | None:
    given, wanted = case.input, case.expect
    if "wantEqual" in wanted:
        extras = (given["extra1"], given["extra2"])
        one, other = (names.workload_name("Job", "batch", "j", "u", generation=extra) for extra in extras)
        return first_difference(wanted["wantEqual"], one == other)
    kind = given["ownerGVK"]
    found = names.workload_name(
        kind["Kind"], kind["Group"], given["ownerName"], given["ownerUID"], generation=given.get("extra")
    )
    found = names.shortened(found) if case.gates.on("ShortWorkloadNames") else found
    if wanted["want"]:
        return first_difference(wanted["want"], found)
    return first_difference(wanted["wantPrefix"], found[: len(wanted["wantPrefix"])])


@runner("jobs-jobframework-TestGenerateWorkloadNameWithGeneration")
def names_of_slices(case: Case) -> Difference | None:
    given = case.input
    one, other = (
        compose.own_name(
            BatchJob(),
            {
                "metadata": {
                    "name": given[f"ownerName{n}"],
                    "uid": given[f"uid{n}"],
                    "generation": given[f"generation{n}"],
                }
            },
            elastic=True,
            settings=JobSettings(),
        )
        for n in (1, 2)
    )
    return first_difference(case.expect["wantEqual"], one == other)


# -- priorities


def _priority(case: Case) -> int:
    return effective_priority(decode(case.input["workload"], Workload), case.gates)


@runner("jobs-priority-TestEffectivePriority")
@runner("jobs-priority-TestParseEffectivePriority")
def priority_with_boost(case: Case) -> Difference | None:
    return first_difference(case.expect["wantPriority"], _priority(case))


@runner("jobs-priority-TestPriority")
def plain_priority(case: Case) -> Difference | None:
    return first_difference(case.expect["want"], _priority(case))


@runner("jobs-priority-TestPriorityBoost")
def boost(case: Case) -> Difference | None:
    plain = case.input["workload"]["spec"].get("priority") or 0
    return first_difference(case.expect["wantBoost"], _priority(case) - plain)


def classes(case: Case) -> ClusterObjects:
    """The priority classes of a case, wherever it has them."""
    listed = [one["object"] for one in case.input.get("apiObjects") or ()]
    for key in ("priorityClassList", "workloadPriorityClassList", "wpcObjects", "priorityClasses"):
        given = case.input.get(key) or []
        items = given.get("items") or [] if isinstance(given, dict) else given
        kind = "PriorityClass" if key.startswith("priority") else "WorkloadPriorityClass"
        listed += [{"kind": kind, **item} for item in items]
    pods = {one["metadata"]["name"]: one for one in listed if one["kind"] == "PriorityClass"}
    workloads = {one["metadata"]["name"]: one["value"] for one in listed if one["kind"] == "WorkloadPriorityClass"}
    defaults = [(one["value"], name) for name, one in pods.items() if one.get("globalDefault")]
    lowest = min(defaults, default=None)
    return cluster_objects(
        workload_priority=workloads.get,
        pod_priority=lambda name: pods[name]["value"] if name in pods else None,
        global_default=lambda: None if lowest is None else (lowest[1], lowest[0]),
    )


@runner("jobs-priority-TestGetPriorityFromPriorityClass")
def pod_priority_class(case: Case) -> Difference | None:
    job = {"spec": {"template": {"spec": {"priorityClassName": case.input.get("priorityClassName") or ""}}}}
    return _class_found(case, job, "wantPriorityClassRef", "wantPriorityClassValue")


@runner("jobs-priority-TestGetPriorityFromWorkloadPriorityClass")
def workload_priority_class(case: Case) -> Difference | None:
    named = case.input.get("workloadPriorityClassName") or case.input.get("priorityClassName") or ""
    job = {"metadata": {"labels": {names.PRIORITY_CLASS: named}}}
    return _class_found(case, job, "wantPriorityClassRef", "wantPriorityClassValue")


def _class_found(case: Case, job: dict[str, Any], reference: str, value: str) -> Difference | None:
    try:
        found = compose.priority(BatchJob(), job, settings_of(case), classes(case))
    except PriorityClassMissingError:
        return first_difference(bool(case.expect["wantErr"]), True, "error")
    if case.expect["wantErr"]:
        return Difference("error", case.expect["wantErr"], None)
    return first_difference(case.expect[reference], found.get("priorityClassRef"), "reference") or first_difference(
        case.expect[value], found.get("priority", 0), "value"
    )


@runner("jobs-priority-TestDefaultWorkloadPriorityClassExist")
def default_class(case: Case) -> Difference | None:
    found = compose.default_class(settings_of(case), classes(case))
    return first_difference(case.expect["wantExist"], bool(found))


# -- pods


def _pod(case: Case) -> SeenPod:
    return _pod_of(case.input["pod"], case.input.get("gateName"))


def _pod_of(pod: dict[str, Any], name: str | None) -> SeenPod:
    """A case's pod; the gate that it speaks of is ours."""
    gates = [{"name": ADMISSION_GATE if gate["name"] == name else gate["name"]} for gate in _gates(pod)]
    return SeenPod({**pod, "spec": {**pod["spec"], "schedulingGates": gates}})


def _gates(pod: dict[str, Any]) -> list[dict[str, str]]:
    return list(pod["spec"].get("schedulingGates") or ())


@runner("jobs-podutil-TestHasGate")
def has_gate(case: Case) -> Difference | None:
    return first_difference(case.expect["want"], _pod(case).is_gated)


@runner("jobs-podutil-TestUngate")
def ungated(case: Case) -> Difference | None:
    pod, wanted = _pod(case), case.expect
    after = merged(pod.raw, released(pod))
    left = [gate["name"] for gate in _gates(_pod_of(wanted["wantPod"], case.input["gateName"]).raw)]
    return first_difference(wanted["want"], pod.is_gated != SeenPod(after).is_gated) or first_difference(
        left, [gate["name"] for gate in _gates(after)], "gates"
    )


@runner("jobs-podutil-TestIsTerminated")
def is_over(case: Case) -> Difference | None:
    return first_difference(case.expect["wantTerminated"], _pod(case).is_over)


@runner("jobs-podutil-TestGetPodGroupName")
def group_name(case: Case) -> Difference | None:
    return first_difference(case.expect["want"], _pod(case).group)


@runner("jobs-podutil-TestReadUIntFromLabel")
def number_in_a_label(case: Case) -> Difference | None:
    given = case.input
    labels = given["obj"]["metadata"].get("labels") or {}
    found = rank(Ranks(index_label=given["label"]), labels, min(given["max"], 2**31))
    return first_difference(case.expect["wantVal"], found)


def _role(spec: dict[str, Any]) -> str:
    return role(SeenPod({"spec": spec}))


@runner("jobs-podutil-TestGenerateRoleHash")
def role_of_a_spec(case: Case) -> Difference | None:
    base = {"containers": [{"name": "c", "resources": {}}]}
    return first_difference(case.expect["wantBaseHash"], _role(case.input["podSpec"]) == _role(base))


@runner("jobs-podutil-TestSpecShape")
def resources_are_of_the_role(case: Case) -> Difference | None:
    spec = case.input["podSpec"]
    without = {key: value for key, value in spec.items() if key != "resources"}
    return first_difference(case.expect["wantPresent"], _role(spec) != _role(without))


@runner("jobs-pod-TestGetRoleHash")
def roles(case: Case) -> Difference | None:
    found = [role(SeenPod(one["pod"])) for one in case.input["pods"]]
    neighbours = [one == other for one, other in pairwise(found)]
    return first_difference([case.expect["wantEqualHash"]] * len(neighbours), neighbours)


@runner("jobs-pod-TestIndexPodGroupName")
def group_keys(case: Case) -> Difference | None:
    """Only pods are looked at."""
    given = case.input["object"]
    name = SeenPod(given).group if given["kind"] == "Pod" else ""
    return first_difference(case.expect["wantKeys"], [name] if name else None)


@runner("jobs-pod-TestConstructComposableWorkloadPodGroupRoleLimit")
def roles_of_a_group(case: Case) -> Difference | None:
    """Pods that each ask for another amount are each of a role of their own."""
    count = case.input["roleCount"]
    members = [
        SeenPod({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(number + 1)}}}]}})
        for number in range(count)
    ]
    try:
        found = pod_sets(Group(name="test-group", total=count, minimum=count), members)
    except JobError:
        return first_difference(case.expect["wantErr"], True, "error")
    return first_difference(case.expect["wantErr"], False, "error") or first_difference(count, len(found), "pod sets")


@runner("jobs-statefulset-TestGetWorkloadName")
def names_of_statefulsets(case: Case) -> Difference | None:
    given = case.input
    one, other = (names.workload_name("StatefulSet", "apps", given[f"name{n}"], given[f"uid{n}"]) for n in (1, 2))
    return first_difference(case.expect["wantEqual"], one == other)


@runner("jobs-workloadslicing-TestEnabled")
def is_elastic_job(case: Case) -> Difference | None:
    job = (case.input.get("args") or {}).get("object") or {}
    return first_difference(case.expect["want"], compose.elastic_here(BatchJob(), job, settings_of(case)))
