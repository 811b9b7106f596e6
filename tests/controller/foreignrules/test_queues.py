"""The queue of Volcano's or KAI's that an object is for is told twice, in Python and in CEL: both name the same."""

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.engine.mirror.specs import System
from controller.foreignrules.queues import GROUPED, NAMES, QUEUE
from controller.foreignrules.schedulers import SCHEDULERS
from controller.jobframework.foreignmarks import VOLCANO_QUEUES, foreign_queue
from controller.jobframework.podview import KAI_QUEUE
from inventory.api.names import SCHEDULER_NAME
from tests.support.controller.celpolicies import evaluated

GROUP: Final = "scheduling.k8s.io/group-name"
SCHEDULER: Final = st.sampled_from(["", "default-scheduler", "volcano", "kai-scheduler"])


def metadata(system: System) -> st.SearchStrategy[dict[str, Any]]:
    """With marks of one system: whose an object is that has those of both is told by where they stand."""
    names = st.sampled_from(["", "a", "b"])
    kept = {SCHEDULER_NAME: SCHEDULER}
    if system is System.KAI:
        marks, notes = {KAI_QUEUE: names}, kept
    else:
        marks = dict.fromkeys(VOLCANO_QUEUES[1:], names)
        notes = {**kept, **dict.fromkeys(VOLCANO_QUEUES, names)}
    return st.fixed_dictionaries(
        {},
        optional={
            "labels": st.fixed_dictionaries({}, optional=marks),
            "annotations": st.fixed_dictionaries({}, optional=notes),
        },
    )


@st.composite
def objects(draw: st.DrawFn, system: System) -> dict[str, Any]:
    """A pod, or a job."""

    def spec(**more: Any) -> dict[str, Any]:
        scheduler = draw(SCHEDULER)
        return {"containers": [], **more} | ({"schedulerName": scheduler} if scheduler else {})

    meta = {"name": "o", "namespace": "ns", **draw(metadata(system))}
    if draw(st.booleans()):
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec()}
    template = {"metadata": draw(metadata(system)), "spec": spec()}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}


def asked(system: System, expressions: dict[Any, str], given: dict[str, Any]) -> Any:
    names = f"['{SCHEDULERS[system.value]}']"
    return evaluated(expressions[system.value].replace(NAMES, names), {"object": given})


def in_cel(system: System, given: dict[str, Any]) -> str:
    return str(asked(system, QUEUE, given))


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(System), st.data())
def test_both_name_the_same_queue(system: System, data: st.DataObject) -> None:
    given = data.draw(objects(system))
    found = foreign_queue(given)
    own = found.name if found is not None and found.system is system else ""
    theirs = in_cel(system, given)
    # Of a scheduler that an object names beside its template the first counts there, any here.
    assert own == theirs or (own == "" and theirs in ("default", "default-queue"))


GROUPS: Final = {System.VOLCANO: (GROUP, "volcano"), System.KAI: ("pod-group-name", "kai-scheduler")}


@pytest.mark.parametrize("system", System)
def test_a_pod_that_leaves_the_queue_to_its_group_is_held_without_a_queue(system: System) -> None:
    mark, scheduler = GROUPS[system]
    pod = {"metadata": {"annotations": {mark: "g"}}, "spec": {"schedulerName": scheduler}}
    assert (in_cel(system, pod), asked(system, GROUPED, pod)) == ("", True)
    kept = {"metadata": {"annotations": {mark: "g", SCHEDULER_NAME: scheduler}}, "spec": {"schedulerName": "other"}}
    assert asked(system, GROUPED, kept)
    anothers = {**pod, "spec": {"schedulerName": "other"}}
    assert not asked(system, GROUPED, anothers), "another scheduler's pods are not ours to hold"
    assert not asked(system, GROUPED, {"metadata": {}, "spec": {"schedulerName": scheduler}})


def test_a_queue_beside_the_group_is_the_pods_own() -> None:
    volcano = {"annotations": {GROUP: "g", VOLCANO_QUEUES[0]: "q"}}
    assert in_cel(System.VOLCANO, {"metadata": volcano, "spec": {"schedulerName": "volcano"}}) == "q"
    kai = {"annotations": {"pod-group-name": "g"}, "labels": {KAI_QUEUE: "q"}}
    assert in_cel(System.KAI, {"metadata": kai, "spec": {"schedulerName": "kai-scheduler"}}) == "q"
