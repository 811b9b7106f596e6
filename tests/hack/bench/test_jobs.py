"""The benchmarks of job kinds: what is submitted, and its way to its end with the least that starts a job."""

import asyncio
import random

import pytest

from controller.cluster.watching.kinds import PODS, WORKLOADS
from controller.jobs.kinds.table import JOB_KINDS
from controller.reconcile.jobshell.watched import resource_of
from hack.bench.podjobs.load import LIVED, PODS_OF_A_JOB, TEAM, PodJobs
from hack.bench.throughput.drainshape import PUBLISHED, Arrival, Class, Shape
from hack.bench.throughput.jobload import JobLoad
from hack.bench.throughput.jobshape import KINDS, PRIORITIES, Json, Played, job
from hack.bench.throughput.nulljobs import Starter
from hack.bench.throughput.runningjobs import Fleet
from hack.bench.throughput.startedjobs import Starts
from hack.cluster.controlplane.stages import COMPLETE_AFTER
from kube.client import Client
from kube.clock import SystemClock
from kube.testing import FakeApiServer, eventually
from kube.writing.writer import Writer
from tests.support.hang import HANG_S

BY_RESOURCE = {resource_of(kind): kind for kind in JOB_KINDS}


def workload_of(played: Played, size: Class) -> Json:
    made = job(played, Arrival(0.0, "team", "train", size))
    made["metadata"]["uid"] = "uid-1"
    return Starts(priorities=PRIORITIES).composed(BY_RESOURCE[played.resource], made)


def cpus_of(pod_set: Json) -> int:
    asked = [each["resources"]["requests"]["cpu"] for each in pod_set["template"]["spec"]["containers"]]
    return int(pod_set["count"]) * sum(int(cpu.removesuffix("m")) for cpu in asked)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_asks_for_the_cpus_of_its_class(name: str) -> None:
    for played in KINDS[name]:
        for size in PUBLISHED:
            pod_sets = workload_of(played, size)["spec"]["podSets"]
            assert sum(map(cpus_of, pod_sets)) == size.cpus * 1000
            assert len(pod_sets) == 1 if name in ("batch", "plain") else len(pod_sets) > 1


@pytest.mark.parametrize("name", ["batch", "mixed", "plain"])
async def test_a_job_is_started_and_finished_with_four_writes(name: str) -> None:
    kinds = KINDS[name]
    load = Shape(("team",), (Class("small", len(kinds), 1, 0.0, 50, 0.0),))
    async with FakeApiServer() as server:
        async with (
            Client(server.config) as client,
            Writer(client, clock=SystemClock(), random=random.random) as writer,
            asyncio.TaskGroup() as tasks,
        ):
            starter = Starter(client, writer, [played.resource for played in kinds], tasks)
            following = [tasks.create_task(mirror.run()) for mirror in starter.mirrors]
            result = await JobLoad(client, kinds).run(load, HANG_S)
            for task in following:
                task.cancel()
        written = [request for request in server.requests if request.method != "GET"]
        assert len(written) - result.writes == 4 * len(kinds)
        assert len(server.list_all(WORKLOADS)) == len(kinds)


def statuses(name: str, phase: str) -> Json:
    """What the kind's own controller says of it."""
    if name == "batch":
        done = [{"type": "Complete", "status": "True"}] if phase == "Completed" else []
        return {"ready": PODS_OF_A_JOB if phase == "Running" else 0, "conditions": done}
    return {"running": PODS_OF_A_JOB if phase == "Running" else 0, "state": {"phase": phase}}


@pytest.mark.parametrize("name", LIVED)
async def test_jobs_with_pods_are_told_to_end_once_all_run(name: str) -> None:
    kind = LIVED[name]
    names = ["train-0", "train-1"]
    async with FakeApiServer() as server, Client(server.config) as client:
        for pod, phase in (("a", "Running"), ("b", "Succeeded")):
            server.create(PODS, pod, {"status": {"phase": phase}}, namespace=TEAM)

        def say(job: str, phase: str) -> None:
            server.merge(kind.resource, job, {"status": statuses(name, phase)}, namespace=TEAM)

        def told() -> bool:
            return COMPLETE_AFTER in server.get(PODS, "a", namespace=TEAM)["metadata"].get("annotations", {})

        running = asyncio.create_task(PodJobs(client, kind, len(names)).run(20))
        await eventually(lambda: len(server.list_all(kind.resource)) == len(names))
        say("train-0", "Running")
        say("train-1", "Pending")
        assert not told()
        say("train-0", "Completed")
        say("train-1", "Running")
        await eventually(told, what="a job that ended early has run")
        assert not running.done()
        say("train-1", "Completed")
        result = await running
        assert result.writes == len(names) + 1
        assert "annotations" not in server.get(PODS, "b", namespace=TEAM)["metadata"]


def test_the_fleet_has_a_running_job_of_every_example() -> None:
    fleet = Fleet()
    for kind, made, workload in fleet.running(len(fleet.jobs)):
        assert not kind.is_suspended(made)
        assert workload["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
