"""Runners of the suites about pod sets: what is asked of a template, put into it and taken out again."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from controller.jobs.framework import compose
from controller.jobs.framework.names import SLICE_NAME, WORKLOAD
from controller.jobs.framework.podsets import (
    OWN_ANNOTATIONS,
    FlavorMissingError,
    JobPodSet,
    PodSetInfo,
    SeenWorkload,
    StartConflictError,
    infos,
    started_template,
    template_patch,
)
from controller.jobs.framework.raw import JobError, Json, merged
from controller.jobs.framework.settings import JobSettings
from controller.jobs.framework.topologyrequest import ranked, topology_request
from controller.jobs.kinds.batchjob import BatchJob, terminal_indexes
from controller.objects.decode import decode
from controller.objects.meta import to_json
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import Workload
from tests.conformance.replay import Case, Difference, first_difference, runner

OWN_LABELS = ("kueue.x-k8s.io/podset", "kueue.x-k8s.io/local-queue-name", "kueue.x-k8s.io/cluster-queue-name")


def filled(value: Any) -> Any:
    """JSON without what is empty: absent and empty are the same here."""
    if isinstance(value, Mapping):
        return {key: kept for key, item in value.items() if (kept := filled(item)) not in (None, {}, [], "", 0)}
    if isinstance(value, list | tuple):
        return [filled(item) for item in value]
    return value


def info_of(data: Json, name: str = "main", *, elastic: bool = True) -> PodSetInfo:
    """A case's pod set info. Annotations of elastic jobs are the controller's own: they win over the template's.

    ``elastic`` False: there are no such jobs, and the name of a slice is a word like any other.
    """
    annotations = data.get("annotations") or {}
    own = OWN_ANNOTATIONS if elastic else tuple(key for key in OWN_ANNOTATIONS if key != SLICE_NAME)
    return PodSetInfo(
        name=data.get("name") or name,
        count=data.get("count") or 0,
        node_selector=data.get("nodeSelector") or {},
        labels=data.get("labels") or {},
        annotations={key: value for key, value in annotations.items() if key not in own},
        own_annotations={key: value for key, value in annotations.items() if key in own},
        tolerations=tuple(data.get("tolerations") or ()),
        scheduling_gates=tuple(gate["name"] for gate in data.get("schedulingGates") or ()),
    )


def info_json(info: PodSetInfo) -> Json:
    """As a case writes it, less what every start puts in besides."""
    own = {key: value for key, value in info.own_labels.items() if key not in OWN_LABELS}
    noted = {key: value for key, value in info.own_annotations.items() if key not in OWN_ANNOTATIONS}
    return {
        "name": info.name,
        "count": info.count,
        "nodeSelector": info.node_selector,
        "labels": {**info.labels, **own},
        "annotations": {**info.annotations, **noted},
        "tolerations": sorted(info.tolerations, key=lambda one: one.get("key", "")),
        "schedulingGates": [{"name": gate} for gate in info.scheduling_gates],
    }


@runner("jobs-podset-TestFromAssignment")
def from_assignment(case: Case) -> Difference | None:
    """Of a pod set that may start with fewer: a start leaves the number of any other as it is."""
    given = case.input
    pod_set = {"name": given["assignment"]["name"], "count": given["defaultCount"], "minCount": 1}
    admission = {"clusterQueue": "cq", "podSetAssignments": [given["assignment"]]}
    workload = decode({"spec": {"podSets": [pod_set]}, "status": {"admission": admission}}, Workload)
    flavors = {one["metadata"]["name"]: decode(one, ResourceFlavor) for one in given.get("flavors") or ()}
    try:
        (found,) = infos(workload, flavors.get, elastic=False, gates=case.gates)
    except FlavorMissingError:
        return first_difference(bool(case.expect["wantError"]), True)
    wanted = filled(case.expect["wantInfo"])
    return first_difference(wanted, filled(info_json(found))) if not case.expect["wantError"] else _unexpected(case)


def _unexpected(case: Case) -> Difference:
    return Difference("error", case.expect.get("wantError") or case.expect.get("wantErr"), None)


@runner("jobs-podset-TestMergeRestore")
def merge_and_restore(case: Case) -> Difference | None:
    template = case.input["podSet"]["template"]
    try:
        found = started_template(
            template, info_of(case.input["info"], elastic=case.gates.on("ElasticJobsViaWorkloadSlices"))
        )
    except StartConflictError:
        return first_difference(case.expect["wantError"], True, "error")
    if case.expect["wantError"]:
        return _unexpected(case)
    back = template_patch(found, template)
    return (
        first_difference(filled(case.expect["wantPodSet"]["template"]), filled(found), "template")
        or first_difference(case.expect["wantRestoreChanges"], bool(back), "restored")
        or first_difference(filled(template), filled(merged(found, back)), "restored template")
    )


@runner("jobs-podset-TestAddOrUpdateLabel")
def label_set(case: Case) -> Difference | None:
    """A label of the controller's wins over one that the template has."""
    given = case.input
    info = PodSetInfo(name="main", count=0, own_labels={given["k"]: given["v"]})
    found = started_template({"metadata": {"labels": given["info"].get("labels") or {}}}, info)
    return first_difference(case.expect["wantInfo"]["labels"], found["metadata"]["labels"], "labels")


