"""A Job that is edited on its way, against the model."""

from typing import Any

import pytest

from controller.jobs.framework import names
from tests.support.controller.jobworlds import queued, relabel, running


@pytest.fixture(params=[35, 36], ids=["1.35", "1.36"])
def minor(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_a_job_that_leaves_the_queue_while_it_runs_is_seen_to_its_end() -> None:
    world = running()
    world.edit({"metadata": {"labels": {names.QUEUE_NAME: None}}})
    world.settle()
    assert not world.suspended()
    world.pod_succeeds()
    world.settle()
    ((name, _),) = world.workloads.items()
    assert world.has(name, "Finished")
    world.delete_workload(name)
    world.settle()
    assert world.workloads == {}


@pytest.mark.parametrize(
    "edit",
    [
        {"metadata": {"labels": {"team": "speech"}}},
        {"metadata": {"annotations": {"note": "yours"}}},
        {"spec": {"nodeSelector": {"disk": None}}},
        {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]}},
    ],
    ids=["labels", "annotations", "nodeSelector", "tolerations"],
)
def test_a_waiting_workload_follows_its_job(edit: dict[str, Any], minor: int) -> None:
    world = queued(minor)
    uid = world.workloads[world.only]["metadata"]["uid"]
    world.edit({"spec": {"template": edit}})
    world.settle()
    original = world.template()
    assert world.workloads[world.only]["metadata"]["uid"] == uid
    assert world.events[-1][0] == "UpdatedWorkload"
    world.admit(world.only)
    world.settle()
    tolerations = world.template()["spec"]["tolerations"]
    assert tolerations.count({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}) == 1
    world.evict(world.only)
    world.settle()
    assert world.template() == original


def test_what_the_pods_say_of_checkpoints_reaches_the_workload_and_the_jobs_own_word_goes_first() -> None:
    world = queued()
    said = {"tessera.dev/checkpoint-interval": "10m", "tessera.dev/restart-cost": "5m", "note": "yours"}
    world.edit({"spec": {"template": {"metadata": {"annotations": said}}}})
    world.settle()
    have = world.workloads[world.only]["metadata"]["annotations"]
    assert {key: have.get(key) for key in said} == {**said, "note": None}
    world.admit(world.only)
    world.settle()
    world.edit({"metadata": {"annotations": {"tessera.dev/restart-cost": "1m"}}})
    world.settle()
    have = world.workloads[world.only]["metadata"]["annotations"]
    assert have["tessera.dev/checkpoint-interval"] == "10m"
    assert have["tessera.dev/restart-cost"] == "1m"


def test_a_running_workload_does_not_go_from_its_pods_class_to_one_of_workloads() -> None:
    world = queued()
    world.admit(world.only)
    world.settle()
    relabel(world, priority_class="high")
    world.settle()
    assert "priority" not in world.workloads[world.only]["spec"]
    world.evict(world.only)
    world.settle()
    assert world.workloads[world.only]["spec"]["priority"] == 1000


def test_a_maximum_execution_time_changes_until_the_job_runs() -> None:
    world = queued(meta={"labels": {names.QUEUE_NAME: "q", names.MAX_EXEC_TIME: "60"}})
    relabel(world, max_exec_time_seconds="90")
    world.settle()
    assert world.workloads[world.only]["spec"]["maximumExecutionTimeSeconds"] == 90
    world.admit(world.only)
    relabel(world, max_exec_time_seconds=None)
    world.settle()
    assert world.workloads[world.only]["spec"]["maximumExecutionTimeSeconds"] == 90


def test_a_job_that_is_resized_while_it_is_evicted_keeps_its_workload() -> None:
    world = running(parallelism=3, completions=9)
    uid = world.workloads[world.only]["metadata"]["uid"]
    world.evict(world.only)
    world.step()
    world.edit({"spec": {"parallelism": 4}})
    world.settle()
    raw = world.workloads[world.only]
    assert (raw["metadata"]["uid"], raw["spec"]["podSets"][0]["count"]) == (uid, 4)
