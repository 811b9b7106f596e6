"""Whatever Kueue's schema of one version accepts becomes what its schema of the other accepts, and comes back."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from controller.objects.conversion import HUB, KINDS, OLD, convert
from tests.conformance.kueue_crds.schemas import errors, objects
from tests.controller.objects.conversion.test_round_trips import domains, slices

pytestmark = pytest.mark.conformance

ASSIGNMENT = ".status.admission.podSetAssignments[].topologyAssignment"
BELOW: dict[str, st.SearchStrategy[Any]] = {
    ASSIGNMENT: domains(),
    # v1beta1's schema takes any word here; only these mean something.
    ".status.admission.podSetAssignments[].delayedTopologyRequest": st.sampled_from(["Pending", "Ready"]),
    ".spec.admissionScope.admissionMode": st.sampled_from(["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]),
}
ABOVE: dict[str, st.SearchStrategy[Any]] = {
    ASSIGNMENT: slices(),
    # CEL rules beside the schema demand exactly one source, and no group with the other's kind.
    ".spec.clusterSource": st.sampled_from(
        [{"kubeConfig": {"location": "a", "locationType": "Secret"}}, {"clusterProfileRef": {"name": "a"}}]
    ),
    ".spec.priorityClassRef": st.sampled_from(
        [
            {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "a"},
            {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "a"},
        ]
    ),
}
SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("kind", sorted(KINDS))
@SLOW
@given(data=st.data())
def test_v1beta1_becomes_a_valid_v1beta2_and_comes_back(kind: str, data: st.DataObject) -> None:
    before = data.draw(objects(kind, "v1beta1", BELOW))
    assume(not errors(before, kind, "v1beta1"))
    hub = convert(before, HUB)
    assert errors(hub, kind, "v1beta2") == []
    again = convert(hub, OLD)
    assert [error for error in errors(again, kind, "v1beta1") if not declared(error)] == []
    assert convert(again, HUB) == hub


@pytest.mark.parametrize("kind", sorted(KINDS))
@SLOW
@given(data=st.data())
def test_v1beta2_becomes_a_valid_v1beta1_and_comes_back(kind: str, data: st.DataObject) -> None:
    hub = data.draw(objects(kind, "v1beta2", ABOVE))
    assume(not errors(hub, kind, "v1beta2"))
    below = convert(hub, OLD)
    assert [error for error in errors(below, kind, "v1beta1") if not declared(error)] == []
    again = convert(below, HUB)
    assert errors(again, kind, "v1beta2") == []
    assert convert(again, OLD) == below


def declared(error: str) -> bool:
    """v1beta1 demands what v1beta2 may leave out, and nothing stands for "not set" there. Reads are not validated."""
    fields = ("podSets", "clusterQueue", "podSetAssignments", "name", "locationType", "kubeConfig", "count")
    return any(error.endswith(f"'{field}' is a required property") for field in fields)
