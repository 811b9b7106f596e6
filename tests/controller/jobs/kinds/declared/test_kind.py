"""Kinds made of JobKinds: what runs is what was charged, a stop gives all back, and hostile objects are refused."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.jobs.framework import names
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.kinds.declared.kind import DeclaredKind
from kube.testing.store import copied
from tests.support.controller.declarations import DECLARED, Declared, job_kind, kind_of
from tests.support.controller.declaredjobs import typed
from tests.support.controller.kindworld import KindWorld

HERE = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
POD = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}


def sweep(**spec: Any) -> Json:
    body = {"paused": True, "search": {"template": POD}, "trials": {"parallel": 4, "template": POD}, **spec}
    return typed("lab.example/v1", "Sweep", copied(body))


def sentence(ask: Callable[[Json], object], job: Json) -> str:
    """Why it is refused; empty where it is answered."""
    try:
        ask(job)
    except JobError as error:
        return str(error)
    return ""


def run(job: Json, on: bool) -> None:
    pods = 1 + job["spec"]["trials"]["parallel"] if on else 0
    job["status"] |= {"phase": "Running" if on else "Paused", "pods": pods, "readyPods": pods}


def test_an_object_waits_starts_is_preempted_restored_started_elsewhere_and_ends() -> None:
    scene = KindWorld(kind_of(job_kind()), sweep(), run)
    before = copied(sweep()["spec"])
    scene.settle()
    workload = scene.workloads[scene.only]
    assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [("search", 1), ("trials", 4)]
    scene.admit(scene.only)
    scene.settle()
    assert scene.job is not None
    assert not scene.suspended()
    assert scene.has(scene.only, "PodsReady")
    assert scene.job["spec"]["trials"]["template"]["spec"]["nodeSelector"] == {"gpu": "a100"}
    scene.job["status"]["spare"] = 2
    scene.settle()
    assert scene.workloads[scene.only]["status"]["reclaimablePods"] == [{"name": "trials", "count": 2}]
    scene.evict(scene.only)
    scene.settle()
    assert scene.job["spec"] == before
    assert "admission" not in scene.workloads[scene.only]["status"]
    scene.admit(scene.only, flavor="h100")
    scene.settle()
    name = scene.only
    scene.job["status"] |= {"phase": "Failed", "pods": 0, "message": "no trial was any good"}
    scene.settle()
    (finished,) = (one for one in scene.workloads[name]["status"]["conditions"] if one["type"] == "Finished")
    assert (finished["reason"], finished["message"]) == ("Failed", "no trial was any good")


def test_while_its_job_kind_is_being_deleted_what_runs_goes_on_and_nothing_starts() -> None:
    kind = kind_of(job_kind())
    leaving = DeclaredKind(kind.spec, leaving=True)
    running, waiting = KindWorld(kind, sweep(), run), KindWorld(kind, sweep(), run)
    for scene in (running, waiting):
        scene.settle()
    running.admit(running.only)
    running.settle()
    for scene in (running, waiting):
        scene.kind = leaving
        scene.settle()
    assert not running.suspended()
    waiting.admit(waiting.only)
    waiting.settle()
    assert waiting.suspended()
    assert "admission" not in waiting.workloads[waiting.only]["status"]
    waiting.kind = kind
    waiting.settle()
    waiting.admit(waiting.only)
    waiting.settle()
    assert not waiting.suspended()


def test_quota_is_kept_until_the_status_is_of_the_suspension() -> None:
    kind = kind_of(job_kind(suspended=None, observedGeneration=".status.observedGeneration"))
    job = sweep()
    job["status"] = {"pods": 0}
    assert kind.is_stopped(job), "it was never changed since its creation"
    job["metadata"]["generation"] = 3
    job["status"]["observedGeneration"] = 2
    assert not kind.is_stopped(job)
    job["status"]["observedGeneration"] = 3
    assert kind.is_stopped(job)
    job["status"]["pods"] = 1
    assert not kind.is_stopped(job)


def test_conditions_may_lie_elsewhere_and_bring_the_message() -> None:
    kind = kind_of(job_kind(conditions=".status.state.checks", succeeded={"condition": "Done"}, message=None))
    job = sweep()
    assert kind.finished(job) is None
    job["status"] = {"state": {"checks": [7, {"type": "Done", "status": "True", "message": "trial 3"}]}}
    outcome = kind.finished(job)
    assert outcome is not None
    assert (outcome.reason, outcome.message) == ("Succeeded", "trial 3")


def test_the_objects_own_priority_class_counts_before_a_templates() -> None:
    kind, job = kind_of(job_kind()), sweep()
    job["spec"]["search"]["template"]["spec"]["priorityClassName"] = "low"
    assert kind.pod_priority_class(job) == "low"
    job["spec"]["priorityClass"] = "high"
    assert kind.pod_priority_class(job) == "high"


@pytest.mark.parametrize(
    ("pod_sets", "spec", "said"),
    [
        (None, {"search": {}}, "spec.search.template: expected a pod template, found none"),
        (None, {"search": {"template": 7}}, "spec.search.template: expected a pod template, found int"),
        (None, {"trials": {"parallel": "x", "template": POD}}, "spec.trials.parallel: expected an integer, found str"),
        (
            None,
            {"trials": {"parallel": -1, "template": POD}},
            "spec.trials.parallel: expected a number of 0 to 2147483647",
        ),
        (None, {"paused": "yes"}, "spec.paused: expected true or false, found str"),
        (
            [{"template": ".spec.a[*].t", "count": ".spec.a[*].n", "replicas": ".spec.a[*].n", "name": "x"}],
            {"a": [{"t": POD, "n": 2**30}]},
            "spec.a[0].t: expected a number of pods of 0 to 2147483647, found",
        ),
        (
            [{"template": ".spec.a[*].t", "nameFrom": ".spec.a[*].n"}],
            {"a": [{"t": POD, "n": "b/c"}]},
            "spec.a[0].n: expected a name of letters, digits and dashes for its pod set, found 'b/c'",
        ),
        (
            [{"template": ".spec.a[*]"}, {"template": ".spec.a[0].spec", "name": "x", "optional": True}],
            {"a": [{**POD}]},
            "spec.a[0].spec: expected a template of its own, found it in spec.a[0] too",
        ),
        (
            [{"template": ".spec.a[*]"}],
            {"a": {"b": POD, "B": POD}},
            "spec: expected pod sets of different names, found 'b' twice",
        ),
        ([{"template": ".spec.a[*]"}], {"a": {}}, "spec: expected 1 to 18 pod sets, found 0"),
        ([{"template": ".spec.a[*]"}], {"a": [POD] * 19}, "spec: expected 1 to 18 pod sets, found 19"),
    ],
)
def test_an_object_of_another_shape_is_refused_in_one_sentence(
    pod_sets: list[Json] | None, spec: Json, said: str
) -> None:
    kind = kind_of(job_kind(**({} if pod_sets is None else {"podSets": pod_sets})))
    assert (sentence(kind.is_suspended, sweep(**spec)) or sentence(kind.pod_sets, sweep(**spec))).startswith(said)


def started(made: Declared, flavor: str) -> KindWorld:
    world = KindWorld(made.kind, copied(made.job), made.run)
    world.settle()
    world.admit(world.only, flavor=flavor)
    world.settle()
    return world


def shape(spec: Json) -> str:
    return json.dumps(spec["containers"], sort_keys=True)


@HERE
@given(DECLARED)
def test_the_pods_of_a_declared_kind_that_run_are_those_that_were_charged(made: Declared) -> None:
    world = started(made, "h100")
    assert world.job is not None
    charged: Counter[tuple[str, str]] = Counter()
    for pod_set in world.workloads[world.only]["spec"]["podSets"]:
        charged[pod_set["name"], shape(pod_set["template"]["spec"])] += pod_set["count"]
    ran = Counter((metadata["labels"][names.POD_SET], shape(spec)) for metadata, spec in made.pods(world.job))
    assert ran == +charged


@HERE
@given(DECLARED)
def test_a_stop_of_a_declared_kind_gives_the_templates_back_to_the_letter(made: Declared) -> None:
    world = started(made, "a100")
    assert not world.suspended()
    world.evict(world.only)
    world.settle()
    assert world.job is not None
    assert world.job["spec"] == made.job["spec"]
    assert made.pods(world.job) == []
    assert "admission" not in world.workloads[world.only]["status"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["template", "spec", "phase", "pods", "some", "groups", "x"]), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@HERE
@given(DECLARED, _JSON, _JSON)
def test_any_object_gets_an_answer_or_one_sentence(made: Declared, spec: Any, status: Any) -> None:
    kind, job = made.kind, {**made.job, "spec": spec, "status": status}
    for ask in (
        kind.pod_sets,
        kind.finished,
        kind.pods_ready,
        kind.is_stopped,
        kind.is_on_hold,
        kind.reclaimed,
        kind.pod_priority_class,
    ):
        assert "\n" not in sentence(ask, job)
