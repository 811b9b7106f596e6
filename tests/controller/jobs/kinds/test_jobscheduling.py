"""``spec.scheduling`` of a Job: what it asks for by it, and what is refused."""

from typing import Any

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.framework.topologyrequest import PREFERRED
from controller.jobs.kinds.batchjob import BatchJob
from controller.jobs.kinds.jobscheduling import scheduling_of
from tests.support.controller.jobmodel import World, job

KIND = BatchJob()
RACK = "dc/rack"


def gang(least: int | None = None, **more: Any) -> Json:
    policy = {"schedulingPolicy": {"gang": {} if least is None else {"minCount": least}}}
    return {**policy, **more}


def six(scheduling: Any = None) -> Json:
    """A Job of six pods."""
    return job(parallelism=6, completions=6, **({} if scheduling is None else {"scheduling": scheduling}))


def level(key: str = RACK) -> Json:
    return {"schedulingConstraints": {"topology": [{"key": key}]}}


@pytest.mark.parametrize(
    ("scheduling", "minimum"),
    [
        (None, None),
        ({}, None),
        ({"schedulingPolicy": {"basic": {}}}, None),
        (gang(), None),
        (gang(6), None),
        (gang(4), 4),
        (gang(4, **level()), None),
    ],
    ids=["no field", "empty", "basic", "no number", "all", "fewer", "fewer in one domain"],
)
def test_a_job_starts_with_fewer_pods_only_where_it_names_fewer(scheduling: Json | None, minimum: int | None) -> None:
    given = six() if scheduling is None else six(scheduling)
    (pod_set,) = KIND.pod_sets(given)
    assert (pod_set.count, pod_set.min_count) == (6, minimum)


def test_the_annotation_for_a_minimum_goes_before_the_field() -> None:
    given = six(gang(4))
    given["metadata"]["annotations"] = {names.MIN_PARALLELISM: "5"}
    assert KIND.pod_sets(given)[0].min_count == 5


def test_a_level_is_required_unless_the_template_names_one_itself() -> None:
    given = job(parallelism=2, scheduling=level())
    assert (KIND.pod_sets(given)[0].topology_request or {})["required"] == RACK
    given["spec"]["template"]["metadata"] = {"annotations": {PREFERRED: "dc/block"}}
    request = KIND.pod_sets(given)[0].topology_request or {}
    assert (request.get("required"), request.get("preferred")) == (None, "dc/block")


@pytest.mark.parametrize(
    ("scheduling", "sentence"),
    [
        (gang(7), "spec.scheduling.schedulingPolicy.gang.minCount: expected at most the parallelism, 6, found 7"),
        (gang(0), "spec.scheduling.schedulingPolicy.gang.minCount: expected at least 1, found 0"),
        (
            level("a b"),
            r"spec.scheduling.schedulingConstraints.topology\[0\].key: expected a label of nodes, found 'a b'",
        ),
        ({"schedulingPolicy": {"gang": 3}}, "spec.scheduling: "),
        ([], "spec.scheduling: expected an object, found list"),
    ],
)
def test_what_the_api_server_refuses_is_told_in_one_line(scheduling: Any, sentence: str) -> None:
    with pytest.raises(JobError, match=sentence):
        KIND.pod_sets(six(scheduling))


def test_a_job_without_the_field_is_read_as_before() -> None:
    assert scheduling_of(job()) is None


def test_a_job_that_starts_with_fewer_has_that_parallelism_while_it_runs() -> None:
    world = World(six(gang(4)))
    world.settle()
    assert world.workloads[world.only]["spec"]["podSets"][0]["minCount"] == 4
    world.admit(world.only, count=5)
    world.settle()
    assert world.job is not None
    assert (world.job["spec"]["parallelism"], world.job["spec"]["suspend"]) == (5, False)
