"""The parts of a pod template that may change while its pods share one workload: all but those that quota and places
follow from.

Source: Kueue's ``ValidateImmutablePodGroupPodSpec``.
"""

from typing import Any, Final

from controller.jobs.framework.kind import Refusal
from controller.jobs.framework.raw import Json, mapping, sequence
from controller.jobs.rules import cel
from controller.jobs.rules.fields import invalid

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
_EMPTY: Final = {
    "tolerations": "[]",
    "runtimeClassName": "''",
    "priority": "0",
    "topologySpreadConstraints": "[]",
    "resourceClaims": "[]",
}
"""The empty value of each field in CEL; an empty map for all other fields."""
_SENTENCE: Final = "it does not change while the workload is queued"


def changed(old: Json, new: Json, path: str) -> list[Refusal]:
    """Refusals of a changed pod spec. ``old`` and ``new`` are pod specs; ``path`` is their path."""
    found = [refusal for key in _CONTAINER_LISTS for refusal in _containers(old, new, key, path)]
    return found + [invalid(f"{path}.{key}", _SENTENCE) for key in _FIXED if _differ(old.get(key), new.get(key))]


def says(before: str, after: str, path: str) -> str:
    """``changed`` in CEL: the sentence about the first field that differs in two pod specs, which are expressions."""
    sentences = [_containers_say(before, after, key, path) for key in _CONTAINER_LISTS]
    for key in _FIXED:
        was, now = (f"{each}.?{key}.orValue({_EMPTY.get(key, '{}')})" for each in (before, after))
        sentences.append(cel.when(f"{was} != {now}", cel.says(f"{path}.{key}", _SENTENCE)))
    return cel.any_of(*sentences)


def _containers_say(before: str, after: str, key: str, path: str) -> str:
    was, now = (f"{each}.?{key}.orValue([])" for each in (before, after))
    parts = (("resources.requests", "?resources.?requests", "{}"), ("ports", "?ports", "[]"))
    changed = [
        cel.when(
            f"{was}[i].{at}.orValue({empty}) != {now}[i].{at}.orValue({empty})",
            cel.text(cel.quoted(f"{path}.{key}["), "string(i)", cel.quoted(f"].{field}: {_SENTENCE}")),
        )
        for field, at, empty in parts
    ]
    each = cel.first(f"{cel.places(now)}.map(i, {cel.any_of(*changed)})")
    return cel.when(f"size({was}) != size({now})", cel.says(f"{path}.{key}", _SENTENCE), each)


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
    """Whether two values differ. Empty and absent are the same."""
    return (was or None) != (now or None)
