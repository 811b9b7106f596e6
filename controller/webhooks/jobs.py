"""The mutating webhook for Jobs, for API servers without MutatingAdmissionPolicy. Pure: an AdmissionReview in, one out.

It does what the chart's policies do: a Job with a queue is created suspended, and a Job without a queue gets the
LocalQueue ``default`` where its namespace has one. The webhook's configuration leaves out other namespaces and children
of other jobs.
"""

from collections.abc import Callable
from typing import Final

from controller.conversion.tree import Json, child, text
from controller.webhooks.review import answered, escaped

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
DEFAULT_QUEUE: Final = "default"

HasDefaultQueue = Callable[[str], bool]
"""Whether the namespace has a LocalQueue called ``default``. Answers from memory."""


def no_default_queue(_namespace: str) -> bool:
    """Jobs without a queue stay without."""
    return False


def answer(
    body: bytes, *, has_default_queue: HasDefaultQueue = no_default_queue, manage_without_queue_name: bool = False
) -> bytes:
    """The review of the same uid: allowed, with the patch that the Job needs. A body that is no review is refused."""

    def made(job: Json, namespace: str) -> list[Json]:
        return patch(
            job,
            has_default_queue=lambda: has_default_queue(namespace),
            manage_without_queue_name=manage_without_queue_name,
        )

    return answered(body, made)


def patch(job: Json, *, has_default_queue: Callable[[], bool], manage_without_queue_name: bool) -> list[Json]:
    """The JSON patch (RFC 6902) that suspends ``job`` if it has a queue. Raises ConversionError for no Job."""
    metadata = child(job, "metadata", ".request.object") or {}
    labels = child(metadata, "labels", ".request.object.metadata")
    operations: list[Json] = []
    if not text(labels or {}, QUEUE_LABEL, ".request.object.metadata.labels"):
        if has_default_queue():
            operations.append(_labelled(labels))
        elif not manage_without_queue_name:
            return []
    spec = child(job, "spec", ".request.object")
    # Without a spec it is no Job: the API server refuses it.
    if spec is not None and spec.get("suspend") is not True:
        operations.append({"op": "add", "path": "/spec/suspend", "value": True})
    return operations


def _labelled(labels: Json | None) -> Json:
    if labels is None:
        return {"op": "add", "path": "/metadata/labels", "value": {QUEUE_LABEL: DEFAULT_QUEUE}}
    return {"op": "add", "path": f"/metadata/labels/{escaped(QUEUE_LABEL)}", "value": DEFAULT_QUEUE}
