"""API objects as plain dictionaries, of which nothing but kind and name is certain: any field may be anything."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

Json = dict[str, Any]

QUEUE: Final = "kueue.x-k8s.io/queue-name"
MANAGED: Final = "kueue.x-k8s.io/managed"
GROUP: Final = "kueue.x-k8s.io/pod-group-name"
PREBUILT: Final = "kueue.x-k8s.io/prebuilt-workload-name"
DEVICES: Final = "a node's devices"
TREE: Final = "a tree of queues"
"""Kinds of the judge's own keys: no object has them, since a kind is one word."""
JOB_UID: Final = "kueue.x-k8s.io/job-uid"
CAPACITY: Final = "tessera.dev/capacity-request"
"""A label of pods that run inside of what a request was granted: they wait for that, and not for a Workload of their
own.
"""
WORKLOAD: Final = "kueue.x-k8s.io/workload"
POD_SET: Final = "kueue.x-k8s.io/podset"
GATES: Final = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
_OVER: Final = ("Succeeded", "Failed")


class Key(NamedTuple):
    """The key of an object, or of what is judged as one: a node's devices, a tree of queues."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def key_of(body: Json) -> Key:
    meta = inner(body, "metadata")
    return Key(text(body, "kind"), text(meta, "namespace"), text(meta, "name"))


def value(body: object, *path: str) -> object:
    """The value at ``path``; None where there is none."""
    for name in path:
        if not isinstance(body, dict):
            return None
        body = body.get(name)
    return body


def inner(body: object, *path: str) -> Json:
    found = value(body, *path)
    return found if isinstance(found, dict) else {}


def rows(body: object, *path: str) -> list[Json]:
    found = value(body, *path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def text(body: object, *path: str) -> str:
    found = value(body, *path)
    return found if isinstance(found, str) else ""


def whole(body: object, *path: str, default: int = 0) -> int:
    """A number, or ``default``; no count is beyond 2**31."""
    found = value(body, *path)
    return max(-(2**31), min(found, 2**31)) if isinstance(found, int) and not isinstance(found, bool) else default


def uid(body: Json) -> str:
    return text(body, "metadata", "uid")


def label(body: Json, name: str) -> str:
    return text(body, "metadata", "labels", name)


def note(body: Json, name: str) -> str:
    """An annotation."""
    return text(body, "metadata", "annotations", name)


def owners(body: Json) -> list[Json]:
    return rows(body, "metadata", "ownerReferences")


def condition(body: Json, type_: str) -> Json:
    return next((each for each in rows(body, "status", "conditions") if each.get("type") == type_), {})


def is_true(body: Json, type_: str) -> bool:
    return condition(body, type_).get("status") == "True"


def stamp_s(written: str) -> float | None:
    """A time as Kubernetes writes it."""
    try:
        found = datetime.fromisoformat(written)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


# -- pods ------------------------------------------------------------------------------------------------------------


def is_bound(pod: Json) -> bool:
    """Whether the pod has a node and has not ended: it holds what it asks for."""
    return bool(text(pod, "spec", "nodeName")) and not is_over(pod)


def is_over(pod: Json) -> bool:
    return text(pod, "status", "phase") in _OVER


def is_leaving(body: Json) -> bool:
    return bool(text(body, "metadata", "deletionTimestamp"))


def is_gated(pod: Json, gates: tuple[str, ...] = GATES) -> bool:
    """Whether the pod waits behind a gate of the queue, not behind another's."""
    return any(each.get("name") in gates for each in rows(pod, "spec", "schedulingGates"))


# -- Workloads -------------------------------------------------------------------------------------------------------


def holds(workload: Json) -> bool:
    """Whether the Workload has quota: its requests are charged."""
    return is_true(workload, "QuotaReserved") and not is_true(workload, "Finished") and bool(assignments(workload))


def is_admitted(workload: Json) -> bool:
    return is_true(workload, "Admitted") and not is_true(workload, "Finished")


def waits(workload: Json) -> bool:
    """Whether the Workload wants quota and has none, and nothing but the queue keeps it from it."""
    active = value(workload, "spec", "active") is not False
    held_back = condition(workload, "Requeued").get("status") == "False"
    leaving = is_leaving(workload) or is_true(workload, "Finished")
    return active and not held_back and not leaving and not is_true(workload, "QuotaReserved")


def assignments(workload: Json) -> list[Json]:
    return rows(workload, "status", "admission", "podSetAssignments")


def queue_of(workload: Json) -> str:
    """The ClusterQueue whose quota it has."""
    return text(workload, "status", "admission", "clusterQueue")


def unready_checks(workload: Json) -> tuple[str, ...]:
    open_ = [each for each in rows(workload, "status", "admissionChecks") if each.get("state") != "Ready"]
    return tuple(text(each, "name") for each in open_)


def local_queue(workload: Json) -> tuple[str, str]:
    """The namespace and name of its LocalQueue."""
    return text(workload, "metadata", "namespace"), text(workload, "spec", "queueName")


def reclaimable(workload: Json) -> dict[str, int]:
    """The number of pods that need nothing any more, by pod set."""
    return {text(each, "name"): whole(each, "count") for each in rows(workload, "status", "reclaimablePods")}


def named(keys: Iterator[Key] | list[Key]) -> tuple[str, ...]:
    return tuple(str(each) for each in keys)
