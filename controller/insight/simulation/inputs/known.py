"""The objects that exist, by name: queues with the resources they cover, classes, flavors. They are read from
manifests, or from a cluster.
"""

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from controller.insight.simulation.documents import Document
from controller.objects.meta import KubernetesObject
from controller.objects.queues import ClusterQueue, LocalQueue


class Known(msgspec.Struct):
    """``by_kind``: names; the CLI's ``unknown_classes`` adds those of priority classes that it has looked up.
    ``local_queues``: by namespace and name the ClusterQueue that each leads to. ``covered``: the resources of each
    ClusterQueue.
    """

    by_kind: dict[str, set[str]] = {}
    local_queues: dict[str, dict[str, str]] = {}
    covered: dict[str, set[str]] = {}

    def of(self, kind: str) -> Collection[str]:
        return self.by_kind.get(kind, ())


def known(documents: Iterable[Document]) -> Known:
    index = Known()
    for document in documents:
        name = document.data["metadata"].get("name")
        if not isinstance(name, str):
            continue
        index.by_kind.setdefault(document.kind, set()).add(name)
        spec = document.data.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        if document.kind == "LocalQueue":
            space = str(document.data["metadata"].get("namespace") or "default")
            index.local_queues.setdefault(space, {})[name] = str(spec.get("clusterQueue") or "")
        if document.kind == "ClusterQueue":
            resources = (_listed(group.get("coveredResources")) for group in _objects(spec.get("resourceGroups")))
            index.covered[name] = {str(one) for covered in resources for one in covered}
    return index


def known_in(namespace: str, objects: Iterable[KubernetesObject]) -> Known:
    """The objects of a cluster that a user of the namespace may know: no LocalQueue of another namespace."""
    index = Known()
    for loaded in objects:
        name = loaded.metadata.name
        if isinstance(loaded, LocalQueue):
            if loaded.metadata.namespace == namespace:
                index.local_queues.setdefault(namespace, {})[name] = loaded.spec.cluster_queue
            continue
        index.by_kind.setdefault(type(loaded).__name__, set()).add(name)
        if isinstance(loaded, ClusterQueue):
            index.covered[name] = {one for group in loaded.spec.resource_groups for one in group.covered_resources}
    return index


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in _listed(value) if isinstance(each, dict)]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
