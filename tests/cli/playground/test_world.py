"""What comes into the playground, and when."""

from pathlib import Path

import msgspec
import pytest

from cli.fleetnodes import nodes
from cli.manifests import read_documents
from cli.playground.world import Course, World, packaged, world
from controller.cluster.config.load import default
from controller.insight.simulation.documents import InputError, documents
from controller.insight.simulation.manifests import scenario
from controller.insight.simulation.run import simulate
from simulator.fleet.fleetfile import load_fleet
from simulator.fleet.orders import Reset, Xid
from tests.support.e2e.lab import ROOT

JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: team
  labels: {kueue.x-k8s.io/queue-name: jobs}
  annotations: {tessera.dev/arrival: 10s, tessera.dev/runtime: 20s}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: none}]}}}
"""


def built(text: str = JOB) -> World:
    return world(load_fleet(packaged()[0]), documents(text, "jobs.yaml"))


def names(course: Course, now_s: float, *there: str) -> list[str]:
    jobs, _ = course.due(now_s, {("team", name) for name in there})
    return [job["metadata"]["name"] for job in jobs]


def test_each_job_comes_once_at_its_time_and_again_in_the_next_round() -> None:
    given = built()
    course = Course(given)
    assert names(course, 9.9) == []
    assert names(course, 10.0) == ["train"]
    assert names(course, 11.0, "train") == []
    assert names(course, given.round_s + 10.0) == ["train-2"]


def test_a_job_that_is_still_there_does_not_come_a_second_time() -> None:
    given = built()
    course = Course(given)
    names(course, given.round_s)
    assert names(course, given.round_s + 10.0, "train") == []
    assert names(course, 2 * given.round_s + 10.0) == ["train-3"]


def test_a_job_without_an_end_comes_in_the_first_round_alone() -> None:
    given = built(JOB.replace(", tessera.dev/runtime: 20s", ""))
    course = Course(given)
    assert names(course, given.round_s) == ["train"]
    assert names(course, 3 * given.round_s) == []


def test_the_gpu_of_the_fleet_file_fails_and_comes_back_in_each_round() -> None:
    given = built()
    course = Course(given)
    for number in range(2):
        _, faults = course.due((number + 1) * given.round_s - 0.1, ())
        assert [(fault.node, type(fault.order)) for fault in faults] == [("node-2", Xid), ("node-2", Reset)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            JOB.replace("batch/v1", "kubeflow.org/v1").replace("kind: Job", "kind: PyTorchJob"),
            "Job of batch/v1.*simulate takes jobs of all",
        ),
        (JOB.replace("arrival: 10s", "arrival: soon"), 'tessera.dev/arrival]: found "soon", expected a duration'),
    ],
)
def test_what_it_cannot_play_is_refused_with_what_it_expects(text: str, wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        built(text)


def test_a_job_without_a_queue_is_left_out_and_of_several_that_are_wrong_each_is_told() -> None:
    assert built(JOB.replace("queue-name: jobs", "queue: jobs")).arrivals == ()
    late = JOB.replace("arrival: 10s", "arrival: soon")
    with pytest.raises(InputError) as told:
        built(f"{late}---\n{late.replace('soon', 'late')}")
    assert len(told.value.lines) == 2


def test_the_packages_world_is_that_of_the_examples_and_every_namespace_is_there() -> None:
    fleet, manifests = packaged()
    for file in (fleet, *manifests):
        assert file.is_relative_to(ROOT / "cli"), "wheels hold the packages alone"
        assert file.read_bytes() == (ROOT / "examples" / "live" / file.name).read_bytes()
    given = world(load_fleet(fleet), read_documents(manifests, allow_unknown=False))
    spaces = {body["metadata"]["name"] for body in given.objects if body["kind"] == "Namespace"}
    assert spaces == {"default", "research", "production", "notebooks"}
    assert {Path(file).suffix for file in (fleet, *manifests)} == {".yaml"}


def test_in_the_packages_world_jobs_wait_borrow_and_are_preempted() -> None:
    fleet, manifests = packaged()
    given = scenario(read_documents(manifests, allow_unknown=False), default())
    given = msgspec.structs.replace(given, objects=(*given.objects, *nodes(load_fleet(fleet))))
    found = simulate(given, default().engine, until_s=60.0)
    told = [(each.event, each.workload, each.reason) for each in found.timeline]
    assert ("Pending", "research/rlhf", "WaitingForQuota") in told
    assert ("Preempted", "research/evaluation", "InCohortReclamation") in told
    assert any("the queue borrows" in each.message for each in found.timeline)
