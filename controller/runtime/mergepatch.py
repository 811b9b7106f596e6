"""The smallest merge patch (RFC 7386) between two states of an object. Pure."""

from typing import Any, Final

from controller.objects.meta import to_json
from controller.objects.workload import Workload

Json = dict[str, Any]

_SAME: Final = object()
_REQUIRED: Final[dict[str, dict[str, Any]]] = {
    "conditions": {"message": "", "reason": ""},
    "admissionChecks": {"message": ""},
    "reclaimablePods": {"count": 0},
}


def diff(before: Json, after: Json) -> Json:
    """What turns ``before`` into ``after``; lists are replaced as a whole. Empty where they are equal."""
    patch: Json = {}
    for key in before.keys() | after.keys():
        change = _change(before.get(key), after.get(key))
        if change is not _SAME:
            patch[key] = change
    return patch


def _change(old: Any, new: Any) -> Any:
    if old == new:
        return _SAME
    if isinstance(old, dict) and isinstance(new, dict):
        return diff(old, new)
    return new


def status_patch(before: Workload, after: Workload) -> Json:
    """The merge patch of ``status``, tied to the very version that ``before`` was; empty where nothing changes.

    The version makes the API server refuse it once anybody else has written: no two controllers can both admit.
    """
    changes = diff(_complete(to_json(before.status)), _complete(to_json(after.status)))
    if not changes:
        return {}
    meta = before.metadata
    return {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": changes}


def _complete(status: Json) -> Json:
    """What the API requires though it is empty, and a writer that leaves zero values out would not write."""
    for name, needed in _REQUIRED.items():
        for item in status.get(name, ()):
            for key, zero in needed.items():
                item.setdefault(key, zero)
    for item in status.get("schedulingStats", {}).get("evictions", ()):
        item.setdefault("underlyingCause", "")
        item.setdefault("count", 0)
    return status
