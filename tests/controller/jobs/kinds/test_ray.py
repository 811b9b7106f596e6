"""What Ray's kinds ask for, when they have stopped, and what is refused."""

import copy
from typing import Any

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.actions import CreateWorkload, UpdateWorkload
from controller.jobs.framework.kind import JobKind, Outcome, completed
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.kinds.ray import CLUSTER_GENERATION
from controller.jobs.kinds.raycluster import RayCluster
from controller.jobs.kinds.rayjob import RayJob
from controller.jobs.kinds.rayservice import RayService
from tests.support.controller.jobmodel import cluster_objects
from tests.support.controller.kindrules import broken
from tests.support.controller.kindworld import KindWorld
from tests.support.controller.rayobjects import ELASTIC, cluster, group, ray_cluster, ray_job, ray_service, template

CLUSTER, JOB, SERVICE = RayCluster(), RayJob(), RayService()
AUTOSCALED: Json = {"enableInTreeAutoscaling": True}
AUTOSCALING = "spec.rayClusterSpec.enableInTreeAutoscaling"
CONFIG = ("spec", "rayClusterConfig")
SUSPENDED = {"state": "suspended"}


def containers(kind: JobKind, job: Json, pod_set: str = "head") -> list[Json]:
    found: list[Json] = kind.templates(job)[pod_set]["spec"]["containers"]
    return found


def with_cluster(kind: JobKind, job: Json, live: Json | None) -> Json:
    return completed(kind, job, lambda _kind, _namespace, name: live if live and name == "live" else None)


def live(*groups: Json, status: Json | None = None, generation: int = 4) -> Json:
    metadata = {"name": "live", "namespace": "default", "generation": generation}
    return {"metadata": metadata, "spec": cluster(*groups), "status": status or {}}


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 2),
        ({"replicas": None}, 1),
        ({"numOfHosts": 4}, 8),
        ({"numOfHosts": 0}, 2),
        ({"minReplicas": 3}, 3),
        ({"maxReplicas": 1, "numOfHosts": 2}, 2),
        ({"suspend": True}, 0),
    ],
)
def test_a_group_has_the_pods_that_kuberay_makes_of_it(fields: Json, count: int) -> None:
    assert CLUSTER.counts(ray_cluster(group(**fields))) == {"head": 1, "gpu": count}


def test_pod_sets_are_the_head_and_the_groups_in_lower_case_then_the_submitter() -> None:
    groups = (group("GPU"), group("cpu"))
    assert [each.name for each in CLUSTER.pod_sets(ray_cluster(*groups))] == ["head", "gpu", "cpu"]
    assert [each.name for each in JOB.pod_sets(ray_job(*groups))] == ["head", "gpu", "cpu", "submitter"]
    assert [each.name for each in SERVICE.pod_sets(ray_service(*groups))] == ["head", "gpu", "cpu"]


@pytest.mark.parametrize(
    ("fields", "added"),
    [
        ({}, []),
        (AUTOSCALED, [("autoscaler", "500m")]),
        ({**AUTOSCALED, "autoscalerOptions": {"resources": {"requests": {"cpu": "2"}}}}, [("autoscaler", "2")]),
        ({"historyServerOptions": {"collectorOptions": {}}}, [("ray-history-collector", "50m")]),
        (
            {"historyServerOptions": {"collectorOptions": {"resources": {"requests": {"cpu": "3"}}}}},
            [("ray-history-collector", "3")],
        ),
    ],
)
def test_containers_that_kuberay_adds_are_charged_with_the_head(fields: Json, added: list[tuple[str, str]]) -> None:
    found = containers(CLUSTER, ray_cluster(**fields))[1:]
    assert [(each["name"], each["resources"]["requests"]["cpu"]) for each in found] == added


def test_the_history_collector_is_in_the_workers_too() -> None:
    job = ray_cluster(historyServerOptions={"collectorOptions": {}})
    assert [each["name"] for each in containers(CLUSTER, job, "gpu")] == ["worker", "ray-history-collector"]


