"""Jobs of KAI's begin with the minimum that they, or their kind, ask for; the others with all their pods."""

from typing import Any

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.actions import StartJob, StopJob
from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.podview import GROUP_NAME
from controller.jobs.framework.raw import Json, merged
from controller.jobs.framework.settings import JobSettings
from controller.jobs.kinds.batchjob import BatchJob
from controller.jobs.kinds.kubeflow import KUBEFLOW_JOBS
from controller.jobs.kinds.mpijob import MPIJob
from controller.scheduler.model.gates import FeatureGates
from inventory.api.names import ABOVE_MINIMUM_OF, FULL_PARALLELISM
from tests.support.controller.jobmodel import World
from tests.support.controller.jobmodel import job as batch_job

KAI, LEAST = "kai.scheduler/queue", "kai.scheduler/batch-min-member"
GATE = {"name": names.TOPOLOGY_GATE}
PYTORCH, TENSORFLOW, *_ = KUBEFLOW_JOBS


def kais(least: str | None = None, notes: Json | None = None, **more: Any) -> Json:
    """A Job of KAI's queue ``q``."""
    body = batch_job(**{"parallelism": 4, "completions": 4, **more})
    body["metadata"]["labels"] |= {KAI: "q"}
    body["metadata"]["annotations"] = {**({} if least is None else {LEAST: least}), **(notes or {})}
    return body


def begun(body: Json) -> World:
    world = World(body)
    world.settle()
    world.admit(world.only)
    world.settle()
    return world


def count(world: World) -> int:
    (pod_set,) = world.workloads[world.only]["spec"]["podSets"]
    return int(pod_set["count"])


@pytest.mark.parametrize(("least", "expected"), [(None, 1), ("2", 2), ("3", 3), ("4", 4), ("5", 4)])
def test_a_job_s_workload_is_of_its_minimum(least: str | None, expected: int) -> None:
    world = World(kais(least))
    world.settle()
    assert count(world) == expected
    assert [reason for reason, _ in world.events] == ["CreatedWorkload"]


@pytest.mark.parametrize("said", ["0", "-1", "²", "x", "9" * 5000])
def test_a_minimum_that_cannot_be_read_is_all(said: str) -> None:
    assert BatchJob().counts(kais(said)) == {"main": 4}


def test_a_started_job_makes_all_its_pods_behind_a_gate_and_is_as_it_was_when_it_stops() -> None:
    world = begun(kais("2"))
    assert world.job is not None
    assert world.job["spec"]["parallelism"] == 4
    template = world.template()
    assert template["spec"]["schedulingGates"] == [GATE]
    assert template["metadata"]["annotations"] == {"note": "mine", names.WORKLOAD: world.only, ABOVE_MINIMUM_OF: ""}
    assert FULL_PARALLELISM not in world.job["metadata"]["annotations"]
    before = world.picture()
    world.settle()
    assert (world.picture(), world.suspended()) == (before, False)
    world.evict(world.only)
    world.settle()
    assert "schedulingGates" not in world.template()["spec"]
    assert world.template()["metadata"]["annotations"] == {"note": "mine"}


def test_a_running_job_that_asks_for_more_pods_goes_on_and_for_fewer_than_its_minimum_stops() -> None:
    world = begun(kais("2"))
    world.edit({"spec": {"parallelism": 6}})
    world.settle()
    assert (world.suspended(), count(world)) == (False, 2)
    world.edit({"spec": {"parallelism": 1}})
    world.settle()
    assert (world.suspended(), count(world)) == (True, 1)


def test_a_job_that_was_started_whole_stays_whole() -> None:
    world = begun(kais("4"))
    assert ABOVE_MINIMUM_OF not in world.template()["metadata"]["annotations"]
    world.edit({"metadata": {"annotations": {LEAST: "2"}}})
    world.settle()
    assert (world.suspended(), count(world)) == (False, 4)


def test_a_job_that_waits_is_followed_both_ways() -> None:
    world = World(kais("4"))
    world.settle()
    for least, expected in (("2", 2), ("4", 4), ("3", 3)):
        world.edit({"metadata": {"annotations": {LEAST: least}}})
        world.settle()
        assert count(world) == expected
    world.admit(world.only)
    world.settle()
    assert world.job is not None
    assert (world.job["spec"]["parallelism"], world.template()["spec"]["schedulingGates"]) == (4, [GATE])