@runner("jobs-jobframework-TestPodSetTopologyRequestBuilder")
def topology_requested(case: Case) -> Difference | None:
    given = case.input
    try:
        annotations = (given.get("meta") or {}).get("annotations") or {}
        found = topology_request(annotations, path="metadata.annotations", count=2**31 - 1)
    except JobError:
        return first_difference(bool(case.expect["wantErr"]), True, "error")
    if case.expect["wantErr"]:
        return _unexpected(case)
    request = ranked(found, given.get("podIndexLabel"), given.get("subGroupIndexLabel"), given.get("subGroupCount"))
    return first_difference(case.expect["wantReq"], request)


def settings_of(case: Case, **more: Any) -> JobSettings:
    return JobSettings(gates=case.gates, **more)


def pod_sets_json(found: Sequence[JobPodSet]) -> list[Json]:
    return [one.as_json() for one in found]


@runner("jobs-job-TestPodSets")
def pod_sets_of_a_job(case: Case) -> Difference | None:
    try:
        found = compose.pod_sets(BatchJob(), case.input["job"], settings_of(case))
    except JobError as error:
        return Difference("pod sets", case.expect["wantPodSets"], str(error))
    return first_difference(filled(case.expect["wantPodSets"]), filled(pod_sets_json(found)))


def job_workload(job: Json, restore: Sequence[Json]) -> SeenWorkload:
    """The workload of a suspended job, as it was composed; its pod set says what a stop gives back."""
    (asked,) = compose.pod_sets(BatchJob(), job, JobSettings())
    pod_set = asked.as_json()
    for info in restore:
        pod_set["template"] = merged(pod_set["template"], {"metadata": {"annotations": info.get("annotations")}})
        pod_set["count"] = info["count"] or asked.count
    return SeenWorkload.of({"metadata": {"name": "wl", "uid": "w"}, "spec": {"podSets": [pod_set]}})


def _as_started(info: PodSetInfo) -> PodSetInfo:
    """With the name of the workload, which every start of ours puts in: a job without it was started by nobody."""
    return msgspec.structs.replace(info, own_annotations={WORKLOAD: "wl", **info.own_annotations})


def _unmarked(spec: Json) -> Json:
    metadata = spec["template"].get("metadata", {})
    left = {key: value for key, value in metadata.get("annotations", {}).items() if (key, value) != (WORKLOAD, "wl")}
    kept = {**metadata, "annotations": left} if left else {k: v for k, v in metadata.items() if k != "annotations"}
    return {**spec, "template": {**spec["template"], "metadata": kept}}


@runner("jobs-job-TestPodSetsInfo")
def started_and_stopped(case: Case) -> Difference | None:
    kind, job = BatchJob(), copy.deepcopy(case.input["job"])
    workload = job_workload(job, case.input["restoreInfo"])
    given = tuple(_as_started(info_of({**one, "count": one["count"] or 1})) for one in case.input.get("runInfo") or ())
    try:
        running = job
        for patch in kind.start(job, workload, given):
            running = merged(running, patch.body)
    except (JobError, StartConflictError):
        if not case.expect["wantRunError"]:
            raise
        running = merged(job, {"spec": {"suspend": False}})
    else:
        if case.expect["wantRunError"]:
            return _unexpected(case)
    if difference := first_difference(case.expect["wantUnsuspended"]["spec"], _unmarked(running["spec"]), "running"):
        return difference
    stopped = running
    for _ in range(2):  # suspended, then restored
        for patch in kind.stop(stopped, workload):
            stopped = merged(stopped, patch.body)
    return first_difference(job["spec"], _unmarked(stopped["spec"]), "stopped")


@runner("jobs-job-TestPodsReady")
def pods_ready(case: Case) -> Difference | None:
    return first_difference(case.expect["want"], BatchJob().pods_ready(case.input["job"]))


@runner("jobs-job-TestReclaimablePods")
def reclaimable(case: Case) -> Difference | None:
    job = case.input["job"]
    found = BatchJob().reclaimable(job, job_workload({**job, "status": {}}, ()))
    listed = [{"name": name, "count": count} for name, count in found.items()] or None
    return first_difference(case.expect["want"], listed)


@runner("jobs-job-TestTerminalIndexesCount")
def ended_indexes(case: Case) -> Difference | None:
    given = case.input
    found = terminal_indexes(
        given.get("completedIndexes") or "", given.get("failedIndexes") or "", given["completions"]
    )
    return first_difference(case.expect["want"], found)


@runner("jobs-job-TestCleanLabels")
def labels_of_the_job_controller(case: Case) -> Difference | None:
    labels = case.input["labels"]
    metadata = {"name": labels.get("batch.kubernetes.io/job-name", ""), "uid": labels.get("controller-uid", "")}
    job = {"metadata": metadata, "spec": {"template": {"metadata": {"labels": labels}, "spec": {}}}}
    found = BatchJob().templates(job)["main"]["metadata"].get("labels", {})
    return first_difference(case.expect["wantLabels"], to_json(found))


@runner("jobs-jobframework-TestSanitizePodSets")
def repeated_variables(case: Case) -> Difference | None:
    found = [
        JobPodSet(name=one["name"], count=one["count"], template=one["template"]).as_json()
        for one in case.input.get("podSets") or ()
    ]
    return first_difference(case.expect["expectedPodSets"], found)
