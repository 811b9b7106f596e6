"""The parts of the cluster's objects that go into a support bundle. Pure: a function takes an object and returns the
part that is kept.

Pod templates are left out whole: containers' commands and environments are their owners'. Managed fields, which name
people, are left out.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from cli.printing.console import Json
from inventory.api.names import PREFIX

_CHART: Final = re.compile(r"tessera-\d")
"""The chart with its version, which stays where ``nameOverride`` gives the parts another name."""
_META: Final = ("name", "namespace", "uid", "generation", "creationTimestamp", "deletionTimestamp", "finalizers")
_NODE_LABELS: Final = (
    "nvidia.com/",
    PREFIX,
    "kubernetes.io/",
    "node.kubernetes.io/",
    "topology.kubernetes.io/",
)
_KEPT_SPEC: Final = (
    "queueName",
    "priority",
    "priorityClassRef",
    "active",
    "maximumExecutionTimeSeconds",
    "preemptionGates",
)
_OF_OPERATORS: Final = ("Node", "GpuNode", "ClusterQueue")
_NOBODYS: Final = frozenset(
    ("default", "gpu", "gpus", "cpu", "memory", "main", "queue", "job", "jobs", "pod", "node", "worker", "workers")
)
"""Names that are words of every cluster: hidden, they would make sentences unreadable; shown, they reveal nothing."""
_OF_PEOPLE: Final = {"Workload": "workload", "Pod": "pod", "LocalQueue": "queue"}


def of_tessera(given: Json) -> bool:
    """Whether the object is of the chart: others may have pods and ConfigMaps in the namespace of the controller."""
    labels = (given.get("metadata") or {}).get("labels") or {}
    return (
        labels.get("app.kubernetes.io/name") == "tessera" or _CHART.match(str(labels.get("helm.sh/chart"))) is not None
    )


def meta(given: Json, *also: str) -> Json:
    found = given.get("metadata")
    return {key: found[key] for key in (*_META, *also) if key in found} if isinstance(found, dict) else {}


def whole(given: Json) -> Json:
    """The object of an operator: queues, flavors, GpuNodes. Labels are kept, and annotations of ours."""
    annotations = (given.get("metadata") or {}).get("annotations") or {}
    ours = {key: value for key, value in annotations.items() if PREFIX in key or "kueue.x-k8s.io/" in key}
    kept = {"metadata": {**meta(given, "labels"), **({"annotations": ours} if ours else {})}}
    return kept | {key: given[key] for key in ("kind", "spec", "status", "value", "data") if key in given}


def gpu_node(given: Json) -> Json:
    """The GpuNode with holders without their container: its name tells nothing about a device."""
    body = whole(given)
    status = body.get("status") or {}
    holders = [
        {key: value for key, value in each.items() if key != "container"} for each in status.get("holders") or []
    ]
    return {**body, "status": {**status, "holders": holders}}


def workload(given: Json) -> Json:
    spec = given.get("spec") or {}
    sets = [
        {
            **{key: pod_set[key] for key in ("name", "count", "minCount", "topologyRequest") if key in pod_set},
            "requests": [
                (container.get("resources") or {})
                for container in ((pod_set.get("template") or {}).get("spec") or {}).get("containers") or []
            ],
        }
        for pod_set in spec.get("podSets") or []
    ]
    owners = [{key: each.get(key) for key in ("apiVersion", "kind", "name")} for each in _owners(given)]
    kept = {key: spec[key] for key in _KEPT_SPEC if key in spec}
    metadata = meta(given) | ({"ownerReferences": owners} if owners else {})
    return {"metadata": metadata, "spec": {**kept, "podSets": sets}, "status": given.get("status") or {}}


def _owners(given: Json) -> list[Json]:
    return [each for each in (given.get("metadata") or {}).get("ownerReferences") or [] if isinstance(each, dict)]


def node(given: Json) -> Json:
    """The Node: labels of its places and of its devices; conditions, taints, amounts, versions."""
    labels = (given.get("metadata") or {}).get("labels") or {}
    spec, status = given.get("spec") or {}, given.get("status") or {}
    return {
        "metadata": {**meta(given), "labels": {k: v for k, v in labels.items() if k.startswith(_NODE_LABELS)}},
        "spec": {key: spec[key] for key in ("taints", "unschedulable") if key in spec},
        "status": {key: status[key] for key in ("capacity", "allocatable", "conditions", "nodeInfo") if key in status},
    }


def own_pod(given: Json) -> Json:
    """A pod of the controller or of an agent: its state, images, arguments; no environment."""
    spec, status = given.get("spec") or {}, given.get("status") or {}
    containers = [
        {key: each[key] for key in ("name", "image", "args", "command", "resources") if key in each}
        for each in spec.get("containers") or []
    ]
    return {
        "metadata": meta(given, "labels"),
        "spec": {"nodeName": spec.get("nodeName"), "containers": containers},
        "status": {
            key: status[key]
            for key in ("phase", "conditions", "containerStatuses", "reason", "message")
            if key in status
        },
    }


def event(given: Json) -> Json:
    kept = ("reason", "note", "type", "regarding", "eventTime", "series", "reportingController", "action")
    old = ("deprecatedCount", "deprecatedFirstTimestamp", "deprecatedLastTimestamp")
    return {key: given[key] for key in (*kept, *old) if given.get(key) is not None}


def concerns(given: Json, namespace: str) -> bool:
    """Whether an Event regards queued work, nodes, or the controller's own namespace."""
    about = given.get("regarding") or {}
    return about.get("kind") in ("Workload", "Node", "GpuNode", "ClusterQueue", "LocalQueue") or (
        about.get("namespace") == namespace
    )


def names(kinds: Iterable[tuple[str, Iterable[Json]]], stays: Callable[[str], bool]) -> dict[str, str]:
    """The names that people gave, with a word for the kind of object: of namespaces, of objects in them, of the
    objects' owners.

    ``stays``: whether the names of a namespace are left unchanged.
    """
    by_name: dict[str, str] = {}
    for kind, objects in kinds:
        for item in objects:
            metadata = item.get("metadata") or {}
            if stays(str(metadata.get("namespace") or "")):
                continue
            _name(by_name, metadata.get("namespace"), "namespace")
            if kind == "Namespace":
                _name(by_name, metadata.get("name"), "namespace")
            elif kind in _OF_PEOPLE:
                _name(by_name, metadata.get("name"), _OF_PEOPLE[kind])
            for owner in _owners(item) if kind in _OF_PEOPLE else ():
                _name(by_name, owner.get("name"), "job")
            if kind == "GpuNode":
                for holder in (item.get("status") or {}).get("holders") or []:
                    if not stays(str(holder.get("namespace"))):
                        _name(by_name, holder.get("namespace"), "namespace")
                        _name(by_name, holder.get("pod"), "pod")
            about = item.get("regarding") or {}
            if kind == "Event" and about.get("kind") not in _OF_OPERATORS and not stays(str(about.get("namespace"))):
                _name(by_name, about.get("namespace"), "namespace")
                _name(by_name, about.get("name"), "name")
    return by_name


def _name(found: dict[str, str], name: Any, kind: str) -> None:
    if isinstance(name, str) and name and name not in _NOBODYS:
        found.setdefault(name, kind)
