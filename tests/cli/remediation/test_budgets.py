"""Disruption budgets that refuse a drain are told with what they allow, as the API server would answer an eviction."""

from typing import Any, Final

import pytest

from cli.remediation.budgets import EVICT, Budget, BudgetRow, Guards, Holder, refusals
from controller.cluster.config.settings import OnGpuFailure
from controller.objects.decode import decode
from inventory.api.names import ON_GPU_FAILURE

READY: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
FAILING: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}


def pod(name: str = "bert-0", *, status: Any = READY, **metadata: Any) -> Holder:
    meta = {"name": name, "namespace": "team", "uid": "u", "labels": {"app": "bert"}, **metadata}
    return decode({"metadata": meta, "spec": {"containers": []}, "status": status}, Holder)


def budget(name: str = "bert", *, allowed: int = 0, healthy: int = 3, desired: int = 3, **spec: Any) -> Budget:
    return decode(
        {
            "metadata": {"name": name, "namespace": spec.pop("namespace", "team"), "generation": 2},
            "spec": {"selector": {"matchLabels": {"app": "bert"}}, **spec},
            "status": {
                "observedGeneration": 2,
                "disruptionsAllowed": allowed,
                "currentHealthy": healthy,
                "desiredHealthy": desired,
            },
        },
        Budget,
    )


def named(rows: tuple[BudgetRow, ...]) -> list[str]:
    return [row.budget for row in rows]


def test_a_budget_that_allows_nothing_is_named_with_its_counts() -> None:
    (row,) = refusals([pod("b"), pod("a")], [budget()])
    assert (row.budget, row.pods) == ("team/bert", ("team/a", "team/b"))
    assert (row.disruptions_allowed, row.current_healthy, row.desired_healthy) == (0, 3, 3)
    assert (row.is_alone, row.is_counted) == (True, True)


@pytest.mark.parametrize(("allowed", "refuses"), [(0, True), (1, True), (2, False), (3, False)])
def test_a_budget_refuses_while_it_allows_fewer_than_are_to_leave(allowed: int, refuses: bool) -> None:
    assert bool(refusals([pod("a"), pod("b")], [budget(allowed=allowed)])) is refuses


@pytest.mark.parametrize(
    "selector",
    [{"matchLabels": {"app": "other"}}, None, {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}],
)
def test_a_budget_that_does_not_select_the_pod_keeps_nobody(selector: Any) -> None:
    assert refusals([pod()], [budget(selector=selector)]) == ()


def test_an_empty_selector_is_of_all_pods_of_its_namespace_alone() -> None:
    assert named(refusals([pod(labels={})], [budget(selector={})])) == ["team/bert"]
    assert refusals([pod(labels={})], [budget(selector={}, namespace="elsewhere")]) == ()


@pytest.mark.parametrize(
    ("healthy", "desired", "policy", "refuses"),
    [
        (3, 3, None, False),
        (2, 3, None, True),
        (0, 0, None, True),
        (2, 3, "IfHealthyBudget", True),
        (2, 3, "AlwaysAllow", False),
    ],
)
def test_a_pod_that_is_not_ready_leaves_by_the_budgets_rule_about_such_pods(
    healthy: int, desired: int, policy: str | None, refuses: bool
) -> None:
    found = budget(healthy=healthy, desired=desired, unhealthyPodEvictionPolicy=policy)
    assert bool(refusals([pod(status=FAILING)], [found])) is refuses


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_no_budget_is_asked_about_a_pod_that_does_not_run(phase: str) -> None:
    assert refusals([pod(status={"phase": phase})], [budget(), budget("second")]) == ()


def test_two_budgets_of_one_pod_refuse_it_whatever_they_allow() -> None:
    rows = refusals([pod()], [budget(allowed=5), budget("second", allowed=5)])
    assert [(row.budget, row.is_alone) for row in rows] == [("team/bert", False), ("team/second", False)]


def test_a_budget_that_was_changed_and_not_counted_since_refuses() -> None:
    changed = decode(
        {
            "metadata": {"name": "bert", "namespace": "team", "generation": 3},
            "spec": {"selector": {}},
            "status": {"observedGeneration": 2, "disruptionsAllowed": 9},
        },
        Budget,
    )
    (row,) = refusals([pod()], [changed])
    assert not row.is_counted


def test_the_policy_by_which_pods_are_evicted_is_the_controllers() -> None:
    assert OnGpuFailure.EVICT.value == EVICT


@pytest.mark.parametrize(
    ("metadata", "drained", "refuses"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"annotations": {"kueue.x-k8s.io/workload": "job-bert"}}, True, False),
        ({"annotations": {"kueue.x-k8s.io/workload": "job-bert", ON_GPU_FAILURE: "requeue-gang"}}, True, False),
        ({"annotations": {"kueue.x-k8s.io/workload": "job-bert", ON_GPU_FAILURE: "evict"}}, True, True),
        ({"annotations": {ON_GPU_FAILURE: "evict"}}, False, True),
        ({"annotations": {ON_GPU_FAILURE: "evict"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}, True, False),
    ],
)
def test_budgets_concern_only_pods_that_are_evicted(metadata: Any, drained: bool, refuses: bool) -> None:
    guards = Guards(pods={"team/bert-0": pod(**metadata)}, budgets=(budget(),))
    assert bool(guards.refusals(["team/bert-0", "team/gone"], drained=drained)) is refuses
