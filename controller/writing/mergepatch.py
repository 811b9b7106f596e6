"""The body that brings an object from one state to another: the smallest merge patch (RFC 7386), or all of a status
where there was none. Pure.
"""

from typing import Any, Final

from controller.objects.meta import to_json
from controller.objects.workload import NO_STATUS, Workload
from controller.watching.kinds import WORKLOADS

Json = dict[str, Any]

_SAME: Final = object()
_UNOWNED: Final = ("creationTimestamp", "generation")
_REQUIRED: Final[dict[str, dict[str, Any]]] = {
    "conditions": {"message": "", "reason": ""},
    "admissionChecks": {"message": ""},
    "reclaimablePods": {"count": 0},
}


def diff(before: Json, after: Json) -> Json:
    """The patch from ``before`` to ``after``; lists are replaced as a whole. Empty where they are equal."""
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

    The version makes the API server refuse it after any other write: two controllers cannot both admit a workload.
    """
    changes = diff(_complete(to_json(before.status)), _complete(to_json(after.status)))
    if not changes:
        return {}
    meta = before.metadata
    return {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": changes}


def may_replace(before: Workload) -> bool:
    """Whether a PUT of the status overwrites nothing: there is no status yet, and all metadata is known.

    An object that is being deleted has a grace period, which is not read.
    """
    meta = before.metadata
    return before.status is NO_STATUS and bool(meta.uid and meta.resource_version) and meta.deletion_timestamp is None


def status_body(before: Workload, after: Workload) -> Json:
    """The object to PUT as its status where ``may_replace(before)``; empty where there is nothing to write.

    The API server keeps stored metadata and spec whatever this says. But before Kubernetes 1.36 it compares this with
    the stored object first, and metadata that is missing here loses its owner; the spec is never compared
    (``GetResetFields`` of apiextensions-apiserver's status strategy).
    """
    status = _complete(to_json(after.status))
    if not status:
        return {}
    metadata = to_json(before.metadata)
    for name in _UNOWNED:
        metadata.pop(name, None)
    version = f"{WORKLOADS.group}/{WORKLOADS.version}"
    return {"apiVersion": version, "kind": WORKLOADS.kind, "metadata": metadata, "status": status}


def patch_of(body: Json) -> Json:
    """The merge patch with the effect of a PUT of ``status_body``."""
    meta = body["metadata"]
    return {"metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}, "status": body["status"]}


def _complete(status: Json) -> Json:
    """With the fields that the API requires even if they are empty: the encoder leaves zero values out."""
    for name, needed in _REQUIRED.items():
        for item in status.get(name, ()):
            for key, zero in needed.items():
                item.setdefault(key, zero)
    for item in status.get("schedulingStats", {}).get("evictions", ()):
        item.setdefault("underlyingCause", "")
        item.setdefault("count", 0)
    return status
