"""Simulations read JobKinds among their manifests, and objects of the kinds that these declare."""

from typing import Any

import pytest

from controller.cluster.config.load import parse
from controller.insight.simulation.documents import Document, InputError
from controller.insight.simulation.manifests import Scenario, scenario
from controller.jobs.framework.raw import Json
from tests.support.controller.declarations import SWEEP, job_kind
from tests.support.controller.stage import CONFIG

POD: Json = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
JOB: Json = {
    "apiVersion": "lab.example/v1",
    "kind": "Sweep",
    "metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
    "spec": {"search": {"template": POD}, "trials": {"parallel": 3, "template": POD}},
}


def read(*given: Any) -> Scenario:
    return scenario([Document("jobs.yaml", at, each) for at, each in enumerate(given, 1)], parse(CONFIG))


def test_an_object_is_a_job_by_its_job_kind_before_it_or_after_it() -> None:
    for order in ((SWEEP, JOB), (JOB, SWEEP)):
        (only,) = read(*order).submissions
        assert only.key == "default/a"
        assert [(each.name, each.count) for each in only.workload.spec.pod_sets] == [("search", 1), ("trials", 3)]


def test_without_its_job_kind_it_is_no_job() -> None:
    with pytest.raises(InputError, match=r"kind: found Sweep of lab.example/v1, expected a kind of job"):
        read(JOB)


def test_a_wrong_job_kind_and_a_wrong_object_are_told_with_their_field() -> None:
    said = r"jobs.yaml: document 1: JobKind sweeps.lab.example: spec.ready: expected one of condition, field and count"
    with pytest.raises(InputError, match=said):
        read(job_kind(ready={}), JOB)
    with pytest.raises(
        InputError, match=r"document 2: Sweep a: spec.search.template: expected a pod template, found none"
    ):
        read(SWEEP, {**JOB, "spec": {**JOB["spec"], "search": {}}})
