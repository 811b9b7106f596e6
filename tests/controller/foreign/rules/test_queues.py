"""The queue of Volcano's or KAI's that an object is for is told twice, in Python and in CEL: both name the same."""

import re
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from controller.foreign.rules.queues import NAMES, is_grouped, queue_of
from controller.foreign.rules.queues import conflict as conflict_in_cel
from controller.foreign.rules.schedulers import SCHEDULERS
from controller.jobs.framework.foreignmarks import DEFAULT_QUEUES, VOLCANO_QUEUES, conflict, foreign_queue
from controller.jobs.framework.podview import KAI_GROUP, KAI_QUEUE
from controller.jobs.kinds.table import DECLARED_KINDS, JOB_KINDS
from controller.scheduler.mirror.specs import System
from inventory.api.names import SCHEDULER_NAME
from tests.support.controller.celpolicies import evaluated
from tests.support.controller.declaredjobs import MODELS as JOB_MODELS
from tests.support.controller.declaredray import RAY_MODELS

GROUP: Final = "scheduling.k8s.io/group-name"
SCHEDULER: Final = st.sampled_from(["", "default-scheduler", "volcano", "kai-scheduler"])


def metadata() -> st.SearchStrategy[dict[str, Any]]:
    """With marks of either system, of both or of none."""
    names = st.sampled_from(["", "a", "b'c", "d" * 70])
    marks = dict.fromkeys((KAI_QUEUE, *VOLCANO_QUEUES[1:]), names)
    notes = {SCHEDULER_NAME: SCHEDULER, **dict.fromkeys((*VOLCANO_QUEUES, GROUP, KAI_GROUP), names)}
    return st.fixed_dictionaries(
        {},
        optional={
            "labels": st.fixed_dictionaries({}, optional=marks),
            "annotations": st.fixed_dictionaries({}, optional=notes),
        },
    )


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """A pod, or a job."""

    def spec(**more: Any) -> dict[str, Any]:
        scheduler = draw(SCHEDULER)
        return {"containers": [], **more} | ({"schedulerName": scheduler} if scheduler else {})

    meta = {"name": "o", "namespace": "ns", **draw(metadata())}
    if draw(st.booleans()):
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec()}
    template = {"metadata": draw(metadata()), "spec": spec()}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}


def asked(expression: str, given: dict[str, Any]) -> Any:
    for system, names in NAMES.items():
        expression = expression.replace(names, f"['{SCHEDULERS[system]}']")
    return evaluated(expression, {"object": given})


@cache
def expression(system: System) -> str:
    return queue_of(system.value, JOB_KINDS)


def in_cel(system: System, given: dict[str, Any]) -> str:
    return str(asked(expression(system), given))


@cache
def conflict_expression() -> str:
    return conflict_in_cel(JOB_KINDS)


def refusal(given: dict[str, Any]) -> str:
    return str(asked(conflict_expression(), given))


def held(system: System, given: dict[str, Any]) -> bool:
    return bool(asked(is_grouped(system.value), given))


GROUP_OF_A_JOB: Final[dict[str, Any]] = {
    "metadata": {"name": "o", "namespace": "ns", "annotations": {GROUP: "g"}},
    "spec": {
        "template": {
            "metadata": {"annotations": {VOLCANO_QUEUES[1]: "q"}},
            "spec": {"containers": [], "schedulerName": "volcano"},
        }
    },
}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@example(GROUP_OF_A_JOB)
@given(objects())
def test_both_name_the_same_queue_of_one_system_or_refuse_the_object(given: dict[str, Any]) -> None:
    theirs = {system: queue for system in System if (queue := in_cel(system, given))}
    assert refusal(given).replace("'", '"') == conflict(given).replace("'", '"')
    if conflict(given):
        assert theirs == {}
        return
    found = foreign_queue(given, lambda _namespace, _group: "its group's")
    if found is None or found.name == "its group's":
        assert theirs == {}
    else:
        assert theirs == {found.system: found.name}


