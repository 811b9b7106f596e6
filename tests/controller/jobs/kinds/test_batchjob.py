"""What a batch Job asks for, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.framework import names
from controller.jobs.framework.actions import DeleteWorkload, Refuse, StopJob
from controller.jobs.framework.kind import Outcome
from controller.jobs.framework.names import workload_name
from controller.jobs.framework.podsets import (
    UNCONSTRAINED,
    PodSetInfo,
    StartConflictError,
    started_template,
    template_patch,
)
from controller.jobs.framework.raw import JobError, Json, merged
from controller.jobs.framework.topologyrequest import (
    GROUP_NAME,
    PREFERRED,
    REQUIRED,
    SLICE_CONSTRAINTS,
    SLICE_SIZE,
    SLICE_TOPOLOGY,
    check_groups,
    topology_request,
)
from controller.jobs.kinds.batchjob import BatchJob
from tests.support.controller.jobmodel import World, job

KIND = BatchJob()


def annotated(annotations: dict[str, str], **spec: Any) -> Json:
    body = job(**spec)
    body["metadata"]["annotations"] = annotations
    return body


def requesting(resource: str, amount: str) -> Json:
    body = job()
    body["spec"]["template"]["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {resource: amount}}}]
    return body


@pytest.mark.parametrize(
    ("parallelism", "completions", "count"),
    [(3, 5, 3), (5, 3, 3), (None, 5, 1), (4, None, 4), (None, None, 1), (0, 5, 0)],
)
def test_as_many_pods_as_run_at_a_time(parallelism: int | None, completions: int | None, count: int) -> None:
    (pod_set,) = KIND.pod_sets(job(parallelism=parallelism, completions=completions))
    assert (pod_set.name, pod_set.count, pod_set.min_count) == ("main", count, None)


def test_a_minimum_that_completions_leave_nothing_above_is_none() -> None:
    (pod_set,) = KIND.pod_sets(annotated({names.MIN_PARALLELISM: "3"}, parallelism=5, completions=3))
    assert (pod_set.count, pod_set.min_count) == (3, None)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (requesting("pods", "1"), "spec.template.spec.initContainers[0].requests[pods]: a container must not"),
        (requesting("cpu", "-1"), "requests[cpu]: expected an amount of at least 0, found -1"),
        (requesting("cpu", "much"), "spec.template: PodTemplateSpec"),
        (annotated({names.MIN_PARALLELISM: "two"}, parallelism=3), "expected an integer, found 'two'"),
        (annotated({names.MIN_PARALLELISM: "3"}, parallelism=3), "expected 1 to 2 (below spec.parallelism), found 3"),
        (annotated({names.MIN_PARALLELISM: "0"}, parallelism=3), "expected 1 to 2 (below spec.parallelism), found 0"),
        (annotated({names.MIN_PARALLELISM: "1"}), "spec.parallelism is 1"),
        (annotated({names.COMPLETIONS_EQUAL_PARALLELISM: "true"}), "completionMode must be Indexed"),
        (
            annotated({names.COMPLETIONS_EQUAL_PARALLELISM: "true"}, completionMode="Indexed", completions=3),
            "spec.completions: expected spec.parallelism (1), found 3",
        ),
        (annotated({names.ELASTIC_JOB: "perhaps"}), "expected true or false, found 'perhaps'"),
        (
            annotated({names.ELASTIC_JOB: "true", names.MIN_PARALLELISM: "1"}, parallelism=3, completions=3),
            "an elastic job has no minimum of its own",
        ),
        (job(parallelism="3"), "spec.parallelism: expected an integer, found str"),
        (job(template=[]), "spec.template: expected an object, found list"),
    ],
)
def test_what_cannot_be_queued_is_refused_in_one_sentence_and_does_not_run(body: Json, sentence: str) -> None:
    with pytest.raises(JobError) as caught:
        KIND.pod_sets(body)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    (refusal,) = World(body).next_actions()
    assert isinstance(refusal, Refuse)
    assert sentence in refusal.sentence
    body["spec"]["suspend"] = False
    assert isinstance(World(body).next_actions()[0], StopJob)


@pytest.mark.parametrize("value", ["0", "-5", "soon", "99999999999"])
def test_a_maximum_execution_time_is_a_number_of_seconds(value: str) -> None:
    body = job()
    body["metadata"]["labels"][names.MAX_EXEC_TIME] = value
    (refusal,) = World(body).next_actions()
    assert isinstance(refusal, Refuse)
    assert names.MAX_EXEC_TIME in refusal.sentence


def test_a_job_that_goes_bad_while_it_waits_holds_no_quota() -> None:
    world = World(job(parallelism=3, completions=3))
    world.settle()
    world.admit(world.only)
    world.edit({"metadata": {"annotations": {names.MIN_PARALLELISM: "9"}}})
    assert isinstance(world.step()[0], DeleteWorkload)
    world.settle()
    assert world.workloads == {}
    assert world.suspended()


def test_a_job_that_goes_bad_while_it_runs_goes_on_running_and_can_still_be_evicted() -> None:
    world = World(job(parallelism=3, completions=3))
    world.settle()
    original = world.template()
    world.admit(world.only)
    world.settle()
    world.edit({"metadata": {"annotations": {names.MIN_PARALLELISM: "9", names.ELASTIC_JOB: "?"}}})
    world.settle()
    assert not world.suspended()
    world.evict(world.only)
    world.settle()
    assert world.suspended()
    assert world.template() == original
    assert not any("admission" in raw.get("status", {}) for raw in world.workloads.values())


SEEN: Json = {"conditions": [{"type": "Suspended", "status": "True"}]}


@pytest.mark.parametrize(
    ("suspend", "status", "stopped"),
    [
        (True, {}, True),
        (True, SEEN, True),
        (True, {**SEEN, "startTime": "2026-01-01T00:00:00Z"}, True),
        (True, {"startTime": "2026-01-01T00:00:00Z"}, False),
        (True, {**SEEN, "active": 1}, False),
        (False, SEEN, False),
    ],
)
def test_a_job_is_stopped_when_its_pods_have_been_taken_away(suspend: bool, status: Json, stopped: bool) -> None:
    assert KIND.is_stopped({**job(suspend=suspend), "status": status}) is stopped


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        ({"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}, "Succeeded", "done"),
        ({"conditions": [{"type": "Complete", "status": "True"}]}, "Succeeded", "Job finished successfully"),
        ({"conditions": [{"type": "Failed", "status": "True", "message": "too many"}]}, "Failed", "too many"),
    ],
)
def test_how_a_job_ended(status: Json, reason: str, message: str) -> None:
    assert KIND.finished({"status": status}) == Outcome(reason=reason, message=message)  # type: ignore[arg-type]
    assert KIND.finished({"status": {"conditions": [{"type": "Complete", "status": "False"}]}}) is None


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, False),
        ({"ready": 2}, False),
        ({"ready": 2, "succeeded": 1}, True),
        ({"ready": 2, "uncountedTerminatedPods": {"succeeded": ["uid"]}}, True),
    ],
)
def test_pods_are_ready_when_each_is_or_has_succeeded(status: Json, ready: bool) -> None:
    assert KIND.pods_ready({"spec": {"parallelism": 3}, "status": status}) is ready


@pytest.mark.parametrize(
    ("completions", "succeeded", "spare"),
    [(5, 0, {}), (5, 2, {}), (5, 3, {"main": 1}), (5, 5, {"main": 3}), (None, 1, {"main": 1}), (None, 4, {"main": 3})],
)
def test_what_fewer_completions_than_pods_leave_over(completions: int | None, succeeded: int, spare: Json) -> None:
    world = World(job(parallelism=3, completions=completions))
    world.settle()
    (workload,) = world.observed().workloads
    body = {"spec": {"parallelism": 3, "completions": completions}, "status": {"succeeded": succeeded}}
    assert KIND.reclaimable(body, workload) == spare


# Names.


def test_the_name_of_a_workload_is_that_of_its_job_and_a_hash() -> None:
    assert workload_name("Job", "batch", "train", "uid-1") == "job-train-a6870"
    assert workload_name("Job", "batch", "train", "uid-2") != workload_name("Job", "batch", "train", "uid-1")
    assert len(workload_name("Job", "batch", "x" * 253, "uid-1")) == 253
    assert workload_name("Job", "batch", "x" * 253, "uid-1")[-6] == "-"


# Templates there and back.

maps = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz"))
tolerations = st.lists(st.sampled_from([{"key": "a"}, {"key": "b"}, {"operator": "Exists"}]), max_size=3)


@st.composite
def templates(draw: st.DrawFn) -> Json:
    template: Json = {
        "metadata": {"labels": draw(maps), "annotations": draw(maps)},
        "spec": {"nodeSelector": draw(maps)},
    }
    template["spec"]["tolerations"] = draw(tolerations)
    # The API server leaves empty maps and lists out.
    return {name: {key: value for key, value in part.items() if value} for name, part in template.items()}


@given(templates(), maps, maps, maps, tolerations)
def test_a_template_that_is_started_and_restored_is_what_it_was(
    template: Json, labels: dict[str, str], notes: dict[str, str], selector: dict[str, str], tolerated: list[Json]
) -> None:
    info = PodSetInfo(
        name="main",
        count=1,
        labels=labels,
        annotations=notes,
        node_selector=selector,
        tolerations=tuple(tolerated),
        scheduling_gates=(names.TOPOLOGY_GATE,),
        own_labels={names.POD_SET: "main"},
    )
    try:
        started = started_template(template, info)
    except StartConflictError:
        pairs = (
            (template["metadata"].get("labels", {}), labels),
            (template["metadata"].get("annotations", {}), notes),
            (template["spec"].get("nodeSelector", {}), selector),
        )
        assert any(have.get(key, value) != value for have, more in pairs for key, value in more.items())
        return
    live = merged(template, template_patch(template, started))
    assert live == started
    assert live["spec"]["nodeSelector" if selector else "schedulingGates"]
    restored = merged(live, template_patch(live, template))
    assert {name: {k: v for k, v in part.items() if v} for name, part in restored.items()} == template
    assert template_patch(restored, template) == {}


# Topology.

RACK = "example.com/rack"


def constraints(*sizes: int) -> str:
    return "[" + ", ".join(f'{{"topology": "t{i}", "size": {size}}}' for i, size in enumerate(sizes)) + "]"


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, None),
        ({"other": "x"}, None),
        ({UNCONSTRAINED: "false"}, {"unconstrained": False}),
        ({REQUIRED: RACK}, {"required": RACK}),
        ({PREFERRED: RACK}, {"preferred": RACK}),
        ({UNCONSTRAINED: "true"}, {"unconstrained": True}),
        (
            {SLICE_TOPOLOGY: RACK, SLICE_SIZE: "2"},
            {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2},
        ),
        (
            {SLICE_CONSTRAINTS: constraints(8, 4)},
            {"podsetSliceRequiredTopologyConstraints": [{"topology": "t0", "size": 8}, {"topology": "t1", "size": 4}]},
        ),
    ],
)
def test_topology_annotations_become_a_request(annotations: dict[str, str], expected: Json | None) -> None:
    assert topology_request(annotations, path="p", count=8) == expected
    if expected is not None:
        with_index = topology_request(annotations, path="p", count=8, pod_index_label="i")
        assert with_index == {**expected, "podIndexLabel": "i"}


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({REQUIRED: RACK, PREFERRED: RACK}, "at most one of"),
        ({REQUIRED: RACK, UNCONSTRAINED: "true"}, "at most one of"),
        ({REQUIRED: "not a label"}, "expected the node label of a topology level"),
        ({PREFERRED: ""}, "expected the node label of a topology level"),
        ({UNCONSTRAINED: "si"}, "expected true or false"),
        ({SLICE_TOPOLOGY: RACK}, f"{SLICE_TOPOLOGY} is set without {SLICE_SIZE}"),
        ({SLICE_SIZE: "2"}, f"{SLICE_SIZE} is set without {SLICE_TOPOLOGY}"),
        ({SLICE_TOPOLOGY: RACK, SLICE_SIZE: "0"}, "at least 1"),
        ({SLICE_TOPOLOGY: RACK, SLICE_SIZE: "9"}, "larger than the pod set of 8"),
        ({SLICE_TOPOLOGY: RACK, SLICE_SIZE: "2", SLICE_CONSTRAINTS: constraints(4)}, "may not stand beside"),
        ({SLICE_CONSTRAINTS: "{"}, "expected a JSON list"),
        ({SLICE_CONSTRAINTS: "[" * 9999}, "expected a JSON list"),
        ({SLICE_CONSTRAINTS: constraints()}, "expected 1 to 3 constraints, found 0"),
        ({SLICE_CONSTRAINTS: constraints(8, 4, 2, 1)}, "expected 1 to 3 constraints, found 4"),
        ({SLICE_CONSTRAINTS: constraints(8, 3)}, "a multiple of the next, found 8 before 3"),
        ({SLICE_CONSTRAINTS: constraints(8, 0)}, "at least 1"),
        ({SLICE_CONSTRAINTS: constraints(4).replace("]", ", " + constraints(2)[1:])}, "each topology at most once"),
        ({GROUP_NAME: "g"}, "a group needs"),
        ({GROUP_NAME: "7", REQUIRED: RACK}, "a name that is no number"),
        ({GROUP_NAME: "g", REQUIRED: RACK, SLICE_SIZE: "2", SLICE_TOPOLOGY: RACK}, "may not ask for slices"),
    ],
)
def test_a_bad_topology_annotation_is_told_in_one_sentence(annotations: dict[str, str], sentence: str) -> None:
    with pytest.raises(JobError) as caught:
        topology_request(annotations, path="p", count=8)
    assert sentence in str(caught.value)


def test_an_elastic_job_may_not_ask_for_one_domain() -> None:
    with pytest.raises(JobError, match="its pods come and go"):
        topology_request({REQUIRED: RACK}, path="p", count=8, elastic=True)
    assert topology_request({UNCONSTRAINED: "true"}, path="p", count=8, elastic=True) == {"unconstrained": True}


LEADER: Json = {"podSetGroupName": "g", "required": RACK}


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        ([("a", 1, LEADER)], "expected exactly two pod sets, found 1 (a)"),
        ([("a", 1, LEADER), ("b", 2, LEADER), ("c", 2, LEADER)], "expected exactly two pod sets, found 3 (a, b, c)"),
        ([("a", 2, LEADER), ("b", 3, LEADER)], "expected one of the two pod sets to have one pod, found 2 and 3"),
        ([("a", 1, LEADER), ("b", 3, {**LEADER, "required": "other"})], "the same required or preferred topology"),
    ],
)
def test_a_group_is_a_leader_and_its_workers(sets: list[tuple[str, int, Json | None]], sentence: str) -> None:
    with pytest.raises(JobError) as caught:
        check_groups(sets)
    assert sentence in str(caught.value)
    check_groups([("a", 1, LEADER), ("b", 3, LEADER), ("c", 5, None)])


def test_a_job_of_one_pod_set_has_no_group() -> None:
    body = job()
    body["spec"]["template"]["metadata"]["annotations"] = {GROUP_NAME: "g", REQUIRED: RACK}
    with pytest.raises(JobError, match="exactly two pod sets, found 1"):
        KIND.pod_sets(body)


def test_a_job_asks_for_its_topology_by_its_completion_index() -> None:
    body = job()
    body["spec"]["template"]["metadata"]["annotations"] = {REQUIRED: RACK}
    world = World(body)
    world.settle()
    (pod_set,) = world.workloads[world.only]["spec"]["podSets"]
    assert pod_set["topologyRequest"] == {
        "required": RACK,
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
    }