@pytest.mark.parametrize(
    ("resources", "requests"),
    [
        ({}, {"cpu": "200m", "memory": "256Mi"}),
        ({"requests": {"cpu": "100m", "memory": "1Gi"}}, {"cpu": "200m", "memory": "1Gi"}),
        ({"limits": {"cpu": "2"}}, {"memory": "256Mi"}),
    ],
)
def test_a_head_that_keeps_its_state_in_redis_has_enough_for_the_cleanup(resources: Json, requests: Json) -> None:
    for fields, annotations in (({"gcsFaultToleranceOptions": {}}, None), ({}, {"ray.io/ft-enabled": "true"})):
        job = ray_cluster(annotations=annotations, **fields)
        job["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] = resources
        assert containers(CLUSTER, job)[0]["resources"].get("requests") == requests


def test_no_cleanup_is_charged_where_the_state_is_on_a_disk() -> None:
    job = ray_cluster(gcsFaultToleranceOptions={"backend": "rocksdb"})
    assert containers(CLUSTER, job)[0]["resources"]["requests"] == {"cpu": "1"}


def test_a_job_is_submitted_by_a_pod_by_a_container_or_by_kuberay() -> None:
    by_pod = ray_job()
    assert JOB.templates(by_pod)["submitter"]["spec"]["containers"][0]["image"] == "ray:2.55"
    own = template("mine")
    assert JOB.templates(ray_job(submitterPodTemplate=own))["submitter"] == own
    by_container = ray_job(submissionMode="SidecarMode")
    assert [each["name"] for each in containers(JOB, by_container)] == ["head", "ray-job-submitter"]
    assert "submitter" not in JOB.counts(by_container)
    for mode in ("HTTPMode", "InteractiveMode"):
        assert JOB.counts(ray_job(submissionMode=mode)) == {"head": 1, "gpu": 2}


def test_a_job_that_runs_on_another_cluster_is_left_alone_unless_it_is_queued() -> None:
    job = ray_job(clusterSelector={"ray.io/cluster": "c"})
    assert not JOB.is_skipped(job)
    assert [each.field for each in broken(JOB, job)] == ["spec.clusterSelector"]
    job["metadata"]["labels"] = {}
    assert JOB.is_skipped(job)


# -- its life --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "status", "stopped"),
    [
        (1, {}, True),
        (3, {}, False),
        (3, SUSPENDED, True),
        (3, {"state": "ready"}, False),
        (3, {"state": "suspended", "conditions": [{"type": "RayClusterSuspending", "status": "True"}]}, False),
        (3, {"conditions": [{"type": "RayClusterSuspending", "status": "True"}]}, False),
        (3, {"conditions": [{"type": "RayClusterSuspended", "status": "True"}]}, True),
        (1, {"conditions": [{"type": "HeadPodReady", "status": "False"}]}, False),
    ],
)
def test_a_cluster_has_stopped_when_kuberay_says_that_its_pods_are_gone(
    generation: int, status: Json, stopped: bool
) -> None:
    job = ray_cluster()
    job["metadata"]["generation"] = generation
    job["status"] = status
    assert CLUSTER.is_stopped(job) is stopped
    job["spec"]["suspend"] = False
    assert not CLUSTER.is_stopped(job)


