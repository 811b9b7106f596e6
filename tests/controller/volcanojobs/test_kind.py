from typing import Any

import pytest

from controller.jobframework.podsets import PodSetInfo, SeenWorkload
from controller.jobframework.raw import JobError
from controller.jobframework.tiers import Tier
from controller.objects.meta import to_json
from controller.volcanojobs.kind import VolcanoJobKind, queued
from controller.volcanojobs.placement import scaled
from inventory.api.names import PLACEMENT
from tests.support.controller.volcanoworld import VolcanoWorld, policy, task, vcjob

KIND = VolcanoJobKind()
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


def test_the_last_task_that_can_spare_pods_may_get_fewer() -> None:
    cases: dict[int, int | None] = {5: None, 4: 3, 2: 1, 1: 1}
    for least, expected in cases.items():
        assert KIND.pod_sets(vcjob(*TWO, minAvailable=least))[1].min_count == expected
    own = (task("master", 1), task("worker", 4, minAvailable=2), task("one", 1))
    assert [each.min_count for each in KIND.pod_sets(vcjob(*own))] == [None, 2, None]


def test_a_start_is_an_annotation_and_a_stop_takes_it_away() -> None:
    job = vcjob(*TWO)
    runs = started(job, master=1, worker=4)
    assert runs["spec"] == job["spec"]
    assert not KIND.is_suspended(runs)
    assert KIND.is_suspended(job)
    assert KIND.stop(job, None) == ()
    assert KIND.stop(runs, None)[0].body["metadata"] == {"uid": "u1", "annotations": {PLACEMENT: None}}


def test_a_job_is_stopped_when_its_status_counts_no_pod() -> None:
    job = vcjob(*TWO)
    assert KIND.is_stopped(job)
    assert not KIND.is_stopped({**job, "status": {"pending": 2}})
    assert not KIND.is_stopped({**job, "status": {"terminating": 1}})
    assert KIND.is_stopped({**job, "status": {"succeeded": 1}})
    assert KIND.start({**job, "status": {"terminating": 1}}, workload(), infos(master=1, worker=4)) == ()


def test_a_job_counts_what_was_admitted_until_it_asks_for_more() -> None:
    runs = started(vcjob(*TWO, minAvailable=2), master=1, worker=2)
    assert KIND.counts(runs) == {"master": 1, "worker": 2}
    more = {**runs, "spec": {**runs["spec"], "tasks": [TWO[0], task("worker", 5)]}}
    assert KIND.counts(more)["worker"] == 5


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
    found = [each.topology_request or {} for each in VolcanoJobKind(TIERS).pod_sets(vcjob(*tasks, **spec))]
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
        VolcanoJobKind(TIERS).pod_sets(elastic)


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
