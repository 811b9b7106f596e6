"""The mutating webhook for pods, for API servers without MutatingAdmissionPolicy. Pure: it answers an AdmissionReview.

The webhook does what the chart's policy does: a pod with a queue is created with the scheduling gate, with the label by
which the controller watches it, and with the finalizer by which the controller misses no end. Pods of serving kinds get
no finalizer: their owners replace each under Kubernetes' own rules, which must not wait for the controller. Pods that
wait for a group have another label until they are in one. The webhook's configuration selects the pods.
"""

from collections.abc import Callable
from typing import Any, Final

from controller.cluster.webhooks.review import answered, escaped
from controller.jobs.framework.podview import SUSPENDING_PARENT
from controller.jobs.serving.table import SERVING_PARENTS
from controller.objects.conversion.tree import ConversionError, Json, child, kind_of, text
from inventory.api.names import JOINING

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
GATE: Final = "kueue.x-k8s.io/admission"
MANAGED: Final = "kueue.x-k8s.io/managed"
"""The label, whose value is "true", and the finalizer."""

_META: Final = ".request.object.metadata"


def answer(body: bytes, *, manage_without_queue_name: bool = False) -> bytes:
    """The review of the same uid: allowed, with the patch that the pod needs. A body that is no review is refused."""

    def made(pod: Json, _namespace: str) -> list[Json]:
        return patch(pod, manage_without_queue_name=manage_without_queue_name)

    return answered(body, made)


def patch(pod: Json, *, manage_without_queue_name: bool) -> list[Json]:
    """The JSON patch (RFC 6902) that marks ``pod``; empty for one without a queue. Raises ConversionError for an object
    that is no pod.

    Pods that their owner's own controller made are not sent here: the webhook's match conditions know whose they are.
    """
    metadata = child(pod, "metadata", ".request.object") or {}
    labels = child(metadata, "labels", _META)
    parent = (child(metadata, "annotations", _META) or {}).get(SUSPENDING_PARENT)
    joins = parent in SERVING_PARENTS
    named = bool(text(labels or {}, QUEUE_LABEL, f"{_META}.labels"))
    if not (joins or named or manage_without_queue_name):
        return []
    spec = child(pod, "spec", ".request.object")
    if spec is None:
        return []  # no pod: the API server refuses it
    operations: list[Json] = []
    mark = JOINING if joins else MANAGED
    if labels is None:
        operations.append(_add("/metadata/labels", {mark: "true"}))
    elif labels.get(mark) != "true":
        operations.append(_add(f"/metadata/labels/{escaped(mark)}", "true"))
    if parent is None:
        operations += _listed(metadata, "finalizers", "/metadata", MANAGED, _META, is_there=lambda key: key == MANAGED)
    gate = {"name": GATE}
    return operations + _listed(
        spec,
        "schedulingGates",
        "/spec",
        gate,
        ".request.object.spec",
        is_there=lambda key: isinstance(key, dict) and key.get("name") == GATE,
    )


def _listed(
    parent: Json, key: str, pointer: str, value: Any, where: str, *, is_there: Callable[[Any], bool]
) -> list[Json]:
    """The operations that put ``value`` into a list that may be missing."""
    items = _items(parent, key, where)
    if any(is_there(item) for item in items):
        return []
    return [_add(f"{pointer}/{key}/-", value) if items else _add(f"{pointer}/{key}", [value])]


def _items(parent: Json, key: str, where: str) -> list[Any]:
    items = parent.get(key)
    if items is None:
        return []
    if not isinstance(items, list):
        raise ConversionError(f"{where}.{key}: found {kind_of(items)}, expected array")
    return items


def _add(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}
