import copy
from typing import Any

import msgspec
import pytest

from controller.foreign.jobs.kind import ForeignJobKind
from controller.foreign.jobs.lifecycle import MOST_AT_ONCE
from controller.foreign.jobs.placement import TaskPlacement, scaled, written
from controller.jobs.framework.names import WORKLOAD
from controller.jobs.framework.podsets import PodSetInfo
from controller.jobs.framework.raw import JobError
from controller.objects.meta import to_json
from inventory.api.names import PLACEMENT
from tests.support.controller.volcanoworld import VolcanoWorld, plan_of, policy, task, vcjob

TWO = (task("master", 1), task("worker", 2))


def world(*policies: dict[str, Any], **spec: Any) -> VolcanoWorld:
    return VolcanoWorld(*TWO, policies=list(policies), **spec)


def test_a_job_has_no_pods_before_it_is_admitted() -> None:
    waiting = world().settle()
    assert (waiting.phase, waiting.pods) == ("Pending", {})


def taken_over(*policies: dict[str, Any]) -> VolcanoWorld:
    """A job that runs as Volcano's controller started it: its pods are not ours, and it has no placement."""
    job = world(*policies).run()
    for name, pod in job.pods.items():
        job.pods[name] = msgspec.structs.replace(pod, is_ours=False)
    job.placed = None
    return job.settle()


def test_pods_that_volcano_started_run_to_their_end() -> None:
    job = taken_over(policy("RestartTask", "PodFailed"))
    assert (job.phase, job.alive) == ("Running", ["train-master-0", "train-worker-0", "train-worker-1"])
    job.fail("train-worker-0").settle()
    assert (job.phase, job.status.failed, job.status.running) == ("Running", 1, 2)
    assert job.status.retry_count == 0, "a part of it cannot be made anew"
    for name in job.alive:
        job.becomes(name, "Succeeded")
    assert job.settle().phase == "Failed", "a pod of three has failed"


def test_a_job_that_volcano_started_comes_up_without_a_placement() -> None:
    job = taken_over()
    job.becomes("train-master-0", "Pending").becomes("train-worker-0", "Pending").settle()
    assert job.phase == "Pending"
    job.becomes("train-master-0", "Running").becomes("train-worker-0", "Running").settle()
    assert job.phase == "Running"


def test_the_last_pod_that_volcano_started_leaves_a_job_that_queues() -> None:
    job = taken_over()
    for name in job.alive:
        job.vanish(name)
    assert job.settle().phase == "Pending"
    assert len(job.start().alive) == 3


@pytest.mark.parametrize(("action", "phase"), [("CompleteJob", "Completed"), ("RestartJob", "Pending")])
def test_what_takes_all_of_a_job_takes_pods_that_volcano_started(action: str, phase: str) -> None:
    job = taken_over(policy(action, "PodFailed")).fail("train-worker-0").finish()
    assert (job.phase, job.alive) == (phase, [])


def test_pods_are_counted_in_the_status_before_they_are_made() -> None:
    new = world().settle()
    new.start()
    assert new.status.pending == 3
    again = world().settle()
    again.placed = new.placed
    again.step(only=1)
    assert (again.status.pending, again.pods) == (3, {})


def test_a_job_runs_with_its_minimum_and_completes_with_its_last_pod() -> None:
    job = world().run()
    assert (job.phase, job.status.running, job.status.min_available) == ("Running", 3, 3)
    assert job.status.task_status_count["worker"].phase == {"Running": 2}
    job.now_s += 90
    for name in list(job.pods):
        job.becomes(name, "Succeeded")
    job.settle()
    assert job.phases == ["Pending", "Running", "Completed"]
    assert job.status.running_duration == "1m30s"


@pytest.mark.parametrize(
    ("spec", "succeeded", "phase"),
    [
        ({}, ("master-0", "worker-0"), "Failed"),
        ({"minAvailable": 2}, ("master-0", "worker-0"), "Completed"),
        ({"minAvailable": 2}, ("master-0",), "Failed"),
        ({"minSuccess": 1}, ("master-0",), "Completed"),
        ({"minSuccess": 3, "minAvailable": 1}, ("master-0", "worker-0"), "Failed"),
    ],
)
def test_what_a_job_ends_as_follows_from_its_minimums(
    spec: dict[str, Any], succeeded: tuple[str, ...], phase: str
) -> None:
    job = world(**spec).run()
    for name in list(job.pods):
        if name.removeprefix("train-") in succeeded:
            job.becomes(name, "Succeeded")
        else:
            job.fail(name)
    assert job.settle().phase == phase