def test_a_cluster_being_deleted_keeps_its_quota_until_redis_was_cleaned_up() -> None:
    job = ray_cluster()
    job["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "generation": 3}
    assert CLUSTER.is_stopped(job)
    job["metadata"]["finalizers"] = ["ray.io/gcs-ft-redis-cleanup-finalizer"]
    assert not CLUSTER.is_stopped(job)


@pytest.mark.parametrize("status", ["Initializing", "Running", "Suspending", "Retrying", "Waiting"])
def test_a_job_in_any_other_state_may_have_pods(status: str) -> None:
    job = ray_job()
    job["status"] = {"jobDeploymentStatus": status}
    assert not JOB.is_stopped(job)
    for without in ("", "Suspended"):
        job["status"] = {"jobDeploymentStatus": without}
        assert JOB.is_stopped(job)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ({"jobDeploymentStatus": "Running", "jobStatus": "SUCCEEDED"}, None),
        (
            {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "fine"},
            Outcome(reason="Succeeded", message="fine"),
        ),
        (
            {"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"},
            Outcome(reason="Failed", message="RayJob failed"),
        ),
        (
            {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"},
            Outcome(reason="Failed", message="RayJob failed"),
        ),
    ],
)
def test_a_job_ends_as_its_status_says(status: Json, outcome: Outcome | None) -> None:
    assert JOB.finished({**ray_job(), "status": status}) == outcome


def test_a_job_whose_cluster_outlives_it_is_finished_when_that_is_gone() -> None:
    status = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "rayClusterName": "live"}
    job = {**ray_job(ttlSecondsAfterFinished=600), "status": status}
    assert JOB.finished(with_cluster(JOB, job, live())) is None
    assert JOB.finished(with_cluster(JOB, job, None)) is not None


def test_a_job_that_kuberay_found_wrong_is_on_hold_and_stopped_unless_it_ran() -> None:
    job = {**ray_job(), "status": {"jobDeploymentStatus": "ValidationFailed", "rayClusterName": "live"}}
    assert JOB.is_on_hold(job)
    assert JOB.is_stopped(with_cluster(JOB, job, None))
    assert not JOB.is_stopped(with_cluster(JOB, job, live()))


def test_a_service_has_stopped_when_all_of_its_clusters_have() -> None:
    status = {"activeServiceStatus": {"rayClusterName": "live"}, "pendingServiceStatus": {"rayClusterName": "next"}}
    job = {**ray_service(), "status": status}
    assert not SERVICE.is_stopped(with_cluster(SERVICE, job, live(status={"state": "ready"})))
    assert SERVICE.is_stopped(with_cluster(SERVICE, job, live(status=SUSPENDED)))
    assert SERVICE.is_stopped(with_cluster(SERVICE, job, None))
    ready = {**status, "conditions": [{"type": "Ready", "status": "True"}]}
    assert not SERVICE.is_stopped(with_cluster(SERVICE, {**job, "status": ready}, None))
    assert SERVICE.pods_ready({**job, "status": ready})
    job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not SERVICE.is_stopped(with_cluster(SERVICE, job, live(status=SUSPENDED)))
    assert SERVICE.is_stopped(with_cluster(SERVICE, job, None))


def test_a_service_that_its_owner_suspended_holds_no_quota() -> None:
    assert SERVICE.is_on_hold(ray_service(suspend=True))
    assert not SERVICE.is_on_hold(ray_service())
    assert SERVICE.finished(ray_service()) is None


def test_pods_are_found_by_the_clusters_that_they_are_of() -> None:
    assert CLUSTER.pod_selector(ray_cluster()) == "ray.io/cluster=c"
    job = {**ray_job(), "status": {"rayClusterName": "j-x1"}}
    assert JOB.pod_selector(job) == "ray.io/cluster=j-x1"
    both = {"activeServiceStatus": {"rayClusterName": "a"}, "pendingServiceStatus": {"rayClusterName": "b"}}
    assert SERVICE.pod_selector({**ray_service(), "status": both}) == "ray.io/cluster in (a,b)"


# -- autoscaling -----------------------------------------------------------------------------------------------------


def autoscaled(**fields: Any) -> Json:
    return {**ray_job(annotations=ELASTIC, ray=AUTOSCALED, **fields), "status": {"rayClusterName": "live"}}


