"""Pod groups: what happens to their pods, as claims."""

from typing import Any

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.actions import Refuse
from controller.jobs.framework.podview import (
    FAST_ADMISSION,
    GROUP_TOTAL,
    MANAGED,
    POD_INDEX,
    RETRIABLE,
    SERVING,
    SeenPod,
)
from controller.jobs.framework.raw import Json
from controller.jobs.framework.settings import JobSettings
from controller.reconcile.pods.group import Group, excess
from controller.scheduler.model.gates import FeatureGates
from tests.support.controller.jobmodel import cluster_objects
from tests.support.controller.podworld import PodWorld, group, member, pod, running_group


class TestGroup:
    def test_waits_until_all_its_pods_are_there(self) -> None:
        world = PodWorld(member("a", 3), member("b", 3))
        world.settle()
        assert world.workloads == {}
        assert ("WaitingForPods", "group g has 2 of 3 pods") in world.events
        world.create(member("c", 3))
        world.settle()
        assert world.workload["metadata"]["name"] == "g"
        assert {one["name"] for one in world.workload["metadata"]["ownerReferences"]} == {"a", "b", "c"}
        assert not any("controller" in one for one in world.workload["metadata"]["ownerReferences"])

    def test_has_a_pod_set_for_each_shape(self) -> None:
        world = PodWorld(member("driver", 3, cpu="4"), member("w0", 3), member("w1", 3))
        world.settle()
        assert world.sizes() == [1, 2]
        assert all(len(one["name"]) == 8 for one in world.workload["spec"]["podSets"])

    def test_after_an_eviction_a_pod_of_another_shape_is_asked_for_beside_one_that_has_finished(self) -> None:
        world = running_group(2)
        world.end("p0", "Succeeded")
        world.evict()
        world.settle()
        world.create(member("bigger", 2, cpu="8"))
        world.settle()
        assert world.sizes() == [1, 1]

    def test_a_finished_workload_keeps_its_finalizer_until_it_is_deleted(self) -> None:
        world = running_group(2)
        for name in ("p0", "p1"):
            world.end(name, "Succeeded")
        world.settle()
        assert world.outcome() == "Succeeded"
        assert names.RESOURCE_IN_USE in world.workload["metadata"]["finalizers"]
        world.delete_workload("g")
        world.settle()
        assert world.workloads == {}

    def test_what_does_not_concern_a_scheduler_makes_no_shape(self) -> None:
        other = member("b", 2, labels={"app": "x"}, notes={"note": "y"})
        other["spec"]["containers"][0] |= {"image": "another", "env": [{"name": "A", "value": "1"}]}
        world = PodWorld(member("a", 2), other)
        world.settle()
        assert world.sizes() == [2]

    def test_a_role_that_somebody_wrote_on_a_waiting_pod_is_not_believed(self) -> None:
        big = member("b", 2, cpu="64", labels={names.POD_SET: "small"})
        world = PodWorld(member("a", 2, labels={names.POD_SET: "small"}), big)
        world.settle()
        assert world.sizes() == [1, 1]

    def test_is_admitted_with_its_first_pod_where_it_asks_for_that(self) -> None:
        world = PodWorld(member("a", 3, notes={FAST_ADMISSION: "true"}))
        world.settle()
        assert world.sizes() == [3]
        world.admit()
        world.settle()
        assert world.running() == {"a"}
        assert not world.has("WaitingForReplacementPods")
        world.create(member("b", 3, notes={FAST_ADMISSION: "true"}))
        world.settle()
        assert world.running() == {"a", "b"}

    def test_pods_too_many_go_before_admission_the_newest_first(self) -> None:
        world = PodWorld(*(member(f"p{i}", 2) for i in range(4)))
        world.settle()
        assert set(world.pods) == {"p0", "p1"}

    def test_pods_too_many_go_while_it_runs_and_never_one_that_runs(self) -> None:
        world = running_group(2)
        world.create(member("late", 2))
        world.settle()
        assert world.running() == {"p0", "p1"}
        assert "late" not in world.pods

    def test_of_pods_too_many_one_that_waits_goes_before_a_newer_one_that_runs(self) -> None:
        waits, runs = pod("old"), pod("new", schedulingGates=[])
        for second, raw in enumerate((waits, runs)):
            raw["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{second}Z"
        found = excess(Group(name="g", total=1, minimum=1), [SeenPod(runs), SeenPod(waits)], None)
        assert [one.name for one in found] == ["old"]

    def test_a_pod_of_another_shape_is_too_many_once_quota_is_reserved(self) -> None:
        world = running_group(2)
        world.end("p0", "Failed")
        world.create(member("bigger", 2, cpu="8"))
        world.settle()
        assert "bigger" not in world.pods
        world.create(member("same", 2))
        world.settle()
        assert world.running() == {"p1", "same"}

    def test_none_is_let_go_while_one_is_missing(self) -> None:
        world = group(3)
        world.delete("p1")
        world.settle()
        world.admit()
        world.settle()
        assert world.free() == set()
        assert world.has("WaitingForReplacementPods")
        world.create(member("again", 3))
        world.settle()
        assert world.running() == {"p0", "p2", "again"}
        assert not world.has("WaitingForReplacementPods")

    def test_waits_for_a_replacement_of_a_failed_pod_and_takes_it(self) -> None:
        world = running_group(3)
        world.end("p1", "Failed")
        world.settle()
        assert world.has("WaitingForReplacementPods")
        assert not world.has("PodsReady")
        assert world.outcome() == ""
        assert world.pods["p1"]["metadata"]["finalizers"] == [MANAGED]
        world.create(member("again", 3))
        world.settle()
        assert world.pods["p1"]["metadata"]["finalizers"] == []
        assert world.running() == {"p0", "p2", "again"}
        assert world.has("PodsReady")
        assert {one["name"] for one in world.workload["metadata"]["ownerReferences"]} == {"p0", "p1", "p2", "again"}

    def test_finishes_when_all_have_succeeded_and_gives_back_what_ended_before(self) -> None:
        world = running_group(2)
        world.end("p0", "Succeeded")
        world.settle()
        assert [one["count"] for one in world.workload["status"]["reclaimablePods"]] == [1]
        assert world.pods["p0"]["metadata"]["finalizers"] == [MANAGED]
        gone = world.pods.pop("p0")
        world.settle()
        assert [one["count"] for one in world.workload["status"]["reclaimablePods"]] == [1]
        world.pods["p0"] = gone
        world.end("p1", "Succeeded")
        world.settle()
        assert world.outcome() == "Succeeded"
        assert all(raw["metadata"]["finalizers"] == [] for raw in world.pods.values())

    def test_fails_when_nothing_runs_and_one_says_it_is_not_to_be_retried(self) -> None:
        world = PodWorld(member("a", 2, notes={RETRIABLE: "false"}), member("b", 2))
        world.settle()
        world.admit()
        world.settle()
        world.end("a", "Failed")
        world.settle()
        assert world.outcome() == ""
        assert world.pods["a"]["metadata"]["finalizers"] == [MANAGED]
        world.end("b", "Succeeded")
        world.settle()
        assert world.outcome() == "Failed"

    def test_serving_never_counts_an_ended_pod_as_done(self) -> None:
        world = running_group(2, notes={SERVING: "true"})
        world.end("p0", "Succeeded")
        world.settle()
        assert "reclaimablePods" not in world.workload["status"]
        world.create(member("again", 2, notes={SERVING: "true"}))
        world.settle()
        assert world.running() == {"p1", "again"}

    def test_evicted_loses_its_pods_and_keeps_its_workload_for_those_that_come(self) -> None:
        world = running_group(2)
        uid = world.workload["metadata"]["uid"]
        world.evict()
        world.settle()
        assert world.running() == set()
        assert "admission" not in world.workload["status"]
        assert len(world.pods) == 1
        for name in ("n0", "n1"):
            world.create(member(name, 2))
        world.settle()
        assert world.free() == set()
        world.admit()
        world.settle()
        assert world.running() == {"n0", "n1"}
        assert set(world.pods) == {"n0", "n1"}
        assert world.workload["metadata"]["uid"] == uid

    def test_has_the_highest_priority_of_its_pods(self) -> None:
        world = PodWorld(member("a", 2, priorityClassName="silver"), member("b", 2, priorityClassName="gold"))
        world.cluster = cluster_objects(pod_priority={"silver": 5, "gold": 77}.get)
        world.settle()
        assert world.workload["spec"]["priority"] == 77

    @pytest.mark.parametrize("admitted", [False, True])
    def test_moved_to_another_queue_it_queues_there(self, *, admitted: bool) -> None:
        world = PodWorld(pod("a"))
        world.settle()
        if admitted:
            world.condition(world.workload["metadata"]["name"], "QuotaReserved", "True", "QuotaReserved")
        world.pods["a"]["metadata"]["labels"][names.QUEUE_NAME] = "r"
        world.settle()
        world.settle()
        assert world.workload["spec"]["queueName"] == "r"
        assert not world.has("QuotaReserved")

    def test_evicted_with_some_done_the_others_start_together_again(self) -> None:
        world = running_group(3)
        world.end("p0", "Succeeded")
        world.evict()
        world.settle()
        world.admit()
        world.create(member("n1", 3))
        world.settle()
        assert world.free() == set()
        world.create(member("n2", 3))
        world.settle()
        assert world.running() == {"n1", "n2"}

    def test_quota_is_released_while_pods_end_only_where_that_is_asked_for(self) -> None:
        fast = JobSettings(gates=FeatureGates({"FastQuotaReleaseInPodIntegration": True}))
        for settings, released in ((JobSettings(), False), (fast, True)):
            world = PodWorld(pod("a"), settings=settings)
            world.settle()
            world.admit()
            world.settle()
            world.evict()
            world.step()
            world.step()
            assert ("admission" not in world.workload["status"]) is released

    def test_all_deleted_by_a_person_it_is_over_and_nothing_lingers(self) -> None:
        world = running_group(3)
        for name in list(world.pods):
            world.delete(name)
        world.settle()
        assert (world.pods, world.workloads) == ({}, {})

    def test_deleted_by_a_person_beside_a_pod_that_succeeded_as_it_was_evicted_nothing_lingers(self) -> None:
        world = running_group(3)
        world.end("p0", "Succeeded")
        world.evict()
        world.step()
        world.end("p1", "Succeeded")
        world.settle()
        assert (set(world.pods), world.outcome()) == ({"p0", "p1"}, ""), "it waits for the third to be replaced"
        world.delete("p0")
        world.settle()
        assert (world.pods, world.workloads) == ({}, {})

    def test_that_a_pod_succeeded_as_it_was_evicted_ends_no_group_that_waits_for_another(self) -> None:
        world = running_group(2)
        world.evict()
        world.step()
        world.end("p0", "Succeeded")
        world.settle()
        assert (set(world.pods), world.outcome()) == ({"p0"}, "")

    def test_nothing_lingers_in_a_namespace_that_goes(self) -> None:
        world = running_group(2)
        world.evict()
        world.settle()
        world.namespace_terminating = True
        for name in list(world.pods):
            world.delete(name)
        world.settle()
        assert world.pods == {}

    def test_deleting_its_workload_ends_what_runs_and_frees_the_rest(self) -> None:
        world = running_group(2)
        world.delete_workload("g")
        world.step()
        assert "g" in world.workloads
        world.settle()
        assert (world.pods, world.workloads) == ({}, {})

    def test_after_its_end_the_name_is_taken_until_its_pods_are_gone(self) -> None:
        world = running_group(1)
        world.end("p0", "Succeeded")
        world.settle()
        world.create(member("new", 1))
        world.settle()
        assert world.free() == set()
        assert "group g has finished: delete its pods before its name is used again" in world.refusals
        world.delete("p0")
        world.settle()
        world.settle()
        assert world.sizes() == [1]
        assert world.outcome() == ""

    @pytest.mark.parametrize(
        ("first", "second", "told"),
        [
            (member("a", 2), member("b", 3), "must agree, found '2' on a and '3' on b"),
            (member("a", 2), member("b", 2, labels={names.QUEUE_NAME: "r"}), "must agree, found 'q' on a and 'r' on b"),
            (member("a", 0), member("b", 0), f"metadata.annotations[{GROUP_TOTAL}]: expected at least 1, found 0"),
            (member("a", 2, notes={GROUP_TOTAL: "x"}), member("b", 2, notes={GROUP_TOTAL: "x"}), "expected an integer"),
        ],
    )
    def test_that_contradicts_itself_is_refused(
        self, first: dict[str, object], second: dict[str, object], told: str
    ) -> None:
        world = PodWorld(first, second)
        world.settle()
        assert world.workloads == {}
        assert told in world.refusals[0]

    def test_whose_name_a_job_took_is_refused_and_touches_nothing_of_it(self) -> None:
        world = PodWorld(member("a", 1))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        raw = {
            "metadata": {"name": "g", "uid": "w", "resourceVersion": "1", "ownerReferences": [owner]},
            "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]},
        }
        world.workloads["g"] = raw
        (refused,) = world.next_actions()
        assert isinstance(refused, Refuse)
        assert refused.sentence == "workload g is there already, and is none of these pods: expected a free name"


def prebuilt(**spec: Any) -> Json:
    sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]
    return {
        "metadata": {"name": "made", "namespace": "default", "uid": "w", "resourceVersion": "1"},
        "spec": {"queueName": "q", "podSets": sets, **spec},
    }


