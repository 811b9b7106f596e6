"""Runners of the suites that only Ray's kinds and SparkApplication have."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from controller.jobs.framework import compose
from controller.jobs.framework.kind import Review, completed, refused
from controller.jobs.framework.podsets import SeenWorkload, StartConflictError
from controller.jobs.framework.raw import JobError, Json, merged
from controller.jobs.framework.templated import TemplatedKind, with_placement
from controller.jobs.kinds.ray import live_counts
from controller.jobs.kinds.raycluster import RayCluster
from controller.jobs.kinds.rayjob import RayJob
from controller.jobs.kinds.rayservice import RayService
from controller.jobs.kinds.sparkapplication import SparkApplication
from controller.jobs.kinds.sparkpods import ROLES, with_volumes
from controller.objects.decode import decode
from controller.objects.workload import PodSet
from tests.conformance.kueuejobs.runners_kinds import given
from tests.conformance.kueuejobs.runners_podsets import filled, info_of, pod_sets_json
from tests.conformance.kueuejobs.runners_validation import errors_differ
from tests.conformance.replay import Case, Difference, first_difference, runner

CLUSTER, JOB, SERVICE, SPARK = RayCluster(), RayJob(), RayService(), SparkApplication()

# Nothing of a job's metadata is compared, nor who wrote last.
_BARE: Final = ("resourceVersion", "uid")


def _cluster(case: Case) -> Json:
    """A RayCluster of the specification that the case gives, suspended."""
    spec = {**given(case, ("rayClusterSpec",)), "suspend": True}
    return {"metadata": {"name": "c", "annotations": case.input.get("annotations") or {}}, "spec": spec}


def _named(job: Json) -> Json:
    """Groups without a name, which no API server lets in, are given one."""
    cluster = job["spec"]["rayClusterSpec"]
    groups = [{**group, "groupName": f"g{index}"} for index, group in enumerate(cluster["workerGroupSpecs"])]
    return {**job, "spec": {**job["spec"], "rayClusterSpec": {**cluster, "workerGroupSpecs": groups}}}


def _started(kind: TemplatedKind, job: Json, infos: Sequence[Json]) -> Json:
    """Raises JobError, StartConflictError."""
    suspended: Json = merged(job, kind.suspend(job).body)
    found = suspended
    for patch in kind.start(suspended, _workload(kind, suspended), _infos(kind, suspended, infos)):
        found = merged(found, patch.body)
    return found


def _infos(kind: TemplatedKind, job: Json, infos: Sequence[Json]) -> Any:
    names = [slot.name for slot in kind.slots(job)]
    return tuple(info_of(info, name) for info, name in zip(infos, names, strict=False))


def _workload(kind: TemplatedKind, job: Json, infos: Sequence[Json] | None = None) -> SeenWorkload:
    """The job's own; with ``infos`` in its templates where it is to give them back."""
    sets: list[Json] = []
    for index, (slot, template) in enumerate(zip(kind.slots(job), kind.templates(job).values(), strict=True)):
        if infos is not None and index >= len(infos):
            break
        info = {} if infos is None else infos[index]
        spec = {key: info.get(key) or [] for key in ("tolerations", "schedulingGates")}
        metadata = {key: info.get(key) or {} for key in ("labels", "annotations")}
        wanted = filled({"metadata": metadata, "spec": {**spec, "nodeSelector": info.get("nodeSelector")}})
        own = template if infos is None else with_placement(template, wanted)
        sets.append({"name": slot.name, "count": info.get("count") or slot.count, "template": own})
    return SeenWorkload.of({"metadata": {"name": "wl", "uid": "w"}, "spec": {"podSets": sets}})


def _restored(kind: TemplatedKind, job: Json, infos: Sequence[Json]) -> Json:
    workload = _workload(kind, job, infos)
    if len(infos) != len(kind.slots(job)):
        return job
    return kind.restored(job, workload)


def _same(wanted: Any, found: Json, path: str = "") -> Difference | None:
    def bare(job: Json) -> Any:
        metadata = {key: value for key, value in job["metadata"].items() if key not in _BARE}
        spec = {key: value for key, value in job["spec"].items() if key != "suspend"}
        return filled({**job, "metadata": metadata, "spec": spec})

    return first_difference(bare(wanted), bare(found), path)


