"""The PodGroup that is there for those who look at a Volcano Job."""

from typing import Any

import pytest

from controller.foreign.jobs.podgroup import differs, pod_group
from tests.support.controller.volcanoworld import VolcanoWorld, task


def worker(name: str = "worker", replicas: int = 3, cpu: str = "2", **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "nvidia.com/gpu": "1"}}}
    return {**task(name, replicas), "template": {"spec": {"containers": [container]}}, **more}


def group(world: VolcanoWorld) -> dict[str, Any]:
    return pod_group(world.job, world.seen(), world.status)


def says(world: VolcanoWorld) -> tuple[str, str]:
    status = group(world)["status"]
    return status["phase"], (status.get("conditions") or [{}])[-1].get("reason", "")


def test_it_is_named_as_volcano_names_it_and_goes_with_its_job() -> None:
    world = VolcanoWorld(worker(), queue="q", priorityClassName="high")
    world.job["metadata"] |= {
        "labels": {"team": "vision"},
        "annotations": {
            "note": "mine",
            "tessera.dev/placement": "{}",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    }
    made = group(world)
    meta = made["metadata"]
    assert (meta["name"], meta["namespace"], meta["labels"]) == ("train-u1", "team", {"team": "vision"})
    assert meta["annotations"] == {"note": "mine"}
    assert [(owner["name"], owner["uid"], owner["controller"]) for owner in meta["ownerReferences"]] == [
        ("train", "u1", True)
    ]
    assert (made["spec"]["queue"], made["spec"]["priorityClassName"]) == ("q", "high")


def test_it_asks_for_what_the_first_pods_ask_for_as_many_as_the_job_needs() -> None:
    world = VolcanoWorld(worker("ps", 1, minAvailable=1), worker("worker", 3, "4", minAvailable=1), minAvailable=3)
    spec = group(world)["spec"]
    assert (spec["minMember"], spec["minTaskMember"]) == (3, {"ps": 1, "worker": 1})
    assert spec["minResources"] == {"cpu": "10", "nvidia.com/gpu": "3"}
    assert (spec["queue"], "subGroupPolicy" in spec, "networkTopology" in spec) == ("default", False, False)


def test_partitions_are_its_subgroups() -> None:
    level = {"mode": "hard", "highestTierAllowed": 1}
    policy = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1, "networkTopology": level}
    world = VolcanoWorld(worker(replicas=4, partitionPolicy=policy), worker("ps", 1), networkTopology=level)
    spec = group(world)["spec"]
    assert spec["networkTopology"] == level
    assert spec["subGroupPolicy"] == [
        {
            "name": "worker",
            "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "worker"}},
            "matchLabelKeys": ["volcano.sh/partition-id"],
            "subGroupSize": 2,
            "minSubGroups": 1,
            "networkTopology": level,
        }
    ]


def test_its_status_follows_the_job() -> None:
    world = VolcanoWorld(worker(replicas=2)).settle()
    assert says(world) == ("Pending", "NotEnoughResources")
    assert group(world)["status"]["conditions"][0]["message"].endswith("unschedulable: the job is not admitted")
    world.start()
    assert says(world) == ("Inqueue", "")
    world.run()
    assert says(world) == ("Running", "Scheduled")
    assert (group(world)["status"]["running"], len(world.alive)) == (2, 2)
    for name in list(world.alive):
        world.becomes(name, "Succeeded")
    world.finish()
    assert (world.phase, says(world)) == ("Completed", ("Completed", "Scheduled"))


def test_of_a_job_that_has_failed_it_waits_for_ever() -> None:
    world = VolcanoWorld(worker(replicas=2), maxRetry=1).run()
    world.command("TerminateJob")
    world.finish()
    assert (world.phase, says(world)) == ("Terminated", ("Pending", "NotEnoughResources"))


def test_a_pod_without_a_node_is_told() -> None:
    world = VolcanoWorld(worker(replicas=2)).run()
    name = world.alive[0]
    world.becomes(name, "Pending", is_unschedulable=True)
    world.settle()
    assert says(world)[0] == "Unknown"
    assert group(world)["status"]["conditions"][0]["message"] == f"1 pod has no node, {name} among them"


@pytest.mark.parametrize(
    ("before", "after", "written"),
    [
        (None, "Pending", True),
        ("Pending", "Inqueue", False),
        ("Running", "Inqueue", True),
        ("Pending", "Running", True),
        ("Running", "Running", False),
    ],
)
def test_what_is_written(before: str | None, after: str, written: bool) -> None:
    def body(phase: str) -> dict[str, Any]:
        return {"spec": {"minMember": 1}, "status": {"phase": phase}}

    assert differs(None if before is None else body(before), body(after)) is written


def test_a_job_of_another_size_is_written_at_once() -> None:
    small, large = ({"spec": {"minMember": size}, "status": {"phase": "Inqueue"}} for size in (1, 2))
    assert differs({**small, "status": {"phase": "Pending"}}, large)
