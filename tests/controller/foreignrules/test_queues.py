"""The queue of Volcano's or KAI's that an object is for is told twice, in Python and in CEL: both name the same."""

from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.engine.mirror.specs import System
from controller.foreignrules.queues import NAMES, QUEUE
from controller.foreignrules.schedulers import SCHEDULERS
from controller.jobframework.foreignmarks import KAI_QUEUE, VOLCANO_QUEUES, foreign_queue
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


def in_cel(system: System, given: dict[str, Any]) -> str:
    names = f"['{SCHEDULERS[system.value]}']"
    return str(evaluated(QUEUE[system.value].replace(NAMES, names), {"object": given}))


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(System), st.data())
def test_both_name_the_same_queue(system: System, data: st.DataObject) -> None:
    given = data.draw(objects(system))
    found = foreign_queue(given)
    own = found.name if found is not None and found.system is system else ""
    theirs = in_cel(system, given)
    # Of a scheduler that an object names beside its template the first counts there, any here.
    assert own == theirs or (own == "" and theirs in ("default", "default-queue"))


def test_what_is_for_the_queue_of_a_pod_group_is_told_by_no_policy() -> None:
    pod = {"metadata": {"annotations": {GROUP: "g"}}, "spec": {"schedulerName": "volcano"}}
    assert in_cel(System.VOLCANO, pod) == ""
    pod["metadata"]["annotations"][VOLCANO_QUEUES[0]] = "q"  # type: ignore[index]
    assert in_cel(System.VOLCANO, pod) == "q"
