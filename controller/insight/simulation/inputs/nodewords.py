"""Labels of nodes that manifests select and that no node has."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from controller.insight.simulation.documents import Document, warned
from controller.insight.simulation.fields import POD_SPEC, typed
from controller.insight.simulation.problems import listed, meant, shown, with_its_numbers
from controller.insight.simulation.sources import Path_
from controller.objects.core import Node
from controller.objects.meta import KubernetesObject

_FLAVOR: Final = "ResourceFlavor"


def misplaced(documents: Iterable[Document], nodes: Iterable[KubernetesObject]) -> Iterator[str]:
    """A warning for each value of a node's label that a job selects and that no node has. A label that no node has at
    all gives no warning: the nodes here may be described without it.
    """
    of_nodes = [each for each in nodes if isinstance(each, Node)]
    keys = {key for node in of_nodes for key in node.metadata.labels}
    for document in documents if of_nodes else ():
        for path, type_, value in typed(document.data):
            if type_ == POD_SPEC:
                known = {key: one for key, one in selector(value).items() if key in keys}
                yield from selects_none(document, (*path, "nodeSelector"), known, of_nodes)


def without_nodes(documents: Iterable[Document], nodes: Iterable[KubernetesObject]) -> Iterator[str]:
    """A warning for each ResourceFlavor that selects no node: a workload that is placed on nodes never starts on it."""
    of_nodes = [each for each in nodes if isinstance(each, Node)]
    for document in documents if of_nodes else ():
        spec = document.data.get("spec")
        labels = spec.get("nodeLabels") if document.kind == _FLAVOR and isinstance(spec, dict) else None
        if not isinstance(labels, dict):
            continue
        path = ("spec", "nodeLabels")
        told = list(selects_none(document, path, labels, of_nodes))
        yield from told
        if not told and not any(labels.items() <= node.metadata.labels.items() for node in of_nodes):
            found = ", ".join(f"{key}={value}" for key, value in labels.items())
            said = f"found {found[:200]}, expected labels that one node has together. Correct them"
            yield warned(document.told(path, said))


def selector(spec: Any) -> Mapping[Any, Any]:
    """A pod's ``nodeSelector``; empty where it has none."""
    found = spec.get("nodeSelector") if isinstance(spec, dict) else None
    return found if isinstance(found, dict) else {}


def selects_none(document: Document, path: Path_, labels: Mapping[Any, Any], nodes: Iterable[Node]) -> Iterator[str]:
    """A warning for each of the labels at ``path`` that no node has, or none with that value."""
    of_nodes = list(nodes)
    for key, value in labels.items():
        values = {node.metadata.labels[key] for node in of_nodes if key in node.metadata.labels}
        if value in values:
            continue
        keys = {each for node in of_nodes for each in node.metadata.labels}
        there = f"a value that a node has: {listed(values)}" if values else "a label that a node has"
        near = meant(str(value), with_its_numbers(str(value), values)) if values else meant(str(key), keys)
        hint = f"Correct it.{near}".removesuffix(".")
        yield warned(document.told((*path, str(key)), f"found {shown(value)}, expected {there}. {hint}"))
