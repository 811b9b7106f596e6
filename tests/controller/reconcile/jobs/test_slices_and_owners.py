"""Jobs whose workload is not theirs alone: elastic ones, prebuilt ones, children of other jobs."""

import copy

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.actions import (
    Action,
    CreateWorkload,
    DeleteWorkload,
    EmitEvent,
    Refuse,
    StopJob,
    UngatePods,
)
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import Json
from controller.jobs.framework.settings import JobSettings
from controller.objects.meta import OwnerReference
from controller.reconcile.jobs.elastic import in_order, settle
from controller.scheduler.model.gates import FeatureGates
from tests.support.controller.jobmodel import UID, World, cluster_objects, job


def elastic(count: int = 3) -> World:
    """An elastic job that runs with ``count`` pods."""
    body = job(parallelism=count, completions=20)
    body["metadata"]["annotations"] = {names.ELASTIC_JOB: "true"}
    world = World(body)
    world.settle()
    world.admit(world.only)
    world.settle()
    return world


def resize(world: World, count: int) -> None:
    world.edit({"spec": {"parallelism": count}})
    world.settle()


def sizes(world: World) -> list[int]:
    return sorted(world.workloads[name]["spec"]["podSets"][0]["count"] for name in world.live())


def test_an_elastic_jobs_pods_wait_behind_a_gate_until_they_are_admitted() -> None:
    world = elastic()
    assert world.template()["spec"]["schedulingGates"] == [{"name": names.ELASTIC_JOB}]
    world.gated_pods = 3
    assert world.next_actions() == (UngatePods(gate=names.ELASTIC_JOB, counts={"main": 3}),)


def test_more_pods_are_asked_for_by_a_slice_that_replaces_the_one_that_runs() -> None:
    world = elastic()
    first = world.only
    resize(world, 5)
    (second,) = set(world.live()) - {first}
    meta = world.workloads[second]["metadata"]
    assert meta["annotations"][names.REPLACEMENT_FOR] == f"default/{first}"
    assert meta["annotations"][names.SLICE_NAME] == first
    assert not world.suspended()
    assert sizes(world) == [3, 5]
    world.admit(second)
    world.settle()
    assert world.live() == [second]
    (finished,) = [one for one in world.workloads[first]["status"]["conditions"] if one["type"] == "Finished"]
    assert finished["reason"] == "WorkloadSliceReplaced"
    assert not world.suspended()
    resize(world, 6)
    (third,) = set(world.live()) - {second}
    assert world.workloads[third]["metadata"]["annotations"][names.SLICE_NAME] == first


def test_a_slice_that_waits_follows_the_job() -> None:
    world = elastic()
    resize(world, 5)
    resize(world, 7)
    assert sizes(world) == [3, 7]
    resize(world, 3)
    assert sizes(world) == [3]
    assert not world.suspended()


def test_fewer_pods_lower_the_slice_that_runs() -> None:
    world = elastic()
    name = world.only
    resize(world, 2)
    assert (world.only, sizes(world)) == (name, [2])
    assert not world.suspended()


def test_each_change_of_size_is_told_once_by_the_slice_that_it_changes() -> None:
    world = elastic()
    first = world.only
    resize(world, 5)
    (second,) = set(world.live()) - {first}
    assert world.events[-1] == ("CreatedWorkload", f"Created workload {second} for 5 pods in main, to replace {first}")
    resize(world, 7)
    assert world.events[-1] == ("UpdatedWorkload", f"Updated workload {second} to 7 pods in main")
    resize(world, 2)
    assert world.events[-1] == ("UpdatedWorkload", f"Updated workload {first} to 2 pods in main")
    assert [reason for reason, _ in world.events].count("UpdatedWorkload") == 2


