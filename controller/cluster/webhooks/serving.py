"""The mutating webhook for serving kinds, for API servers without MutatingAdmissionPolicy. Pure: it answers a review.

The webhook does what the chart's policies do: the pod templates of an object with a queue are stamped when it is
created and whenever it is changed, and a new object without a queue gets the LocalQueue ``default`` if its namespace
has one.
"""

from collections.abc import Callable

from controller.cluster.webhooks.jobs import DEFAULT_QUEUE, QUEUE_LABEL, HasDefaultQueue, labelled, no_default_queue
from controller.cluster.webhooks.review import answered
from controller.jobs.framework.raw import JobError, at
from controller.jobs.serving.kind import StampedKind
from controller.jobs.serving.table import STAMPED_KINDS
from controller.objects.conversion.tree import ConversionError, Json, child, text
from controller.scheduler.model.gates import FeatureGates

_META = ".request.object.metadata"


def answer(
    body: bytes,
    *,
    has_default_queue: HasDefaultQueue = no_default_queue,
    manage_without_queue_name: bool = False,
    gates: FeatureGates | None = None,
) -> bytes:
    """The review of the same uid: allowed, with the patch that the object needs. A body that is no review is
    refused.
    """

    def created(job: Json, namespace: str) -> list[Json]:
        return _reviewed(job, lambda: has_default_queue(namespace), manage_without_queue_name, gates)

    def changed(job: Json, _namespace: str) -> list[Json]:
        return _reviewed(job, lambda: False, manage_without_queue_name, gates)

    return answered(body, created, changed)


def _reviewed(
    job: Json, has_default_queue: Callable[[], bool], manage_without_queue_name: bool, gates: FeatureGates | None
) -> list[Json]:
    found = tuple(text(job, key, ".request.object") for key in ("apiVersion", "kind"))
    for kind in STAMPED_KINDS:
        if (kind.api_version, kind.kind) == found:
            return patch(
                kind,
                job,
                has_default_queue=has_default_queue,
                manage_without_queue_name=manage_without_queue_name,
                gates=gates,
            )
    return []


def patch(
    kind: StampedKind,
    job: Json,
    *,
    has_default_queue: Callable[[], bool],
    manage_without_queue_name: bool = False,
    gates: FeatureGates | None = None,
) -> list[Json]:
    """The JSON patch (RFC 6902) that stamps the pod templates of ``job`` if it has a queue. Raises ConversionError."""
    metadata = child(job, "metadata", ".request.object") or {}
    labels = child(metadata, "labels", _META)
    operations: list[Json] = []
    try:
        if not text(labels or {}, QUEUE_LABEL, f"{_META}.labels"):
            if has_default_queue() and not kind.is_anothers(job):
                operations.append(labelled(labels))
                job = {**job, "metadata": {**metadata, "labels": {**(labels or {}), QUEUE_LABEL: DEFAULT_QUEUE}}}
            elif not (manage_without_queue_name and kind.waits_unnamed):
                return []
        stamped = kind.stamped(job, gates)
        paths = [(*stamp.path, "metadata") for stamp in kind.stamps]
        changed = [path for path in paths if at(stamped, *path) != at(job, *path)]
    except JobError as error:
        raise ConversionError(f".request.object: {error}") from None
    return operations + [{"op": "add", "path": f"/{'/'.join(path)}", "value": at(stamped, *path)} for path in changed]