@runner("jobs-raycluster-TestBuildPodSets")
def built(case: Case) -> Difference | None:
    try:
        found = [{**one, "topologyRequest": None} for one in pod_sets_json(CLUSTER.pod_sets(_cluster(case)))]
    except JobError:
        return first_difference(bool(case.expect.get("wantErr")), True, "error")
    if case.expect.get("wantErr"):
        return Difference("error", True, False)
    return first_difference(filled(case.expect["wantPodSets"]), filled(found))


@runner("jobs-raycluster-TestUpdatePodSets")
def autoscaled(case: Case) -> Difference | None:
    asked = {one["name"]: one["count"] for one in case.input["podSets"]}
    live, name = case.input.get("rayClusterInClient"), case.input.get("rayClusterName")
    if case.input.get("enableInTreeAutoscaling") and live and name == live["metadata"]["name"]:
        try:
            asked = live_counts(asked, live, where="spec.workerGroupSpecs")
        except JobError:
            return first_difference(case.expect["wantErr"], True, "error")
    wanted = {one["name"]: one["count"] for one in case.expect["wantPodSets"] or ()}
    return first_difference(case.expect["wantErr"], False, "error") or first_difference(wanted, asked)


@runner("jobs-raycluster-TestUpdateRayClusterSpecToRunWithPodSetsInfo")
def cluster_started(case: Case) -> Difference | None:
    found = _started(CLUSTER, _cluster(case), case.input["podSetsInfo"])
    return first_difference(filled(case.expect["wantSpec"]), filled({**found["spec"], "suspend": None}))


@runner("jobs-raycluster-TestRestorePodSetsInfo")
def cluster_restored(case: Case) -> Difference | None:
    job = _cluster(case)
    found = _restored(CLUSTER, job, case.input["podSetsInfo"])
    changed = first_difference(case.expect["wantChanged"], found is not job, "changed")
    return changed or first_difference(filled(case.expect["wantSpec"]), filled({**found["spec"], "suspend": None}))


@runner("jobs-raycluster-TestValidateCreateRayClusterSpec")
def cluster_specification(case: Case) -> Difference | None:
    """What is asked of every cluster of Ray; gates of an elastic RayCluster's pods are a rule of its own."""
    cluster = {**case.input["object"], "spec": case.input["rayClusterSpec"]}
    found = refused([rule for rule in CLUSTER.rules if "ungated" not in rule.says], Review(new=cluster))
    return errors_differ(case.expect["wantErrors"], found)


@runner("jobs-raycluster-TestComparePodSetCounts")
def resized(case: Case) -> Difference | None:
    asked = compose.counts_of(tuple(decode(one, PodSet) for one in case.input["podSets"]))
    return first_difference(case.expect["wantChanged"], asked != (case.input.get("referenceCounts") or {}))


@runner("jobs-raycluster-TestGetWorkloadslicingCustomAnnotations")
def annotations_of_an_object(case: Case) -> Difference | None:
    """Of the RayCluster itself, or of a RayJob that runs it."""
    metadata = {"name": "j", "annotations": case.input.get("annotations") or {}}
    job = {"metadata": metadata, "status": {"rayClusterName": case.input["rayClusterName"]}}
    kind: TemplatedKind = CLUSTER if case.input.get("standalone") else JOB
    listed = {one["metadata"]["name"]: one for one in case.input.get("apiObjects") or ()}
    seen = completed(kind, job, lambda _kind, _namespace, name: listed.get(name))
    wanted = case.expect["wantAnnotation"] or {}
    return first_difference(case.expect["wantErr"], False, "error") or first_difference(
        wanted, kind.workload_annotations(seen)
    )


@runner("jobs-raycluster-TestParsePodSetReplicaSizes")
def sizes_in_an_annotation(case: Case) -> Difference | None:
    """None are kept in one."""
    wanted = case.expect.get("wantCounts") or {}
    return first_difference(case.expect["wantErr"], False, "error") or first_difference(wanted, {})


