"""What an AppWrapper asks for, where its placement goes, and when it has ended."""

from typing import Any

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.kind import Outcome
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.kinds.appwrapper import AppWrapper
from tests.support.controller.jobmodel import UID
from tests.support.controller.kindrules import broken
from tests.support.controller.kindworld import KindWorld
from tests.support.controller.rayobjects import cluster, group, template

KIND = AppWrapper()


def wrapped(version: str, kind: str, spec: Json, **component: Any) -> Json:
    return {"template": {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}, **component}


def wrapper(*components: Json, **spec: Any) -> Json:
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {
            "name": "AW",
            "namespace": "default",
            "uid": UID,
            "resourceVersion": "1",
            "generation": 1,
            "labels": {names.QUEUE_NAME: "q"},
        },
        "spec": {"suspend": True, "components": list(components), **spec},
        "status": {},
    }


PYTORCH = wrapped(
    "kubeflow.org/v1",
    "PyTorchJob",
    {"pytorchReplicaSpecs": {"Worker": {"replicas": 4, "template": template()}, "Master": {"template": template()}}},
)
JOB = wrapped("batch/v1", "Job", {"parallelism": 3, "completions": 2, "template": template()})
JOB_SET = wrapped(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 3, "template": template()}}}]},
)


def test_pod_sets_are_numbered_over_all_components() -> None:
    found = KIND.pod_sets(wrapper(PYTORCH, JOB, JOB_SET))
    assert [(each.name, each.count) for each in found] == [("aw-0", 1), ("aw-1", 4), ("aw-2", 2), ("aw-3", 6)]
    assert [each.topology_request for each in found[1:]] == [
        {"podIndexLabel": "training.kubeflow.org/replica-index"},
        {"podIndexLabel": "batch.kubernetes.io/job-completion-index"},
        {
            "podIndexLabel": "batch.kubernetes.io/job-completion-index",
            "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
            "subGroupCount": 2,
        },
    ]


@pytest.mark.parametrize(
    ("component", "count"),
    [
        (wrapped("v1", "Pod", template()["spec"]), 1),
        (wrapped("apps/v1", "Deployment", {"template": template()}), 1),
        (wrapped("apps/v1", "StatefulSet", {"replicas": 3, "template": template()}), 3),
        (wrapped("batch/v1", "Job", {"template": template()}), 1),
    ],
)
def test_pods_are_found_by_the_kind_of_the_object(component: Json, count: int) -> None:
    (found,) = KIND.pod_sets(wrapper(component))
    assert (found.count, found.template) == (count, template())


def test_an_object_of_an_unknown_kind_has_the_pods_that_are_declared() -> None:
    declared = {"path": "template.spec.parts[1].pod", "replicas": 5}
    marked = {
        "path": "template.spec.parts[0].pod",
        "annotations": {"workload.codeflare.dev.appwrapper/tas-pod-index-label": "example.dev/rank"},
    }
    spec = {"parts": [{"pod": template("a")}, {"pod": template("b")}]}
    service = wrapped("v1", "Service", {})
    found = KIND.pod_sets(wrapper(service, wrapped("example.dev/v1", "Thing", spec, podSets=[declared, marked])))
    assert [(each.count, each.template) for each in found] == [(5, template("b")), (1, template("a"))]
    assert found[1].topology_request == {"podIndexLabel": "example.dev/rank"}


def test_declared_counts_are_those_of_the_object_where_its_kind_is_known() -> None:
    declared = {"path": "template.spec.template", "replicas": 9}
    assert KIND.counts(wrapper({**JOB, "podSets": [declared]})) == {"aw-0": 2}


def test_ray_is_charged_with_what_kuberay_adds() -> None:
    clustered = wrapped("ray.io/v1", "RayCluster", cluster(group(numOfHosts=3), enableInTreeAutoscaling=True))
    head, workers = KIND.pod_sets(wrapper(clustered))
    assert [each["name"] for each in head.template["spec"]["containers"]] == ["head", "autoscaler"]
    assert workers.count == 6
    head, _ = KIND.pod_sets(wrapper(wrapped("ray.io/v1", "RayJob", {"rayClusterSpec": cluster()})))
    assert [each["name"] for each in head.template["spec"]["containers"]] == ["head", "ray-job-submitter"]
    http = wrapped("ray.io/v1", "RayJob", {"rayClusterSpec": cluster(), "submissionMode": "HTTPMode"})
    assert len(KIND.pod_sets(wrapper(http))[0].template["spec"]["containers"]) == 1


@pytest.mark.parametrize("path", ["", "spec.template", "template.spec.other", "template.spec[x]", "template..spec"])
def test_a_path_that_leads_to_no_template_is_refused(path: str) -> None:
    with pytest.raises(JobError, match=r"spec\.components\[0\]\.podSets\[0\]\.path: expected .*, found '"):
        KIND.pod_sets(wrapper(wrapped("example.dev/v1", "Thing", {"template": 1}, podSets=[{"path": path}])))


def test_a_kind_with_pods_that_are_not_known_must_declare_them() -> None:
    unknown = wrapped("kubeflow.org/v1", "TFJob", {"tfReplicaSpecs": {"Worker": {"template": template()}}})
    (refusal,) = broken(KIND, wrapper(JOB, unknown))
    assert (refusal.type, refusal.field) == ("Required", "spec.components[1].podSets")
    declared = {"path": "template.spec.tfReplicaSpecs.Worker.template"}
    assert not broken(KIND, wrapper(JOB, {**unknown, "podSets": [declared]}))


def ran(job: Json, on: bool) -> None:
    condition = {"type": "QuotaReserved", "status": "True" if on else "False"}
    job["status"] = {"phase": "Running" if on else "Suspended", "conditions": [condition]}


def test_a_start_fills_pod_set_infos_in_order_and_a_stop_clears_them() -> None:
    before = wrapper(PYTORCH, wrapped("v1", "ConfigMap", {}), JOB)
    scene = KindWorld(KIND, before, ran)
    scene.settle()
    scene.admit(scene.only)
    scene.settle()
    assert scene.job is not None
    first, config, last = scene.job["spec"]["components"]
    assert [info["labels"][names.POD_SET] for info in first["podSetInfos"]] == ["aw-0", "aw-1"]
    assert last["podSetInfos"][0]["nodeSelector"] == {"gpu": "a100"}
    assert "podSetInfos" not in config
    assert first["template"] == PYTORCH["template"]
    scene.evict(scene.only)
    scene.settle()
    assert scene.job["spec"] == before["spec"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ({"phase": "Running"}, None),
        ({"phase": "Succeeded"}, Outcome(reason="Succeeded", message="AppWrapper finished successfully")),
        ({"phase": "Failed"}, Outcome(reason="Failed", message="AppWrapper failed")),
        ({"phase": "Failed", "conditions": [{"type": "ResourcesDeployed", "status": "True"}]}, None),
    ],
)
def test_a_failed_one_is_finished_when_its_objects_are_gone(status: Json, outcome: Outcome | None) -> None:
    assert KIND.finished({**wrapper(), "status": status}) == outcome


def test_it_has_stopped_when_its_own_quota_is_given_back() -> None:
    reserved = {"type": "QuotaReserved", "status": "True"}
    assert not KIND.is_stopped({**wrapper(), "status": {"phase": "Suspending", "conditions": []}})
    assert not KIND.is_stopped({**wrapper(), "status": {"phase": "Suspended", "conditions": [reserved]}})
    assert KIND.is_stopped({**wrapper(), "status": {"phase": "Suspended"}})
    assert KIND.pods_ready({"status": {"conditions": [{"type": "PodsReady", "status": "True"}]}})
