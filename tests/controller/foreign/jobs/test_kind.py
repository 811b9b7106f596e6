from typing import Any

import msgspec
import pytest

from controller.foreign.jobs.gang import minimums
from controller.foreign.jobs.kind import ForeignJobKind, queued
from controller.foreign.jobs.placement import placement, scaled, written
from controller.jobs.framework.podsets import PodSetInfo, SeenWorkload
from controller.jobs.framework.raw import JobError
from controller.jobs.framework.tiers import Tier
from controller.objects.meta import to_json
from controller.scheduler.model.gangshape import gang_shape
from inventory.api.names import PLACEMENT
from tests.support.controller.volcanoworld import TEMPLATE, VolcanoWorld, plan_of, policy, task, vcjob

KIND = ForeignJobKind()
TWO = (task("master", 1), task("worker", 4))


def infos(**counts: int) -> tuple[PodSetInfo, ...]:
    return tuple(PodSetInfo(name=name, count=count, node_selector={"gpu": "h100"}) for name, count in counts.items())


def workload(**reclaimable: int) -> SeenWorkload:
    sets = [{"name": "master", "count": 1, "template": {}}, {"name": "worker", "count": 4, "template": {}}]
    given = [{"name": name, "count": count} for name, count in reclaimable.items()]
    body = {"metadata": {"name": "w"}, "spec": {"podSets": sets}, "status": {"reclaimablePods": given}}
    return SeenWorkload.of({"kind": "Workload", **body})


def started(job: dict[str, Any], **counts: int) -> dict[str, Any]:
    (patch,) = KIND.start(job, workload(), infos(**counts))
    return {**job, "metadata": {**job["metadata"], "annotations": patch.body["metadata"]["annotations"]}}


def test_a_task_is_a_pod_set_and_pods_are_ranked_by_their_index() -> None:
    first, second = KIND.pod_sets(vcjob(*TWO))
    assert (first.name, first.count, first.min_count) == ("master", 1, None)
    assert (second.name, second.count, second.min_count) == ("worker", 4, None)
    assert second.topology_request == {"podIndexLabel": "volcano.sh/task-index"}


def counts(*tasks: dict[str, Any], **spec: Any) -> list[int]:
    return [each.count for each in KIND.pod_sets(vcjob(*tasks, **spec))]


def test_a_workload_is_of_the_pods_that_start_together() -> None:
    for least, expected in {6: [1, 4], 5: [1, 4], 4: [1, 3], 2: [1, 1], 1: [1, 0]}.items():
        assert counts(*TWO, minAvailable=least) == expected
    own = (task("master", 1), task("worker", 4, minAvailable=2), task("one", 1))
    assert counts(*own) == [1, 2, 1], "minimums of tasks that add up to the job's"
    assert counts(*own, minAvailable=5) == [1, 3, 1], "what is beyond them goes to the first task that has more"
    assert counts(*own, minAvailable=3) == [1, 2, 0], "minimums beyond the job's do not count"
    assert counts(task("a", 2, minAvailable=0), task("b", 1, minAvailable=0)) == [1, 0], "one pod at least"
    assert all(each.min_count is None for each in KIND.pod_sets(vcjob(*TWO, minAvailable=2)))


def test_tasks_that_others_wait_for_are_in_the_minimum_first() -> None:
    late = task("worker", 4, dependsOn={"name": ["master"]})
    assert counts(late, task("master", 1), minAvailable=2) == [1, 1]
    assert counts(late, task("master", 1), minAvailable=1) == [0, 1]
    circle = (task("a", 2, dependsOn={"name": ["b"]}), task("b", 2, dependsOn={"name": ["a"]}))
    assert counts(*circle, task("c", 2), minAvailable=3) == [1, 0, 2]