def test_a_job_is_ready_with_its_minimum_and_gives_back_what_is_not_needed_of_it() -> None:
    body = kais("2", completions=8)
    kind = BatchJob()
    body["status"] = {"ready": 1, "succeeded": 0}
    assert not kind.pods_ready(body)
    body["status"] = {"ready": 2}
    assert kind.pods_ready(body)
    world = begun(kais("3", completions=8))
    for succeeded, spare in ((4, 0), (5, 0), (6, 1), (7, 2)):
        assert world.job is not None
        world.job["status"]["succeeded"] = succeeded
        world.step()
        told = world.workloads[world.only]["status"].get("reclaimablePods", [])
        assert told == ([{"name": "main", "count": spare}] if spare else [])


OTHERS: list[tuple[str, Json]] = [
    ("another queue by Kueue's label", {"labels": {names.QUEUE_NAME: "other", KAI: "q"}}),
    ("no mark of KAI's", {"labels": {names.QUEUE_NAME: "q"}}),
    ("a queue of Volcano's", {"labels": {names.QUEUE_NAME: "q", "volcano.sh/queue-name": "q"}}),
    ("partial admission", {"annotations": {names.MIN_PARALLELISM: "2"}}),
    ("slices", {"annotations": {names.ELASTIC_JOB: "true"}}),
    ("slices by a label", {"labels": {names.QUEUE_NAME: "q", KAI: "q", names.ELASTIC_JOB: "no"}}),
    ("a Workload made for it", {"labels": {names.QUEUE_NAME: "q", KAI: "q", names.PREBUILT_WORKLOAD: "w"}}),
]


@pytest.mark.parametrize("meta", [meta for _, meta in OTHERS], ids=[why for why, _ in OTHERS])
def test_jobs_that_are_in_no_queue_of_kais_or_chose_another_way_start_whole(meta: Json) -> None:
    body = kais()
    body["metadata"] |= meta
    kind = BatchJob()
    assert (kind.counts(body), kind.counts_above(body)) == ({"main": 4}, {})