def test_counts_of_an_autoscaled_job_are_those_of_the_cluster_that_it_runs() -> None:
    job, grown = autoscaled(), live(group(replicas=7, numOfHosts=2))
    assert JOB.counts(with_cluster(JOB, job, grown)) == {"head": 1, "gpu": 14, "submitter": 1}
    assert JOB.counts(with_cluster(JOB, job, None)) == {"head": 1, "gpu": 2, "submitter": 1}
    fixed = {**ray_job(annotations=ELASTIC), "status": {"rayClusterName": "live"}}
    assert JOB.counts(with_cluster(JOB, fixed, grown))["gpu"] == 2
    with pytest.raises(JobError, match="has a group 'other', expected one of that name here"):
        JOB.counts(with_cluster(JOB, job, live(group("other"))))


def test_a_slice_of_a_job_is_another_one_when_its_cluster_has_changed() -> None:
    job = autoscaled()
    seen = {JOB.slice_mark(with_cluster(JOB, job, live(generation=number))) for number in (4, 5)}
    assert len({*seen, JOB.slice_mark(with_cluster(JOB, job, None))}) == 3
    assert JOB.workload_annotations(with_cluster(JOB, job, live())) == {CLUSTER_GENERATION: "4"}
    assert CLUSTER.workload_annotations(ray_cluster(annotations=ELASTIC)) == {}


def ran(job: Json, on: bool) -> None:
    job["status"] = {"jobDeploymentStatus": "Running", "rayClusterName": "live"} if on else SUSPENDED_JOB


SUSPENDED_JOB = {"jobDeploymentStatus": "Suspended"}


def test_a_job_grows_with_its_cluster_by_a_slice_and_shrinks_in_place() -> None:
    scene = KindWorld(JOB, ray_job(annotations=ELASTIC, ray=AUTOSCALED), ran)
    sizes = [live(group(replicas=2))]
    scene.cluster = cluster_objects(look=lambda _kind, _namespace, _name: sizes[-1])
    scene.settle()
    scene.admit(scene.only)
    scene.settle()
    assert not scene.suspended()
    sizes.append(live(group(replicas=5), generation=5))
    (created,) = [action for action in scene.next_actions() if isinstance(action, CreateWorkload)]
    assert [each["count"] for each in created.body["spec"]["podSets"]] == [1, 5, 1]
    assert created.body["metadata"]["annotations"][CLUSTER_GENERATION] == "5"
    sizes.append(live(group(replicas=1), generation=6))
    (updated,) = [action for action in scene.next_actions() if isinstance(action, UpdateWorkload)]
    assert [each["count"] for each in updated.patch["spec"]["podSets"]] == [1, 1, 1]


def test_pods_of_an_elastic_cluster_are_gated_from_its_creation_on_and_the_submitter_never() -> None:
    plain = ray_cluster()
    assert CLUSTER.defaulted(plain) is plain
    job = ray_cluster(annotations=ELASTIC)
    gated = CLUSTER.defaulted(job)
    assert [each["spec"]["schedulingGates"] for each in CLUSTER.templates(gated).values()] == [
        [{"name": names.ELASTIC_JOB}]
    ] * 2
    assert CLUSTER.defaulted(gated) is gated
    assert not broken(CLUSTER, gated)
    assert [each.field for each in broken(CLUSTER, job)] == [
        "spec.workerGroupSpecs[0].template.spec.schedulingGates",
        "spec.headGroupSpec.template.spec.schedulingGates",
    ]
    scene = KindWorld(JOB, ray_job(annotations=ELASTIC), ran)
    scene.settle()
    scene.admit(scene.only)
    scene.step()
    assert scene.job is not None
    gates = {name: each["spec"].get("schedulingGates") for name, each in JOB.templates(scene.job).items()}
    assert gates == {"head": [{"name": names.ELASTIC_JOB}], "gpu": [{"name": names.ELASTIC_JOB}], "submitter": None}


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "job", "found"),
    [
        (CLUSTER, ray_cluster(**AUTOSCALED), [("Invalid", "spec.enableInTreeAutoscaling")]),
        (JOB, ray_job(ray=AUTOSCALED), [("Invalid", AUTOSCALING)]),
        (
            JOB,
            autoscaled(managedBy="kueue.x-k8s.io/multikueue"),
            [("Forbidden", AUTOSCALING)],
        ),
        (CLUSTER, ray_cluster(*(group(f"g{i}") for i in range(17))), []),
        (CLUSTER, ray_cluster(*(group(f"g{i}") for i in range(18))), [("TooMany", "spec.workerGroupSpecs")]),
        (JOB, ray_job(*(group(f"g{i}") for i in range(17))), [("TooMany", "spec.rayClusterSpec.workerGroupSpecs")]),
        (SERVICE, ray_service(group("Head")), [("Forbidden", "spec.rayClusterConfig.workerGroupSpecs[0].groupName")]),
        (JOB, ray_job(shutdownAfterJobFinishes=False), [("Invalid", "spec.shutdownAfterJobFinishes")]),
        (JOB, ray_job(rayClusterSpec=None), [("Required", "spec.rayClusterSpec")]),
    ],
)
def test_what_of_ray_cannot_be_queued_is_refused_by_field(
    kind: JobKind, job: Json, found: list[tuple[str, str]]
) -> None:
    refusals = broken(kind, job)
    assert [(each.type, each.field) for each in refusals] == found
    assert all("expected" in each.sentence for each in refusals)


