"""Parts of GPUs as KAI and HAMi ask for them: what the API server makes of the manifests' pods, and what it refuses.

Templates of Jobs and of Deployments are translated, the latter in place of the pods that are made of them. What other
kinds' templates say is not, as in a cluster.
"""

import copy
from collections.abc import Iterable
from typing import Any, Final

from controller.foreignrules.fractions import Fleet, refusal, translation
from controller.jobframework.raw import JobError, Json, mapping
from controller.simulation.documents import Document

_TEMPLATE: Final = ("spec", "template")
_PODS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("v1", "Pod"): (),
    ("batch/v1", "Job"): _TEMPLATE,
    ("apps/v1", "Deployment"): _TEMPLATE,
}


def in_percents(document: Document, fleet: Fleet) -> Document:
    """Any other document as it is. Raises InputError for a part of which nothing can be made."""
    path = _PODS.get((document.version, document.kind))
    if path is None:
        return document
    try:
        pod = mapping(document.data, *path) if path else document.data
        made = patched(document.data, translation(pod, fleet, "".join(f"/{step}" for step in path)))
        told = refusal(mapping(made, *path) if path else made)
    except JobError as error:
        told, made = str(error), document.data
    if told:
        raise document.error(f"{document.kind} {document.data['metadata']['name']}: {told}")
    return document if made is document.data else Document(document.file, document.number, made, document.path)


def patched(given: Json, operations: Iterable[Json]) -> Json:
    """A copy after additions and removals (RFC 6902) in maps and of items of lists; as it is without operations."""
    listed = list(operations)
    made = copy.deepcopy(given) if listed else given
    for operation in listed:
        *above, last = (step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:])
        at: Any = made
        for step in above:
            at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
        if operation["op"] == "remove":
            del at[last]
        else:
            at[last] = operation["value"]
    return made
