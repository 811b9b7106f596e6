"""What a SparkApplication asks for, where its placement goes, and what is refused."""

import copy
from typing import Any

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.kinds.sparkapplication import SparkApplication
from tests.support.controller.jobmodel import UID
from tests.support.controller.kindrules import broken
from tests.support.controller.kindworld import KindWorld

KIND = SparkApplication()


def application(driver: Json | None = None, executor: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {
            "name": "pi",
            "namespace": "default",
            "uid": UID,
            "resourceVersion": "1",
            "generation": 1,
            "labels": {names.QUEUE_NAME: "q"},
        },
        "spec": {
            "suspend": True,
            "mode": "cluster",
            "type": "Scala",
            "driver": driver or {"memory": "1g"},
            "executor": {"instances": 2, "memory": "1g", **(executor or {})},
            **spec,
        },
        "status": {},
    }


def requests(job: Json, role: str = "driver") -> Json:
    found: Json = KIND.templates(job)[role]["spec"]["containers"][0]["resources"]["requests"]
    return found


@pytest.mark.parametrize(
    ("role", "spec", "memory"),
    [
        ({"memory": "512m"}, {}, "896Mi"),
        ({"memory": "10G"}, {}, "11264Mi"),
        ({"memory": "10g"}, {"type": "Python"}, "14336Mi"),
        ({"memory": "2048"}, {}, "2432Mi"),
        ({"memory": "1g", "memoryOverhead": "100m"}, {}, "1124Mi"),
        ({}, {}, "1408Mi"),
        ({"memory": "512Mi"}, {}, "512Mi"),
        ({"memory": "1Gi", "memoryOverhead": "1Gi"}, {}, "2Gi"),
        ({"memory": "10g"}, {"memoryOverheadFactor": "0.5"}, "15360Mi"),
        ({"memory": "10g"}, {"sparkConf": {"spark.driver.memoryOverheadFactor": "0.2"}}, "12288Mi"),
        ({}, {"sparkConf": {"spark.driver.memory": "4g", "spark.driver.memoryOverhead": "1g"}}, "5120Mi"),
    ],
)
def test_memory_is_what_spark_asks_for_with_its_overhead(role: Json, spec: Json, memory: str) -> None:
    assert requests(application({"cores": 1, **role}, **spec))["memory"] == memory


def test_executors_also_have_memory_off_the_heap_and_for_python() -> None:
    conf = {
        "spark.executor.pyspark.memory": "1g",
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": str(512 * 1024 * 1024),
    }
    job = application(executor={"memory": "1g"}, type="Python", sparkConf=conf)
    assert requests(job, "executor")["memory"] == f"{1024 + 409 + 1024 + 512}Mi"
    assert requests(job)["memory"] == f"{1024 + 409}Mi"


@pytest.mark.parametrize(
    ("role", "conf", "cpu"),
    [
        ({"cores": 4}, {}, "4"),
        ({"cores": 4, "coreRequest": "500m"}, {}, "500m"),
        ({}, {"spark.driver.cores": "3"}, "3"),
        ({"cores": 4}, {"spark.kubernetes.driver.request.cores": "2500m"}, "2500m"),
        ({"memory": "1g"}, {}, "1"),
    ],
)
def test_cores_are_what_is_requested_or_what_spark_runs_with(role: Json, conf: dict[str, str], cpu: str) -> None:
    assert requests(application(role, sparkConf=conf))["cpu"] == cpu


def test_limits_gpus_and_other_devices_are_charged() -> None:
    role = {"coreLimit": "2", "memoryLimit": "3g", "gpu": {"name": "nvidia.com/gpu", "quantity": 2}}
    conf = {"spark.driver.resource.nic.amount": "1", "spark.driver.resource.nic.vendor": "example.dev"}
    (container,) = KIND.templates(application(role, sparkConf=conf))["driver"]["spec"]["containers"]
    assert container["resources"]["limits"] == {
        "cpu": "2",
        "memory": "3072Mi",
        "nvidia.com/gpu": "2",
        "example.dev/nic": "1",
    }


@pytest.mark.parametrize(
    ("role", "sentence"),
    [
        ({"memory": "much"}, "spec.driver.memory: expected an amount, found 'much'"),
        ({"coreRequest": "many"}, "spec.driver.coreRequest: expected an amount, found 'many'"),
        ({"coreLimit": "x"}, "spec.driver.coreLimit: expected an amount"),
    ],
)
def test_an_amount_that_cannot_be_read_is_refused(role: Json, sentence: str) -> None:
    with pytest.raises(JobError, match=sentence):
        KIND.pod_sets(application(role))


def test_a_factor_that_is_no_number_is_refused() -> None:
    for factor in ("much", "-1", "nan"):
        with pytest.raises(JobError, match="memoryOverheadFactor: expected a number of at least 0"):
            KIND.pod_sets(application(memoryOverheadFactor=factor))


