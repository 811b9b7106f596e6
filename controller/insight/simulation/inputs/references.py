"""Names in manifests that lead nowhere: queues, classes, flavors, and labels that are close to known ones.

A class that does not exist is refused on a cluster; a queue or a flavor may be created later, which gives a warning
here.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from controller.insight.simulation.documents import Document, warned
from controller.insight.simulation.fields import POD_SPEC, REQUIREMENTS, typed
from controller.insight.simulation.inputs.known import Known
from controller.insight.simulation.inputs.nodewords import selector, selects_none
from controller.insight.simulation.inputs.queuewords import unknown_queue
from controller.insight.simulation.problems import expected_one, listed, meant, nearest, shown, with_its_numbers
from controller.insight.simulation.sources import Path_
from controller.jobs.framework import names
from controller.objects.core import Node
from controller.objects.meta import KubernetesObject
from inventory.api.names import (
    CAPACITY_REQUEST,
    CHECKPOINT_WAIT,
    DRAIN_AT,
    GPU_MEMORY_GIB,
    GPU_PERCENT,
    GPU_PERCENT_DEVICES,
    GPU_PRODUCT,
    LAST_CHECKPOINT,
    MIN_GPU_MEMORY_GIB,
    MIN_REPLICAS,
    MINIMUM_RUNTIME_BEFORE_PREEMPTION,
    OF_SIMULATED_JOBS,
    ON_DEMAND_FLOOR,
    ON_GPU_FAILURE,
    PREFERRED_GPU_LINK,
    PREFIX,
    QUOTA_CALENDAR,
    QUOTA_SHARES,
    REQUIRED_GPU_LINK,
)

_KUEUE: Final = "kueue.x-k8s.io/"
_POD_GROUPS: Final = ("pod-group-name", "pod-group-total-count", "pod-group-pod-index", "pod-group-pod-index-label")
_PODSETS: Final = (
    "podset-required-topology",
    "podset-preferred-topology",
    "podset-unconstrained-topology",
    "podset-slice-required-topology",
    "podset-slice-size",
    "podset-group-name",
)
_WRITTEN: Final = frozenset(
    {
        CAPACITY_REQUEST,
        names.QUEUE_NAME,
        names.PRIORITY_CLASS,
        names.MAX_EXEC_TIME,
        names.PREBUILT_WORKLOAD,
        names.MIN_PARALLELISM,
        names.ELASTIC_JOB,
        *(_KUEUE + name for name in (*_POD_GROUPS, *_PODSETS)),
        *OF_SIMULATED_JOBS,
        LAST_CHECKPOINT,
        CHECKPOINT_WAIT,
        DRAIN_AT,
        GPU_PRODUCT,
        MIN_GPU_MEMORY_GIB,
        MIN_REPLICAS,
        MINIMUM_RUNTIME_BEFORE_PREEMPTION,
        ON_DEMAND_FLOOR,
        ON_GPU_FAILURE,
        PREFERRED_GPU_LINK,
        QUOTA_CALENDAR,
        QUOTA_SHARES,
        REQUIRED_GPU_LINK,
    }
)
"""Labels and annotations that people write."""
_RESOURCES: Final = frozenset({GPU_MEMORY_GIB, GPU_PERCENT, GPU_PERCENT_DEVICES})
_ALMOST: Final = 0.85
_SAME_DOMAIN: Final = 0.8
"""The similarity of two resources of one domain: ``nvidia.com/gpus`` and ``nvidia.com/gpu`` are above it, a MIG profile
is not."""


def missing_classes(documents: Iterable[Document], known: Known) -> Iterator[str]:
    """A line for each job of a WorkloadPriorityClass that does not exist."""
    path = ("metadata", "labels", names.PRIORITY_CLASS)
    for document in documents:
        name = _at(document.data, *path)
        if isinstance(name, str) and name and name not in known.of("WorkloadPriorityClass") and not _is_made(document):
            there = known.of("WorkloadPriorityClass")
            expected = expected_one("WorkloadPriorityClass", there)
            hint = f"Create it, or correct the label.{meant(name, there)}".removesuffix(".")
            yield document.told(path, f"found {shown(name)}, expected {expected}. {hint}")


def loose_ends(documents: Iterable[Document], known: Known) -> Iterator[str]:
    """A warning for each queue and flavor that is named and does not exist."""
    for document in documents:
        if _is_made(document):
            continue
        if told := unknown_queue(document, known.local_queues):
            yield told
        for path, kind, name in _named_by(document):
            there = known.of(kind)
            if name and name not in there:
                expected = expected_one(kind, there)
                hint = f"Create it, or correct the name.{meant(name, there)}".removesuffix(".")
                yield warned(document.told(path, f"found {shown(name)}, expected {expected}. {hint}"))


def unserved(documents: Iterable[Document], known: Known, nodes: Iterable[KubernetesObject]) -> Iterator[str]:
    """Warnings for jobs that no flavor fits: one for each resource that their queue does not cover, and for each label
    that no node has.
    """
    of_nodes = [each for each in nodes if isinstance(each, Node)]
    offered = {name for node in of_nodes for name in (node.status.allocatable or node.status.capacity)}
    for document in documents:
        space = str(document.data["metadata"].get("namespace") or "default")
        local_queue = str(_at(document.data, "metadata", "labels", names.QUEUE_NAME))
        queue = known.local_queues.get(space, {}).get(local_queue, "")
        covered = known.covered.get(queue)
        for path, type_, value in typed(document.data):
            if type_ == REQUIREMENTS and covered is not None:
                yield from _uncovered(document, path, value, queue, covered, offered)
            elif type_ == POD_SPEC and of_nodes:
                yield from selects_none(document, (*path, "nodeSelector"), selector(value), of_nodes)


def _uncovered(
    document: Document, path: Path_, value: Any, queue: str, covered: set[str], offered: set[str]
) -> Iterator[str]:
    seen = set[str]()
    for part in ("limits", "requests"):
        for name in value.get(part) or () if isinstance(value, dict) else ():
            if name in covered or name in seen:
                continue
            seen.add(name)
            has = f"; the nodes have {listed(each for each in offered if '/' in each)}" if offered else ""
            expected = f"a resource that ClusterQueue {queue} covers: {listed(covered)}{has}"
            near = nearest(name, with_its_numbers(name, covered | offered), _SAME_DOMAIN)
            hint = "Correct it, or add it to the queue" + (f". Did you mean {near}?" if near else "")
            yield warned(document.told((*path, part, name), f"found {name[:63]}, expected {expected}. {hint}"))


def _named_by(document: Document) -> Iterator[tuple[Path_, str, str]]:
    """The names in an object of Kueue: path, kind and name of each."""
    if not document.version.startswith(_KUEUE):
        return
    if document.kind == "LocalQueue":
        yield ("spec", "clusterQueue"), "ClusterQueue", str(_at(document.data, "spec", "clusterQueue") or "")
    if document.kind == "ResourceFlavor":
        yield ("spec", "topologyName"), "Topology", str(_at(document.data, "spec", "topologyName") or "")
    if document.kind == "ClusterQueue":
        for at, group in enumerate(_dicts(_at(document.data, "spec", "resourceGroups"))):
            for place, flavor in enumerate(_dicts(group.get("flavors"))):
                path = ("spec", "resourceGroups", at, "flavors", place, "name")
                yield path, "ResourceFlavor", str(flavor.get("name") or "")


def almost(document: Document) -> Iterator[str]:
    """A warning for each label and annotation that is close to a known one."""
    if _is_made(document):
        return
    for part in ("labels", "annotations"):
        found = _at(document.data, "metadata", part)
        for key in map(str, found) if isinstance(found, dict) else ():
            if key in _WRITTEN or not key.startswith((_KUEUE, PREFIX)):
                continue
            if key in _RESOURCES:
                sentence = (
                    f"found the resource {key}, expected it in resources.limits of a container. Here it counts for"
                )
                yield warned(document.told(("metadata", part, key), f"{sentence} nothing"))
                continue
            near = nearest(key, _WRITTEN, _ALMOST)
            if near and near.partition("/")[0] == key.partition("/")[0]:
                sentence = (
                    f"found an unknown {part.removesuffix('s')}, expected {near}. It counts for nothing: correct it"
                )
                yield warned(document.told(("metadata", part, key), sentence))


def _is_made(document: Document) -> bool:
    """Whether another object made it: the names in it are not its writer's."""
    return bool(document.data["metadata"].get("ownerReferences"))


def _at(data: Any, *path: str) -> Any:
    """The value at the path; None if there is none, or if the object has another shape."""
    for step in path:
        data = data.get(step) if isinstance(data, dict) else None
    return data


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    """The items of a list, with an empty object for each that is none, so that indexes stay."""
    return [each if isinstance(each, dict) else {} for each in _listed(value)]
