"""Parts of GPUs as other schedulers request them: what the API server makes of the manifests' pods, and what it
refuses.

Templates of Jobs and of Deployments are translated, the latter in place of the pods that are made of them. Templates of
other kinds are not, as in a cluster.
"""

import copy
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from controller.foreign.rules.fractions import PRODUCT, Fleet, refusal, translation
from controller.insight.simulation.documents import Document
from controller.jobs.framework.raw import JobError, Json, mapping, strings
from controller.objects.core import Node
from controller.objects.meta import KubernetesObject

_NODE: Final = ("v1", "Node")
_GPU_MEMORY: Final = "nvidia.com/gpu.memory"
"""Label of a node: MiB of each of its GPUs."""
_TEMPLATE: Final = ("spec", "template")
_PODS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("v1", "Pod"): (),
    ("batch/v1", "Job"): _TEMPLATE,
    ("apps/v1", "Deployment"): _TEMPLATE,
}


def fleet_of(config: Fleet, documents: Iterable[Document], nodes: Iterable[KubernetesObject]) -> Fleet:
    """The configuration with the memory of one GPU of each product, as nodes' labels tell it, unless it has such
    amounts itself.

    Of several amounts for a product the least counts: a part of so many MiB is valid on every node then. ``nodes``: the
    nodes that come beside the documents.
    """
    if config.memory_mib:
        return config
    node_labels = [
        *(_labels(each.data) for each in documents if (each.version, each.kind) == _NODE),
        *(each.metadata.labels for each in nodes if isinstance(each, Node)),
    ]
    memory_mib: dict[str, int] = {}
    for labels in node_labels:
        product, memory = labels.get(PRODUCT, ""), labels.get(_GPU_MEMORY, "")
        if product and memory.isascii() and memory.isdecimal() and int(memory) > 0:
            memory_mib[product] = min(int(memory), memory_mib.get(product, int(memory)))
    return msgspec.structs.replace(config, memory_mib=memory_mib)


def _labels(node: Json) -> dict[str, str]:
    """The labels of a node; empty if they cannot be read: the decoder of the node says why."""
    try:
        return strings(node, "metadata", "labels")
    except JobError:
        return {}


def in_percents(document: Document, fleet: Fleet) -> Document:
    """The document with parts of GPUs in percents; any other document as it is. Raises InputError for a part that
    cannot be translated.
    """
    path = _PODS.get((document.version, document.kind))
    if path is None:
        return document
    try:
        pod = mapping(document.data, *path) if path else document.data
        made = patched(document.data, translation(pod, fleet, "".join(f"/{step}" for step in path)))
        problem = refusal(mapping(made, *path) if path else made)
    except JobError as error:
        problem, made = str(error), document.data
    if problem:
        raise document.error(f"{document.kind} {document.data['metadata']['name']}: {problem}")
    return document if made is document.data else document.having(made)


def patched(given: Json, operations: Iterable[Json]) -> Json:
    """A copy after additions and removals (RFC 6902) in maps and of items of lists; the same object without
    operations.
    """
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