NAMED = {names.PREBUILT_WORKLOAD: "made"}


class TestPrebuilt:
    def test_group_waits_for_the_workload_that_it_names_and_all_its_pods_own_it(self) -> None:
        world = PodWorld(*(member(name, 2, notes=NAMED) for name in "ab"))
        world.settle()
        assert world.workloads == {}
        reason, message = world.events[-1]
        assert (reason, message.partition(".")[0]) == ("ErrWorkloadCompose", "Workload made does not exist yet")
        model = PodWorld(*(member(name, 2) for name in "ab"))
        model.settle()
        world.workloads["made"] = prebuilt(podSets=model.workload["spec"]["podSets"])
        world.settle()
        assert [one["name"] for one in world.workload["metadata"]["ownerReferences"]] == ["a", "b"]
        world.admit()
        world.settle()
        assert world.running() == {"a", "b"}

    def test_workload_that_asks_for_something_else_is_finished_and_the_pods_end(self) -> None:
        world = PodWorld(*(member(name, 2, notes=NAMED) for name in "ab"))
        world.workloads["made"] = prebuilt()
        world.settle()
        assert world.outcome() == "OutOfSync"


def test_pods_of_a_group_that_copy_different_labels_are_refused_and_else_all_of_them_are_copied() -> None:
    settings = JobSettings(label_keys_to_copy=("team", "site"))
    agreed = PodWorld(
        member("a", 2, labels={"team": "x"}), member("b", 2, labels={"team": "x", "site": "s"}), settings=settings
    )
    agreed.settle()
    assert agreed.workload["metadata"]["labels"] == {"team": "x", "site": "s"}
    at_odds = PodWorld(member("a", 2, labels={"team": "x"}), member("b", 2, labels={"team": "y"}), settings=settings)
    at_odds.settle()
    assert at_odds.workloads == {}
    assert at_odds.refusals[-1] == "metadata.labels[team]: the pods of a group must agree, found 'y' on b"


@pytest.mark.parametrize("index", ["2", "-1", "x"])
def test_an_index_that_is_none_of_the_groups_is_refused(index: str) -> None:
    world = PodWorld(*(member(name, 2, labels={POD_INDEX: index}) for name in "ab"))
    world.settle()
    assert world.workloads == {}
    assert world.refusals[-1].startswith(f"metadata.labels[{POD_INDEX}]: expected ")


def test_a_group_whose_workload_a_user_deletes_is_deleted_with_all_its_pods() -> None:
    world = running_group(2)
    world.end("p0", "Succeeded")
    world.settle()
    world.delete_workload("g")
    world.settle()
    assert (world.pods, world.workloads) == ({}, {})


def test_a_workload_that_has_none_of_the_pods_roles_makes_room_for_one_that_has() -> None:
    world = PodWorld(member("a", 1))
    world.settle()
    world.admit()
    world.workload["spec"]["podSets"][0]["name"] = "other"
    world.settle()
    (one,) = world.workload["spec"]["podSets"]
    assert one["name"] != "other"
    assert list(world.pods) == ["a"]
