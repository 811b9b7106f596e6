"""The plan for a job's claims stands in its pods as it starts, and nowhere before or after."""

from controller.jobs.framework.raw import Json
from controller.objects.meta import to_json
from controller.objects.placeencoding import HOSTNAME_LABEL, Domain, encode
from controller.scheduler.model.resources import WorkloadKey
from inventory.api import claimplan
from inventory.api.claimplan import ClaimPlan
from inventory.api.names import CLAIM_DEVICES
from tests.support.controller.jobmodel import World, cluster_objects, job

PLAN: ClaimPlan = {"gpus": {"gpu": {"gpu.nvidia.com/uuid": ["GPU-0"]}}}


def planned(world: World) -> str:
    assert world.job is not None
    metadata: Json = world.job["spec"]["template"].get("metadata", {})
    return str(metadata.get("annotations", {}).get(CLAIM_DEVICES, ""))


def started(plan: ClaimPlan, *, placed: bool = True) -> tuple[World, list[tuple[WorkloadKey, str]]]:
    """The world of a job that was placed, with what was asked of the engine."""
    asked: list[tuple[WorkloadKey, str]] = []

    def claim_devices(key: WorkloadKey, pod_set: str) -> ClaimPlan:
        asked.append((key, pod_set))
        return plan

    world = World(job())
    world.cluster = cluster_objects(claim_devices=claim_devices)
    world.settle()
    assert not planned(world)
    (name,) = world.workloads
    world.admit(name)
    if placed:
        places = to_json(encode((HOSTNAME_LABEL,), [Domain(("a",), 1)]))
        (given,) = world.workloads[name]["status"]["admission"]["podSetAssignments"]
        given["topologyAssignment"] = places
    world.settle()
    return world, asked


def test_the_template_of_a_placed_job_has_its_plan_while_it_runs() -> None:
    world, asked = started(PLAN)
    assert claimplan.read(planned(world)) == PLAN
    assert asked
    assert {pod_set for _, pod_set in asked} == {"main"}
    world.evict(*world.workloads)
    world.settle()
    assert not planned(world)


def test_without_a_plan_and_without_places_nothing_is_written() -> None:
    world, _ = started({})
    assert not planned(world)
    world, asked = started(PLAN, placed=False)
    assert (planned(world), asked) == ("", [])