def test_a_job_of_more_tasks_than_a_workload_has_pod_sets_is_refused_at_once() -> None:
    circle = [task(f"t{at}", 1, dependsOn={"name": [f"t{(at + 1) % 3000}"]}) for at in range(3000)]
    with pytest.raises(JobError, match=r"spec.tasks: expected 18 at most, found 3000"):
        KIND.pod_sets(vcjob(*circle, minAvailable=1))
    found = minimums(plan_of(vcjob(*circle, minAvailable=1)))
    assert (sum(found.values()), found["t0"]) == (1, 1), "whoever asks all the same has an answer soon"


def test_replicas_are_bounded_before_plugins_list_them() -> None:
    """Lists of so many names would take all memory, and the controller's time until then."""
    huge = vcjob(task("w", 2**31 - 1), plugins={"tensorflow": []})
    with pytest.raises(JobError, match=r"spec.tasks\[0\].replicas: expected 0 to 100000, found 2147483647"):
        KIND.pod_sets(huge)


def test_a_task_in_slices_and_a_job_of_slices_start_with_all_pods() -> None:
    annotated = {**TEMPLATE, "metadata": {"annotations": {
        "kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "2",
        "kueue.x-k8s.io/podset-required-topology": "block",
    }}}  # fmt: skip
    assert counts(task("a", 4, template=annotated), task("b", 2), minAvailable=1) == [4, 0]
    sliced = vcjob(*TWO, minAvailable=2)
    sliced["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    assert [each.count for each in KIND.pod_sets(sliced)] == [1, 4]


def test_a_start_is_an_annotation_and_a_stop_takes_it_away() -> None:
    job = vcjob(*TWO)
    runs = started(job, master=1, worker=4)
    assert runs["spec"] == job["spec"]
    assert not KIND.is_suspended(runs)
    assert KIND.is_suspended(job)
    assert KIND.stop(job, None) == ()
    assert KIND.stop(runs, None)[0].body["metadata"] == {
        "uid": "u1",
        "resourceVersion": "1",
        "annotations": {PLACEMENT: None},
    }


def test_a_job_is_stopped_when_its_status_counts_no_pod() -> None:
    job = vcjob(*TWO)
    assert KIND.is_stopped(job)
    assert not KIND.is_stopped({**job, "status": {"pending": 2}})
    assert not KIND.is_stopped({**job, "status": {"terminating": 1}})
    assert KIND.is_stopped({**job, "status": {"succeeded": 1}})
    assert KIND.start({**job, "status": {"terminating": 1}}, workload(), infos(master=1, worker=4)) == ()


def test_a_job_counts_what_was_admitted_until_more_of_its_pods_have_to_run_together() -> None:
    runs = started(vcjob(*TWO, minAvailable=3), master=1, worker=2)
    assert KIND.counts(runs) == {"master": 1, "worker": 2}

    def now(*tasks: dict[str, Any], least: int) -> dict[str, Any]:
        return {**runs, "spec": {"tasks": list(tasks), "minAvailable": least}}

    for grown in (now(TWO[0], task("worker", 9), least=3), now(*TWO, least=2)):
        assert KIND.counts(grown) == {"master": 1, "worker": 2}, "the others are above the minimum"
        assert not KIND.needs_again(grown, workload())
    for asks, expected in ((now(*TWO, least=4), 3), (now(TWO[0], task("worker", 4, minAvailable=3), least=4), 3)):
        assert KIND.counts(asks) == {"master": 1, "worker": expected}
        assert KIND.needs_again(asks, workload())


def test_more_replicas_without_a_minimum_in_the_spec_start_together() -> None:
    runs = started(vcjob(*TWO), master=1, worker=4)
    grown = {**runs, "spec": {"tasks": [TWO[0], task("worker", 5)]}}
    assert KIND.counts(grown) == {"master": 1, "worker": 5}
    assert KIND.needs_again(grown, workload())
    above = {**runs, "spec": {**grown["spec"], "minAvailable": 5}}
    assert KIND.counts(above) == {"master": 1, "worker": 4}
    assert not KIND.needs_again(above, workload())


def test_pods_given_up_by_scaling_down_are_reclaimable_and_asked_for_anew() -> None:
    world = VolcanoWorld(*TWO).run()
    assert world.placed is not None
    kept = scaled(world.placed, {"master": 1, "worker": 3}, (2, 9.0))
    assert (kept["worker"].pods, kept["worker"].changed, kept["master"].changed) == (3, (2, 9.0), None)
    assert scaled(kept, {"master": 1, "worker": 3}, (3, 9.0)) is kept
    assert scaled(kept, {"master": 1, "worker": 4}, (3, 9.0)) is kept


def test_pods_that_have_succeeded_are_reclaimable_where_nothing_runs_them_again() -> None:
    status = {"taskStatusCount": {"worker": {"phase": {"Succeeded": 3, "Running": 1}}}}
    ends = {**vcjob(*TWO, policies=[policy("CompleteJob", "TaskCompleted")]), "status": status}
    again = {**vcjob(*TWO, policies=[policy("RestartTask", "PodEvicted")]), "status": status}
    assert KIND.reclaimable(ends, workload()) == {"worker": 3}
    assert KIND.reclaimable(again, workload()) == {}
    assert not KIND.needs_again(ends, workload(worker=3))
    assert KIND.needs_again(ends, workload(worker=4))


def test_it_is_finished_when_its_last_pod_is_gone() -> None:
    for phase, reason in (("Completed", "Succeeded"), ("Failed", "Failed"), ("Terminated", "Failed")):
        job = {**vcjob(*TWO), "status": {"state": {"phase": phase, "message": "why"}}}
        outcome = KIND.finished(job)
        assert outcome is not None
        assert (outcome.reason, outcome.message) == (reason, "why")
        job["status"]["terminating"] = 1
        assert KIND.finished(job) is None


def test_pods_above_the_minimum_do_not_pass_for_those_of_the_workload() -> None:
    """A job gives back what its placement says to have ended, and not what its status counts."""
    status = {"taskStatusCount": {"master": {"phase": {"Succeeded": 1}}, "worker": {"phase": {"Succeeded": 2}}}}
    job = {**started(vcjob(*TWO, minAvailable=3), master=1, worker=2), "status": status}
    assert KIND.reclaimed(job) == {"master": 1, "worker": 0}
    for ended, expected in ((1, 1), (2, 2)):
        placed = placement(job)
        assert placed is not None
        placed["worker"] = msgspec.structs.replace(placed["worker"], ended=ended)
        job["metadata"]["annotations"] = {PLACEMENT: written(placed)}
        assert KIND.reclaimed(job) == {"master": 1, "worker": expected}
    restarts = {**job, "spec": {**job["spec"], "policies": [policy("RestartJob", "PodFailed")]}}
    assert KIND.reclaimed(restarts) == {"master": 0, "worker": 2}
    restarts["status"] = {"state": {"phase": "Restarting"}}
    assert KIND.is_on_hold(restarts), "quota of pods that it runs again is another's"


def test_pods_that_join_go_where_the_network_topology_wants_all_pods() -> None:
    kind = ForeignJobKind(TIERS)
    hard = {"mode": "hard", "highestTierAllowed": 2}
    shape = gang_shape(kind.workload_annotations(vcjob(task("w", 4), networkTopology=hard)))
    assert shape is not None
    assert (shape.required_level, shape.members) == ("block", {})
    assert kind.workload_annotations(vcjob(task("w", 4), networkTopology={**hard, "mode": "soft"})) == {}
    assert kind.workload_annotations(vcjob(task("w", 4))) == {}


def test_an_aborted_job_is_on_hold() -> None:
    def held(phase: str, **spec: Any) -> bool:
        return KIND.is_on_hold({**vcjob(*TWO, **spec), "status": {"state": {"phase": phase}}})

    assert [held(phase) for phase in ("Aborting", "Aborted", "Restarting", "Pending")] == [True, True, True, False]
    assert not held("Restarting", policies=[policy("RestartJob", "PodFailed")])


def test_a_job_is_ready_when_all_of_its_pods_run_or_have_succeeded() -> None:
    runs = started(vcjob(*TWO), master=1, worker=4)
    assert not KIND.pods_ready({**runs, "status": {"running": 4}})
    assert KIND.pods_ready({**runs, "status": {"running": 4, "succeeded": 1}})


def test_the_volcano_queue_is_the_queue_unless_a_label_names_another() -> None:
    label = "kueue.x-k8s.io/queue-name"
    assert queued(vcjob())["metadata"]["labels"] == {label: "default"}
    assert queued(vcjob(queue="research"))["metadata"]["labels"] == {label: "research"}
    job = vcjob(queue="research")
    job["metadata"]["labels"] = {label: "other"}
    assert queued(job) is job


def test_a_status_is_written_and_read_with_nothing_lost() -> None:
    world = VolcanoWorld(*TWO).run()
    job = {**world.job, "status": to_json(world.status)}
    assert KIND.pods_ready({**job, "metadata": started(vcjob(*TWO), master=1, worker=4)["metadata"]})


TIERS = (Tier(node_label="rack"), Tier(node_label="block"))


def requests(*tasks: dict[str, Any], **spec: Any) -> list[dict[str, Any]]:
    """What each task asks for besides its pods' index."""
    found = [each.topology_request or {} for each in ForeignJobKind(TIERS).pod_sets(vcjob(*tasks, **spec))]
    return [{key: value for key, value in each.items() if key != "podIndexLabel"} for each in found]


def test_a_jobs_network_topology_is_a_level_of_all_its_pods() -> None:
    hard = {"mode": "hard", "highestTierAllowed": 2}
    both = {"required": "block", "podSetGroupName": "volcano-job"}
    assert requests(task("w", 4), networkTopology=hard) == [{"required": "block"}]
    assert requests(task("m", 1), task("w", 4), networkTopology=hard) == [both, both]
    assert requests(task("w", 4)) == [{}]
    with pytest.raises(JobError, match=r"spec.networkTopology: expected a table of tiers"):
        KIND.pod_sets(vcjob(task("w", 4), networkTopology=hard))
    elastic = vcjob(task("w", 4), networkTopology=hard)
    elastic["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    with pytest.raises(JobError, match=r"expected none of an elastic job"):
        ForeignJobKind(TIERS).pod_sets(elastic)


def test_each_partition_is_a_slice_in_its_own_level() -> None:
    def split(**topology: Any) -> dict[str, Any]:
        return task("w", 4, partitionPolicy={"totalPartitions": 2, "partitionSize": 2, "networkTopology": topology})

    slices = {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
    assert requests(split(highestTierAllowed=1)) == [slices]
    assert requests(split(highestTierAllowed=1), networkTopology={"highestTierAllowed": 2}) == [
        {**slices, "required": "block"}
    ]
    assert requests(split(mode="soft")) == [{}]
    with pytest.raises(JobError, match=r"spec.tasks\[0\].partitionPolicy.networkTopology: expected a table"):
        KIND.pod_sets(vcjob(split(highestTierAllowed=1)))


def test_an_estimate_is_the_runtime_that_backfill_counts_on() -> None:
    read = queued(vcjob(task("w", 1), runningEstimate="30m"))
    assert read["metadata"]["annotations"] == {"tessera.dev/runtime": "30m"}
    own = vcjob(task("w", 1), runningEstimate="30m")
    own["metadata"]["annotations"] = {"tessera.dev/runtime": "1h"}
    assert queued(own)["metadata"]["annotations"] == {"tessera.dev/runtime": "1h"}
    assert "annotations" not in queued(vcjob(task("w", 1)))["metadata"]
