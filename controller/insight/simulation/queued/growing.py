"""Jobs of the manifests that begin with a minimum, as the documents that are queued of each: the job, and every pod
above its minimum.

Such a pod is named by its job, its pod set where the job has several, and its index. It runs as long as the job would.
"""

from collections.abc import Iterator
from typing import Final

from controller.insight.simulation.documents import Document
from controller.insight.simulation.jobkinds import JobKindsRead
from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.marks import queue_name
from controller.jobs.framework.names import QUEUE_NAME
from controller.jobs.framework.podview import MANAGED
from controller.jobs.framework.raw import JobError, Json, annotations, labels, mapping
from inventory.api.names import ABOVE_MINIMUM_OF, OF_SIMULATED_JOBS

_MOST: Final = 100_000


def grown(document: Document, kinds: JobKindsRead) -> list[Document]:
    """The document, and one for each pod above its minimum. Raises InputError.

    A document that cannot be read stays as it is: its reader says why.
    """
    kind = kinds.get((document.version, document.kind))
    try:
        above = {} if kind is None else kind.counts_above(document.data)
        if kind is None or not above:
            return [document]
        if (count := sum(above.values())) > _MOST:
            where = f"{document.kind} {document.data['metadata']['name']}"
            raise document.error(f"{where}: expected at most {_MOST} pods above its minimum, found {count}")
        pods = list(_pods(kind, document.data, above))
    except JobError:
        return [document]
    return [document, *(document.having(pod) for pod in pods)]


def _pods(kind: JobKind, job: Json, above: dict[str, int]) -> Iterator[Json]:
    first, templates, meta = kind.counts(job), kind.templates(job), job["metadata"]
    simulated = {key: value for key, value in annotations(job).items() if key in OF_SIMULATED_JOBS}
    for name, count in above.items():
        template = templates[name]
        called = f"{meta['name']}-{name}" if len(first) > 1 else meta["name"]
        marks = {**labels(job), **labels(template), QUEUE_NAME: queue_name(job), MANAGED: "true"}
        notes = {**annotations(template), **simulated, ABOVE_MINIMUM_OF: meta["name"]}
        for index in range(first[name], first[name] + count):
            metadata = {
                "name": f"{called}-{index}",
                "namespace": meta["namespace"],
                "labels": marks,
                "annotations": notes,
            }
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": mapping(template, "spec")}
