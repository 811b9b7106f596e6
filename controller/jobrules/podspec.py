"""What of a pod template may change while its pods share one workload: all but what quota and places follow from.

Source: Kueue's ``ValidateImmutablePodGroupPodSpec``.
"""

from typing import Any, Final

from controller.jobframework.kind import Refusal
from controller.jobframework.raw import Json, mapping, sequence
from controller.jobrules.marks import invalid

_FIXED: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
    "resources",
)
_CONTAINER_LISTS: Final = ("initContainers", "containers")
_SENTENCE: Final = "it does not change while the workload is queued"


def changed(old: Json, new: Json, path: str) -> list[Refusal]:
    """``old`` and ``new`` are pod specs; ``path`` is where they stand."""
    found = [refusal for key in _CONTAINER_LISTS for refusal in _containers(old, new, key, path)]
    return found + [invalid(f"{path}.{key}", _SENTENCE) for key in _FIXED if _differ(old.get(key), new.get(key))]


def _containers(old: Json, new: Json, key: str, path: str) -> list[Refusal]:
    before, after = sequence(old, key), sequence(new, key)
    if len(before) != len(after):
        return [invalid(f"{path}.{key}", _SENTENCE)]
    return [
        invalid(f"{path}.{key}[{index}].{field}", _SENTENCE)
        for index, (one, other) in enumerate(zip(before, after, strict=True))
        for field, was, now in (
            ("resources.requests", mapping(one, "resources", "requests"), mapping(other, "resources", "requests")),
            ("ports", one.get("ports"), other.get("ports")),
        )
        if _differ(was, now)
    ]


def _differ(was: Any, now: Any) -> bool:
    """Empty and absent are the same."""
    return (was or None) != (now or None)
