"""Which queue of Volcano's or KAI's a job is for, and what it brings along."""

from typing import Any

import pytest

from controller.jobs.framework.foreignmarks import (
    ForeignQueue,
    as_queued,
    foreign_queue,
    kai_class,
    preemption_marks,
    smaller_gang,
    staleness_s,
)
from controller.jobs.framework.marks import queue_name
from controller.jobs.framework.podview import GroupName
from controller.scheduler.mirror.specs import System

KAI, VOLCANO = System.KAI, System.VOLCANO
QUEUE, ANNOTATION = "kai.scheduler/queue", "scheduling.volcano.sh/queue-name"


def job(template: dict[str, Any] | None = None, *, kind: str = "Job", scheduler: str = "", **meta: Any) -> Any:
    spec: dict[str, Any] = {"containers": [], **({"schedulerName": scheduler} if scheduler else {})}
    pods = {"metadata": template or {}, "spec": spec}
    metadata = {"name": "j", "namespace": "ns", **meta}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": metadata, "spec": {"template": pods}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (job(labels={QUEUE: "q"}), ForeignQueue(KAI, "q")),
        (job({"labels": {QUEUE: "q"}}), ForeignQueue(KAI, "q")),
        (job({"labels": {QUEUE: "pods"}}, labels={QUEUE: "owner"}), ForeignQueue(KAI, "owner")),
        (job(annotations={ANNOTATION: "q"}), ForeignQueue(VOLCANO, "q")),
        (job({"annotations": {ANNOTATION: "q"}}), ForeignQueue(VOLCANO, "q")),
        (job(scheduler="volcano"), ForeignQueue(VOLCANO, "default")),
        (job(scheduler="kai-scheduler"), ForeignQueue(KAI, "default-queue")),
        (
            job({"annotations": {"tessera.dev/scheduler-name": "volcano"}}, scheduler="default-scheduler"),
            ForeignQueue(VOLCANO, "default"),
        ),
        (
            job({"annotations": {"scheduling.k8s.io/group-name": "gang"}}, scheduler="volcano"),
            ForeignQueue(VOLCANO, "g"),
        ),
        (job(labels={QUEUE: "q", "kueue.x-k8s.io/queue-name": "ours"}), None),
        (job(scheduler="default-scheduler"), None),
        (job(), None),
    ],
)
def test_the_queue_that_a_job_is_for(given: Any, expected: ForeignQueue | None) -> None:
    gang = ("ns", GroupName(VOLCANO, "gang"))
    found = foreign_queue(given, lambda namespace, group: "g" if (namespace, group) == gang else "")
    assert found == expected


def test_a_volcano_job_says_its_queue_itself() -> None:
    given = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"namespace": "ns"}}
    assert foreign_queue({**given, "spec": {"queue": "q"}}) == ForeignQueue(VOLCANO, "q")
    assert foreign_queue({**given, "spec": {}}) == ForeignQueue(VOLCANO, "default")
    marked = {**given, "metadata": {"labels": {QUEUE: "theirs"}}, "spec": {"queue": "q"}}
    assert (foreign_queue(marked), kai_class(marked, lambda _name: None)) == (ForeignQueue(VOLCANO, "q"), None)


def test_a_job_that_is_for_one_of_theirs_gets_our_label_beside_its_own() -> None:
    given = job(labels={QUEUE: "q"})
    queued = as_queued(given)
    assert (queue_name(queued), queued["metadata"]["labels"][QUEUE]) == ("q", "q")
    assert as_queued(queued) == queued
    assert as_queued(job()) == job()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (job(labels={QUEUE: "q"}), ("train", 50)),
        (job(labels={QUEUE: "q"}, kind="Deployment"), ("inference", 125)),
        (job(labels={QUEUE: "q", "pod-template-hash": "5d"}, kind="Pod"), ("inference", 125)),
        (job(labels={QUEUE: "q", "priorityClassName": "build"}), ("build", 100)),
        (job({"labels": {"priorityClassName": "own"}}, labels={QUEUE: "q"}), ("own", 7)),
        (job(labels={QUEUE: "q", "priorityClassName": "unknown"}), None),
        (job(labels={"priorityClassName": "build"}), None),
        (job(scheduler="kai-scheduler"), ("train", 50)),
        (job(scheduler="volcano"), None),
        (job(scheduler="volcano", labels={QUEUE: "q"}), None),
    ],
)
def test_a_job_of_kai_runs_by_kais_classes(given: Any, expected: tuple[str, int] | None) -> None:
    assert kai_class(given, {"own": 7}.get) == expected


def test_what_says_whether_it_may_be_preempted_goes_along() -> None:
    given = job(
        labels={"kai.scheduler/preemptibility": "non-preemptible"}, annotations={"volcano.sh/preemptable": "false"}
    )
    wanted = {"kai.scheduler/preemptibility": "non-preemptible", "volcano.sh/preemptable": "false"}
    assert preemption_marks(given) == wanted
    assert preemption_marks(job()) == {}


@pytest.mark.parametrize(("said", "found"), [("90s", 90.0), ("1m30s", 90.0), ("-1s", -1.0), ("0s", 0.0), ("", None)])
def test_a_job_of_kai_says_how_long_it_may_run_below_its_minimum(said: str, found: float | None) -> None:
    marks = {"kai.scheduler/staleness-grace-period": said}
    assert staleness_s(job(labels=KAIS, annotations=marks)) == found
    assert staleness_s(job(scheduler="kai-scheduler", annotations=marks)) == found
    assert staleness_s(job(annotations=marks)) is None
    assert staleness_s(job(labels=KAIS)) is None


KAIS = {"kai.scheduler/queue": "q"}
ELASTIC: Any = {"elasticPolicy": {"minReplicas": 2}}


def asking(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any) -> Any:
    return {
        "kind": "PyTorchJob",
        "metadata": {"labels": labels or KAIS, "annotations": annotations or {}},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (asking(**ELASTIC), "spec.elasticPolicy.minReplicas: found 2; the job starts with all of its 4 pods"),
        (asking(elasticPolicy={"minReplicas": 3}), "spec.elasticPolicy.minReplicas: found 3; "),
        (asking(runPolicy={"schedulingPolicy": {"minAvailable": 1}}), "spec.runPolicy.schedulingPolicy.minAvailable: "),
        (asking(annotations={"kai.scheduler/batch-min-member": "3"}), "metadata.annotations[kai.scheduler/batch-min"),
        (asking({**KAIS, "kai.scheduler/batch-min-member": "3"}), "metadata.labels[kai.scheduler/batch-min-member]: "),
    ],
)
def test_a_smaller_gang_that_a_job_of_kais_asks_for_is_named(given: Any, expected: str) -> None:
    assert smaller_gang(given, 4).startswith(expected)


@pytest.mark.parametrize(
    "given",
    [
        asking(),
        asking({"team": "x"}, **ELASTIC),
        asking(elasticPolicy={"minReplicas": 4}),
        asking(elasticPolicy={"minReplicas": 0}),
        asking(elasticPolicy={"minReplicas": True}),
        asking(elasticPolicy={"minReplicas": "2"}),
        asking(annotations={"kai.scheduler/batch-min-member": "9" * 5000}),
        asking(annotations={"kai.scheduler/batch-min-member": "²"}),
        asking(annotations={"kai.scheduler/batch-min-member": "-1"}),
    ],
)
def test_no_other_job_asks_for_a_smaller_gang(given: Any) -> None:
    assert smaller_gang(given, 4) == ""