def test_a_job_whose_pods_ask_for_places_together_starts_whole_and_says_so() -> None:
    body = kais("2")
    body["spec"]["template"]["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    world = World(body)
    world.settle()
    assert count(world) == 4
    told = f"metadata.annotations[{LEAST}]: found 2; the job starts with all of its 4 pods"
    assert world.events[-1] == ("StartsWhole", told)


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_job_whose_pods_are_a_group_of_their_own_starts_whole(where: str) -> None:
    """Its pods above would be looked for in that group, which counts other pods."""
    body = kais("2")
    body["spec"]["template"]["metadata"][where] = {GROUP_NAME: "g"}
    assert (BatchJob().counts(body), BatchJob().counts_above(body)) == ({"main": 4}, {})


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_the_default_queue_and_a_queue_of_the_pods_are_kais_too(where: str) -> None:
    body = kais()
    del body["metadata"]["labels"][KAI]
    if where == "labels":
        body["spec"]["template"]["metadata"]["labels"][KAI] = "q"
    else:
        body["spec"]["template"]["spec"]["schedulerName"] = "kai-scheduler"
        assert BatchJob().counts(body) == {"main": 4}
        body["metadata"]["labels"][names.QUEUE_NAME] = "default-queue"
    assert BatchJob().counts(body) == {"main": 1}


@pytest.mark.parametrize("kai", [True, False])
@pytest.mark.parametrize("said", ["", "w"])
def test_the_mark_of_a_start_is_refused_in_a_template_that_was_not_started(said: str, kai: bool) -> None:
    """Else it would be started whole, be taken for one that grows, and be stopped again, for ever."""
    body = kais("2") if kai else batch_job(parallelism=4, completions=4)
    body["spec"]["template"]["metadata"]["annotations"] = {ABOVE_MINIMUM_OF: said}
    world = World(body)
    world.settle()
    assert world.workloads == {}
    where = f"metadata.annotations[{ABOVE_MINIMUM_OF}] of a pod template"
    assert world.refusals[-1] == f"{where}: expected none, the controller writes it; found {said!r}"


def test_where_nobody_lets_go_of_pods_above_a_minimum_a_job_starts_whole_and_says_so() -> None:
    world = World(kais("2"), kind=BatchJob().whole())
    world.settle()
    assert count(world) == 4
    told = f"metadata.annotations[{LEAST}]: found 2; the job starts with all of its 4 pods"
    assert world.events[-1] == ("StartsWhole", told)
    world.admit(world.only)
    world.settle()
    assert "schedulingGates" not in world.template()["spec"]
    assert BatchJob().counts(kais("2")) == {"main": 2}, "another kind is as it was"


def test_a_job_that_grows_is_stopped_where_jobs_grow_no_more() -> None:
    world = begun(kais("2"))
    world.kind = BatchJob().whole()
    world.settle()
    assert (world.suspended(), count(world)) == (True, 4)
    assert "schedulingGates" not in world.template()["spec"]


# -- Kubeflow's --------------------------------------------------------------------------------------------------------


def training(replicas: dict[str, int], *, field: str = "pytorchReplicaSpecs", **spec: Any) -> Json:
    template: Json = {"spec": {"containers": []}}
    specs = {type_: {"replicas": number, "template": template} for type_, number in replicas.items()}
    labels = {names.QUEUE_NAME: "q", KAI: "q"}
    return {"metadata": {"name": "j", "uid": "u", "labels": labels}, "spec": {field: specs, **spec}}


def elastic(least: Any) -> Json:
    return {"elasticPolicy": {"minReplicas": least}}


def available(least: Any) -> Json:
    return {"runPolicy": {"schedulingPolicy": {"minAvailable": least}}}


@pytest.mark.parametrize(
    ("replicas", "spec", "expected"),
    [
        ({"Worker": 4}, elastic(2), {"worker": 2}),
        ({"Worker": 4}, elastic(4), {"worker": 4}),
        ({"Worker": 4}, {}, {"worker": 4}),
        ({"Worker": 4}, available(1), {"worker": 1}),
        ({"Worker": 4}, {**elastic(3), **available(1)}, {"worker": 3}),
        ({"Worker": 4}, {**elastic(0), **available(1)}, {"worker": 1}),
        ({"Worker": 4}, available("1"), {"worker": 4}),
        ({"Worker": 4}, available(True), {"worker": 4}),
        ({"Master": 1, "Worker": 4}, available(1), {"master": 1, "worker": 0}),
        ({"Master": 1, "Worker": 4}, available(3), {"master": 1, "worker": 2}),
        ({"Master": 1, "Worker": -1}, available(1), {"master": 1, "worker": -1}),
    ],
)
def test_the_first_pods_are_those_of_the_first_pod_sets(
    replicas: dict[str, int], spec: Json, expected: dict[str, int]
) -> None:
    body = training(replicas, **spec)
    assert PYTORCH.counts(body) == expected
    above = {type_.lower(): count - expected[type_.lower()] for type_, count in replicas.items()}
    assert PYTORCH.counts_above(body) == {name: count for name, count in above.items() if count}


def test_every_kind_of_the_training_operator_grows_and_an_mpi_job_does_not() -> None:
    given = available(1)
    assert TENSORFLOW.counts(training({"PS": 1, "Worker": 2}, field="tfReplicaSpecs", **given)) == {
        "ps": 1,
        "worker": 0,
    }
    launched = training({"Launcher": 1, "Worker": 2}, field="mpiReplicaSpecs", **given)
    mpi: JobKind = MPIJob()
    assert (mpi.counts(launched), mpi.counts_above(launched)) == ({"launcher": 1, "worker": 2}, {})


def test_a_training_job_is_started_with_its_minimum_and_runs_as_that() -> None:
    body = training({"Master": 1, "Worker": 4}, **available(2))
    body["spec"]["runPolicy"]["suspend"] = True
    body["metadata"] |= {"namespace": "default", "resourceVersion": "1", "generation": 1}
    body["status"] = {}
    world = World(body, kind=PYTORCH, settings=JobSettings(gates=FeatureGates()))
    world.step()
    counts = {each["name"]: each["count"] for each in world.workloads[world.only]["spec"]["podSets"]}
    assert counts == {"master": 1, "worker": 1}
    world.admit(world.only)
    (start,) = [action for action in world.next_actions() if isinstance(action, StartJob)]
    world.job = merged(body, start.patches[0].body)
    for type_, replicas in (("Master", 1), ("Worker", 4)):
        spec = world.job["spec"]["pytorchReplicaSpecs"][type_]
        assert (spec["replicas"], spec["template"]["spec"]["schedulingGates"]) == (replicas, [GATE])
        assert spec["template"]["metadata"]["annotations"][ABOVE_MINIMUM_OF] == ""
    running = world.next_actions()
    assert not any(isinstance(action, StopJob) for action in running)
    world.job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 6
    assert world.next_actions() == running, "its new pods are above the minimum"
