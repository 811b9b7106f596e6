"""Where the rules about queues and workloads differ from Kueue's webhooks on purpose, see ``differences``."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.conformance.replay import Rule

GATES_OF_RULES: Final = (
    "AdmissionGatedBy",
    "PriorityBoost",
    "TASValidateWorkloadSliceSize",
    "WorkloadValidateResourcesAreNonNegative",
    "WorkloadValidationForPodSetMetadata",
)
REPLACES: Final = "kueue.x-k8s.io/workload-slice-replacement-for"


def _spec(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return (given.get(name) or {}).get("spec") or {}


def _checked_flavors(spec: Mapping[str, Any]) -> Iterator[str]:
    for check in (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ():
        yield from check.get("onFlavors") or ()


def _gate_of_a_rule_is_off(given: Mapping[str, Any]) -> bool:
    """A Workload under a gate that keeps one of Kueue's rules about Workloads from being asked."""
    gates = given.get("featureGates") or {}
    return ("workload" in given or "after" in given) and any(gates.get(name) is False for name in GATES_OF_RULES)


def _slice_of_another_cluster(given: Mapping[str, Any]) -> bool:
    after = given.get("after") or {}
    return REPLACES in (after.get("metadata", {}).get("annotations") or {}) and bool(
        (after.get("status") or {}).get("clusterName")
    )


def _stranger_of_before(given: Mapping[str, Any]) -> bool:
    """Every flavor that a check names and that the queue has not was named by a check of the queue before."""
    new = _spec(given, "newClusterQueue")
    own = {flavor["name"] for group in new.get("resourceGroups") or () for flavor in group.get("flavors") or ()}
    strangers = set(_checked_flavors(new)) - own
    return bool(strangers) and strangers <= set(_checked_flavors(_spec(given, "oldClusterQueue")))


WEBHOOK_RULES: tuple[Rule, ...] = (
    Rule(
        "the API server's rules know no gates of the controller: what is wrong once a gate is on is refused before",
        _gate_of_a_rule_is_off,
    ),
    Rule(
        "a cluster's name is one of those nominated, also for the next slice of a workload", _slice_of_another_cluster
    ),
    Rule(
        "a flavor that a check named before may stay named whatever else is changed, as a value that a schema no "
        "longer lets in may stay: one fault holds up no other change",
        _stranger_of_before,
    ),
)
