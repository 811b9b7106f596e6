"""Deployments whose pods start together: stamped alike here and by the policy."""

from typing import Any

import pytest

from controller.foreign.podgroups.group import MIN_MEMBER
from controller.foreign.rules.servinggangs import IS_ASKED, PATCH, stamped
from tests.support.controller.celpolicies import evaluated, patched, rewritten


def deployment(template: dict[str, Any] | None, **annotations: str) -> dict[str, Any]:
    spec = {"containers": [], "schedulerName": "volcano"}
    pods = {"spec": spec} if template is None else {"metadata": template, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "annotations": annotations},
        "spec": {"template": pods},
    }


def by_policy(given: dict[str, Any], queue: str) -> dict[str, Any]:
    if not evaluated(IS_ASKED, {"object": given}):
        return given
    return patched(given, evaluated(rewritten(PATCH), {"object": given, "variables": {"queue": queue}}))


@pytest.mark.parametrize("template", [None, {}, {"labels": {"a": "b"}}, {"annotations": {"own": "kept"}}])
def test_its_pods_name_their_group_and_its_minimum(template: dict[str, Any] | None) -> None:
    given = deployment(template, **{MIN_MEMBER: "3"})
    made = stamped(given, "q")
    notes = made["spec"]["template"]["metadata"]["annotations"]
    assert {key: value for key, value in notes.items() if key != "own"} == {
        "scheduling.k8s.io/group-name": "deployment-web",
        MIN_MEMBER: "3",
        "kueue.x-k8s.io/pod-group-serving": "true",
        "scheduling.volcano.sh/queue-name": "q",
    }
    assert by_policy(given, "q") == made
    assert stamped(made, "q") == made
    assert by_policy(made, "q") == made


def test_any_other_object_is_left_as_it_is() -> None:
    plain = deployment({})
    assert stamped(plain, "q") is plain
    assert by_policy(plain, "q") is plain
    of_pods = {**deployment({}, **{MIN_MEMBER: "3"}), "kind": "StatefulSet"}
    assert stamped(of_pods, "q") is of_pods
