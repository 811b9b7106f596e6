"""A TrainJob's pod sets are those of the JobSet that its runtime makes of it."""

from typing import Any

import pytest

from controller.jobs.framework.kind import ObjectKind, completed
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.kinds.trainjob import MANAGER, TrainJob
from tests.support.controller.kindrules import broken

KIND = TrainJob()
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def replicated(name: str, step: str = "", container: str = "node", **spec: Any) -> Json:
    template: Json = {"spec": {"containers": [{"name": container, "resources": {"requests": {"cpu": "1"}}}]}}
    head: Json = {"metadata": {"labels": {STEP: step}}} if step else {}
    return {"name": name, "template": {**head, "spec": {"template": template, **spec}}}


def runtime(*jobs: Json, **policy: Any) -> Json:
    found: Json = {"template": {"spec": {"replicatedJobs": list(jobs)}}}
    return {"spec": {**found, "mlPolicy": policy} if policy else found}


def train_job(found: Json | None, **spec: Any) -> Json:
    job = {"metadata": {"name": "t", "namespace": "ns"}, "spec": {"suspend": True, "runtimeRef": {"name": "r"}, **spec}}
    return completed(KIND, job, lambda _kind, _namespace, _name: found)


NODE = replicated("node", "trainer")


@pytest.mark.parametrize(
    ("found", "trainer", "counts"),
    [
        (runtime(NODE), {}, {"node": 1}),
        (runtime(NODE), {"numNodes": 3}, {"node": 3}),
        (runtime(NODE, numNodes=2, torch={}), {}, {"node": 2}),
        (runtime(NODE, numNodes=2, torch={}), {"numNodes": 5}, {"node": 5}),
        (
            runtime({**replicated("model-initializer", "model-initializer"), "replicas": 4}, NODE),
            {"numNodes": 2},
            {"model-initializer": 1, "node": 2},
        ),
        (
            runtime(replicated("launcher", "trainer"), replicated("node"), mpi={}),
            {"numNodes": 4},
            {"launcher": 1, "node": 4},
        ),
        (
            runtime(replicated("launcher", "trainer"), replicated("node"), mpi={"runLauncherAsNode": True}),
            {"numNodes": 4},
            {"launcher": 1, "node": 3},
        ),
        (runtime(replicated("other", parallelism=3)), {"numNodes": 9}, {"other": 3}),
    ],
)
def test_the_number_of_nodes_is_the_jobs_else_the_policys(found: Json, trainer: Json, counts: dict[str, int]) -> None:
    assert KIND.counts(train_job(found, trainer=trainer)) == counts