def pod(scheduler: str = "", **meta: Any) -> dict[str, Any]:
    return {"metadata": meta, "spec": {"containers": [], **({"schedulerName": scheduler} if scheduler else {})}}


@pytest.mark.parametrize("system", System)
def test_whose_scheduler_is_named_decides_between_marks_of_both(system: System) -> None:
    given = pod(SCHEDULERS[system.value], labels={KAI_QUEUE: "k"}, annotations={VOLCANO_QUEUES[0]: "v"})
    assert foreign_queue(given) == (system, "k" if system is System.KAI else "v")
    assert in_cel(system, given) == system.value[0]
    (other,) = set(System) - {system}
    assert (in_cel(other, given), refusal(given)) == ("", "")
    only_the_others = pod(SCHEDULERS[system.value], **MARKS[other])
    assert foreign_queue(only_the_others) == (system, DEFAULT_QUEUES[system])
    assert in_cel(system, only_the_others) == DEFAULT_QUEUES[system]


MARKS: Final[dict[System, dict[str, Any]]] = {
    System.KAI: {"labels": {KAI_QUEUE: "k"}},
    System.VOLCANO: {"annotations": {VOLCANO_QUEUES[1]: "v"}},
}


def test_marks_of_both_without_a_scheduler_are_refused_by_both_names() -> None:
    job = {"metadata": MARKS[System.VOLCANO], "spec": {"template": pod(**MARKS[System.KAI])}}
    sentence = (
        "metadata: expected marks of Volcano or of KAI, or a schedulerName that says whose it is, "
        "found volcano.sh/queue-name 'v' and kai.scheduler/queue 'k'"
    )
    assert refusal(job) == conflict(job) == sentence
    grouped = pod(labels={KAI_QUEUE: "k"}, annotations={GROUP: "g"})
    assert refusal(grouped).endswith(f"found {GROUP} 'g' and kai.scheduler/queue 'k'")
    assert conflict({**job, "metadata": {**job["metadata"], "labels": {"kueue.x-k8s.io/queue-name": "q"}}}) == ""


def test_pods_for_the_schedulers_of_both_are_refused() -> None:
    given = {"metadata": {}, "spec": {"workers": [pod("kai-scheduler"), pod("volcano")]}}
    by_spark = {"metadata": {}, "spec": {"batchScheduler": "volcano", "driver": {"template": pod("kai-scheduler")}}}
    sentence = "schedulerName: expected that of Volcano or of KAI, found 'volcano' and 'kai-scheduler'"
    assert conflict(given) == conflict(by_spark) == sentence
    in_groups = with_templates(PATH_OF_GROUPS, pod("kai-scheduler"), pod("volcano"))
    assert refusal(in_groups) == conflict(in_groups) == sentence


def with_templates(path: str, *templates: dict[str, Any]) -> dict[str, Any]:
    """An object with pod templates at a path of a kind; of a path that is not a list's or a map's the last."""
    steps = re.split(r"\.", path)
    made: list[Any] = list(templates)
    for step in reversed(steps):
        if step.endswith("[]"):
            made = [{step[:-2]: made}]
        elif step.endswith("{}"):
            made = [{step[:-2]: {f"Type{at}": each for at, each in enumerate(made)}}]
        else:
            made = [{step: each} for each in made]
    return {"metadata": {"name": "o", "namespace": "ns"}, **made[-1]}


PATHS: Final = sorted({(kind.kind, path) for kind in JOB_KINDS for path in kind.template_paths})