def changed(job: Json, path: tuple[str, ...], change: Json) -> Json:
    result = copy.deepcopy(job)
    at = result
    for key in path:
        at = at[key]
    at |= change
    return result


@pytest.mark.parametrize(
    ("kind", "job", "path"),
    [
        (CLUSTER, ray_cluster(suspend=False), ("spec",)),
        (JOB, ray_job(suspend=False), ("spec", "rayClusterSpec")),
        (
            SERVICE,
            changed(ray_service(), CONFIG, {"suspend": False}),
            ("spec", "rayClusterConfig"),
        ),
    ],
)
def test_only_an_elastic_or_suspended_job_is_resized(kind: JobKind, job: Json, path: tuple[str, ...]) -> None:
    resize = {"workerGroupSpecs": [group(replicas=3)]}
    (refusal,) = broken(kind, changed(job, path, resize), before=job)
    assert refusal.field == ".".join((*path, "workerGroupSpecs"))
    assert "expected 2 pods in gpu, found 3 pods in gpu" in refusal.sentence
    elastic = changed(job, ("metadata",), {"annotations": ELASTIC})
    assert not broken(kind, kind.defaulted(changed(elastic, path, resize)), before=elastic)
    where = ("spec",) if kind is not SERVICE else path
    assert not broken(kind, changed(changed(job, path, resize), where, {"suspend": True}), before=job)
    assert not broken(kind, changed(job, path, {"rayVersion": "3"}), before=job) or kind is SERVICE


def test_an_upgrade_of_a_running_service_would_need_a_second_cluster() -> None:
    running = changed(ray_service(), CONFIG, {"suspend": False})
    upgraded = changed(running, CONFIG, {"rayVersion": "3"})
    (refusal,) = broken(SERVICE, upgraded, before=running)
    assert (refusal.type, refusal.field) == ("Forbidden", "spec.rayClusterConfig")
    assert not broken(SERVICE, changed(upgraded, ("spec",), {"upgradeStrategy": {"type": "None"}}), before=running)
    assert not broken(SERVICE, upgraded, before=ray_service())


def test_a_job_that_breaks_a_rule_of_its_kind_is_not_queued_before_it_is_changed() -> None:
    job = ray_job(group())
    job["spec"]["shutdownAfterJobFinishes"] = False
    world = KindWorld(JOB, job, lambda _job, _on: None)
    world.settle()
    assert not world.workloads
    field, _, sentence = world.refusals[-1].partition(": ")
    assert field == "spec.shutdownAfterJobFinishes"
    assert sentence == "a queued job gives its pods back when it has finished: expected true, found false"
    world.edit({"spec": {"shutdownAfterJobFinishes": True}})
    world.settle()
    assert len(world.workloads) == 1
