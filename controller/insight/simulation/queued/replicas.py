"""Deployments of the manifests as the pods that they would make, ``<name>-<index>``: each pod is queued by itself.

Replicas above ``tessera.dev/min-replicas`` are those of the highest indexes.
"""

from collections.abc import Collection
from typing import Final

from controller.insight.simulation.documents import Document
from controller.jobs.framework.marks import min_replicas
from controller.jobs.framework.names import QUEUE_NAME
from controller.jobs.framework.raw import JobError, Json, annotations, integer, labels, mapping
from controller.jobs.serving.apps import Deployment
from inventory.api.names import ABOVE_MIN_REPLICAS, OF_SIMULATED_JOBS

KIND: Final = ("apps/v1", "Deployment")
DEFAULT_QUEUE: Final = "default"
_MOST: Final = 100_000


def replicas(document: Document, default_queues: Collection[str]) -> list[Document]:
    """The pods of a Deployment that queues; any other document as it is. Raises InputError."""
    if (document.version, document.kind) != KIND:
        return [document]
    job = document.data
    try:
        if not labels(job).get(QUEUE_NAME):
            if job["metadata"]["namespace"] not in default_queues:
                return [document]
            named = {**labels(job), QUEUE_NAME: DEFAULT_QUEUE}
            job = {**job, "metadata": {**job["metadata"], "labels": named}}
        bodies = _pods(job)
    except JobError as error:
        raise document.error(f"{document.kind} {job['metadata']['name']}: {error}") from None
    return [document.having(body) for body in bodies]


def _pods(job: Json) -> list[Json]:
    minimum, count = min_replicas(job), integer(job, "spec", "replicas", default=1)
    if not 0 <= count <= _MOST:
        raise JobError(f"spec.replicas: expected 0 to {_MOST}, found {count}")
    template = mapping(Deployment().stamped(job), "spec", "template")
    simulated = {key: value for key, value in annotations(job).items() if key in OF_SIMULATED_JOBS}
    meta = job["metadata"]
    pods: list[Json] = []
    for index in range(count):
        spare = {ABOVE_MIN_REPLICAS: "true"} if minimum is not None and index >= minimum else {}
        metadata = {
            "name": f"{meta['name']}-{index}",
            "namespace": meta["namespace"],
            "labels": dict(labels(template)),
            "annotations": {**simulated, **annotations(template), **spare},
        }
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": mapping(template, "spec")})
    return pods


def is_spare(pod: Json) -> bool:
    """Whether the pod is a replica above the minimum."""
    return ABOVE_MIN_REPLICAS in annotations(pod)
