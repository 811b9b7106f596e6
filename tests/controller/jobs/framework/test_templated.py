"""What is common to kinds whose pod templates lie in their own object, shown on an example of two pod sets."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.framework import names
from controller.jobs.framework.actions import FinishWorkload, HoldWorkload, Refuse, StartJob
from controller.jobs.framework.kind import ObjectKind, Reference, completed, fact
from controller.jobs.framework.podsets import PodSetInfo, SeenWorkload, same_shape, typed_template
from controller.jobs.framework.raw import Json, merged
from controller.jobs.framework.templated import difference, dotted, located, replaced, with_placement
from controller.reconcile.jobs.actions_shell import pods_to_ungate
from tests.support.controller.exampletrain import ExampleTrain, template, train
from tests.support.controller.jobmodel import cluster_objects
from tests.support.controller.kindworld import KindWorld

KIND = ExampleTrain()


def run(job: Json, on: bool) -> None:
    job["status"]["active"] = sum(car["pods"] for car in job["spec"]["cars"]) if on else 0


def world(job: Json | None = None, kind: ExampleTrain = KIND) -> KindWorld:
    return KindWorld(kind, job or train(), run)


def cars(scene: KindWorld) -> Any:
    assert scene.job is not None
    return copy.deepcopy(scene.job["spec"]["cars"])


def test_each_template_is_a_pod_set_with_its_count_and_rank_label() -> None:
    engine, wagon = KIND.pod_sets(train())
    assert (engine.name, engine.count, wagon.name, wagon.count) == ("engine", 1, "wagon", 3)
    assert wagon.topology_request == {"podIndexLabel": "example.dev/seat"}
    assert KIND.counts(train()) == {"engine": 1, "wagon": 3}


def test_a_job_is_admitted_preempted_and_admitted_again_with_its_templates_as_they_were() -> None:
    scene = world()
    before = cars(scene)
    scene.settle()
    scene.admit(scene.only)
    scene.settle()
    assert not scene.suspended()
    for car in cars(scene):
        assert car["template"]["spec"]["nodeSelector"] == {"gpu": "a100"}
        assert car["template"]["metadata"]["labels"][names.POD_SET] == car["name"]
    scene.evict(scene.only)
    scene.settle()
    assert scene.suspended()
    assert cars(scene) == before
    scene.admit(scene.only, flavor="h100")
    scene.settle()
    assert {car["template"]["spec"]["nodeSelector"]["gpu"] for car in cars(scene)} == {"h100"}


def test_templates_wait_until_the_pods_of_the_last_run_are_gone() -> None:
    scene = world()
    scene.settle()
    scene.admit(scene.only)
    assert scene.job is not None
    scene.job["status"] = {"active": 2, "conditions": [{"type": "Suspended", "status": "True"}]}
    assert not any(isinstance(action, StartJob) for action in scene.next_actions())
    scene.settle()
    assert not scene.suspended()


def test_an_assignment_of_other_pod_sets_can_never_start() -> None:
    scene = world()
    scene.settle()
    scene.admit(scene.only)
    scene.workloads[scene.only]["status"]["admission"]["podSetAssignments"].pop()
    assert any(
        isinstance(action, FinishWorkload) and action.reason == "FailedToStart" for action in scene.next_actions()
    )


class TwoWrites(ExampleTrain):
    starts_in_two_writes = True


def test_a_kind_that_wants_its_templates_first_is_unsuspended_by_a_second_write() -> None:
    scene = world(kind=TwoWrites())
    scene.settle()
    scene.admit(scene.only)
    scene.step()
    assert scene.suspended()
    assert cars(scene)[0]["template"]["spec"]["nodeSelector"] == {"gpu": "a100"}
    scene.step()
    assert not scene.suspended()


class Held(ExampleTrain):
    def is_on_hold(self, job: Json) -> bool:
        return bool(job["spec"].get("held"))


def test_a_job_on_hold_holds_no_quota_and_comes_back() -> None:
    scene = world(kind=Held())
    scene.settle()
    scene.admit(scene.only)
    scene.settle()
    scene.edit({"spec": {"held": True}})
    scene.settle()
    assert scene.suspended()
    assert "admission" not in scene.workloads[scene.only]["status"]
    assert scene.next_actions() == ()
    scene.edit({"spec": {"held": None}})
    (action,) = scene.step()
    assert isinstance(action, HoldWorkload)
    assert not action.on
    assert scene.next_actions() == ()


class Skipped(ExampleTrain):
    def is_skipped(self, _job: Json) -> bool:
        return True


def test_a_job_that_its_kind_skips_is_left_alone() -> None:
    assert world(kind=Skipped()).next_actions() == ()


TRACKS = ObjectKind(group="example.dev", version="v1", kind="Track", plural="tracks", namespaced=False)


class OnTracks(ExampleTrain):
    reads = (TRACKS,)

    def references(self, job: Json) -> tuple[Reference, ...]:
        return (Reference(kind=TRACKS, name=job["spec"]["track"]),)

    def slots(self, job: Json) -> Any:
        found = fact(job, self.references(job)[0]) or {"spec": {"pods": 0}}
        return tuple(
            type(slot)(name=slot.name, path=slot.path, count=found["spec"]["pods"]) for slot in super().slots(job)
        )


def test_pod_sets_may_follow_from_another_object_which_no_patch_carries() -> None:
    scene = world(train(track="north"), kind=OnTracks())
    track = {"spec": {"pods": 7}}
    seen: list[tuple[str, str, str]] = []

    def look(kind: ObjectKind, namespace: str, name: str) -> Json:
        seen.append((kind.plural, namespace, name))
        return track

    scene.cluster = cluster_objects(look=look)
    scene.settle()
    assert seen[0] == ("tracks", "", "north")
    assert [each["count"] for each in scene.workloads[scene.only]["spec"]["podSets"]] == [7, 7]
    scene.admit(scene.only)
    scene.settle()
    assert scene.job is not None
    assert set(scene.job) == set(train())


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (train({"name": "a", "template": {}}, {"name": "a", "template": {}}), "found 'a' twice"),
        (train(*({"name": f"c{i}", "template": {}} for i in range(19))), "expected 1 to 18 pod sets, found 19"),
        (train({"name": "a", "pods": -1, "template": {}}), "spec.cars[0].template: expected a number of pods"),
        (train({"name": "a", "template": []}), "spec.cars[0].template: expected a pod template, found list"),
        (train(cars={}), "spec.cars: expected a list, found dict"),
    ],
)
def test_what_cannot_be_queued_is_refused_in_one_sentence(job: Json, sentence: str) -> None:
    (refusal,) = world(job).next_actions()
    assert isinstance(refusal, Refuse)
    assert sentence in refusal.sentence


def pod(name: str, pod_set: str | None, *gates: str, phase: str = "Pending") -> Json:
    return {
        "metadata": {"name": name, "labels": {names.POD_SET: pod_set} if pod_set else {}},
        "spec": {"schedulingGates": [{"name": gate} for gate in gates]},
        "status": {"phase": phase},
    }


def test_as_many_pods_of_each_set_lose_the_gate_as_were_admitted_of_it() -> None:
    pods = [
        pod("w3", "wagon", "g"),
        pod("w1", "wagon"),
        pod("w2", "wagon", "g", "other"),
        pod("e1", "engine", "g"),
        pod("done", "engine", phase="Succeeded"),
        pod("stray", None, "g"),
    ]
    found = pods_to_ungate(pods, "g", {"engine": 1, "wagon": 2})
    assert [one["metadata"]["name"] for one in found] == ["e1", "w2"]
    assert pods_to_ungate([pod("x", None, "g")], "g", {"main": 1})


VALUES = st.recursive(
    st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3)


@given(OBJECTS, OBJECTS)
def test_a_difference_merged_in_gives_the_wanted_object(now: Json, wanted: Json) -> None:
    assert merged(now, difference(now, wanted)) == wanted


@given(st.sampled_from([("x",), ("x", 1, "y"), ("z", "y", 0)]), VALUES)
def test_a_value_put_at_a_path_is_found_there(path: tuple[str | int, ...], value: Any) -> None:
    before = {"x": [{"y": 1}, {"y": 2}], "z": {"y": [3, 4]}}
    after = replaced(before, path, value)
    assert located(after, path) == value
    assert before == {"x": [{"y": 1}, {"y": 2}], "z": {"y": [3, 4]}}


def test_paths_read_as_users_write_them() -> None:
    assert dotted(("spec", "cars", 0, "template")) == "spec.cars[0].template"


@pytest.mark.parametrize(
    "original",
    [
        template(),
        {**template(), "metadata": {}},
        {**template(), "metadata": {"labels": {}, "annotations": {"a": "b"}}},
        template(nodeSelector={}, schedulingGates=[{"name": "mine"}]),
    ],
)
def test_the_placement_that_was_put_in_is_taken_out_to_the_letter(original: Json) -> None:
    started = {
        "metadata": {"labels": {"l": "1"}, "annotations": {"x": "y"}},
        "spec": {"nodeSelector": {"n": "1"}, "tolerations": [{"key": "t"}], "schedulingGates": [{"name": "g"}]},
    }
    assert with_placement(with_placement(original, started), original) == original


def test_a_start_that_is_complete_already_only_unsuspends() -> None:
    scene = world()
    scene.settle()
    scene.admit(scene.only)
    workload = SeenWorkload.of(scene.workloads[scene.only])
    infos = tuple(PodSetInfo(name=name, count=1, node_selector={"n": "1"}) for name in ("engine", "wagon"))
    assert scene.job is not None
    (first,) = KIND.start(scene.job, workload, infos)
    placed = merged(scene.job, first.body)
    placed["spec"]["suspend"] = True
    (second,) = KIND.start(placed, workload, infos)
    assert second.body["spec"] == {"suspend": False}


class Counted(ExampleTrain):
    """Its size lies elsewhere, and its start may change more than templates."""

    can_be_elastic = True

    def slice_mark(self, job: Json) -> str:
        return str(job["spec"]["size"])

    def workload_annotations(self, job: Json) -> dict[str, str]:
        return {"example.dev/size": self.slice_mark(job)}

    def restored(self, job: Json, workload: SeenWorkload) -> Json:
        return replaced(super().restored(job, workload), ("spec", "size"), 1)


def test_a_kind_names_its_slices_marks_its_workloads_and_restores_what_it_changed() -> None:
    found = []
    for size in (1, 2):
        job = train(size=size)
        job["metadata"]["annotations"] = {names.ELASTIC_JOB: "true"}
        scene = world(job, kind=Counted())
        scene.settle()
        found.append(scene.only)
        assert scene.workloads[scene.only]["metadata"]["annotations"]["example.dev/size"] == str(size)
    assert len(set(found)) == 2
    scene = world(train(size=2), kind=Counted())
    scene.settle()
    scene.admit(scene.only)
    scene.settle()
    assert scene.job is not None
    assert scene.job["spec"]["size"] == 2
    scene.evict(scene.only)
    scene.settle()
    assert scene.job["spec"]["size"] == 1


def test_an_evicted_job_that_changed_its_queue_keeps_its_workload() -> None:
    scene = world()
    scene.settle()
    scene.admit(scene.only)
    scene.settle()
    name = scene.only
    scene.evict(name)
    scene.edit({"metadata": {"labels": {names.QUEUE_NAME: "other"}}})
    scene.settle()
    assert scene.only == name
    assert scene.workloads[name]["spec"]["queueName"] == "other"


def test_a_restart_policy_makes_no_other_pod() -> None:
    one, other = (typed_template(template(**given), "t") for given in ({}, {"restartPolicy": "Never"}))
    assert same_shape(one, other)
    assert not same_shape(one, typed_template(template(schedulerName="x"), "t"))


def test_a_job_without_references_is_not_copied() -> None:
    job = train()
    assert completed(KIND, job, lambda _kind, _namespace, _name: None) is job
