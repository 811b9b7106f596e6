"""What the chart's CRDs and policies say of each case that a real API server is asked about, without one."""

from functools import cache
from typing import Any

import pytest

from controller.scheduler.model.gates import FeatureGates
from tests.support.e2e.queuecases import CREATED, RESERVED, UPDATED, Case, Update, changed, objects
from tests.support.e2e.workloadcases import WORKLOADS_CREATED, WORKLOADS_UPDATED
from tests.support.queuerules import requests
from tests.support.queuerules.schemas import Refusal

Json = dict[str, Any]
UNKNOWN = "unknown field"
"""What is said where the asker wants unknown fields refused: no rule of ours."""


@cache
def given(kind: str) -> Json:
    return objects()[kind]


def assert_said(found: list[Refusal], said: str | None) -> None:
    """A server has other words than jsonschema where a bound is broken, and ours where a rule is."""
    assert bool(found) == (said is not None), found
    assert said is None or any(one.of_bounds or said in f"{one.field}: {one.sentence}" for one in found)


@pytest.mark.parametrize(
    "case",
    [case for case in (*CREATED, *WORKLOADS_CREATED) if not (case.said or "").startswith(UNKNOWN)],
    ids=lambda case: case.name,
)
def test_the_policys_expressions_judge_what_is_created(case: Case) -> None:
    assert_said(requests.created(changed(given(case.kind), case.change)), case.said)


@pytest.mark.parametrize("case", [*UPDATED, *WORKLOADS_UPDATED], ids=lambda case: case.name)
def test_the_policys_expressions_judge_what_is_changed(case: Update) -> None:
    there = changed(given(case.kind), case.first)
    assert_said(requests.updated(there, changed(there, case.change)), case.said)


@pytest.mark.parametrize(
    ("gate", "change"),
    [
        ("AdmissionGatedBy", {"metadata.annotations": {"kueue.x-k8s.io/admission-gated-by": "no gate"}}),
        ("PriorityBoost", {"metadata.annotations": {"kueue.x-k8s.io/priority-boost": "much"}}),
        ("PriorityBoost", {"metadata.annotations": {"kueue.x-k8s.io/priority-boost": "2147483648"}}),
        ("WorkloadValidateResourcesAreNonNegative", {"spec.podSets.1.template.spec.overhead": {"cpu": "-1"}}),
        ("WorkloadValidationForPodSetMetadata", {"spec.podSets.1.template.metadata": {"labels": {"a b": "c"}}}),
    ],
)
def test_a_rule_of_a_gate_is_not_asked_while_that_is_off(gate: str, change: Json) -> None:
    asked = changed(given("Workload"), change)
    assert requests.created(asked, gates=FeatureGates({gate: True}))
    assert requests.created(asked, gates=FeatureGates({gate: False})) == []


def test_counts_stay_while_elastic_jobs_are_off() -> None:
    there = changed(given("Workload"), RESERVED)
    fewer = changed(there, {"spec.podSets.1.count": 3})
    assert requests.updated(there, fewer) == []
    assert requests.updated(there, fewer, FeatureGates({"ElasticJobsViaWorkloadSlices": False}))