def test_a_role_becomes_the_template_of_its_pods() -> None:
    role: Json = {
        "memory": "512Mi",
        "coreRequest": "1",
        "labels": {"a": "1"},
        "sidecars": [{"name": "log"}],
        "initContainers": [{"name": "init"}],
        "tolerations": [{"key": "r"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "gold",
        "volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}, {"name": "none"}],
        "template": {
            "metadata": {"labels": {"b": "2"}},
            "spec": {"containers": [{"name": "mine", "image": "i"}], "tolerations": [{"key": "t"}]},
        },
    }
    job = application(role, volumes=[{"name": "v"}, {"name": "other"}], nodeSelector={"zone": "z"})
    assert KIND.templates(job)["driver"] == {
        "metadata": {"labels": {"a": "1", "b": "2"}},
        "spec": {
            "containers": [
                {
                    "name": "mine",
                    "image": "i",
                    "resources": {"requests": {"cpu": "1", "memory": "512Mi"}},
                    "volumeMounts": role["volumeMounts"][:2],
                },
                {"name": "log"},
            ],
            "initContainers": [{"name": "init"}],
            "nodeSelector": {"zone": "z"},
            "tolerations": [{"key": "t"}, {"key": "r"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "gold",
            "volumes": [{"name": "v"}],
        },
    }
    assert KIND.pod_priority_class(job) == "gold"


@pytest.mark.parametrize(
    ("executor", "conf", "count"),
    [
        ({"instances": 0}, {}, 0),
        ({"instances": None}, {}, 1),
        ({"instances": None}, {"spark.executor.instances": "5"}, 5),
    ],
)
def test_executors_are_as_many_as_the_operator_starts(executor: Json, conf: dict[str, str], count: int) -> None:
    assert KIND.counts(application(executor=executor, sparkConf=conf)) == {"driver": 1, "executor": count}


def ran(job: Json, on: bool) -> None:
    job["status"] = {"applicationState": {"state": "RUNNING" if on else "SUSPENDED"}}


def test_a_start_writes_into_the_roles_and_a_stop_takes_it_out() -> None:
    before = application({"memory": "1g", "tolerations": [{"key": "r"}]}, {"instances": None}, nodeSelector={"z": "1"})
    scene = KindWorld(KIND, before, ran)
    scene.settle()
    scene.admit(scene.only)
    scene.settle()
    assert scene.job is not None
    spec = scene.job["spec"]
    assert "nodeSelector" not in spec
    assert spec["driver"]["nodeSelector"] == {"z": "1", "gpu": "a100"}
    assert spec["driver"]["labels"][names.POD_SET] == "driver"
    assert spec["driver"]["tolerations"][0] == {"key": "r"}
    assert spec["executor"]["instances"] == 1
    scene.evict(scene.only)
    scene.settle()
    assert KIND.templates(scene.job) == KIND.templates(before)
    assert "labels" not in scene.job["spec"]["driver"]
    scene.admit(scene.only, flavor="h100")
    scene.settle()
    assert scene.job["spec"]["executor"]["nodeSelector"] == {"z": "1", "gpu": "h100"}


@pytest.mark.parametrize(
    ("state", "policy", "reason"),
    [
        ("COMPLETED", None, "Succeeded"),
        ("FAILED", "OnFailure", "Failed"),
        ("SUBMISSION_FAILED", "Never", "Failed"),
        ("SUBMISSION_FAILED", "OnFailure", None),
        ("RUNNING", None, None),
        ("PENDING_RERUN", "OnFailure", None),
    ],
)
def test_it_ends_when_no_run_follows(state: str, policy: str | None, reason: str | None) -> None:
    job = application(restartPolicy={"type": policy} if policy else {})
    job["status"] = {"applicationState": {"state": state, "errorMessage": "why"}}
    outcome = KIND.finished(job)
    assert (None if outcome is None else (outcome.reason, outcome.message)) == (reason and (reason, "why"))


@pytest.mark.parametrize(
    ("state", "stopped"),
    [("", True), ("SUSPENDED", True), ("SUBMITTED", False), ("RUNNING", False), ("FAILING", False)],
)
def test_it_has_stopped_when_the_operator_says_so(state: str, stopped: bool) -> None:
    assert KIND.is_stopped({**application(), "status": {"applicationState": {"state": state}}}) is stopped


def test_it_is_ready_when_all_executors_run_or_have_run() -> None:
    job = application()
    job["status"] = {"applicationState": {"state": "RUNNING"}, "executorState": {"1": "RUNNING", "2": "PENDING"}}
    assert not KIND.pods_ready(job)
    job["status"]["executorState"]["2"] = "COMPLETED"
    assert KIND.pods_ready(job)


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (application(mode="client"), "spec.mode"),
        (application(dynamicAllocation={"enabled": True}), "spec.dynamicAllocation.enabled"),
        (
            application(sparkConf={"spark.dynamicAllocation.enabled": "true"}),
            "spec.sparkConf[spark.dynamicAllocation.enabled]",
        ),
        (application(restartPolicy={"type": "Always"}), "spec.restartPolicy.type"),
    ],
)
def test_what_of_spark_cannot_be_queued_is_refused_by_field(job: Json, field: str) -> None:
    (refusal,) = broken(KIND, job)
    assert (refusal.type, refusal.field) == ("Invalid", field)


def test_a_running_application_does_not_change_its_pods() -> None:
    running = application(suspend=False)
    assert not broken(KIND, application())
    grown = copy.deepcopy(running)
    grown["spec"]["executor"]["instances"] = 3
    grown["spec"]["driver"]["cores"] = 2
    assert [each.field for each in broken(KIND, grown, before=running)] == ["spec.driver", "spec.executor"]
    assert not broken(KIND, grown, before=application())
    assert not broken(KIND, {**running, "metadata": {}}, before=running)
