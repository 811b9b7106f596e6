"""Where the rules about queues and workloads differ from Kueue's webhooks on purpose, see ``differences``."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.conformance.replay import Rule, at

SLICE_SIZE: Final = "TASValidateWorkloadSliceSize"
REPLACES: Final = "kueue.x-k8s.io/workload-slice-replacement-for"


def _spec(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return (given.get(name) or {}).get("spec") or {}


def _checked_flavors(spec: Mapping[str, Any]) -> Iterator[str]:
    for check in (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ():
        yield from check.get("onFlavors") or ()


def _slice_sizes_are_free(given: Mapping[str, Any]) -> bool:
    """A Workload under the gate that keeps Kueue from asking for the sizes of slices."""
    gates = given.get("featureGates") or {}
    return ("workload" in given or "after" in given) and gates.get(SLICE_SIZE) is False


def _is_about_slices(sentences: Any) -> bool:
    return bool(sentences) and all("lice" in one.partition(":")[0] for one in sentences)


def _is_about_the_cluster(sentences: Any) -> bool:
    return bool(sentences) and all(one.startswith("status.clusterName: ") for one in sentences)


def _names_flavors_of_checks(fields: Any) -> bool:
    return bool(fields) and all("admissionChecks" in one and "onFlavors" in one for one in fields)


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
        "sizes of slices are for the schema, which knows no gates: what is wrong once a gate is on is refused before",
        _slice_sizes_are_free,
        at("refused", [], _is_about_slices),
    ),
    Rule(
        "a cluster's name is one of those nominated, also for the next slice of a workload",
        _slice_of_another_cluster,
        at("refused", [], _is_about_the_cluster),
    ),
    Rule(
        "a flavor that a check named before may stay named whatever else is changed, as a value that a schema no "
        "longer lets in may stay: one fault holds up no other change",
        _stranger_of_before,
        at("refused", _names_flavors_of_checks, []),
    ),
)