def test_a_slice_that_waits_for_another_than_the_one_that_runs_is_withdrawn() -> None:
    world = elastic()
    first = world.only
    resize(world, 5)
    (second,) = set(world.live()) - {first}
    world.workloads[second]["metadata"]["annotations"][names.REPLACEMENT_FOR] = "default/gone"
    assert [type(action) for action in world.next_actions()] == [DeleteWorkload]
    world.settle()
    (third,) = set(world.live()) - {first}
    assert world.workloads[third]["metadata"]["annotations"][names.REPLACEMENT_FOR] == f"default/{first}"
    assert sizes(world) == [3, 5]


def with_quota(count: int) -> World:
    """An elastic job whose slice holds quota and waits for admission checks."""
    body = job(parallelism=count, completions=20)
    body["metadata"]["annotations"] = {names.ELASTIC_JOB: "true"}
    world = World(body)
    world.settle()
    world.admit(world.only)
    world.condition(world.only, "Admitted", "False", "Pending")
    world.settle()
    assert world.suspended()
    return world


def test_a_job_that_asks_for_fewer_pods_before_its_start_keeps_its_quota_and_starts_with_them() -> None:
    world = with_quota(3)
    name = world.only
    resize(world, 2)
    assert (world.only, sizes(world)) == (name, [2])
    assert "admission" in world.workloads[name]["status"]
    world.condition(name, "Admitted", "True", "Admitted")
    world.settle()
    assert not world.suspended()
    assert world.job is not None
    assert world.job["spec"]["parallelism"] == 2


def test_a_job_that_changes_more_than_its_size_before_its_start_is_queued_anew() -> None:
    world = with_quota(3)
    world.edit({"spec": {"parallelism": 2, "template": {"spec": {"nodeSelector": {"disk": "hdd"}}}}})
    world.settle()
    assert sizes(world) == [2]
    assert "admission" not in world.workloads[world.only].get("status", {})


def test_slices_of_other_pod_sets_than_the_jobs_are_not_compared() -> None:
    world = elastic()
    slices = [SeenWorkload.of(raw) for raw in world.workloads.values()]
    assert not settle(slices, {"other": 3}).comparable
    assert settle([], {"other": 3}).comparable


def test_an_elastic_job_that_is_evicted_is_one_workload_again_of_its_present_size() -> None:
    world = elastic()
    first = world.only
    resize(world, 5)
    world.evict(first)
    world.settle()
    assert world.suspended()
    assert sizes(world) == [5]
    assert "schedulingGates" not in world.template()["spec"]


def test_with_the_gate_off_a_resized_job_starts_over() -> None:
    world = elastic()
    world.settings = JobSettings(gates=FeatureGates({"ElasticJobsViaWorkloadSlices": False}))
    resize(world, 5)
    assert world.suspended()
    assert sizes(world) == [5]


# Prebuilt workloads.


def prebuilt(*, count: int = 1) -> World:
    maker = World(job())
    maker.settle()
    ((_, raw),) = maker.workloads.items()
    raw = copy.deepcopy(raw)
    raw["metadata"] |= {
        "name": "made",
        "ownerReferences": [],
        "labels": {},
        "annotations": {names.ADMISSION_GATED_BY: "x"},
    }
    raw["spec"]["podSets"][0]["count"] = count
    body = job(suspend=False)
    body["metadata"]["labels"][names.PREBUILT_WORKLOAD] = "made"
    world = World(body)
    world.workloads["made"] = raw
    return world


def test_a_prebuilt_workload_is_taken_over_and_used_and_not_changed() -> None:
    world = prebuilt()
    world.settle()
    meta = world.workloads["made"]["metadata"]
    assert [owner["uid"] for owner in meta["ownerReferences"]] == [UID]
    assert meta["annotations"] == {names.ADMISSION_GATED_BY: "x"}
    assert list(world.workloads) == ["made"]
    world.admit("made")
    world.settle()
    assert not world.suspended()


