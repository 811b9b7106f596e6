"""PodGroups of Kubernetes' own for the starts of jobs: which jobs get one, what it says, and what becomes of it."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.jobs.framework.actions import MakeGroup, StartJob
from controller.jobs.framework.names import ELASTIC_JOB, MIN_PARALLELISM
from controller.jobs.kinds.batchjob import BatchJob
from controller.jobs.kinds.jobset import JobSet
from controller.jobs.kinds.kubeflow import KUBEFLOW_JOBS
from controller.jobs.kinds.mpijob import MPIJob
from controller.objects.decode import decode
from controller.objects.nativegroups import NativeGroup, group_problems
from inventory.api.names import POD_GROUP, START_OF
from tests.support.controller.groupworld import GroupWorld
from tests.support.controller.jobmodel import job


def waiting(pods: int = 4, *, room: int = 100, **spec: Any) -> GroupWorld:
    world = GroupWorld(job(parallelism=pods, **{"completions": pods, **spec}), room=room)
    world.settle()
    return world


def started(pods: int = 4, *, room: int = 100, count: int | None = None, **spec: Any) -> GroupWorld:
    world = waiting(pods, room=room, **spec)
    world.admit(world.only, count=count)
    world.settle()
    return world


def note(world: GroupWorld) -> str:
    return str(world.template()["metadata"].get("annotations", {}).get(POD_GROUP, ""))


def test_a_gang_starts_with_a_group_that_was_made_before_it_and_names_all_its_pods() -> None:
    world = waiting()
    world.admit(world.only)
    actions = world.step()
    kinds = [type(action) for action in actions]
    assert kinds.index(MakeGroup) < kinds.index(StartJob)
    group = world.group
    workload = world.workloads[world.only]
    assert note(world) == group["metadata"]["name"] != ""
    assert group["metadata"]["labels"] == {START_OF: workload["metadata"]["uid"]}
    (owner,) = group["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Workload", world.only, workload["metadata"]["uid"])
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 4}}, "disruptionMode": {"all": {}}}
    assert list(group_problems(decode(group, NativeGroup))) == []


def test_the_group_has_the_class_of_the_pods_and_not_that_of_the_queue() -> None:
    body = job(parallelism=2, completions=2)
    body["spec"]["template"]["spec"]["priorityClassName"] = "gold"
    body["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
    world = GroupWorld(body)
    world.settle()
    world.admit(world.only)
    world.settle()
    assert world.group["spec"]["priorityClassName"] == "gold"
    assert "priority" not in world.group["spec"], "the API server computes it"


def test_a_partial_admission_asks_for_the_admitted_pods() -> None:
    world = GroupWorld(job(parallelism=4, completions=4, completionMode="Indexed"))
    world.job["metadata"]["annotations"] = {MIN_PARALLELISM: "2"}  # type: ignore[index]
    world.settle()
    world.admit(world.only, count=3)
    world.settle()
    assert world.group["spec"]["schedulingPolicy"]["gang"]["minCount"] == 3
    assert world.running() == 3


@pytest.mark.parametrize(
    ("change", "spec"),
    [
        ({}, {"parallelism": 1, "completions": 1}),
        ({"annotations": {ELASTIC_JOB: "true"}}, {}),
        ({"annotations": {"scheduling.k8s.io/group-template-name": "workers"}}, {}),
        ({}, {"scheduling": {"schedulingPolicy": {"gang": {"minCount": 4}}}}),
    ],
    ids=["of one pod", "that is elastic", "of a parent with groups", "with a policy of its own"],
)
def test_a_job_gets_no_group(change: dict[str, Any], spec: dict[str, Any]) -> None:
    body = job(**{"parallelism": 4, "completions": 4, **spec})
    body["metadata"] |= change
    world = GroupWorld(body)
    world.settle()
    world.admit(world.only)
    world.settle()
    assert (world.groups, note(world)) == ({}, "")


@pytest.mark.parametrize(
    "pod_spec",
    [
        {"schedulingGroup": {"podGroupName": "mine"}},
        {"schedulerName": "volcano"},
        {"evictionResponders": [{"name": "example.com/r"}]},
    ],
    ids=["a group of their own", "another scheduler", "eviction responders"],
)
def test_pods_with_something_of_their_own_get_no_group(pod_spec: dict[str, Any]) -> None:
    body = job(parallelism=4, completions=4)
    body["spec"]["template"]["spec"] |= pod_spec
    world = GroupWorld(body)
    world.settle()
    world.admit(world.only)
    world.settle()
    assert (world.groups, note(world)) == ({}, "")


def test_without_the_api_a_job_starts_as_it_always_did_and_with_it_the_next_start_has_a_group() -> None:
    world = waiting()
    world.served = False
    world.admit(world.only)
    world.settle()
    assert (world.groups, note(world), world.running()) == ({}, "", 4)
    world.served = True
    world.settle()
    assert world.groups == {}, "what runs is left alone"
    world.evict(world.only)
    world.settle()
    world.admit(world.only)
    world.settle()
    assert note(world) in world.groups


def test_an_evicted_job_has_no_group_and_starts_again_with_another() -> None:
    world = started()
    first = note(world)
    world.evict(world.only)
    world.settle()
    assert (world.groups, note(world)) == ({}, "")
    world.admit(world.only)
    world.settle()
    assert note(world) not in ("", first)
    assert world.running() == 4, "the old verdict is not taken for the new start"


def test_a_leader_that_died_between_group_and_start_leaves_a_group_that_the_next_one_takes() -> None:
    world = waiting()
    world.admit(world.only)
    (at,) = (index for index, action in enumerate(world.next_actions()) if isinstance(action, MakeGroup))
    world.step(crash_after=at + 1)
    assert world.suspended()
    world.settle()
    assert len(world.made) == 1
    assert world.running() == 4


def test_a_gang_without_room_is_told_and_told_again_when_it_has_some() -> None:
    world = started(room=3)
    assert (world.running(), world.told()) == (0, "False/Unschedulable")
    (said,) = (one for one in world.workloads[world.only]["status"]["conditions"] if "Gang" in one["type"])
    assert said["message"] == "The scheduler starts none of its pods: 0/2 nodes are available"
    world.room = 4
    world.settle()
    assert (world.running(), world.told()) == (4, "True/Scheduled")


def test_a_gang_that_starts_at_once_costs_no_word() -> None:
    assert started().told() == ""


def test_the_verdict_of_an_earlier_start_is_not_that_of_the_next() -> None:
    world = started(room=3)
    world.evict(world.only)
    world.settle()
    world.room = 4
    world.seconds += 60
    world.admit(world.only)
    world.settle()
    assert world.running() == 4
    assert world.told() == "False/Unschedulable", "of the first start: nothing is said of the second"
    assert world.next_actions() == ()


def test_a_gang_that_kube_scheduler_has_preempted_is_told_so() -> None:
    world = started()
    world.say(note(world), "True", "PreemptionByScheduler", type_="DisruptionTarget")
    world.settle()
    assert world.told() == "False/PreemptedByScheduler"


def test_a_reason_that_kube_scheduler_does_not_have_is_none_of_ours() -> None:
    world = waiting(room=0)
    world.admit(world.only)
    world.step()
    world.say(note(world), "False", "Not A Reason", "line\nbreak")
    world.settle()
    assert world.told() == "False/Unschedulable"


def test_a_pod_that_is_made_anew_waits_for_no_sister_that_has_ended() -> None:
    world = started()
    world.pod_ends()
    world.pod_ends(succeeds=False)
    world.settle()
    assert (world.running(), world.waiting()) == (3, 0)


def test_a_gang_whose_pods_are_all_made_anew_starts_whole_again() -> None:
    world = started()
    world.room = 2
    for _ in range(4):
        world.pod_ends(succeeds=False)
    world.settle()
    assert (world.running(), world.waiting()) == (0, 4), "no half of it runs"
    world.room = 4
    world.settle()
    assert world.running() == 4


def test_the_last_pods_of_a_job_with_more_completions_start_though_they_are_few() -> None:
    world = started(4, completions=6)
    for _ in range(3):
        world.pod_ends()
    world.settle()
    assert (world.running(), world.waiting()) == (3, 0)


def test_a_job_whose_pods_all_run_and_end_costs_its_group_alone() -> None:
    world = started()
    for _ in range(4):
        world.pod_ends()
        world.settle()
    assert world.is_finished()
    assert len(world.made) == 1
    assert next(iter(world.groups.values()))["spec"]["schedulingPolicy"]["gang"]["minCount"] == 4


def test_kinds_whose_pods_come_at_once_say_so() -> None:
    assert BatchJob().makes_all_at_once({})
    assert all(kind.makes_all_at_once({}) for kind in KUBEFLOW_JOBS)
    assert not MPIJob().makes_all_at_once({}), "its launcher may wait for its workers"
    assert not JobSet().makes_all_at_once({}), "it does not tell how many pods of a Job have ended"


class Gangs(RuleBasedStateMachine):
    """Whatever happens, with the controller cut off anywhere: a gang starts whole or not at all, and no pod waits for
    ever.
    """

    @initialize(parallelism=st.integers(1, 4), more=st.integers(0, 3), room=st.integers(0, 5), served=st.booleans())
    def begin(self, *, parallelism: int, more: int, room: int, served: bool) -> None:
        self.world = GroupWorld(job(parallelism=parallelism, completions=parallelism + more), room=room)
        self.world.served = served
        self.begun: set[str] = set()

    @rule(cut=st.integers(1, 3))
    def reconcile_and_crash(self, cut: int) -> None:
        self.world.step(crash_after=cut)

    @rule()
    def reconcile(self) -> None:
        self.world.step()

    @rule()
    def job_controller(self) -> None:
        self.world.job_controller()

    @rule()
    def scheduler(self) -> None:
        self.world.scheduler()

    @rule(seconds=st.integers(0, 3))
    def admit(self, seconds: int) -> None:
        world = self.world
        world.seconds += seconds
        for name in world.live():
            released = "admission" not in world.workloads[name].get("status", {})
            if released:
                world.admit(name)

    @rule()
    def evict(self) -> None:
        for name in self.world.live():
            if self.world.has(name, "Admitted") and not self.world.has(name, "Evicted"):
                self.world.evict(name)

    @rule(succeeds=st.booleans())
    def a_pod_ends(self, *, succeeds: bool) -> None:
        self.world.pod_ends(succeeds=succeeds)

    @rule(room=st.integers(0, 5))
    def nodes_come_and_go(self, room: int) -> None:
        self.world.room = room

    @precondition(lambda self: self.world.served)
    @rule()
    def everything_comes_to_rest(self) -> None:
        """No pod waits once there is room for all, and the group of the present start is the only one."""
        world = self.world
        world.room = 100
        world.settle()
        assert world.waiting() == 0
        named = {note(world)} - {""}
        assert {name for name, each in world.groups.items() if "deletionTimestamp" not in each["metadata"]} <= named

    @invariant()
    def a_gang_begins_whole(self) -> None:
        world = self.world
        for name, group in world.groups.items():
            if any(pod["group"] == name and pod["bound"] for pod in world.pods) and name not in self.begun:
                bound = sum(pod["group"] == name and pod["bound"] for pod in world.pods)
                assert bound >= group["spec"]["schedulingPolicy"]["gang"]["minCount"]
                self.begun.add(name)


TestGangs = Gangs.TestCase
TestGangs.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
