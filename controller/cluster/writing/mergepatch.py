"""The body that changes a Workload's status: the smallest merge patch (RFC 7386), or the whole status if all of the old
one is known. Pure.
"""

from typing import Any, Final

from controller.cluster.watching.kinds import WORKLOADS
from controller.objects.meta import to_json
from controller.objects.workload import Workload

Json = dict[str, Any]

_SAME: Final = object()
_UNOWNED: Final = ("creationTimestamp", "generation")
_REQUIRED: Final[dict[str, dict[str, Any]]] = {
    "conditions": {"message": "", "reason": ""},
    "admissionChecks": {"message": ""},
    "reclaimablePods": {"count": 0},
}


def diff(before: Json, after: Json) -> Json:
    """The patch from ``before`` to ``after``; lists are replaced as a whole. Empty if they are equal."""
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


def status_of(workload: Workload) -> Json:
    """The workload's status as the API server is to store it."""
    return _complete(to_json(workload.status))


def status_patch(before: Workload, after: Workload) -> Json:
    """The merge patch of ``status``, tied to the version of ``before``; empty if nothing changes.

    The version makes the API server refuse the patch after any other write: two controllers cannot both admit a
    workload.
    """
    changes = diff(status_of(before), status_of(after))
    if not changes:
        return {}
    meta = before.metadata
    return {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "status": changes}


def may_replace(before: Workload) -> bool:
    """Whether the status of a workload that is known as a whole may be put.

    False for an object that is being deleted: it has a grace period, which is not read.
    """
    meta = before.metadata
    return bool(meta.uid and meta.resource_version) and meta.deletion_timestamp is None


def status_body(before: Workload, after: Workload) -> Json:
    """The object to PUT as the workload's status if ``may_replace(before)``; empty if nothing changes.

    The API server keeps stored metadata and spec whatever this body has. But before Kubernetes 1.36 it compares it with
    the stored object first, and metadata that is missing here loses its owner; the spec is never compared
    (``GetResetFields`` of apiextensions-apiserver's status strategy).
    """
    if after.status == before.status:
        return {}
    metadata = to_json(before.metadata)
    for name in _UNOWNED:
        metadata.pop(name, None)
    version = f"{WORKLOADS.group}/{WORKLOADS.version}"
    return {"apiVersion": version, "kind": WORKLOADS.kind, "metadata": metadata, "status": status_of(after)}


def _complete(status: Json) -> Json:
    """The status with the fields that the API requires even if they are empty: the encoder leaves zero values out."""
    for name, needed in _REQUIRED.items():
        for item in status.get(name, ()):
            for key, zero in needed.items():
                item.setdefault(key, zero)
    for item in status.get("schedulingStats", {}).get("evictions", ()):
        item.setdefault("underlyingCause", "")
        item.setdefault("count", 0)
    return status