def test_a_tasks_minimum_counts_where_the_jobs_is_at_least_their_sum() -> None:
    tasks = (task("master", 2, minAvailable=1), task("worker", 2, minAvailable=2))
    for minimum, phase in ((3, "Failed"), (2, "Completed")):
        job = VolcanoWorld(*tasks, minAvailable=minimum).run()
        for name in ("train-master-0", "train-master-1", "train-worker-0"):
            job.becomes(name, "Succeeded")
        assert job.fail("train-worker-1").settle().phase == phase


def test_a_job_is_pending_again_when_too_many_pods_wait() -> None:
    job = world(minAvailable=2).run().join("train-worker-1")
    job.becomes("train-worker-0", "Pending").settle()
    assert job.phase == "Running"
    job.becomes("train-worker-1", "Pending").settle()
    assert job.phase == "Pending"


@pytest.mark.parametrize(
    ("action", "through", "phase"),
    [
        ("AbortJob", "Aborting", "Aborted"),
        ("TerminateJob", "Terminating", "Terminated"),
        ("CompleteJob", "Completing", "Completed"),
    ],
)
def test_an_ending_deletes_what_has_not_finished_and_waits_for_it(action: str, through: str, phase: str) -> None:
    job = world(policy(action, "PodFailed")).run()
    job.becomes("train-master-0", "Succeeded").fail("train-worker-0").settle()
    assert job.phase == through
    assert job.status.terminating == 1
    assert job.finish().phase == phase
    assert sorted(job.pods) == ["train-master-0", "train-worker-0"]
    assert (job.status.succeeded, job.status.failed, job.status.retry_count) == (1, 1, 0)


def test_restartjob_begins_anew_with_all_pods_of_a_new_version() -> None:
    job = world(policy("RestartJob", "PodFailed")).run()
    job.becomes("train-master-0", "Succeeded").fail("train-worker-1").settle()
    assert (job.phase, job.status.version, job.status.retry_count) == ("Restarting", 1, 1)
    job.finish()
    assert job.phase == "Pending"
    assert [pod.version for pod in job.pods.values()] == [1, 1, 1]
    assert job.phases == ["Pending", "Running", "Restarting", "Pending"]


def test_the_last_permitted_retry_fails_and_keeps_finished_pods_as_evidence() -> None:
    job = world(policy("RestartJob", "PodFailed"), maxRetry=2).run()
    job.fail("train-worker-1").finish()
    job.run().becomes("train-master-0", "Succeeded").fail("train-worker-1").finish()
    assert (job.phase, job.status.retry_count) == ("Failed", 2)
    assert sorted(job.pods) == ["train-master-0", "train-worker-1"]


@pytest.mark.parametrize(
    ("action", "gone"),
    [
        ("RestartPod", ["train-worker-3"]),
        ("RestartPartition", ["train-worker-2", "train-worker-3"]),
        ("RestartTask", ["train-worker-0", "train-worker-1", "train-worker-2", "train-worker-3"]),
    ],
)
def test_a_partial_restart_takes_its_pods_and_no_others(action: str, gone: list[str]) -> None:
    split = {"partitionPolicy": {"totalPartitions": 2, "partitionSize": 2}}
    job = VolcanoWorld(task("master", 1), task("worker", 4, policies=[policy(action, "PodFailed")], **split)).run()
    before = {name: pod.uid for name, pod in job.pods.items()}
    job.fail("train-worker-3").finish()
    assert sorted(name for name, pod in job.pods.items() if pod.uid != before[name]) == gone
    assert (job.status.retry_count, job.status.version, job.phase) == (1, 0, "Pending")


@pytest.mark.parametrize("action", ["RestartJob", "RestartTask", "RestartPod"])
def test_a_controller_killed_between_any_two_writes_counts_a_restart_once(action: str) -> None:
    failed = world(policy(action, "PodFailed")).run().fail("train-worker-0")
    whole = copy.deepcopy(failed).finish()
    for writes in range(1, 12):
        job = copy.deepcopy(failed)
        job.step(only=writes)
        job.finish()
        assert (job.status.retry_count, job.status.version) == (1, whole.status.version)
        assert (sorted(job.pods), job.phase) == (sorted(whole.pods), whole.phase)