def test_a_job_waits_for_its_prebuilt_workload() -> None:
    world = prebuilt()
    world.workloads.clear()
    stop, event = world.next_actions()
    assert isinstance(stop, StopJob)
    assert isinstance(event, EmitEvent)
    assert event.message.startswith("Workload made does not exist yet. Create it")
    assert not any(isinstance(action, CreateWorkload) for action in world.next_actions())


def test_a_prebuilt_workload_of_another_job_is_not_taken() -> None:
    world = prebuilt()
    world.workloads["made"]["metadata"]["ownerReferences"] = [{"uid": "other", "controller": True, "kind": "Job"}]
    (stop, refusal) = world.next_actions()
    assert isinstance(stop, StopJob)
    assert isinstance(refusal, Refuse)
    assert "belongs to another job" in refusal.sentence
    world.settle()
    assert world.live() == ["made"]


def test_a_prebuilt_workload_that_says_something_else_is_out_of_sync() -> None:
    world = prebuilt(count=2)
    world.settle()
    (finished,) = [one for one in world.workloads["made"]["status"]["conditions"] if one["type"] == "Finished"]
    assert finished["reason"] == "OutOfSync"
    assert world.suspended()


# Owners.


def owned(uid: str = "p") -> dict[str, object]:
    return {"apiVersion": "x/v1", "kind": "JobSet", "name": "parent", "uid": uid, "controller": True}


def family(*, parent: Json | None, admitted: bool = False, suspend: bool = False) -> tuple[Action, ...]:
    body = job(suspend=suspend)
    body["metadata"]["ownerReferences"] = [owned()]
    world = World(body)

    def owner(namespace: str, reference: OwnerReference) -> Json | None:
        assert namespace == "default"
        return parent if reference.name == "parent" else None

    world.cluster = cluster_objects(owner=owner, is_admitted=lambda uid: admitted and uid == "p")
    return world.next_actions()


PARENT: Json = {"metadata": {"uid": "p", "name": "parent", "labels": {names.QUEUE_NAME: "q"}}}


def test_a_child_of_a_queued_job_is_left_to_it() -> None:
    assert family(parent=PARENT, admitted=True) == ()
    assert family(parent=PARENT, suspend=True) == ()


def test_a_child_waits_until_its_owner_is_admitted() -> None:
    stop, event = family(parent=PARENT)
    assert isinstance(stop, StopJob)
    assert isinstance(event, EmitEvent)
    assert event.reason == "Suspended"


@pytest.mark.parametrize(
    "parent",
    [
        None,
        {"metadata": {"uid": "p", "labels": {}}},
        {"metadata": {"uid": "a namesake's", "labels": {names.QUEUE_NAME: "q"}}},
    ],
    ids=["gone", "not queued", "another of the name"],
)
def test_a_child_of_nobody_that_is_queued_is_queued_itself(parent: Json | None) -> None:
    assert any(isinstance(action, CreateWorkload) for action in family(parent=parent, suspend=True))


def test_owners_without_end_are_followed_so_far_and_no_further() -> None:
    parent = {"metadata": {"uid": "p", "labels": {}, "ownerReferences": [owned()]}}
    stop, refusal = family(parent=parent)
    assert isinstance(stop, StopJob)
    assert isinstance(refusal, Refuse)
    assert refusal.reason == "JobNestingTooDeep"


def test_of_slices_of_one_second_the_one_that_replaces_another_is_the_newer() -> None:
    def slice_(name: str, replaces: str = "") -> SeenWorkload:
        notes = {names.REPLACEMENT_FOR: f"default/{replaces}"} if replaces else {}
        meta = {"name": name, "namespace": "default", "annotations": notes, "creationTimestamp": "2026-01-01T00:00:00Z"}
        return SeenWorkload.of({"metadata": meta, "spec": {"podSets": []}})

    listed = [slice_("a", "b"), slice_("b", "c"), slice_("c")]
    assert [one.name for one in in_order(listed)] == ["c", "b", "a"]
