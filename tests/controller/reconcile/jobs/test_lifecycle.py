"""A Job from its creation to its end, against the model."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.actions import (
    FinishWorkload,
    Refuse,
    ReleaseQuota,
    RemoveFinalizer,
    SetPodsReady,
    SetReclaimable,
    StopJob,
)
from controller.jobs.framework.settings import JobSettings
from controller.objects.meta import LabelSelector
from controller.scheduler.model.gangshape import GangShape, written
from controller.scheduler.model.gates import FeatureGates
from inventory.api.names import FULL_PARALLELISM, GANG, KEPT_OFF
from kube.testing.store import copied
from tests.support.controller.jobmodel import UID, InvalidError, World, cluster_objects, job
from tests.support.controller.jobworlds import queued, relabel, running

PARTIAL = {names.MIN_PARALLELISM: "2"}


@pytest.fixture(params=[35, 36], ids=["1.35", "1.36"])
def minor(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_a_queued_job_gets_one_workload_that_carries_its_whole_template() -> None:
    world = queued()
    raw = world.workloads[world.only]
    (pod_set,) = raw["spec"]["podSets"]
    wanted = world.template()
    wanted["metadata"]["labels"] = {"team": "vision"}
    ranks = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
    assert pod_set == {"name": "main", "count": 1, "template": wanted, "topologyRequest": ranks}
    assert raw["spec"]["queueName"] == "q"
    assert raw["metadata"]["labels"] == {names.JOB_UID: UID}
    assert raw["metadata"]["finalizers"] == [names.RESOURCE_IN_USE]
    assert raw["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "train",
            "uid": UID,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert [reason for reason, _ in world.events] == ["CreatedWorkload"]


def test_an_admitted_job_runs_with_what_its_flavor_says(minor: int) -> None:
    world = running(minor)
    template = world.template()
    assert not world.suspended()
    assert template["spec"]["nodeSelector"] == {"disk": "ssd", "gpu": "a100"}
    assert template["spec"]["tolerations"] == [
        {"key": "spot", "operator": "Exists"},
        {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
    ]
    labels = template["metadata"]["labels"]
    assert (labels[names.CLUSTER_QUEUE_NAME], labels[names.LOCAL_QUEUE_NAME], labels[names.POD_SET]) == (
        "cq",
        "q",
        "main",
    )
    assert template["metadata"]["annotations"] == {"note": "mine", names.WORKLOAD: world.only}
    assert world.events[-1][0] == "Started"


def test_a_job_that_keeps_off_spot_says_so_in_its_template_while_it_runs(minor: int) -> None:
    off = {"key": "kind", "operator": "NotIn", "values": ["spot"]}
    for keeps, wanted in ((True, "spot"), (False, None)):
        world = queued(minor, settings=JobSettings(off_spot=(off,)))
        world.cluster = cluster_objects(is_off_spot=lambda _, keeps=keeps: keeps)
        world.admit(world.only)
        world.settle()
        assert world.template()["metadata"]["annotations"].get(KEPT_OFF) == wanted
        assert "affinity" not in world.template()["spec"]
        world.evict(world.only)
        world.settle()
        assert KEPT_OFF not in world.template()["metadata"]["annotations"]


def test_an_evicted_job_is_as_it_was_before_its_start_and_only_then_gives_up_its_quota(minor: int) -> None:
    world = queued(minor)
    original = copy.deepcopy(world.job)
    assert original is not None
    world.admit(world.only)
    world.settle()
    world.evict(world.only)
    seen: list[Any] = []
    while not any(isinstance(action, ReleaseQuota) for action in seen):
        seen += world.step()
        if any(isinstance(action, ReleaseQuota) for action in seen):
            assert world.job is not None
            assert world.job["spec"] == original["spec"]
            assert not world.job["status"].get("active")
        world.job_controller()
    assert world.job is not None
    assert world.job["metadata"].get("annotations", {}) == {}
    assert "admission" not in world.workloads[world.only]["status"]
    assert ("Stopped", "somebody more important came") in world.events
    world.admit(world.only, flavor="h100")
    world.settle()
    assert world.template()["spec"]["nodeSelector"] == {"disk": "ssd", "gpu": "h100"}


def test_quota_is_held_while_the_job_controller_has_not_seen_the_suspension(minor: int) -> None:
    world = running(minor)
    world.evict(world.only)
    world.step()
    assert world.job is not None
    world.job["status"]["active"] = 0  # not counted yet
    for _ in range(3):
        assert not any(isinstance(action, ReleaseQuota) for action in world.step())


@pytest.mark.parametrize(
    ("reason", "requeue"), [("Preempted", True), ("NodeFailures", True), ("PodsReadyTimeout", False)]
)
def test_only_who_is_not_to_blame_is_queued_again_at_once(reason: str, requeue: bool) -> None:
    world = running()
    world.evict(world.only, reason)
    released: list[ReleaseQuota] = []
    for _ in range(6):
        released += [action for action in world.step() if isinstance(action, ReleaseQuota)]
        world.job_controller()
    assert [(one.reason, one.requeue) for one in released] == [(reason, requeue)]


def test_a_job_that_was_created_running_is_stopped_before_it_is_queued(minor: int) -> None:
    world = World(job(suspend=False), minor=minor)
    world.job_controller()
    (stop, *_) = world.step()
    assert isinstance(stop, StopJob)
    assert world.workloads == {}
    world.settle()
    assert world.suspended()
    assert world.live()


def test_a_job_that_somebody_unsuspends_is_suspended_again(minor: int) -> None:
    world = queued(minor)
    world.edit({"spec": {"suspend": False}})
    world.settle()
    assert world.suspended()


def test_a_running_job_that_somebody_suspends_is_started_again(minor: int) -> None:
    world = running(minor)
    template = world.template()
    world.edit({"spec": {"suspend": True}})
    world.settle()
    assert not world.suspended()
    assert world.template() == template


def test_a_conflict_with_the_flavor_ends_the_workload_and_a_repaired_job_gets_another() -> None:
    world = queued()
    first = world.only
    world.admit(first, flavor="hdd")
    world.settle()
    assert world.suspended()
    conditions = world.workloads[first]["status"]["conditions"]
    (finished,) = [one for one in conditions if one["type"] == "Finished"]
    assert finished["reason"] == "FailedToStart"
    assert "disk must be 'hdd', and is already 'ssd'" in finished["message"]
    world.edit({"spec": {"template": {"spec": {"nodeSelector": None}}}})
    world.settle()
    assert not world.has(world.only, "Finished")


def test_a_job_waits_for_a_flavor_that_is_not_there() -> None:
    world = queued()
    world.admit(world.only, flavor="gone")
    world.step()
    assert world.suspended()
    assert world.events[-1] == ("FlavorNotFound", "The job cannot start: ResourceFlavor gone does not exist")


def test_what_an_admission_check_asks_for_is_in_the_template() -> None:
    world = queued()
    world.admit(world.only)
    world.workloads[world.only]["status"]["admissionChecks"] = [
        {
            "name": "prov",
            "state": "Ready",
            "podSetUpdates": [
                {
                    "name": "main",
                    "annotations": {"consume": "pr-1"},
                    "nodeSelector": {"pool": "x"},
                    "labels": {"l": "v"},
                },
                {"name": "other", "annotations": {"no": "no"}},
            ],
        }
    ]
    world.settle()
    template = world.template()
    assert template["metadata"]["annotations"]["consume"] == "pr-1"
    assert "no" not in template["metadata"]["annotations"]
    assert template["metadata"]["labels"]["l"] == "v"
    assert template["spec"]["nodeSelector"]["pool"] == "x"


@pytest.mark.parametrize(("reason", "ends"), [("Succeeded", True), ("Succeeded", False), ("ByHand", False)])
def test_a_workload_that_has_finished_is_kept_by_nothing(reason: str, ends: bool) -> None:
    world = World(job())
    world.settle()
    (raw,) = world.workloads.values()
    raw["status"] = {"conditions": [{"type": "Finished", "status": "True", "reason": reason}]}
    if ends and world.job is not None:
        world.job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert raw["metadata"]["finalizers"]
    (action,) = world.next_actions()
    assert isinstance(action, RemoveFinalizer)


def test_a_finished_job_finishes_its_workload() -> None:
    world = running()
    world.pod_succeeds()
    world.settle()
    ((name, raw),) = world.workloads.items()
    assert world.has(name, "Finished")
    (finished,) = [one for one in raw["status"]["conditions"] if one["type"] == "Finished"]
    assert finished["reason"] == "Succeeded"
    assert world.events[-1][0] == "FinishedWorkload"


def test_a_job_that_is_gone_leaves_no_workload_behind() -> None:
    world = running()
    name = world.only
    world.job = None
    actions = world.next_actions()
    uid = world.workloads[name]["metadata"]["uid"]
    assert [type(action) for action in actions] == [FinishWorkload, RemoveFinalizer]
    assert actions[1] == RemoveFinalizer(name=name, uid=uid)


@pytest.mark.parametrize("gone", [True, False])
def test_with_the_gate_off_a_job_that_leaves_finishes_nothing(gone: bool) -> None:
    world = queued()
    world.settings = replace(world.settings, gates=FeatureGates({"FinishOrphanedWorkloads": False}))
    if gone:
        world.job = None
    elif world.job is not None:
        world.job["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    assert [type(action) for action in world.next_actions()] == [RemoveFinalizer]


def test_a_job_that_is_being_deleted_keeps_its_quota_until_its_pods_are_gone() -> None:
    world = running()
    assert world.job is not None
    world.job["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    world.step()
    assert world.suspended()
    assert world.live()
    world.settle()
    assert not world.live()


def test_a_workload_that_is_deleted_under_a_running_job_takes_the_job_back_to_the_queue(minor: int) -> None:
    world = queued(minor)
    original = world.template()
    world.admit(world.only)
    world.settle()
    name = world.only
    uid = world.workloads[name]["metadata"]["uid"]
    world.delete_workload(name)
    world.settle()
    assert world.suspended()
    assert world.template() == original
    assert world.workloads[world.only]["metadata"]["uid"] != uid


# Partial admission.


def test_fewer_pods_are_run_and_the_full_number_is_back_after_a_stop(minor: int) -> None:
    world = running(minor, parallelism=5, completions=10, meta={"annotations": PARTIAL}, count=3)
    assert world.workloads[world.only]["spec"]["podSets"][0]["minCount"] == 2
    assert world.job is not None
    assert (world.job["spec"]["parallelism"], world.job["spec"]["completions"]) == (3, 10)
    world.evict(world.only)
    world.settle()
    assert world.job["spec"]["parallelism"] == 5
    assert world.job["metadata"]["annotations"] == PARTIAL


def test_a_parallelism_above_the_completions_comes_back_as_it_was() -> None:
    world = running(parallelism=8, completions=5, meta={"annotations": PARTIAL}, count=3)
    assert world.job is not None
    assert world.job["spec"]["parallelism"] == 3
    world.evict(world.only)
    world.settle()
    assert world.job["spec"]["parallelism"] == 8


def test_completions_follow_where_they_are_to_equal_the_parallelism() -> None:
    meta = {"annotations": {**PARTIAL, names.COMPLETIONS_EQUAL_PARALLELISM: "true"}}
    world = running(parallelism=5, completions=5, completionMode="Indexed", meta=meta, count=3)
    assert world.job is not None
    assert (world.job["spec"]["parallelism"], world.job["spec"]["completions"]) == (3, 3)
    world.evict(world.only)
    world.settle()
    assert (world.job["spec"]["parallelism"], world.job["spec"]["completions"]) == (5, 5)


def test_a_size_that_the_user_changed_while_it_ran_with_fewer_pods_is_the_users() -> None:
    world = running(parallelism=5, completions=10, meta={"annotations": PARTIAL}, count=3)
    world.edit({"spec": {"parallelism": 4}})
    world.settle()
    assert world.job is not None
    assert world.job["spec"]["parallelism"] == 4
    assert world.workloads[world.only]["spec"]["podSets"][0]["count"] == 4


def test_a_job_that_another_controller_started_with_fewer_pods_is_restored_from_its_workload() -> None:
    world = running(parallelism=5, completions=10, meta={"annotations": PARTIAL}, count=3)
    assert world.job is not None
    del world.job["metadata"]["annotations"][FULL_PARALLELISM]
    world.evict(world.only)
    world.settle()
    assert world.job["spec"]["parallelism"] == 5


def test_without_partial_admission_no_minimum_is_passed_on() -> None:
    settings = JobSettings(gates=FeatureGates({"PartialAdmission": False}))
    world = queued(settings=settings, parallelism=5, completions=5, meta={"annotations": PARTIAL})
    assert "minCount" not in world.workloads[world.only]["spec"]["podSets"][0]
    assert world.next_actions() == ()


# What a running job reports.


def test_pods_that_will_not_be_needed_again_are_given_back() -> None:
    world = running(parallelism=3, completions=5)
    counts = []
    for _ in range(4):
        world.pod_succeeds()
        world.job_controller()
        counts += [action.pods for action in world.step() if isinstance(action, SetReclaimable)]
    assert counts == [{"main": 1}, {"main": 2}]


def test_under_partial_admission_what_is_given_back_counts_from_the_full_number() -> None:
    world = running(parallelism=5, completions=6, meta={"annotations": PARTIAL}, count=2)
    for _ in range(5):
        world.pod_succeeds()
        world.job_controller()
    assert [action.pods for action in world.next_actions() if isinstance(action, SetReclaimable)] == [{"main": 4}]


def test_readiness_is_told_apart_from_recovery() -> None:
    world = queued(parallelism=2, completions=2)
    world.admit(world.only)
    told: list[tuple[str, str]] = []

    def look() -> None:
        world.job_controller()
        told.extend((one.status, one.reason) for one in world.step() if isinstance(one, SetPodsReady))

    look()
    world.job_controller()
    world.pods_are_ready()
    look()
    assert world.job is not None
    world.job["status"]["ready"] = 1
    look()
    look()
    world.pods_are_ready()
    look()
    world.evict(world.only)
    look()
    assert told == [
        ("False", "WaitForStart"),
        ("True", "Started"),
        ("False", "WaitForRecovery"),
        ("True", "Recovered"),
        ("False", "WaitForStart"),
    ]


KAIS = {"labels": {"kai.scheduler/queue": "q", "kueue.x-k8s.io/queue-name": "q"}}
PATIENCE = "kai.scheduler/staleness-grace-period"


def test_a_gang_of_kais_that_says_its_patience_is_followed_without_waiting_for_pods() -> None:
    """The condition PodsReady, of which the patience counts, is kept though the configuration waits for none."""
    settings = JobSettings(wait_for_pods_ready=False)
    told = {}
    for said in ({PATIENCE: "90s"}, {PATIENCE: "-1s"}, {}):
        world = running(settings=settings, meta={**KAIS, "annotations": said}, parallelism=2, completions=2)
        world.pods_are_ready()
        ready = any(isinstance(action, SetPodsReady) for action in world.step())
        told[said.get(PATIENCE)] = (world.workloads[world.only]["metadata"]["annotations"].get(GANG), ready)
    shapes = {said: written(GangShape(staleness_s=seconds)) for said, seconds in (("90s", 90.0), ("-1s", -1.0))}
    assert told == {"90s": (shapes["90s"], True), "-1s": (shapes["-1s"], False), None: (None, False)}


def test_levels_that_kais_annotations_ask_for_follow_the_job_while_it_waits() -> None:
    level = "kai.scheduler/topology-required-placement"
    world = queued(meta={**KAIS, "annotations": {level: "rack"}})
    marked: Any = world.job
    assert world.workloads[world.only]["metadata"]["annotations"][GANG] == written(GangShape(required_level="rack"))
    marked["metadata"]["annotations"][level] = "zone"
    world.settle()
    assert world.workloads[world.only]["metadata"]["annotations"][GANG] == written(GangShape(required_level="zone"))
    world.admit(world.only)
    marked["metadata"]["annotations"][level] = "row"
    world.settle()
    assert world.workloads[world.only]["metadata"]["annotations"][GANG] == written(GangShape(required_level="zone"))


def test_a_patience_that_is_none_is_told() -> None:
    world = queued(meta={**KAIS, "annotations": {PATIENCE: "soon"}})
    assert world.workloads == {}
    (told,) = {action.sentence for action in world.next_actions() if isinstance(action, Refuse)}
    assert told == f"metadata.annotations[{PATIENCE}]: expected a duration such as 60s, found 'soon'"


# Labels that change.


def test_a_queue_changes_while_the_job_waits() -> None:
    world = queued()
    relabel(world, queue_name="other")
    world.settle()
    assert world.workloads[world.only]["spec"]["queueName"] == "other"


def test_a_queue_that_changes_after_the_reservation_starts_over() -> None:
    world = queued()
    world.admit(world.only)
    world.condition(world.only, "Admitted", "False", "UnsatisfiedAdmissionChecks")
    relabel(world, queue_name="other")
    world.settle()
    raw = world.workloads[world.only]
    assert raw["spec"]["queueName"] == "other"
    assert "admission" not in raw.get("status", {})


def test_a_running_job_does_not_move() -> None:
    world = running()
    relabel(world, queue_name="other")
    world.settle()
    assert not world.suspended()
    assert world.workloads[world.only]["spec"]["queueName"] == "q"


def test_a_priority_class_moves_a_running_workload() -> None:
    world = queued(meta={"labels": {names.QUEUE_NAME: "q", names.PRIORITY_CLASS: "low"}})
    world.admit(world.only)
    world.settle()
    relabel(world, priority_class="high")
    world.settle()
    spec = world.workloads[world.only]["spec"]
    assert (spec["priority"], spec["priorityClassRef"]["name"]) == (1000, "high")
    assert not world.suspended()


def test_a_class_that_does_not_exist_is_told_and_changes_nothing() -> None:
    world = queued(meta={"labels": {names.QUEUE_NAME: "q", names.PRIORITY_CLASS: "low"}})
    relabel(world, priority_class="none")
    (refusal,) = world.next_actions()
    assert isinstance(refusal, Refuse)
    assert (refusal.reason, "'none'" in refusal.sentence) == ("WorkloadPriorityClassNotFound", True)
    assert world.workloads[world.only]["spec"]["priority"] == 10


@pytest.mark.parametrize(
    ("label", "pods", "default", "cluster", "expected"),
    [
        ("high", "gold", 5, ("std", 1), ("kueue.x-k8s.io", "high", 1000)),
        ("", "gold", 5, ("std", 1), ("scheduling.k8s.io", "gold", 77)),
        ("", "", 5, ("std", 1), ("kueue.x-k8s.io", "default", 5)),
        ("", "", None, ("std", 1), ("scheduling.k8s.io", "std", 1)),
        ("", "", None, None, None),
    ],
)
def test_who_decides_the_priority(
    label: str, pods: str, default: int | None, cluster: tuple[str, int] | None, expected: tuple[str, str, int] | None
) -> None:
    body = job()
    if label:
        body["metadata"]["labels"][names.PRIORITY_CLASS] = label
    if pods:
        body["spec"]["template"]["spec"]["priorityClassName"] = pods
    world = World(body)
    values = {"high": 1000, "default": default}
    world.cluster = cluster_objects(workload_priority=values.get, global_default=lambda: cluster)
    world.settle()
    spec = world.workloads[world.only]["spec"]
    if expected is None:
        assert "priority" not in spec
        assert "priorityClassRef" not in spec
    else:
        assert (spec["priorityClassRef"]["group"], spec["priorityClassRef"]["name"], spec["priority"]) == expected


def test_labels_and_annotations_that_concern_the_workload_go_with_it() -> None:
    meta = {
        "labels": {names.QUEUE_NAME: "q", "team": "a", names.MAX_EXEC_TIME: "60"},
        "annotations": {"provreq.kueue.x-k8s.io/x": "y", names.ADMISSION_GATED_BY: "ex.io/g", "other": "no"},
    }
    world = queued(meta=meta, settings=JobSettings(label_keys_to_copy=("team", "absent")))
    raw = world.workloads[world.only]
    assert raw["metadata"]["labels"] == {"team": "a", names.JOB_UID: UID}
    assert raw["spec"]["maximumExecutionTimeSeconds"] == 60
    kept = {"provreq.kueue.x-k8s.io/x": "y", names.ADMISSION_GATED_BY: "ex.io/g"}
    owner = {names.JOB_OWNER_GVK: "batch/v1, Kind=Job", names.JOB_OWNER_NAME: "train"}
    assert raw["metadata"]["annotations"] == {**kept, **owner}
    world.edit({"metadata": {"annotations": {names.ADMISSION_GATED_BY: None}}})
    world.settle()
    assert names.ADMISSION_GATED_BY not in world.workloads[world.only]["metadata"]["annotations"]


# Which jobs are managed.


def test_a_job_without_a_queue_is_left_alone() -> None:
    world = World(job(suspend=False))
    world.edit({"metadata": {"labels": {names.QUEUE_NAME: None}}})
    assert world.next_actions() == ()
    world.settings = JobSettings(manage_jobs_without_queue_name=True)
    assert isinstance(world.next_actions()[0], StopJob)
    world.settings = JobSettings(
        manage_jobs_without_queue_name=True,
        managed_jobs_namespace_selector=LabelSelector(match_labels={"queued": "yes"}),
    )
    assert world.next_actions() == ()


def test_a_job_that_leaves_the_queue_takes_its_waiting_workload_along() -> None:
    world = queued()
    world.edit({"metadata": {"labels": {names.QUEUE_NAME: None}}})
    world.settle()
    assert world.workloads == {}


def test_the_model_refuses_what_the_api_server_refuses() -> None:
    world = running()
    with pytest.raises(InvalidError, match="immutable"):
        world.edit({"spec": {"template": {"metadata": {"labels": {"x": "y"}}}}})


def test_a_start_that_was_computed_from_an_older_job_does_not_get_through() -> None:
    world = queued()
    world.admit(world.only)
    seen = copied(world.job)
    world.edit({"spec": {"template": {"spec": {"nodeSelector": {"disk": "nvme"}}}}})
    world.step(job_=seen)
    assert world.suspended()
    assert world.template()["spec"]["nodeSelector"] == {"disk": "nvme"}


def test_a_job_whose_last_run_is_still_being_taken_down_is_not_started_with_another_template() -> None:
    world = running()
    world.edit({"spec": {"suspend": True}})
    world.admit(world.only, flavor="h100")
    assert world.next_actions() == ()
    world.settle()
    assert not world.suspended()
    assert world.template()["spec"]["nodeSelector"]["gpu"] == "h100"


def test_a_job_whose_workload_was_torn_away_still_knows_how_many_pods_it_asked_for() -> None:
    world = running(parallelism=5, completions=10, meta={"annotations": PARTIAL}, count=3)
    world.workloads.clear()
    world.settle()
    assert world.job is not None
    assert world.workloads[world.only]["spec"]["podSets"][0]["count"] == 5
    world.admit(world.only)
    world.settle()
    assert world.job["spec"]["parallelism"] == 5
    world.evict(world.only)
    world.settle()
    assert world.job["spec"]["parallelism"] == 5
    assert world.job["metadata"]["annotations"] == PARTIAL