def test_a_pod_that_others_delete_is_evicted_however_it_went() -> None:
    for vanish in (False, True):
        job = world(policy("RestartTask", "PodEvicted")).run()
        (job.vanish if vanish else job.delete)("train-worker-0")
        job.settle()
        assert job.status.retry_count == 1
        assert ("Restarting" in job.phases, job.status.version) == (True, 0)
        assert len(job.finish().pods) == 3


def test_an_eviction_of_the_queue_spends_no_retry_and_keeps_what_has_finished() -> None:
    job = world(policy("RestartJob", "PodEvicted", "PodFailed"), policy("CompleteJob", "TaskCompleted")).run()
    job.becomes("train-worker-0", "Succeeded").settle()
    job.placed = None
    job.settle()
    assert job.phase == "Pending"
    assert {pod.name: pod.marked for pod in job.pods.values() if pod.is_terminating} == {
        "train-master-0": 0,
        "train-worker-1": 0,
    }
    assert sorted(job.finish().pods) == ["train-worker-0"]
    assert job.status.terminating + job.status.running + job.status.pending == 0
    job.run()
    assert (job.phase, job.status.retry_count, job.status.version) == ("Running", 0, 0)
    assert len(job.pods) == 3


def test_the_first_policy_that_matches_wins_and_a_tasks_before_the_jobs() -> None:
    own = [policy("RestartTask", exitCode=3), policy("CompleteJob", "PodFailed")]
    tasks = (task("master", 1), task("worker", 2, policies=own))
    cases = {
        ("train-worker-0", 3): "Restarting",
        ("train-worker-0", 4): "Completing",
        ("train-master-0", 3): "Aborting",
    }
    for (name, code), phase in cases.items():
        job = VolcanoWorld(*tasks, policies=[policy("AbortJob", "*"), policy("TerminateJob", exitCode=3)]).run()
        assert job.fail(name, code).settle().phases[2] == phase


def test_a_delayed_action_is_dropped_where_the_pod_leaves_the_state() -> None:
    job = world(policy("AbortJob", "PodPending", timeout="1m")).start()
    assert job.decide().due_s == job.now_s + 60
    job.now_s += 59
    job.settle()
    for name in list(job.pods):
        job.becomes(name, "Running")
    job.now_s += 10
    assert job.settle().phase == "Running"
    late = world(policy("AbortJob", "PodPending", timeout="1m")).start()
    late.now_s += 60
    assert late.settle().phase == "Aborting"


def test_podpending_without_a_timeout_says_nothing() -> None:
    assert world(policy("AbortJob", "PodPending"), policy("AbortJob", "*")).start().phase == "Pending"


def test_a_completed_task_and_one_that_restarts_too_often_are_events() -> None:
    done = world(policy("CompleteJob", "TaskCompleted")).run()
    done.becomes("train-worker-0", "Succeeded").settle()
    assert done.phase == "Running"
    assert done.becomes("train-worker-1", "Succeeded").settle().phase == "Completing"
    worn = world(policy("TerminateJob", "TaskFailed")).run()
    worn.becomes("train-worker-0", "Running", restarts=2).settle()
    assert worn.phase == "Running"
    assert worn.becomes("train-worker-1", "Running", restarts=1).settle().phase == "Terminating"


def test_a_running_job_with_a_pod_that_cannot_be_scheduled_is_unknown() -> None:
    job = world(policy("RestartJob", "Unknown")).start()
    job.becomes("train-master-0", "Running").becomes("train-worker-0", "Pending", is_unschedulable=True).settle()
    assert job.status.retry_count == 0
    job.run().becomes("train-worker-0", "Pending", is_unschedulable=True).settle()
    assert job.status.retry_count == 1


def test_a_pod_above_the_minimum_that_has_no_node_for_a_moment_restarts_nothing() -> None:
    job = world(policy("RestartJob", "Unknown"), minAvailable=2).run()
    job.becomes("train-worker-1", "Pending", is_unschedulable=True).settle()
    assert (job.phase, job.status.retry_count, len(job.alive)) == ("Running", 0, 3)
    job.becomes("train-worker-0", "Pending", is_unschedulable=True).settle()
    assert job.status.retry_count == 1, "one of the minimum that has none does"


