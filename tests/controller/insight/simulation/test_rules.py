"""What a cluster refuses of a job does not run in a simulation: the rules of each kind hold there too."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.insight.simulation.documents import InputError
from controller.insight.simulation.manifests import scenario
from controller.jobs.framework.raw import Json
from controller.jobs.framework.templated import replaced
from controller.jobs.kinds.table import JOB_KINDS
from controller.jobs.serving.table import STAMPED_KINDS
from tests.support.controller.manifests import cluster_queue, config, flavor, given, job, local_queue, run

KINDS = Path(__file__).parents[4] / "examples" / "kinds"
QUEUE = "kueue.x-k8s.io/queue-name"
QUEUES = (flavor(), cluster_queue(), local_queue())
GPUS = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}


def read(name: str) -> list[Json]:
    found: list[Json] = list(yaml.safe_load_all((KINDS / f"{name}.yaml").read_text()))
    return [
        {**each, "metadata": {**each["metadata"], "labels": {**each["metadata"].get("labels", {}), QUEUE: "main"}}}
        if each["kind"].lower() == name
        else each
        for each in found
    ]


def refused(*objects: Json) -> str:
    with pytest.raises(InputError) as error:
        scenario(given(*QUEUES, *objects), config())
    return str(error.value)


def with_(name: str, *changes: tuple[tuple[str | int, ...], Any]) -> list[Json]:
    found = []
    for each in read(name):
        for path, value in changes if each["kind"].lower() == name else ():
            each = replaced(each, path, value)  # noqa: PLW2901 - one change after the other
        found.append(each)
    return found


NAMES = sorted(path.stem for path in KINDS.glob("*.yaml"))


def test_every_kind_of_the_tables_has_an_example() -> None:
    kinds = {each.kind.lower() for each in JOB_KINDS} | {each.kind.lower() for each in STAMPED_KINDS}
    assert kinds - {"job"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_marks_that_no_job_may_have_are_refused_of_every_kind(name: str) -> None:
    scenario(given(*QUEUES, *read(name)), config())
    assert "expected the name of a LocalQueue, found" in refused(
        *with_(name, (("metadata", "labels", QUEUE), "No_Name"))
    )


CLUSTER = ("spec", "rayClusterSpec")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "rayjob",
            (("spec", "clusterSelector"), {"ray.io/cluster": "c"}),
            "spec.clusterSelector: a queued job runs on",
        ),
        ("rayjob", (("spec", "shutdownAfterJobFinishes"), False), "spec.shutdownAfterJobFinishes: a queued job gives"),
        ("rayjob", (CLUSTER, None), "spec.rayClusterSpec: a queued job runs on a cluster of its own"),
        (
            "rayjob",
            ((*CLUSTER, "enableInTreeAutoscaling"), True),
            "spec.rayClusterSpec.enableInTreeAutoscaling: a queued",
        ),
        ("raycluster", (("spec", "enableInTreeAutoscaling"), True), "spec.enableInTreeAutoscaling: a queued job is"),
        ("raycluster", (("spec", "workerGroupSpecs", 0, "groupName"), "Head"), "spec.workerGroupSpecs[0].groupName:"),
        (
            "rayservice",
            (("spec", "rayClusterConfig", "enableInTreeAutoscaling"), True),
            "spec.rayClusterConfig.enableInTreeAutoscaling:",
        ),
        (
            "sparkapplication",
            (("spec", "dynamicAllocation"), {"enabled": True}),
            "spec.dynamicAllocation.enabled: a queued",
        ),
        ("sparkapplication", (("spec", "mode"), "client"), "spec.mode: a queued application runs its driver"),
        ("sparkapplication", (("spec", "restartPolicy"), {"type": "Always"}), "spec.restartPolicy.type: a queued"),
        ("trainjob", (("spec", "podTemplateOverrides"), [{}]), "write spec.runtimePatches"),
        (
            "deployment",
            (("metadata", "annotations"), {"tessera.dev/min-replicas": "x"}),
            "expected a number of replicas",
        ),
        (
            "statefulset",
            (("metadata", "annotations"), {"tessera.dev/min-replicas": "1"}),
            "all of its replicas or none",
        ),
        ("leaderworkerset", (("metadata", "annotations"), {"tessera.dev/min-replicas": "x"}), "expected a number of"),
        ("jobset", (("metadata", "labels", "kueue.x-k8s.io/max-exec-time-seconds"), "0"), "a whole number of seconds"),
    ],
)
def test_what_the_rules_of_a_kind_refuse_does_not_run(
    name: str, change: tuple[tuple[str | int, ...], Any], said: str
) -> None:
    assert said in refused(*with_(name, change))


def test_rules_of_jobs_pods_and_volcanos_jobs_hold_too() -> None:
    few = job("few", 0, pods=2)
    few["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "2"}
    assert "expected 1 to 1 (below spec.parallelism), found 2" in refused(few)

    labels = {QUEUE: "main", "kueue.x-k8s.io/pod-group-name": "g"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "labels": labels}}
    pod |= {"spec": {"containers": [GPUS]}}
    assert "expected the number of pods of group 'g'" in refused(pod)

    task = {"replicas": 1, "template": {"spec": {"containers": [GPUS]}}}
    spec = {"queue": "q", "tasks": [{"name": "a", **task}, {"name": "a", **task}]}
    metadata = {"name": "v", "namespace": "ns"}
    volcano = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}
    assert "f.yaml: document 4: Job v: spec.tasks" in refused(volcano)


def test_queues_and_pod_groups_of_other_systems_are_refused_as_in_a_cluster() -> None:
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}, "spec": {}}
    assert "Queue q: spec.resources: expected quotas of gpu, cpu and memory, found none" in refused(queue)
    groups = [{"name": "a"}, {"name": "a"}]
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g"}}
    assert "expected each name once, found again 'a'" in refused({**group, "spec": {"subGroups": groups}})


def test_a_kind_that_has_no_effect_is_passed_over_with_what_to_write_instead() -> None:
    flow = {"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobFlow", "metadata": {"name": "f"}}
    (note,) = scenario(given(*QUEUES, flow), config()).warnings
    assert "JobFlow of flow.volcano.sh/v1alpha1 decides nothing here, passed over (JobFlow.flow.volcano.sh: no " in note


def test_pods_that_a_deployment_makes_are_asked_the_rules_of_pods() -> None:
    path = ("spec", "template", "metadata", "labels", "kueue.x-k8s.io/pod-group-name")
    assert "expected the number of pods of group 'g'" in refused(*with_("deployment", (path, "g")))


def test_a_child_of_an_owner_that_is_not_there_is_asked_the_rules_of_its_kind_alone() -> None:
    owner = {"apiVersion": "x.example/v1", "kind": "Flow", "name": "f", "uid": "u", "controller": True}
    made: tuple[str | int, ...] = ("metadata", "ownerReferences")
    exec_time = (("metadata", "labels", "kueue.x-k8s.io/max-exec-time-seconds"), "90")
    scenario(given(*QUEUES, *with_("rayjob", (made, [owner]), exec_time)), config())
    stays = (("spec", "shutdownAfterJobFinishes"), False)
    assert "spec.shutdownAfterJobFinishes:" in refused(*with_("rayjob", (made, [owner]), stays))


def test_a_job_that_no_queue_is_asked_for_is_asked_no_rules() -> None:
    (alone,) = with_("rayjob", (("spec", "shutdownAfterJobFinishes"), False), (("metadata", "labels"), {}))
    assert scenario(given(*QUEUES, alone), config()).submissions == ()


def test_a_service_that_its_owner_suspends_waits_without_quota() -> None:
    (held,) = run(*QUEUES, *with_("rayservice", (("spec", "suspend"), True))).final.pending
    assert (held.reason, held.message) == ("OnHold", "The job is on hold")