def test_requests_of_a_node_are_the_trainers_where_it_has_any() -> None:
    trainer = {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}
    found = runtime(NODE, replicated("side", "other", container="side"))
    node, side = KIND.pod_sets(train_job(found, trainer=trainer))
    assert node.template["spec"]["containers"][0]["resources"] == trainer["resourcesPerNode"]
    assert side.template["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}


def patch(manager: str, **pod: Any) -> Json:
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def test_patches_are_merged_in_their_order_containers_and_gates_by_name() -> None:
    first = patch("a", nodeSelector={"x": "1", "y": "1"}, tolerations=[{"key": "a"}], schedulingGates=[{"name": "a"}])
    second = patch("b", nodeSelector={"x": "2"}, tolerations=[{"key": "b"}], schedulingGates=[{"name": "b"}])
    third = patch("c", containers=[{"name": "node", "resources": {"requests": {"memory": "1Gi"}}}])
    (node,) = KIND.pod_sets(train_job(runtime(NODE), runtimePatches=[first, second, third]))
    assert node.template["spec"] == {
        "containers": [{"name": "node", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        "nodeSelector": {"x": "2", "y": "1"},
        "tolerations": [{"key": "b"}],
        "schedulingGates": [{"name": "a"}, {"name": "b"}],
    }


def test_a_start_keeps_the_tolerations_that_its_own_patch_would_replace() -> None:
    job = train_job(runtime(NODE), runtimePatches=[patch("a", tolerations=[{"key": "a"}])])
    wanted = {"node": {"spec": {"tolerations": [{"key": "a"}, {"key": "flavor"}]}}}
    *_, own = KIND.placed(job, wanted)["spec"]["runtimePatches"]
    assert own == patch(MANAGER, tolerations=[{"key": "a"}, {"key": "flavor"}])


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (train_job(None), "spec.runtimeRef: there is no ClusterTrainingRuntime 'r'"),
        (train_job(None, podSpecOverrides=[{}]), "spec.podSpecOverrides: an older trainer's"),
        (train_job(None, podTemplateOverrides=[{}]), "spec.podTemplateOverrides: .* write spec.runtimePatches"),
    ],
)
def test_what_cannot_be_queued_is_refused(job: Json, sentence: str) -> None:
    with pytest.raises(JobError, match=sentence):
        KIND.pod_sets(job)


def test_only_runtimes_of_the_trainer_are_known() -> None:
    job: Json = {"metadata": {"namespace": "ns"}, "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "own"}}}
    asked: list[tuple[ObjectKind, str, str]] = []

    def look(kind: ObjectKind, namespace: str, name: str) -> None:
        asked.append((kind, namespace, name))

    completed(KIND, job, look)
    assert [(kind.plural, namespace, name) for kind, namespace, name in asked] == [("trainingruntimes", "ns", "own")]
    job["spec"]["runtimeRef"] = {"kind": "Other", "name": "own"}
    with pytest.raises(JobError, match=r"found kind 'Other' of 'trainer\.kubeflow\.org'"):
        KIND.references(job)


def test_the_managers_entry_is_there_from_the_beginning_and_once() -> None:
    made = KIND.defaulted({"spec": {"runtimePatches": [patch("a")]}})
    assert [each["manager"] for each in made["spec"]["runtimePatches"]] == ["a", MANAGER]
    assert KIND.defaulted(made) is made


@pytest.mark.parametrize("field", ["podSpecOverrides", "podTemplateOverrides"])
def test_an_old_override_is_refused_at_its_creation(field: str) -> None:
    (refusal,) = broken(KIND, {"spec": {field: [{}]}})
    assert refusal.field == f"spec.{field}"
    assert refusal.sentence.endswith("write spec.runtimePatches")


def test_a_runtime_without_the_steps_of_an_initializer_is_refused() -> None:
    prepares = replicated("dataset-initializer", "dataset-initializer", container="dataset-initializer")
    other = replicated("model-initializer", "model-initializer", container="main")
    asked: Json = {"dataset": {"storageUri": "hf://d"}, "model": {"storageUri": "hf://m"}}
    assert broken(KIND, train_job(runtime(prepares, NODE), initializer={"dataset": asked["dataset"]})) == ()
    found = "found 'r' with model-initializer[main], node[node]"
    told = [(each.field, each.sentence) for each in broken(KIND, train_job(runtime(other, NODE), initializer=asked))]
    assert told == [
        (f"spec.initializer.{step}", f"expected a runtime whose job {wanted} has a container of this name, {found}")
        for step, wanted in (("dataset", "dataset-initializer"), ("model", "model-initializer"))
    ]
    changed = train_job(runtime(other, NODE), initializer=asked)
    assert broken(KIND, changed, before=changed) == (), "the trainer asks at creation"
    assert broken(KIND, {"spec": {"initializer": asked}}) == (), "who does not know the runtime does not tell"


def test_what_a_patch_lists_has_each_name_once() -> None:
    twice = patch("a", containers=[{"name": "node"}, {"name": "node"}])
    (jobs,) = [twice["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]]
    found = broken(KIND, train_job(runtime(NODE), runtimePatches=[twice, patch("b"), patch("a")]))
    of_job = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs"
    assert [f"{each.field}: {each.sentence}" for each in found] == [
        "spec.runtimePatches[2].manager: expected each once, found again 'a'",
        f"{of_job}[0].template.spec.template.spec.containers[1].name: expected each once, found again 'node'",
    ]
    jobs += jobs
    assert f"{of_job}[1].name" in [each.field for each in broken(KIND, train_job(None, runtimePatches=[twice]))]


def test_an_initializer_and_a_deadline_change_no_pod_set() -> None:
    found = runtime(replicated("dataset-initializer", "dataset-initializer", container="dataset-initializer"), NODE)
    more: Json = {"initializer": {"dataset": {"storageUri": "s3://b/d"}}, "activeDeadlineSeconds": 60}
    assert KIND.pod_sets(train_job(found, **more)) == KIND.pod_sets(train_job(found))
    assert KIND.counts(train_job(found, **more)) == {"dataset-initializer": 1, "node": 1}


@pytest.mark.parametrize("policy", [{"maxRestarts": 1}, {"rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}])
def test_nodes_that_have_succeeded_are_given_up_unless_they_may_run_again(policy: Json) -> None:
    found = runtime(NODE, replicated("first"))
    job = {**train_job(found), "status": {"jobsStatus": [{"name": "first", "succeeded": 1}]}}
    assert KIND.reclaimed(job) == {"first": 1}
    found["spec"]["template"]["spec"]["failurePolicy"] = policy
    assert KIND.reclaimed(job) == {}