def test_tasks_wait_for_those_that_they_depend_on() -> None:
    tasks = (
        task("ps", 2, minAvailable=1),
        task("cache", 1),
        task("both", 1, dependsOn={"name": ["ps", "cache"]}),
        task("either", 1, dependsOn={"name": ["ps", "cache"], "iteration": "any"}),
    )
    job = VolcanoWorld(*tasks).start()
    assert sorted(job.pods) == ["train-cache-0", "train-ps-0", "train-ps-1"]
    job.becomes("train-ps-0", "Running", is_ready=False).settle()
    assert len(job.pods) == 3
    job.becomes("train-ps-0", "Running").settle()
    assert sorted(job.pods)[1:2] == ["train-either-0"]
    job.becomes("train-cache-0", "Succeeded").settle()
    assert len(job.pods) == 5


def test_a_command_is_read_once_and_an_aborted_job_can_be_resumed() -> None:
    job = world(policy("RestartJob", "PodFailed")).run().command("AbortJob").settle()
    assert (job.phase, job.commands) == ("Aborting", [])
    assert job.command("RestartJob").finish().phase == "Aborted"
    assert job.commands == []
    job.placed = None
    job.command("ResumeJob").finish()
    assert (job.phase, job.status.retry_count, job.pods) == ("Pending", 1, {})
    assert job.run().phase == "Running"


def test_a_command_waits_for_a_restart_under_way() -> None:
    job = world(policy("RestartJob", "PodFailed")).run().fail("train-master-0").settle().command("TerminateJob")
    assert job.settle().phase == "Restarting"
    assert len(job.commands) == 1
    assert job.finish().phase == "Terminated"


def test_a_job_whose_pods_gave_their_quota_back_queues_before_it_runs_them_again() -> None:
    job = world().run().becomes("train-worker-0", "Succeeded").settle().command("RestartJob").finish()
    assert (job.phase, job.pods) == ("Restarting", {})
    job.placed = None
    assert job.finish().phase == "Pending"


def test_the_pods_with_the_highest_index_go_first() -> None:
    job = VolcanoWorld(task("worker", 4), policies=[policy("RestartJob", "*")]).run().scale("worker", 2)
    assert job.decide().deleted == ("train-worker-3", "train-worker-2")
    job.finish()
    assert (sorted(job.pods), job.phase, job.status.retry_count) == (["train-worker-0", "train-worker-1"], "Running", 0)


W = tuple(f"train-worker-{index}" for index in range(4))


def grows(*policies: dict[str, Any], **spec: Any) -> VolcanoWorld:
    """Two of four pods run, two are above."""
    return VolcanoWorld(task("worker", 4), minAvailable=2, policies=list(policies), **spec).run()


def ended(job: VolcanoWorld) -> int:
    assert job.placed is not None
    return job.placed["worker"].ended


def test_a_job_runs_with_its_minimum_and_pods_above_it_wait() -> None:
    job = grows()
    assert {name: pod.is_above for name, pod in job.pods.items()} == dict(
        zip(W, (False, False, True, True), strict=True)
    )
    assert (job.phase, job.status.running, job.status.pending, job.status.min_available) == ("Running", 2, 2, 2)
    job.join(W[3])
    assert (job.phase, job.status.running, job.status.pending) == ("Running", 3, 1)


def test_a_job_is_completed_when_the_last_pod_above_its_minimum_is() -> None:
    """So it is with Volcano: a job whose pods wait has not ended, unless minSuccess says that it has."""
    job, enough = grows(), grows(minSuccess=2)
    for each in (job, enough):
        each.becomes(W[0], "Succeeded").becomes(W[1], "Succeeded").settle()
    assert (enough.finish().phase, sorted(enough.pods)) == ("Completed", [W[0], W[1]])
    assert (job.phase, job.status.succeeded, job.status.pending) == ("Running", 2, 2)
    job.join(W[2]).becomes(W[2], "Succeeded").settle().join(W[3])
    assert job.phase == "Running"
    assert job.becomes(W[3], "Succeeded").settle().phase == "Completed"


def test_a_pod_that_the_queue_takes_back_is_no_event_and_comes_again() -> None:
    job = grows(policy("RestartJob", "*")).join(W[2], W[3]).reclaim(W[3])
    assert (job.phase, job.status.retry_count, job.alive) == ("Running", 0, list(W))
    job.vanish(W[3])
    job.vanish(W[2])
    assert job.settle().alive == list(W)
    assert (job.status.retry_count, job.status.running, job.status.pending) == (0, 2, 2)
    assert job.pods[W[3]].is_above