@pytest.mark.parametrize("system", System)
@pytest.mark.parametrize(("kind", "path"), PATHS)
def test_marks_are_found_in_every_template_of_a_kind(system: System, kind: str, path: str) -> None:
    plain: dict[str, Any] = {"metadata": {}, "spec": {"containers": []}}
    mark = {"labels": {KAI_QUEUE: "q"}} if system is System.KAI else {"annotations": {VOLCANO_QUEUES[0]: "q"}}
    marked = with_templates(path, plain, {**plain, "metadata": mark})
    assert in_cel(system, marked) == "q", kind
    assert foreign_queue(marked) == (system, "q")
    named = with_templates(
        path, plain, {**plain, "spec": {"containers": [], "schedulerName": SCHEDULERS[system.value]}}
    )
    assert in_cel(system, named) == DEFAULT_QUEUES[system]
    assert foreign_queue(named) == (system, DEFAULT_QUEUES[system])
    assert in_cel(system, with_templates(path, plain, plain)) == ""
    no_pods = with_templates(path, {"metadata": mark, "spec": {}})
    assert in_cel(system, no_pods) == "", "what has no containers is no pod template"


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_template_of_a_job_lies_where_its_kind_says(data: st.DataObject) -> None:
    own = [kind for kind in DECLARED_KINDS if kind.template_paths and kind.kind != "AppWrapper"]
    kind = data.draw(st.sampled_from(own))
    sample = data.draw((JOB_MODELS | RAY_MODELS)[kind.framework].samples)
    for slot in kind.slots(sample.job):
        where = ".".join(str(step) for step in slot.path)
        known = (re.escape(path).replace(r"\[\]", r"\.\d+").replace(r"\{\}", r"\.\w+") for path in kind.template_paths)
        assert any(re.fullmatch(each, where) for each in known), where


@pytest.mark.parametrize(
    ("spec", "system", "expected"),
    [
        ({"batchScheduler": "volcano", "batchSchedulerOptions": {"queue": "q"}}, System.VOLCANO, "q"),
        ({"batchScheduler": "volcano"}, System.VOLCANO, "default"),
        ({"batchScheduler": "yunikorn", "batchSchedulerOptions": {"queue": "q"}}, System.VOLCANO, ""),
        ({"batchScheduler": "kai-scheduler"}, System.KAI, "default-queue"),
        (
            {
                "runPolicy": {"schedulingPolicy": {"queue": "q"}},
                "template": {"spec": {"containers": [], "schedulerName": "volcano"}},
            },
            System.VOLCANO,
            "q",
        ),
        ({"runPolicy": {"schedulingPolicy": {"queue": "q"}}}, System.VOLCANO, ""),
    ],
    ids=["spark", "spark, no queue", "another of spark's", "spark, kai", "kubeflow", "kubeflow, no scheduler"],
)
def test_fields_of_operators_name_the_queue_beside_the_scheduler(spec: Any, system: System, expected: str) -> None:
    given = {"metadata": {"name": "o", "namespace": "ns"}, "spec": spec}
    found = foreign_queue(given)
    assert (found.name if found is not None else "") == expected
    assert in_cel(system, given) == expected


PATH_OF_GROUPS: Final = next(path for _, path in PATHS if "[]" in path)
GROUPS: Final = {System.VOLCANO: (GROUP, "volcano"), System.KAI: ("pod-group-name", "kai-scheduler")}


@pytest.mark.parametrize("system", System)
def test_a_pod_that_leaves_the_queue_to_its_group_is_held_without_a_queue(system: System) -> None:
    mark, scheduler = GROUPS[system]
    pod = {"metadata": {"annotations": {mark: "g"}}, "spec": {"schedulerName": scheduler}}
    assert (in_cel(system, pod), held(system, pod)) == ("", True)
    kept = {"metadata": {"annotations": {mark: "g", SCHEDULER_NAME: scheduler}}, "spec": {"schedulerName": "other"}}
    assert held(system, kept)
    anothers = {**pod, "spec": {"schedulerName": "other"}}
    assert not held(system, anothers), "another scheduler's pods are not ours to hold"
    assert not held(system, {"metadata": {}, "spec": {"schedulerName": scheduler}})


def test_a_queue_beside_the_group_is_the_pods_own() -> None:
    volcano = {"annotations": {GROUP: "g", VOLCANO_QUEUES[0]: "q"}}
    assert in_cel(System.VOLCANO, {"metadata": volcano, "spec": {"schedulerName": "volcano"}}) == "q"
    kai = {"annotations": {"pod-group-name": "g"}, "labels": {KAI_QUEUE: "q"}}
    assert in_cel(System.KAI, {"metadata": kai, "spec": {"schedulerName": "kai-scheduler"}}) == "q"
