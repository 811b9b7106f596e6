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
    found = Known()
    for each in documents:
        name = each.data["metadata"].get("name")
        if not isinstance(name, str):
            continue
        found.by_kind.setdefault(each.kind, set()).add(name)
        spec = each.data.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        if each.kind == "LocalQueue":
            space = str(each.data["metadata"].get("namespace") or "default")
            found.local_queues.setdefault(space, {})[name] = str(spec.get("clusterQueue") or "")
        if each.kind == "ClusterQueue":
            resources = (_listed(group.get("coveredResources")) for group in _objects(spec.get("resourceGroups")))
            found.covered[name] = {str(one) for covered in resources for one in covered}
    return found


def known_in(namespace: str, objects: Iterable[KubernetesObject]) -> Known:
    """The objects of a cluster that a user of the namespace may know: no LocalQueue of another namespace."""
    found = Known()
    for each in objects:
        name = each.metadata.name
        if isinstance(each, LocalQueue):
            if each.metadata.namespace == namespace:
                found.local_queues.setdefault(namespace, {})[name] = each.spec.cluster_queue
            continue
        found.by_kind.setdefault(type(each).__name__, set()).add(name)
        if isinstance(each, ClusterQueue):
            found.covered[name] = {one for group in each.spec.resource_groups for one in group.covered_resources}
    return found


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in _listed(value) if isinstance(each, dict)]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