def test_a_pod_of_the_minimum_that_is_lost_is_an_event_however_few_are_above() -> None:
    job = grows(policy("RestartPod", "PodEvicted"))
    job.vanish(W[1])
    assert job.settle().status.retry_count == 1
    other = grows(policy("RestartPod", "PodEvicted"))
    other.delete(W[3])
    assert other.settle().status.retry_count == 1, "a user deletes one above it"


def test_a_pod_in_the_queue_is_not_pending_for_a_policy() -> None:
    job = grows(policy("AbortJob", "PodPending", timeout="10s"))
    job.now_s += 60
    assert job.settle().phase == "Running"
    job.becomes(W[2], "Pending", created_s=job.now_s).settle()
    assert job.phase == "Running"
    job.now_s += 10
    assert job.settle().phase == "Aborting", "ten seconds after it got its node"


def test_quota_of_what_started_together_is_given_back_as_it_ends() -> None:
    once = grows().join(W[3]).becomes(W[3], "Succeeded").settle()
    assert ended(once) == 0, "that one has a Workload of its own"
    once.becomes(W[0], "Succeeded").settle()
    assert ended(once) == 1
    once.fail(W[1]).settle()
    assert ended(once) == 2, "none of them runs any more, and those above may wait for just that quota"

    again = grows(policy("RestartJob", "PodEvicted")).becomes(W[0], "Succeeded").settle()
    assert ended(again) == 0, "a policy may run it again"
    again.becomes(W[1], "Succeeded").settle()
    assert (ended(again), again.phase) == (2, "Running")


def test_a_job_is_ready_by_the_pods_of_its_minimum_alone() -> None:
    def ready(job: VolcanoWorld) -> bool:
        assert job.placed is not None
        annotations = {**job.job["metadata"].get("annotations", {}), PLACEMENT: written(job.placed)}
        metadata = {**job.job["metadata"], "annotations": annotations}
        return ForeignJobKind().pods_ready({**job.job, "metadata": metadata, "status": to_json(job.status)})

    job = grows()
    assert ready(job)
    job.join(W[2]).becomes(W[1], "Pending").settle()
    assert (job.status.running, ready(job)) == (2, False), "one of the two is above the minimum"
    job.becomes(W[1], "Running").settle()
    assert ready(job)
    job.becomes(W[3], "Pending").settle()
    assert ready(job), "above the minimum nobody waits for one"
    job.becomes(W[0], "Succeeded").settle()
    assert ready(job)
    job.fail(W[1]).settle()
    assert not ready(job)


def test_quota_is_kept_while_a_policy_is_to_answer() -> None:
    job = grows(policy("RestartPod", "PodFailed", timeout="30s")).becomes(W[0], "Succeeded").fail(W[1]).settle()
    assert ended(job) == 0
    job.now_s += 30
    assert job.finish().status.retry_count == 1
    assert (ended(job), job.alive, job.pods[W[1]].is_above) == (0, [W[1], W[2], W[3]], False)


def test_pods_whose_quota_is_another_jobs_run_again_from_the_queue() -> None:
    job = grows(policy("RestartJob", "PodFailed")).becomes(W[0], "Succeeded").becomes(W[1], "Succeeded").settle()
    assert ended(job) == 2
    job.join(W[2]).fail(W[2]).finish()
    assert (job.phase, job.pods, job.status.retry_count) == ("Restarting", {}, 1)
    job.placed = None
    assert job.finish().phase == "Pending"


def test_a_finished_pod_of_the_minimum_that_is_deleted_asks_for_its_quota_again() -> None:
    job = grows().becomes(W[0], "Succeeded").settle()
    job.vanish(W[0])
    job.step()
    assert (ended(job), W[0] in job.pods) == (0, False), "before a pod is made in its place"


def test_an_evicted_job_takes_what_is_above_its_minimum_along() -> None:
    job = grows(policy("RestartJob", "*")).join(W[2])
    job.placed = None
    assert (job.finish().pods, job.phase, job.status.retry_count) == ({}, "Pending", 0)
    assert job.run().alive == list(W)


