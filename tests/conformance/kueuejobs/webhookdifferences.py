"""Where the rules about queues and workloads differ from Kueue's webhooks on purpose, see ``differences``."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.replay import Rule


def _spec(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return (given.get(name) or {}).get("spec") or {}


def _checked_flavors(spec: Mapping[str, Any]) -> Iterator[str]:
    for check in (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ():
        yield from check.get("onFlavors") or ()


def _migrates_so_far(given: Mapping[str, Any]) -> bool:
    policy = _spec(given, "clusterQueue").get("concurrentAdmissionPolicy") or {}
    return bool((policy.get("migration") or {}).get("constraints"))


def _stranger_of_before(given: Mapping[str, Any]) -> bool:
    """Every flavor that a check names and that the queue has not was named by a check of the queue before."""
    new = _spec(given, "newClusterQueue")
    own = {flavor["name"] for group in new.get("resourceGroups") or () for flavor in group.get("flavors") or ()}
    strangers = set(_checked_flavors(new)) - own
    return bool(strangers) and strangers <= set(_checked_flavors(_spec(given, "oldClusterQueue")))


WEBHOOK_RULES: tuple[Rule, ...] = (
    Rule(
        "concurrent admission is not there: how far a workload may migrate is neither read nor judged",
        _migrates_so_far,
    ),
    Rule(
        "a flavor that a check named before may stay named whatever else is changed, as a value that a schema no "
        "longer lets in may stay: one fault holds up no other change",
        _stranger_of_before,
    ),
)