@runner("jobs-rayjob-TestNodeSelectors")
def job_started_and_restored(case: Case) -> Difference | None:
    job = _named(given(case))
    try:
        found = _started(JOB, job, case.input["runInfo"])
    except (JobError, StartConflictError):
        return first_difference(bool(case.expect["wantRunError"]), True, "error")
    back = _restored(JOB, merged(found, JOB.suspend(found).body), case.input["restoreInfo"])
    return _same(_named(case.expect["wantAfterRun"]), found, "started") or _same(
        _named(case.expect["wantFinal"]), back, "restored"
    )


@runner("jobs-rayjob-TestGetCustomAnnotations")
def annotations_of_a_job(case: Case) -> Difference | None:
    live = case.input["rayCluster"]
    job = merged(case.input["rayJob"], {"status": {"rayClusterName": live["metadata"]["name"]}})
    seen = completed(JOB, job, lambda _kind, _namespace, _name: live)
    counts = first_difference(case.expect["wantGroupCount"], JOB.counts(seen)["group1"], "count")
    return counts or first_difference(case.expect["wantCustomAnnotation"], JOB.workload_annotations(seen))


@runner("jobs-rayjob-Test_RayJobFinished")
def job_finished(case: Case) -> Difference | None:
    found = JOB.finished({"metadata": {"name": "job"}, "status": case.input["status"]})
    succeeded = found is not None and found.reason == "Succeeded"
    return first_difference(case.expect["expectedFinished"], found is not None, "finished") or first_difference(
        case.expect["expectedSuccess"], succeeded, "success"
    )


@runner("jobs-rayjob-Test_RayJobIsOnHold")
def job_on_hold(case: Case) -> Difference | None:
    job = {"status": {"jobDeploymentStatus": case.input["jobDeploymentStatus"]}}
    return first_difference(case.expect["expectedOnHold"], JOB.is_on_hold(job))


@runner("jobs-rayservice-TestIsActive")
def service_active(case: Case) -> Difference | None:
    return first_difference(case.expect["want"], SERVICE.is_active(given(case)))


@runner("jobs-rayservice-TestIsSuspended")
def service_suspended(case: Case) -> Difference | None:
    return first_difference(case.expect["want"], SERVICE.is_suspended(given(case)))


@runner("jobs-sparkapplication-TestRunWithPodsetsInfo")
def application_started(case: Case) -> Difference | None:
    try:
        found = _started(SPARK, given(case), case.input["podsetsInfo"])
    except (JobError, StartConflictError):
        return first_difference(case.expect["wantErr"], True, "error")
    return first_difference(case.expect["wantErr"], False, "error") or _same(case.expect["wantSparkApp"], found)


@runner("jobs-sparkapplication-TestRestorePodSetsInfo")
def application_restored(case: Case) -> Difference | None:
    job = given(case)
    found = _restored(SPARK, job, case.input["podsetsInfo"])
    changed = first_difference(case.expect["wantChanged"], found is not job, "changed")
    return changed or _same(case.expect["wantSparkApp"], found)


@runner("jobs-sparkapplication-TestAddVolumes")
def volumes(case: Case) -> Difference | None:
    pod = case.input["pod"]
    found = with_volumes(pod["spec"], given(case, ("app",)), pod["metadata"]["labels"]["spark-role"])
    mounts = [one["name"] for one in found["containers"][0].get("volumeMounts") or ()]
    names = [one["name"] for one in found.get("volumes") or ()]
    return first_difference(list(case.expect["wantVolumes"] or ()), names, "volumes") or first_difference(
        list(case.expect["wantVolumeMount"] or ()), mounts, "mounts"
    )


@runner("jobs-sparkapplication-TestAddVolumeMount")
def volume_mounted(case: Case) -> Difference | None:
    """A pod that has none of the roles is none that we make."""
    pod: Mapping[str, Any] = case.input["pod"]
    role = ((pod.get("metadata") or {}).get("labels") or {}).get("spark-role", "")
    mount = {"name": "data", "mountPath": "/data"}
    found = False
    if role in ROLES:
        spec = with_volumes(pod["spec"], {"spec": {"volumes": [mount], role: {"volumeMounts": [mount]}}}, role)
        found = mount in spec["containers"][0]["volumeMounts"]
    return first_difference(not case.expect["wantErr"], found)