def test_pods_that_were_scaled_away_come_back_above_the_minimum() -> None:
    job = grows().scale("worker", 1)
    job.job["spec"]["minAvailable"] = 1
    assert job.placed is not None
    job.placed = scaled(job.placed, {"worker": 1}, (0, job.now_s))
    assert job.finish().alive == [W[0]]
    job.scale("worker", 3).settle()
    assert {name: pod.is_above for name, pod in job.pods.items()} == {W[0]: False, W[1]: True, W[2]: True}


def test_many_pods_are_made_in_turns_and_the_minimum_first() -> None:
    job = VolcanoWorld(task("a", 700), task("b", 2), minAvailable=3).start(a=1, b=2)
    assert len(job.pods) == 702
    assert list(job.pods)[:3] == ["train-a-0", "train-b-0", "train-b-1"]
    other = VolcanoWorld(task("a", 502), minAvailable=1)
    other.placed = {"a": TaskPlacement(info=PodSetInfo(name="a", count=1, own_annotations={WORKLOAD: "w"}))}
    assert len(other.decide().created) == MOST_AT_ONCE == 500
    other.step()
    assert [new.index for new in other.decide().created] == [500, 501]


@pytest.mark.parametrize("replicas", [2**31 - 1, 100_001, -1])
def test_a_task_of_more_pods_than_there_can_be_is_refused(replicas: int) -> None:
    with pytest.raises(JobError, match=rf"spec.tasks\[1\].replicas: expected 0 to 100000, found {replicas}"):
        plan_of(vcjob(task("a", 100_000), task("b", replicas), minAvailable=1))


def test_no_pod_is_made_above_a_minimum_that_is_not_named() -> None:
    job = VolcanoWorld(task("worker", 4), minAvailable=2)
    job.placed = {"worker": TaskPlacement(info=PodSetInfo(name="worker", count=2))}
    assert sorted(job.settle().pods) == [W[0], W[1]]


def test_a_finished_job_is_deleted_when_its_time_is_over_and_an_aborted_one_is_not() -> None:
    job = world(ttlSecondsAfterFinished=30).run()
    for name in list(job.pods):
        job.becomes(name, "Succeeded")
    assert job.settle().decide().due_s == job.now_s + 30
    assert not job.expired
    job.now_s += 30
    job.step()
    assert job.expired
    aborted = world(ttlSecondsAfterFinished=30).run().command("AbortJob").finish()
    aborted.now_s += 100
    assert aborted.settle().phase == "Aborted"
    assert not aborted.expired


def scaled_down(*policies: dict[str, Any]) -> VolcanoWorld:
    """A running job of version 0 that asks for one worker less since now."""
    job = world(*policies).run().scale("worker", 1)
    assert job.placed is not None
    job.placed = scaled(job.placed, {"master": 1, "worker": 1}, (job.status.version, job.now_s))
    return job.settle()


def test_a_scale_down_fires_once() -> None:
    job = scaled_down(policy("RestartJob", "JobUpdated"))
    assert (job.phase, job.status.state.reason, job.status.retry_count) == ("Restarting", "JobUpdated", 1)
    job.finish().run()
    assert (job.phase, job.status.retry_count, len(job.pods)) == ("Running", 1, 2)


def test_a_scale_down_that_no_policy_answers_to_hides_no_other_event() -> None:
    for policies in ((), (policy("ResumeJob", "JobUpdated"),)):
        job = scaled_down(*policies, policy("AbortJob", "PodFailed"))
        assert (job.phase, len(job.alive)) == ("Running", 3)
        job.fail("train-worker-0").settle()
        assert job.phase == "Aborting"


def test_a_delay_counts_from_the_scale_down() -> None:
    job = scaled_down(policy("AbortJob", "JobUpdated", timeout="10s"))
    assert (job.phase, job.decide().due_s) == ("Running", job.now_s + 10)
    job.now_s += 10
    assert job.settle().phase == "Aborting"


@pytest.mark.parametrize(("given", "counts"), [(None, 3), (0, 3), (1, 1), (5, 5)])
def test_no_retries_and_none_written_mean_volcanos_default(given: int | None, counts: int) -> None:
    plan = plan_of(vcjob({**task("worker", 1), "maxRetry": given}, maxRetry=given))
    assert (plan.max_retry, plan.tasks[0].max_retry) == (counts, counts)
