"""The mutating webhook for serving kinds, for API servers without MutatingAdmissionPolicy. Pure: a review in, one out.

It does what the chart's policies do: the pod templates of an object with a queue are stamped when it is created and
whenever it is changed, and a new object without a queue gets the LocalQueue ``default`` where its namespace has one.
"""

from collections.abc import Callable, Iterator
from typing import Final

from controller.conversion.tree import ConversionError, Json, child, text
from controller.jobframework.raw import JobError
from controller.servingkinds.kind import StampedKind
from controller.servingkinds.table import STAMPED_KINDS
from controller.webhooks.jobs import DEFAULT_QUEUE, QUEUE_LABEL, HasDefaultQueue, labelled, no_default_queue
from controller.webhooks.review import answered, escaped

_META: Final = ".request.object.metadata"


def answer(body: bytes, *, has_default_queue: HasDefaultQueue = no_default_queue) -> bytes:
    """The review of the same uid: allowed, with the patch that the object needs; a refusal of what is no review."""

    def created(job: Json, namespace: str) -> list[Json]:
        return _reviewed(job, lambda: has_default_queue(namespace))

    def changed(job: Json, _namespace: str) -> list[Json]:
        return _reviewed(job, lambda: False)

    return answered(body, created, changed)


def _reviewed(job: Json, has_default_queue: Callable[[], bool]) -> list[Json]:
    found = tuple(text(job, key, ".request.object") for key in ("apiVersion", "kind"))
    for kind in STAMPED_KINDS:
        if (kind.api_version, kind.kind) == found:
            return patch(kind, job, has_default_queue=has_default_queue)
    return []


def patch(kind: StampedKind, job: Json, *, has_default_queue: Callable[[], bool]) -> list[Json]:
    """The JSON patch (RFC 6902) that stamps the pod templates of ``job`` if it has a queue. Raises ConversionError."""
    metadata = child(job, "metadata", ".request.object") or {}
    labels = child(metadata, "labels", _META)
    operations: list[Json] = []
    if not text(labels or {}, QUEUE_LABEL, f"{_META}.labels"):
        if not has_default_queue():
            return []
        operations.append(labelled(labels))
        job = {**job, "metadata": {**metadata, "labels": {**(labels or {}), QUEUE_LABEL: DEFAULT_QUEUE}}}
    try:
        return [*operations, *(operation for path in kind.templates for operation in _stamped(kind, job, path))]
    except JobError as error:
        raise ConversionError(str(error)) from None


def _stamped(kind: StampedKind, job: Json, path: tuple[str, ...]) -> Iterator[Json]:
    """Nothing for an object that has no such template, and for one that another kind has stamped."""
    template, where = job, ".request.object"
    for key in path:
        below = child(template, key, where)
        if below is None:
            return
        template, where = below, f"{where}.{key}"
    pointer = "/" + "/".join(path) + "/metadata"
    metadata = child(template, "metadata", where)
    if kind.is_anothers(job):
        return
    if metadata is None:
        yield {"op": "add", "path": pointer, "value": {}}
    for part, values in zip(("labels", "annotations"), kind.stamp(job, path), strict=True):
        have = child(metadata or {}, part, f"{where}.metadata")
        if have is None and values:
            yield {"op": "add", "path": f"{pointer}/{part}", "value": dict(values)}
            continue
        for key, value in values.items():
            if (have or {}).get(key) != value:
                yield {"op": "add", "path": f"{pointer}/{part}/{escaped(key)}", "value": value}
