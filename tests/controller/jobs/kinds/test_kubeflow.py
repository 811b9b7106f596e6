"""Kubeflow's jobs and the MPI operator's: replicas by type, runPolicy, conditions."""

from collections.abc import Mapping
from typing import Any

import pytest

from controller.cluster.config.settings import INJECTED
from controller.jobs.framework import compose
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.framework.settings import JobSettings
from controller.jobs.framework.templated import TemplatedKind
from controller.jobs.kinds.appwrapper import AppWrapper
from controller.jobs.kinds.kubeflow import KUBEFLOW_JOBS
from controller.jobs.kinds.mpijob import MPIJob

PYTORCH, TENSORFLOW, *_ = KUBEFLOW_JOBS
MPI = MPIJob()


def replica(count: int | None = None, **template: Any) -> Json:
    found: Json = {"template": {"spec": {"containers": [], **template}}}
    return found if count is None else {**found, "replicas": count}


def job(field: str, replicas: Json | None, status: Json | None = None, **spec: Any) -> Json:
    return {"metadata": {"name": "j"}, "spec": {field: replicas, **spec}, "status": status or {}}


def test_the_table_has_kueues_names_in_the_order_of_its_documentation() -> None:
    assert [(kind.framework, kind.plural, kind.kind) for kind in KUBEFLOW_JOBS] == [
        ("kubeflow.org/pytorchjob", "pytorchjobs", "PyTorchJob"),
        ("kubeflow.org/tfjob", "tfjobs", "TFJob"),
        ("kubeflow.org/xgboostjob", "xgboostjobs", "XGBoostJob"),
        ("kubeflow.org/paddlejob", "paddlejobs", "PaddleJob"),
        ("kubeflow.org/jaxjob", "jaxjobs", "JAXJob"),
    ]


def test_pod_sets_have_one_order_and_count_one_where_nothing_is_said() -> None:
    given = job("tfReplicaSpecs", {"Worker": replica(4), "PS": replica(), "Chief": replica(1), "Evaluator": None})
    assert list(TENSORFLOW.counts(given).items()) == [("chief", 1), ("ps", 1), ("worker", 4)]
    with pytest.raises(JobError, match="expected 1 to 18 pod sets, found 0"):
        TENSORFLOW.pod_sets(job("tfReplicaSpecs", None))


@pytest.mark.parametrize(
    ("policy", "master", "worker", "name"),
    [
        ({"schedulingPolicy": {"priorityClass": "high"}}, {"priorityClassName": "low"}, {}, "high"),
        ({"schedulingPolicy": {}}, {}, {"priorityClassName": "low"}, "low"),
        ({}, {"priorityClassName": "mid"}, {"priorityClassName": "low"}, "mid"),
        ({}, {}, {}, ""),
    ],
)
def test_priority_is_the_scheduling_policys_then_the_first_templates(
    policy: Json, master: Json, worker: Json, name: str
) -> None:
    specs = {"Worker": replica(2, **worker), "Master": replica(1, **master)}
    assert PYTORCH.pod_priority_class(job("pytorchReplicaSpecs", specs, runPolicy=policy)) == name


@pytest.mark.parametrize(
    ("status", "active", "ready"),
    [
        ({}, False, False),
        ({"replicaStatuses": {"Worker": {"succeeded": 1}, "Master": {}}}, False, False),
        ({"replicaStatuses": {"Worker": {"active": 2}}}, True, False),
        ({"conditions": [{"type": "Running", "status": "True"}]}, False, True),
    ],
)
def test_activity_is_any_replicas_and_readiness_the_condition_running(status: Json, active: bool, ready: bool) -> None:
    given = job("pytorchReplicaSpecs", {}, status)
    assert PYTORCH.is_active(given) is active
    assert PYTORCH.pods_ready(given) is ready


def test_pods_are_those_of_the_kinds_own_controller() -> None:
    own = "training.kubeflow.org/job-name=j,training.kubeflow.org/operator-name="
    assert PYTORCH.pod_selector(job("pytorchReplicaSpecs", {})) == f"{own}pytorchjob-controller"
    assert MPI.pod_selector(job("mpiReplicaSpecs", {})) == f"{own}mpi-operator"


def test_an_mpi_job_of_the_training_operator_is_refused() -> None:
    given = {"apiVersion": "kubeflow.org/v1", **job("mpiReplicaSpecs", {"Worker": replica(2)})}
    with pytest.raises(JobError, match=r"apiVersion: found v1: .* write it as kubeflow.org/v2beta1"):
        MPI.pod_sets(given)
    assert MPI.counts({**given, "apiVersion": "kubeflow.org/v2beta1"}) == {"worker": 2}


def grouped() -> Json:
    found = replica(1)
    found["template"]["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-group-name": "g"}}
    return found


@pytest.mark.parametrize(
    ("launcher", "works", "offset"),
    [(replica(1), True, "1"), (replica(1), False, None), (None, True, None), (grouped(), True, None)],
)
def test_workers_are_counted_from_one_beside_a_launcher_that_works(
    launcher: Json | None, works: bool, offset: str | None
) -> None:
    given = job("mpiReplicaSpecs", {"Launcher": launcher, "Worker": replica(2)}, runLauncherAsWorker=works)
    worker = MPI.defaulted(given)["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    assert worker.get("metadata", {}).get("annotations", {}).get("kueue.x-k8s.io/pod-index-offset") == offset


@pytest.mark.parametrize(
    ("replicas", "charged"),
    [
        ({"Master": replica(1), "Worker": replica(2)}, {"worker": ["init-pytorch"]}),
        ({"Worker": replica(2)}, {}),
        (
            {"Master": replica(1), "Worker": replica(2, initContainers=[{"name": "init-pytorch"}])},
            {"worker": ["init-pytorch"]},
        ),
    ],
)
def test_what_the_operator_puts_into_workers_is_charged_where_it_does_so(
    replicas: Json, charged: dict[str, list[str]]
) -> None:
    given = job("pytorchReplicaSpecs", replicas)
    assert init_containers(PYTORCH, given, INJECTED) == charged
    wrapper = {"metadata": {"name": "aw"}, "spec": {"components": [{"template": typed(given)}]}}
    assert list(init_containers(AppWrapper(), wrapper, INJECTED).values()) == list(charged.values())


def test_nothing_is_charged_for_what_the_configuration_says_is_not_there() -> None:
    given = job("pytorchReplicaSpecs", {"Master": replica(1), "Worker": replica(2)})
    assert init_containers(PYTORCH, given, {}) == {}
    other = job("tfReplicaSpecs", {"Master": replica(1), "Worker": replica(2)})
    assert init_containers(TENSORFLOW, other, INJECTED) == {}


def init_containers(
    kind: TemplatedKind, given: Json, injected: Mapping[str, Mapping[str, str]]
) -> dict[str, list[str]]:
    """Names by pod set, of those that have any."""
    sets = compose.pod_sets(kind, given, JobSettings(injected=injected))
    found = {each.name: [one["name"] for one in each.template["spec"].get("initContainers", [])] for each in sets}
    return {name: containers for name, containers in found.items() if containers}


def typed(given: Json) -> Json:
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **given}
