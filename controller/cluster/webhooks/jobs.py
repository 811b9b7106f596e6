"""The mutating webhook for jobs, for API servers without MutatingAdmissionPolicy. Pure: it answers an AdmissionReview.

The webhook does what the chart's policies do: a job with a queue is created suspended, and a job without a queue gets
the LocalQueue ``default`` if its namespace has one. The webhook's configuration leaves out other namespaces and
children that their owner's controller made; every other child is marked, and waits for the controller.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.cluster.webhooks.review import answered, escaped
from controller.jobs.framework.raw import JobError
from controller.objects.conversion.tree import Json, child, text
from inventory.api.names import AWAITS_OWNER

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
DEFAULT_QUEUE: Final = "default"

HasDefaultQueue = Callable[[str], bool]
"""Whether the namespace has a LocalQueue called ``default``. Answers from memory."""

SuspendPaths = Mapping[tuple[str, str], tuple[str, ...]]
"""The field that suspends a job while it is true, by API group and kind."""

Defaults = Mapping[tuple[str, str], Callable[[Json], Json]]
"""The defaults that a kind gives a new job, by API group and kind: ``JobKind.defaulted``."""
PLAIN: Final = ("spec", "suspend")


def no_default_queue(_namespace: str) -> bool:
    """A ``HasDefaultQueue`` that finds none: jobs without a queue stay without one."""
    return False


def answer(
    body: bytes,
    *,
    has_default_queue: HasDefaultQueue = no_default_queue,
    manage_without_queue_name: bool = False,
    suspend_paths: SuspendPaths | None = None,
    defaults: Defaults | None = None,
) -> bytes:
    """The review of the same uid: allowed, with the patch that the job needs. A body that is no review is refused.

    A kind that is not in ``suspend_paths`` has the field ``spec.suspend``.
    """

    def made(job: Json, namespace: str) -> list[Json]:
        api_version, kind = (text(job, key, ".request.object") for key in ("apiVersion", "kind"))
        group = api_version.rpartition("/")[0]
        return patch(
            job,
            has_default_queue=lambda: has_default_queue(namespace),
            manage_without_queue_name=manage_without_queue_name,
            suspend_path=(suspend_paths or {}).get((group, kind), PLAIN),
            defaulted=(defaults or {}).get((group, kind), _as_it_is),
        )

    return answered(body, made)


def patch(
    job: Json,
    *,
    has_default_queue: Callable[[], bool],
    manage_without_queue_name: bool,
    suspend_path: tuple[str, ...] = PLAIN,
    defaulted: Callable[[Json], Json] | None = None,
) -> list[Json]:
    """The JSON patch (RFC 6902) that suspends ``job`` if it has a queue. Raises ConversionError for an object that is
    no job.
    """
    metadata = child(job, "metadata", ".request.object") or {}
    labels = child(metadata, "labels", ".request.object.metadata")
    operations: list[Json] = []
    if not text(labels or {}, QUEUE_LABEL, ".request.object.metadata.labels"):
        if has_default_queue():
            operations.append(labelled(labels))
        elif not manage_without_queue_name:
            return []
    held = [*operations, *suspended(job, suspend_path), *awaiting(metadata)]
    return [*held, *differences(job, _made(job, defaulted or _as_it_is))]


def awaiting(metadata: Json) -> list[Json]:
    """The operation that marks a job with an owner whose controller did not make it: the controller releases it."""
    owners = metadata.get("ownerReferences")
    if not isinstance(owners, list) or not any(isinstance(each, dict) and each.get("controller") for each in owners):
        return []
    annotations = child(metadata, "annotations", ".request.object.metadata")
    if annotations is None:
        return [{"op": "add", "path": "/metadata/annotations", "value": {AWAITS_OWNER: "true"}}]
    if annotations.get(AWAITS_OWNER) == "true":
        return []
    return [{"op": "add", "path": f"/metadata/annotations/{escaped(AWAITS_OWNER)}", "value": "true"}]


def _as_it_is(job: Json) -> Json:
    return job


def _made(job: Json, defaulted: Callable[[Json], Json]) -> Json:
    try:
        return defaulted(job)
    except JobError:
        return job  # the controller says what is wrong with it


def differences(now: Any, wanted: Any, path: str = "") -> list[Json]:
    """The operations from one value to another that lacks no key of it; lists that differ are replaced whole."""
    if now is wanted or now == wanted:
        return []
    if not isinstance(now, dict) or not isinstance(wanted, dict):
        return [{"op": "add", "path": path, "value": wanted}]
    return [
        operation
        for key, value in wanted.items()
        for operation in differences(now.get(key), value, f"{path}/{escaped(key)}")
    ]


def suspended(job: Json, path: tuple[str, ...]) -> list[Json]:
    """The operations that set the field. Raises ConversionError for an object that is no job."""
    *above, last = path
    at, where = job, ".request.object"
    for depth, key in enumerate(above):
        below = child(at, key, where)
        if below is None and depth == 0:
            return []  # without a spec it is no job: the API server refuses it
        if below is None:
            value: Json = {last: True}
            for name in reversed(above[depth + 1 :]):
                value = {name: value}
            return [{"op": "add", "path": "/" + "/".join(above[: depth + 1]), "value": value}]
        at, where = below, f"{where}.{key}"
    return [] if at.get(last) is True else [{"op": "add", "path": "/" + "/".join(path), "value": True}]


def labelled(labels: Json | None, queue: str = DEFAULT_QUEUE) -> Json:
    """The operation that puts an object with these labels into the queue."""
    if labels is None:
        return {"op": "add", "path": "/metadata/labels", "value": {QUEUE_LABEL: queue}}
    return {"op": "add", "path": f"/metadata/labels/{escaped(QUEUE_LABEL)}", "value": queue}
